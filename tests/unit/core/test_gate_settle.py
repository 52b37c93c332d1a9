"""The gate, steps 6 to 8: settle, the second look, re-validation, the permit; restarts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ephemerd.core.commands import Deregister, Destroy, ProbeRunner, WatchRunner
from ephemerd.core.events import DestroyFailed, EnvironmentDestroyed, Probed
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.permit import Permit, Warrant
from ephemerd.domain.pool import FenceKind, Policy
from ephemerd.domain.runner import FenceAnswer, GatePhase
from ephemerd.domain.verdict import Files, Sign, Verdict, Via
from tests.unit.core.build import BUSY, HOUR, IDLE, MINUTE, SECOND, UNKNOWN, World, pool, report

BREACHES = "fence_breaches_total"


# step 6


def test_second_probe_comes_after_the_settling_time():
    world = World(policy=Policy(settle=7 * SECOND))
    name = world.fencing()
    world.fenced(name)
    assert world.wait(7 * SECOND - 1) == []
    (command,) = world.wait(1)
    assert command == ProbeRunner(name, "linux", f"env-{name}", world.gate(name).token)
    assert world.gate(name).phase is GatePhase.REPROBING


@pytest.mark.parametrize(
    ("seen", "verdict", "via", "breaches"),
    [
        (BUSY, "busy", "probe", 1),
        (report(announced_at=5), "busy", "log", 1),
        (UNKNOWN, "unknown", "probe", 0),
        (None, "unknown", "probe", 0),
    ],
    ids=["worker", "announcement", "unknown", "no answer"],
)
def test_worse_of_the_two_looks_decides(seen, verdict, via, breaches):
    world = World()
    name = world.settled()
    step = world.probed(name, seen)
    assert step.commands == ()
    assert world.outcomes(name) == [("surplus", "vetoed", verdict, via)]
    assert world.counter(BREACHES) == breaches
    assert any("FENCE BREACH" in note.text for note in step.notes) is bool(breaches)


def test_second_probe_that_never_answers_is_unknown():
    world = World()
    name = world.settled()
    world.wait(15 * SECOND)
    assert world.outcomes(name) == [("surplus", "vetoed", "unknown", "none")]


def test_idle_at_last_ends_the_age_of_unknown():
    """Unknown past its bound, then idle: the worse is unknown, and it is unknown since just now."""
    world = World(policy=Policy(unknown_bound="grace"))
    name = world.spare()
    world.now += 10 * MINUTE
    world.tick()
    world.probed(name, UNKNOWN)
    world.flag(name, busy=False)
    assert world.commands(Deregister, name)[-1].intent.warrant is Warrant.ESCAPE
    world.fenced(name)
    world.wait(5 * SECOND)
    world.probed(name, IDLE)
    assert world.outcomes(name) == [("expired", "vetoed", "unknown", "probe")]


def test_unknown_twice_past_its_bound_escapes():
    world = World(policy=Policy(unknown_bound="grace"))
    name = world.spare()
    world.now += 10 * MINUTE
    world.tick()
    world.probed(name, UNKNOWN)
    world.flag(name, busy=False)
    world.fenced(name)
    world.wait(5 * SECOND)
    world.probed(name, UNKNOWN)
    assert world.outcomes(name) == [("expired", "escaped", "unknown", "probe")]


# step 7


@pytest.mark.parametrize("sign", [Sign.OFFERED, Sign.ACKNOWLEDGED, Sign.ANNOUNCED, Sign.WORKER])
@pytest.mark.parametrize("when", ["probing", "fencing", "settling", "reprobing"])
def test_a_sign_at_any_step_keeps_the_runner(sign, when):
    world = World()
    name = world.at_gate()
    for phase in ("probing", "fencing", "settling", "reprobing"):
        if world.row(name).gate is None:
            break
        if phase == when:
            world.now += 1
            world.sign(name, sign)
        assert world.gate(name).phase.value == phase
        if phase == "settling":
            world.wait(5 * SECOND)
        elif phase == "fencing":
            world.fenced(name)
        else:
            world.probed(name)
    early = ("surplus", "vetoed", "idle", "none")
    assert world.outcomes(name) == [early if when == "probing" else ("surplus", "vetoed", "busy", "sign")]
    assert world.commands(Destroy, name) == []
    assert len(world.commands(Deregister, name)) == (0 if when == "probing" else 1)
    assert world.counter(BREACHES) == (1 if when in ("settling", "reprobing") else 0)


def test_forge_naming_the_runner_while_it_settles_keeps_it():
    world = World()
    name = world.settled()
    world.begins(world.queue(), name)
    world.probed(name)
    assert world.outcomes(name) == [("surplus", "vetoed", "busy", "sign")]
    assert world.state(name) == "running"


def test_without_a_probe_a_sign_after_the_accepted_fence_is_a_breach():
    world = World(pool(probes=False, surplus_grace=HOUR))
    name = world.spare()
    world.wait(10 * MINUTE)
    world.flag(name, busy=False)
    world.fenced(name)
    world.wait(SECOND)
    world.begins(world.queue(), name)
    world.wait(4 * SECOND)
    assert world.outcomes(name) == [("expired", "vetoed", "busy", "sign")]
    assert world.counter(BREACHES) == 1


def test_without_a_fence_there_is_nothing_to_breach():
    world = World(pool(fence=FenceKind.NONE))
    name = world.at_gate()
    world.probed(name)
    world.wait(5 * SECOND)
    world.probed(name, BUSY)
    assert world.outcomes(name) == [("surplus", "vetoed", "busy", "probe")]
    assert world.counter(BREACHES) == 0


def test_a_breach_is_counted_once():
    world = World()
    name = world.settled()
    world.sign(name, Sign.ANNOUNCED, "Running job: build")
    world.probed(name)
    assert world.counter(BREACHES) == 1
    world.sign(name, Sign.ENDED)
    world.wait(MINUTE)
    world.probed(name)
    world.wait(5 * SECOND)
    world.probed(name)
    assert world.outcomes(name)[-1][:2] == ("spent", "reaped")
    assert world.counter(BREACHES) == 1


def test_sign_known_before_the_fence_keeps_it_from_being_sent():
    """An expired runner's rule does not rest on the matching: the sign alone speaks for it."""
    world = World(pool(surplus_grace=HOUR))
    name = world.spare()
    world.wait(10 * MINUTE)
    world.sign(name, Sign.OFFERED)
    assert world.probed(name).commands == ()
    assert world.outcomes(name) == [("expired", "vetoed", "busy", "sign")]


# step 8


def test_permit_says_all_that_it_rests_on():
    world = World()
    name = world.at_gate()
    first = world.now
    world.probed(name)
    world.now += 40
    world.fenced(name)
    world.wait(5 * SECOND)
    step = world.probed(name)
    evidence = step.decisions[0].evidence
    assert step.commands == (
        Destroy(
            Permit(
                runner=name,
                environment=f"env-{name}",
                warrant=Warrant.IDLE,
                rule="surplus",
                verdict=Verdict.IDLE,
                made=world.now,
                expires=world.now + 10 * SECOND,
                epoch="e1",
                fence="accepted",
                proofs=(first, world.now),
                evidence=evidence,
            ),
            "linux",
        ),
    )
    assert [(item.verdict, item.via, item.at) for item in evidence] == [
        (Verdict.IDLE, Via.PROBE, first),
        (Verdict.IDLE, Via.FENCE, first + 40),
        (Verdict.IDLE, Via.PROBE, world.now),
    ]
    assert world.outcomes(name) == [("surplus", "reaped", "idle", "probe")]
    assert world.counter("orphan_reap_decisions_total|outcome=reaped|verdict=idle") == 1


def test_destruction_is_logged_in_the_words_people_search_for():
    world = World()
    name = world.settled()
    world.probed(name)
    (note,) = [note for note in world.step.notes if note.text == "destroying orphaned runner"]
    fields = dict(note.fields)
    assert (fields["runner"], fields["busy_verdict"], fields["grace"]) == (name, "idle", "600000")
    assert "no more" in fields["reason"]


def test_runner_is_retiring_until_its_end_is_told():
    world = World()
    name = world.retiring()
    assert world.state(name) == "retiring"
    assert world.core.state.slots_held("local") == 1
    assert not world.row(name).consumes, "whatever it was offered, it stands for no demand any more"
    world.destroyed(name)
    assert world.state(name) == "gone"
    assert world.core.state.slots_held("local") == 0
    assert world.sound()


def test_end_of_another_environment_is_not_its_end():
    world = World()
    name = world.retiring()
    world.handle(EnvironmentDestroyed(name, "env-other"))
    assert world.state(name) == "retiring"


def test_no_end_within_the_limit_gives_the_slot_back():
    world = World()
    name = world.retiring()
    world.wait(70 * SECOND - 1)
    assert world.state(name) == "retiring"
    world.wait(1)
    assert world.state(name) == "abandoned"
    assert world.core.state.slots_held("local") == 0
    assert world.sound()


@pytest.mark.parametrize("seen", [IDLE, BUSY])
def test_permit_that_lapsed_unused_is_not_used_later(seen):
    world = World()
    name = world.retiring()
    fault = Fault(Remedy.REFUSED, "the permit has lapsed")
    world.handle(DestroyFailed(name, f"env-{name}", fault))
    assert isinstance(world.step.commands[0], ProbeRunner)
    world.probed(name, seen)
    if seen is BUSY:
        assert world.state(name) == "stuck"
        assert len(world.commands(Destroy, name)) == 1
    else:
        assert len(world.commands(Destroy, name)) == 2
        assert world.commands(Destroy, name)[1].permit.made == world.now


# restarts


@pytest.mark.parametrize("phase", ["at_gate", "fencing", "settled"])
def test_restart_drops_the_gate_run(phase):
    world = World()
    name = getattr(world, phase)()
    world.restart(after=SECOND)
    assert world.row(name).gate is None
    assert world.commands(Destroy, name) == []
    world.probed(name)
    assert world.commands(Destroy, name) == [], "that was the look after the start, not the gate's"


def test_restart_remembers_an_accepted_fence():
    world = World()
    name = world.settled()
    world.restart(after=SECOND)
    world.probed(name)
    assert world.rules(name) == "spent"
    world.probed(name)
    world.wait(5 * SECOND)
    world.probed(name)
    (command,) = world.commands(Destroy, name)
    assert (command.permit.epoch, command.permit.fence) == ("e2", "accepted")
    assert len(world.commands(Deregister, name)) == 1


def test_outstanding_destroy_begins_again_at_the_probe():
    world = World()
    name = world.retiring()
    world.restart(after=SECOND)
    assert world.state(name) == "retiring"
    assert len(world.commands(Destroy, name)) == 1
    assert WatchRunner(name, "linux", f"env-{name}") in world.sent
    assert world.gate(name).phase is GatePhase.PROBING
    world.probed(name)
    assert world.gate(name).phase is GatePhase.SETTLING, "its fence was accepted before"
    world.wait(5 * SECOND)
    world.probed(name)
    assert [command.permit.epoch for command in world.commands(Destroy, name)] == ["e1", "e2"]
    world.destroyed(name)
    assert world.state(name) == "gone"


def test_outstanding_escape_is_fenced_again_after_a_restart():
    """Its fence was refused: nothing is remembered that would let it go unasked."""
    world = World(pool(job_timeout=HOUR))
    name = world.running()
    world.kill(name, force=True)
    world.probed(name, BUSY)
    world.fenced(name, FenceAnswer.REFUSED)
    world.wait(SECOND)
    world.probed(name, BUSY)
    assert world.state(name) == "retiring"
    world.core.state.runners[name] = replace(world.row(name), order_given=None)
    world.restart(after=SECOND)
    world.probed(name, IDLE)
    assert world.gate(name).phase is GatePhase.FENCING
    world.fenced(name, FenceAnswer.REFUSED)
    assert world.state(name) == "stuck"
    assert len(world.commands(Destroy, name)) == 1


@pytest.mark.parametrize("seen", [BUSY, None])
def test_outstanding_destroy_of_what_is_not_idle_any_more_is_stuck(seen):
    world = World()
    name = world.retiring()
    world.restart(after=SECOND)
    world.probed(name, seen)
    if seen is None:
        world.flag(name, missing=True)
    assert world.state(name) == "stuck"
    assert "kept after a permit had lapsed" in world.row(name).stuck
    assert len(world.commands(Destroy, name)) == 1


def test_long_absence_of_the_daemon_abandons_nothing():
    """The limit of an end counts from the permit of this process life."""
    world = World()
    name = world.retiring()
    world.restart(after=HOUR)
    assert world.state(name) == "retiring"
    world.probed(name)
    world.wait(5 * SECOND)
    world.probed(name)
    assert world.state(name) == "retiring"
    assert world.commands(Destroy, name)[-1].permit.epoch == "e2"


def test_answers_of_the_earlier_life_are_stale():
    world = World()
    name = world.settled()
    token = world.gate(name).token
    world.restart(after=SECOND)
    world.handle(Probed(name, token, IDLE))
    assert world.row(name).gate is None
    assert world.commands(Destroy, name) == []


def test_an_exit_ends_the_gate_run():
    world = World()
    name = world.settled()
    token = world.gate(name).token
    world.exits(name)
    assert (world.state(name), world.row(name).gate) == ("gone", None)
    assert world.handle(Probed(name, token, IDLE)).decisions == ()
    assert [c.permit.warrant for c in world.commands(Destroy, name)] == [Warrant.ENDED]


def test_a_worker_that_lives_on_after_an_accepted_fence_is_a_breach_without_a_new_sign():
    """It was seen before and its job had ended, so that nothing new is noted of it."""
    world = World()
    name = world.finishing()
    world.wait(MINUTE)
    world.probed(name, report(ended_at=world.now))
    world.fenced(name)
    world.wait(5 * SECOND)
    before = world.row(name).signs
    world.probed(name, BUSY)
    assert world.row(name).signs == before
    assert world.counter(BREACHES) == 1
    assert world.outcomes(name)[-1] == ("finished", "vetoed", "busy", "probe")


def test_overdue_stays_a_deliberate_end_when_its_permit_had_lapsed():
    world = World(pool(job_timeout=20 * MINUTE))
    name = world.running()
    world.wait(20 * MINUTE)
    world.probed(name, BUSY)
    assert world.commands(Destroy, name)[-1].permit.polite
    world.wait(5 * MINUTE)
    world.probed(name, BUSY)
    first = world.commands(Destroy, name)[-1].permit
    assert (first.polite, first.warrant) == (False, Warrant.OVERDUE)
    world.now += 20 * SECOND
    world.handle(DestroyFailed(name, f"env-{name}", Fault(Remedy.REFUSED, "the permit has lapsed")))
    world.probed(name, BUSY)
    again = world.commands(Destroy, name)[-1].permit
    assert (again.warrant, again.made) == (Warrant.OVERDUE, world.now)
    assert world.row(name).since == world.now, "its limit counts from the permit that is out"
    assert world.gate(name).phase is GatePhase.DESTROYING


def test_without_a_probe_both_proofs_are_dated():
    world = World(pool(probes=False))
    name = world.spare()
    world.wait(10 * MINUTE)
    asked = world.now
    world.flag(name, busy=False)
    world.now += SECOND
    world.fenced(name)
    world.wait(5 * SECOND)
    permit = world.commands(Destroy, name)[-1].permit
    assert permit.proofs == (asked, asked + 6 * SECOND)
    assert permit.evidence[-1].detail == "not busy at the forge and an accepted fence together"


def test_a_whole_list_beside_unreadable_files_is_idle_only_for_one_that_never_connected():
    world = World()
    name = world.settled()
    world.probed(name, report(files=Files.UNREADABLE))
    assert world.outcomes(name)[-1][1:] == ("vetoed", "unknown", "probe")
