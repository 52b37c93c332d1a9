"""Liveness: a job that nobody serves is lost, what nobody ends is leaked, and neither is said too early."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.step import Step
from ephemerd.domain.pool import MINUTE, SECOND
from ephemerd.testing.simulate.liveness import LEFT_FOR, longest, start_limit
from ephemerd.testing.simulate.load import default_setup
from ephemerd.testing.simulate.run import Simulation
from ephemerd.testing.weather import LogNormal, Uniform
from tests.unit.simulate.build import Around, calm, just, kinds, run_with


class Forgets(Around):
    """Makes no runner for jobs of one repository."""

    def orders(self, step: Step, event: ev.Event, now: int) -> list[cm.Command]:
        kept = []
        for command in step.commands:
            if isinstance(command, cm.Register) and command.scope.target == "acme/lib":
                continue
            kept.append(command)
        return kept


def test_a_job_that_no_runner_comes_for_is_lost_with_the_daemons_reason(monkeypatch):
    from ephemerd.testing.simulate import run

    monkeypatch.setattr(run, "MOST_TIME", 3_600_000)
    simulation = run_with(monkeypatch, Forgets, calm(), 20)
    of_lib = [job for job in simulation.daemon.forge.jobs.values() if job.key.repository == "acme/lib"]
    assert of_lib
    assert simulation.outcome.lost == len(of_lib)
    lost = [finding for finding in simulation.outcome.findings if finding.kind == "lost"]
    assert len(lost) == len(of_lib)
    assert all("although a slot was free; a runner for it is on its way" in finding.text for finding in lost)
    assert simulation.outcome.completed == 20 - len(of_lib)
    first = min(finding.at for finding in lost)
    limit = simulation.liveness.limit
    assert limit < first - of_lib[0].queued <= limit + 2 * 30 * SECOND


@pytest.mark.parametrize(
    "changes",
    [
        {"slots": 1, "burst": (10, 10), "job": just(300)},
        {"outage_every": just(30), "outage_lasts": just(3_600), "outage_kind": {"503": 1.0}},
        {"max_parallel": 1.0, "burst": (10, 10), "job": just(600)},
    ],
    ids=["no slot", "outage", "held back by the forge"],
)
def test_time_in_which_nobody_could_serve_a_job_does_not_count(changes):
    result = Simulation(calm(**changes), 1, 20).run()
    assert max(result.outcome.waits) > 20 * MINUTE
    assert (result.outcome.lost, result.problems) == (0, [])


class Keeps(Around):
    """Never ends an environment, and never takes back a registration."""

    def orders(self, step: Step, event: ev.Event, now: int) -> list[cm.Command]:
        return [c for c in step.commands if not isinstance(c, cm.Destroy | cm.Deregister)]


def test_what_nobody_ends_is_leaked(monkeypatch):
    weather = calm(cancelled_queued=1.0, slots=16, burst=(2, 2))
    simulation = run_with(monkeypatch, Keeps, weather, 6)
    left = len(simulation.daemon.runtime.environments) + len(simulation.daemon.forge.registrations)
    assert left >= 6, "even what ended by itself leaves its remains"
    assert simulation.outcome.leaked == left
    assert kinds(simulation)["leaked"] == left


def test_leaks_are_said_when_the_last_bound_has_passed_and_five_minutes(monkeypatch):
    simulation = run_with(monkeypatch, Keeps, calm(burst=(1, 1)), 2)
    ended = max(job.ended or 0 for job in simulation.daemon.forge.jobs.values())
    waited = simulation.time.now - ended
    assert 15 * MINUTE + LEFT_FOR <= waited <= 40 * MINUTE


def test_a_wedged_worker_has_until_the_hard_bound(monkeypatch):
    simulation = Simulation(calm(wedged_worker=0.3), 2, 6)
    result = simulation.run()
    assert result.escaped >= 1
    assert result.virtual_ms > 6.5 * 3_600_000
    assert (result.outcome.leaked, result.problems) == (0, [])


def test_the_limit_has_the_terms_of_the_promise():
    weather = calm()
    setup = default_setup(weather)
    assert start_limit(weather, setup) == 4_000 + 300 + 5 * MINUTE + MINUTE
    backoff = 12 * MINUTE
    for changes in ({"ghost": 0.1}, {"outage_every": just(60)}, {"daemon_crash": 0.1}):
        assert start_limit(replace(weather, **changes), setup) == start_limit(weather, setup) + backoff


def test_the_longest_of_a_spread():
    assert longest(Uniform(1, 4)) == 4_000
    assert longest(LogNormal(1, 2)) == 8_000
