"""Who reads waits for its turn while the daemon works, never long, and never while it does nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from ephemerd.testing.virtual_time import virtually
from ephemerd.web.pace import LATE, LONGEST_REST, LOOK, PATIENCE, SHARE, Pace


class Daemon:
    """What a pace sees of a daemon; work that holds the loop moves its clock."""

    def __init__(self) -> None:
        self.lag = 0.0
        self.commits = 0
        self.worked = 0.0
        self.read: list[tuple[str, float]] = []
        self.pace = Pace(lambda: self.lag, lambda: self.commits, self.time)

    def time(self) -> float:
        return asyncio.get_running_loop().time() + self.worked

    async def reading(self, name: str, seconds: float = 0.010) -> str:
        """Read for so long, and note when that began."""

        async def read(_: str) -> str:
            self.read.append((name, self.time()))
            self.worked += seconds
            return name

        return await self.pace.over(read)(name)


def virtual(test: Callable[[Daemon], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on a virtual loop."""

    @wraps(test)
    def run() -> None:
        virtually(lambda: test(Daemon()))

    del run.__wrapped__  # pytest would ask for its argument as a fixture
    return run


@virtual
async def test_nobody_waits_where_nothing_is_committed(daemon):
    began = daemon.time()
    for number in range(10):
        await daemon.reading(str(number))
    assert daemon.time() - began == pytest.approx(0.1)


@virtual
async def test_a_reading_rests_for_a_multiple_of_what_the_last_one_took(daemon):
    await daemon.reading("first", 0.030)
    ended = daemon.time()
    daemon.commits += 1
    await daemon.reading("second")
    waited = daemon.read[1][1] - ended
    assert waited == pytest.approx(0.030 * (1 / SHARE - 1) + LOOK, abs=LOOK + 1e-6)


@virtual
async def test_reading_takes_its_share_at_most_while_the_daemon_works(daemon):
    began = daemon.time()

    async def reader(name: str) -> None:
        for _ in range(20):
            daemon.commits += 1
            await daemon.reading(name)

    await asyncio.gather(*(reader(name) for name in "abcdef"))
    assert daemon.worked / (daemon.time() - began) <= SHARE + 0.01
    # One after the other, in the order in which they asked.
    assert [name for name, _ in daemon.read[6:12]] == [name for name, _ in daemon.read[12:18]]


@virtual
async def test_a_reading_waits_until_no_event_is_late(daemon):
    daemon.lag, daemon.commits = LATE, 1
    began, asked = daemon.time(), asyncio.create_task(daemon.reading("one"))
    await asyncio.sleep(PATIENCE / 2)
    assert not daemon.read
    daemon.lag = LATE / 2
    await asked
    assert daemon.read[0][1] - began <= PATIENCE / 2 + 2 * LOOK


@virtual
async def test_under_a_lasting_load_it_is_patient_for_a_bounded_time(daemon):
    daemon.lag, daemon.commits = 10.0, 1
    began = daemon.time()
    await asyncio.gather(*(daemon.reading(name) for name in "abc"))
    assert daemon.read[0][1] - began == pytest.approx(PATIENCE, abs=2 * LOOK)
    assert daemon.read[2][1] - began <= PATIENCE + 2 * (0.040 + 2 * LOOK)


@virtual
async def test_no_rest_is_longer_than_its_bound(daemon):
    await daemon.reading("long", 60.0)
    ended = daemon.time()
    daemon.commits += 1
    await daemon.reading("next")
    assert daemon.read[1][1] - ended <= LONGEST_REST + 2 * LOOK


@virtual
async def test_only_the_time_in_which_it_holds_the_loop_counts(daemon):
    async def read(_: None) -> None:
        daemon.worked += 0.010
        await asyncio.sleep(5.0)
        daemon.worked += 0.010

    await daemon.pace.over(read)(None)
    ended = daemon.time()
    daemon.commits += 1
    await daemon.reading("next")
    assert daemon.read[0][1] - ended <= 0.010 * (1 / SHARE - 1) + 2 * LOOK


@virtual
async def test_who_leaves_while_waiting_does_not_hold_up_the_others(daemon):
    await daemon.reading("first", 0.030)
    daemon.commits += 1
    leaves, stays = (asyncio.create_task(daemon.reading(name)) for name in ("leaves", "stays"))
    await asyncio.sleep(0)
    leaves.cancel()
    assert await stays == "stays"
    assert [name for name, _ in daemon.read] == ["first", "stays"]


@virtual
async def test_a_failure_and_a_cancellation_are_those_of_the_reading(daemon):
    caught = []

    async def fails(_: None) -> None:
        try:
            await asyncio.sleep(60.0)
        except asyncio.CancelledError:
            caught.append("cancelled")
            raise OSError("away") from None

    reading = asyncio.create_task(daemon.pace.over(fails)(None))
    await asyncio.sleep(1.0)
    reading.cancel()
    with pytest.raises(OSError, match="away"):
        await reading
    assert caught == ["cancelled"]
