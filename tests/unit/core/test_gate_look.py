"""The gate, steps 1 to 4: generation noted, the probe, the busy flag, the decision."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ephemerd.core.commands import Deregister, Destroy, LookUpRunner, ProbeRunner
from ephemerd.core.events import EnvironmentsListed, FoundEnvironment, Probed, SweepOrdered
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.pool import FenceKind, Policy
from ephemerd.domain.runner import FenceAnswer, GatePhase
from ephemerd.domain.verdict import Files, Listing, Sign, Verdict, Via
from tests.unit.core.build import (
    BUSY,
    DAY,
    HOUR,
    IDLE,
    MINUTE,
    RETRY,
    SCOPE,
    SECOND,
    START,
    UNKNOWN,
    World,
    pool,
    report,
)


def blind(**changes):
    """A world whose one pool has no probe."""
    return World(pool(probes=False, **changes))


def expire(world):
    """A spare that listened for the whole grace, just nominated."""
    name = world.spare()
    world.wait(10 * MINUTE)
    assert world.rules(name) == "expired"
    return name


def deregistration(world, name):
    """The last deregistration sent for a runner."""
    return world.commands(Deregister, name)[-1]


# step 1


def test_nomination_is_numbered_counted_and_its_generation_noted():
    world = World()
    name = world.spare()
    world.wait(30 * SECOND)
    run, row = world.gate(name), world.row(name)
    assert (run.phase, run.rule.value, run.generation) == (GatePhase.PROBING, "surplus", row.signs)
    assert row.nominations == 1
    assert world.counter("nominations_total|rule=surplus") == 1
    assert ("info", "nominated") in [(note.level, note.text) for note in world.step.notes]


def test_first_question_is_the_probe():
    world = World()
    name = world.at_gate()
    assert world.step.commands == (ProbeRunner(name, "linux", f"env-{name}", world.gate(name).token),)


# step 2


def test_idle_goes_on_to_the_fence():
    world = World()
    name = world.at_gate()
    step = world.probed(name)
    (command,) = step.commands
    assert isinstance(command, Deregister)
    assert (command.intent.runner, command.intent.registration, command.intent.scope) == (name, 9001, SCOPE)
    assert (command.intent.warrant.value, command.intent.rule) == ("idle", "surplus")
    assert [evidence.verdict for evidence in command.intent.evidence] == [Verdict.IDLE]
    assert step.decisions == ()


@pytest.mark.parametrize(
    ("seen", "via"),
    [
        (BUSY, "probe"),
        (report(offered_at=World().now), "log"),
        (report(announced_at=1), "log"),
    ],
    ids=["worker", "offer", "announcement"],
)
def test_busy_is_vetoed_and_binds(seen, via):
    world = World()
    name = world.at_gate()
    step = world.probed(name, seen)
    assert step.commands == ()
    assert world.outcomes(name) == [("surplus", "vetoed", "busy", via)]
    assert world.row(name).gate is None
    assert world.state(name) in ("assigned", "running")
    assert world.counter("orphan_reap_decisions_total|outcome=vetoed|verdict=busy") == 1
    assert world.counter(f"vetoes_total|via={via}") == 1


def test_veto_is_logged_in_the_words_people_search_for():
    world = World()
    name = world.at_gate()
    world.probed(name, BUSY)
    (note,) = [note for note in world.step.notes if note.text == "orphan sweep nomination vetoed"]
    fields = dict(note.fields)
    assert (fields["runner"], fields["busy_verdict"], fields["probe"]) == (name, "busy", "probe")


def test_veto_keeps_its_evidence_age_and_bound():
    world = World()
    name = world.at_gate()
    world.probed(name, BUSY)
    decision = world.decisions[-1]
    assert [evidence.via for evidence in decision.evidence] == [Via.PROBE]
    assert (decision.age, decision.bound, decision.at) == (0, 5 * DAY + 30 * MINUTE, world.now)
    world.wait(HOUR)
    name = world.at_gate()
    world.probed(name, UNKNOWN)
    world.flag(name, busy=False)
    decision = world.decisions[-1]
    assert (decision.age, decision.bound) == (30 * SECOND, 6 * HOUR + 30 * MINUTE)


def test_second_offer_that_only_a_probe_saw_binds_again():
    world = World()
    name = world.listening()
    world.sign(name, Sign.OFFERED)
    world.wait(15 * MINUTE)
    assert world.state(name) == "listening"
    world.discharge(name)
    world.wait(30 * SECOND)
    world.probed(name, report(offered_at=world.now - SECOND))
    assert world.state(name) == "assigned"


@pytest.mark.parametrize(
    "seen",
    [
        None,
        report(listing=Listing.FAILED),
        report(listing=Listing.EMPTY),
        report(listing=Listing.PARTIAL),
        report(files=Files.UNREADABLE),
        report(strangers=1),
    ],
    ids=["no answer", "failed", "empty", "partial", "files", "stranger"],
)
def test_unknown_asks_for_the_busy_flag(seen):
    world = World()
    name = world.at_gate()
    step = world.probed(name, seen)
    assert step.commands == (LookUpRunner(name, SCOPE, 9001, world.gate(name).token),)
    assert world.gate(name).phase is GatePhase.ASKING


def test_probe_that_never_answers_is_unknown_after_its_limit():
    world = World()
    name = world.at_gate()
    assert world.wait(14_999) == []
    world.wait(1)
    assert world.gate(name).phase is GatePhase.ASKING


def test_answer_to_an_older_question_is_dropped():
    world = World()
    name = world.at_gate()
    old = world.gate(name).token
    world.probed(name, UNKNOWN)
    world.flag(name, busy=False)
    world.wait(2 * SECOND)
    assert world.gate(name).token > old
    step = world.core.handle(Probed(name, old, IDLE), world.now)
    assert step.commands == ()
    assert world.gate(name).phase is GatePhase.PROBING


# step 3


def test_flag_true_is_busy_and_binds():
    world = World()
    name = world.at_gate()
    world.probed(name, UNKNOWN)
    step = world.flag(name, busy=True)
    assert step.commands == ()
    assert world.outcomes(name) == [("surplus", "vetoed", "busy", "forge")]
    assert world.state(name) == "assigned"


@pytest.mark.parametrize(
    "answer", [{"busy": False}, {"missing": True}, {"fault": RETRY}], ids=["not busy", "not found", "fault"]
)
def test_flag_never_clears_where_the_runtime_can_probe(answer):
    world = World()
    name = world.at_gate()
    world.probed(name, UNKNOWN)
    step = world.flag(name, **answer)
    assert step.commands == ()
    assert world.outcomes(name) == [("surplus", "vetoed", "unknown", "forge")]


def test_flag_that_never_answers_is_unknown():
    world = World()
    name = world.at_gate()
    world.probed(name, UNKNOWN)
    world.wait(90 * SECOND)
    assert world.outcomes(name)[0] == ("surplus", "vetoed", "unknown", "none")


def test_flag_is_not_asked_for_while_the_scope_is_silent():
    world = World()
    name = world.at_gate()
    world.silence()
    step = world.probed(name, UNKNOWN)
    assert step.commands == ()
    assert world.outcomes(name) == [("surplus", "vetoed", "unknown", "none")]
    assert world.decisions[-1].reason == "neither probe nor forge can be asked"


def test_without_a_probe_flag_and_accepted_fence_together_are_idle_from_grace_on():
    world = blind(surplus_grace=HOUR)
    name = expire(world)
    assert len(world.commands(LookUpRunner, name)) == 1
    world.flag(name, busy=False)
    assert deregistration(world, name).intent.warrant.value == "idle"
    world.fenced(name)
    assert world.wait(4_999) == []
    world.wait(1)
    assert world.outcomes(name) == [("expired", "reaped", "idle", "forge")]
    assert [(e.via.value, e.verdict.value) for e in world.decisions[-1].evidence] == [
        ("forge", "unknown"),
        ("fence", "idle"),
        ("forge", "idle"),
    ]
    assert world.state(name) == "retiring"


def test_without_a_probe_the_flag_says_nothing_below_grace():
    world = blind()
    name = world.at_gate()
    step = world.flag(name, busy=False)
    assert step.commands == ()
    assert world.outcomes(name) == [("surplus", "vetoed", "unknown", "forge")]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (FenceAnswer.REFUSED, ("expired", "vetoed", "busy", "fence")),
        (FenceAnswer.NOT_FOUND, ("expired", "vetoed", "idle", "fence")),
        (FenceAnswer.NO_ANSWER, ("expired", "vetoed", "idle", "fence")),
    ],
)
def test_without_a_probe_a_fence_that_is_not_accepted_keeps_the_runner(answer, outcome):
    world = blind(surplus_grace=HOUR)
    name = expire(world)
    world.flag(name, busy=False)
    world.fenced(name, answer)
    assert world.outcomes(name) == [outcome]
    assert world.row(name).gate is None


def test_a_busy_flag_is_a_verdict_from_which_the_age_of_unknown_counts():
    """A busy answer ten minutes ago and an error now: unknown since ten minutes, not since the start."""
    world = blind(orphan_grace=20 * MINUTE, surplus_grace=30 * MINUTE)
    name = world.at_gate()
    world.flag(name, busy=True)
    world.kill(name)
    assert world.rules(name) == "operator"
    world.flag(name, fault=RETRY)
    assert world.outcomes(name)[-1] == ("operator", "vetoed", "unknown", "forge")
    assert world.decisions[-1].age == 0


def test_without_a_fence_the_flag_alone_is_never_idle():
    """Gitea: nothing can be refused there, so "not busy" stays unknown: an escape, and only by its bound."""
    world = blind(surplus_grace=HOUR, fence=FenceKind.NONE)
    name = expire(world)
    world.flag(name, busy=False)
    world.wait(5 * SECOND)
    assert world.outcomes(name) == [("expired", "escaped", "unknown", "forge")]
    assert world.commands(Deregister) == []


def test_without_a_fence_and_with_a_hard_bound_for_unknown_the_flag_ends_nothing():
    world = World(
        pool(probes=False, surplus_grace=HOUR, fence=FenceKind.NONE), policy=Policy(unknown_bound="hard")
    )
    name = expire(world)
    world.flag(name, busy=False)
    world.wait(5 * SECOND)
    assert world.outcomes(name) == [("expired", "vetoed", "unknown", "forge")]


def unborn(world):
    """A runner that did not listen within the provision limit, just nominated."""
    name = world.starting()
    world.wait(5 * MINUTE)
    assert world.rules(name) == "unborn"
    return name


def test_unborn_that_never_connected_may_be_fenced_at_any_age():
    world = blind()
    name = unborn(world)
    world.flag(name, busy=False, connected=False)
    world.fenced(name)
    world.wait(5 * SECOND)
    assert world.outcomes(name) == [("unborn", "reaped", "idle", "forge")]


@pytest.mark.parametrize("connected", [True, None])
def test_unborn_that_connected_once_waits_for_grace(connected):
    world = blind()
    name = unborn(world)
    world.flag(name, busy=False, connected=connected)
    assert world.outcomes(name) == [("unborn", "vetoed", "unknown", "forge")]


def test_only_unborn_may_use_that_it_never_connected():
    world = blind()
    name = world.at_gate()
    world.flag(name, busy=False, connected=False)
    assert world.outcomes(name) == [("surplus", "vetoed", "unknown", "forge")]


def test_never_connected_and_busy_is_busy():
    world = blind()
    name = unborn(world)
    world.flag(name, busy=True, connected=False)
    assert world.outcomes(name) == [("unborn", "vetoed", "busy", "forge")]


def test_unborn_with_an_unreadable_probe_still_needs_the_second_look():
    world = World()
    name = unborn(world)
    world.probed(name, UNKNOWN)
    world.flag(name, busy=False, connected=False)
    world.fenced(name)
    world.wait(5 * SECOND)
    world.probed(name, IDLE)
    assert world.outcomes(name) == [("unborn", "reaped", "idle", "probe")]


WEDGED = report(files=Files.UNREADABLE, listening=False)
"""A boot that hangs before its first line: the list is whole, and there are no files to read."""


@pytest.mark.parametrize("seen", [WEDGED, replace(WEDGED, strangers=2)], ids=["alone", "with helpers"])
def test_unborn_that_wedged_before_it_wrote_a_line_goes_by_the_forge_and_the_list_together(seen):
    """Its files will never be quiet; but it never connected, the forge let it go, and nobody works there."""
    world = World()
    name = unborn(world)
    world.probed(name, seen)
    world.flag(name, busy=False, connected=False)
    world.fenced(name)
    world.wait(5 * SECOND)
    step = world.probed(name, seen)
    assert world.outcomes(name) == [("unborn", "reaped", "idle", "forge")]
    (command,) = step.commands
    assert isinstance(command, Destroy)


@pytest.mark.parametrize(
    ("last", "verdict"),
    [
        (replace(WEDGED, workers=1), "busy"),
        (replace(WEDGED, announced_at=1), "busy"),
        (replace(WEDGED, offered_at=1), "unknown"),
        (replace(WEDGED, listing=Listing.PARTIAL), "unknown"),
        (None, "unknown"),
    ],
    ids=["worker", "announced", "offered long ago", "list not whole", "no answer"],
)
def test_unborn_that_shows_anything_or_cannot_be_seen_stays(last, verdict):
    world = World()
    name = unborn(world)
    world.probed(name, WEDGED)
    world.flag(name, busy=False, connected=False)
    world.fenced(name)
    world.wait(5 * SECOND)
    assert world.probed(name, last).commands == ()
    assert world.outcomes(name)[-1][:3] == ("unborn", "vetoed", verdict)


def test_a_wedged_boot_whose_fence_is_not_accepted_stays():
    world = World()
    name = unborn(world)
    world.probed(name, WEDGED)
    world.flag(name, busy=False, connected=False)
    world.fenced(name, FenceAnswer.NOT_FOUND)
    assert world.outcomes(name)[-1][1] == "vetoed"


def test_runner_without_an_environment_is_asked_about_at_the_forge():
    world = World()
    name = world.starting(environment=False)
    world.wait(5 * MINUTE)
    assert len(world.commands(LookUpRunner, name)) == 1
    world.flag(name, busy=False, connected=False)
    world.fenced(name)
    world.wait(5 * SECOND)
    assert world.outcomes(name) == [("unborn", "reaped", "idle", "forge")]
    assert world.state(name) == "gone"
    assert world.row(name).ending == "unborn: it did not listen within the provision limit"
    assert world.sound()


# step 4


def test_unknown_where_the_runtime_can_probe_escapes_at_the_hard_bound_only():
    world = World()
    name = world.at_gate()
    started = world.row(name).started or 0
    world.probed(name, UNKNOWN)
    world.flag(name, busy=False)
    world.wait(started + 6 * HOUR + 30 * MINUTE - world.now - 1)
    if world.row(name).gate is None:
        world.wait(60 * SECOND)
    world.probed(name, None)
    world.flag(name, busy=False)
    assert deregistration(world, name).intent.warrant.value == "escape"


def test_escape_still_needs_the_forge_for_its_fence():
    world = blind(surplus_grace=HOUR)
    name = expire(world)
    world.flag(name, fault=RETRY)
    assert world.commands(Deregister, name) == [], "the scope has just failed to answer"
    assert world.outcomes(name) == [("expired", "vetoed", "unknown", "fence")]


def test_escape_of_unknown_without_a_probe():
    world = blind(surplus_grace=HOUR)
    name = expire(world)
    world.vouch()
    world.flag(name, missing=True)
    world.fenced(name)
    world.wait(5 * SECOND)
    assert world.outcomes(name) == [("expired", "escaped", "unknown", "forge")]
    notes = [(note.level, note.text) for note in world.step.notes]
    assert ("warning", "ESCAPE: destroying a runner that is not proven idle") in notes
    assert world.counter("orphan_reap_decisions_total|outcome=escaped|verdict=unknown") == 1
    decision = world.decisions[-1]
    assert (decision.age, decision.bound) == (10 * MINUTE + 5 * SECOND, 10 * MINUTE)
    assert decision.evidence[-1].detail == "no probe"


# backoff


def test_vetoed_runner_is_left_alone_for_two_seconds_doubling_to_sixty():
    world = World()
    name = world.at_gate()
    pauses = []
    for _ in range(8):
        world.probed(name, UNKNOWN)
        world.flag(name, busy=False)
        vetoed = world.now
        assert world.row(name).gate is None
        while world.row(name).gate is None:
            world.tick()
        pauses.append((world.now - vetoed) // SECOND)
    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60]


def test_one_probe_at_a_time():
    world = World()
    name = world.at_gate()
    world.kill(name)
    world.handle(SweepOrdered())
    world.completes(world.queue(), conclusion="cancelled")
    assert len(world.commands(ProbeRunner, name)) == 1


def test_one_probe_at_a_time_after_a_start():
    """The look inside that a start asks for comes first; an order waits for its answer."""
    world = World()
    name = world.listening()
    world.restart()
    probes = world.commands(ProbeRunner, name)
    assert len(probes) == 1
    world.kill(name)
    assert world.commands(ProbeRunner, name) == probes
    world.probed(name, IDLE)
    assert world.rules(name) == "operator"
    assert len(world.commands(ProbeRunner, name)) == 2


def test_flag_true_adds_no_soft_sign_to_a_runner_that_has_a_hard_one():
    world = World()
    name = world.finishing()
    world.wait(MINUTE)
    assert world.rules(name) == "finished"
    before = world.row(name)
    world.probed(name, UNKNOWN)
    world.flag(name, busy=True)
    assert world.outcomes(name)[-1] == ("finished", "vetoed", "busy", "forge")
    assert (world.row(name).soft_last, world.row(name).signs) == (before.soft_last, before.signs)
    assert world.row(name).known == world.now


def test_without_a_registration_the_forge_is_not_asked():
    """An environment that the store does not know, and no list has shown its registration yet."""
    world = World()
    lost = RunnerId("eph-abcd1234-e0-7")
    found = FoundEnvironment(lost, "env", "linux", ended=False)
    world.handle(EnvironmentsListed("local", (found,), complete=True))
    world.probed(lost)
    world.kill(lost)
    asked = len(world.commands(LookUpRunner))
    world.probed(lost, UNKNOWN)
    assert len(world.commands(LookUpRunner)) == asked
    assert world.outcomes(lost)[-1][1:] == ("vetoed", "unknown", "none")


def test_an_answer_from_outside_the_gate_decides_nothing_in_it():
    """The probe that a start asked for is answered twice, the second time in the middle of a pass."""
    world = World(pool(surplus_grace=0))
    name = world.listening()
    world.restart()
    first = Probed(name, world.row(name).token, IDLE)
    world.handle(first)
    world.kill(name)
    run = world.gate(name)
    world.handle(first)
    assert world.gate(name) == run
    assert run.phase is GatePhase.PROBING
    assert world.commands(Deregister, name) == []


@pytest.mark.parametrize(("flag", "counted"), [({"busy": False}, 1), ({"missing": True}, 0)])
def test_a_not_busy_flag_of_a_runner_with_a_worker_is_counted_as_wrong(flag, counted):
    world = World()
    name = world.running()
    world.wait(MINUTE)
    world.kill(name)
    world.probed(name, UNKNOWN)
    world.flag(name, **flag)
    assert world.counter("flag_contradictions_total|pool=linux") == counted
    assert world.outcomes(name)[-1] == ("operator", "vetoed", "unknown", "forge")


def test_an_escape_is_fenced_although_its_own_probe_was_a_sign_and_kept_by_the_second_look():
    """Offers without a job for longer than the bound: the table says escape, the fence is asked, and the sign
    that came since the nomination keeps the runner."""
    world = World(pool(job_timeout=MINUTE))
    name = world.assigned()
    for age in (15 * MINUTE + 30 * SECOND, 31 * MINUTE):
        world.wait(START + age - world.now)
        assert world.gate(name).phase is GatePhase.PROBING
        world.probed(name, report(offered_at=world.now))
    run = world.gate(name)
    assert (run.phase, run.first, run.escape) == (GatePhase.FENCING, Verdict.BUSY, True)
    assert world.row(name).signs > run.generation
    world.fenced(name)
    world.wait(5 * SECOND)
    world.probed(name, report(offered_at=world.now))
    assert world.outcomes(name)[-1][1:] == ("vetoed", "busy", "sign")
    assert world.counter("fence_breaches_total") == 0, "nothing had been thought idle"


def test_only_an_expired_runner_that_was_matched_owes_its_job_another_one():
    world = World()
    name = world.listening()
    job = world.intent(name)
    world.kill(name)
    world.probed(name)
    assert world.core.state.jobs[job].remade is None
    world = World(pool(surplus_grace=DAY))
    first, second = world.listening(), world.listening()
    world.discharge(first)
    world.wait(10 * MINUTE)
    assert world.rules(second) == "expired"
    world.probed(second)
    assert world.row(second).fence.sent is not None
    assert world.core.state.jobs[world.intent(second)].remade is None


def test_a_veto_names_the_bound_of_its_own_verdict():
    """Without a probe they differ: grace for unknown, six hours and a half for busy."""
    world = blind(surplus_grace=0)
    name = world.listening()
    world.discharge(name)
    world.flag(name, missing=True)
    assert (world.decisions[-1].verdict, world.decisions[-1].bound) == ("unknown", 10 * MINUTE)
    world.wait(3 * SECOND)
    world.flag(name, busy=True)
    assert (world.decisions[-1].verdict, world.decisions[-1].bound) == ("busy", 6 * HOUR + 30 * MINUTE)
