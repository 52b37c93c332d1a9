"""The reap decision: every row of `reap_matrix.json`, the bounds, and from when each age counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from ephemerd.core.decision import ESCAPE, REAP, VETO, Bounds, age_of, bounds_of, decide, hard_bound
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.pool import Policy
from ephemerd.domain.runner import Runner, RunnerState
from ephemerd.domain.verdict import Verdict
from tests.unit.core.build import DAY, HOUR, MINUTE, SCOPE, SECOND, pool

MATRIX = json.loads((Path(__file__).parents[2] / "data" / "reap_matrix.json").read_text("utf-8"))
ROWS = MATRIX["rows"]
ROW = Runner(RunnerId("a"), "linux", "local", SCOPE, 1, RunnerState.RUNNING, 500, 100)
HALF = 30 * MINUTE


def test_matrix_is_whole():
    assert len(ROWS) == 84
    assert {row["policy"] for row in ROWS} == {entry["policy"] for entry in MATRIX["policies"]}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['policy']}-{row['verdict']}-{row['age']}")
def test_every_row_of_the_matrix(row):
    bounds = Bounds(unknown=row["grace_s"] * SECOND, hard=row["hard_bound_s"] * SECOND)
    ruling = decide(Verdict(row["verdict"]), row["age_s"] * SECOND, bounds)
    assert {
        "destroy": ruling.destroys,
        "escape": ruling.escape,
        "outcome": ruling.outcome,
    } == row["expected"]


@pytest.mark.parametrize("entry", MATRIX["policies"], ids=lambda entry: entry["policy"])
def test_bounds_of_a_pool_without_a_probe_are_those_of_the_matrix(entry):
    timeout = entry["job_timeout_s"]
    configured = pool(
        probes=False,
        orphan_grace=entry["grace_s"] * SECOND,
        job_timeout=timeout * SECOND if timeout else None,
    )
    assert bounds_of(ROW, configured, Policy()) == Bounds(
        unknown=entry["grace_s"] * SECOND, hard=entry["hard_bound_s"] * SECOND
    )


@pytest.mark.parametrize("age", [0, HOUR, 400 * DAY])
def test_idle_goes_at_any_age(age):
    assert decide(Verdict.IDLE, age, Bounds(unknown=5, hard=10)) is REAP


@pytest.mark.parametrize(
    ("verdict", "age", "ruling"),
    [
        (Verdict.BUSY, 9, VETO),
        (Verdict.BUSY, 10, ESCAPE),
        (Verdict.BUSY, 4, VETO),
        (Verdict.UNKNOWN, 4, VETO),
        (Verdict.UNKNOWN, 5, ESCAPE),
        (Verdict.UNKNOWN, 10, ESCAPE),
    ],
)
def test_bounds_are_inclusive(verdict, age, ruling):
    assert decide(verdict, age, Bounds(unknown=5, hard=10)) is ruling


def test_hard_bound_is_the_job_timeout_and_half_an_hour():
    limited = pool(job_timeout=2 * HOUR)
    assert hard_bound(ROW, limited, Policy()) == 2 * HOUR + HALF
    assert hard_bound(replace(ROW, hard=1), limited, Policy()) == 2 * HOUR + HALF


@pytest.mark.parametrize(
    ("changes", "bound"),
    [
        ({}, 6 * HOUR + HALF),
        ({"soft": 1}, 6 * HOUR + HALF),
        ({"hard": 1}, 5 * DAY + HALF),
        ({"hard": 1, "over": 2, "over_via": "event"}, 6 * HOUR + HALF),
        ({"hard": 1, "over": 2, "over_via": "read"}, 6 * HOUR + HALF),
        ({"hard": 1, "over": 2, "over_via": "log"}, 5 * DAY + HALF),
    ],
    ids=["no sign", "soft sign", "hard sign", "over by event", "over by read", "over by its log alone"],
)
def test_hard_bound_without_a_job_timeout(changes, bound):
    assert hard_bound(replace(ROW, **changes), pool(), Policy()) == bound


@pytest.mark.parametrize(
    ("unknown_bound", "probes", "bound"),
    [
        ("auto", True, 6 * HOUR + HALF),
        ("auto", False, 10 * MINUTE),
        ("grace", True, 10 * MINUTE),
        ("grace", False, 10 * MINUTE),
        ("hard", True, 6 * HOUR + HALF),
        ("hard", False, 6 * HOUR + HALF),
    ],
)
def test_bound_of_unknown(unknown_bound, probes, bound):
    policy = Policy(unknown_bound=unknown_bound)
    assert bounds_of(ROW, pool(probes=probes), policy) == Bounds(unknown=bound, hard=6 * HOUR + HALF)


def test_grace_above_the_hard_bound_does_not_stretch_unknown():
    configured = pool(probes=False, orphan_grace=9 * HOUR, job_timeout=HOUR)
    assert bounds_of(ROW, configured, Policy()).unknown == HOUR + HALF


@pytest.mark.parametrize(
    ("verdict", "changes", "age"),
    [
        (Verdict.IDLE, {"hard": 200, "soft": 150, "known": 10}, 0),
        (Verdict.BUSY, {"hard": 300, "soft": 200}, 700),
        (Verdict.BUSY, {"soft": 200}, 800),
        (Verdict.BUSY, {}, 0),
        (Verdict.UNKNOWN, {"known": 900, "started": 150, "hard": 200}, 100),
        (Verdict.UNKNOWN, {"started": 150, "hard": 200}, 850),
        (Verdict.UNKNOWN, {}, 900),
    ],
    ids=[
        "idle",
        "busy by the first hard sign",
        "busy by the first soft one",
        "busy without a sign",
        "unknown since it was last known",
        "unknown since the start",
        "unknown since it was made",
    ],
)
def test_age_counts_from(verdict, changes, age):
    assert age_of(verdict, replace(ROW, **changes), 1_000) == age
