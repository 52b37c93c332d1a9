"""A lane: one thing after the other in one thread, results and exceptions to whoever waits."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ephemerd.adapters.stores.sqlite.lane import Lane, Late


class Probe:
    """A lane with what it did."""

    def __init__(self) -> None:
        self.interrupts = 0
        self.ended = threading.Event()
        self.lane = Lane("test-lane", self.interrupt)

    def interrupt(self) -> None:
        self.interrupts += 1


@pytest.fixture
async def probe():
    probe = Probe()
    yield probe
    probe.lane.stop(probe.ended.set)
    assert await probe.lane.ended(10)
    assert probe.ended.is_set()


async def test_work_is_done_in_the_lanes_thread(probe):
    assert await probe.lane.do(lambda: threading.current_thread().name, 10) == "test-lane"


async def test_exceptions_come_back(probe):
    def fail() -> None:
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        await probe.lane.do(fail, 10)
    assert await probe.lane.do(lambda: 1, 10) == 1


async def test_even_an_exit_does_not_end_the_thread(probe):
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        await probe.lane.do(leave, 10)
    assert await probe.lane.do(lambda: 1, 10) == 1


async def test_a_timeout_of_the_work_itself_is_not_late(probe):
    def fail() -> None:
        raise TimeoutError("the work's own")

    with pytest.raises(TimeoutError, match="the work's own"):
        await probe.lane.do(fail, 10)
    assert probe.interrupts == 0


async def test_order_is_kept(probe):
    done: list[int] = []
    await asyncio.gather(*(probe.lane.do(lambda n=n: done.append(n), 10) for n in range(50)))
    assert done == list(range(50))


async def test_what_runs_too_long_is_interrupted_and_knows_it(probe):
    begun, release, wanted = threading.Event(), threading.Event(), []

    def work() -> None:
        wanted.append(probe.lane.wanted())
        begun.set()
        release.wait(30)
        wanted.append(probe.lane.wanted())

    with pytest.raises(Late):
        await probe.lane.do(work, 0.5)
    assert begun.is_set()
    release.set()
    assert await probe.lane.do(lambda: 1, 10) == 1
    assert wanted == [True, False]
    assert probe.interrupts == 1


async def test_what_waits_too_long_is_never_begun(probe):
    release, done = threading.Event(), []
    first = asyncio.ensure_future(probe.lane.do(lambda: release.wait(30), 60))
    await asyncio.sleep(0)  # lets it take its place in the queue
    with pytest.raises(Late):
        await probe.lane.do(lambda: done.append(1), 0.05)
    release.set()
    assert await first is True
    assert await probe.lane.do(lambda: 2, 10) == 2
    assert done == []
    assert probe.interrupts == 0


def test_a_loop_that_is_gone_does_no_harm():
    release, finished = threading.Event(), threading.Event()

    async def leave() -> Lane:
        probe = Probe()

        def work() -> None:
            release.wait(30)

        abandoned = asyncio.ensure_future(probe.lane.do(work, 60))
        await asyncio.sleep(0)
        abandoned.cancel()
        probe.lane.stop(finished.set)
        return probe.lane

    lane = asyncio.run(leave())
    release.set()
    assert finished.wait(10)
    assert asyncio.run(lane.ended(10))
