"""Follow one runner to its end, and tell its exit once it is proven.

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

FORK_TO_EXEC = 10.0  # longer than this, what bears the listener's name is no worker-to-be
CODE_WAIT = 5.0
AGAIN = 1.0
LONG = 3600.0


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
    ) -> None:
        self._environment = environment
        self._machine = machine
        self._ask = ask
        self._read = read
        self._exited = exited

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

    async def _listener_gone(self) -> None:
        reference = self._environment.reference
        if reference.listener is None or self._machine.boot() != reference.boot:
            return
        handle = self._machine.handle(reference.listener)
        if handle is None:
            return
        try:
            while not await handle.wait(LONG):
                pass
        finally:
            handle.close()

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
