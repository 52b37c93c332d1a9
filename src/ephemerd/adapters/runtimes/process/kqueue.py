"""macOS: an exit told by the kernel, through a kqueue of its own for each process that is held."""

from __future__ import annotations

import asyncio
import contextlib
import select
from typing import Any, Protocol


class Queue(Protocol):
    """What is used of `select.kqueue`."""

    def fileno(self) -> int: ...

    def control(self, changes: Any, most: int, timeout: float | None = None, /) -> list[Any]: ...

    def close(self) -> None: ...


def watch_exit(pid: int, module: Any = select) -> Queue:
    """Return a queue that becomes readable when a process exits; any process may be watched so.

    Raises `ProcessLookupError` where there is none (also for one that only waits to be reaped), `OSError` where
    there is no queue to be had. `module` is `select`, or what stands for it.
    """
    queue: Queue = module.kqueue()
    event = module.kevent(
        pid,
        filter=module.KQ_FILTER_PROC,
        flags=module.KQ_EV_ADD | module.KQ_EV_ONESHOT,
        fflags=module.KQ_NOTE_EXIT,
    )
    try:
        queue.control([event], 0, 0)
    except BaseException:
        queue.close()
        raise
    return queue


class KqueueHandle:
    """A hold by kqueue: nothing is polled. The queue watches the process itself, so that a later one with the same
    pid never satisfies it."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._exited = False

    async def wait(self, limit: float) -> bool:
        """Wait until the process has exited, at most `limit` seconds; return whether it has."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[None] = loop.create_future()

        def readable() -> None:
            with contextlib.suppress(OSError):
                # Told once and then gone from the queue: kept here for whoever waits again.
                self._exited = self._exited or bool(self._queue.control(None, 1, 0))
            if self._exited and not told.done():
                told.set_result(None)

        if self._exited:
            return True
        loop.add_reader(self._queue.fileno(), readable)
        try:
            await asyncio.wait((told,), timeout=max(limit, 0.0))
        finally:
            loop.remove_reader(self._queue.fileno())
        return self._exited

    def close(self) -> None:
        """Let go."""
        self._queue.close()
