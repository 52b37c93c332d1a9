"""The page on performance says what the kept figures say; its plots are drawn from them."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks import performance
from benchmarks.plots import Bar, Curve, bars, curves

KEPT = json.loads(performance.KEPT.read_text(encoding="utf-8"))
SMALL = 12_000
"""Bytes of a plot."""


def one(name: str, value: float | None, **fields: Any) -> dict[str, Any]:
    empty = {"unit": "ms", "baseline": None, "ratio": None, "target": None, "of": "value"}
    return {"name": name, "value": value, **empty, "least": False, "met": None, "note": "", **fields}


def test_the_page_is_made_of_the_kept_figures():
    page = performance.PAGE.read_text(encoding="utf-8")
    assert page == performance.written(page, KEPT), "run python -m benchmarks.performance"


@pytest.mark.parametrize("name", performance.pictures(KEPT["benchmarks"]))
def test_the_plots_are_drawn_from_the_kept_figures(name):
    kept = (performance.PICTURES / name).read_text(encoding="utf-8")
    assert kept == performance.pictures(KEPT["benchmarks"])[name], "run python -m benchmarks.performance"
    assert len(kept) < SMALL
    assert f"pictures/{name}" in performance.PAGE.read_text(encoding="utf-8")


def test_a_page_without_its_marks_is_refused():
    with pytest.raises(ValueError, match="'machine'"):
        performance.written("# Performance\n", KEPT)


def test_what_was_missed_is_said_and_what_was_not_measured_too():
    figures = [
        one("api", 3.0),
        one("idle", 95.0, target=90.0, met=False),
        one("webhooks", 1.0, ratio=0.5, of="ratio", target=0.6, least=True, met=False),
        one("dispatch.docker", None, note="skipped: no engine"),
        one("soak", None, note="failed: no port", met=False),
    ]
    assert performance.missed(figures).splitlines() == [
        "- `idle`: 95, bound at most 90.",
        "- `webhooks`: 0.5, bound at least 0.6 times the baseline.",
        "- `dispatch.docker`: skipped: no engine.",
        "- `soak`: failed: no port.",
    ]
    assert performance.missed(figures[:1]) == "Every bound was kept, and everything was measured.\n"


def test_the_table_has_a_row_for_each_figure_and_notes_below():
    text = performance.table([one("api", 1234.5, note="busy"), one("idle", 0.25, target=0.3, met=True)])
    rows = text.splitlines()
    assert rows[2] == "| `api` | 1,234 | ms |  |  |  |  |"
    assert rows[3] == "| `idle` | 0.25 | ms |  |  | at most 0.3 | yes |"
    assert rows[-1] == "- `api`: busy"


def test_fresh_figures_replace_those_of_their_benchmark_in_its_place():
    kept = [one("core.burst", 1.0), one("core.old", 1.0), one("idle", 1.0)]
    fresh = [one("core.burst", 2.0), one("new", 3.0)]
    found = performance.merged(kept, fresh)
    assert [(each["name"], each["value"]) for each in found] == [
        ("core.burst", 2.0),
        ("idle", 1.0),
        ("new", 3.0),
    ]


def test_what_is_taken_in_is_kept_with_the_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(performance, "KEPT", tmp_path / "bench.json")
    performance.take(json.dumps({"benchmarks": [one("idle", 80.0)]}), "a spinning disk", 61.0, 0.2)
    performance.take(json.dumps({"benchmarks": [one("api", 9.0)]}), None)
    kept = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert [each["name"] for each in kept["benchmarks"]] == ["idle", "api"]
    assert kept["machine"]["disk"] == "a spinning disk"
    assert kept["took_s"] is kept["load"] is None
    words = performance.described({**kept, "took_s": 90, "load": 0.2})
    assert words.endswith("The machine's load before the run was 0.2. The whole run took 1.5 minutes.\n")


def test_a_bound_of_the_least_is_drawn_like_one_of_the_most():
    figures = [
        one("rate", 200.0, target=100.0, least=True),
        one("time", 30.0, target=60.0),
        one("lost", 0.0, target=0.0),
        one("none", None, target=1.0),
    ]
    assert performance._bars(figures) == [Bar("rate", 0.5), Bar("time", 0.5)]


def test_plots_are_whole_and_stay_within_their_frame():
    drawn = curves(
        "A <title>", "jobs", "ms", [Curve("one", [(1, 2.0), (100, 700.0)]), Curve("two", [(1, 2.0)])]
    )
    root = ElementTree.fromstring(drawn)
    assert root[0].text == "A <title>"
    points = [
        [float(each) for each in point.split(",")]
        for line in root.iter("{http://www.w3.org/2000/svg}polyline")
        for point in line.attrib["points"].split()
    ]
    assert all(0 <= x <= 640 and 0 <= y <= 320 for x, y in points)
    rects = list(
        ElementTree.fromstring(bars("Bars", [Bar("far", 1e6), Bar("near", 1e-9)])).iter(
            "{http://www.w3.org/2000/svg}rect"
        )
    )
    assert all(float(each.attrib["width"]) <= 640 for each in rects)
