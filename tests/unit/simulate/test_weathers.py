"""Every weather on the real core in virtual time: no job killed or lost, nothing left, little wasted.

And one seed is one history: twice, in a process with another hash seed, and from what was committed after
each event.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from ephemerd.testing.simulate.run import simulate
from ephemerd.testing.weather import Chance, Uniform, load

WEATHERS = ["calm", "bursty", "lossy", "outage", "hostile"]
JOBS = 120


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("weather", WEATHERS)
def test_no_job_is_killed_or_lost_and_nothing_is_left(weather, seed):
    result = simulate(load(weather), seed, JOBS, check_each=True)
    outcome = result.outcome
    assert result.problems == []
    assert (outcome.jobs, outcome.killed, outcome.lost, outcome.leaked) == (JOBS, 0, 0, 0)
    assert outcome.wasted <= JOBS // 40
    if weather != "hostile":
        assert (outcome.completed, outcome.disturbed, result.escaped, outcome.wasted) == (JOBS, 0, 0, 0)
        assert result.counters["fence_breaches_total"] == 0


def test_the_gate_was_put_to_the_test():
    """A zero by lack of nominations would prove nothing: runners that held a job were nominated."""
    results = [simulate(load("bursty"), seed, 150) for seed in (1, 2, 3)]
    results += [simulate(load("hostile"), seed, 100) for seed in (1, 2)]
    for result in results:
        assert sum(n for name, n in result.counters.items() if name.startswith("nominations_total")) >= 1
    assert sum(result.outcome.gate_runs_holding_job for result in results) >= 3
    vetoed = [
        n for result in results for name, n in result.counters.items() if name.startswith("vetoes_total")
    ]
    assert sum(vetoed) >= 3
    assert [result.outcome.killed for result in results] == [0] * 5


@pytest.mark.parametrize("weather", WEATHERS)
def test_one_seed_is_one_history(weather):
    first, second = (simulate(load(weather), 5, 50) for _ in range(2))
    assert first.command_hash == second.command_hash
    assert (first.events, first.virtual_ms, first.counters) == (
        second.events,
        second.virtual_ms,
        second.counters,
    )
    assert simulate(load(weather), 6, 50).command_hash != first.command_hash


@pytest.mark.parametrize("weather", WEATHERS)
def test_the_same_holds_where_the_loop_is_busy_and_alarms_come_late(weather):
    """Other events are handled after a moment has come and before the core is woken for it."""
    busy = replace(load(weather), wake_late=Chance(0.3, Uniform(0.0, 1.0)))
    result = simulate(busy, 1, JOBS, check_each=True)
    outcome = result.outcome
    assert outcome.seen["wake_late"] >= 3
    assert result.problems == []
    assert (outcome.jobs, outcome.killed, outcome.lost, outcome.leaked) == (JOBS, 0, 0, 0)


@pytest.mark.parametrize("weather", ["bursty", "hostile"])
def test_save_and_load_after_each_event_changes_nothing(weather):
    kept = simulate(load(weather), 5, 25)
    loaded = simulate(load(weather), 5, 25, save_and_load=True)
    assert loaded.command_hash == kept.command_hash
    assert loaded.counters == kept.counters


PROGRAM = """
from ephemerd.testing.simulate.run import simulate
from ephemerd.testing.weather import load
print(simulate(load("hostile"), 5, 60).command_hash)
"""


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_hash_seed_of_the_process_means_nothing(hash_seed):
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert found.stdout.strip() == simulate(load("hostile"), 5, 60).command_hash
