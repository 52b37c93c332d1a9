"""A thread that notices that the loop does not turn, says where it stands, and in the end ends the process.

It is there for what a loop cannot tell of itself: blocked by a call that never returns, or waiting for ever. The
process ends with a code of its own, so that whoever started it starts it again; runners live on and are adopted.

Time counts only while this thread itself runs: after a suspend, a debugger's stop or on an overloaded machine
the loop gets its whole limit anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

logger = logging.getLogger(__name__)

EXIT_CODE = 9
"""The main loop stood still (OPERATIONS.md, exit codes)."""
TICK = 5.0
SHARE = 4
"""After this part of the limit it is said in the log where the loop stands."""
LOG_LIMIT = 3.0
"""Seconds for writing the log at the end: the loop may hold the log's lock."""
DEEPEST = 40


class LoopWatch:
    """Watches one thread. `beat` is called by the loop at each turn; all else belongs to the watching thread.

    limit   seconds without a turn after which the process ends; None only logs
    tick    seconds between two looks
    warn    seconds after which it is said; a quarter of the limit
    end     what ends the process
    """

    def __init__(
        self,
        limit: float | None,
        *,
        tick: float = TICK,
        warn: float | None = None,
        end: Callable[[int], Any] = os._exit,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit
        self._tick = tick
        self._warn = warn if warn is not None else (limit or 120.0) / SHARE
        self._end = end
        self._monotonic = monotonic
        self._beats = 0
        self._thread = threading.Thread(target=self._watch, name="ephemerd-loop-watch", daemon=True)
        self._over = threading.Event()
        self._watched = threading.get_ident()
        self._task: asyncio.Task[Any] | None = None
        self.silent = 0.0

    def start(self, task: asyncio.Task[Any] | None = None) -> None:
        """Watch the thread that calls this; `task` is the one whose turns count, for the log."""
        self._watched = threading.get_ident()
        self._task = task
        self._thread.start()

    def beat(self) -> None:
        """The loop has turned."""
        self._beats += 1

    def stop(self) -> None:
        """Watch no longer."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=LOG_LIMIT)

    def _watch(self) -> None:
        seen, said, then = self._beats, False, self._monotonic()
        while not self._over.wait(self._tick):
            now = self._monotonic()
            beats = self._beats
            if beats != seen:
                if said:
                    self._log(logging.WARNING, f"the main loop turns again after {self.silent:.0f} s", "")
                seen, said, self.silent = beats, False, 0.0
            else:
                self.silent += min(now - then, 2 * self._tick)
            then = now
            if self.silent >= self._warn and not said:
                said = True
                text = f"the main loop has not turned for {self.silent:.0f} s; it stands at"
                self._log(logging.ERROR, text, self.where())
            if self._limit is not None and self.silent >= self._limit:
                text = (
                    f"the main loop has not turned for {self.silent:.0f} s; the daemon ends, runners live on"
                )
                self._log(logging.CRITICAL, text, self.where())
                self._end(EXIT_CODE)
                return

    def where(self) -> str:
        """Return the stack of the watched thread, and what its task waits for: places in files, no values."""
        frame = sys._current_frames().get(self._watched)
        lines = [*_places(traceback.walk_stack(frame))][::-1] if frame is not None else ["(no such thread)"]
        if self._task is not None:
            with contextlib.suppress(Exception):
                lines += ["waiting:", *_places(_awaited(self._task.get_coro()))]
        return "\n".join(lines)

    def _log(self, level: int, text: str, stack: str) -> None:
        """Log in a thread of its own: the loop may stand still while it holds the log's lock."""

        def write() -> None:
            logger.log(level, text, extra={"fields": {"stack": stack}} if stack else {})

        writer = threading.Thread(target=write, name="ephemerd-last-words", daemon=True)
        writer.start()
        writer.join(LOG_LIMIT)
        if writer.is_alive():
            with contextlib.suppress(OSError):
                os.write(2, f"{text}\n{stack}\n".encode())


def _places(stack: Iterator[tuple[FrameType, int]]) -> Iterator[str]:
    for number, (frame, line) in enumerate(stack):
        if number >= DEEPEST:
            return
        code = frame.f_code
        yield f"  {code.co_filename}:{line} in {code.co_qualname}"


def _awaited(coroutine: Any) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of a suspended coroutine, from the outermost to the one that waits."""
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is None:
            return
        yield frame, frame.f_lineno
        coroutine = getattr(coroutine, "cr_await", None)
