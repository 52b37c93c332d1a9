"""The gate, step 5: deregistering first; accepted, refused, not found, no answer."""

from __future__ import annotations

import pytest

from ephemerd.core.commands import Deregister, Destroy, ProbeRunner
from ephemerd.core.events import FenceAnswered
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus, Told
from ephemerd.domain.pool import FenceKind
from ephemerd.domain.runner import FenceAnswer, GatePhase
from ephemerd.domain.verdict import Sign
from tests.unit.core.build import (
    BUSY,
    DAY,
    HOUR,
    IDLE,
    MINUTE,
    RETRY,
    SECOND,
    UNKNOWN,
    World,
    pool,
    report,
)

NOT_FOUND, REFUSED, NO_ANSWER = FenceAnswer.NOT_FOUND, FenceAnswer.REFUSED, FenceAnswer.NO_ANSWER
ENDED = report(announced_at=1, ended_at=2)


def again(world, name):
    """Wait until the runner is in the gate again."""
    for _ in range(200):
        if world.row(name).gate is not None:
            return
        world.tick()
    raise AssertionError("never nominated again")


# accepted


def test_accepted_settles_and_destroys_nothing_yet():
    world = World()
    name = world.fencing()
    step = world.fenced(name)
    assert (step.commands, step.decisions) == ((), ())
    assert world.gate(name).phase is GatePhase.SETTLING
    assert world.row(name).fence.accepted == world.now


def test_runner_leaves_supply_when_its_fence_is_sent_and_a_new_job_gets_a_new_runner():
    world = World()
    name = world.at_gate()
    assert name in world.core.state.index.supply["linux"]
    world.probed(name)
    assert name not in world.core.state.index.supply["linux"]
    job = world.queue()
    assert [row.intent for row in world.core.state.runners.values() if row.id != name] == [job]


def test_accepted_fence_is_not_asked_again():
    world = World()
    name = world.settled()
    world.probed(name, UNKNOWN)
    assert world.outcomes(name) == [("surplus", "vetoed", "unknown", "probe")]
    again(world, name)
    world.probed(name)
    assert world.gate(name).phase is GatePhase.SETTLING
    assert len(world.commands(Deregister, name)) == 1


def test_forge_without_a_fence_is_never_asked_to_deregister():
    """On Gitea and Forgejo that very call kills the job."""
    world = World(pool(fence=FenceKind.NONE))
    name = world.at_gate()
    world.probed(name)
    world.wait(5 * SECOND)
    world.probed(name)
    assert world.commands(Destroy, name)[-1].permit.fence == "none"
    world.destroyed(name)
    world.wait(2 * HOUR)
    assert world.outcomes(name) == [("surplus", "reaped", "idle", "probe")]
    assert world.commands(Deregister) == []


# the rule once more, just before the fence


def test_surplus_that_is_wanted_again_is_kept():
    world = World()
    name = world.at_gate()
    world.queue()
    step = world.probed(name)
    assert step.commands == ()
    assert world.outcomes(name) == [("surplus", "vetoed", "idle", "none")]
    assert world.decisions[-1].reason == "the rule holds no longer"


def test_displaced_whose_slot_nobody_wants_any_more_is_kept():
    world = World(pool(), pool("arm", labels=("arm",)), slots=1)
    name = world.listening()
    arm = world.queue(("arm",))
    world.wait(MINUTE)
    assert world.rules(name) == "displaced"
    world.completes(arm, conclusion="cancelled")
    assert world.probed(name).commands == ()
    assert world.outcomes(name) == [("displaced", "vetoed", "idle", "none")]


# refused


def test_refused_is_busy_via_fence_and_binds():
    world = World()
    name = world.fencing()
    step = world.fenced(name, REFUSED)
    assert step.commands == ()
    assert world.outcomes(name) == [("surplus", "vetoed", "busy", "fence")]
    assert world.state(name) == "assigned"
    assert world.row(name).soft_last == world.now
    assert world.counter("fence_refusals_total") == 1
    assert world.counter("vetoes_total|via=fence") == 1


def test_refusal_that_lapses_gives_the_runner_back_to_supply():
    world = World()
    name = world.fencing()
    world.fenced(name, REFUSED)
    assert name not in world.core.state.index.supply["linux"]
    world.wait(15 * MINUTE)
    assert world.state(name) == "listening"
    assert name in world.core.state.index.supply["linux"]


def test_age_of_unknown_counts_from_a_refusal():
    world = World()
    name = world.fencing()
    world.now += 3 * SECOND
    world.fenced(name, REFUSED)
    assert world.row(name).known == world.now


def escaping(world):
    """A wedged runner in the gate for an escape, its fence out."""
    name = world.running()
    world.completes(world.job_of(name), name)
    world.now += 6 * HOUR + 30 * MINUTE
    world.tick()
    again(world, name)
    world.probed(name, BUSY)
    return name


def test_refusal_past_the_hard_bound_is_the_escape_of_a_busy_one():
    world = World()
    name = escaping(world)
    assert world.commands(Deregister, name)[-1].intent.warrant.value == "escape"
    world.fenced(name, REFUSED)
    assert world.gate(name).phase is GatePhase.SETTLING
    world.wait(5 * SECOND)
    world.probed(name, BUSY)
    assert world.outcomes(name) == [("finished", "escaped", "busy", "probe")]
    (command,) = world.commands(Destroy, name)
    assert (command.permit.warrant.value, command.permit.fence) == ("escape", "refused")
    assert world.counter("orphan_reap_decisions_total|outcome=escaped|verdict=busy") == 1


def test_below_the_hard_bound_a_busy_runner_is_not_even_fenced():
    world = World()
    name = world.running()
    world.completes(world.job_of(name), name)
    world.now += 6 * HOUR + 30 * MINUTE - 1
    world.tick()
    again(world, name)
    world.probed(name, BUSY)
    assert world.outcomes(name) == [("finished", "vetoed", "busy", "probe")]
    assert world.commands(Deregister, name) == []


def test_job_that_the_forge_does_not_call_over_has_five_days_and_a_half_hour():
    world = World()
    name = world.finishing()
    hard = world.row(name).hard or 0
    world.now = hard + 5 * DAY + 30 * MINUTE - 1
    world.tick()
    again(world, name)
    world.probed(name, BUSY)
    assert world.outcomes(name) == [("finished", "vetoed", "busy", "probe")]
    world.now = hard + 5 * DAY + 30 * MINUTE
    again(world, name)
    world.probed(name, BUSY)
    assert len(world.commands(Deregister, name)) == 1


@pytest.mark.parametrize("news", [False, True])
def test_refusal_is_no_news_to_an_escape_and_a_sign_beside_it_is(news):
    """Bound by a soft sign an hour and a half ago, idle to the probe, and the forge refuses: a busy one."""
    world = World(pool(job_timeout=HOUR))
    name = world.assigned()
    world.discharge(name)
    world.now += HOUR + 31 * MINUTE
    world.tick()
    again(world, name)
    world.probed(name)
    if news:
        world.sign(name, Sign.ACKNOWLEDGED)
    world.fenced(name, REFUSED)
    assert world.gate(name).phase is GatePhase.SETTLING
    world.wait(5 * SECOND)
    world.probed(name)
    outcome = ("vetoed", "busy", "sign") if news else ("escaped", "busy", "probe")
    assert world.outcomes(name)[-1][1:] == outcome


def test_answer_about_a_runner_that_is_not_known_is_nothing():
    world = World()
    step = world.handle(FenceAnswered(RunnerId("nobody"), 1, 1, FenceAnswer.ACCEPTED))
    assert (step.commands, step.changed) == ((), ())


def test_sign_that_came_with_the_refusal_stops_even_an_escape():
    """The refusal itself is a sign of ours; another one beside it is news."""
    world = World(pool(job_timeout=HOUR))
    name = world.assigned()
    world.kill(name)
    world.now += HOUR + 30 * MINUTE
    world.sign(name, Sign.ACKNOWLEDGED)
    assert world.row(name).gate is not None
    generation = world.gate(name).generation
    world.sign(name, Sign.OFFERED)
    world.probed(name, IDLE)
    world.fenced(name, REFUSED)
    assert world.row(name).signs == generation + 2
    assert world.commands(Destroy, name) == []


# not found


def test_not_found_says_nothing():
    world = World()
    name = world.fencing()
    world.vouch()
    step = world.fenced(name, NOT_FOUND)
    assert step.commands == ()
    assert world.outcomes(name) == [("surplus", "vetoed", "idle", "fence")]
    assert world.decisions[-1].reason.startswith("held: ")


def twice_not_found(world, name):
    """Answer "not found" to the fence of an idle runner until it was so twice, a minute apart."""
    world.unregistered.add(name)
    for seen in range(2):
        again(world, name)
        world.probed(name)
        world.vouch()
        world.fenced(name, NOT_FOUND)
        assert world.commands(Destroy, name) == [], seen
        world.now += MINUTE


def test_not_found_twice_without_a_sign_is_spent():
    world = World()
    name = world.at_gate()
    twice_not_found(world, name)
    again(world, name)
    assert world.rules(name) == "spent"
    world.probed(name)
    world.vouch()
    world.fenced(name, NOT_FOUND)
    world.wait(5 * SECOND)
    world.probed(name)
    assert world.outcomes(name)[-1] == ("spent", "reaped", "idle", "probe")


def test_spent_waits_where_the_scope_did_not_answer_within_a_minute():
    """A lost permission makes everything "not found"."""
    world = World()
    name = world.at_gate()
    twice_not_found(world, name)
    again(world, name)
    world.probed(name)
    world.now += 61 * SECOND
    world.fenced(name, NOT_FOUND)
    assert world.outcomes(name)[-1] == ("spent", "vetoed", "idle", "fence")


def test_not_found_counts_at_exactly_a_minute():
    world = World()
    name = world.at_gate()
    twice_not_found(world, name)
    again(world, name)
    world.probed(name)
    world.vouch()
    answered = world.core.state.scope(world.row(name).scope).answered or 0
    world.now = answered + MINUTE
    world.fenced(name, NOT_FOUND)
    assert world.gate(name).phase is GatePhase.SETTLING


def test_not_found_that_nothing_vouches_for_is_not_remembered():
    world = World(answers=False)
    name = world.listening()
    world.discharge(name)
    world.wait(30 * SECOND)
    world.probed(name)
    world.now += 61 * SECOND
    world.fenced(name, NOT_FOUND)
    assert world.row(name).fence.missing is None
    assert world.row(name).fence.retry > world.now


def test_escape_goes_on_after_not_found():
    world = World()
    name = escaping(world)
    world.vouch()
    world.fenced(name, NOT_FOUND)
    world.wait(5 * SECOND)
    world.probed(name, BUSY)
    assert world.outcomes(name) == [("finished", "escaped", "busy", "probe")]


def test_escape_waits_where_the_scope_did_not_answer():
    world = World()
    name = escaping(world)
    world.now += 61 * SECOND
    world.fenced(name, NOT_FOUND)
    assert world.outcomes(name) == [("finished", "vetoed", "busy", "fence")]


def over(world, seen):
    """A finished runner that does not leave: "not found" twice, a minute apart."""
    world.wait(MINUTE)
    (name,) = [row.id for row in world.core.state.runners.values() if row.state.value == "finishing"]
    again(world, name)
    world.probed(name, seen)
    world.vouch()
    world.fenced(name, NOT_FOUND)
    assert world.outcomes(name)[-1] == ("finished", "vetoed", "idle", "fence"), "once is not twice"
    world.now += MINUTE
    again(world, name)
    world.probed(name, seen)
    world.vouch()
    world.fenced(name, NOT_FOUND)
    return name


@pytest.mark.parametrize("via", ["log", "log of the probe", "read"])
def test_job_over_and_registration_not_found_twice_goes_on(via):
    world = World()
    name = world.running()
    if via == "log":
        world.sign(name, Sign.ENDED)
    elif via == "read":
        read_completed(world, name)
    else:
        world.completes(world.job_of(name), name)
    over(world, ENDED if via == "log of the probe" else IDLE)
    world.wait(5 * SECOND)
    world.probed(name, IDLE)
    assert world.outcomes(name)[-1] == ("finished", "reaped", "idle", "probe")


def test_completed_delivery_alone_does_not_let_not_found_count():
    """It may tell of another job than the one that consumed the registration."""
    world = World()
    name = world.running()
    world.completes(world.job_of(name), name)
    over(world, IDLE)
    assert world.row(name).fence.missing_again is not None
    assert world.commands(Destroy, name) == []
    assert {outcome[:2] for outcome in world.outcomes(name)} == {("finished", "vetoed")}


def test_hung_acquirer_ends_as_spent():
    """Offered and acknowledged, never announced; the forge fails the job and drops the registration."""
    world = World()
    name = world.assigned()
    world.completes(world.intent(name), name, "failure")
    world.now += 15 * MINUTE
    twice_not_found(world, name)
    again(world, name)
    assert world.rules(name) == "spent"
    world.probed(name)
    world.vouch()
    world.fenced(name, NOT_FOUND)
    world.wait(5 * SECOND)
    world.probed(name)
    assert world.outcomes(name)[-1] == ("spent", "reaped", "idle", "probe")


def test_unborn_and_killed_whose_registration_is_gone_end_as_spent():
    """The answer to an accepted fence was lost: the rule that came first may not hold them for ever."""
    world = World()
    name = world.starting()
    world.wait(5 * MINUTE)
    assert world.rules(name) == "unborn"
    twice_not_found(world, name)
    again(world, name)
    assert world.rules(name) == "spent"
    other = world.listening()
    world.kill(other)
    twice_not_found(world, other)
    again(world, other)
    assert world.rules(other) == "spent"


def read_completed(world, name):
    """A direct read of the job says: completed, by this runner."""
    world.job(world.job_of(name), ForgeStatus.COMPLETED, runner=name, conclusion="success", told=Told.LOOKUP)


# no answer


@pytest.mark.parametrize(
    "fault",
    [
        RETRY,
        Fault(Remedy.DENIED, "401"),
        Fault(Remedy.DENIED, "403"),
        Fault(Remedy.LIMITED, "429", 90_000),
        Fault(Remedy.RETRY, "502"),
    ],
    ids=["timeout", "401", "403", "429", "5xx"],
)
def test_no_answer_holds_and_backs_off(fault):
    world = World()
    name = world.fencing()
    step = world.fenced(name, NO_ANSWER, fault)
    assert step.commands == ()
    assert world.outcomes(name) == [("surplus", "vetoed", "idle", "fence")]
    assert world.decisions[-1].reason.startswith("held: ")
    assert world.row(name).fence.retry == world.now + 2 * SECOND
    assert name not in world.core.state.index.supply["linux"], "the forge may have deregistered it"


def test_idle_is_held_however_long_the_forge_is_away():
    world = World()
    name = world.fencing()
    for _ in range(60):
        world.fenced(name, NO_ANSWER, RETRY)
        while world.row(name).gate is None or world.gate(name).phase is not GatePhase.FENCING:
            world.now += 10 * MINUTE
            world.tick()
            if world.row(name).gate is not None and world.gate(name).phase is GatePhase.PROBING:
                world.probed(name)
    assert world.commands(Destroy, name) == []
    assert {outcome[1] for outcome in world.outcomes(name)} == {"vetoed"}
    world.fenced(name)
    world.wait(5 * SECOND)
    world.probed(name)
    assert world.outcomes(name)[-1] == ("expired", "reaped", "idle", "probe")


def test_nothing_is_asked_while_the_scope_is_silent():
    world = World()
    name = world.at_gate()
    world.silence()
    world.probed(name)
    assert world.commands(Deregister, name) == []
    assert world.outcomes(name) == [("surplus", "vetoed", "idle", "fence")]


def test_silent_scope_is_tried_once_a_minute_by_one_runner():
    world = World()
    first, second = world.listening(), world.listening()
    world.discharge(first)
    world.discharge(second)
    world.wait(30 * SECOND)
    world.probed(first)
    world.fenced(first, NO_ANSWER, RETRY)
    world.probed(second)
    assert world.commands(Deregister, second) == []


def test_fence_that_is_never_answered_is_no_answer():
    world = World()
    name = world.fencing()
    world.wait(90 * SECOND - 1)
    assert world.outcomes(name) == []
    world.wait(1)
    assert world.outcomes(name) == [("surplus", "vetoed", "idle", "fence")]


def test_answer_that_comes_too_late_is_remembered():
    world = World()
    name = world.fencing()
    token = world.gate(name).token
    world.wait(90 * SECOND)
    world.handle(FenceAnswered(name, 9001, token, FenceAnswer.ACCEPTED))
    assert world.row(name).fence.accepted == world.now
    assert world.commands(Destroy, name) == []


def test_held_runner_is_probed_anew_before_its_next_fence():
    world = World()
    name = world.fencing()
    world.fenced(name, NO_ANSWER, Fault(Remedy.REFUSED, "odd"))
    again(world, name)
    assert isinstance(world.sent[-1], ProbeRunner)
    world.probed(name, BUSY)
    assert world.outcomes(name)[-1] == ("surplus", "vetoed", "busy", "probe")


def test_one_not_found_twice_is_not_asked_about_again_unless_that_could_help():
    """A delivery called its job completed, which lets no "not found" count: another DELETE would be for nothing."""
    world = World()
    name = world.running()
    world.completes(world.job_of(name), name)
    world.wait(MINUTE)
    assert world.rules(name) == "finished"
    for _ in range(2):
        again(world, name)
        world.probed(name)
        world.vouch()
        world.fenced(name, NOT_FOUND)
        world.now += MINUTE
    assert world.row(name).fence.missing_again is not None
    asked = len(world.commands(Deregister, name))
    while world.rules(name) != "finished":
        world.tick()
    world.vouch()
    world.probed(name)
    assert len(world.commands(Deregister, name)) == asked
    assert world.outcomes(name)[-1] == ("finished", "vetoed", "idle", "fence")
    assert "not found twice" in world.decisions[-1].reason
    while world.row(name).gate is None:
        world.tick()
    world.probed(name, ENDED)
    assert len(world.commands(Deregister, name)) == asked + 1, "its log says that its job is over"


def test_a_forced_order_asks_also_about_one_that_was_not_found_twice():
    world = World()
    name = world.running()
    world.completes(world.job_of(name), name)
    world.wait(MINUTE)
    for _ in range(2):
        again(world, name)
        world.probed(name)
        world.vouch()
        world.fenced(name, NOT_FOUND)
        world.now += MINUTE
    asked = len(world.commands(Deregister, name))
    world.vouch()
    world.kill(name, force=True)
    world.probed(name)
    assert len(world.commands(Deregister, name)) == asked + 1
