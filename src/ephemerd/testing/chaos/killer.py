"""Kills the daemon, and the engine of its containers, at random instants, by the seed, and starts them again."""

from __future__ import annotations

import asyncio
import random
import signal

from ephemerd.testing.chaos.stage import ChaosStage
from ephemerd.testing.demo.clients import until
from ephemerd.testing.demo.narrator import Narrator
from ephemerd.testing.engines.own import OwnEngine

STARTING_S = (0.0, 1.2)
"""From the start of the program, whether or not it came to anything: configuration, store, adoption."""
YOUNG_S = (0.0, 0.6)
"""From the moment when it takes deliveries: the first listings, probes and repairs."""
WORKING_S = (0.5, 6.0)
AWAY_S = (0.0, 1.5)
ENGINE_WORKING_S = (0.0, 2.0)
WORK_WITHIN_S = 60.0
SHARES = {"starting": 0.2, "young": 0.3, "working": 0.5}


class Killer:
    """Kills so often as asked. ``done`` is how often it did."""

    def __init__(self, stage: ChaosStage, narrator: Narrator, *, kills: int, seed: int) -> None:
        self.stage = stage
        self.tell = narrator
        self.kills = kills
        self.done = 0
        self._rng = random.Random(f"{seed}:kills")
        self._progress = asyncio.Condition()

    async def has_done(self, share: float) -> None:
        """Return once so much of the killing is done."""
        async with self._progress:
            await self._progress.wait_for(lambda: self.done >= share * self.kills)

    async def run(self) -> None:
        """Kill and start again; returns when the daemon is ready after the last kill."""
        for number in range(self.kills):
            # What has just been started is killed while it starts only from the second kill on.
            await self._let_live(allow_starting=number > 0)
            await self.stage.kill_daemon()
            async with self._progress:
                self.done += 1
                self._progress.notify_all()
            if self.done % 10 == 0 or self.done == self.kills:
                self.tell.say(f"the daemon was killed for the {self.done}. time", "act")
            if self._rng.random() < 0.5:
                await asyncio.sleep(self._rng.uniform(*AWAY_S))
            await self.stage.spawn_daemon()
        await self.stage.daemon_ready()

    async def _let_live(self, *, allow_starting: bool) -> None:
        [age] = self._rng.choices(list(SHARES), list(SHARES.values()))
        if age == "starting" and allow_starting:
            await asyncio.sleep(self._rng.uniform(*STARTING_S))
            return
        await self.stage.daemon_ready()
        await asyncio.sleep(self._rng.uniform(*(YOUNG_S if age == "young" else WORKING_S)))


class EngineKiller:
    """Ends the engine so often, spread over the daemon's deaths: SIGTERM, SIGKILL, and so on. With live restore no
    container goes with it. ``done`` is how often it did, ``at_work`` how often while a job was at work."""

    def __init__(
        self,
        stage: ChaosStage,
        engine: OwnEngine,
        killer: Killer,
        narrator: Narrator,
        *,
        kills: int,
        seed: int,
    ) -> None:
        self.stage = stage
        self.engine = engine
        self.killer = killer
        self.tell = narrator
        self.kills = kills
        self.done = 0
        self.at_work = 0
        self._rng = random.Random(f"{seed}:engine")

    async def run(self) -> None:
        """End it and start it again; returns when it answers after the last time."""
        for number in range(self.kills):
            await self.killer.has_done(number / self.kills)
            if await until(self._somebody_works, WORK_WITHIN_S):
                await asyncio.sleep(self._rng.uniform(*ENGINE_WORKING_S))
            self.at_work += await self._somebody_works()
            how = signal.SIGKILL if number % 2 else signal.SIGTERM
            await asyncio.to_thread(self.engine.stop_engine, how)
            await asyncio.sleep(self._rng.uniform(*AWAY_S))
            await asyncio.to_thread(self.engine.start_engine)
            self.done += 1
            self.tell.say(f"the engine was ended by {how.name} and started again", "act")

    async def _somebody_works(self) -> bool:
        return any(job["status"] == "in_progress" for job in (await self.stage.forge.state())["jobs"])
