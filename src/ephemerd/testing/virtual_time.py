"""An event loop on which nothing is waited for: when all tasks wait for a timer, its time is now.

For code that waits for timers and for other tasks of the loop alone. What waits for a thread, a process or a
socket would see its time run out at once.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar, TypeVarTuple

import msgspec

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
CANCELLED = 100
"""Timers that were taken back; where there are more, and more than others, they are thrown away before their time."""
TOLERANCE = 1e-6
"""Seconds within which a timer is due: time stands at its moment, and is a double of some 100 days."""


class _Call(msgspec.Struct, eq=False):
    """What `asyncio.Handle` is, made in a fraction of its time: a job of a soak takes some hundred. The names are those
    of asyncio's, some of which wait in the same line."""

    _callback: Callable[..., object]
    _args: tuple[Any, ...]
    _context: Context
    _cancelled: bool = False

    def __repr__(self) -> str:
        """Name what is called, without the arguments."""
        return f"<{type(self).__name__} {self._callback!r}>"

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = _nothing, ()  # what they hold may go

    def cancelled(self) -> bool:
        return self._cancelled

    def _run(self) -> None:
        """Call it; what it raises is told to the loop."""
        try:
            self._context.run(self._callback, *self._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            told = {
                "message": f"Exception in callback {self._callback!r}",
                "exception": error,
                "handle": self,
            }
            asyncio.get_running_loop().call_exception_handler(told)


def _nothing() -> None:
    """What is called in the place of what was taken back."""


class _Timer(_Call, kw_only=True, eq=False):
    """The same for a moment; while it is `_scheduled` the loop counts that it is taken back."""

    _when: float
    _loop: VirtualLoop
    _scheduled: bool = True

    def cancel(self) -> None:
        if self._scheduled and not self._cancelled:
            self._loop._timer_cancelled_count += 1
        super().cancel()

    def when(self) -> float:
        return self._when


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` is virtual seconds, from 1000 on; it jumps to the next timer whenever nothing else can run.

    Callbacks come in the order of asyncio's own loops, timers of one moment in the order in which they were set.
    """

    _ready: deque[Any]
    _closed: bool
    _debug: bool
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self) -> None:
        self._watcher = selectors.DefaultSelector()
        super().__init__(self._watcher)
        self._watched = self._watcher._fd_to_key  # type: ignore[attr-defined]
        self._virtual = 1000.0
        self._timers: list[tuple[float, int, _Timer]] = []
        self._set = 0

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As every loop, without checks but in debug mode."""
        if self._debug or self._closed:
            return super().call_soon(callback, *args, context=context)
        handle = _Call(callback, args, copy_context() if context is None else context)
        self._ready.append(handle)
        return handle  # type: ignore[return-value]

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As every loop."""
        return self.call_at(self._virtual + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As every loop."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        if self._timer_cancelled_count > CANCELLED and self._timer_cancelled_count > len(self._timers) // 2:
            self._timers = [timer for timer in self._timers if not timer[2]._cancelled]
            heapify(self._timers)
            self._timer_cancelled_count = 0
        context = copy_context() if context is None else context
        handle = _Timer(callback, args, context, _when=when, _loop=self)
        self._set += 1
        heappush(self._timers, (when, self._set, handle))
        return handle  # type: ignore[return-value]

    def close(self) -> None:
        """As every loop."""
        super().close()
        self._timers.clear()

    def _run_once(self) -> None:
        """Do turns as asyncio does one, until the loop is to stop; but ask the system only where something could come
        from outside: while callbacks or timers are there, nothing can that counts. What a thread hands to the loop
        lies among them already."""
        ready, watched = self._ready, self._watched
        while True:
            if not ready and not self._jump():
                super()._run_once()  # type: ignore[misc]
                return
            if len(watched) > 1:  # one is watched always: what a thread wakes the loop by
                self._process_events(self._watcher.select(0))  # type: ignore[attr-defined]
            if self._timers and self._timers[0][0] < self._virtual + TOLERANCE:
                self._come_due()
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
            if self._stopping:
                return

    def _jump(self) -> bool:
        """Let it be the moment of the next timer; False where there is none."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            self._timer_cancelled_count -= 1
            heappop(timers)
        if timers:
            self._virtual = max(self._virtual, timers[0][0])
        return bool(timers)

    def _come_due(self) -> None:
        timers, until = self._timers, self._virtual + TOLERANCE
        while timers and timers[0][0] < until:
            _, _, handle = heappop(timers)
            if handle._cancelled:
                self._timer_cancelled_count -= 1
            else:
                handle._scheduled = False
                self._ready.append(handle)


def virtually(work: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, float]:
    """Run a coroutine on a virtual loop; return its result and the virtual seconds that it took."""
    loop = VirtualLoop()
    try:
        began = loop.time()
        result = loop.run_until_complete(work())
        return result, loop.time() - began
    finally:
        loop.close()
