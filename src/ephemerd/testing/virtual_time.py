"""An event loop on which nothing is waited for: when all tasks wait for a timer, its time is now.

For code that waits for timers and for other tasks of the loop alone. What waits for a thread, a process or a
socket would see its time run out at once.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Asks the system only where something could come from outside: while callbacks are due, nothing can that counts.

    What a thread hands to the loop lies among these callbacks already.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # One is registered always: what a thread wakes the loop by.
        if timeout == 0 and len(self.get_map()) <= 1:
            return []
        return super().select(timeout)


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` is virtual seconds, from 1000 on; it jumps to the next timer whenever nothing else can run."""

    def __init__(self) -> None:
        super().__init__(_Selector())
        self._virtual = 1000.0
        # A timer is due within this of its moment: time stands at that moment, and is a double of some 100 days.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual

    def _run_once(self) -> None:
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0].cancelled():
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
            handle = heapq.heappop(scheduled)
            handle._scheduled = False  # type: ignore[attr-defined]
        if not self._ready and scheduled:  # type: ignore[attr-defined]
            self._virtual = max(self._virtual, scheduled[0].when())
        super()._run_once()  # type: ignore[misc]


def virtually(work: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, float]:
    """Run a coroutine on a virtual loop; return its result and the virtual seconds that it took."""
    loop = VirtualLoop()
    try:
        began = loop.time()
        result = loop.run_until_complete(work())
        return result, loop.time() - began
    finally:
        loop.close()
