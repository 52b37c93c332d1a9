"""Follow one container to its end, and tell its exit once it is proven.

Only the container's own state proves an exit, or that its engine twice knows no such container: a wait that
breaks off, an engine that is busy or away, an output that ends are none.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from ephemerd.adapters.runtimes.docker.engine import Engine, State
from ephemerd.adapters.runtimes.docker.environment import Environment
from ephemerd.ports.errors import Gone, PortError

log = structlog.get_logger(__name__)

WAIT = 300.0
AGAIN, AGAIN_MOST = 0.5, 15.0
LAST_WORDS = 10.0
# How often files are looked at until a worker was seen, and afterwards: here, and on another machine, where a look
# is a call of the engine. A line of output is a reason to look at once.
EARLY, LATE = 0.2, 1.0
FAR_EARLY, FAR_LATE = 2.0, 15.0
# Processes are looked at where the files say that a worker is due, and rarely in case they fail.
TABLE_DUE, TABLE_RARE = 1.0, 60.0


class Follower:
    """Follows one container.

    read     look at its files and tell the signs in them
    ask      look at its processes and its files
    """

    def __init__(
        self,
        environment: Environment,
        engine: Engine,
        *,
        read: Callable[[], Awaitable[object]],
        ask: Callable[[], Awaitable[object]],
        exited: Callable[[int | None, int], None],
    ) -> None:
        self._environment = environment
        self._engine = engine
        self._read = read
        self._ask = ask
        self._exited = exited
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Follow until the exit was told."""
        beside = [asyncio.create_task(self._output()), asyncio.create_task(self._rounds())]
        try:
            state = await self._ended()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        if state is not None:
            await self._last_words()
        runner = self._environment.reference.runner
        if state is not None and state.out_of_memory:
            log.warning("a runner ran out of its memory limit", runner=runner, code=state.code)
        if state is not None and state.error:
            log.warning("a runner's container ended with an error", runner=runner, error=state.error)
        self._exited(state.code if state is not None else None, 0)
        if state is not None:
            await self._keep_diagnostics()

    async def _ended(self) -> State | None:
        """Return the state at the end; None where the engine knows the container no longer."""
        container = self._environment.reference.container
        missed, pause = 0, AGAIN
        while True:
            try:
                await self._engine.wait(container, WAIT)
                state = await self._engine.state(container)
            except Gone:
                missed += 1
                if missed >= 2:
                    return None
            except PortError as error:
                missed, pause = 0, min(pause * 2, AGAIN_MOST)
                log.info("cannot wait for a container; again", error=error.detail, pause_s=pause)
            else:
                if not state.running:
                    return state
                self._environment.pid = state.pid
                missed, pause = 0, AGAIN
            await asyncio.sleep(pause)

    async def _output(self) -> None:
        """Follow the output for as long as the container lives."""
        environment = self._environment
        while True:
            try:
                await self._listen()
            except (PortError, OSError) as error:
                log.info(
                    "a runner's output broke off; again",
                    runner=environment.reference.runner,
                    error=str(error),
                )
            environment.output.attached = False
            await asyncio.sleep(AGAIN)

    async def _listen(self) -> None:
        environment = self._environment
        environment.output.begin()
        async with contextlib.aclosing(self._engine.logs(environment.reference.container)) as output:
            async for text in output:
                if environment.output.take(text):
                    self._news.set()

    async def _last_words(self) -> None:
        """Take in what was said and written until the end."""
        environment = self._environment
        with contextlib.suppress(TimeoutError, PortError, OSError):
            async with asyncio.timeout(LAST_WORDS):
                await self._listen()
        try:
            await self._read()
        except PortError as error:
            log.info(
                "a runner's files cannot be read", runner=environment.reference.runner, error=error.detail
            )

    async def _keep_diagnostics(self) -> None:
        """Copy what the listener and the worker noted, before the container goes."""
        environment = self._environment
        with contextlib.suppress(PortError, OSError):
            folder = f"{environment.options.runner_root}/_diag"
            archive = await self._engine.read(environment.reference.container, folder)
            await asyncio.to_thread(environment.mirror.diag_archive, archive)

    async def _rounds(self) -> None:
        """Look at the files again and again, and at the processes where that is due."""
        loop = asyncio.get_running_loop()
        evidence, mirror = self._environment.evidence, self._environment.mirror
        everything = self._environment.options.follow == "all"
        looked = loop.time()
        while everything or not evidence.listening:
            far = self._environment.far or not self._engine.on_this_machine
            early, late = (FAR_EARLY, FAR_LATE) if far else (EARLY, LATE)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(late if evidence.bound else early):
                    await self._news.wait()
            news = self._news.is_set()
            self._news.clear()
            due = TABLE_RARE if evidence.announced_at is None else TABLE_DUE
            table = everything and not evidence.bound and loop.time() - looked >= due
            try:
                if table:
                    looked = loop.time()
                    await self._ask()
                elif news or far or mirror.changed():
                    await self._read()
            except PortError as error:
                log.debug("a look at a runner failed; again", error=error.detail)
            except Exception:
                log.exception(
                    "looking after a runner failed; again", runner=self._environment.reference.runner
                )
