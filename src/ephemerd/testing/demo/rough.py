"""What only the rough weathers bring to the bursts: an outage, approvals, matrices of limited width, re-runs.

The weather's own outages are far apart even in scaled time, so a short demo would mostly meet none. One is therefore
ordered in the second half of the bursts, with a kind and a length drawn from the weather; its own come on top.
"""

from __future__ import annotations

import asyncio
import random

from ephemerd.testing.demo.clients import Forge
from ephemerd.testing.demo.narrator import Narrator
from ephemerd.testing.demo.settings import BURST_LABELS
from ephemerd.testing.demo.stage import Stage
from ephemerd.testing.weather import Uniform

APPROVED_AFTER = Uniform(5.0, 1800.0)
"""Seconds that a job waits for its approval; scaled."""
REJECTED = 0.1
"""One in so many waiting jobs is turned down instead."""
RERUN_AFTER = Uniform(2.0, 120.0)
"""Seconds from the end of a run to the order to run one of its jobs again; scaled."""
RUN_ENDS_WITHIN_S = 100.0


class Rough:
    """Draws from a stream of its own, so that the bursts of a seed are the same in every weather, and at once, so that
    the draws do not depend on what takes how long."""

    def __init__(self, stage: Stage, narrator: Narrator) -> None:
        factor = stage.options.time_scale
        self.weather = stage.weather.scaled(factor)
        self.approved_after, self.rerun_after = APPROVED_AFTER.scaled(factor), RERUN_AFTER.scaled(factor)
        self.forge: Forge = stage.forge
        self.tell = narrator
        self.rng = random.Random(f"{stage.options.seed}:rough")
        self._outage_came = False

    def outage_is_due(self, queued: int, wanted: int) -> bool:
        """Whether now, with so many of the wanted jobs queued, is the time for the outage."""
        return self.weather.outage_lasts is not None and not self._outage_came and 2 * queued >= wanted

    async def outage(self) -> None:
        """Let the API be out of order from now on; it recovers by itself."""
        assert self.weather.outage_lasts is not None
        self._outage_came = True
        kind, lasts = self.weather.draw_outage_kind(self.rng), self.weather.outage_lasts.draw(self.rng)
        await self.forge.admin("/outage", kind=kind, seconds=lasts)
        self.tell.say(
            f"the forge's API is out of order for {lasts:.0f} s ({kind}), deliveries come late", "act"
        )

    def width(self, size: int) -> int | None:
        """How many jobs of a burst may be under way at once, if it is a matrix that says so."""
        if size < 2 or self.rng.random() >= self.weather.max_parallel:
            return None
        return self.rng.randint(1, size // 2)

    def besides(self, queued: list[int], group: asyncio.TaskGroup) -> None:
        """Start what comes with a burst: jobs that wait for an approval, and one job that is run again."""
        for _ in queued:
            if self.rng.random() < self.weather.approval:
                rejected, after = self.rng.random() < REJECTED, self.approved_after.draw(self.rng)
                group.create_task(self._wait_for_approval(after, rejected=rejected))
        again = [job for job in queued if self.rng.random() < self.weather.rerun]
        if again:
            group.create_task(self._rerun(again[0], queued, self.rerun_after.draw(self.rng)))

    async def _wait_for_approval(self, after: float, *, rejected: bool) -> None:
        [job] = await self.forge.queue(BURST_LABELS, 1, tag="extra", waiting=True)
        self.tell.say(f"job {job} waits for an approval", "quiet")
        await asyncio.sleep(after)
        await self.forge.admin(f"/jobs/{job}/{'cancel' if rejected else 'approve'}")
        self.tell.say(f"job {job} is {'turned down' if rejected else 'approved'}", "quiet")

    async def _rerun(self, job: int, run: list[int], after: float) -> None:
        """Run one job again once its run has ended; a run that takes too long is left alone."""
        if not await self.forge.wait("jobs_ended", RUN_ENDS_WITHIN_S, jobs=",".join(map(str, run))):
            return
        await asyncio.sleep(after)
        [again] = (await self.forge.admin(f"/jobs/{job}/rerun"))["jobs"]
        self.tell.say(f"job {job} is run again, as {again}; its old end is told once more", "quiet")
