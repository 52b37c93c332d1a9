"""The state of the look-alike and every change that can happen to repositories, runs, jobs and registrations.

All of it runs in one event loop, so nothing here needs a lock. What a runner does with a job it was given is in
``offers.py``, who gets which job in ``assignment.py``, what is sent to webhooks in ``deliveries.py``.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ephemerd.testing.forge_sim.applications import Applications
from ephemerd.testing.forge_sim.companies import Company
from ephemerd.testing.forge_sim.model import (
    Fault,
    Job,
    JobStatus,
    Repository,
    Run,
    Runner,
)
from ephemerd.testing.forge_sim.truth import TruthLog
from ephemerd.testing.weather import RefusesFrom, Weather, scale_seconds

ONLINE_FOR_S = 60.0
"""A runner reads online until so long after its last poll ended [unv]; scaled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job to be queued. ``duration_s`` is real time; None draws it from the weather. Deliveries about a
    ``prompt`` job are neither delayed nor lost, for scripted acts."""

    labels: tuple[str, ...]
    name: str = ""
    duration_s: float | None = None
    wanted: str = "success"
    waiting: bool = False
    pending: bool = False
    held: bool = False
    prompt: bool = False
    tag: str = ""


class Refused(Exception):
    """A change that the forge refuses; ``status`` is the HTTP status that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class World:
    """Everything the look-alike knows. Durations of the weather are already scaled for real time."""

    def __init__(self, weather: Weather, *, seed: int, time_scale: float, truth: TruthLog) -> None:
        self.weather = weather.scaled(time_scale)
        self.seed = seed
        self.time_scale = time_scale
        self.truth = truth
        self.base_url = ""
        self.refuses_from: RefusesFrom = weather.refuses_from
        self.repositories: dict[str, Repository] = {}
        self.moved: dict[str, Repository] = {}
        self.companies: dict[tuple[str, str], Company] = {}
        self.jobs: dict[int, Job] = {}
        self.runners: dict[int, Runner] = {}
        self.applications = Applications()
        self.faults_for_next: list[tuple[Fault, str]] = []
        self.sparing = False
        self.closing = asyncio.Event()
        self.on_job: Callable[[Job, str, float], None] = lambda job, action, skew: None
        self.on_change: Callable[[], None] = lambda: None
        self._rngs: dict[str, random.Random] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._job_ids = itertools.count(50_000_000_001)
        self._run_ids = itertools.count(40_000_000_001)
        self._runner_ids = itertools.count(4001)
        self._repository_ids = itertools.count(9_000_000_101)
        truth.add(
            "forge_started",
            weather=weather.name,
            seed=seed,
            time_scale=time_scale,
            refuses_from=self.refuses_from,
        )

    # Services for everyone

    def rng(self, subject: str) -> random.Random:
        """The random stream of one subject; streams do not disturb one another."""
        if subject not in self._rngs:
            self._rngs[subject] = random.Random(f"{self.seed}:{subject}")
        return self._rngs[subject]

    def seconds(self, seconds: float) -> float:
        """A duration of the forge's own rules as it is in this run (scaled if above 10 s)."""
        return scale_seconds(seconds, self.time_scale)

    def later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        """Call ``call`` after so many (already scaled) seconds."""
        return asyncio.get_running_loop().call_later(seconds, call)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` in the background; an error in it is an error of the look-alike and is not swallowed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End every background task."""
        self.closing.set()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Repositories, runs, jobs

    def add_repository(self, full_name: str, *, private: bool = True) -> Repository:
        """Add ``owner/name``, or return it if it exists. Names are compared without regard to case."""
        key = full_name.lower()
        if key not in self.repositories:
            owner, name = full_name.split("/", 1)
            self.repositories[key] = Repository(next(self._repository_ids), owner, name, private)
        return self.repositories[key]

    def rename_repository(self, repository: Repository, full_name: str) -> None:
        """Give a repository another name; whoever asks by the old one is sent to its number."""
        old = repository.full_name.lower()
        repository.owner, repository.name = full_name.split("/", 1)
        self.repositories[full_name.lower()] = self.repositories.pop(old)
        self.moved[old] = repository

    def remove_repository(self, repository: Repository) -> None:
        """Remove a repository with all that is in it."""
        del self.repositories[repository.full_name.lower()]
        for run in repository.runs.values():
            for job in run.jobs:
                self.finish(job, "cancelled", "repository removed")

    def company(self, kind: str, login: str, *, create: bool = False) -> Company | None:
        """Find an organization or enterprise. An owner of repositories is an organization here."""
        key = (kind, login.lower())
        owner = next((one.owner for one in self.repositories.values() if one.owner.lower() == key[1]), None)
        if key not in self.companies and (create or (kind == "org" and owner is not None)):
            self.companies[key] = Company("org" if kind == "org" else "enterprise", owner or login)
        return self.companies.get(key)

    def places(self) -> Iterator[Repository | Company]:
        """Everything that may have hooks of its own, Apps aside."""
        yield from self.repositories.values()
        yield from self.companies.values()

    def queue_run(
        self,
        repository: Repository,
        specs: Sequence[JobSpec],
        *,
        max_parallel: int | None = None,
        fork: str = "",
        branch: str = "main",
        pushed: bool = True,
    ) -> Run:
        """Queue one run with these jobs at one instant and announce each of them; `fork` as in `Run`. Not `pushed`:
        by hand or by the clock, which the list of repositories does not show."""
        number = next(self._run_ids)
        run = Run(number, repository, f"CI {number % 1000}", time.time(), max_parallel, fork, branch)
        if fork and fork != "deleted":
            repository.forks = max(repository.forks, 1)
        repository.runs[run.id] = run
        if pushed:
            repository.pushed_at = run.created_at
        skew = self.weather.sibling_skew if len(specs) > 1 else None
        for index, spec in enumerate(specs):
            job = self._add_job(run, spec, spec.name or f"build ({index + 1})")
            self._announce(job, skew.draw(self.rng("webhooks")) if skew else 0.0)
        self.on_change()
        return run

    def _add_job(self, run: Run, spec: JobSpec, name: str) -> Job:
        duration = spec.duration_s
        if duration is None:
            duration = self.weather.job.draw(self.rng("jobs"))
        job = Job(
            id=next(self._job_ids),
            run=run,
            attempt=run.attempt,
            name=name,
            labels=spec.labels,
            duration_s=duration,
            created_at=time.time(),
            tag=spec.tag,
            wanted=spec.wanted,
            prompt=spec.prompt,
            status=_first_status(spec),
            held=spec.held,
        )
        run.jobs.append(job)
        self.jobs[job.id] = job
        return job

    def _announce(self, job: Job, skew: float = 0.0) -> None:
        if job.status is JobStatus.PENDING:
            self.truth.add("job_waiting", job=job.id)
            return  # there is no such action [doc]
        if job.status is JobStatus.WAITING:
            self.truth.add("job_waiting", job=job.id)
            self.on_job(job, "waiting", skew)
            return
        self.truth.add(
            "job_queued",
            job=job.id,
            run=job.run.id,
            labels=list(job.labels),
            name=job.name,
            tag=job.tag,
            duration_ms=round(job.duration_s * 1000),
        )
        self.on_job(job, "queued", skew)

    def approve(self, job: Job) -> None:
        """Let a waiting job, or one that its concurrency group held back, into the queue."""
        if job.status not in (JobStatus.WAITING, JobStatus.PENDING):
            raise Refused(409, f"job {job.id} does not wait for an approval")
        job.status = JobStatus.QUEUED
        self._announce(job)
        self.on_change()

    def rerun(self, jobs: Sequence[Job]) -> list[Job]:
        """Queue the ended ``jobs`` of one run once more: same run, next attempt, new ids (github.md, 13)."""
        run = jobs[0].run
        if any(not job.ended for job in run.latest()):
            raise Refused(403, "The workflow run is already running")
        run.attempt += 1
        again = []
        for job in jobs:
            spec = JobSpec(labels=job.labels, duration_s=job.duration_s, wanted=job.wanted, tag=job.tag)
            again.append(self._add_job(run, spec, job.name))
        for job in again:
            self._announce(job)
        for job in jobs:
            self.on_job(job, "completed", 0.0)  # their old end is told once more (github.md, 10.3) [field]
        self.on_change()
        return again

    def take_by_foreign(self, job: Job, runner_name: str, duration_s: float | None = None) -> None:
        """Let somebody else's runner take a queued job and work on it to its end."""
        if job.status is not JobStatus.QUEUED or job.offer is not None:
            raise Refused(409, f"job {job.id} is not free to be taken")
        job.foreign = runner_name
        job.status = JobStatus.IN_PROGRESS
        job.started_at = time.time()
        job.shown_runner = (next(self._runner_ids), runner_name)
        self.truth.add("foreign_taken", job=job.id, runner=runner_name)
        self.on_job(job, "in_progress", 0.0)
        lasts = job.duration_s if duration_s is None else duration_s
        self.later(lasts, lambda: self.finish(job, job.wanted, "foreign"))

    def finish(self, job: Job, conclusion: str, reason: str) -> None:
        """End a job for good: state, truth, delivery. Does nothing if it has ended already."""
        if job.ended:
            return
        job.status = JobStatus.COMPLETED
        job.conclusion = conclusion
        job.completed_at = time.time()
        offer = job.offer
        runner = offer.runner.name if offer else job.foreign
        self.truth.add(
            "job_completed",
            job=job.id,
            runner=runner,
            conclusion=conclusion,
            reason=reason,
            acquired=bool(offer and offer.acquired),
        )
        self.on_job(job, "completed", 0.0)
        self.on_change()

    # Registrations

    def register(
        self,
        scope: Repository | Company,
        name: str,
        labels: Sequence[str],
        group_id: int,
        *,
        answer_lost: bool,
    ) -> Runner:
        """Register a just-in-time runner; a taken name is refused with 409."""
        if any(r.name == name for r in scope.runners.values()):
            raise Refused(409, f"Already exists - A runner with the name {name} already exists.")
        rng = self.rng("registrations")
        runner = Runner(
            id=next(self._runner_ids),
            name=name,
            labels=tuple(labels),
            scope=scope,
            group_id=group_id,
            secret=f"{rng.getrandbits(128):032x}",
            created_at=time.time(),
            busy_flag_lag_s=self.weather.busy_flag_lag.draw(rng),
        )
        scope.runners[runner.id] = runner
        self.runners[runner.id] = runner
        self.truth.add(
            "runner_registered",
            runner=name,
            runner_id=runner.id,
            labels=list(labels),
            answer_lost=answer_lost,
        )
        drawn = list(self._draw_faults(rng))
        for fault, source in [*([] if self.sparing else drawn), *self.faults_for_next]:
            runner.faults.setdefault(fault, source)
        self.faults_for_next.clear()
        if answer_lost:
            self.misbehaved(runner, "jit_answer_lost", "weather")
        return runner

    def _draw_faults(self, rng: random.Random) -> Iterator[tuple[Fault, str]]:
        for fault in Fault:
            share = getattr(self.weather, fault.value, 0.0)
            if rng.random() < share:
                yield fault, "weather"

    def misbehaved(self, runner: Runner, what: str, source: str | None = None) -> None:
        """Note that a fault took effect."""
        if source is None:
            source = runner.faults.get(Fault(what), "admin")
        job = runner.offer.job.id if runner.offer else None
        self.truth.add("misbehaved", runner=runner.name, what=what, source=source, job=job)

    def drop_registration(self, runner: Runner, by: str) -> None:
        """Remove a registration; its name is free again. Does nothing if it is gone already."""
        if not runner.registered:
            return
        runner.registered = False
        runner.gone_by = by
        runner.scope.runners.pop(runner.id, None)
        self.truth.add("runner_deregistered", runner=runner.name, by=by)
        self.on_change()

    def online(self, runner: Runner) -> bool:
        """Whether the forge believes that this runner is connected."""
        if not runner.registered or runner.session is None:
            return False
        if runner.polling:
            return True
        if runner.last_poll_mono is None:
            return False
        quiet = asyncio.get_running_loop().time() - runner.last_poll_mono
        return quiet <= self.seconds(ONLINE_FOR_S)

    def busy_flag(self, runner: Runner) -> bool:
        """The flag as REST shows it: late by the weather's lag, and sometimes wrong in mid-job. A hidden job
        does not show in it."""
        offer = runner.offer
        if offer is None or not offer.holds or offer.job.hidden:
            return False
        if time.time() - offer.assigned_at < runner.busy_flag_lag_s:
            return False
        return self.rng("flags").random() >= self.weather.busy_flag_wrong


def _first_status(spec: JobSpec) -> JobStatus:
    """How a job begins; ``waiting`` for an approval goes before ``pending`` in its concurrency group."""
    if spec.waiting:
        return JobStatus.WAITING
    return JobStatus.PENDING if spec.pending else JobStatus.QUEUED
