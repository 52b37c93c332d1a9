"""Tidying up beside the loop: history is forgotten piece by piece, old logs go, and sizes are measured.

Deliveries go before: between two pieces the writer takes what waits. What fails here is logged and tried again
the next time; nothing else depends on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from ephemerd.app.deadline import within
from ephemerd.ports.errors import NotStored, PortError
from ephemerd.ports.runtime import Runtime
from ephemerd.ports.store import Keep, Pruned, Store, StoreSize
from ephemerd.ports.system import Clock

logger = logging.getLogger(__name__)

FIRST_AFTER = 30.0
EVERY = 600.0
BETWEEN_PIECES = 0.2
"""Seconds: after the start, between two rounds, and between two pieces of one round."""
MOST_PIECES = 2000
"""A round ends after so many pieces, ten million entries; the next one goes on."""
TIDY_LIMIT = 300.0
"""Seconds that a runtime may take to remove old logs."""


class Upkeep:
    """The rounds. `keep` may be replaced at any time; `size` is what the last round measured."""

    def __init__(
        self, store: Store, runtimes: Callable[[], Iterable[Runtime]], clock: Clock, keep: Keep
    ) -> None:
        self.keep = keep
        self.size: StoreSize | None = None
        self._store = store
        self._runtimes = runtimes
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Make rounds from now on, as a task of the running loop."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="upkeep")

    async def close(self) -> None:
        """Make no more rounds; a piece under way is finished by the store."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        pause = FIRST_AFTER
        while True:
            await asyncio.sleep(pause)
            await self.round()
            pause = EVERY

    async def round(self) -> None:
        """Do everything once. Raises nothing but a cancellation."""
        await self._guarded("history could not be forgotten", self._prune)
        for runtime in self._runtimes():
            await self._guarded("old logs could not be removed", partial(_tidy, runtime))
        await self._guarded("the store could not be measured", self._measure)

    async def _prune(self) -> None:
        total = Pruned()
        for _ in range(MOST_PIECES):
            done = await self._store.prune(self._clock.now(), self.keep)
            total = _sum(total, done)
            if not done.more:
                break
            await asyncio.sleep(BETWEEN_PIECES)
        if total.segments or total.entries or total.quarantined:
            fields = {"segments": total.segments, "entries": total.entries, "decisions": total.decisions}
            logger.info("old history was forgotten", extra={"fields": fields})

    async def _measure(self) -> None:
        self.size = await self._store.size()

    async def _guarded(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except (PortError, NotStored, TimeoutError) as error:
            logger.warning(what, extra={"fields": {"error": str(error) or type(error).__name__}})
        except Exception:
            logger.exception(what)


async def _tidy(runtime: Runtime) -> None:
    await within(TIDY_LIMIT, runtime.tidy())


def _sum(one: Pruned, other: Pruned) -> Pruned:
    return Pruned(
        one.segments + other.segments,
        one.entries + other.entries,
        one.decisions + other.decisions,
        one.quarantined + other.quarantined,
        one.opened or other.opened,
    )
