"""Field problems that bite in a whole history: recorded incidents, and weathers in virtual time.

Numbers are those of docs/FIELD-PROBLEMS.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ephemerd.testing.simulate.demand import replay_demand
from ephemerd.testing.simulate.incidents import Report, Variant, replay_adopt
from ephemerd.testing.simulate.run import Result, simulate
from ephemerd.testing.weather import load

JOURNALS = Path(__file__).parents[2] / "data" / "incidents"


@pytest.mark.parametrize("way", [Variant(), Variant(probes=False)], ids=["probe", "fence"])
def test_fp_01_the_burst_of_2026_08_12_kills_nobody(way):
    report = replay_adopt(JOURNALS / "2026-08-12-same-label-burst.jsonl", way)
    assert report.killed == []
    assert report.problems == []
    assert [text for text, held in report.expectations if not held] == []


@pytest.mark.parametrize("way", [Variant(), Variant(probes=False)], ids=["probe", "fence"])
def test_fp_02_the_completion_of_2026_07_10_kills_nobody(way):
    report = replay_adopt(JOURNALS / "2026-07-10-intent-keyed-kill.jsonl", way)
    assert report.killed == []
    assert report.problems == []
    assert [text for text, held in report.expectations if not held] == []


def unharmed(result: Result) -> bool:
    outcome = result.outcome
    assert result.problems == []
    return (outcome.killed, outcome.lost, outcome.leaked) == (0, 0, 0)


def test_fp_28_a_weather_that_loses_deliveries_loses_no_job():
    result = simulate(load("lossy"), 28, 100)
    assert unharmed(result)
    assert result.outcome.completed == 100


def test_fp_38_a_weather_of_outages_kills_and_leaks_nothing():
    result = simulate(load("outage"), 38, 100)
    assert unharmed(result)
    assert (result.outcome.completed, result.outcome.disturbed) == (100, 0)


def test_fp_52_sudden_deaths_of_the_daemon_kill_and_leak_nothing():
    result = simulate(load("hostile"), 52, 300)
    assert unharmed(result)
    assert result.crashes > 0


def held(report: Report, checks: int) -> bool:
    """Say whether all that the journal expects holds, and that it expects so many things."""
    assert report.problems == []
    assert [text for text, kept in report.expectations if not kept] == []
    return report.killed == [] and len(report.expectations) == checks


def test_fp_12_the_one_slot_is_held_by_nobody_who_is_not_needed():
    """222 jobs of one to three minutes on one slot, a grace of 90 min: two wasted runners in a hundred at
    most, against 50 in 272 in the history."""
    assert held(replay_demand(JOURNALS / "mac-one-slot-waste.jsonl"), 6)


def test_fp_15_no_runner_boots_for_a_job_that_ended_three_days_before():
    assert held(replay_demand(JOURNALS / "210-windows-stale-dispatch.jsonl"), 6)


def test_fp_56_the_slot_of_a_wedged_boot_serves_another_within_ten_minutes():
    """Ten jobs, of which five reached the limit of 24 h in the history: all run."""
    assert held(replay_demand(JOURNALS / "197-stuck-slot-28h.jsonl"), 5)
