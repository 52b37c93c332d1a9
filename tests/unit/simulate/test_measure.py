"""Figures: the keys of the contract, totals of several runs, and what counts as a broken promise."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ephemerd.testing.simulate.measure import as_json, broken_promises, quantile, ratio, spread, total
from ephemerd.testing.simulate.run import Result, simulate
from ephemerd.testing.simulate.truth import Finding, Outcome
from ephemerd.testing.weather import load

CONTRACT = [
    "policy",
    "weather",
    "seed",
    "jobs",
    "completed",
    "killed",
    "killed_per_100k",
    "disturbed",
    "lost",
    "leaked",
    "wasted",
    "wasted_pct",
    "escaped",
    "fence_breaches",
    "nominations",
    "gate_runs",
    "gate_runs_holding_job",
    "vetoes",
    "reaped",
    "queue_wait_s",
    "slot_utilisation",
    "api_calls_per_job",
    "jobs_per_s",
    "events",
    "events_per_s",
    "virtual_hours",
    "wall_s",
    "slot_error",
    "invariant_failures",
    "command_hash",
]
BURSTY, HOSTILE = load("bursty"), load("hostile")


def result(**outcome: Any) -> Result:
    """A run of 1,000 jobs in which all went well, but for what is named."""
    plain: dict[str, Any] = {"jobs": 1000, "completed": 1000, "runners": 1000, "used": 1000}
    return Result(1, "bursty", Outcome(**{**plain, **outcome}), {}, 14_000, 3_600_000, 2.0, "aa", 0)


@pytest.fixture(scope="module")
def run() -> Result:
    return simulate(BURSTY, 1, 150)


def test_the_keys_of_the_contract_come_first_and_in_order(run):
    figures = as_json(run)
    assert list(figures)[: len(CONTRACT)] == CONTRACT
    assert list(figures["queue_wait_s"]) == ["p50", "p95", "max"]
    assert json.loads(json.dumps(figures)) == figures


def test_the_figures_are_what_happened(run):
    figures = as_json(run)
    outcome = run.outcome
    assert (figures["policy"], figures["weather"], figures["seed"], figures["jobs"]) == (
        "gate",
        "bursty",
        1,
        150,
    )
    assert figures["completed"] == 150
    assert figures["events"] == run.events
    assert figures["gate_runs"] == outcome.gate_runs >= figures["vetoes"] + figures["reaped"] - 1 > 0
    assert figures["nominations"] >= figures["gate_runs"]
    assert figures["api_calls_per_job"] == round(sum(outcome.calls.values()) / 150, 3) > 1
    assert figures["dispatches"] == outcome.runners == outcome.calls["register"]
    assert 0.8 < figures["slot_utilisation"] < 1
    assert figures["command_hash"] == run.command_hash
    assert figures["queue_wait_s"]["max"] == max(outcome.waits) / 1000
    assert figures["virtual_hours"] == round(run.virtual_ms / 3_600_000, 3)


def test_a_total_adds_up_and_keeps_what_is_common():
    first, second = result(waits=[1_000, 3_000]), replace(result(waits=[5_000]), seed=2, command_hash="bb")
    whole = total([first, second])
    assert (whole["policy"], whole["weather"], whole["seed"]) == ("gate", "bursty", [1, 2])
    assert (whole["jobs"], whole["completed"], whole["events"]) == (2_000, 2_000, 28_000)
    assert whole["queue_wait_s"] == {"p50": 3.0, "p95": 5.0, "max": 5.0}
    assert whole["jobs_per_s"] == 500.0, "of one core"
    assert whole["command_hash"] not in ("aa", "bb")
    assert whole["command_hash"] != total([second, first])["command_hash"]
    assert total([replace(first, weather="calm"), second])["weather"] == ["calm", "bursty"]


def test_killed_and_wasted_are_shares():
    figures = as_json(result(killed=3, completed=997, used=900, cancelled=50))
    assert (figures["killed_per_100k"], figures["wasted"], figures["wasted_pct"]) == (300.0, 50, 5.0)


def test_wasted_is_what_load_and_weather_do_not_explain():
    assert Outcome(runners=10, used=4, cancelled=1, foreign=1, broken=2).wasted == 2
    assert Outcome(runners=10, used=9, cancelled=5).wasted == 0


def test_of_nothing_there_are_no_figures():
    assert quantile([], 0.5) is None
    assert spread([]) == {"p50": None, "p95": None, "max": None}
    assert ratio(1, 0) == 0.0
    assert as_json(Result(1, "calm", Outcome(), {}, 0, 0, 0.0, "", 0))["jobs_per_s"] == 0.0


@pytest.mark.parametrize(("share", "value"), [(0.5, 2), (0.95, 4), (0.0, 1), (1.0, 4)])
def test_quantiles_are_of_the_nearest_rank(share, value):
    assert quantile([1, 2, 3, 4], share) == value


def test_all_is_well():
    assert broken_promises([result()], BURSTY) == []


FINDING = Finding("oversupply", "r", 5, "too many")
BROKEN: list[tuple[str, Result]] = [
    ("killed 1, not 0", result(killed=1)),
    ("lost 1, not 0", result(lost=1)),
    ("leaked 2, not 0", result(leaked=2)),
    ("slot_error 1, not 0", replace(result(), slot_error=1)),
    ("invariant_failures 1, not 0", replace(result(), findings=[FINDING])),
    ("escaped_in_job 1, not 0", replace(result(), escapes_in_job=1)),
    ("escaped 1 although no worker was wedged", replace(result(), escapes=1)),
    ("completed 999 of 1000 jobs", result(completed=999)),
    ("disturbed 1, more than 0", result(disturbed=1)),
    ("a disturbed job ran again only after 121 s", result(again=[121_000])),
    ("wasted 1.1 % of the dispatches, more than 1 %", result(used=989)),
]


@pytest.mark.parametrize(("said", "run"), BROKEN, ids=[said for said, _ in BROKEN])
def test_each_broken_promise_is_said(said, run):
    assert said in broken_promises([run], BURSTY)


@pytest.mark.parametrize(
    "run",
    [
        result(completed=990, failed=10),
        replace(result(), escapes=1),
        result(disturbed=1, again=[119_000]),
        result(used=990),
        replace(result(), findings=[Finding("disturbed", "r", 1, "x")]),
    ],
    ids=["failed by the weather", "wedged", "disturbed", "one percent wasted", "has its own count"],
)
def test_what_the_roughest_weather_allows(run):
    assert broken_promises([run], HOSTILE) == []


def test_five_disturbed_in_a_hundred_thousand_are_too_many_at_six():
    many = [result(disturbed=1) for _ in range(5)] + [result() for _ in range(95)]
    assert broken_promises(many, HOSTILE) == []
    assert broken_promises([*many[:-1], result(disturbed=1)], HOSTILE) == ["disturbed 6, more than 5"]


def test_outcomes_that_have_a_count_are_no_invariant_failures():
    kinds = ("killed", "disturbed", "lost", "leaked", "replay", "state")
    findings = [Finding(kind, "", 0, "x") for kind in kinds]
    assert replace(result(), findings=findings).invariant_failures == 2
