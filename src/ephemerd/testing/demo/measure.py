"""Turns what the look-alike and the daemon recorded into the report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ephemerd.domain.pool import Policy
from ephemerd.testing.demo.options import DemoOptions, DemoReport, broken_promises
from ephemerd.testing.forge_sim.manners import (
    early_calls,
    lost_to_start_ms,
    told_to_start_ms,
    torn_down_in_outages,
)
from ephemerd.testing.forge_sim.outcomes import broken_jobs, held_at, holdings, outcomes, quantile, wall_to_ms
from ephemerd.testing.forge_sim.truth import Record
from ephemerd.testing.weather import scale_seconds

Json = dict[str, Any]


def make_report(
    options: DemoOptions,
    *,
    truth: Sequence[Record],
    decisions: Sequence[Json],
    nominated: int,
    runners: Sequence[Json],
    counted: Sequence[int],
    act_jobs: int,
    kills: Mapping[str, int],
    failures: Sequence[str],
    leaks: Sequence[str],
    daemon_exit: int | None,
    wall_s: float,
    recovered: int = 0,
) -> DemoReport:
    """Measure one demo. ``counted`` are the ids of the random jobs that were asked for, ``failures`` what the act
    did not show, ``recovered`` counts failed deliveries that the daemon says that it fetched."""
    result = outcomes(truth)
    left = [*leaks, *(f"registration {name}" for name in result["left_registrations"])]
    report = DemoReport(
        jobs=len(counted),
        completed=_completed(truth, set(counted)),
        broken_by_weather=len(broken_jobs(truth) & set(counted)),
        killed=result["killed"],
        disturbed=result["disturbed"],
        lost=result["lost"] + result["unfinished"],
        leaked=len(left),
        dispatches=result["dispatches"],
        wasted=result["wasted"],
        nominated=nominated,
        vetoed=_count(decisions, "vetoed"),
        vetoed_holding_job=vetoed_holding_job(truth, decisions),
        reaped=_count(decisions, "reaped"),
        escaped=_count(decisions, "escaped"),
        fence_refusals=result["fence_refusals"],
        fence_breaches=result["fence_breaches"],
        time_scale=options.time_scale,
        queue_to_start_ms=result["queue_to_start_ms"],
        dispatch_ms=_dispatch_ms(truth, runners),
        api_calls_per_job=result["api_calls_per_job"],
        wall_s=round(wall_s, 2),
        weather=options.weather,
        seed=options.seed,
        act_jobs=act_jobs,
        cancelled_queued=result["cancelled_queued"],
        foreign_taken=result["foreign_taken"],
        outages=sum(1 for r in truth if r["kind"] == "outage" and r["state"] == "begins"),
        operator_kills=dict(kills),
        daemon_exit=daemon_exit,
        **_manners(truth),
        reconcile_ms=scale_seconds(Policy().reconcile_every / 1000, options.time_scale) * 1000,
        recovered=recovered,
        leaks=left,
    )
    broken = [*failures, *broken_promises(report, act=options.act)]
    return dataclasses.replace(report, broken_promises=broken)


def vetoed_holding_job(truth: Sequence[Record], decisions: Iterable[Json]) -> int:
    """Distinct (runner, nomination) pairs that were vetoed while the truth log says that the runner held a job."""
    intervals = holdings(truth)
    return len(
        {
            (made["runner"], made["nomination"])
            for made in decisions
            if made["outcome"] == "vetoed"
            and held_at(intervals, made["runner"], wall_to_ms(truth, made["at"])) is not None
        }
    )


def _completed(truth: Iterable[Record], counted: set[int]) -> int:
    return sum(
        1
        for record in truth
        if record["kind"] == "job_completed"
        and record["job"] in counted
        and record["reason"] == "finished"
        and record["conclusion"] == "success"
    )


def _count(decisions: Iterable[Json], outcome: str) -> int:
    return sum(1 for made in decisions if made["outcome"] == outcome)


def _dispatch_ms(truth: Iterable[Record], runners: Iterable[Json]) -> dict[str, float | None]:
    """From the commit of the delivery that made the daemon plan a runner to the start of the runner's process,
    less the time that the look-alike took for the registration.

    A runner is planned by the commit of the delivery that lets demand exceed supply (``created``): that of its
    own job, or, where another runner was thought to be there for it, the one that showed that it is not.
    """
    answered = {
        record["runner"]: record["took_ms"]
        for record in truth
        if record["kind"] == "api_call" and record.get("runner")
    }
    spans = sorted(
        float(runner["started"]) - float(runner["created"]) - float(answered[runner["id"]])
        for runner in runners
        if runner["started"] is not None and runner["id"] in answered
    )
    return {"p50": _rounded(quantile(spans, 0.5)), "p95": _rounded(quantile(spans, 0.95))}


def _manners(truth: Sequence[Record]) -> dict[str, Any]:
    lost = lost_to_start_ms(truth)
    return {
        "early_calls": len(early_calls(truth)),
        "torn_down_in_outage": len(torn_down_in_outages(truth)),
        "lost_queued": len(lost),
        "lost_to_start_ms": _spread(lost),
        "told_to_start_ms": _spread(told_to_start_ms(truth)),
    }


def _spread(ordered: Sequence[float]) -> dict[str, float | None]:
    longest = ordered[-1] if ordered else None
    figures = {"p50": quantile(ordered, 0.50), "p95": quantile(ordered, 0.95), "max": longest}
    return {name: _rounded(value) for name, value in figures.items()}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
