"""What a calm day costs at the forge: one write a job, the fences, the listings, and nothing else."""

from __future__ import annotations

from ephemerd.domain.pool import Policy
from ephemerd.testing.simulate.run import simulate
from ephemerd.testing.weather import load


def test_a_calm_day_costs_one_write_a_job_and_the_listings():
    result = simulate(load("calm"), 1, 150)
    calls, outcome = result.outcome.calls, result.outcome
    made = sum(count for name, count in result.counters.items() if name.startswith("dispatches_total"))
    fences = sum(count for name, count in result.counters.items() if name.startswith("nominations_total"))
    assert outcome.completed == 150
    assert calls["register"] == made == outcome.runners
    assert outcome.wasted == 0
    assert calls.get("deregister", 0) <= fences + outcome.unused
    assert calls.get("job", 0) == 0, "no job waited longer than confirm_after"
    passes = 2 * (result.virtual_ms // Policy().reconcile_every + 2)
    assert calls["active_jobs"] <= passes
    assert calls["runners"] <= passes
    assert set(calls) <= {"register", "deregister", "active_jobs", "runners", "runner"}
    assert calls.get("runner", 0) <= fences + outcome.unused
    beside_listings = sum(calls.values()) - calls["active_jobs"] - calls["runners"]
    assert beside_listings <= 1.10 * outcome.completed, calls


def test_a_job_that_waits_for_a_slot_is_asked_about_once_for_each_time_it_is_served():
    result = simulate(load("bursty"), 3, 300)
    made = sum(count for name, count in result.counters.items() if name.startswith("dispatches_total"))
    assert result.outcome.calls.get("job", 0) <= made
