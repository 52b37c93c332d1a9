"""One at a time for each name, and what a cancelled caller must not lose."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

T = TypeVar("T")


class Turns:
    """One holder of a name at a time; a name takes up room only while somebody wants it."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @contextlib.asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[None]:
        """Hold a name, once whoever holds it lets it go."""
        lock, wanted = self._locks.get(name, (asyncio.Lock(), 0))
        self._locks[name] = (lock, wanted + 1)
        try:
            async with lock:
                yield
        finally:
            lock, wanted = self._locks[name]
            self._locks[name] = (lock, wanted - 1)
            if wanted == 1:
                del self._locks[name]


def told_anyway(work: asyncio.Future[T], tell: Callable[[], None]) -> asyncio.Future[T]:
    """Return work that finds something to tell; it is told when the work is done, also where nobody waits for it any
    more. Cancelling what is returned does not cancel the work."""

    def done(_: asyncio.Future[T]) -> None:
        # Taken here as well: a failure that nobody waits for is no warning of the loop.
        if not work.cancelled():
            work.exception()
        tell()

    work.add_done_callback(done)
    return asyncio.shield(work)
