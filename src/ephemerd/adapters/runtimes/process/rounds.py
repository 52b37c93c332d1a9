"""Look at the files of all followed runners in turn, in as few wake-ups as there can be.

With nobody to look after nothing wakes. What one runner's files do never delays another's.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from ephemerd.adapters.runtimes.process.environment import Environment

log = structlog.get_logger(__name__)

# Files are looked at this often until a worker was seen, and afterwards. An offer that is told a fifth of
# a second late only shortens the time in which a nomination could be spared; the probe reads anew anyway.
EARLY, LATE = 0.2, 1.0
# The process table is looked at where the files say that a worker is due, and rarely in case they fail.
TABLE_DUE, TABLE_RARE = 1.0, 60.0


@dataclass(slots=True, eq=False)
class _Stop:
    """One runner on the round."""

    environment: Environment
    read: Callable[[], Awaitable[None]]
    ask: Callable[[], Awaitable[object]]
    all_signs: bool
    files_at: float = 0.0
    looked_at: float = 0.0
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class Rounds:
    """One task for all runners of a runtime."""

    def __init__(self) -> None:
        self._stops: dict[str, _Stop] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add(
        self,
        environment: Environment,
        read: Callable[[], Awaitable[None]],
        ask: Callable[[], Awaitable[object]],
        *,
        all_signs: bool,
    ) -> None:
        """Look after a runner: `read` its files when they changed, `ask` for its processes when due.

        all_signs   false: only until it listens
        """
        now = asyncio.get_running_loop().time()
        stop = _Stop(environment, read, ask, all_signs, now, now)
        self.remove(environment)
        self._stops[environment.reference.runner] = stop
        self._changed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="rounds")

    def remove(self, environment: Environment) -> None:
        """Look after it no more."""
        stop = self._stops.pop(environment.reference.runner, None)
        if stop is not None and stop.task is not None:
            stop.task.cancel()

    async def close(self) -> None:
        """Stop; nothing is looked at any more."""
        for stop in list(self._stops.values()):
            self.remove(stop.environment)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            due = min((stop.files_at for stop in self._stops.values()), default=math.inf)
            if due > loop.time():
                limit = None if due == math.inf else due - loop.time()
                try:
                    async with asyncio.timeout(limit):
                        await self._changed.wait()
                except TimeoutError:
                    pass
            now = loop.time()
            for stop in list(self._stops.values()):
                if stop.files_at <= now:
                    self._visit(stop, now)

    def _visit(self, stop: _Stop, now: float) -> None:
        evidence = stop.environment.evidence
        if not stop.all_signs and evidence.listening:
            stop.files_at = math.inf
            return
        interval = LATE if evidence.bound else EARLY
        # On a common grid, so that many runners share one wake-up.
        stop.files_at = (math.floor(now / interval) + 1) * interval
        if stop.task is not None and not stop.task.done():
            return
        if self._table_due(stop, now):
            stop.task = asyncio.create_task(self._quietly(stop, stop.ask))
        elif evidence.changed():
            stop.task = asyncio.create_task(self._quietly(stop, stop.read))

    @staticmethod
    def _table_due(stop: _Stop, now: float) -> bool:
        evidence = stop.environment.evidence
        if evidence.bound or not stop.all_signs:
            return False
        if now - stop.looked_at < (TABLE_RARE if evidence.announced_at is None else TABLE_DUE):
            return False
        stop.looked_at = now
        return True

    @staticmethod
    async def _quietly(stop: _Stop, look: Callable[[], Awaitable[object]]) -> None:
        runner = stop.environment.reference.runner
        try:
            await look()
        except Exception:
            log.exception("looking after a runner failed; again", runner=runner)
