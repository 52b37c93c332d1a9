"""Follow one runner to its end: tell its signs as they are written, and its exit once it is proven.

The exit is that of listener *and* worker. Any doubt (a listing that failed or is not complete) is waited
out; an error is no exit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from ephemerd.adapters.runtimes.process.environment import Environment
from ephemerd.adapters.runtimes.process.identity import ProcessId
from ephemerd.adapters.runtimes.process.processes import Machine, same
from ephemerd.adapters.runtimes.process.state import read_exit
from ephemerd.adapters.runtimes.process.tree import Look
from ephemerd.domain.verdict import Listing

log = structlog.get_logger(__name__)

# Files are looked at this often until a worker was seen, and afterwards. An offer that is told a fifth of
# a second late only shortens the time in which a nomination could be spared; the probe reads anew anyway.
EARLY, LATE, QUIET = 0.2, 1.0, 5.0
# The process table is looked at only where the files say a worker is due, or rarely in case they fail.
TABLE_DUE, TABLE_RARE = 1.0, 10.0
FORK_TO_EXEC = 10.0  # longer than this, what bears the listener's name is no worker-to-be
CODE_WAIT = 5.0
AGAIN = 1.0


class Follower:
    """Follows one environment. `ask` looks at processes and files and tells the signs found by itself."""

    def __init__(
        self,
        environment: Environment,
        machine: Machine,
        *,
        ask: Callable[[], Awaitable[Look]],
        read: Callable[[], Awaitable[None]],
        exited: Callable[[int | None, int], None],
        all_signs: bool,
    ) -> None:
        self._environment = environment
        self._machine = machine
        self._ask = ask
        self._read = read
        self._exited = exited
        self._all_signs = all_signs
        self._looked = 0.0

    async def run(self) -> None:
        """Follow until the exit was told; an error is logged and followed again."""
        while True:
            try:
                await self._read()
                await self._listener_gone()
                look = await self._worker_gone()
                code = await self._code()
                await self._read()
            except Exception:
                log.exception("following a runner failed; again", runner=self._environment.reference.runner)
                await asyncio.sleep(AGAIN)
            else:
                self._exited(code, len(look.others))
                return

    def _interval(self) -> float:
        evidence = self._environment.evidence
        if not self._all_signs and evidence.listening:
            return QUIET
        return LATE if evidence.bound else EARLY

    async def _listener_gone(self) -> None:
        reference = self._environment.reference
        if reference.listener is None or self._machine.boot() != reference.boot:
            return
        handle = self._machine.handle(reference.listener)
        if handle is None:
            return
        try:
            while not await handle.wait(self._interval()):
                if self._environment.evidence.changed():
                    await self._read()
                if self._table_due():
                    await self._ask()
        finally:
            handle.close()

    def _table_due(self) -> bool:
        evidence = self._environment.evidence
        if evidence.bound or not self._all_signs:
            return False
        now = asyncio.get_running_loop().time()
        due = TABLE_DUE if evidence.announced_at is not None else TABLE_RARE
        if now - self._looked < due:
            return False
        self._looked = now
        return True

    async def _worker_gone(self) -> Look:
        loop = asyncio.get_running_loop()
        patience = loop.time() + FORK_TO_EXEC
        while True:
            look = await self._ask()
            waiting = look.workers
            if loop.time() < patience:
                waiting += look.forks
            certain = look.listing in (Listing.COMPLETE, Listing.EMPTY) and not look.listener
            if certain and not waiting:
                return look
            await self._one_gone(waiting)

    async def _one_gone(self, waiting: tuple[ProcessId, ...]) -> None:
        """Wait for the first of them, a second at most; a second where there is none to wait for."""
        handle = self._machine.handle(waiting[0]) if waiting else None
        if handle is None:
            await asyncio.sleep(0 if waiting else AGAIN)
            return
        try:
            await handle.wait(AGAIN)
        finally:
            handle.close()

    async def _code(self) -> int | None:
        """The listener's exit code, for which its parent may need a moment."""
        loop = asyncio.get_running_loop()
        place, parent = self._environment.place, self._environment.reference.parent
        end = loop.time() + CODE_WAIT
        elsewhere = self._machine.boot() != self._environment.reference.boot
        while (code := read_exit(place)) is None and loop.time() < end:
            if elsewhere or parent is None or same(self._machine, parent) is None:
                return read_exit(place)
            await asyncio.sleep(0.02)
        return code
