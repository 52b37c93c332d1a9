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
