"""A short simulation of the whole: 50,000 jobs in all five weathers, every promise of the gate held to."""

from __future__ import annotations

import pytest

from ephemerd.testing.simulate.fleet import Order, run_all
from ephemerd.testing.simulate.measure import broken_promises, total
from ephemerd.testing.weather import load

# Weather -> jobs of one run, number of seeds; the roughest costs several times as much a job.
SHARES = {
    "calm": (3_000, 4),
    "bursty": (3_500, 4),
    "lossy": (3_000, 4),
    "outage": (2_500, 4),
    "hostile": (1_000, 2),
}
HELD_PER_100K = 1_000


def test_the_short_simulation_is_of_fifty_thousand_jobs():
    assert sum(jobs * seeds for jobs, seeds in SHARES.values()) == 50_000


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("weather", SHARES)
def test_every_promise_holds(weather):
    jobs, seeds = SHARES[weather]
    results = run_all([Order("gate", weather, seed, jobs) for seed in range(101, 101 + seeds)])
    assert [problem for result in results for problem in result.problems] == []
    assert broken_promises(results, load(weather)) == []
    figures = total(results)
    assert figures["jobs"] == jobs * seeds
    if weather != "calm":
        held = figures["gate_runs_holding_job"] * 100_000 / figures["jobs"]
        assert held >= HELD_PER_100K, "a zero must be the gate's doing, not for lack of nominations"
