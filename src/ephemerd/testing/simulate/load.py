"""What the weather puts on a run: bursts, extra jobs, outages, a person who wants runners gone."""

from __future__ import annotations

import random
from collections.abc import Callable

from ephemerd.core import events as ev
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.labels import normalise
from ephemerd.domain.pool import Host, Policy, Pool, Setup
from ephemerd.testing.simulate.driver import ModelDaemon
from ephemerd.testing.simulate.forge import draw
from ephemerd.testing.simulate.truth import Matrix, Outcome, TrueJob
from ephemerd.testing.weather import Weather

APP, LIB = Scope("github", "repo:acme/app"), Scope("github", "repo:acme/lib")
LINUX = normalise(("self-hosted", "linux", "x64"))
BIG = normalise(("self-hosted", "linux", "x64", "big"))
ARM = normalise(("self-hosted", "linux", "arm64"))
LOADS = ((APP, LINUX, 0.6), (APP, BIG, 0.2), (LIB, ARM, 0.2))
SHARES = [share for _, _, share in LOADS]
APPROVED_AFTER = (5_000, 1_800_000)
RERUN_AFTER = (2_000, 120_000)
REJECTED = 0.1
"""One in so many jobs that wait for an approval never gets it."""


def default_setup(weather: Weather, policy: Policy | None = None) -> Setup:
    """Return three pools of two scopes on one host with the weather's slots."""
    slots = weather.slots
    pools = (
        Pool("linux", APP, LINUX, "local", "process", max_concurrent=slots),
        Pool("big", APP, BIG, "local", "process", max_concurrent=slots),
        Pool("arm", LIB, ARM, "local", "process", max_concurrent=slots),
    )
    return Setup(pools, (Host("local", slots),), policy or Policy())


class Load:
    """Queues `wanted` jobs and what belongs to them; `queued` is told of each."""

    def __init__(
        self,
        daemon: ModelDaemon,
        weather: Weather,
        rng: random.Random,
        outcome: Outcome,
        wanted: int,
        queued: Callable[[], None],
    ) -> None:
        self.daemon, self.weather, self.rng, self.outcome = daemon, weather, rng, outcome
        self.wanted = wanted
        self.made = 0
        self.outage_total = 0
        self._queued = queued
        self._next_job = 100
        self._pending = 0

    def begin(self) -> None:
        """Let it come."""
        self.daemon.runtime.acquired = self._acquired
        self.daemon.time.after(2_000, self._burst)
        if self.weather.outage_every is not None:
            self.daemon.time.after(draw(self.weather.outage_every, self.rng), self._outage)

    def over(self) -> bool:
        """Say whether every job is over and none is to come."""
        return self.made >= self.wanted and self._pending == 0 and not self.daemon.forge.open

    def _burst(self) -> None:
        if self.made >= self.wanted:
            return
        scope, labels, _ = self.rng.choices(LOADS, SHARES)[0]
        count = min(self.weather.draw_burst(self.rng), self.wanted - self.made)
        matrix = self._matrix(count)
        for _ in range(count):
            self.made += 1
            self._job(scope, labels, matrix, siblings=count > 1)
            self._extras(scope, labels)
        self.daemon.time.after(draw(self.weather.gap, self.rng), self._burst)

    def _matrix(self, count: int) -> Matrix | None:
        """A burst may be the matrix of one run that lets only some of its jobs be under way at once."""
        if count < 2 or self.rng.random() >= self.weather.max_parallel:
            return None
        self.outcome.happened("max_parallel")
        return Matrix(self.rng.randint(1, max(1, count // 2)))

    def _job(self, scope: Scope, labels: tuple[str, ...], matrix: Matrix | None, *, siblings: bool) -> None:
        job = self._queue(scope, labels, matrix=matrix, siblings=siblings)
        if self.weather.operator_kill and self.rng.random() < self.weather.operator_kill:
            job.unwanted = True
        if self.weather.rerun and self.rng.random() < self.weather.rerun:
            self._later(*RERUN_AFTER, self._rerun, job)

    def _extras(self, scope: Scope, labels: tuple[str, ...]) -> None:
        """The weather's extra jobs, each with its own share."""
        weather, rng = self.weather, self.rng
        if rng.random() < weather.cancelled_queued:
            self._later(500, 10_000, self._cancel, self._queue(scope, labels, siblings=True, counted=False))
        if rng.random() < weather.foreign_taken:
            self._later(200, 3_000, self._take, self._queue(scope, labels, siblings=True, counted=False))
        if weather.approval and rng.random() < weather.approval:
            self.outcome.happened("approval")
            self._later(
                *APPROVED_AFTER,
                self._decide,
                self._queue(scope, labels, siblings=True, counted=False, waiting=True),
            )
        trick = weather.completed_cancelled_then_other_job
        if trick and rng.random() < trick:
            self._queue(scope, labels, siblings=True, counted=False, trick=True)

    def _later(self, lo: int, hi: int, call: Callable[[TrueJob], None], job: TrueJob) -> None:
        self._pending += 1
        self.daemon.time.after(self.rng.randint(lo, hi), self._now, call, job)

    def _now(self, call: Callable[[TrueJob], None], job: TrueJob) -> None:
        self._pending -= 1
        call(job)

    def _queue(
        self,
        scope: Scope,
        labels: tuple[str, ...],
        *,
        counted: bool = True,
        waiting: bool = False,
        trick: bool = False,
        attempt: int = 1,
        matrix: Matrix | None = None,
        siblings: bool = False,
    ) -> TrueJob:
        self._next_job += 1
        key = JobKey(scope.forge, scope.target, self._next_job)
        job = self.daemon.forge.queue(
            key,
            labels,
            draw(self.weather.job, self.rng),
            counted=counted,
            waiting=waiting,
            trick=trick,
            attempt=attempt,
            matrix=matrix,
            siblings=siblings,
        )
        self._queued()
        return job

    def _acquired(self, job: TrueJob, runner: str) -> None:
        """A runner begins a job during which a person will ask to kill it."""
        if job.unwanted:
            job.unwanted = False
            self.outcome.happened("operator_kill")
            self.daemon.time.after(int(self.rng.random() * job.duration), self._ask_kill, runner)

    def _ask_kill(self, runner: str) -> None:
        self.daemon.handle(ev.KillOrdered("operator", RunnerId(runner), "cleaning up"))

    def _cancel(self, job: TrueJob) -> None:
        """Somebody cancels a job that still waits in the queue."""
        if job.key.id in self.daemon.forge.queued:
            job.fate = "cancelled"
            self.outcome.cancelled += 1
            self.daemon.forge.finish(job, "cancelled")

    def _take(self, job: TrueJob) -> None:
        """Somebody else's runner takes a job that still waits in the queue."""
        forge = self.daemon.forge
        if job.key.id in forge.queued:
            job.fate = "foreign"
            self.outcome.foreign += 1
            forge.start(job, "somebody-elses", 7)
            self.daemon.time.after(job.duration, forge.finish, job, "success")

    def _decide(self, job: TrueJob) -> None:
        """A person approves a waiting job, or does not."""
        if self.rng.random() < REJECTED:
            job.fate = "rejected"
            self.daemon.forge.finish(job, "failure")
        else:
            self.daemon.forge.approve(job)

    def _rerun(self, job: TrueJob) -> None:
        """Run an ended job once more: a new id; and the old end is told again (github.md 10.3)."""
        if job.status != "completed":
            self._later(*RERUN_AFTER, self._rerun, job)
            return
        self.outcome.happened("rerun")
        scope = APP if APP.serves(job.key) else LIB
        self._queue(scope, job.labels, counted=False, attempt=job.attempt + 1)
        self.daemon.forge.tell(job)

    def _outage(self) -> None:
        if self.weather.outage_every is None or self.weather.outage_lasts is None or self.over():
            return
        lasts = draw(self.weather.outage_lasts, self.rng)
        self.daemon.forge.outage_kind = self.weather.draw_outage_kind(self.rng)
        self.daemon.forge.outage_until = self.daemon.time.now + lasts
        self.outage_total += lasts
        self.daemon.time.after(lasts + draw(self.weather.outage_every, self.rng), self._outage)
