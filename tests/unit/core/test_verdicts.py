"""What answers of the forge are worth as evidence, and what is remembered of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ephemerd.core.commands import Deregister
from ephemerd.core.events import (
    FenceAnswered,
    NameLookedUp,
    Probed,
    RegistrationFailed,
    RunnerLookedUp,
)
from ephemerd.core.index import is_supply
from ephemerd.core.verdicts import of_fence, of_flag
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.runner import FenceAnswer, GatePhase
from ephemerd.domain.verdict import Sign, Verdict, Via
from tests.unit.core.build import BUSY, IDLE, MINUTE, RETRY, SECOND, UNKNOWN, World, report

NAME = RunnerId("a")


@pytest.mark.parametrize(
    ("answer", "verdict", "words"),
    [
        ({"busy": True}, Verdict.BUSY, "as busy"),
        ({"busy": False}, Verdict.UNKNOWN, "clears nothing"),
        ({"busy": None}, Verdict.UNKNOWN, "clears nothing"),
        ({"missing": True}, Verdict.UNKNOWN, "not found"),
        ({"missing": True, "busy": True}, Verdict.UNKNOWN, "not found"),
        ({"fault": RETRY}, Verdict.UNKNOWN, "timed out"),
        ({"fault": RETRY, "busy": True}, Verdict.UNKNOWN, "timed out"),
    ],
    ids=str,
)
def test_flag_is_evidence_of_busy_alone(answer, verdict, words):
    evidence = of_flag(RunnerLookedUp(NAME, 1, **answer), 7)
    assert (evidence.verdict, evidence.via, evidence.at) == (verdict, Via.FORGE, 7)
    assert words in evidence.detail


@pytest.mark.parametrize(
    ("answer", "fault", "verdict", "words"),
    [
        (FenceAnswer.ACCEPTED, None, Verdict.IDLE, "accepted"),
        (FenceAnswer.REFUSED, None, Verdict.BUSY, "refused"),
        (FenceAnswer.NOT_FOUND, None, Verdict.UNKNOWN, "is not found"),
        (FenceAnswer.NO_ANSWER, RETRY, Verdict.UNKNOWN, "timed out"),
        (FenceAnswer.NO_ANSWER, None, Verdict.UNKNOWN, "got no answer: no answer"),
    ],
)
def test_fence_as_evidence(answer, fault, verdict, words):
    evidence = of_fence(FenceAnswered(NAME, 1, 1, answer, fault), 7)
    assert (evidence.verdict, evidence.via, evidence.at) == (verdict, Via.FENCE, 7)
    assert words in evidence.detail


# what a probe leaves behind


def looked(world, name, seen):
    """A look from outside the gate."""
    world.core.state.runners[name] = replace(world.row(name), token=77)
    return world.handle(Probed(name, 77, seen))


@pytest.mark.parametrize(
    ("seen", "state", "known"),
    [
        (IDLE, "listening", True),
        (UNKNOWN, "listening", False),
        (BUSY, "running", True),
        (report(announced_at=5), "running", True),
        (report(offered_at=10**6), "assigned", True),
    ],
    ids=["idle", "unknown", "worker", "announcement", "offer"],
)
def test_signs_that_a_probe_saw_are_latched(seen, state, known):
    world = World()
    name = world.listening()
    looked(world, name, seen)
    row = world.row(name)
    assert (row.state.value, row.known is not None) == (state, known)
    assert (row.worker is not None) is (seen is BUSY)


def test_first_worker_that_is_seen_is_a_sign_and_the_next_look_is_none():
    world = World()
    name = world.listening()
    world.begins(world.intent(name), name)
    before = world.row(name).signs
    looked(world, name, BUSY)
    assert (world.row(name).signs, world.row(name).worker) == (before + 1, world.now)
    looked(world, name, BUSY)
    assert world.row(name).signs == before + 1


def test_offer_that_is_known_already_does_not_stretch_its_life():
    world = World()
    name = world.listening()
    world.sign(name, Sign.OFFERED)
    offered = world.now
    world.now += 10 * MINUTE
    looked(world, name, report(offered_at=offered))
    assert world.row(name).soft_last == offered
    world.wait(5 * MINUTE)
    assert world.state(name) == "listening"


# a registration whose environment is gone


def left_over(world):
    """A registration without an environment, its removal under way; returns the runner."""
    name = world.registering()
    world.handle(RegistrationFailed(name, RETRY))
    world.wait(MINUTE)
    world.handle(NameLookedUp(name, 9001))
    assert (world.state(name), len(world.commands(Deregister, name))) == ("gone", 1)
    return name


def answer(world, name, said, fault=None):
    world.handle(FenceAnswered(name, 9001, 1, said, fault))
    return world.row(name)


@pytest.mark.parametrize("said", [FenceAnswer.ACCEPTED, FenceAnswer.NOT_FOUND])
def test_taken_back_for_good(said):
    world = World()
    name = left_over(world)
    assert answer(world, name, said).unregister is False
    world.wait(30 * MINUTE)
    assert len(world.commands(Deregister, name)) == 1


def test_refused_removal_is_tried_ever_more_slowly():
    """A zombie is refused for a quarter of an hour, at times for hours."""
    world = World()
    name = left_over(world)
    pauses = []
    for _ in range(7):
        row = answer(world, name, FenceAnswer.REFUSED)
        assert row.unregister
        pauses.append((row.fence.retry - world.now) // SECOND)
        world.wait(row.fence.retry - world.now)
    assert pauses == [30, 60, 120, 300, 600, 3600, 3600]
    assert len(world.commands(Deregister, name)) == 8


def test_removal_without_an_answer_does_not_slow_down_what_comes_after():
    world = World()
    name = left_over(world)
    row = answer(world, name, FenceAnswer.NO_ANSWER, RETRY)
    assert row.unregister
    assert row.fence.retry - world.now <= MINUTE


def test_not_found_by_a_scope_that_does_not_answer_takes_nothing_back():
    """A token that lost its access is told "not found" of everything: the registration may well be there."""
    world = World(answers=False)
    name = left_over(world)
    world.now += 2 * MINUTE
    assert answer(world, name, FenceAnswer.NOT_FOUND).unregister
    world.vouch()
    assert not answer(world, name, FenceAnswer.NOT_FOUND).unregister


# what is remembered of the answers to a deregistration


def told(world, name, said, fault=None):
    """The forge answers a deregistration that no pass through the gate waits for (any more)."""
    world.handle(FenceAnswered(name, 9001, 0, said, fault))
    return world.row(name).fence


def test_pause_after_no_answer_doubles_up_to_a_minute():
    world = World()
    name = world.listening()
    pauses = []
    for _ in range(7):
        fence = told(world, name, FenceAnswer.NO_ANSWER, RETRY)
        pauses.append((fence.retry - world.now) // SECOND)
    assert pauses == [2, 4, 8, 16, 32, 60, 60]


def test_not_found_told_twice_within_a_minute_is_once():
    world = World(answers=False)
    name = world.listening()
    world.vouch()
    assert told(world, name, FenceAnswer.NOT_FOUND).missing == world.now
    world.now += MINUTE - 1
    world.vouch()
    assert told(world, name, FenceAnswer.NOT_FOUND).missing_again is None
    world.now += 1
    assert told(world, name, FenceAnswer.NOT_FOUND).missing_again == world.now


@pytest.mark.parametrize("said", [FenceAnswer.REFUSED, FenceAnswer.NOT_FOUND])
def test_whoever_answered_is_not_asked_again_within_a_minute(said):
    """The job of the runner is over and it is nominated again and again: the forge is spared."""
    world = World()
    name = world.finishing()
    world.wait(MINUTE)
    world.probed(name)
    world.vouch()
    world.fenced(name, said)
    answered = world.now
    while len(world.commands(Deregister, name)) == 1 and world.now < answered + 5 * MINUTE:
        run = world.row(name).gate
        if run is not None and run.phase is GatePhase.PROBING:
            world.probed(name)
        else:
            world.wait(SECOND)
    assert MINUTE <= world.now - answered < 2 * MINUTE


# what a probe saw, once more


def test_an_offer_that_a_probe_saw_is_an_offer_of_the_runners_own_files():
    """Nothing followed: it hangs, and is no supply when the sign lapses."""
    world = World()
    name = world.listening()
    looked(world, name, report(offered_at=world.now))
    world.wait(15 * MINUTE)
    assert world.state(name) == "listening"
    assert not is_supply(world.row(name))


def test_an_announcement_that_has_its_end_binds_nobody():
    world = World()
    name = world.listening()
    looked(world, name, report(announced_at=world.now - 2, ended_at=world.now - 1))
    assert (world.row(name).hard, world.state(name)) == (None, "listening")


def test_an_announcement_that_is_known_is_no_new_sign():
    """Each sign stops a pass through the gate: what is told again must not."""
    world = World()
    name = world.listening()
    looked(world, name, report(announced_at=5))
    before = world.row(name).signs
    looked(world, name, report(announced_at=5))
    assert world.row(name).signs == before


def test_an_offer_is_latched_in_whatever_state_it_is_seen():
    world = World()
    name = world.listening()
    world.sign(name, Sign.ENDED)
    assert (world.state(name), world.row(name).hard) == ("finishing", None)
    looked(world, name, report(offered_at=world.now))
    assert world.row(name).soft == world.now


# the forge's flag against what was seen


def flagged(world, name):
    """The forge shows the runner as not busy; how often was that counted as wrong?"""
    world.core.state.runners[name] = replace(world.row(name), token=77)
    world.handle(RunnerLookedUp(name, 77, busy=False, connected=True))
    return world.counter("flag_contradictions_total|pool=linux")


def test_flag_is_wrong_where_a_worker_was_seen_a_minute_ago_and_not_before():
    world = World()
    name = world.running()
    world.now += MINUTE - 1
    assert flagged(world, name) == 0
    world.now += 1
    assert flagged(world, name) == 1


def test_flag_may_be_right_where_no_worker_was_seen_or_the_job_is_over():
    world = World()
    announced, over = world.listening(), world.finishing()
    world.sign(announced, Sign.ANNOUNCED, "Running job: build")
    world.now += 10 * MINUTE
    assert world.state(announced) == "running"
    assert flagged(world, announced) == 0
    assert flagged(world, over) == 0


def test_what_is_logged_of_a_destruction_names_its_rule_and_its_fence():
    world = World()
    name = world.settled()
    world.probed(name)
    (note,) = [note for note in world.step.notes if note.text == "destroying orphaned runner"]
    fields = dict(note.fields)
    assert (fields["rule"], fields["fence"]) == ("surplus", "accepted")
