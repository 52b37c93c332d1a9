"""`ports.runtime.Runtime` for containers of one engine."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import structlog

from ephemerd.adapters.kit import logs, permits
from ephemerd.adapters.kit.retention import tidy
from ephemerd.adapters.kit.turns import Turns, told_anyway
from ephemerd.adapters.runtimes.docker import launch, local, specification
from ephemerd.adapters.runtimes.docker.collecting import Removal
from ephemerd.adapters.runtimes.docker.doctor import Found, diagnose
from ephemerd.adapters.runtimes.docker.ending import Ending
from ephemerd.adapters.runtimes.docker.engine import Engine
from ephemerd.adapters.runtimes.docker.environment import Environment, look_near, report
from ephemerd.adapters.runtimes.docker.firewall import Firewall, resolvers
from ephemerd.adapters.runtimes.docker.follow import Follower
from ephemerd.adapters.runtimes.docker.images import Images
from ephemerd.adapters.runtimes.docker.look import PODMAN_ARGUMENTS, PS_ARGUMENTS, Look, read_listing
from ephemerd.adapters.runtimes.docker.options import DockerOptions, EngineOptions
from ephemerd.adapters.runtimes.docker.reference import Place, Reference, parse_reference, place_of
from ephemerd.adapters.runtimes.docker.rules import Exceptions
from ephemerd.adapters.runtimes.docker.stock import Stock
from ephemerd.core.events import FoundEnvironment
from ephemerd.domain.exits import REFUSED_VERSION
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.permit import Permit, Warrant
from ephemerd.domain.verdict import Listing, ProbeReport, Sign
from ephemerd.ports.errors import Gone, PortError, Refused, RetryLater
from ephemerd.ports.runtime import LogFile, RuntimeSink, StartOrder

log = structlog.get_logger(__name__)

T = TypeVar("T")
GUARD_EVERY = 60.0
FEW = 4
"""Starts, and ends, at one time: an engine is no faster with more, and each takes as long as all of them."""
SWEEP_LIMIT = 10.0
"""Seconds that a listing spends on clearing up at most: what is listed waits for it."""
EXIT_TOLD = 15.0  # how long a destroy waits for the exit to be told before the container goes


class DockerRuntime:
    """Runners as containers of one engine. Belongs to one event loop.

    engine    how the engine is reached
    options   by pool
    now       the shell clock, ms
    epoch     the process life that permits must name
    """

    kind = "docker"
    probes = True

    def __init__(
        self,
        engine: EngineOptions,
        options: Mapping[str, DockerOptions],
        *,
        now: Callable[[], int],
        epoch: Callable[[], str],
    ) -> None:
        self.engine = Engine(engine)
        self._options = dict(options)
        self.images = Images(self.engine, next(iter(options.values())).files_dir)
        self._now = now
        self._epoch = epoch
        self._sink: RuntimeSink | None = None
        self._known: dict[str, Environment] = {}
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._turns = Turns()
        self._few_starts, self._few_ends = asyncio.Semaphore(FEW), asyncio.Semaphore(FEW)
        self._starting: set[str] = set()
        self._preparing: set[asyncio.Task[None]] = set()
        self._guard: asyncio.Task[None] | None = None
        self.firewall = Firewall(engine.nft, exceptions_of(self._options))
        self._store: str | None = None
        self.stock = Stock(self.engine, self._options, self._guarded, lambda: bool(self._starting))

    def attach(self, sink: RuntimeSink) -> None:
        """Also begins to fetch images that are missing, so that the first job need not wait for them."""
        self._sink = sink
        wanted = {each.image: each for each in self._options.values()}
        engines = [each for each in self._options.values() if each.docker != "none"]
        wanted |= {each.docker_image: replace(each, image=each.docker_image) for each in engines}
        for options in wanted.values():
            if options.pull != "never":
                task = asyncio.create_task(self.images.prepare(options), name=f"prepare {options.image}")
                self._preparing.add(task)
                task.add_done_callback(self._preparing.discard)

    def reconfigure(self, options: Mapping[str, DockerOptions]) -> None:
        """Start runners by these settings from now on; folders have to be as before."""
        self._options.update(options)
        self.firewall.allow(exceptions_of(self._options))

    async def start(self, order: StartOrder) -> str:
        options = self._configured(order.pool)
        async with self._turns.of(order.runner):
            self._starting.add(order.runner)
            try:
                about, container, images = await launch.together(
                    self.engine.about(), launch.already(self.engine, order), self._images_of(options)
                )
                if container is None:
                    image, beside = images
                    begin = launch.Start(
                        self.engine,
                        order,
                        options,
                        image=image,
                        beside=beside,
                        stock=self.stock,
                        guard=partial(self._guarded, order.store),
                    )
                    async with self._few_starts:
                        container = await begin.run()
            finally:
                self._starting.discard(order.runner)
                self._stocked(order.store)
            environment = self._hold(launch.reference_of(about, order, container))
            if order.runner not in self._followers:
                self._follow(environment)
        return str(environment.reference)

    async def watch(self, runner: RunnerId, pool: str, environment: str) -> None:
        found = await self._resolve(environment, runner)
        state = await self.engine.state(found.reference.container)
        found.pid = state.pid
        old = self._followers.pop(runner, None)
        if old is not None:
            old.cancel()
            await asyncio.gather(old, return_exceptions=True)
        self._tell(found, tuple(found.evidence.history))
        self._follow(found)

    async def probe(self, runner: RunnerId, environment: str) -> ProbeReport:
        found = await self._resolve(environment, runner)
        limit = found.options.probe_timeout
        try:
            async with asyncio.timeout(limit):
                return report(found, await self._ask(found))
        except TimeoutError:
            raise RetryLater(f"the look at the container did not end within {limit:g} s") from None

    async def destroy(self, environment: str, permit: Permit) -> None:
        found = await self._resolve(environment)
        async with self._turns.of(found.reference.runner):
            runner = found.reference.runner

            def holds() -> None:
                permits.check(permit, environment, runner, now=self._now(), epoch=self._epoch())

            holds()
            ending = Ending(self.engine, self.stock, found, partial(self._look, found), self._few_ends)
            if permit.polite:
                await ending.ask_to_stop()
                return
            if permit.warrant is Warrant.ENDED:
                await ending.must_have_ended()
            await ending.end(holds)
            await self._exit_told(found)
            await ending.remove()
            found.mirror.close()
            self._known.pop(str(found.reference), None)

    async def list(self, store: str) -> list[FoundEnvironment]:
        about = await self.engine.about()
        named, ours = set(self._starting), []
        listing = await self.engine.containers(store)
        for entry in listing:
            marks = entry.get("Labels") or {}
            runner, pool = marks.get(specification.RUNNER), marks.get(specification.POOL)
            if specification.ROLE in marks:
                continue  # what stands beside a runner, or is ready for one, is none
            if marks.get(specification.STORE) == store and runner and pool:
                named.add(runner)
                if runner not in self._starting:
                    ours.append(
                        self._found(Reference(runner, pool, store, about.id, str(entry["Id"])), entry)
                    )
        found = [one for one in await asyncio.gather(*ours) if one is not None]
        with contextlib.suppress(PortError, TimeoutError):  # what stays is found again by the next look
            async with asyncio.timeout(SWEEP_LIMIT):
                await self.stock.sweep(store, listing, lambda runner: runner in named or self._lives(runner))
        self._stocked(store)
        return found

    async def _found(self, reference: Reference, entry: Mapping[str, Any]) -> FoundEnvironment | None:
        """Return a listed container as the port has it; of one that has ended the code is asked for."""
        runner, pool = RunnerId(reference.runner), reference.pool
        if entry.get("State") == "running":
            return FoundEnvironment(runner, str(reference), pool, ended=False)
        try:
            state = await self.engine.state(reference.container)
        except Gone:
            return None
        return FoundEnvironment(runner, str(reference), pool, not state.running, state.code)

    async def tidy(self) -> None:
        living = {environment.reference.runner for environment in self._known.values()} | self._starting
        for folder in dict.fromkeys(options.logs_dir for options in self._options.values()):
            options = next(iter(self._options.values()))
            await asyncio.to_thread(
                tidy, folder, living, age=options.logs_age, size=options.logs_size, now=time.time()
            )

        await self.collect_images()

    async def diagnose(self) -> Sequence[Found]:
        """Look at the engine and at what the pools want of it; changes nothing."""
        return await diagnose(self.engine, self._options, self.firewall)

    async def collect_images(self, *, really: bool = True) -> Sequence[Removal]:
        """Remove images of ours that may go; return them. `really` false: only say which."""
        return await self.images.collect(self._options.values(), really=really)

    async def log_files(self, runner: RunnerId) -> Sequence[LogFile]:
        return await asyncio.to_thread(lambda: logs.files(self._logged(runner)))

    async def read_log(self, runner: RunnerId, name: str, start: int, most: int) -> bytes:
        return await asyncio.to_thread(lambda: logs.read(self._logged(runner), name, start, most))

    async def close(self) -> None:
        tasks = [*self._followers.values(), *self._preparing]
        if self._guard is not None:
            tasks.append(self._guard)
        self._followers.clear()
        await self.stock.close(self._store, empty=not self._known and not self._starting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for environment in self._known.values():
            environment.mirror.close()
        await self.images.close()
        await self.engine.close()
        self._sink = None

    # Below: how.

    def _logged(self, runner: RunnerId) -> Place:
        """Return where a runner is or was of which logs are left; raise `Gone` where there are none."""
        for files_dir, logs_dir in dict.fromkeys(
            (each.files_dir, each.logs_dir) for each in self._options.values()
        ):
            with contextlib.suppress(ValueError):
                place = place_of(runner, files_dir, logs_dir)
                if place.log.exists() or place.diag.exists() or place.kept.exists():
                    return place
        raise Gone(f"no logs of {runner} are kept")

    def _configured(self, pool: str) -> DockerOptions:
        options = self._options.get(pool)
        if options is None:
            raise Refused(f"pool {pool!r} has no containers on this engine")
        return options

    def _hold(self, reference: Reference) -> Environment:
        """Return what is held of a container. Runners outlive their pool's configuration: another pool of the
        engine then says where logs are kept."""
        known = self._known.get(str(reference))
        if known is None:
            options = self._options.get(reference.pool) or next(iter(self._options.values()))
            known = self._known[str(reference)] = Environment(reference, options)
        return known

    async def _resolve(self, environment: str, runner: RunnerId | None = None) -> Environment:
        reference = parse_reference(environment)
        if reference is None:
            raise Refused(f"{environment!r} is no container's reference")
        if runner is not None and reference.runner != runner:
            raise Refused(f"the environment belongs to {reference.runner}, not to {runner}")
        if environment not in self._known:
            about = await self.engine.about()
            if reference.engine != about.id:
                raise RetryLater(
                    f"the container is on another engine ({reference.engine}): let the host name that one"
                )
        return self._hold(reference)

    def _follow(self, environment: Environment) -> None:
        runner = environment.reference.runner

        def exited(code: int | None, leftovers: int) -> None:
            evidence, options = environment.evidence, environment.options
            means = evidence.exit_code(code)
            if means == REFUSED_VERSION:
                renewed = options.application is None and self.images.renew(options)
                log.warning(
                    "the forge refuses a runner's version",
                    runner=runner,
                    version=evidence.refused or "unknown",
                    image=options.image,
                    fetched_anew=renewed,
                )
            if self._sink is not None:
                self._sink.exited(RunnerId(runner), means, leftovers)

        follower = Follower(
            environment,
            self.engine,
            read=partial(self._read, environment),
            ask=partial(self._ask, environment),
            exited=exited,
        )
        self._followers[runner] = asyncio.create_task(follower.run(), name=f"follow {runner}")

    def _tell(self, environment: Environment, signs: Sequence[tuple[Sign, str]]) -> None:
        everything = environment.options.follow == "all"
        for sign, detail in signs:
            if self._sink is not None and (everything or sign is Sign.LISTENING):
                self._sink.sign(RunnerId(environment.reference.runner), sign, detail)

    async def _ask(self, environment: Environment) -> Look:
        """Look at the processes, then at the files: directly where both are this machine's and the first process is
        known, which shows a job also while the engine is away."""
        if self.engine.on_this_machine and environment.pid and not environment.far:
            told: deque[tuple[Sign, str]] = deque()
            near = await self._telling(environment, told, partial(look_near, environment, self._now(), told))
            if near is not None:
                return near
        seen = await self._look(environment)
        for pid in seen.workers:
            self._tell(environment, environment.evidence.saw_worker((environment.reference.container, pid)))
        await self._read(environment)
        return seen

    def _telling(
        self, environment: Environment, told: deque[tuple[Sign, str]], work: Callable[[], T]
    ) -> asyncio.Future[T]:
        """Do work in a thread that finds signs; they are told even when nobody waits for the work any more."""
        thread = asyncio.ensure_future(asyncio.to_thread(work))
        return told_anyway(thread, lambda: self._tell(environment, tuple(told)))

    async def _look(self, environment: Environment) -> Look:
        """Look at the processes: directly where they are this machine's, by the engine otherwise."""
        container = environment.reference.container
        state = await self.engine.state(container)
        environment.pid = state.pid
        if not state.running:
            return Look(Listing.EMPTY, detail="the container has ended")
        if self.engine.on_this_machine:
            seen = await asyncio.to_thread(local.look, state.pid, container)
            if seen is not None:
                return seen
        about = await self.engine.about()
        if about.podman:
            titles, rows = await self.engine.top(container, PODMAN_ARGUMENTS)
            return read_listing(titles, rows, 1)
        titles, rows = await self.engine.top(container, None if about.windows else PS_ARGUMENTS)
        return read_listing(titles, rows, state.pid)

    async def _read(self, environment: Environment) -> None:
        """Look at the files: bring the copies up to date and tell the signs in them."""
        container, mirror = environment.reference.container, environment.mirror
        near = self.engine.on_this_machine and not environment.far
        if near and not environment.pid:
            environment.pid = (await self.engine.state(container)).pid
        if not (near and await asyncio.to_thread(mirror.sync_local, environment.pid, container)):
            if near:
                # Not to be had directly: from now on by the engine, if the container is still there.
                environment.far = (await self.engine.state(container)).running
            archive = None
            with contextlib.suppress(Gone):
                archive = await self.engine.read(container, mirror.perf_path)
            await asyncio.to_thread(mirror.sync_archive, archive)
        told: deque[tuple[Sign, str]] = deque()
        now = self._now()
        await self._telling(environment, told, lambda: told.extend(environment.evidence.refresh(now)))

    async def _exit_told(self, environment: Environment) -> None:
        """Wait until the follower has told the exit, before what it tells it from is removed."""
        follower = self._followers.get(environment.reference.runner)
        if follower is not None:
            await asyncio.wait((follower,), timeout=EXIT_TOLD)
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)
            self._followers.pop(environment.reference.runner, None)

    async def _images_of(self, options: DockerOptions) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return a pool's image, and that of the engine for its jobs where it has one."""
        if options.docker == "none":
            return await self.images.ready(options), None
        beside = replace(options, image=options.docker_image)
        image, other = await launch.together(self.images.ready(options), self.images.ready(beside))
        return image, other

    def _lives(self, runner: str) -> bool:
        """Say whether a runner is being started or is held here."""
        return runner in self._starting or any(
            each.reference.runner == runner for each in self._known.values()
        )

    def _stocked(self, store: str) -> None:
        """Let networks be made ready, from now on."""
        self._store = store
        if self._sink is not None:
            self.stock.fill(store)

    async def _guarded(self, store: str) -> None:
        """Put the packet filter in place, and look after it from now on."""
        await self.firewall.ready(store)
        if self._guard is None:
            self._guard = asyncio.create_task(self._keep_guard(store), name="packet filter")

    async def _keep_guard(self, store: str) -> None:
        while True:
            await asyncio.sleep(GUARD_EVERY)
            try:
                await self.firewall.ready(store)
            except PortError as error:
                log.error("runners are not isolated at the moment", error=error.detail)


def exceptions_of(options: Mapping[str, DockerOptions]) -> Exceptions:
    """Return what isolated runners of any of the pools may reach although it is private."""
    isolated = [each for each in options.values() if each.network == "isolated"]
    allow = tuple(address for each in isolated for address in each.allow)
    return Exceptions(allow, tuple(address for each in isolated for address in each.dns) or resolvers())
