"""Where no deliveries come, listings are all that is heard: often while something happens, else seldom."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.job import ForgeStatus, JobStatus
from ephemerd.domain.pool import Policy, Setup
from ephemerd.domain.runner import RunnerState
from tests.unit.core.world import APP, MINUTE, ORG, SECOND, World, key, of, pool, report


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


# -- scopes that are read in parts -------------------------------------------------------------------------


def organization(**changes: Any) -> World:
    """An organization that is polled, of which nothing was listed yet."""
    return World(pool(observed=False, scope=ORG, **changes), lists=False)


def listed(world: World, *repositories: str, **fields: Any) -> tuple[cm.Command, ...]:
    """A part of the organization was listed: these repositories, in which nothing is queued or runs."""
    fields = {"jobs": 0, "as_of": None, **fields}
    return world.feed(ev.JobsListed(ORG, repositories=repositories, **fields)).commands


def test_a_job_is_asked_about_only_where_its_own_repository_was_read() -> None:
    world = organization()
    world.queued(1, repository="acme/app")
    world.queued(2, repository="acme/lib")
    world.feed(ev.JobsListed(ORG, 0, repositories=()))
    world.wait(MINUTE)
    sent = listed(world, "acme/lib")
    assert [command.job for command in of(sent, cm.LookUpJob)] == [key(2, "acme/lib")]
    world.wait(MINUTE)
    sent = listed(world)
    assert of(sent, cm.LookUpJob) == []


def test_a_part_of_a_scope_is_no_listing_of_it_until_all_of_it_was_read() -> None:
    world = organization()
    listed(world, "acme/app")
    assert world.core.state.scope(ORG).jobs_listed is None
    world.wait(10 * SECOND)
    as_of = world.now - 3 * SECOND
    listed(world, "acme/lib", as_of=as_of)
    assert world.core.state.scope(ORG).jobs_listed == as_of
    world.wait(10 * SECOND)
    listed(world, "acme/lib")
    assert world.core.state.scope(ORG).jobs_listed == as_of


def test_what_was_read_before_the_machine_slept_counts_no_more() -> None:
    world = organization()
    before = world.now
    world.now += MINUTE
    world.feed(ev.MachineSlept(MINUTE))
    listed(world, "acme/app", as_of=before)
    assert world.core.state.scope(ORG).jobs_listed is None
    listed(world, "acme/app", as_of=world.now)
    assert world.core.state.scope(ORG).jobs_listed == world.now


def test_after_a_restart_an_idle_runner_rests_until_all_of_its_organization_was_read() -> None:
    world = organization()
    (name,) = world.listening(1)
    world.completed(1, how="cancelled")
    world.restart(down=SECOND)
    world.feed(ev.EnvironmentsListed("here", tuple(world.environments.values()), complete=True))
    world.probed(world.last(cm.ProbeRunner))
    world.wait(20 * MINUTE)
    listed(world, "acme/app")
    world.wait(20 * MINUTE)
    assert world.runner(name).gate is None
    listed(world, "acme/app", as_of=world.now)
    world.wait(MINUTE)
    row = world.runner(name)
    assert row.gate is not None or row.state is not RunnerState.LISTENING


def test_a_lively_scope_keeps_its_pace_while_nothing_is_queued() -> None:
    world = organization()
    listed(world, "acme/app")
    assert world.core.state.scope(ORG).quiet == 1
    listed(world, "acme/app", lively=True)
    row = world.core.state.scope(ORG)
    assert (row.quiet, row.jobs_due) == (0, world.now + 10 * SECOND)


# -- what silence means is a property of the scope -----------------------------------------------------------


def test_what_a_pool_of_an_earlier_configuration_was_told_by_does_not_count() -> None:
    """Deliveries came once, and the daemon was started again to poll, with a pool of another name."""
    world = World(pool("old"))
    world.restart(setup=Setup((pool("new", observed=False),), world.setup.hosts, world.setup.policy))
    assert not world.core.state.is_observed(APP)
    world.restart(setup=Setup((pool("old"),), world.setup.hosts, world.setup.policy))
    assert world.core.state.is_observed(APP)


def test_a_scope_that_is_used_no_more_keeps_what_its_last_pools_said() -> None:
    world = World(pool("old", observed=False))
    world.restart(setup=Setup((pool("new", scope=ORG),), world.setup.hosts, world.setup.policy))
    assert not world.core.state.is_observed(APP)
    assert world.core.state.is_observed(ORG)


def test_one_scope_may_be_polled_beside_another_that_is_told_of() -> None:
    world = World(pool("told"), pool("polled", scope=ORG, observed=False), lists=False)
    for scope in (APP, ORG):
        world.feed(ev.JobsListed(scope, 1))
    due = {scope: world.core.state.scope(scope).jobs_due - world.now for scope in (APP, ORG)}
    assert due == {APP: 5 * MINUTE, ORG: 10 * SECOND}
