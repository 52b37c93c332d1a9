"""An event loop on which nothing is waited for: when all tasks wait for a timer, its time is now.

For code that waits for timers and for other tasks of the loop alone. What waits for a thread, a process or a
socket would see its time run out at once.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
CANCELLED = 100
"""Timers that were taken back; asyncio throws more of them away before their time."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` is virtual seconds, from 1000 on; it jumps to the next timer whenever nothing else can run."""

    _ready: deque[Any]
    _scheduled: list[Any]
    _debug: bool
    _timer_cancelled_count: int

    def __init__(self) -> None:
        selector = selectors.DefaultSelector()
        super().__init__(selector)
        self._watched = selector.get_map()
        self._virtual = 1000.0
        # A timer is due within this of its moment: time stands at that moment, and is a double of some 100 days.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual

    def _run_once(self) -> None:
        """Do one turn as asyncio does, but ask the system only where something could come from outside: while callbacks
        or timers are there, nothing can that counts. What a thread hands to the loop lies among them already."""
        ready, scheduled = self._ready, self._scheduled
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)._scheduled = False
        if not ready and scheduled:
            self._virtual = max(self._virtual, scheduled[0]._when)
        # One is watched always: what a thread wakes the loop by.
        alone = len(self._watched) == 1 and (ready or scheduled)
        if not alone or self._debug or self._timer_cancelled_count > CANCELLED:
            super()._run_once()  # type: ignore[misc]
            return
        until = self._virtual + self._clock_resolution
        while scheduled and scheduled[0]._when < until:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if handle._cancelled:  # lay behind one of the same time
                self._timer_cancelled_count -= 1
            else:
                ready.append(handle)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()


def virtually(work: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, float]:
    """Run a coroutine on a virtual loop; return its result and the virtual seconds that it took."""
    loop = VirtualLoop()
    try:
        began = loop.time()
        result = loop.run_until_complete(work())
        return result, loop.time() - began
    finally:
        loop.close()
