"""`ports.runtime.Runtime` for plain processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import structlog

from ephemerd.adapters.kit import logs, permits
from ephemerd.adapters.kit.turns import Turns, told_anyway
from ephemerd.adapters.runtimes.process import cgroup, ending, keep, launch, removal
from ephemerd.adapters.runtimes.process.environment import Environment, report
from ephemerd.adapters.runtimes.process.follow import Follower
from ephemerd.adapters.runtimes.process.identity import Place
from ephemerd.adapters.runtimes.process.nursery import Nursery
from ephemerd.adapters.runtimes.process.options import ProcessOptions
from ephemerd.adapters.runtimes.process.processes import Looks, Machine, this_machine
from ephemerd.adapters.runtimes.process.registry import Registry
from ephemerd.adapters.runtimes.process.rounds import Rounds
from ephemerd.adapters.runtimes.process.tree import Look
from ephemerd.core.events import FoundEnvironment
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.permit import Permit, Warrant
from ephemerd.domain.verdict import Listing, ProbeReport, Sign
from ephemerd.ports.errors import Broken, Gone, PortError, Refused, RetryLater
from ephemerd.ports.runtime import LogFile, RuntimeSink, StartOrder

log = structlog.get_logger(__name__)

T = TypeVar("T")
LOOK_THREADS, READING_THREADS, START_THREADS, SLOW_THREADS = 16, 2, 3, 3
"""Looks share their listings, so that many at once cost little more than one; reading waits for none of them, and no
start for the removal of a big folder."""
EXIT_TOLD = 10.0  # how long a destroy waits for the exit to be told before the exit file goes
LOOK_AGAIN = 0.5  # between two looks where the process list is not whole
REMOVAL = 10.0  # how long a destroy waits for a big folder; the rest goes on behind


class ProcessRuntime:
    """Runners as processes. Belongs to one event loop.

    options   by pool
    now       the shell clock, ms; also called in threads
    epoch     the process life that permits must name
    """

    kind = "process"
    probes = True

    def __init__(
        self,
        options: Mapping[str, ProcessOptions],
        *,
        now: Callable[[], int],
        epoch: Callable[[], str],
        machine: Machine | None = None,
    ) -> None:
        self._machine = machine if machine is not None else this_machine()
        self._looks = Looks(self._machine)
        self._registry = Registry(options, self._machine)
        self._now = now
        self._epoch = epoch
        self._sink: RuntimeSink | None = None
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._rounds = Rounds()
        self._nursery = Nursery()
        self._turns = Turns()
        self._starting: set[str] = set()
        self._trash: set[Path] = set()
        self._quick = ThreadPoolExecutor(LOOK_THREADS, "ephemerd-look")
        self._reading = ThreadPoolExecutor(READING_THREADS, "ephemerd-read")
        self._starts = ThreadPoolExecutor(START_THREADS, "ephemerd-start")
        self._slow = ThreadPoolExecutor(SLOW_THREADS, "ephemerd-files")

    def attach(self, sink: RuntimeSink) -> None:
        self._sink = sink

    def reconfigure(self, options: Mapping[str, ProcessOptions]) -> None:
        """Start runners by these settings from now on; `work_dir` and `logs_dir` have to be as before."""
        self._registry.reconfigure(options)

    async def start(self, order: StartOrder) -> str:
        options = self._registry.options(order.pool)
        place = self._registry.place(order.runner, order.pool)

        def begin() -> Environment:
            found = launch.already(self._machine, place, order)
            if found is None:
                found = launch.start(self._machine, self._nursery, place, options, order)
            return self._registry.add(found, place)

        async with self._turns.of(order.runner):
            self._starting.add(order.runner)
            try:
                environment = await self._in(self._starts, begin)
            finally:
                self._starting.discard(order.runner)
            if order.runner not in self._followers:
                self._follow(environment)
        return str(environment.reference)

    async def watch(self, runner: RunnerId, pool: str, environment: str) -> None:
        found = self._resolve(runner, environment)
        old = self._followers.pop(runner, None)
        if old is not None:
            old.cancel()
        self._tell(found, tuple(found.evidence.history))
        self._follow(found)

    async def probe(self, runner: RunnerId, environment: str) -> ProbeReport:
        found = self._resolve(runner, environment)
        limit = self._registry.options_of(found).probe_timeout
        asked = self._ask(found)
        done, _ = await asyncio.wait((asked,), timeout=limit)
        if not done:
            asked.cancel()
            raise RetryLater(f"the look at the processes did not end within {limit:g} s")
        return report(found, asked.result())

    async def destroy(self, environment: str, permit: Permit) -> None:
        found = self._registry.resolve(environment)
        async with self._turns.of(found.reference.runner):
            runner = found.reference.runner
            permits.check(permit, environment, runner, now=self._now(), epoch=self._epoch())
            if permit.polite:
                ending.ask_to_stop(found, self._machine)
                return
            options = self._registry.options_of(found)
            await self._may_end(found, permit, options.kill_wait)
            if ending.ask_to_stop(found, self._machine) and found.reference.listener is not None:
                await ending.gone(self._machine, [found.reference.listener], options.stop_wait)
            left = await ending.kill(found, self._machine, lambda: self._ask(found), options.kill_wait)
            if left:
                pids = ", ".join(str(identity.pid) for identity in left[:8])
                raise Broken(f"would not die within {options.kill_wait:g} s of being killed: pid {pids}")
            await self._exit_told(found)
            await self._clear(found, options)

    async def list(self, store: str) -> list[FoundEnvironment]:
        found = await self._in(self._slow, lambda: self._registry.tagged(store))
        for runner, path in await self._in(self._slow, lambda: self._registry.trash(store)):
            if runner not in self._starting:
                _ = self._remove(path)
        await self._sweep_groups(store, {entry.runner for _, entry in found})
        return [entry for _, entry in found if entry.runner not in self._starting]

    async def tidy(self) -> None:
        living = self._registry.living() | self._starting

        def tidy() -> None:
            for folder, options in self._registry.logs().items():
                keep.tidy(folder, living, age=options.logs_age, size=options.logs_size, now=time.time())

        await self._in(self._slow, tidy)

    async def log_files(self, runner: RunnerId) -> Sequence[LogFile]:
        return await self._in(self._reading, lambda: logs.files(self._logged(runner)))

    async def read_log(self, runner: RunnerId, name: str, start: int, most: int) -> bytes:
        return await self._in(self._reading, lambda: logs.read(self._logged(runner), name, start, most))

    async def close(self) -> None:
        followers = list(self._followers.values())
        self._followers.clear()
        for follower in followers:
            follower.cancel()
        await asyncio.gather(*followers, return_exceptions=True)
        await self._rounds.close()
        self._sink = None
        await asyncio.to_thread(self._nursery.close)
        for pool in (self._quick, self._reading, self._starts, self._slow):
            pool.shutdown(wait=False, cancel_futures=True)

    # Below: how.

    def _logged(self, runner: RunnerId) -> Place:
        """Return where a runner is or was of which logs are left; raise `Gone` where there are none."""
        for place in self._registry.places(runner):
            if place.log.exists() or place.root.exists() or place.kept.exists():
                return place
        raise Gone(f"no logs of {runner} are kept")

    def _resolve(self, runner: RunnerId, environment: str) -> Environment:
        found = self._registry.resolve(environment)
        if found.reference.runner != runner:
            raise Refused(f"the environment belongs to {found.reference.runner}, not to {runner}")
        return found

    async def _may_end(self, found: Environment, permit: Permit, limit: float) -> None:
        """A permit that says "ended" holds only for what has ended, by a list that is whole within `limit` seconds."""
        if permit.warrant is not Warrant.ENDED:
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + limit
        while True:
            look = await self._ask(found)
            if look.listener or look.workers:
                raise Refused("the permit says that listener and worker are gone, and they are not")
            if look.listing in (Listing.COMPLETE, Listing.EMPTY):
                return
            if loop.time() >= end:
                raise Broken(
                    f"nothing proves that listener and worker are gone: {look.detail or 'partial list'}"
                )
            await asyncio.sleep(LOOK_AGAIN)

    def _follow(self, environment: Environment) -> None:
        runner = environment.reference.runner

        def exited(code: int | None, leftovers: int) -> None:
            self._rounds.remove(environment)
            evidence = environment.evidence
            if evidence.refused:
                log.warning("the forge refuses a runner's version", runner=runner, version=evidence.refused)
            if self._sink is not None:
                self._sink.exited(RunnerId(runner), evidence.exit_code(code), leftovers)

        follower = Follower(
            environment,
            self._machine,
            ask=lambda: self._ask(environment),
            read=lambda: self._read(environment),
            exited=exited,
        )
        self._rounds.add(
            environment,
            lambda: self._read(environment),
            lambda: self._ask(environment),
            all_signs=self._registry.options_of(environment).follow == "all",
        )
        self._followers[runner] = asyncio.create_task(follower.run(), name=f"follow {runner}")

    def _tell(self, environment: Environment, signs: Sequence[tuple[Sign, str]]) -> None:
        everything = self._registry.options_of(environment).follow == "all"
        for sign, detail in signs:
            if self._sink is not None and (everything or sign is Sign.LISTENING):
                self._sink.sign(RunnerId(environment.reference.runner), sign, detail)

    def _ask(self, environment: Environment) -> asyncio.Future[Look]:
        """Look at the processes, then at the files."""
        told: deque[tuple[Sign, str]] = deque()

        def examine() -> Look:
            look = environment.look(self._looks.join())
            for identity in look.workers:
                told.extend(environment.evidence.saw_worker(identity))
            told.extend(environment.evidence.refresh(self._now()))
            return look

        return self._telling(self._quick, environment, told, examine)

    def _read(self, environment: Environment) -> asyncio.Future[None]:
        """Look at the files."""
        told: deque[tuple[Sign, str]] = deque()
        return self._telling(
            self._reading, environment, told, lambda: told.extend(environment.evidence.refresh(self._now()))
        )

    def _telling(
        self,
        pool: ThreadPoolExecutor,
        environment: Environment,
        told: deque[tuple[Sign, str]],
        work: Callable[[], T],
    ) -> asyncio.Future[T]:
        """Do work that finds signs; they are told even when nobody waits for the work any more."""
        return told_anyway(self._in(pool, work), lambda: self._tell(environment, tuple(told)))

    async def _sweep_groups(self, store: str, present: Collection[str]) -> None:
        """Remove the empty groups of runners that are no more: a daemon died before it could, or something was
        still leaving."""
        groups = await self._in(self._slow, lambda: cgroup.left(store))
        gone = [path for runner, path in groups if runner not in present and runner not in self._starting]

        def remove() -> None:
            for path in gone:
                cgroup.remove(path)

        await self._in(self._slow, remove)

    async def _exit_told(self, environment: Environment) -> None:
        follower = self._followers.get(environment.reference.runner)
        if follower is not None:
            await asyncio.wait((follower,), timeout=EXIT_TOLD)

    async def _clear(self, environment: Environment, options: ProcessOptions) -> None:
        """Keep the diagnostics, remove the folder, let go of everything."""
        runner, place = environment.reference.runner, environment.place
        follower = self._followers.pop(runner, None)
        if follower is not None:
            follower.cancel()
        self._rounds.remove(environment)
        self._registry.forget(environment)
        living = self._registry.living()

        def take_away() -> Path | None:
            cgroup.remove(environment.group)
            if not place.folder.exists():
                return None
            with contextlib.suppress(OSError):
                keep.keep_diagnostics(place)
            keep.prune(place.log.parent, options.logs_keep, living)
            return removal.put_aside(place.folder)

        aside = await self._in(self._slow, take_away)
        if aside is not None:
            await asyncio.wait((self._remove(aside),), timeout=REMOVAL)

    def _remove(self, folder: Path) -> asyncio.Future[None]:
        def remove() -> None:
            if folder in self._trash:
                return
            self._trash.add(folder)
            try:
                stayed = removal.remove_tree(folder, last=".ephemerd")
                if stayed:
                    log.warning(
                        "a runner's folder could not be removed", folder=str(folder), stayed=stayed[:5]
                    )
            finally:
                self._trash.discard(folder)

        return self._in(self._slow, remove)

    def _in(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run blocking work in a thread; what the system refuses becomes a `Broken`."""

        def guarded() -> T:
            try:
                return work()
            except PortError:
                raise
            except OSError as error:
                raise Broken(str(error)) from None

        return asyncio.get_running_loop().run_in_executor(pool, guarded)
