"""A run that breaks a promise is made small, told in the daemon's own words, and can be run again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ephemerd.testing.simulate import front
from ephemerd.testing.simulate.failing import explain, shrink, story
from ephemerd.testing.simulate.fleet import Order, carry_out
from ephemerd.testing.simulate.measure import as_json
from ephemerd.testing.simulate.truth import Finding

KILLER = Order("sweep", "bursty", 1, 300)


@pytest.mark.parametrize(("worst", "jobs"), [(1, 500), (37, 500), (500, 500), (128, 128), (1, 1)])
def test_bisection_finds_the_fewest_jobs(worst, jobs):
    tried: list[int] = []

    def fails(count: int) -> bool:
        tried.append(count)
        return bool(count >= worst)

    assert shrink(Order("gate", "calm", 1, jobs), fails) == worst
    assert len(tried) <= 10


def test_a_kill_is_made_small_and_its_story_told():
    failure = explain(KILLER)
    assert failure is not None
    assert failure.order.jobs < KILLER.jobs
    assert failure.finding is not None
    assert failure.finding.kind == "killed"
    again = carry_out(failure.order)
    assert str(failure.finding) in again.problems
    fewer = carry_out(replace(failure.order, jobs=failure.order.jobs - 1))
    assert fewer.outcome.killed == 0
    texts = [line.text for line in failure.story]
    assert any(text.startswith("registered at the forge") for text in texts)
    assert max(line.at for line in failure.story) <= failure.finding.at


def test_a_failure_is_told_with_its_seed_and_the_line_that_shows_it_again():
    failure = explain(KILLER, smaller=False)
    assert failure is not None
    lines = front.told(failure)
    assert lines[0].startswith("seed 1, weather bursty, 300 jobs: killed ")
    assert lines[-1] == "reproduce: ephemerd simulate --policy sweep --weather bursty --seed 1 --jobs 300"
    assert lines[1].startswith("killed: ")


def test_a_run_that_keeps_its_promises_has_no_story():
    order = Order("gate", "calm", 1, 20)
    assert explain(order) is None
    (line,) = front.shortest_story(as_json(carry_out(order)))
    assert line == "seed 1 alone keeps every promise; together the runs do not"


def test_the_story_ends_where_the_finding_is():
    order = Order("gate", "calm", 1, 10)
    early = story(order, Finding("x", "github/acme/app/101", 10_000, "x"))
    late = story(order, Finding("x", "github/acme/app/101", 10_000_000, "x"))
    assert len(early) <= len(late)
    assert all(line.at <= 10_000 for line in early)
    assert story(order, Finding("x", "nobody", 10_000_000, "x")) == []


def test_the_run_to_explain_is_the_first_with_a_problem():
    good = {
        "policy": "gate",
        "problems": [],
        "completed": 5,
        "failed_by_weather": 0,
        "jobs": 5,
        "wasted_pct": 0,
    }
    bad = {**good, "problems": ["x"]}
    short, wasteful = {**good, "completed": 4}, {**good, "wasted_pct": 2}
    assert front.first_failure({"runs": [good, short, bad]}) is bad
    assert front.first_failure({"runs": [good, wasteful]}) is wasteful
    assert front.first_failure({"runs": [short]}) is short
    assert front.first_failure({"runs": [good, {**bad, "policy": "sweep"}]}) is None
    assert front.first_failure(bad) is bad
