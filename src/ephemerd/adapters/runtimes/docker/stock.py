"""Networks that are ready before a runner needs one.

What takes time at a start is a network namespace with its bridge and its rules, more than everything else together.
So a few are made ahead, each held by a container that does nothing, and a runner joins one. Each serves one runner:
the name of the holder says whose it is before anything of that runner can run, and it goes with the runner. A ready
one that this process does not know is taken over only while it bears the name of the unused.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from ephemerd.adapters.runtimes.docker import networks, specification
from ephemerd.adapters.runtimes.docker.engine import Engine, Taken
from ephemerd.adapters.runtimes.docker.options import DockerOptions
from ephemerd.adapters.runtimes.docker.reference import bridge_prefix
from ephemerd.ports.errors import Gone, PortError

log = structlog.get_logger(__name__)

CLOSE_LIMIT = 15.0
MARK = "-net"
"""What follows the runner's name in the name of its network's holder."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A network and the container that holds it; `name` is the network's."""

    name: str
    network: str
    holder: str
    kind: str


class Stock:
    """The ready networks of one engine and store.

    options   the pools' settings, by name
    guard     puts the packet filter of a store in place
    busy      whether a start is under way, which filling waits for
    """

    def __init__(
        self,
        engine: Engine,
        options: Mapping[str, DockerOptions],
        guard: Callable[[str], Awaitable[None]],
        busy: Callable[[], bool],
    ) -> None:
        self._engine = engine
        self._options = options
        self._guard = guard
        self._busy = busy
        self._fresh: dict[str, Ready] = {}
        self._taken: dict[str, str] = {}
        self._making: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def ready(self) -> int:
        """How many networks wait."""
        return len(self._fresh)

    # One for a runner

    async def take(self, runner: str, store: str, options: DockerOptions) -> Ready | None:
        """Return a ready network that suits a pool, for this runner alone; None where none is ready."""
        kind = kind_of(options)
        for one in [each for each in self._fresh.values() if each.kind == kind]:
            if self._fresh.pop(one.holder, None) is None:
                continue  # somebody else was quicker
            self._taken[one.holder] = runner
            with contextlib.suppress(PortError):
                if (await self._engine.state(one.holder)).running:
                    if options.network == "isolated":
                        networks.check_bridge(self._engine, store, one.name)
                    return one
            await self._remove(one.holder, one.network)
        return None

    async def mark(self, one: Ready, store: str, runner: str) -> None:
        """Write on a taken network whose it is; nothing of the runner may run before that."""
        try:
            await self._engine.rename(one.holder, f"{runner}{MARK}")
        except Taken:  # by what an earlier try of this start left
            await self.clear(store, runner)
            await self._engine.rename(one.holder, f"{runner}{MARK}")

    async def clear(self, store: str, runner: str) -> None:
        """Remove what belongs to a runner beside its container: network and holder, engine, volumes."""
        held = set()
        for entry in await self._engine.containers(store):
            marks = entry.get("Labels") or {}
            role = marks.get(specification.ROLE)
            if marks.get(specification.STORE) != store or role is None:
                continue
            if marks.get(specification.RUNNER) == runner or name_of(entry) == f"{runner}{MARK}":
                held.add(_mode(entry))
                await self._engine.remove(str(entry["Id"]), force=True)
                self._taken.pop(str(entry["Id"]), None)
        for network in await self._engine.networks(store):
            marks, id_ = network.get("Labels") or {}, str(network["Id"])
            if marks.get(specification.STORE) == store and (
                id_ in held or marks.get(specification.RUNNER) == runner
            ):
                await self._engine.remove_network(id_)
        for volume in await self._engine.volumes(store):
            if (volume.get("Labels") or {}).get(specification.RUNNER) == runner:
                await self._engine.remove_volume(str(volume["Name"]))

    # All of them

    def fill(self, store: str) -> None:
        """Begin to make what is lacking, beside the work."""
        if (self._task is None or self._task.done()) and self._lacking():
            self._task = asyncio.create_task(self._fill(store), name="ready networks")

    async def filled(self) -> None:
        """Return when nothing is being made."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def sweep(
        self, store: str, listing: Sequence[Mapping[str, Any]], alive: Callable[[str], bool]
    ) -> None:
        """Take over what an earlier process made ready, and remove what nobody can use any more. What cannot be
        removed keeps nothing else.

        listing   every container of the store
        alive     whether a runner exists or is being started, at the moment of asking
        """
        joined = {_mode(entry).removeprefix(specification.OF_CONTAINER) for entry in listing}
        holders = [entry for entry in listing if _role(entry) == specification.HOLDS_NETWORK]
        for entry in holders:
            id_, name, taker = str(entry["Id"]), name_of(entry), self._taken.get(str(entry["Id"]))
            if id_ in joined or name in self._making or (taker is not None and alive(taker)):
                continue
            if not name.startswith(_prefix(store)):
                stays = alive(name.removesuffix(MARK))
            else:
                stays = taker is None and self._still_ready(entry, id_, name)
            if not stays:
                await self._remove(id_, _mode(entry))
        for entry in listing:
            runner = str((entry.get("Labels") or {}).get(specification.RUNNER))
            if _role(entry) != specification.ENGINE:
                continue
            if not alive(runner):
                await _tried(self.clear(store, runner), name_of(entry))
            elif entry.get("State") == "exited":
                log.warning(
                    "the engine for a runner's jobs has ended; its docker commands fail", runner=runner
                )
        await self._sweep_networks(store, {_mode(entry) for entry in holders}, alive)
        for volume in await self._engine.volumes(store):
            of = (volume.get("Labels") or {}).get(specification.RUNNER)
            if of is not None and not alive(str(of)):
                name = str(volume["Name"])
                await _tried(self._engine.remove_volume(name), name)

    async def close(self, store: str | None, *, empty: bool) -> None:
        """Stop filling; `empty`: leave nothing behind, since no runner is there that could be adopted later."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if empty and store is not None and self._fresh:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_LIMIT):
                    await asyncio.gather(
                        *(self._remove(each.holder, each.network) for each in self._fresh.values())
                    )
        self._fresh.clear()

    # Below: how.

    def _still_ready(self, entry: Mapping[str, Any], id_: str, name: str) -> bool:
        """Say whether an unused network can serve; one that is not known yet is taken over where it is wanted."""
        kind = str((entry.get("Labels") or {}).get(specification.KIND))
        wanted = self._wanted().get(kind)
        if entry.get("State") != "running" or wanted is None:
            return False
        if id_ not in self._fresh and self._count(kind) < wanted[0]:
            self._fresh[id_] = Ready(name, _mode(entry), id_, kind)
        return id_ in self._fresh

    async def _sweep_networks(self, store: str, held: Collection[str], alive: Callable[[str], bool]) -> None:
        """Remove networks whose container was never made, or is gone; the engine refuses one that is in use."""
        for network in await self._engine.networks(store):
            marks, id_, name = network.get("Labels") or {}, str(network["Id"]), str(network.get("Name"))
            runner, role = marks.get(specification.RUNNER), marks.get(specification.ROLE)
            known = id_ in held or id_ in {each.network for each in self._fresh.values()}
            if marks.get(specification.STORE) != store or known or name in self._making:
                continue
            if role is not None or (runner is not None and not alive(str(runner))):
                with contextlib.suppress(PortError):
                    await self._engine.remove_network(id_)

    def _wanted(self) -> dict[str, tuple[int, DockerOptions]]:
        """How many are wanted, by kind, and by whose settings they are made."""
        found: dict[str, tuple[int, DockerOptions]] = {}
        for options in self._options.values():
            if options.network in ("isolated", "bridge"):
                number, kind = min(options.ready_networks, options.most), kind_of(options)
                if number > found.get(kind, (0, options))[0]:
                    found[kind] = (number, options)
        return found

    def _count(self, kind: str) -> int:
        return sum(each.kind == kind for each in self._fresh.values())

    def _lacking(self) -> list[DockerOptions]:
        return [options for kind, (number, options) in self._wanted().items() if self._count(kind) < number]

    async def _fill(self, store: str) -> None:
        for options in self._lacking():
            try:
                await self._fill_up(store, options)
            except Gone:
                pass  # the image is not here yet; the next look tries again
            except PortError as error:
                log.info("no network can be made ready at the moment", error=error.detail)

    async def _fill_up(self, store: str, options: DockerOptions) -> None:
        about, kind = await self._engine.about(), kind_of(options)
        if about.podman or about.windows:
            return
        while not self._busy() and self._count(kind) < self._wanted().get(kind, (0, options))[0]:
            if options.network == "isolated":
                networks.check_isolation(self._engine, about)
                await self._guard(store)
            await self._engine.image(options.image)
            await self._make(store, options)

    async def _make(self, store: str, options: DockerOptions) -> None:
        kind, name = kind_of(options), f"{_prefix(store)}{secrets.token_hex(4)}"
        marks = {
            specification.STORE: store,
            specification.ROLE: specification.HOLDS_NETWORK,
            specification.KIND: kind,
        }
        self._making.add(name)
        network = holder = ""
        try:
            network = await networks.make(self._engine, name, store, marks, options)
            if options.network == "isolated":
                networks.check_bridge(self._engine, store, name)
            holder = await self._engine.create(name, specification.holder(marks, options, network))
            await self._engine.start(holder)
            self._fresh[holder] = Ready(name, network, holder, kind)
        except PortError:
            await self._remove(holder, network)
            raise
        finally:
            self._making.discard(name)

    async def _remove(self, holder: str, network: str) -> None:
        """Remove a pair; what cannot be removed now is found again by a sweep."""
        self._fresh.pop(holder, None)
        try:
            if holder:
                await self._engine.remove(holder, force=True)
            if network:
                await self._engine.remove_network(network)
            self._taken.pop(holder, None)
        except PortError as error:
            log.info("a network stays for now", network=network[:12], error=error.detail)


async def _tried(removal: Awaitable[None], what: str) -> None:
    """Await a removal; what cannot be removed now is found again by the next sweep."""
    try:
        await removal
    except PortError as error:
        log.info("what is left of a runner stays for now", name=what, error=error.detail)


def kind_of(options: DockerOptions) -> str:
    """Return a text that is equal for pools whose runners can use each other's ready networks."""
    told = json.dumps([options.image, options.subnets, options.dns])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def name_of(entry: Mapping[str, Any]) -> str:
    """Return the name of a listed container."""
    return str((entry.get("Names") or ("",))[0]).lstrip("/")


def _prefix(store: str) -> str:
    return f"{bridge_prefix(store)}-ready-"


def _mode(entry: Mapping[str, Any]) -> str:
    return str((entry.get("HostConfig") or {}).get("NetworkMode") or "")


def _role(entry: Mapping[str, Any]) -> str | None:
    role = (entry.get("Labels") or {}).get(specification.ROLE)
    return None if role is None else str(role)
