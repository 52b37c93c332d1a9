"""Outages of the REST interface, as the weather plans them or the admin API orders them.

The broker (what runners talk to) stays up: an outage here is one of the API, the kind that a runner manager has
to survive without mistaking silence for absence.
"""

from __future__ import annotations

import asyncio

from ephemerd.testing.forge_sim.deliveries import Deliverer
from ephemerd.testing.forge_sim.world import World
from ephemerd.testing.weather import OutageKind


class Outages:
    """Whether REST is out of order now, and how it shows."""

    def __init__(self, world: World, deliverer: Deliverer) -> None:
        self.world = world
        self.deliverer = deliverer
        self.kind: OutageKind | None = None
        self.until_mono = 0.0

    def begin(self, kind: OutageKind, seconds: float) -> None:
        """Begin an outage that lasts so many seconds of real time."""
        loop = asyncio.get_running_loop()
        self.kind = kind
        self.until_mono = loop.time() + seconds
        self.deliverer.outage = True
        self.world.truth.add("outage", state="begins", what=kind)
        until = self.until_mono
        self.world.later(seconds, lambda: self._end(until))

    def end(self) -> None:
        """End the outage now, if there is one."""
        if self.kind is not None:
            self.world.truth.add("outage", state="ends", what=self.kind)
        self.kind = None
        self.deliverer.outage = False

    def _end(self, until: float) -> None:
        if self.until_mono == until:
            self.end()

    def seconds_left(self) -> float:
        """How long the present outage still lasts; 0 without one."""
        if self.kind is None:
            return 0.0
        return max(0.0, self.until_mono - asyncio.get_running_loop().time())

    async def follow_weather(self) -> None:
        """Begin outages for ever as the weather says; returns at once where it has none."""
        weather, rng = self.world.weather, self.world.rng("outages")
        if weather.outage_every is None or weather.outage_lasts is None:
            return
        while True:
            await asyncio.sleep(weather.outage_every.draw(rng))
            lasts = weather.outage_lasts.draw(rng)
            self.begin(weather.draw_outage_kind(rng), lasts)
            await asyncio.sleep(lasts)
