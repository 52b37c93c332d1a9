"""An image whose runner application the forge refuses is fetched anew where that can help, and once for all who ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ephemerd.adapters.runtimes.docker.images import Images
from ephemerd.adapters.runtimes.docker.options import DockerOptions

OPTIONS = DockerOptions(image="runner:1", logs_dir=Path("/logs"), files_dir=Path("/files"))


class Engine:
    """Stands in for the engine: pulls are counted and go on until they are let."""

    def __init__(self) -> None:
        self.pulled: list[str] = []
        self.gate = asyncio.Event()

    async def pull(self, name: str, _limit: float) -> AsyncIterator[dict[str, Any]]:
        self.pulled.append(name)
        await self.gate.wait()
        yield {"status": "Digest: sha256:ab"}


@pytest.mark.parametrize("pull", ["missing", "always"])
async def test_it_is_fetched_once_although_it_is_there(tmp_path, pull):
    engine = Engine()
    images = Images(engine, tmp_path)  # type: ignore[arg-type]
    options = replace(OPTIONS, pull=pull)
    assert images.renew(options)
    assert images.renew(options)
    fetched = images.fetch("runner:1")
    engine.gate.set()
    await fetched
    assert engine.pulled == ["runner:1"]
    assert images.renew(options)
    await images.fetch("runner:1")
    assert engine.pulled == ["runner:1"] * 2
    await images.close()


@pytest.mark.parametrize(
    "options", [replace(OPTIONS, pull="never"), replace(OPTIONS, image="runner@sha256:ab")]
)
async def test_where_that_cannot_help_nothing_is_fetched(tmp_path, options):
    engine = Engine()
    images = Images(engine, tmp_path)  # type: ignore[arg-type]
    assert not images.renew(options)
    await images.close()
    assert engine.pulled == []
