"""The images that pools are made of: present before they are needed, fetched once for all who wait."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import structlog

from ephemerd.adapters.runtimes.docker.collecting import Known, Removal, plan
from ephemerd.adapters.runtimes.docker.engine import Engine
from ephemerd.adapters.runtimes.docker.notebook import Notebook
from ephemerd.adapters.runtimes.docker.options import DockerOptions
from ephemerd.ports.errors import Broken, Gone, PortError

log = structlog.get_logger(__name__)

PULL_LIMIT = 3600.0
TOLD_EVERY = 10.0


class Images:
    """The images of one engine. A fetch goes on when whoever wanted it has given up waiting."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._engine = engine
        self._notebook = Notebook(folder)
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._fetched: set[str] = set()

    async def ready(self, options: DockerOptions) -> dict[str, Any]:
        """Return the pool's image, fetched where its policy says so. With "always" it is fetched once in a
        process life; a start never waits for a newer one."""
        name = options.image
        try:
            found = await self._engine.image(name)
            self._note(found, name)
        except Gone:
            if options.pull == "never":
                raise Broken(
                    f"the engine has no image {name}: load it, or let the pool fetch it (pull)"
                ) from None
            await asyncio.shield(self.fetch(name))
            found = await self._engine.image(name)
            self._note(found, name)
            return found
        if options.pull == "always" and name not in self._fetched:
            self._fetched.add(name)
            _ = self.fetch(name)
        return found

    def _note(self, image: dict[str, Any], name: str) -> None:
        self._notebook.used(str(image.get("Id")), name, time.time())

    def renew(self, options: DockerOptions) -> bool:
        """Begin to fetch a pool's image anew, since the forge refuses the runner application in it; say whether that
        can help: a pool that fetches nothing, and an image named by its digest, stay as they are."""
        if options.pull == "never" or "@" in options.image:
            return False
        _ = self.fetch(options.image)
        return True

    async def known(self) -> list[Known]:
        """Return the images that our runners used and that are still there."""
        there = {str(image.get("Id")): int(image.get("Size") or 0) for image in await self._engine.images()}
        notes = self._notebook.notes()
        for gone in notes.keys() - there.keys():
            self._notebook.forget(gone)
        return [Known(id_, *_named(notes[id_], there[id_])) for id_ in sorted(notes.keys() & there.keys())]

    async def collect(self, pools: Iterable[DockerOptions], *, really: bool = True) -> list[Removal]:
        """Remove the images that may go (`collecting`); return them. `really` false: only say which."""
        kept = {str(container.get("ImageID")) for container in await self._engine.containers(None)}
        for name in {name for options in pools for name in images_of(options)}:
            with contextlib.suppress(Gone):
                kept.add(str((await self._engine.image(name)).get("Id")))
        limits = self._engine.options
        removals = plan(
            await self.known(), kept, now=time.time(), unused=limits.unused, size=limits.images_size
        )
        if not really:
            return removals
        removed = []
        for removal in removals:
            try:
                await self._engine.remove_image(removal.image.id)
            except PortError as error:
                log.warning("an image stays", image=removal.image.name, error=error.detail)
                continue
            self._notebook.forget(removal.image.id)
            removed.append(removal)
            log.info("an image was removed", image=removal.image.name, reason=removal.reason)
        return removed

    async def prepare(self, options: DockerOptions) -> None:
        """Fetch a pool's image before anybody waits for it; what fails is logged and tried at the first start."""
        try:
            await self.ready(options)
        except PortError as error:
            log.warning("an image is not ready", image=options.image, error=error.detail)

    def fetch(self, name: str) -> asyncio.Task[None]:
        """Begin to fetch an image, or join the fetch that is under way."""
        task = self._fetching.get(name)
        if task is None:
            task = asyncio.create_task(self._fetch(name), name=f"fetch {name}")
            self._fetching[name] = task
            task.add_done_callback(lambda done: self._fetched_or_not(name, done))
        return task

    async def close(self) -> None:
        """Stop waiting for fetches; the engine drops what is not whole."""
        tasks = list(self._fetching.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _fetched_or_not(self, name: str, done: asyncio.Task[None]) -> None:
        self._fetching.pop(name, None)
        if not done.cancelled() and done.exception() is not None:
            log.warning("an image could not be fetched", image=name, error=str(done.exception()))

    async def _fetch(self, name: str) -> None:
        try:
            await self._fetch_told(name)
        except PortError as error:
            raise type(error)(f"the image {name} cannot be fetched: {error.detail}") from None

    async def _fetch_told(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        log.info("fetching an image", image=name)
        layers: dict[str, tuple[int, int]] = {}
        told, failed, digest = loop.time(), "", ""
        async for line in self._engine.pull(with_tag(name), PULL_LIMIT):
            failed = str(line.get("error") or failed)
            status = str(line.get("status") or "")
            if status.startswith("Digest: "):
                digest = status.removeprefix("Digest: ")
            part = line.get("progressDetail") or {}
            if status == "Downloading" and part.get("total"):
                layers[str(line.get("id"))] = (int(part.get("current") or 0), int(part["total"]))
            if loop.time() - told >= TOLD_EVERY:
                told = loop.time()
                done, total = (sum(each) for each in zip(*layers.values(), strict=True)) if layers else (0, 0)
                log.info("fetching an image", image=name, done_bytes=done, total_bytes=total)
        if failed:
            raise Broken(failed[:300])
        log.info("an image is here", image=name, digest=digest or "unknown")


def images_of(options: DockerOptions) -> tuple[str, ...]:
    """Return the images that a pool is made of."""
    return (options.image,) if options.docker == "none" else (options.image, options.docker_image)


def _named(note: tuple[str, float], size: int) -> tuple[str, int, float]:
    return note[0], size, note[1]


def with_tag(name: str) -> str:
    """Return an image's name with a tag: without one every tag of it would be fetched."""
    last = name.rpartition("/")[2]
    return name if ":" in last or "@" in last else f"{name}:latest"
