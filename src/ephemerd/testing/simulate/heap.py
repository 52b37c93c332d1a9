"""Virtual time: a heap of calls. Time is ms and moves only from one call to the next."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

Call = tuple[int, int, Callable[..., None], tuple[Any, ...]]


class VirtualTime:
    """Runs calls in the order of their times; calls of one time in the order in which they were made."""

    def __init__(self, start: int = 0) -> None:
        self.now = start
        self._heap: list[Call] = []
        self._made = 0

    def at(self, when: int, call: Callable[..., None], *args: Any) -> None:
        """Run `call(*args)` at `when` (ms), at once where that is past."""
        self._made += 1
        heapq.heappush(self._heap, (max(when, self.now), self._made, call, args))

    def after(self, delay: int, call: Callable[..., None], *args: Any) -> None:
        """Run `call(*args)` in `delay` ms."""
        self.at(self.now + delay, call, *args)

    def step(self) -> bool:
        """Run the next call; return False where there is none."""
        if not self._heap:
            return False
        when, _, call, args = heapq.heappop(self._heap)
        self.now = when
        call(*args)
        return True

    def next(self) -> int | None:
        """Return the time of the next call."""
        return self._heap[0][0] if self._heap else None
