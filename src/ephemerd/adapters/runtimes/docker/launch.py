"""Make and start one container; where that fails nothing of it stays, and nothing that runs is ever ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from ephemerd.adapters.runtimes.docker import networks, sidecar, specification
from ephemerd.adapters.runtimes.docker.engine import About, Engine, State, Taken
from ephemerd.adapters.runtimes.docker.firewall import resolvers
from ephemerd.adapters.runtimes.docker.mirror import only_file
from ephemerd.adapters.runtimes.docker.options import PASSED_ON, DockerOptions
from ephemerd.adapters.runtimes.docker.reference import Reference
from ephemerd.adapters.runtimes.docker.stock import Stock
from ephemerd.ports.errors import Broken, Gone, PortError, Refused
from ephemerd.ports.runtime import StartOrder

log = structlog.get_logger(__name__)

UNDO_LIMIT = 20.0


def is_ours(state: State, order: StartOrder) -> bool:
    """Say whether a container bears exactly the labels of an order."""
    return all(state.labels.get(key) == value for key, value in specification.labels(order).items())


def reference_of(about: About, order: StartOrder, container: str) -> Reference:
    """Return the reference of an order's container."""
    return Reference(order.runner, order.pool, order.store, about.id, container)


async def already(engine: Engine, order: StartOrder) -> str | None:
    """Return the container that an earlier call with this runner id started; None where none did. One that
    was created and never started is removed: its configuration may be half handed over."""
    try:
        state = await engine.state(order.runner)
    except Gone:
        return None
    if not is_ours(state, order):
        raise Broken(f"there is a container {order.runner} that is not of this pool and store: rename it")
    if state.running or state.started:
        return state.id
    await engine.remove(state.id)
    return None


async def together(*work: Awaitable[Any]) -> list[Any]:
    """Wait for all of it, whatever becomes of one; then raise the first failure, or return the results in order."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return done


class Start:
    """The start of one runner.

    image   the pool's image, as the engine tells of it
    beside  the image of the engine for its jobs; None where the pool has none
    guard   puts the packet filter in place, where the pool wants one
    """

    def __init__(
        self,
        engine: Engine,
        order: StartOrder,
        options: DockerOptions,
        *,
        image: dict[str, Any],
        beside: dict[str, Any] | None,
        stock: Stock,
        guard: Callable[[], Awaitable[None]],
    ) -> None:
        self._engine = engine
        self._order = order
        self._options = options
        self._image = image
        self._beside = beside
        self._stock = stock
        self._guard = guard

    async def run(self) -> str:
        """Make what the runner needs and start it; return its container's id."""
        about = await self._engine.about()
        check(about, self._options, self._image)
        check_disk(self._engine, about)
        try:
            container = await self._made(about)
            await _run(self._engine, container)
        except BaseException:
            undoing = asyncio.ensure_future(undo(self._engine, self._order, self._stock))
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(undoing)
            raise
        return container

    async def _made(self, about: About) -> str:
        """Make the container, whole but for being started; its network is guarded, its engine answers."""
        order, options = self._order, self._options
        if options.network not in ("isolated", "bridge"):
            return await self._container(options.network)
        if options.network == "isolated":
            networks.check_isolation(self._engine, about)
        one = await self._stock.take(order.runner, order.store, options)
        if one is None:
            _, network = await together(self._guarded(), self._own_network())
            return await self._joined(network)
        guarding = together(self._guarded(), self._stock.mark(one, order.store, order.runner))
        place = f"{specification.OF_CONTAINER}{one.holder}"
        if self._beside is not None:
            await guarding
            return await self._joined(place)
        container, _ = await together(self._container(place), guarding)
        return str(container)

    async def _joined(self, network: str) -> str:
        """Make the container in a network that is guarded already, after the engine for its jobs where it has one."""
        if self._beside is None:
            return await self._container(network)
        order, options = self._order, self._options
        dns = options.dns or resolvers()
        engine = await sidecar.begin(self._engine, order, options, self._beside, network, dns)
        place = network if specification.held(network) else f"{specification.OF_CONTAINER}{engine}"
        container, _ = await together(self._container(place), sidecar.until_ready(self._engine, engine))
        return str(container)

    async def _guarded(self) -> None:
        if self._options.network == "isolated":
            await self._guard()

    async def _own_network(self) -> str:
        """Make a network for this runner alone."""
        order, options = self._order, self._options
        marks = specification.labels(order)
        try:
            network = await networks.make(self._engine, order.runner, order.store, marks, options)
        except Refused:  # what an earlier try of this start left bears its name
            await self._stock.clear(order.store, order.runner)
            network = await networks.make(self._engine, order.runner, order.store, marks, options)
        if options.network == "isolated":
            networks.check_bridge(self._engine, order.store, order.runner)
        return network

    async def _container(self, network: str) -> str:
        """Create the container and hand it what its first process needs."""
        order, options, engine = self._order, self._options, self._engine
        made = specification.container(order, options, environment_of(options), network)
        folders = []
        if self._beside is not None:
            sidecar.share(made, order, options)
            folders.append(f"{options.runner_root}/_work")
        container = await _create(engine, order, made)
        owner = await _owner(engine, container, user_of(options, self._image), self._image)
        await engine.put(container, specification.handover(order.credential, owner, folders))
        return container


async def _owner(engine: Engine, container: str, user: str, image: dict[str, Any]) -> tuple[int, int]:
    """Return the numbers of the container's user, by the accounts in its own image, which does not change."""
    key = (str(image.get("Id")), user)
    owner = engine.owners.get(key)
    if owner is None:
        passwd = b""
        with contextlib.suppress(Gone):
            passwd = only_file(await engine.read(container, "/etc/passwd")) or b""
        owner = specification.account_in(passwd, user)
    if owner is None:
        raise Broken(f"there is no user {user!r} in the image: correct pools.*.user, or choose another image")
    engine.owners[key] = owner
    return owner


def user_of(options: DockerOptions, image: dict[str, Any]) -> str:
    """Return who a pool's listeners run as."""
    return options.user or str((image.get("Config") or {}).get("User") or "root")


async def _run(engine: Engine, container: str) -> None:
    """Start it. Where the answer is lost the container itself says whether it runs."""
    try:
        await engine.start(container)
    except PortError:
        with contextlib.suppress(PortError):
            state = await engine.state(container)
            if state.running:
                return
        raise


async def _create(engine: Engine, order: StartOrder, made: dict[str, Any]) -> str:
    """Create it; where an earlier answer was lost, it is there under its name and has never run."""
    try:
        return await engine.create(order.runner, made)
    except Taken:
        state = await engine.state(order.runner)
        if not is_ours(state, order) or state.started or state.running:
            raise
        return state.id


async def undo(engine: Engine, order: StartOrder, stock: Stock) -> None:
    """Remove what was half made. A container that runs, or has run, is none of that: it stays to be found."""
    try:
        async with asyncio.timeout(UNDO_LIMIT):
            with contextlib.suppress(Gone):
                state = await engine.state(order.runner)
                if not is_ours(state, order) or state.running or state.started:
                    return
                await engine.remove(state.id)
            await stock.clear(order.store, order.runner)
    except (PortError, TimeoutError) as error:
        log.warning(
            "a start could not be undone; it is found again later", runner=order.runner, error=str(error)
        )


def environment_of(options: DockerOptions) -> dict[str, str]:
    """Return what a container gets of the daemon's environment and of the configuration; no secret."""
    found: dict[str, str] = {}
    for name in PASSED_ON:
        for spelling in (name, name.upper()):
            if spelling in os.environ:
                found[spelling] = os.environ[spelling]
    for name, value in options.extra_env.items():
        if not name or "=" in name or "\0" in name + value:
            raise Broken(f"extra_env holds {name!r}, which no environment can hold")
        found[name] = value
    return found


def check(about: About, options: DockerOptions, image: dict[str, Any]) -> None:
    """Refuse what would run with more rights than the pool allows, or cannot run at all."""
    if about.windows:
        raise Broken("this version starts Linux containers only: choose an engine that runs them")
    if user_of(options, image).partition(":")[0] in ("root", "0") and not (
        options.allow_root or about.contained
    ):
        raise Broken(
            f"jobs would run as root in {options.image}: name another user (pools.*.user), use an engine with a user "
            "namespace (userns-remap), or set runner.allow_root"
        )
    sidecar.check(about, options)
    if options.application is not None and not (options.application / specification.LISTENER).is_file():
        raise Broken(
            f"{options.application} holds no {specification.LISTENER}: unpack the runner application there"
        )


def check_disk(engine: Engine, about: About) -> None:
    """Refuse to begin what would fill the engine's disk, where that disk can be seen."""
    if not engine.on_this_machine or not about.root:
        return
    try:
        free = shutil.disk_usage(about.root).free
    except OSError:
        return
    if free < engine.options.reserve:
        raise Broken(
            f"the engine's disk ({about.root}) has {free >> 20} MiB left, and {engine.options.reserve >> 20} are kept "
            "free: see 'ephemerd images gc', or make room"
        )
