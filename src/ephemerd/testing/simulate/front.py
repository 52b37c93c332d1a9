"""What the command line asks of the simulator, in plain values: figures, rows and lines of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ephemerd.testing.simulate import compare as table
from ephemerd.testing.simulate.demand import replay_demand
from ephemerd.testing.simulate.exported import Unreadable, is_exported, replay_exported
from ephemerd.testing.simulate.failing import Failure, explain
from ephemerd.testing.simulate.fleet import Order, run_all
from ephemerd.testing.simulate.foils import POLICIES
from ephemerd.testing.simulate.incidents import read, replay_adopt
from ephemerd.testing.simulate.measure import as_json, broken_promises, total
from ephemerd.testing.simulate.run import Result
from ephemerd.testing.weather import load, load_all

Progress = Callable[[int], None]


def policies() -> tuple[str, ...]:
    """Return the names of all policies, `gate` first."""
    return tuple(POLICIES)


def weathers() -> tuple[str, ...]:
    """Return the names of all weathers, the mildest first."""
    return tuple(load_all())


def run(
    *,
    jobs: int,
    seeds: Sequence[int],
    policies: Sequence[str],
    weathers: Sequence[str],
    workers: int = 0,
    progress: Progress | None = None,
) -> tuple[dict[str, Any], list[dict[str, Any]], list[str]]:
    """Run every policy in every weather with every seed.

    Return the figures as `simulate --json` prints them, the rows of the comparison, and what the gate
    promised and did not hold (nothing is promised for foils), each with its weather.
    """
    orders = [
        Order(policy, weather, seed, jobs) for weather in weathers for policy in policies for seed in seeds
    ]
    results = run_all(orders, workers=workers, progress=progress)
    figures = as_json(results[0])
    if len(results) > 1:
        figures = {"runs": [as_json(result) for result in results], "total": total(results)}
    return figures, table.rows(results), [line for line, _ in _broken(results)]


def _broken(results: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    found: list[tuple[str, list[Result]]] = []
    for weather in dict.fromkeys(result.weather for result in results):
        runs = [result for result in results if (result.weather, result.policy) == (weather, "gate")]
        if runs:
            found += [(f"{weather}: {promise}", runs) for promise in broken_promises(runs, load(weather))]
    return found


def first_failure(figures: dict[str, Any]) -> dict[str, Any] | None:
    """Return the run to explain: the first of the gate that has a problem, else the first that fails."""
    runs: list[dict[str, Any]] = [run for run in figures.get("runs", [figures]) if run["policy"] == "gate"]
    for entry in runs:
        if entry["problems"]:
            return entry
    for entry in runs:
        if entry["completed"] + entry["failed_by_weather"] != entry["jobs"] or entry["wasted_pct"] > 1:
            return entry
    return None


def shortest_story(entry: dict[str, Any]) -> list[str]:
    """Make one failing run small and return its story as lines, the reproducing command last."""
    order = Order(entry["policy"], entry["weather"], entry["seed"], entry["jobs"])
    failure = explain(order)
    if failure is None:
        return [f"seed {order.seed} alone keeps every promise; together the runs do not"]
    return told(failure)


def told(failure: Failure) -> list[str]:
    """Return a failure as lines of text."""
    order = failure.order
    lines = [f"seed {order.seed}, weather {order.weather}, {order.jobs} jobs: {'; '.join(failure.broken)}"]
    if failure.finding is not None:
        lines.append(str(failure.finding))
    for line in failure.story:
        lines.append(f"  {line.at / 1000:12.3f} s  {line.text}")
        lines += [f"                    {evidence}" for evidence in line.evidence]
    return [*lines, f"reproduce: {failure.command}"]


def titles() -> tuple[str, ...]:
    """Return the titles of the comparison's columns."""
    return tuple(title for _, title in table.TITLES)


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """Return one row of the comparison as text."""
    return table.cells(row)


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return the comparison as markdown."""
    return table.markdown(rows)


def replay(path: Path, policy: str) -> dict[str, Any]:
    """Replay an incident or an exported journal, as `replay --json` prints it. Raises `Unreadable`."""
    make = POLICIES[policy]
    try:
        if is_exported(path):
            report = replay_exported(path, make)
        elif read(path)[0].get("replay") == "demand":
            report = replay_demand(path, policy=make)
        else:
            report = replay_adopt(path, policy=make)
    except (KeyError, IndexError, TypeError) as error:
        raise Unreadable(f"it lacks something: {error!r}") from None
    return {
        "file": report.file,
        "policy": policy,
        "events": report.events,
        "decisions": [
            {
                "at": one.at,
                "runner": one.runner,
                "outcome": one.outcome,
                "verdict": one.verdict,
                "via": one.via,
                "reason": one.reason,
            }
            for one in report.decisions
        ],
        "destroyed": [{"at": at, "runner": runner} for at, runner in report.destroyed],
        "killed": [{"at": at, "runner": runner, "job": job} for at, runner, job in report.killed],
        "expectations": [{"text": text, "held": held} for text, held in report.expectations],
        "problems": list(report.problems),
    }
