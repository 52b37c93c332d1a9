"""The forge is away for an hour, with 40 runners at work and 10 idle ones: nothing is torn down, nothing is lost,
hardly anything is asked, and everything goes on when it returns."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.step import Step
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.permit import Warrant
from ephemerd.domain.pool import HOUR, MINUTE, SECOND, Host, Policy, Pool, Setup
from ephemerd.domain.runner import RunnerState
from ephemerd.testing.simulate.load import APP, LINUX
from ephemerd.testing.simulate.run import Simulation
from ephemerd.testing.simulate.truth import TrueJob
from tests.unit.simulate.build import calm

BUSY, IDLE, LATER = 40, 10, 15
LIMITS = ("403-rate-limit", "429")
"""The forge says when it may be asked again; else it is tried."""
KNOWN = 15 * SECOND
"""What was under way when the forge went is answered, or not, within this."""


class Hour:
    """A simulation moved by hand. Notes each call to the forge, and each order to end what has not ended by itself."""

    def __init__(self) -> None:
        slots = BUSY + IDLE + LATER
        pool = Pool("linux", APP, LINUX, "local", "process", max_concurrent=slots)
        setup = Setup((pool,), (Host("local", slots),), Policy())
        self.simulation = Simulation(calm(slots=slots), 1, 0, setup=setup, watch=self._watch)
        self.daemon, self.time = self.simulation.daemon, self.simulation.time
        self.calls: list[tuple[int, str]] = []
        self.ends: list[tuple[int, RunnerId]] = []
        self.jobs = 0
        call = self.daemon.calls._call

        def noted(name: str, scope: Scope, *rest: Any, **named: Any) -> None:
            self.calls.append((self.time.now, name))
            call(name, scope, *rest, **named)

        self.daemon.calls._call = noted  # type: ignore[method-assign]
        self.daemon.boot()

    def _watch(self, event: ev.Event, step: Step, now: int) -> None:
        for each in step.commands:
            if isinstance(each, cm.Destroy) and each.permit.warrant is not Warrant.ENDED:
                self.ends.append((now, each.permit.runner))

    def queue(self, count: int, lasts: int) -> list[TrueJob]:
        first, self.jobs = self.jobs + 1, self.jobs + count
        keys = [JobKey("github", "acme/app", number) for number in range(first, self.jobs + 1)]
        return [self.daemon.forge.queue(key, LINUX, lasts) for key in keys]

    def idle(self, count: int) -> None:
        """Let runners come for jobs that are cancelled before they listen."""
        cancelled = self.queue(count, HOUR)
        self.until(self.time.now + 800)
        for job in cancelled:
            job.fate = "cancelled"
            self.daemon.forge.finish(job, "cancelled")

    def until(self, moment: int) -> None:
        """Let time pass."""
        reached: list[int] = []
        self.time.at(moment, reached.append, moment)
        while not reached:
            assert self.time.step()

    def count(self, state: RunnerState) -> int:
        return sum(row.state is state for row in self.daemon.core.state.runners.values())

    def away(self, kind: str, lasts: int) -> tuple[int, int]:
        """Let the forge go away now; return when it went and when it will return."""
        self.daemon.forge.outage_kind, self.daemon.forge.outage_until = kind, self.time.now + lasts
        return self.time.now, self.time.now + lasts


@pytest.mark.parametrize("kind", ["503", "timeout", "403-rate-limit", "429"])
def test_an_hour_without_the_forge(kind):
    hour = Hour()
    hour.queue(BUSY, 2 * HOUR)
    hour.until(30 * MINUTE)
    hour.idle(IDLE)
    hour.until(30 * MINUTE + 20 * SECOND)
    assert (hour.count(RunnerState.RUNNING), hour.count(RunnerState.LISTENING)) == (BUSY, IDLE)
    began, back = hour.away(kind, HOUR)
    hour.until(began + 20 * MINUTE)
    hour.queue(LATER, 5 * MINUTE)  # the idle ones take some of them; the others have to wait
    hour.until(back - 1)

    assert [runner for at, runner in hour.ends if at >= began] == []
    tries = [at for at, _ in hour.calls if began + KNOWN <= at < back]
    assert (not tries) is (kind in LIMITS)
    assert all(later - earlier >= MINUTE - SECOND for earlier, later in pairwise(tries))

    hour.until(back + MINUTE)
    waiting = LATER - IDLE
    made = [at for at, name in hour.calls if name == "register" and at >= back]
    assert len(made) == waiting
    scope = hour.daemon.core.state.scope(APP)
    assert scope.jobs_listed is not None
    assert scope.jobs_listed >= back
    hour.until(back + 3 * HOUR)
    outcome = hour.simulation.outcome
    assert outcome.findings == []
    fates = [job.fate for job in hour.daemon.forge.jobs.values()]
    assert (fates.count("ran"), fates.count("cancelled"), len(fates)) == (BUSY + LATER, IDLE, hour.jobs)
    assert hour.daemon.runtime.environments == {}
    assert hour.daemon.forge.registrations == {}
