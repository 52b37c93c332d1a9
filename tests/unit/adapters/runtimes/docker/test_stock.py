"""What cannot be removed keeps nothing else from being removed, and no listing from being told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from ephemerd.adapters.runtimes.docker import DockerRuntime, runtime, specification
from ephemerd.adapters.runtimes.docker.engine import About
from ephemerd.adapters.runtimes.docker.options import DockerOptions, EngineOptions
from ephemerd.adapters.runtimes.docker.stock import Stock
from ephemerd.ports.errors import Refused

STORE, BAD, GOOD, ALIVE = "store", "eph-store-b1-1", "eph-store-b1-2", "eph-store-b1-3"
OPTIONS = DockerOptions(image="runner:1", logs_dir=Path("/logs"), files_dir=Path("/files"))


def _entry(kind: str, runner: str) -> dict[str, Any]:
    marks = {specification.STORE: STORE, specification.RUNNER: runner}
    if kind == "engine":
        marks[specification.ROLE] = specification.ENGINE
    name = f"{runner}-{kind}"
    return {"Id": name, "Name": name, "Names": [f"/{name}"], "Labels": marks, "State": "running"}


class Engine:
    """Stands in for an engine that refuses to remove what belongs to one runner."""

    def __init__(self, refuses: str) -> None:
        self.refuses = refuses
        self.there = {
            kind: [_entry(kind, runner) for runner in (BAD, GOOD, ALIVE)]
            for kind in ("engine", "network", "volume")
        }

    async def containers(self, _store: str) -> list[dict[str, Any]]:
        return list(self.there["engine"])

    async def networks(self, _store: str) -> list[dict[str, Any]]:
        return list(self.there["network"])

    async def volumes(self, _store: str) -> list[dict[str, Any]]:
        return list(self.there["volume"])

    async def remove(self, id_: str, *, force: bool = False) -> None:
        assert force
        self._remove(id_)

    async def remove_network(self, id_: str) -> None:
        self._remove(id_)

    async def remove_volume(self, name: str) -> None:
        self._remove(name)

    def _remove(self, name: str) -> None:
        if name == f"{BAD}-{self.refuses}":
            raise Refused("something uses it")
        for kind, entries in self.there.items():
            self.there[kind] = [entry for entry in entries if entry["Id"] != name]

    def left(self) -> set[str]:
        return {str(entry["Id"]) for entries in self.there.values() for entry in entries}


async def _nothing(_store: str) -> None:
    pass


async def _swept(refuses: str) -> set[str]:
    engine = Engine(refuses)
    stock = Stock(engine, {"linux": OPTIONS}, _nothing, lambda: False)  # type: ignore[arg-type]
    await stock.sweep(STORE, await engine.containers(STORE), lambda runner: runner == ALIVE)
    return engine.left()


async def test_what_the_engine_refuses_to_remove_keeps_nothing_else():
    alive = {f"{ALIVE}-{kind}" for kind in ("engine", "network", "volume")}
    assert await _swept("nothing") == alive
    for refuses in ("engine", "network", "volume"):
        left = await _swept(refuses)
        assert alive <= left, "what a living runner has is never touched"
        assert not {f"{GOOD}-{kind}" for kind in ("engine", "network", "volume")} & left, refuses


async def test_a_listing_waits_for_no_removal_that_hangs(monkeypatch):
    monkeypatch.setattr(runtime, "SWEEP_LIMIT", 0.0)
    made = DockerRuntime(EngineOptions(), {"linux": OPTIONS}, now=lambda: 0, epoch=lambda: "b1")
    asked = asyncio.Event()

    async def about() -> About:
        return About("engine", "28.0", False, False, False, "systemd", "overlay2", "", True)

    async def containers(_store: str) -> list[dict[str, Any]]:
        marks = {specification.RUNNER: ALIVE, specification.STORE: STORE, specification.POOL: "linux"}
        mine = {"Id": "ab" * 32, "Names": [f"/{ALIVE}"], "Labels": marks, "State": "running"}
        return [mine, _entry("engine", GOOD)]

    async def sweep(*_: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(made.engine, "about", about)
    monkeypatch.setattr(made.engine, "containers", containers)
    monkeypatch.setattr(made.stock, "sweep", sweep)
    async with asyncio.timeout(60):
        (found,) = await made.list(STORE)
    assert (found.runner, found.ended, asked.is_set()) == (ALIVE, False, True)
    await made.close()
