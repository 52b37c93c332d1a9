"""Weathers and runs for the simulator's own tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.machine import Core
from ephemerd.core.state import Rows, State
from ephemerd.core.step import Step
from ephemerd.testing.simulate.foils import POLICIES
from ephemerd.testing.simulate.run import Simulation
from ephemerd.testing.weather import Uniform, Weather, load


def just(seconds: float) -> Uniform:
    """Always so many seconds."""
    return Uniform(seconds, seconds)


def calm(**changes: Any) -> Weather:
    """The calmest weather, with changes: nothing but what a test names goes wrong in it."""
    return replace(load("calm"), **{"cancelled_queued": 0.0, "foreign_taken": 0.0, **changes})


class Around:
    """The real core behind a wrapper that a test bends; by itself it changes nothing."""

    def __init__(self) -> None:
        self.core = Core()

    @property
    def state(self) -> State:
        return self.core.state

    def handle(self, event: ev.Event, now: int) -> Step:
        step = self.core.handle(event, now)
        return msgspec.structs.replace(step, commands=tuple(self.orders(step, event, now)))

    def orders(self, step: Step, event: ev.Event, now: int) -> list[cm.Command]:
        """Return what is ordered instead of the step's commands."""
        return list(step.commands)

    def next_wake(self) -> int | None:
        return self.core.next_wake()

    def reload(self, rows: Rows, now: int) -> None:
        self.core = Core(rows, now)


def run_with(monkeypatch: Any, scheduler: type[Around], weather: Weather, jobs: int = 10) -> Simulation:
    """Run a bent scheduler in place of a policy, and return the simulation after its run."""
    monkeypatch.setitem(POLICIES, "bent", scheduler)
    simulation = Simulation(weather, 1, jobs, policy="bent")
    simulation.run()
    return simulation


def kinds(simulation: Simulation) -> dict[str, int]:
    """Count the findings by kind."""
    found: dict[str, int] = {}
    for finding in simulation.outcome.findings:
        found[finding.kind] = found.get(finding.kind, 0) + 1
    return found
