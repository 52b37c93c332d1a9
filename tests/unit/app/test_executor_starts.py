"""More starts than an engine can do: who waits too long for a turn is not begun, so that no queue feeds itself."""

from __future__ import annotations

import asyncio

from ephemerd.app.executor_runtime import STARTS_AT_ONCE, TURN_SHARE
from ephemerd.core import commands as c
from ephemerd.core import events as e
from ephemerd.domain.errors import Remedy
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.pool import SECOND, Policy
from ephemerd.testing.virtual_time import virtually
from tests.unit.app.fakes import SCOPE, STORE
from tests.unit.app.test_executor import Bench

TURN = Policy().provision_limit / SECOND * TURN_SHARE
NAMES = [RunnerId(f"eph-{STORE}-abcd-{number}") for number in range(1, STARTS_AT_ONCE + 3)]


async def queued() -> Bench:
    """Two starts more than are done at once, by a runtime that gets nothing done."""
    bench = Bench()
    bench.runtime.hold["start"] = asyncio.Event()
    await bench.run(*(c.Register(name, SCOPE, ("linux",)) for name in NAMES))
    bench.executor.submit([c.StartRunner(name, "linux") for name in NAMES])
    await asyncio.sleep(TURN - 1)
    return bench


def test_who_gets_no_turn_in_time_is_not_started_and_its_place_is_not_taken() -> None:
    async def play() -> None:
        bench = await queued()
        assert len(bench.runtime.orders) == STARTS_AT_ONCE
        await asyncio.sleep(2)
        failed = [one for one in bench.told() if isinstance(one, e.StartFailed)]
        assert sorted(one.runner for one in failed) == sorted(NAMES[STARTS_AT_ONCE:])
        assert {one.fault.remedy for one in failed} == {Remedy.BROKEN}
        assert f"within {TURN:g} s" in failed[0].fault.detail
        bench.runtime.hold["start"].set()
        await bench.executor.settled()
        started = [one.runner for one in bench.told() if isinstance(one, e.EnvironmentStarted)]
        assert sorted(started) == sorted(NAMES[:STARTS_AT_ONCE])
        assert len(bench.runtime.orders) == STARTS_AT_ONCE, "nobody was started late"

    virtually(play)


def test_who_gets_a_turn_in_time_is_started() -> None:
    async def play() -> None:
        bench = await queued()
        bench.runtime.hold["start"].set()
        await bench.executor.settled()
        started = [one.runner for one in bench.told() if isinstance(one, e.EnvironmentStarted)]
        assert sorted(started) == sorted(NAMES)

    virtually(play)
