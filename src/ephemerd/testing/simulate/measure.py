"""Results as figures: the keys of `simulate --json` (INTERFACES.md), for one run or for several together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ephemerd.testing.simulate.journal import total_hash
from ephemerd.testing.simulate.run import Result
from ephemerd.testing.weather import Weather

HOUR_MS = 3_600_000
DISTURBED_SHARE = 5e-5
"""Where the forge refuses only from the acquisition, or is wrong at times: 5 jobs in 100,000."""
AGAIN_WITHIN_S = 120.0
WASTED_SHARE = 0.01


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank quantile of an ordered sequence, None of an empty one."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values: Iterable[int]) -> dict[str, float | None]:
    """Return p50, p95 and max in seconds of durations in ms."""
    ordered = sorted(value / 1000 for value in values)
    return {"p50": quantile(ordered, 0.5), "p95": quantile(ordered, 0.95), "max": max(ordered, default=None)}


def ratio(part: float, whole: float, digits: int = 4) -> float:
    """Return part / whole rounded, 0 of nothing."""
    return round(part / whole, digits) if whole else 0.0


def as_json(result: Result) -> dict[str, Any]:
    """Return one run's figures."""
    return {"policy": result.policy, "weather": result.weather, "seed": result.seed, **_figures([result])}


def total(results: Sequence[Result]) -> dict[str, Any]:
    """Return the figures of several runs together; what they have in common keeps its name."""
    policies = sorted({result.policy for result in results})
    weathers = list(dict.fromkeys(result.weather for result in results))
    seeds = sorted({result.seed for result in results})
    return {
        "policy": policies[0] if len(policies) == 1 else policies,
        "weather": weathers[0] if len(weathers) == 1 else weathers,
        "seed": seeds[0] if len(seeds) == 1 else seeds,
        **_figures(results),
    }


def _figures(results: Sequence[Result]) -> dict[str, Any]:
    def added(name: str) -> int:
        return sum(getattr(result.outcome, name) for result in results)

    def counted(name: str, **labels: str) -> int:
        return sum(result.counted(name, **labels) for result in results)

    jobs, wall_s = added("jobs"), sum(result.wall_s for result in results)
    calls = sum(sum(result.outcome.calls.values()) for result in results)
    events = sum(result.events for result in results)
    hashes = [result.command_hash for result in results]
    return {
        "jobs": jobs,
        "completed": added("completed"),
        "killed": added("killed"),
        "killed_per_100k": ratio(100_000 * added("killed"), jobs, 1),
        "disturbed": added("disturbed"),
        "lost": added("lost"),
        "leaked": added("leaked"),
        "wasted": sum(result.outcome.wasted for result in results),
        "wasted_pct": ratio(100 * sum(r.outcome.wasted for r in results), added("runners"), 2),
        "escaped": sum(result.escaped for result in results),
        "fence_breaches": counted("fence_breaches_total"),
        "nominations": counted("nominations_total"),
        "gate_runs": added("gate_runs"),
        "gate_runs_holding_job": added("gate_runs_holding_job"),
        "vetoes": counted("orphan_reap_decisions_total", outcome="vetoed"),
        "reaped": counted("orphan_reap_decisions_total", outcome="reaped"),
        "queue_wait_s": spread(wait for result in results for wait in result.outcome.waits),
        "slot_utilisation": ratio(added("working"), added("holding")),
        "api_calls_per_job": ratio(calls, jobs, 3),
        "jobs_per_s": ratio(jobs, wall_s, 1),
        "events": events,
        "events_per_s": ratio(events, wall_s, 1),
        "virtual_hours": round(sum(result.virtual_ms for result in results) / HOUR_MS, 3),
        "wall_s": round(wall_s, 3),
        "slot_error": sum(result.slot_error for result in results),
        "invariant_failures": sum(result.invariant_failures for result in results),
        "command_hash": hashes[0] if len(hashes) == 1 else total_hash(hashes),
        "failed_by_weather": added("failed"),
        "ended_on_order": added("ordered"),
        "escaped_in_job": sum(result.escapes_in_job for result in results),
        "abandoned": added("abandoned"),
        "dispatches": added("runners"),
        "disturbed_again_s": spread(again for result in results for again in result.outcome.again),
        "crashes": sum(result.crashes for result in results),
        "journal_replays": sum(result.replays for result in results),
        "problems": [problem for result in results for problem in result.problems[:20]][:50],
    }


def broken_promises(results: Sequence[Result], weather: Weather) -> list[str]:
    """Say which promises of the gate did not hold over these runs of one weather.

    Shares are rounded up to whole jobs, so that one run is not held to a fraction of a job.
    """
    figures = total(results)
    found = [
        f"{name} {figures[name]}, not 0"
        for name in ("killed", "lost", "leaked", "slot_error", "invariant_failures", "escaped_in_job")
        if figures[name]
    ]
    if figures["escaped"] and not weather.wedged_worker:
        found.append(f"escaped {figures['escaped']} although no worker was wedged")
    whole = figures["completed"] + figures["failed_by_weather"]
    if whole != figures["jobs"]:
        found.append(f"completed {figures['completed']} of {figures['jobs']} jobs")
    never = weather.refuses_from == "assignment" and not weather.delete_accepted_while_held
    allowed = 0 if never else math.ceil(DISTURBED_SHARE * figures["jobs"])
    if figures["disturbed"] > allowed:
        found.append(f"disturbed {figures['disturbed']}, more than {allowed}")
    slowest = figures["disturbed_again_s"]["max"]
    if slowest is not None and slowest > AGAIN_WITHIN_S:
        found.append(f"a disturbed job ran again only after {slowest:.0f} s")
    if figures["wasted"] > math.ceil(WASTED_SHARE * figures["dispatches"]):
        found.append(f"wasted {figures['wasted_pct']} % of the dispatches, more than 1 %")
    return found
