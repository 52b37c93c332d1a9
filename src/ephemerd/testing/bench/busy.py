"""`python -m ephemerd.testing.bench.busy CONFIG API`: the daemon as `serve` runs it, with jobs at a steady rate.

Forge and runtime are the soak's, in memory, because no ordinary machine starts 100 processes a second; clock, store,
webhook port, API and dashboard are real. Deliveries come over HTTP: what is to be sent is written to stdout, a line
each, for somebody else to sign and send, so that no sender's work is measured with the daemon's. API is where to serve
it without a token.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from ephemerd import bootstrap
from ephemerd.app.daemon import Daemon
from ephemerd.bootstrap import Parts
from ephemerd.config.effective import Effective, load_settings
from ephemerd.domain.job import JobReport
from ephemerd.serving import Wishes, serve
from ephemerd.testing.bench.programs import LABELS
from ephemerd.testing.soak import world as soak
from ephemerd.testing.soak.world import Rates, World, WorldForge, WorldRuntime

PER_SECOND = 100.0
LASTS = 0.5
"""Seconds that a job takes on average."""
BOOT, NOTICE, LEAVE = 0.2, 0.05, 0.1
"""The soak's pauses as this world has them, in seconds."""
ENOUGH = 10**9

whole = bootstrap.build


class SteadyWorld(World):
    """A world in real time, in which jobs arrive when they are due, however late the last one was."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(ENOUGH, 1 / PER_SECOND, LASTS, rates=Rates(0.02, 0.0, 0.0, 0.0))
        self._daemon = daemon
        self._due = 0.0
        self.deliver = self._tell_of

    def begin(self) -> None:
        self._due = self.loop.time() + self.gap
        super().begin()

    def now(self) -> int:
        return self._daemon.ports.clock.now()

    def _arrive(self) -> None:
        self._due += 1 / PER_SECOND
        self.gap = max(0.0, self._due - self.loop.time())
        super()._arrive()

    async def _tell_of(self, name: str, report: JobReport) -> bool:
        words = (report.key.id, report.status.value, report.runner_name or "-", report.conclusion or "-")
        print(*words, flush=True)
        return True


class Begin:
    """Lets jobs arrive once the daemon has begun."""

    def __init__(self, world: World, daemon: Daemon) -> None:
        self._world = world
        self._daemon = daemon

    def begin(self) -> None:
        self._task = asyncio.create_task(self._begin())

    async def _begin(self) -> None:
        await self._daemon.booted()
        self._world.begin()

    async def close(self) -> None:
        self._task.cancel()


def build(effective: Effective) -> Parts:
    """Make everything from the configuration, and put the world in the place of its forge and runtime."""
    parts = whole(effective)
    world, ports = SteadyWorld(parts.daemon), parts.daemon.ports
    ports.forges = {name: WorldForge(world) for name in ports.forges}
    runtime = WorldRuntime(world)
    ports.runtimes = dict.fromkeys(ports.runtimes, runtime)
    parts.daemon.accompany(Begin(world, parts.daemon))
    return parts


if __name__ == "__main__":
    soak.LABELS = LABELS  # type: ignore[assignment]
    soak.BOOT, soak.NOTICE, soak.LEAVE = BOOT, NOTICE, LEAVE
    bootstrap.build = build
    wishes = Wishes(log_format="json", log_level="warning", open_api=sys.argv[2])
    sys.exit(serve(load_settings(Path(sys.argv[1]), {}), wishes))
