"""A lane: one thread that does one thing after the other, and coroutines that wait for it, but not forever."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
WAITING_MOST = 1000


class Late(Exception):
    """No answer within the deadline. The work was broken off if that was possible."""


class Overloaded(Exception):
    """Too much waits already; nothing was begun."""


@dataclass(eq=False, slots=True)
class _Job:
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    given_up: bool = False

    def answer(self, result: Any, error: BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop may have been closed meanwhile
            self.loop.call_soon_threadsafe(self._settle, result, error)

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if self.future.done():  # given up or cancelled
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class Lane:
    """One worker thread. `interrupt` is called, from the loop's thread, to break off what takes too long."""

    def __init__(self, name: str, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._current: _Job | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wanted(self) -> bool:
        """Say, in the lane's thread, whether somebody still waits for what is being done."""
        job = self._current
        return job is None or not job.given_up

    async def do(self, work: Callable[[], T], deadline: float) -> T:
        """Run the work in the lane and return its result or raise its exception.

        Raises `Late` after `deadline` seconds: what had not begun never will; what runs is interrupted. A
        cancelled caller leaves the work to its end.
        """
        if self._jobs.qsize() >= WAITING_MOST:
            raise Overloaded(f"{WAITING_MOST} calls wait already")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        job = _Job(work, loop, future)
        self._jobs.put(job)
        try:
            async with asyncio.timeout(deadline):
                return await future
        except TimeoutError as error:
            if future.cancelled():
                self._give_up(job)
                raise Late(f"no answer within {deadline:g} s") from None
            raise error

    def stop(self, last: Callable[[], None]) -> None:
        """Let the thread end after what is queued and, at the very end, `last`."""
        loop = asyncio.get_running_loop()
        self._jobs.put(_Job(last, loop, loop.create_future()))
        self._jobs.put(None)

    async def ended(self, deadline: float) -> bool:
        """Wait until the thread has ended; false after `deadline` seconds."""
        await asyncio.to_thread(self._thread.join, deadline)
        return not self._thread.is_alive()

    def _give_up(self, job: _Job) -> None:
        with self._guard:
            job.given_up = True
            if self._current is job:
                self._interrupt()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._guard:
                if job.given_up:
                    continue
                self._current = job
            result, error = None, None
            try:
                result = job.work()
            except BaseException as raised:
                error = raised
            with self._guard:
                self._current = None
            job.answer(result, error)
            del job, result, error
