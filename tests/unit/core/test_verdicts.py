"""What answers of the forge are worth as evidence, and what is remembered of them."""

from __future__ import annotations

import pytest

from ephemerd.core.commands import Deregister
from ephemerd.core.events import (
    FenceAnswered,
    NameLookedUp,
    Probed,
    RegistrationFailed,
    RunnerLookedUp,
)
from ephemerd.core.evolve import replace
from ephemerd.core.verdicts import of_fence, of_flag
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.runner import FenceAnswer
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
        (FenceAnswer.NO_ANSWER, None, Verdict.UNKNOWN, "no answer"),
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
