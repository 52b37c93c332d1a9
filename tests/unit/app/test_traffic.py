"""What listing costs and how soon a job is seen, in virtual time. The whole day: `python -m benchmarks.listings`."""

from __future__ import annotations

import pytest

from tests.unit.app.traffic import Day


@pytest.mark.parametrize("app", [True, False])
async def test_a_hundred_idle_repositories_cost_a_fiftieth_of_the_hourly_limit_at_most(app):
    day = Day(100, polled=True, app=app)
    figures = await day.run(5)
    first, *later = figures.hours
    assert first <= figures.limit // 4
    assert all(charged <= figures.limit // 50 for charged in later), figures.hours
    assert figures.asked > 5 * 60 * 30, "they are looked at all the same"


async def test_a_queued_job_in_an_active_repository_is_seen_within_15_s():
    day = Day(40, polled=True)
    day.fill(300, first=12, last=14)
    figures = await day.run(2)
    assert figures.seen >= figures.jobs - 10
    assert len(figures.waits) > 100
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


async def test_beside_webhooks_an_idle_organization_is_listed_for_nothing():
    """0 list calls a minute when idle, apart from the reconcile's 304s."""
    day = Day(40, polled=False, app=False)
    figures = await day.run(5)
    assert figures.hours[1:] == [0, 0, 0, 0]
