"""Who gets which job: any queued job to any idle matching runner, in an order drawn from the seed.

Just-in-time runners are fungible (github.md, section 13): which demand a runner was made for plays no role. The
delay between "a job waits and a matching runner listens" and the offer is the weather's ``assign``.
"""

from __future__ import annotations

import random

from ephemerd.testing.forge_sim.companies import Company
from ephemerd.testing.forge_sim.model import Job, JobStatus, Runner
from ephemerd.testing.forge_sim.offers import Offers
from ephemerd.testing.forge_sim.world import Refused, World


def satisfies(runner: Runner, job: Job) -> bool:
    """Whether the job's labels are a subset of the runner's, without regard to case, in the same scope and in a
    group that lets the repository in.

    A job without labels is asked for by runner group only; no repository runner serves it here.
    """
    repository = job.run.repository
    if isinstance(runner.scope, Company):
        there = runner.scope.serves(repository, runner.group_id)
    else:
        there = runner.scope is repository
    if not job.labels or not there:
        return False
    return {label.strip().lower() for label in job.labels} <= {
        label.strip().lower() for label in runner.labels
    }


class Assigner:
    """Hands jobs out. While ``paused`` nothing is assigned."""

    def __init__(self, world: World, offers: Offers) -> None:
        self.world = world
        self.offers = offers
        self.paused = False
        self._pending = 0

    def poke(self) -> None:
        """Something changed: make sure that enough assignments are on their way."""
        if self.paused:
            return
        rng = self.world.rng("assign")
        wanted = len(self._pairs(rng))
        while self._pending < wanted:
            self._pending += 1
            self.world.later(self.world.weather.assign.draw(rng), self._fire)

    def _fire(self) -> None:
        self._pending -= 1
        if self.paused:
            return
        pairs = self._pairs(self.world.rng("assign"))
        if pairs:
            self.offers.assign(*pairs[0])
        self.poke()

    def _pairs(self, rng: random.Random) -> list[tuple[Job, Runner]]:
        """A matching of free jobs to idle runners, both taken in a shuffled order."""
        runners = [runner for runner in self.world.runners.values() if self._idle(runner)]
        if not runners:
            return []
        jobs = self._free_jobs()
        rng.shuffle(runners)
        rng.shuffle(jobs)
        reserved = {job.pinned: job for job in self.world.jobs.values() if job.pinned and not job.ended}
        pairs = []
        for job in jobs:
            for runner in runners:
                if self._allowed(job, runner, reserved) and satisfies(runner, job):
                    pairs.append((job, runner))
                    runners.remove(runner)
                    break
        return pairs

    def _idle(self, runner: Runner) -> bool:
        return runner.offer is None and not runner.spent and self.world.online(runner)

    def _free_jobs(self) -> list[Job]:
        """Jobs that may start now, no more of a run than its max-parallel allows."""
        free: list[Job] = []
        room: dict[int, int] = {}
        for job in self.world.jobs.values():
            if job.status is not JobStatus.QUEUED or job.offer is not None or job.held:
                continue
            limit = job.run.max_parallel
            if limit is not None:
                if job.run.id not in room:
                    active = sum(1 for j in job.run.jobs if not j.ended and (j.offer or j.foreign))
                    room[job.run.id] = limit - active
                if room[job.run.id] <= 0:
                    continue
                room[job.run.id] -= 1
            free.append(job)
        return free

    @staticmethod
    def _allowed(job: Job, runner: Runner, reserved: dict[str, Job]) -> bool:
        if job.pinned is not None:
            return job.pinned == runner.name
        return runner.name not in reserved

    # For scripted acts

    def pause(self) -> None:
        """Stop handing out jobs; what is assigned stays."""
        self.paused = True

    def resume(self) -> None:
        """Hand out jobs again."""
        self.paused = False
        self.poke()

    def pin(self, job: Job, runner_name: str | None) -> None:
        """Let only the named runner have ``job``, and nothing else have that runner; None lifts it."""
        if job.offer is not None:
            raise Refused(409, f"job {job.id} is assigned already")
        job.pinned = runner_name
        self.poke()

    def permute(self, made_for: dict[str, int]) -> dict[str, int]:
        """Pin the jobs to the runners so that no runner gets the job it was made for.

        ``made_for`` maps runner names to job ids, two at least. Returns the pinned assignment. The
        permutation is a cycle through a shuffled order, so it has no fixed point.
        """
        names = list(made_for)
        if len(names) < 2 or len(set(made_for.values())) != len(names):
            raise Refused(
                422, "a permutation without a fixed point takes two runners or more, each with its job"
            )
        self.world.rng("permute").shuffle(names)
        turned = names[1:] + names[:1]
        result = {name: made_for[other] for name, other in zip(names, turned, strict=True)}
        for name, job_id in result.items():
            self.pin(self.world.jobs[job_id], name)
        return result
