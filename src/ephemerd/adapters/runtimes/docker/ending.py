"""End one container: ask the listener, then kill, then remove what is left. Only with a permit in hand."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable

import structlog

from ephemerd.adapters.runtimes.docker import local, specification
from ephemerd.adapters.runtimes.docker.engine import Engine, State
from ephemerd.adapters.runtimes.docker.environment import Environment
from ephemerd.adapters.runtimes.docker.look import Look
from ephemerd.adapters.runtimes.docker.stock import Stock
from ephemerd.domain.verdict import Listing
from ephemerd.ports.errors import Broken, Gone, PortError, Refused

log = structlog.get_logger(__name__)

AGAIN = 0.1
MOSTLY = 3.0
"""Within so many seconds a listener that was asked to stop is mostly gone; one that is not makes no other wait."""


class Ending:
    """The end of one container.

    look   looks at its processes
    few    how many may come to their end at a time: an engine that has many to clear up answers nobody
    """

    def __init__(
        self,
        engine: Engine,
        stock: Stock,
        environment: Environment,
        look: Callable[[], Awaitable[Look]],
        few: asyncio.Semaphore,
    ) -> None:
        self._few = few
        self._engine = engine
        self._stock = stock
        self._environment = environment
        self._container = environment.reference.container
        self._look = look

    async def must_have_ended(self) -> None:
        """A permit that says "ended" holds only for what has ended."""
        state = await self._state()
        if state is None or not state.running:
            return
        seen = await self._look()
        if seen.listener or seen.workers or seen.listing not in (Listing.COMPLETE, Listing.EMPTY):
            raise Refused("the permit says that listener and worker are gone, and that is not so")

    async def ask_to_stop(self) -> bool:
        """Send the listener, and nothing else, an interrupt; return whether it can have come."""
        state = await self._state()
        if state is None or not state.running or state.paused:
            return False
        try:
            seen = await self._look()
            near = seen.via == "control group" and seen.listener
            if near and await asyncio.to_thread(local.interrupt, seen.listener, self._container):
                return True
            await self._engine.execute(self._container, specification.INTERRUPT)
        except PortError as error:
            log.info("a listener could not be asked to stop", runner=self._runner, error=error.detail)
            return False
        return True

    async def end(self, holds: Callable[[], None]) -> None:
        """Return when nothing of it runs any more: ask, wait, kill, wait. Raise `Broken` where it would not die.

        holds   raises `Refused` where the permit holds no more: its turn among the few may come late
        """
        options = self._environment.options
        state = await self._state()
        if state is None or not state.running:
            return
        async with self._few:
            holds()
            asked = await self.ask_to_stop()
            if asked and await self._over(min(options.stop_wait, MOSTLY)):
                return
        if asked and await self._over(options.stop_wait - MOSTLY):
            return
        state = await self._state()
        if state is not None and state.paused:
            await self._engine.unpause(self._container)
        await self._engine.kill(self._container, "SIGKILL")
        if not await self._over(options.kill_wait):
            raise Broken(
                f"would not die within {options.kill_wait:g} s of being killed: {self._container[:12]}"
            )

    async def remove(self) -> None:
        """Remove the container with its volumes, its engine, its network and the copies; its logs stay."""
        async with self._few:
            await self._engine.remove(self._container)
            await self._stock.clear(self._environment.reference.store, self._runner)
        await asyncio.to_thread(self._keep_diagnostics)

    @property
    def _runner(self) -> str:
        return self._environment.reference.runner

    async def _state(self) -> State | None:
        try:
            return await self._engine.state(self._container)
        except Gone:
            return None

    async def _over(self, limit: float) -> bool:
        """Wait until it has ended, at most `limit` seconds. What the engine's wait says is looked up."""
        loop = asyncio.get_running_loop()
        end = loop.time() + limit
        while (left := end - loop.time()) > 0:
            try:
                await self._engine.wait(self._container, left)
            except Gone:
                return True
            state = await self._state()
            if state is None or not state.running:
                return True
            await asyncio.sleep(min(AGAIN, max(end - loop.time(), 0)))
        return False

    def _keep_diagnostics(self) -> None:
        """Move the copied diagnostics beside the log, and remove the rest of the copies."""
        place = self._environment.place
        if place.diag.is_dir() and any(place.diag.iterdir()) and not place.kept.exists():
            place.kept.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            shutil.move(place.diag, place.kept)
        shutil.rmtree(place.folder, ignore_errors=True)
