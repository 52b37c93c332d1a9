"""Where no deliveries come, listings are all that is heard: often while something happens, else seldom."""

from __future__ import annotations

from itertools import pairwise

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.job import ForgeStatus, JobStatus
from ephemerd.domain.pool import Policy
from tests.unit.core.world import APP, MINUTE, SECOND, World, key, of, pool, report


def polled(policy: Policy | None = None) -> World:
    return World(pool(observed=False), policy=policy)


def pauses(world: World, ms: int) -> list[int]:
    """Return the times between listings of jobs within the next `ms`, in seconds."""
    asked, until = [world.core.state.scope(APP).jobs_due], world.now + ms
    while (wake := world.core.next_wake()) is not None and wake <= until:
        first = len(world.sent)
        world.wait(wake - world.now)
        if of(world.sent[first:], cm.ListJobs):
            asked.append(world.core.state.scope(APP).jobs_due)
    return [(after - before) // SECOND for before, after in pairwise(asked)]


def test_an_idle_scope_is_read_ever_more_seldom_up_to_a_minute() -> None:
    world = polled()
    assert pauses(world, 4 * MINUTE) == [40, 60, 60, 60, 60]


def test_an_observed_scope_keeps_its_rhythm() -> None:
    world = World()
    first = world.count(cm.ListJobs)
    world.wait(4 * MINUTE)
    assert world.count(cm.ListJobs) == first
    assert world.core.state.scope(APP).quiet == 0


def test_a_scope_in_which_something_waits_is_read_every_ten_seconds() -> None:
    world = polled()
    world.wait(3 * MINUTE)
    world.waiting[key(1)] = report(1, ForgeStatus.QUEUED)
    world.wait(MINUTE)
    assert world.job(1).status is JobStatus.QUEUED
    first = world.count(cm.ListJobs)
    world.wait(MINUTE)
    assert world.count(cm.ListJobs) - first == 6


def test_an_end_that_no_delivery_tells_is_asked_about_after_the_next_listing() -> None:
    world = polled()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.waiting.clear()
    sent = world.wait(MINUTE + 10 * SECOND)
    question = of(sent, cm.LookUpJob)[0]
    world.job_answer(question, ForgeStatus.COMPLETED, runner_name=name, conclusion="success")
    assert world.job(1).status is JobStatus.DONE


def test_a_listing_that_failed_says_nothing_of_activity() -> None:
    world = polled()
    quiet = world.core.state.scope(APP).quiet
    world.feed(ev.JobsListed(APP, 0, Fault(Remedy.REFUSED, "no")))
    assert world.core.state.scope(APP).quiet == quiet


def test_a_listing_that_nobody_asked_for_counts_from_now() -> None:
    world = polled()
    world.feed(ev.JobsListed(APP, 1))
    assert world.core.state.scope(APP).jobs_due == world.now + 10 * SECOND


def test_the_bound_is_never_shorter_than_the_pace() -> None:
    world = polled(Policy(poll_every=2 * MINUTE, poll_idle=SECOND))
    assert set(pauses(world, 20 * MINUTE)) == {120}
