"""The random part: bursts of same-label jobs by the seed, extra jobs that come to nothing, and an operator."""

from __future__ import annotations

import asyncio
import random

from ephemerd.testing.demo.clients import Daemon, Forge
from ephemerd.testing.demo.narrator import Narrator
from ephemerd.testing.demo.rough import Rough
from ephemerd.testing.demo.settings import BURST_LABELS
from ephemerd.testing.demo.stage import Stage

EXTRA_LIVES_S = (0.5, 6.0)
"""An extra job waits so long, real time, before it is cancelled or taken: some before, some after its runner is up."""
LOOK_EVERY_S = 4.0
KILL_REASON = "the demo's operator asks without force"


class Bursts:
    """Queues jobs in bursts with the weather's gaps."""

    def __init__(self, stage: Stage, narrator: Narrator) -> None:
        self.options = stage.options
        self.weather = stage.weather.scaled(stage.options.time_scale)
        self.forge: Forge = stage.forge
        self.daemon: Daemon = stage.daemon
        self.tell = narrator
        self.rough = Rough(stage, narrator)
        self.rng = random.Random(f"{stage.options.seed}:bursts")
        self.jobs: list[int] = []
        self.kills = {"asked": 0, "vetoed": 0, "too_late": 0, "accepted": 0}

    async def play(self, act_over: asyncio.Event) -> None:
        """Queue everything, and return when the last extra job has met its end.

        An outage waits for ``act_over``: the act's last scene needs a forge that answers.
        """
        async with asyncio.TaskGroup() as group:
            while len(self.jobs) < self.options.jobs:
                if self.jobs:
                    await asyncio.sleep(self.weather.gap.draw(self.rng))
                if self.rough.outage_is_due(len(self.jobs), self.options.jobs):
                    await act_over.wait()
                    await self.rough.outage()
                await self._burst(group)
        await self.daemon.look()

    async def _burst(self, group: asyncio.TaskGroup) -> None:
        left = self.options.jobs - len(self.jobs)
        size = min(self.weather.draw_burst(self.rng), self.options.burst, left)
        extras = [
            *("cancelled" for _ in range(size) if self.rng.random() < self.weather.cancelled_queued),
            *("foreign" for _ in range(size) if self.rng.random() < self.weather.foreign_taken),
        ]
        width = self.rough.width(size)
        queued = await self.forge.queue(BURST_LABELS, size, tag="counted", max_parallel=width)
        self.jobs += queued
        self.rough.besides(queued, group)
        for end in extras:
            [extra] = await self.forge.queue(BURST_LABELS, 1, tag="extra", held=True)
            group.create_task(self._end_extra(extra, end, self.rng.uniform(*EXTRA_LIVES_S)))
        for job in queued:
            if self.rng.random() < self.weather.operator_kill:
                group.create_task(self._ask_to_kill(job))
        besides = f", and {len(extras)} that will come to nothing" if extras else ""
        besides += f", at most {width} of them under way at once" if width else ""
        self.tell.say(
            f"a burst of {size} {'job' if size == 1 else 'jobs'}{besides} ({len(self.jobs)} so far)"
        )

    async def _end_extra(self, job: int, end: str, after: float) -> None:
        await asyncio.sleep(after)
        if end == "cancelled":
            await self.forge.admin(f"/jobs/{job}/cancel")
            self.tell.say(f"job {job} is cancelled while it waits", "quiet")
        else:
            await self.forge.admin(f"/jobs/{job}/foreign", runner=f"another-host-{job % 1000}")
            self.tell.say(f"job {job} is taken by somebody else's runner", "quiet")

    async def _ask_to_kill(self, job: int) -> None:
        """Ask the daemon to end the runner of a job while it works, without force: it has to say no."""
        await self.forge.wait("jobs_started", 120, jobs=str(job))
        [row] = [row for row in (await self.forge.state())["jobs"] if row["id"] == job]
        if row["status"] == "completed" or row["runner"] is None:
            self.kills["too_late"] += 1
            return
        status = await self.daemon.kill(row["runner"], KILL_REASON)
        self.kills["asked"] += 1
        self.kills["accepted" if status == 200 else "vetoed"] += 1
        answer = "refused" if status != 200 else "done"
        self.tell.say(
            f"an operator asks to kill {row['runner']}, which is at work: {answer} ({status})", "good"
        )
