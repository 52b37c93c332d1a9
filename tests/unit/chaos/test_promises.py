"""What chaos promises, and that every figure can break it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ephemerd.testing.chaos.__main__ import parse
from ephemerd.testing.chaos.options import (
    Adoption,
    ChaosOptions,
    ChaosReport,
    Commits,
    Deliveries,
    broken_besides,
    broken_promises,
)

GOOD = ChaosReport(
    jobs=10,
    completed=9,
    killed=0,
    disturbed=3,
    lost=0,
    leaked=0,
    escaped=1,
    slot_error=0,
    restarts=60,
    engine_restarts=0,
    engine_restarts_at_work=0,
    time_scale=25.0,
    wall_s=1.0,
    weather="hostile",
    seed=1,
    broken_by_weather=1,
    wedged=1,
    wasted=5,
    dispatches=20,
    vetoed=1,
    reaped=1,
    fence_breaches=0,
    outages=1,
    deliveries=Deliveries(acknowledged=5, missing=0, processed=6, twice=0, never=0),
    commits=Commits(kills=200, acknowledged=900, lost=0, twice=0, never=0),
    adoption=Adoption(
        runners=200, adopted=200, destroyed=0, ready_ms=900.0, adopted_ms=3_000.0, cpu_ms=2_000.0
    ),
)


def broken(report: ChaosReport) -> list[str]:
    return broken_promises(report) + broken_besides(report)


def test_what_holds_and_what_is_left_out():
    assert broken(GOOD) == []
    assert broken(replace(GOOD, commits=None, adoption=None)) == []
    assert GOOD.exit_code == 0
    assert replace(GOOD, broken_promises=["x"]).exit_code == 8
    assert GOOD.as_json()["deliveries"]["acknowledged"] == 5


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"completed": 8}, "8 of 10 jobs"),
        ({"killed": 1}, "killed at work"),
        ({"lost": 1}, "never run"),
        ({"leaked": 1}, "are left"),
        ({"slot_error": 1}, "slots differ"),
        ({"escaped": 2}, "ended without proof"),
    ],
)
def test_a_figure_of_the_storm_that_breaks_it(changes: dict[str, Any], word: str):
    [sentence] = broken(replace(GOOD, **changes))
    assert word in sentence


@pytest.mark.parametrize("name", ["missing", "twice", "never"])
def test_a_delivery_that_breaks_it(name: str):
    told = replace(GOOD.deliveries, **{name: 2})
    assert [sentence[:1] for sentence in broken(replace(GOOD, deliveries=told))] == ["2"]


@pytest.mark.parametrize("name", ["lost", "twice", "never"])
def test_a_commit_that_breaks_it(name: str):
    assert GOOD.commits is not None
    assert len(broken(replace(GOOD, commits=replace(GOOD.commits, **{name: 1})))) == 1


@pytest.mark.parametrize(
    "changes", [{"adopted": 199}, {"destroyed": 1}, {"ready_ms": 2_001.0}, {"adopted_ms": 5_001.0}]
)
def test_an_adoption_that_breaks_it(changes: dict[str, Any]):
    assert GOOD.adoption is not None
    assert len(broken(replace(GOOD, adoption=replace(GOOD.adoption, **changes)))) == 1


def test_the_command_line():
    assert parse([]) == ChaosOptions()
    assert parse(["--jobs", "5", "--commit-kills", "0", "--weather", "calm"]) == ChaosOptions(
        jobs=5, commit_kills=0, weather="calm"
    )
    with pytest.raises(SystemExit) as wrong:
        parse(["--nonsense"])
    assert wrong.value.code == 2
