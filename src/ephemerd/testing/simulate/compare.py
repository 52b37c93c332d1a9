"""Policies side by side on the same seeds: one row a policy and weather."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ephemerd.testing.simulate.measure import ratio, total
from ephemerd.testing.simulate.run import Result

TITLES = (
    ("policy", "policy"),
    ("weather", "weather"),
    ("jobs", "jobs"),
    ("killed_per_100k", "killed per 100,000"),
    ("disturbed_per_100k", "disturbed per 100,000"),
    ("wasted_pct", "wasted %"),
    ("wait_p50_s", "wait p50 s"),
    ("wait_p95_s", "wait p95 s"),
    ("api_calls_per_job", "API calls a job"),
)
"""Keys of a row in the order of the columns, with their titles."""


def row(results: Sequence[Result]) -> dict[str, Any]:
    """Return one row: the runs of one policy in one weather."""
    figures = total(results)
    waits = figures["queue_wait_s"]
    return {
        "policy": figures["policy"],
        "weather": figures["weather"],
        "jobs": figures["jobs"],
        "killed_per_100k": figures["killed_per_100k"],
        "disturbed_per_100k": ratio(100_000 * figures["disturbed"], figures["jobs"], 1),
        "wasted_pct": figures["wasted_pct"],
        "wait_p50_s": _short(waits["p50"]),
        "wait_p95_s": _short(waits["p95"]),
        "api_calls_per_job": round(figures["api_calls_per_job"], 2),
        "completed": figures["completed"],
        "lost": figures["lost"],
        "leaked": figures["leaked"],
        "gate_runs_holding_job": figures["gate_runs_holding_job"],
    }


def _short(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return a row for each weather and policy, weathers outside, both in the order of the runs."""
    grouped: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        grouped.setdefault((result.weather, result.policy), []).append(result)
    weathers = list(dict.fromkeys(weather for weather, _ in grouped))
    return [row(grouped[key]) for weather in weathers for key in grouped if key[0] == weather]


def cells(entry: dict[str, Any]) -> tuple[str, ...]:
    """Return a row's cells as text."""
    return tuple(_text(entry[key]) for key, _ in TITLES)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def markdown(entries: Sequence[dict[str, Any]]) -> str:
    """Return the table as markdown, for the README."""
    head = [title for _, title in TITLES]
    rule = ["---" if key in ("policy", "weather") else "---:" for key, _ in TITLES]
    lines = [head, rule, *(list(cells(entry)) for entry in entries)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
