"""Make and start one container; where that fails nothing of it stays, and nothing that runs is ever ended."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from ephemerd.adapters.runtimes.docker import specification
from ephemerd.adapters.runtimes.docker.engine import About, Engine, State, Taken
from ephemerd.adapters.runtimes.docker.firewall import bridge_is_here
from ephemerd.adapters.runtimes.docker.mirror import only_file
from ephemerd.adapters.runtimes.docker.options import PASSED_ON, DockerOptions
from ephemerd.adapters.runtimes.docker.reference import Reference, bridge_name
from ephemerd.adapters.runtimes.docker.subnets import free_subnets
from ephemerd.ports.errors import Broken, Gone, PortError, RetryLater
from ephemerd.ports.runtime import StartOrder

log = structlog.get_logger(__name__)

UNDO_LIMIT = 20.0
SUBNET_TRIES = 8


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


async def start(
    engine: Engine,
    order: StartOrder,
    options: DockerOptions,
    image: dict[str, Any],
    guard: Callable[[], Awaitable[None]],
) -> str:
    """Make network and container and start it; return its id.

    guard   puts the packet filter in place, where the pool wants one
    """
    about = await engine.about()
    check(about, options, image)
    check_disk(engine, about)
    try:
        network = await _own_network(engine, order, options, guard)
        made = specification.container(order, options, environment_of(options), network)
        container = await _create(engine, order, made)
        owner = await _owner(engine, container, user_of(options, image), image)
        await engine.put(container, specification.handover(order.credential, owner))
        await _run(engine, container)
    except BaseException:
        undoing = asyncio.ensure_future(undo(engine, order))
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(undoing)
        raise
    return container


async def _own_network(
    engine: Engine, order: StartOrder, options: DockerOptions, guard: Callable[[], Awaitable[None]]
) -> str | None:
    """Make the runner's network, with the packet filter in place before anything can run in it."""
    if options.network == "bridge":
        return await _network(engine, order, options)
    if options.network != "isolated":
        return None
    check_isolation(engine, await engine.about())
    making = asyncio.ensure_future(_network(engine, order, options))
    try:
        await guard()
    finally:
        await asyncio.wait((making,))  # made or not, it is known before it is used or undone
    network = making.result()
    check_bridge(engine, bridge_name(order.store, order.runner))
    return network


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


async def _network(engine: Engine, order: StartOrder, options: DockerOptions) -> str:
    if options.subnets is None:
        try:
            return await engine.create_network(specification.network(order, None))
        except PortError as error:
            if "pool" in error.detail:
                raise Broken(
                    f"the engine has no address range left for a runner's network ({error.detail}): set subnets in the "
                    "pool's container table, or default-address-pools of the engine"
                ) from None
            raise
    taken = [
        str(config["Subnet"])
        for network in await engine.networks(None)
        for config in (network.get("IPAM") or {}).get("Config") or ()
        if config.get("Subnet")
    ]
    reason = "every part of it is taken"
    for subnet in itertools.islice(free_subnets(options.subnets, taken, order.runner), SUBNET_TRIES):
        try:
            return await engine.create_network(specification.network(order, subnet))
        except PortError as error:
            if "overlap" not in error.detail.lower():
                raise
            reason = error.detail
    raise Broken(
        f"no network can be carved out of {options.subnets} ({reason}): choose another range (subnets)"
    )


async def undo(engine: Engine, order: StartOrder) -> None:
    """Remove what was half made. A container that runs, or has run, is none of that: it stays to be found."""
    try:
        async with asyncio.timeout(UNDO_LIMIT):
            with contextlib.suppress(Gone):
                state = await engine.state(order.runner)
                if not is_ours(state, order) or state.running or state.started:
                    return
                await engine.remove(state.id)
            await remove_networks(engine, order.store, order.runner)
    except (PortError, TimeoutError) as error:
        log.warning(
            "a start could not be undone; it is found again later", runner=order.runner, error=str(error)
        )


async def remove_networks(engine: Engine, store: str, runner: str) -> None:
    """Remove a runner's own networks, known by their labels."""
    for network in await engine.networks(store):
        marks = network.get("Labels") or {}
        if marks.get(specification.STORE) == store and marks.get(specification.RUNNER) == runner:
            await engine.remove_network(str(network["Id"]))


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


def check_isolation(engine: Engine, about: About) -> None:
    """Refuse isolation where the packet filter would be another machine's."""
    todo = 'write network = "bridge" in the pool\'s container table, or run the daemon where the engine is'
    if not engine.on_this_machine or (not sys.platform.startswith("linux")):
        raise Broken(f"runners of an engine on another machine cannot be isolated from here: {todo}")
    if "rootless" in about.root:
        raise Broken(f"a rootless engine's networks cannot be filtered from here: {todo}")


def check_bridge(engine: Engine, name: str) -> None:
    """Refuse isolation where the network that was just made is none of this machine's."""
    if engine.options.nft == ("nft",) and not bridge_is_here(name):
        raise RetryLater(
            f"the engine made a network whose bridge {name} is not on this machine, so that no packet filter here "
            'guards it: write network = "bridge" in the pool\'s container table'
        )
