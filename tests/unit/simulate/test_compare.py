"""The comparison: one row a weather and policy, as data, text and markdown."""

from __future__ import annotations

import pytest

from ephemerd.testing.simulate import front
from ephemerd.testing.simulate.compare import TITLES, cells, markdown, rows
from ephemerd.testing.simulate.fleet import Order, carry_out
from ephemerd.testing.simulate.run import Result


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [
        carry_out(Order(policy, weather, seed, 30))
        for weather in ("calm", "bursty")
        for policy in ("gate", "intent")
        for seed in (1, 2)
    ]


def test_a_row_joins_the_seeds_of_a_policy_and_weather(results):
    found = rows(results)
    assert [(row["weather"], row["policy"], row["jobs"]) for row in found] == [
        ("calm", "gate", 60),
        ("calm", "intent", 60),
        ("bursty", "gate", 60),
        ("bursty", "intent", 60),
    ]
    kills = [result.outcome.killed for result in results[-2:]]
    assert found[-1]["killed_per_100k"] == round(100_000 * sum(kills) / 60, 1) > 0
    assert found[2]["killed_per_100k"] == 0
    assert found[2]["wait_p50_s"] <= found[2]["wait_p95_s"]
    assert found[2]["api_calls_per_job"] > 1


def test_cells_are_in_the_order_of_the_titles(results):
    (row, *_) = rows(results)
    shown = cells(row)
    assert len(shown) == len(TITLES) == len(front.titles())
    assert shown[:3] == ("gate", "calm", "60")
    assert front.cells(row) == shown
    assert cells({**row, "wait_p50_s": None, "jobs": 1_000_000})[2:7:4] == ("1,000,000", "-")


def test_markdown_is_a_table_that_a_page_can_take(results):
    lines = markdown(rows(results)).splitlines()
    assert lines[0] == f"| {' | '.join(front.titles())} |"
    assert lines[1].startswith("| --- | --- | ---: |")
    assert len(lines) == 2 + 4
    assert {line.count("|") for line in lines} == {len(TITLES) + 1}
    assert front.markdown(rows(results)) == markdown(rows(results))
