"""Field problems that bite in the shell: stopping, waiting, and what is thrown at it.

Numbers are those of docs/FIELD-PROBLEMS.md.
"""

from __future__ import annotations

import asyncio

import pytest

from ephemerd.app.budget import Bucket
from ephemerd.app.operator import Operator
from ephemerd.app.queries import Queries
from ephemerd.core import commands as c
from ephemerd.core import events as e
from ephemerd.core.events import FoundEnvironment
from ephemerd.core.machine import HANDLERS
from ephemerd.domain.job import ForgeStatus
from ephemerd.domain.runner import RunnerState
from ephemerd.domain.verdict import Sign
from ephemerd.ports.errors import Gone, RetryLater
from tests.unit.app.fakes import FakeStore, idle_report, until
from tests.unit.app.test_budget import take, virtually
from tests.unit.app.test_daemon import House
from tests.unit.app.test_executor import Bench, R


async def executing(house: House):
    """Give the house one runner that executes its job, and return its id."""
    await house.report()
    (order,) = await until(lambda: house.runtime.orders)
    house.runtime.tell(order.runner, Sign.LISTENING)
    house.runtime.tell(order.runner, Sign.ANNOUNCED)
    await house.runner(RunnerState.RUNNING)
    return order.runner


async def test_fp_08_an_error_while_waiting_is_no_exit(monkeypatch):
    """Reset, not there once, reset, not there once: attached again each time, and no exit was told."""
    monkeypatch.setattr("ephemerd.app.executor_runtime.WATCH_PAUSES", (0.0,))
    bench = Bench()
    outcomes = iter([RetryLater("reset"), Gone("?"), RetryLater("engine restarted"), Gone("?"), None])
    bench.runtime.answers["watch"] = lambda *_: next(outcomes)
    bench.executor.submit([c.WatchRunner(R, "linux", "env-1")])
    await until(lambda: len(bench.runtime.named("watch")) == 5)
    assert not [event for event in bench.told() if isinstance(event, e.EnvironmentExited)]
    await bench.executor.close()


async def test_fp_29_a_redelivery_bears_the_same_id_and_is_handled_once():
    async with House() as house:
        for _ in range(3):
            await house.report()
        await until(lambda: house.runtime.orders)
        assert house.store.kinds().count("JobReported") == 1
        assert len(house.forge.named("register")) == 1


def test_fp_36_after_a_limit_forty_writes_go_one_by_one_a_second_apart():
    async def work():
        bucket = Bucket(30, 3.0, 1.0)
        await take(bucket, 1)
        bucket.slow_down()
        began = asyncio.get_running_loop().time()
        await take(bucket, 40)
        return asyncio.get_running_loop().time() - began

    assert virtually(work)[0] == pytest.approx(40.0)


async def test_fp_52_a_planned_stop_signals_and_deregisters_nobody():
    store = FakeStore()
    async with House(store) as first:
        name = await executing(first)
        await first.daemon.stop()
        assert not first.runtime.named("destroy")
        assert not first.forge.named("deregister")
    second = House(store)
    second.runtime.listed = [FoundEnvironment(name, f"env-{name}", "linux", ended=False)]
    async with second:
        await until(lambda: second.runtime.named("watch"))
        assert [(row.id, row.state) for row in second.runners()] == [(name, RunnerState.RUNNING)]


async def test_fp_53_deliveries_are_taken_while_the_catch_up_hangs():
    """The list of jobs does not return; a delivery is stored, acknowledged and served all the same."""
    house = House()
    house.forge.hold["active_jobs"] = asyncio.Event()
    async with house:
        await until(lambda: house.forge.named("active_jobs"))
        await house.report(number=2)
        await until(lambda: house.runtime.orders)
        house.forge.hold["active_jobs"].set()


async def test_fp_55_an_event_that_cannot_be_handled_is_set_aside_and_blocks_nothing(monkeypatch):
    async with House() as house:

        def raising(*_: object) -> None:
            raise RuntimeError("invalid transition")

        with monkeypatch.context() as patch:
            patch.setitem(HANDLERS, e.JobReported, raising)
            await house.report(number=1)
        assert len(house.store.poison) == 1
        await house.report(number=2)
        await until(lambda: house.runtime.orders)
        assert len(house.runners()) == 1


async def test_fp_56_health_is_not_ok_while_nothing_moves():
    """One waiting job, a runner that nobody can look at: after ten minutes the daemon says stuck."""
    async with House() as house:
        house.runtime.answers["probe"] = RetryLater("the engine does not answer")
        await house.report()
        await until(lambda: house.runtime.orders)
        await house.runner(RunnerState.STARTING)
        queries = Queries(house.daemon, "1")
        assert queries.health().status == "ok"
        house.pass_time(10 * 60_000)
        assert queries.health().status == "stuck"
        assert "nothing moved" in queries.health().reasons[0]


async def test_fp_60_a_forced_removal_is_recorded_with_who_and_the_verdicts():
    async with House() as house:
        name = await executing(house)
        house.runtime.answers["probe"] = idle_report(workers=1)
        view = await Operator(house.daemon).kill("ann", name, reason="hangs", even_if_busy=True)
        assert view.outcome == "accepted"
        (made,) = [one for one in house.store.made if one["outcome"] == "reaped"]
        assert (made["rule"], made["verdict"], made["reason"]) == ("operator", "busy", "ann asked: hangs")
        assert {evidence["via"] for evidence in made["evidence"]} >= {"probe", "fence"}
        await house.report(ForgeStatus.COMPLETED)
