"""The demo's stage, with a daemon that may be away at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx2

from ephemerd.testing.demo.clients import Daemon
from ephemerd.testing.demo.options import DemoError, DemoOptions
from ephemerd.testing.demo.stage import Stage

AWAY_S = 120.0
"""So long may the daemon be away before a question to it fails."""
AGAIN_S = 0.1
JOB_TIMEOUT_S = 3600.0
"""Far above any job of the weathers. It only brings the hard bound of a wedged worker near enough to be met: without
one, a worker that never ends would be held until long after the play."""

T = TypeVar("T")


def demo_options(**chosen: Any) -> DemoOptions:
    """The demo's options that chaos plays with."""
    return DemoOptions(headless=True, as_json=True, act=False, job_timeout_s=JOB_TIMEOUT_S, **chosen)


class PatientDaemon(Daemon):
    """The daemon's API: a question that finds nobody, or dies with the daemon, is asked again."""

    async def get(self, path: str, **query: Any) -> Any:
        return await _patiently(lambda: super(PatientDaemon, self).get(path, **query))

    async def kill(self, runner: str, reason: str) -> int:
        return await _patiently(lambda: super(PatientDaemon, self).kill(runner, reason))

    async def metric(self, name: str) -> int:
        return await _patiently(lambda: super(PatientDaemon, self).metric(name))


class ChaosStage(Stage):
    """Watches the daemon's accounting of slots while it looks at its runners."""

    slot_error = 0

    def _client(self) -> Daemon:
        return PatientDaemon(self.places.socket)

    async def look(self) -> None:
        """Remember the runners, and the greatest difference between slots held and runners that hold one."""
        status = await self.daemon.get("/api/v1/status")
        self.slot_error = max(self.slot_error, abs(int(status["slot_accounting_difference"])))
        await self.daemon.look()


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + AWAY_S
    while True:
        try:
            return await ask()
        except (httpx2.HTTPError, DemoError):
            if loop.time() > deadline:
                raise
            await asyncio.sleep(AGAIN_S)
