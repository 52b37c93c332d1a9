"""Deliberate ends: an operator's kill with and without force, and a job past its `job_timeout`."""

from __future__ import annotations

import pytest

from ephemerd.core.commands import Deregister, Destroy
from ephemerd.core.events import DestroyFailed
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.runner import FenceAnswer, GatePhase
from ephemerd.domain.verdict import Sign
from tests.unit.core.build import BUSY, HOUR, IDLE, MINUTE, RETRY, SECOND, UNKNOWN, World, pool


def escapes(world):
    return sum(value for name, value in world.core.state.counters.items() if "outcome=escaped" in name)


# without force


def test_kill_of_an_idle_runner_passes_the_gate_like_any_other():
    world = World()
    name = world.listening()
    world.kill(name)
    assert world.rules(name) == "operator"
    world.probed(name)
    world.fenced(name)
    world.wait(5 * SECOND)
    world.probed(name)
    assert world.outcomes(name) == [("operator", "reaped", "idle", "probe")]
    (command,) = world.commands(Destroy, name)
    assert (command.permit.warrant.value, command.permit.polite) == ("idle", False)


def test_kill_of_a_busy_runner_is_vetoed_and_the_order_is_over():
    world = World()
    name = world.running()
    world.kill(name)
    world.probed(name, BUSY)
    assert world.outcomes(name) == [("operator", "vetoed", "busy", "probe")]
    assert world.row(name).order_given is None
    world.wait(HOUR)
    assert world.commands(Destroy, name) == []


def test_kill_that_could_not_look_is_tried_again():
    world = World()
    name = world.listening()
    world.kill(name)
    world.probed(name, UNKNOWN)
    world.flag(name, busy=False)
    world.wait(2 * SECOND)
    assert world.rules(name) == "operator"


def test_killed_runner_is_no_supply():
    world = World()
    name = world.listening()
    world.kill(name)
    assert name not in world.core.state.index.supply["linux"]


def test_kill_goes_at_once_although_a_veto_has_just_been_given():
    world = World()
    name = world.at_gate()
    world.probed(name, UNKNOWN)
    world.flag(name, busy=False)
    world.kill(name)
    assert world.rules(name) == "operator"


@pytest.mark.parametrize("seen", [BUSY, UNKNOWN], ids=["busy", "unknown"])
def test_kill_without_force_never_escapes_past_the_hard_bound(seen):
    world = World(pool(job_timeout=HOUR))
    name = world.finishing()
    world.now += HOUR + 30 * MINUTE + MINUTE
    world.kill(name)
    assert world.rules(name) == "operator"
    world.probed(name, seen)
    if seen is UNKNOWN:
        world.flag(name, busy=False)
    assert world.outcomes(name)[0][:2] == ("operator", "vetoed")
    assert world.commands(Deregister, name) == []
    assert (escapes(world), world.row(name).order_given) == (0, None)


def test_kill_without_force_never_escapes_at_grace_where_there_is_no_probe():
    world = World(pool(probes=False, surplus_grace=HOUR))
    name = world.listening()
    world.now += 9 * MINUTE
    world.kill(name)
    world.now += 2 * MINUTE
    world.flag(name, missing=True)
    assert world.outcomes(name) == [("operator", "vetoed", "unknown", "forge")]
    assert world.commands(Deregister, name) == []


def test_bound_ends_the_runner_after_the_order_did_not():
    """The order is over, and the rules go on: what no person forced still ends by its bound."""
    world = World(pool(probes=False, surplus_grace=HOUR))
    name = world.listening()
    world.discharge(name)
    world.now += 9 * MINUTE
    world.kill(name)
    world.now += 2 * MINUTE
    world.flag(name, missing=True)
    world.wait(2 * SECOND)
    assert world.rules(name) == "expired"


def test_kill_without_force_refused_by_the_forge_is_kept():
    world = World(pool(job_timeout=HOUR))
    name = world.assigned()
    world.now += HOUR + 31 * MINUTE
    world.kill(name)
    world.probed(name, IDLE)
    world.fenced(name, FenceAnswer.REFUSED)
    assert world.outcomes(name) == [("operator", "vetoed", "busy", "fence")]
    assert world.commands(Destroy, name) == []


def test_kill_of_a_runner_that_is_gone_or_unknown_is_nothing():
    world = World()
    name = world.gone()
    assert world.kill(name).changed == ()
    assert world.kill(RunnerId("nobody")).changed == ()


# with force


def forced(world, name, seen=BUSY):
    world.kill(name, force=True)
    world.probed(name, seen)


@pytest.mark.parametrize("answer", list(FenceAnswer), ids=lambda answer: answer.value)
def test_forced_kill_ends_a_busy_runner_whatever_the_fence_says(answer):
    world = World()
    name = world.running()
    forced(world, name)
    assert world.commands(Deregister, name)[0].intent.warrant.value == "forced"
    world.fenced(name, answer, RETRY if answer is FenceAnswer.NO_ANSWER else None)
    world.wait(1)
    world.probed(name, BUSY)
    (command,) = world.commands(Destroy, name)
    assert (command.permit.warrant.value, command.permit.rule) == ("forced", "operator")
    assert command.permit.fence == answer.value.replace("_", " ")
    assert not world.row(name).consumes, "it stands for no demand any more"
    assert world.outcomes(name) == [("operator", "reaped", "busy", "probe")]
    assert escapes(world) == 0
    assert any("on purpose (forced)" in note.text for note in world.step.notes)


def test_forced_kill_does_not_wait_for_a_silent_forge():
    world = World()
    name = world.running()
    world.silence()
    forced(world, name)
    world.wait(1)
    world.probed(name, BUSY)
    (command,) = world.commands(Destroy, name)
    assert (command.permit.warrant.value, command.permit.fence) == ("forced", "not asked")


def test_forced_kill_goes_on_where_the_fence_is_never_answered():
    world = World()
    name = world.running()
    forced(world, name)
    world.wait(90 * SECOND)
    world.probed(name, BUSY)
    (command,) = world.commands(Destroy, name)
    assert command.permit.fence == "no answer"


def test_forced_kill_needs_no_readable_probe():
    world = World()
    name = world.running()
    forced(world, name, UNKNOWN)
    world.flag(name, fault=RETRY)
    assert world.gate(name).phase in (GatePhase.SETTLING, GatePhase.REPROBING)


def test_signs_do_not_stop_a_forced_kill():
    world = World()
    name = world.assigned()
    forced(world, name, IDLE)
    world.sign(name, Sign.ANNOUNCED)
    world.fenced(name)
    world.wait(1)
    world.probed(name, BUSY)
    assert len(world.commands(Destroy, name)) == 1


def test_a_sign_before_the_fence_does_not_stop_a_forced_kill():
    world = World()
    name = world.listening()
    world.kill(name, force=True)
    world.sign(name, Sign.OFFERED)
    world.probed(name, IDLE)
    assert len(world.commands(Deregister, name)) == 1


# overdue


def destroy_in(step):
    """The one command of a step, which ends something."""
    (command,) = step.commands
    assert isinstance(command, Destroy)
    return command


def overdue(world):
    name = world.running()
    world.wait(2 * HOUR)
    assert world.rules(name) == "overdue"
    return name


def test_overdue_asks_the_listener_politely_first_and_five_minutes_later_all_goes():
    world = World(pool(job_timeout=2 * HOUR))
    name = overdue(world)
    command = destroy_in(world.probed(name, BUSY))
    assert (command.permit.polite, command.permit.warrant.value) == (True, "overdue")
    assert any("asking the listener to stop" in note.text for note in world.step.notes)
    assert (world.state(name), world.row(name).stopping) == ("running", world.now)
    assert world.outcomes(name) == []
    world.wait(5 * MINUTE - 1)
    assert world.row(name).gate is None
    world.wait(1)
    assert world.rules(name) == "overdue"
    command = destroy_in(world.probed(name, BUSY))
    assert (command.permit.polite, command.permit.warrant.value) == (False, "overdue")
    assert world.state(name) == "retiring"
    assert world.outcomes(name) == [("overdue", "reaped", "busy", "probe")]
    assert world.commands(Deregister, name) == []
    assert world.counter("nominations_total|rule=overdue") == 2
    assert escapes(world) == 0


def test_overdue_that_leaves_by_itself_is_not_destroyed():
    world = World(pool(job_timeout=2 * HOUR))
    name = overdue(world)
    world.probed(name, BUSY)
    world.wait(MINUTE)
    world.exits(name)
    world.wait(10 * MINUTE)
    assert {command.permit.rule for command in world.commands(Destroy, name)} == {"overdue", "ended"}
    assert next(command.permit.polite for command in world.commands(Destroy, name)) is True


def test_listener_that_could_not_be_asked_is_noted():
    world = World(pool(job_timeout=2 * HOUR))
    name = overdue(world)
    world.probed(name, BUSY)
    step = world.handle(DestroyFailed(name, f"env-{name}", Fault(Remedy.BROKEN, "no such process")))
    assert any("could not be asked to stop" in note.text for note in step.notes)
    assert world.state(name) == "running"


def test_without_a_job_timeout_nothing_is_ever_overdue():
    world = World()
    name = world.running()
    world.wait(24 * HOUR)
    assert world.rules(name) is None
    assert world.commands(Destroy, name) == []


def test_deliberate_ends_are_counted_apart():
    world = World()
    name = world.running()
    world.kill(name, force=True)
    world.probed(name, BUSY)
    world.fenced(name, FenceAnswer.REFUSED)
    world.tick()
    world.probed(name, BUSY)
    counted = {key: n for key, n in world.core.state.counters.items() if key.startswith("deliberate_ends")}
    assert list(counted.values()) == [1], world.row(name).gate
    assert "warrant=forced" in next(iter(counted))


def test_forced_kill_of_one_without_an_environment_leaves_no_claim_on_demand():
    """It had been offered a job, so that it stood for one unit until then."""
    world = World()
    name = world.starting(environment=False)
    world.sign(name, Sign.OFFERED)
    assert world.row(name).consumes
    world.kill(name, force=True)
    world.flag(name, busy=True)
    world.fenced(name, FenceAnswer.REFUSED)
    world.wait(1)
    assert (world.state(name), world.row(name).consumes) == ("gone", False)
