"""The monitor finds what it is there for: each broken promise is made by a scheduler that was bent to break it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.step import Step
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import Told
from ephemerd.domain.permit import Warrant
from ephemerd.domain.verdict import Sign
from ephemerd.testing.simulate.foils import forged
from ephemerd.testing.simulate.monitor import Monitor, most
from ephemerd.testing.simulate.run import Simulation
from ephemerd.testing.simulate.truth import Outcome
from tests.unit.simulate.build import Around, calm, just, kinds, run_with


class Destroys(Around):
    """Destroys a runner at the first sign of a kind, with a warrant."""

    sign = Sign.WORKER
    warrant = Warrant.IDLE

    def orders(self, step: Step, event: ev.Event, now: int) -> list[cm.Command]:
        if isinstance(event, ev.SignSeen) and event.sign is self.sign:
            row = self.state.runners[event.runner]
            return [*step.commands, forged.destroy(row, now, "a whim", self.warrant)]
        return list(step.commands)


def bent(name: str, **attributes: Any) -> type[Destroys]:
    return type(name, (Destroys,), attributes)


def test_a_runner_destroyed_in_mid_job_is_a_kill(monkeypatch):
    simulation = run_with(monkeypatch, Destroys, calm(), 5)
    outcome = simulation.outcome
    assert (outcome.killed, outcome.disturbed, outcome.completed) == (5, 0, 0)
    assert kinds(simulation)["killed"] == 5
    assert {job.conclusion for job in simulation.daemon.forge.jobs.values()} == {"failure"}


def test_a_runner_destroyed_before_its_worker_was_forked_is_a_kill(monkeypatch):
    """It has acquired the job: GitHub is told nothing, and the job fails when its lease lapses."""
    simulation = run_with(monkeypatch, bent("Early", sign=Sign.ANNOUNCED), calm(spawn=just(20)), 4)
    assert (simulation.outcome.killed, simulation.outcome.disturbed) == (4, 0)
    for job in simulation.daemon.forge.jobs.values():
        assert (job.fate, job.worker) == ("killed", None)
        assert job.ended is not None
        assert job.assigned is not None
        assert job.ended - job.assigned > 600_000


def test_a_runner_destroyed_while_a_job_is_assigned_disturbs_it(monkeypatch):
    simulation = run_with(monkeypatch, _once(Sign.OFFERED), calm(acknowledge=just(5)), 4)
    outcome = simulation.outcome
    assert (outcome.killed, outcome.disturbed, outcome.completed) == (0, 1, 4)
    assert kinds(simulation)["disturbed"] == 1
    assert len(outcome.again) == 1
    assert outcome.again[0] > 60_000, "it is queued again after a minute"


def _once(sign: Sign, warrant: Warrant = Warrant.IDLE) -> type[Destroys]:
    class Once(Destroys):
        done = False

        def orders(self, step: Step, event: ev.Event, now: int) -> list[cm.Command]:
            if Once.done:
                return list(step.commands)
            found = super().orders(step, event, now)
            Once.done = len(found) > len(step.commands)
            return found

    Once.sign, Once.warrant = sign, warrant
    return Once


@pytest.mark.parametrize("warrant", [Warrant.FORCED, Warrant.OVERDUE])
def test_a_job_that_a_person_wanted_ended_is_counted_apart(monkeypatch, warrant):
    simulation = run_with(monkeypatch, _once(Sign.WORKER, warrant), calm(), 4)
    outcome = simulation.outcome
    assert (outcome.killed, outcome.ordered, outcome.completed) == (0, 1, 3)
    assert "killed" not in kinds(simulation)


def test_an_escape_in_mid_job_is_a_kill_and_said_to_be_one(monkeypatch):
    simulation = run_with(monkeypatch, _once(Sign.WORKER, Warrant.ESCAPE), calm(), 4)
    assert simulation.outcome.killed == 1
    assert (simulation.daemon.monitor.escapes, simulation.daemon.monitor.escapes_in_job) == (1, 1)
    assert kinds(simulation)["escaped"] == 1


def test_an_escape_of_a_wedged_worker_whose_job_is_over_is_none(monkeypatch):
    simulation = Simulation(calm(wedged_worker=0.2), 2, 20)
    result = simulation.run()
    assert result.escaped >= 1
    assert (result.escapes_in_job, result.outcome.killed, result.problems) == (0, 0, [])


# I5


class Makes(Around):
    """Registers one runner more than the core asked for, whenever it asks for one."""

    def orders(self, step: Step, event: ev.Event, now: int) -> list[cm.Command]:
        found = list(step.commands)
        for command in step.commands:
            if isinstance(command, cm.Register):
                row = self.state.runners[command.runner]
                spare = replace(row, id=RunnerId(f"{row.id}-spare"), order=row.order + 100_000)
                self.state.runners[spare.id] = spare
                self.state.index.runner_changed(None, spare)
                found.append(replace(command, runner=spare.id))
        return found


def test_a_runner_more_than_demand_is_found(monkeypatch):
    simulation = run_with(monkeypatch, Makes, calm(burst=(1, 1)), 3)
    assert kinds(simulation)["oversupply"] >= 3


def test_a_runner_for_a_job_that_nobody_confirmed_is_found(monkeypatch):
    class Stale(Around):
        def orders(self, step: Step, event: ev.Event, now: int) -> list[cm.Command]:
            for command in step.commands:
                if isinstance(command, cm.Register):
                    row = self.state.runners[command.runner]
                    assert row.intent is not None
                    job = self.state.jobs[row.intent]
                    self.state.jobs[row.intent] = replace(job, confirmed=now - 60_001, unconfirmed=None)
            return list(step.commands)

    assert kinds(run_with(monkeypatch, Stale, calm(), 3))["unconfirmed"] == 3


@pytest.mark.parametrize(
    ("demand", "supply", "edges", "flow"),
    [
        ({}, {}, {}, 0),
        ({"a": 3}, {"p": 2}, {"a": ("p",)}, 2),
        ({"a": 1}, {"p": 2}, {"a": ("p",)}, 1),
        ({"a": 2, "b": 2}, {"p": 2, "q": 2}, {"a": ("p",), "b": ("p", "q")}, 4),
        ({"a": 2, "b": 2}, {"p": 3, "q": 0}, {"a": ("p",), "b": ("p", "q")}, 3),
        ({"a": 5}, {"p": 5}, {"a": ()}, 0),
        (
            {"a": 1, "b": 1, "c": 1},
            {"p": 1, "q": 1, "r": 1},
            {"a": ("p", "q"), "b": ("p",), "c": ("q", "r")},
            3,
        ),
    ],
)
def test_most_is_the_size_of_the_best_matching(demand, supply, edges, flow):
    assert most(demand, supply, edges) == flow


def test_most_agrees_with_a_matching_by_trial():
    import itertools
    import random

    rng = random.Random(4)
    for _ in range(60):
        pools = {name: rng.randint(0, 3) for name in "pqr"}
        demand = {name: rng.randint(0, 2) for name in "abc"}
        edges = {name: tuple(p for p in pools if rng.random() < 0.5) for name in demand}
        units = [name for name, count in demand.items() for _ in range(count)]
        best = 0
        for order in itertools.permutations(units):
            for choice in itertools.product(*[[*edges[name], None] for name in order]):
                if all(choice.count(pool) <= room for pool, room in pools.items()):
                    best = max(best, sum(pool is not None for pool in choice))
            break  # the order of the units means nothing
        assert most(demand, pools, edges) == best


# I6


class Repeats(Around):
    """Sends every registration once more when the answer did not come."""

    def orders(self, step: Step, event: ev.Event, now: int) -> list[cm.Command]:
        if isinstance(event, ev.RegistrationFailed) and event.fault.remedy is Remedy.RETRY:
            row = self.state.runners[event.runner]
            pool = self.state.pool(row.pool)
            return [cm.Register(row.id, row.scope, pool.labels)]
        return list(step.commands)


def test_a_registration_repeated_without_a_look_is_found(monkeypatch):
    simulation = run_with(monkeypatch, Repeats, calm(jit_answer_lost=0.5), 10)
    assert kinds(simulation)["repeated"] >= 2


class Nags(Around):
    """Asks for the jobs of a scope whenever a webhook comes."""

    def orders(self, step: Step, event: ev.Event, now: int) -> list[cm.Command]:
        scope = self.state.setup.pools[0].scope
        webhook = isinstance(event, ev.JobReported) and event.told is Told.WEBHOOK
        return [*step.commands, *([cm.ListJobs(scope)] if webhook else [])]


@pytest.mark.parametrize("kind", ["503", "403-rate-limit"])
def test_calls_while_a_scope_is_silent_or_limited_are_found(monkeypatch, kind):
    weather = calm(outage_every=just(20), outage_lasts=just(600), outage_kind={kind: 1.0})
    simulation = run_with(monkeypatch, Nags, weather, 20)
    assert kinds(simulation)["impatient"] >= 5


def test_a_new_life_knows_nothing_of_the_silence_before():
    monitor = Monitor(Outcome(), Simulation(calm(), 1, 1).daemon.runtime)
    scope = Simulation(calm(), 1, 1).setup.pools[0].scope
    listing = Step((cm.ListJobs(scope),), (), (), (), ())
    state = Around().state

    def call(now: int) -> int:
        monitor.stepped(ev.Woke(), listing, state, now)
        return len(monitor.outcome.findings)

    assert call(0) == 0
    monitor.answered(scope, Fault(Remedy.RETRY, "502"), 100)
    assert call(60_000) == 0, "one call a minute tries it"
    assert call(119_999) == 1
    monitor.booted()
    assert call(120_000) == 1
    monitor.answered(scope, Fault(Remedy.RETRY, "502"), 120_100)
    monitor.answered(scope, None, 120_200)
    assert call(120_300) == 1, "it answers again"
    monitor.answered(scope, Fault(Remedy.LIMITED, "limit", 5_000), 130_000)
    assert call(134_999) == 2
    assert call(135_000) == 2


# the gate's runs


def test_gate_runs_are_counted_and_those_on_a_runner_with_a_job():
    result = Simulation(calm(operator_kill=1.0), 1, 20).run()
    assert result.outcome.gate_runs >= 20
    assert result.outcome.gate_runs_holding_job == 20
    assert result.counted("orphan_reap_decisions_total", outcome="vetoed") >= 20
    assert (result.outcome.killed, result.problems) == (0, [])
