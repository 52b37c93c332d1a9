"""The end of a container waits for its turn, and a permit does not wait with it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ephemerd.adapters.runtimes.docker.ending import Ending
from ephemerd.ports.errors import Refused


class Engine:
    """Stands in for an engine with one container that runs; whatever would end it is noted."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def state(self, _: str) -> Any:
        return SimpleNamespace(running=True, paused=False)

    async def execute(self, *given: Any) -> None:
        self.ended.append("interrupt")

    async def kill(self, *given: Any) -> None:
        self.ended.append("kill")


async def test_a_permit_that_has_expired_when_its_turn_comes_ends_nothing():
    few, engine = asyncio.Semaphore(1), Engine()
    found: Any = SimpleNamespace(reference=SimpleNamespace(container="c1", runner="eph-1"), options=None)
    given: Any = (engine, None, found, None, few)
    good = True

    def holds() -> None:
        if not good:
            raise Refused("the permit has expired")

    async with few:
        waiting = asyncio.create_task(Ending(*given).end(holds))
        await asyncio.sleep(0)
        good = False
    with pytest.raises(Refused):
        await waiting
    assert engine.ended == []
    assert not few.locked()
