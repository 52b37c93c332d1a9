"""One simulation: the load, the weather's bad days, the run to the end, and the result."""

from __future__ import annotations

import hashlib
import random
import time as wall
from dataclasses import dataclass, field
from typing import Any

from ephemerd.core import events as ev
from ephemerd.core.step import Step
from ephemerd.core.validate import slot_difference, validate, validate_runner
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.labels import normalise
from ephemerd.domain.pool import Host, Policy, Pool, Setup
from ephemerd.domain.runner import FINAL
from ephemerd.testing.simulate.driver import ModelDaemon
from ephemerd.testing.simulate.foils import POLICIES, forged
from ephemerd.testing.simulate.forge import draw
from ephemerd.testing.simulate.heap import VirtualTime
from ephemerd.testing.simulate.truth import Outcome, TrueJob
from ephemerd.testing.weather import Weather

APP, LIB = Scope("github", "repo:acme/app"), Scope("github", "repo:acme/lib")
LINUX = normalise(("self-hosted", "linux", "x64"))
BIG = normalise(("self-hosted", "linux", "x64", "big"))
ARM = normalise(("self-hosted", "linux", "arm64"))
LOADS = ((APP, LINUX, 0.6), (APP, BIG, 0.2), (LIB, ARM, 0.2))
QUIET_LIMIT = 6 * 24 * 3_600_000
"""How long (virtual ms) after the last job everything of ours may take to be gone: the longest bound."""


def default_setup(weather: Weather, policy: Policy | None = None) -> Setup:
    """Return three pools of two scopes on one host with the weather's slots."""
    slots = weather.slots
    pools = (
        Pool("linux", APP, LINUX, "local", "process", max_concurrent=slots),
        Pool("big", APP, BIG, "local", "process", max_concurrent=slots),
        Pool("arm", LIB, ARM, "local", "process", max_concurrent=slots),
    )
    return Setup(pools, (Host("local", slots),), policy or Policy())


@dataclass(slots=True)
class Result:
    """What one run gave, by the truth; `problems` are broken invariants, in words."""

    seed: int
    weather: str
    outcome: Outcome
    counters: dict[str, int]
    events: int
    virtual_ms: int
    wall_s: float
    command_hash: str
    crashes: int
    problems: list[str] = field(default_factory=list)

    @property
    def escaped(self) -> int:
        prefix = "orphan_reap_decisions_total|outcome=escaped"
        return sum(value for name, value in self.counters.items() if name.startswith(prefix))


class Simulation:
    """One seed, one history."""

    def __init__(
        self,
        weather: Weather,
        seed: int,
        jobs: int,
        *,
        setup: Setup | None = None,
        save_and_load: bool = False,
        check_each: bool = False,
        policy: str = "gate",
    ) -> None:
        self.weather, self.seed, self.wanted = weather, seed, jobs
        self.rng = random.Random(seed)
        self.time = VirtualTime(1_000)
        self.outcome = Outcome()
        self._digest = hashlib.blake2s()
        self._check_each = check_each
        self.problems: list[str] = []
        self.daemon = ModelDaemon(
            self.time,
            weather,
            random.Random(seed ^ 0x5EED),
            self.outcome,
            setup or default_setup(weather),
            watch=self._watched,
            save_and_load=save_and_load,
            policy=POLICIES[policy],
        )
        self._next_job = 100
        self._made = 0
        self._pending: list[TrueJob] = []

    def run(self) -> Result:
        """Run until every job is over and everything of ours is gone, or the limit is reached."""
        began = wall.monotonic()
        self.daemon.boot()
        self.time.after(2_000, self._burst)
        if self.weather.outage_every is not None:
            self.time.after(draw(self.weather.outage_every, self.rng), self._outage)
        while not self._jobs_over():
            if not self.time.step():
                break
            if self.time.now > 400 * 24 * 3_600_000:
                self.problems.append("the jobs did not end within 400 days")
                break
        ended = self.time.now
        while not self._quiet() and self.time.now - ended < QUIET_LIMIT:
            if not self.time.step():
                break
        return self._result(wall.monotonic() - began)

    def _watched(self, event: ev.Event, step: Step, now: int) -> None:
        for command in step.commands:
            self._digest.update(forged.command_hash(command).encode())
        if self._check_each:
            for kind, _, row in step.changed:
                if kind == "runner" and row is not None:
                    self.problems.extend(validate_runner(row))
            if slot_difference(self.daemon.core.state):
                self.problems.append(f"slots differ at {now} after {event!r}")

    def _burst(self) -> None:
        if self._made >= self.wanted:
            return
        scope, labels, _ = self.rng.choices(LOADS, [share for _, _, share in LOADS])[0]
        count = min(self.weather.draw_burst(self.rng), self.wanted - self._made)
        for _ in range(count):
            self._made += 1
            self._queue(scope, labels)
            if self.rng.random() < self.weather.cancelled_queued:
                extra = self._queue(scope, labels, counted=False)
                self.time.after(self.rng.randint(500, 10_000), self._cancel, extra)
            if self.rng.random() < self.weather.foreign_taken:
                extra = self._queue(scope, labels, counted=False)
                self.time.after(self.rng.randint(200, 3_000), self._take, extra)
        self.time.after(draw(self.weather.gap, self.rng), self._burst)

    def _queue(self, scope: Scope, labels: tuple[str, ...], *, counted: bool = True) -> TrueJob:
        self._next_job += 1
        key = JobKey(scope.forge, scope.target, self._next_job)
        duration = draw(self.weather.job, self.rng)
        job = self.daemon.forge.queue(key, labels, duration, counted=counted)
        self._pending.append(job)
        if counted and self.rng.random() < self.weather.operator_kill:
            self.time.after(self.rng.randint(5_000, 5_000 + duration + 1), self._ask_kill, job)
        return job

    def _ask_kill(self, job: TrueJob) -> None:
        name = job.held_by or job.runner
        if name is not None and job.status != "completed":
            self.daemon.handle(ev.KillOrdered("operator", RunnerId(name), "cleaning up"))

    def _cancel(self, job: TrueJob) -> None:
        if job.status == "queued" and job.held_by is None and job.key.id in self.daemon.forge.queued:
            job.fate = "cancelled"
            self.outcome.cancelled += 1
            self.daemon.forge.finish(job, "cancelled")

    def _take(self, job: TrueJob) -> None:
        forge = self.daemon.forge
        if job.status == "queued" and job.held_by is None and job.key.id in forge.queued:
            job.fate = "foreign"
            self.outcome.foreign += 1
            forge.start(job, "somebody-elses", 7)
            self.time.after(job.duration, forge.finish, job, "success")

    def _outage(self) -> None:
        if self.weather.outage_every is None or self.weather.outage_lasts is None:
            return
        if self._made >= self.wanted and self._jobs_over():
            return
        lasts = draw(self.weather.outage_lasts, self.rng)
        self.daemon.forge.outage_kind = self.weather.draw_outage_kind(self.rng)
        self.daemon.forge.outage_until = self.time.now + lasts
        self.time.after(lasts + draw(self.weather.outage_every, self.rng), self._outage)

    def _jobs_over(self) -> bool:
        if self._made < self.wanted:
            return False
        while self._pending and self._pending[-1].status == "completed":
            self._pending.pop()
        if self._pending:
            self._pending[:] = [job for job in self._pending if job.status != "completed"]
        return not self._pending

    def _quiet(self) -> bool:
        state = self.daemon.core.state
        return (
            self.daemon.up
            and not self.daemon.runtime.environments
            and not self.daemon.forge.registrations
            and all(row.state in FINAL and not row.unregister for row in state.runners.values())
        )

    def _result(self, wall_s: float) -> Result:
        outcome, forge = self.outcome, self.daemon.forge
        for job in forge.jobs.values():
            if job.counted:
                outcome.jobs += 1
                outcome.completed += int(job.status == "completed" and job.fate == "ran")
                outcome.lost += int(job.status != "completed")
        outcome.leaked = len(self.daemon.runtime.environments) + len(forge.registrations)
        state = self.daemon.core.state
        self.problems.extend(validate(state))
        outcome.unused = outcome.runners - sum(
            1 for job in forge.jobs.values() if job.fate in ("ran", "killed")
        )
        return Result(
            seed=self.seed,
            weather=self.weather.name,
            outcome=outcome,
            counters=dict(state.counters),
            events=self.daemon.handled,
            virtual_ms=self.time.now,
            wall_s=wall_s,
            command_hash=self._digest.hexdigest(),
            crashes=self.daemon.crashes,
            problems=[*outcome.problems, *self.problems],
        )


def simulate(weather: Weather, seed: int, jobs: int, **options: Any) -> Result:
    """Run one simulation and return its result."""
    return Simulation(weather, seed, jobs, **options).run()
