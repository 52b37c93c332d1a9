"""The token bucket, on a virtual clock: `asyncio.sleep` moves it."""

from __future__ import annotations

import asyncio

import pytest

from ephemerd.app.budget import SLOW_FOR, Bucket, OutOfBudget


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time jumps to the next timer instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.virtual = 1000.0

    def time(self) -> float:
        return self.virtual

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.virtual = max(self.virtual, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def virtually(work):
    """Run a coroutine on a virtual loop and return what it returned and how long it took."""
    loop = VirtualLoop()
    try:
        began = loop.virtual
        result = loop.run_until_complete(work())
        return result, loop.virtual - began
    finally:
        loop.close()


async def take(bucket: Bucket, count: int, wait: float = 1e6) -> None:
    for _ in range(count):
        await bucket.take(wait)


def test_the_burst_costs_no_time():
    async def work():
        await take(Bucket(30, 3.0, 1.0), 30)

    assert virtually(work)[1] == pytest.approx(0.0)


def test_beyond_the_burst_it_is_three_a_second():
    async def work():
        await take(Bucket(30, 3.0, 1.0), 30 + 9)

    assert virtually(work)[1] == pytest.approx(3.0)


def test_it_fills_up_to_the_burst_and_no_further():
    async def work():
        bucket = Bucket(2, 1.0, 1.0)
        await take(bucket, 2)
        await asyncio.sleep(100)
        began = asyncio.get_running_loop().time()
        await take(bucket, 3)
        return asyncio.get_running_loop().time() - began

    assert virtually(work)[0] == pytest.approx(1.0)


def test_after_a_limit_there_is_no_burst_and_one_a_second():
    async def work():
        bucket = Bucket(30, 3.0, 1.0)
        await take(bucket, 1)
        bucket.slow_down()
        began = asyncio.get_running_loop().time()
        await take(bucket, 10)
        return asyncio.get_running_loop().time() - began

    assert virtually(work)[0] == pytest.approx(10.0)


def test_the_slow_rate_ends():
    async def work():
        bucket = Bucket(30, 3.0, 1.0)
        await take(bucket, 1)
        bucket.slow_down(10.0)
        await asyncio.sleep(10 + SLOW_FOR + 1)
        await take(bucket, 30)
        began = asyncio.get_running_loop().time()
        await take(bucket, 3)
        return asyncio.get_running_loop().time() - began

    assert virtually(work)[0] == pytest.approx(1.0)


def test_waiters_are_served_in_order():
    async def work():
        bucket = Bucket(1, 10.0, 1.0)
        served: list[int] = []

        async def one(number: int) -> None:
            await bucket.take(100)
            served.append(number)

        await asyncio.gather(*(one(number) for number in range(8)))
        return served

    assert virtually(work)[0] == list(range(8))


def test_who_waits_too_long_is_told_and_takes_nothing():
    async def work():
        bucket = Bucket(1, 0.1, 0.1)
        await bucket.take(1)
        with pytest.raises(OutOfBudget) as caught:
            await bucket.take(2)
        assert caught.value.after == pytest.approx(8.0)
        began = asyncio.get_running_loop().time()
        await bucket.take(100)
        return asyncio.get_running_loop().time() - began

    assert virtually(work)[0] == pytest.approx(8.0)


def test_who_gives_up_does_not_hold_up_the_next():
    async def work():
        bucket = Bucket(1, 1.0, 1.0)
        await bucket.take(1)
        results = await asyncio.gather(bucket.take(0.1), bucket.take(5), return_exceptions=True)
        return [type(result) for result in results]

    assert virtually(work)[0] == [OutOfBudget, type(None)]
