"""What listing costs and how soon a job is seen, in virtual time. The whole day: `python -m benchmarks.listings`."""

from __future__ import annotations

import pytest

from ephemerd.app.roster import STRETCH
from ephemerd.domain.pool import HOUR, MINUTE
from tests.unit.app.traffic import Day, Figures


@pytest.mark.parametrize("app", [True, False])
async def test_a_hundred_idle_repositories_cost_a_fiftieth_of_the_hourly_limit_at_most(app):
    day = Day(100, polled=True, app=app)
    figures = await day.run(5)
    first, *later = figures.hours
    assert first <= figures.limit // 4
    assert all(charged <= figures.limit // 50 for charged in later), figures.hours
    assert figures.asked > 5 * 60 * 30, "they are looked at all the same"


@pytest.mark.parametrize(("jobs", "shy"), [(150, False), (400, False), (400, True)])
async def test_a_queued_job_in_an_active_repository_is_seen_within_15_s(jobs, shy):
    """Of an hour's jobs; also where a run does not show that its next job is queued as one of our runners leaves."""
    day = Day(40, polled=True, shy=shy)
    day.fill(jobs, first=12, last=13)
    figures = await day.run(1)
    assert figures.seen >= figures.jobs - 10
    assert len(figures.waits) > 50
    assert figures.p95() <= 15.0


async def test_a_pushed_run_in_an_idle_repository_is_seen_within_two_minutes():
    day = Day(100, polled=True, app=False)
    await day.run(1.5)
    day.forge.queue_run("acme/r050", [60_000], [])
    day.forge.queue_run("acme/r051", [60_000], [], pushed=False)
    figures = await day.run(1.6)
    assert figures.seen == 2
    assert max(figures.idle_waits) <= 120_000


async def test_polling_at_the_peak_of_a_day_of_10_000_jobs_leaves_the_reserve_alone():
    day = Day(40, polled=True)
    day.fill(1_900, first=13, last=15)
    figures = await day.run(2)
    assert figures.least >= figures.limit // 5
    assert figures.seen >= figures.jobs * 0.9, "more than there is budget for: late, and not never"


async def test_beside_webhooks_the_reconcile_of_that_peak_leaves_the_reserve_alone():
    day = Day(40, polled=False)
    day.fill(1_900, first=13, last=15)
    figures = await day.run(2)
    assert figures.seen == figures.jobs
    assert figures.least >= figures.limit // 5


def listed(figures: Figures) -> float:
    """Charged calls a job by listings, the first hour apart, in which deliveries are not believed yet."""
    return sum(figures.hours[1:]) / figures.jobs


async def test_where_deliveries_are_vouched_for_a_busy_day_is_listed_for_a_twentieth_of_a_call_a_job():
    """With one registration a job, and a fence for every thirtieth, that is below 1.10 calls a job."""
    day = Day(40, polled=False)
    day.fill(4_000, first=8, last=16)
    figures = await day.run(9)
    assert figures.seen == figures.jobs
    assert listed(figures) <= 0.05, figures.hours
    before = Day(40, polled=False, vouched=False)
    before.fill(4_000, first=8, last=16)
    assert listed(await before.run(9)) >= 1.0


async def test_a_delivery_that_was_never_made_is_found_by_an_audit_in_time():
    day = Day(40, polled=False)
    day.fill(1_000, first=8, last=16)
    day.lost = lambda number: number % 200 == 0
    figures = await day.run(10)
    every = day.policy.reconcile_every
    assert figures.seen == figures.jobs
    assert max(figures.waits + figures.idle_waits) <= (STRETCH + 1) * every


@pytest.mark.parametrize("share", [1, 2])
async def test_once_deliveries_are_not_made_any_more_listings_find_every_job_within_two_intervals(share):
    """All of them, or half: then those that come do not hide for long that others do not."""
    day = Day(40, polled=False)
    day.fill(2_000, first=10, last=16)
    noon = day.start + 2 * HOUR
    day.lost = lambda number: day.clock.ms >= noon and number % share == 0
    figures = await day.run(7)
    every = day.policy.reconcile_every
    assert figures.seen >= figures.jobs - 5
    late = sorted(figures.waits + figures.idle_waits)
    assert late[-1] <= (4 if share == 1 else 12) * every, "until it is noticed"
    assert late[len(late) * 95 // 100] <= 2 * every
    assert figures.least >= figures.limit // 5


async def test_a_list_of_deliveries_that_cannot_be_read_leaves_the_reconcile_as_it_is():
    day = Day(40, polled=False, vouched=False)
    day.fill(300, first=12, last=14)
    day.lost = lambda number: number % 5 == 0
    figures = await day.run(2.2)
    assert figures.seen == figures.jobs
    assert max(figures.waits + figures.idle_waits) <= day.policy.reconcile_every + MINUTE


async def test_beside_webhooks_an_idle_organization_is_listed_for_nothing():
    """0 list calls a minute when idle, apart from the reconcile's 304s; once the deliveries are believed each
    repository is asked about once in another way."""
    day = Day(40, polled=False, app=False)
    figures = await day.run(6)
    assert figures.hours[1] <= 40
    assert figures.hours[2:] == [0, 0, 0, 0]
