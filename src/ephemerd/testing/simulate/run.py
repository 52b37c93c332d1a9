"""One simulation: the load, the weather's bad days, the run to the end, and the result."""

from __future__ import annotations

import random
import time as wall
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ephemerd.core import events as ev
from ephemerd.core.step import Step
from ephemerd.core.validate import slot_difference, validate, validate_runner
from ephemerd.domain.pool import DAY, Setup
from ephemerd.domain.runner import FINAL
from ephemerd.testing.simulate.driver import ModelDaemon
from ephemerd.testing.simulate.foils import POLICIES
from ephemerd.testing.simulate.heap import VirtualTime
from ephemerd.testing.simulate.journal import Recorder
from ephemerd.testing.simulate.liveness import Liveness
from ephemerd.testing.simulate.load import Load, default_setup
from ephemerd.testing.simulate.truth import Finding, Outcome
from ephemerd.testing.weather import Weather

__all__ = ["Result", "Simulation", "default_setup", "simulate"]

MOST_TIME = 400 * DAY
QUIET_LIMIT = 6 * DAY
"""Longer than the longest bound: after it nothing of ours may be left."""

OUTCOMES = frozenset({"killed", "disturbed", "lost", "leaked"})
"""Findings that have a count of their own; every other kind is a broken invariant."""


@dataclass(slots=True)
class Result:
    """What one run gave, by the truth; `problems` are broken promises, in words."""

    seed: int
    weather: str
    outcome: Outcome
    counters: dict[str, int]
    events: int
    virtual_ms: int
    wall_s: float
    command_hash: str
    crashes: int
    policy: str = "gate"
    slots: int = 1
    escapes: int = 0
    escapes_in_job: int = 0
    replays: int = 0
    slot_error: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        return [str(finding) for finding in self.findings]

    @property
    def escaped(self) -> int:
        """Environments that were ended past their bound although not proven idle."""
        return self.escapes

    @property
    def invariant_failures(self) -> int:
        """Broken invariants that have no count of their own."""
        return sum(1 for finding in self.findings if finding.kind not in OUTCOMES)

    def counted(self, name: str, **labels: str) -> int:
        """Sum the daemon's own counter of that name over the labels that are not named."""
        wanted = [f"{label}={value}" for label, value in labels.items()]
        return sum(
            value
            for key, value in self.counters.items()
            if (parts := key.split("|"))[0] == name and all(part in parts for part in wanted)
        )


class Simulation:
    """One seed, one history.

    save_and_load  the scheduler stands up anew from encoded rows after each event
    check_each     validate what was touched after each event, not only everything at the end
    whole          keep the whole journal of each process life, not only its last part
    policy         who schedules: `gate` or one of the foils
    watch          called after each committed event with event, step and time
    """

    def __init__(
        self,
        weather: Weather,
        seed: int,
        jobs: int,
        *,
        setup: Setup | None = None,
        save_and_load: bool = False,
        check_each: bool = False,
        whole: bool = False,
        policy: str = "gate",
        watch: Callable[[ev.Event, Step, int], None] | None = None,
    ) -> None:
        self.weather, self.seed, self.policy = weather, seed, policy
        self.setup = setup or default_setup(weather)
        self.time = VirtualTime(1_000)
        self.outcome = Outcome()
        self._check_each, self._watch = check_each, watch
        self.daemon = ModelDaemon(
            self.time,
            weather,
            random.Random(seed ^ 0x5EED),
            self.outcome,
            self.setup,
            watch=self._watched if check_each or watch is not None else None,
            save_and_load=save_and_load,
            policy=POLICIES[policy],
            recorder=Recorder(whole=whole) if policy == "gate" else None,
        )
        self.liveness = Liveness(self.daemon, self.outcome, weather, self.setup)
        self.load = Load(self.daemon, weather, random.Random(seed), self.outcome, jobs, self.liveness.queued)

    def run(self, progress: Callable[[int], None] | None = None) -> Result:
        """Run until every job is over and everything of ours is gone, or should be.

        `progress` is told now and then how many jobs were queued so far.
        """
        began = wall.monotonic()
        self.daemon.boot()
        self.load.begin()
        told = 0
        while not self.load.over() and self.time.step():
            if progress is not None and self.load.made - told >= 100:
                told = self.load.made
                progress(told)
            if self.time.now > MOST_TIME:
                self.outcome.found("endless", "", self.time.now, "the jobs did not end within 400 days")
                break
        self._settle()
        return self._result(wall.monotonic() - began)

    def _settle(self) -> None:
        """Let everything come to rest, as long as something has a deadline still to come."""
        ended, outage = self.time.now, self.load.outage_total
        remaining = max(0, self.daemon.forge.outage_until - ended)
        steps = 0
        while not self._quiet() and self.time.now - ended < QUIET_LIMIT:
            steps += 1
            lasts = remaining + self.load.outage_total - outage
            if steps % 64 == 0 and self.daemon.up and self.liveness.all_due(ended, lasts):
                break
            if not self.time.step():
                break

    def _watched(self, event: ev.Event, step: Step, now: int) -> None:
        if self._watch is not None:
            self._watch(event, step, now)
        if not self._check_each:
            return
        for kind, name, row in step.changed:
            if kind == "runner" and row is not None:
                for problem in validate_runner(row):
                    self.outcome.found("state", name, now, problem)
        if slot_difference(self.daemon.core.state):
            self.outcome.found("state", "", now, f"slots differ after {type(event).__name__}")

    def _quiet(self) -> bool:
        daemon = self.daemon
        if daemon.runtime.environments or daemon.forge.registrations or not daemon.up:
            return False
        return all(row.state in FINAL and not row.unregister for row in daemon.core.state.runners.values())

    def _result(self, wall_s: float) -> Result:
        outcome, daemon = self.outcome, self.daemon
        for job in daemon.forge.jobs.values():
            outcome.jobs += int(job.counted)
            outcome.completed += int(job.counted and job.fate == "ran")
        outcome.failed = sum(job.counted and job.fate == "broken" for job in daemon.forge.jobs.values())
        self.liveness.finish()
        state = daemon.core.state
        for problem in validate(state):
            outcome.found("state", "", self.time.now, problem)
        daemon.verify()
        return Result(
            seed=self.seed,
            weather=self.weather.name,
            outcome=outcome,
            counters=dict(state.counters),
            events=daemon.handled,
            virtual_ms=self.time.now,
            wall_s=wall_s,
            command_hash=daemon.command_hash,
            crashes=daemon.crashes,
            policy=self.policy,
            slots=sum(host.slots for host in self.setup.hosts),
            escapes=daemon.monitor.escapes,
            escapes_in_job=daemon.monitor.escapes_in_job,
            replays=daemon.recorder.replays if daemon.recorder is not None else 0,
            slot_error=abs(slot_difference(state)),
            findings=outcome.findings,
        )


def simulate(weather: Weather, seed: int, jobs: int, **options: Any) -> Result:
    """Run one simulation and return its result."""
    return Simulation(weather, seed, jobs, **options).run()
