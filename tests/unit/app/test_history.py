"""History: buckets, percentiles and waste, told from rows and decisions."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from ephemerd.app.history import WINDOWS, History, Window, spread, told
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus, Job, JobStatus
from ephemerd.domain.runner import Decision
from tests.unit.app.fakes import T0, key
from tests.unit.app.test_daemon import House

MINUTE = 60_000
WINDOW = Window("10 min", 10 * MINUTE, MINUTE)
NOW = T0 // MINUTE * MINUTE + MINUTE // 2


def job(
    number: int, *, seen: int, started: int | None, ended: int | None, conclusion: str = "success"
) -> Job:
    status = JobStatus.DONE if ended is not None else JobStatus.RUNNING
    return Job(
        *(key(number), ("linux",), number, status, NOW, NOW + seen, NOW),
        name="build",
        started=None if started is None else NOW + started,
        ended=None if ended is None else NOW + ended,
        conclusion=conclusion if ended is not None else None,
    )


def decision(number: int, at: int, outcome: str, rule: str) -> Decision:
    return Decision(
        *(number, NOW + at, RunnerId("r"), "linux", 1, rule, outcome, "idle", "probe", "", 0, 0, ())
    )


def test_percentiles_are_nearest_rank():
    found = spread(range(1, 101))
    assert (found.count, found.p50, found.p90, found.p99, found.most) == (100, 50, 90, 99, 100)
    assert spread([7.0]).p50 == spread([7.0]).p99 == 7.0
    assert spread([]).p50 is None


def test_jobs_are_counted_where_they_ended_and_waits_where_they_started():
    jobs = [
        job(1, seen=-200_000, started=-190_000, ended=-130_000),
        job(2, seen=-200_000, started=-140_000, ended=-10_000, conclusion="failure"),
        job(3, seen=-30_000, started=-20_000, ended=None),
        job(4, seen=-5_000, started=None, ended=-1_000, conclusion="cancelled"),
    ]
    view = told(jobs, [], NOW, WINDOW)
    assert len(view.buckets) == 10
    assert (view.ended, view.failed) == (3, 1)
    assert (view.buckets[-1].succeeded, view.buckets[-1].failed, view.buckets[-1].other) == (0, 1, 1)
    assert sum(bucket.ended for bucket in view.buckets) == 3
    assert sorted((view.wait.count, view.wait.most or 0)) == [3, 60.0]
    assert (view.duration.count, view.duration.most) == (2, 130.0)


@pytest.mark.parametrize("ended", [-10 * MINUTE - 1, 1])
def test_what_lies_outside_is_left_out(ended):
    view = told([job(1, seen=ended - 2, started=ended - 1, ended=ended)], [], NOW, WINDOW)
    assert view.ended == 0
    assert view.jobs == ()


def test_idle_runners_let_go_are_waste_and_ended_ones_are_not():
    made = [
        decision(1, -5_000, "reaped", "surplus"),
        decision(2, -5_000, "reaped", "finished"),
        decision(3, -5_000, "vetoed", "surplus"),
        decision(4, -5_000, "escaped", "expired"),
        decision(5, -20 * MINUTE, "reaped", "surplus"),
    ]
    view = told([], made, NOW, WINDOW)
    assert (view.let_go, view.vetoed, view.escaped) == (1, 1, 1)
    assert view.buckets[-1].let_go == 1


def test_names_that_take_most_time_come_first():
    jobs = [job(n, seen=-9_000, started=-8_000, ended=-7_900) for n in range(1, 4)]
    jobs.append(job(9, seen=-300_000, started=-290_000, ended=-1_000))
    jobs[-1] = replace(jobs[-1], name="long")
    view = told(jobs, [], NOW, WINDOW)
    assert [(row.name, row.ended) for row in view.jobs] == [("long", 1), ("build", 3)]


@pytest.mark.parametrize("window", WINDOWS)
def test_each_window_has_a_readable_number_of_buckets(window):
    assert window.length % window.bucket == 0
    assert 24 <= len(told([], [], NOW, window).buckets) <= 48


async def test_a_daemon_is_read_and_told_again_for_a_while():
    async with House() as house:
        await house.report()
        await house.report(ForgeStatus.COMPLETED, conclusion="success")
        history = History(house.daemon)
        view = await history.view("1 h")
        assert view.ended == 1
        assert [one.pool for one in view.waste] == ["linux"]
        assert view.waste[0].made >= view.waste[0].wasted
        assert await history.view("1 h") is view
        house.pass_time(6_000)
        assert await history.view("1 h") is not view
        house.pass_time(6_000)
        one, two = await asyncio.gather(history.view("1 h"), history.view("1 h"))
        assert one is two, "who asks at the same time waits for the same"
        assert (await history.view("nothing like that")).window.name == "24 h"
