"""Field problems that bite in a whole history: recorded incidents, and weathers in virtual time.

Numbers are those of docs/FIELD-PROBLEMS.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ephemerd.testing.simulate.incidents import Variant, replay_adopt
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
    result = simulate(load("hostile"), 52, 100)
    assert unharmed(result)
    assert result.crashes > 0
