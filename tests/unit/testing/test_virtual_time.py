"""Time that jumps to the next timer, however late it is."""

from __future__ import annotations

import asyncio

import pytest

from ephemerd.testing.virtual_time import virtually


@pytest.mark.timeout(20)
@pytest.mark.parametrize("days", [1, 194.1, 195, 10_000])
def test_a_timer_is_due_at_its_own_moment_also_where_a_double_tells_no_billionths_of_a_second_apart(days):
    """From 2**24 s on, the loop's own tolerance is less than what such a number can say."""

    async def wait() -> None:
        await asyncio.sleep(days * 86_400)
        for _ in range(50):
            await asyncio.sleep(0.1)

    _, took = virtually(wait)
    assert took == pytest.approx(days * 86_400 + 5)


def test_timers_that_were_taken_back_do_not_pile_up_and_the_others_come_in_their_order():
    came: list[object] = []

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        for number in range(2_000):
            loop.call_later(1e6, came.append, "taken back").cancel()
            loop.call_later(10 - number / 1_000, came.append, number)
            await asyncio.sleep(0)
        scheduled: list[asyncio.TimerHandle] = loop._scheduled  # type: ignore[attr-defined]
        assert sum(timer.cancelled() for timer in scheduled) <= len(scheduled) / 2 + 1
        await asyncio.sleep(20)

    virtually(wait)
    assert came == sorted(range(2_000), reverse=True)


def test_timers_that_were_taken_back_are_counted_as_they_are_thrown_away():
    """One that lies behind another of the same moment too: else the loop looks for them in vain at each turn."""

    async def wait() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        for number in range(500):
            due = loop.time() + 1
            loop.call_at(due, int)
            loop.call_at(due + number % 2, int).cancel()
            await asyncio.sleep(1)
        scheduled: list[asyncio.TimerHandle] = loop._scheduled  # type: ignore[attr-defined]
        counted: int = loop._timer_cancelled_count  # type: ignore[attr-defined]
        return counted, sum(timer.cancelled() for timer in scheduled)

    counted, there = virtually(wait)[0]
    assert counted == there


def test_what_a_thread_gives_comes_also_where_nothing_else_is_waited_for():
    async def wait() -> int:
        return await asyncio.to_thread(lambda: 7)

    assert virtually(wait)[0] == 7
