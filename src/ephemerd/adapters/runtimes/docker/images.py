"""The images that pools are made of: present before they are needed, fetched once for all who wait."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from ephemerd.adapters.runtimes.docker.engine import Engine
from ephemerd.adapters.runtimes.docker.options import DockerOptions
from ephemerd.ports.errors import Broken, Gone, PortError

log = structlog.get_logger(__name__)

PULL_LIMIT = 3600.0
TOLD_EVERY = 10.0


class Images:
    """The images of one engine. A fetch goes on when whoever wanted it has given up waiting."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._fetched: set[str] = set()

    async def ready(self, options: DockerOptions) -> dict[str, Any]:
        """Return the pool's image, fetched where its policy says so. With "always" it is fetched once in a
        process life; a start never waits for a newer one."""
        name = options.image
        try:
            found = await self._engine.image(name)
        except Gone:
            if options.pull == "never":
                raise Broken(
                    f"the engine has no image {name}: load it, or let the pool fetch it (pull)"
                ) from None
            await asyncio.shield(self.fetch(name))
            return await self._engine.image(name)
        if options.pull == "always" and name not in self._fetched:
            self._fetched.add(name)
            _ = self.fetch(name)
        return found

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
            raise Broken(f"{name} cannot be fetched: {failed[:300]}")
        log.info("an image is here", image=name, digest=digest or "unknown")


def with_tag(name: str) -> str:
    """Return an image's name with a tag: without one every tag of it would be fetched."""
    last = name.rpartition("/")[2]
    return name if ":" in last or "@" in last else f"{name}:latest"
