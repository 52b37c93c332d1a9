"""What the demo can be asked for, and what it reports."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TIME_SCALE = 25.0
"""Durations above 10 s, of the weather and of the daemon's policy alike, are divided by this."""
CONTAINER_TIME_SCALE = 12.5
"""The same with containers, which take longer to make: by 25 the time that a start may take would be 12 s."""
PROMISED_WEATHERS = frozenset({"calm", "bursty"})
"""In these nothing is lost on the way, so no runner may be made in vain and no job be disturbed."""
WRONG_TWICE = frozenset({"hostile"})
"""In these runners also end by themselves, in ways that the forge's side cannot tell from being torn down."""
LEAST_START_S = 10.0
"""What a start may take at least, real time: the weather's boot, hand-over and report, and some work of our own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """How to play.

    jobs         random jobs that are counted; the scripted act and the extra jobs come on top
    burst        most same-label jobs at one instant
    time_scale   see :data:`TIME_SCALE`
    headless     nobody watches: do not wait at the end, remove the folder unless a promise was broken
    as_json      the report goes to stdout as JSON, the narration to stderr
    port         serve the daemon's API, metrics and health on this loopback port too, without a token
    folder       where everything is kept; a temporary one if None
    act          play the scripted act first
    job_timeout_s  of the random jobs' pool, before it is scaled; none if None
    """

    jobs: int = 40
    burst: int = 6
    seed: int = 1
    weather: str = "bursty"
    time_scale: float = TIME_SCALE
    headless: bool = False
    as_json: bool = False
    port: int | None = None
    folder: Path | None = None
    act: bool = True
    runtime: str = "process"
    engine: str | None = None
    job_timeout_s: float | None = None


class DemoError(Exception):
    """The demo cannot be played: what happened, and what to do about it. ``code`` is an exit code."""

    def __init__(self, what: str, todo: str, code: int = 1) -> None:
        super().__init__(what)
        self.what = what
        self.todo = todo
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """The JSON of ``demo --json`` (INTERFACES.md). Outcomes are counted by the forge's side alone.

    ``jobs`` and ``completed`` count the random jobs that were asked for; every other outcome covers the act and
    the extra jobs too. ``broken_by_weather``: counted jobs whose runner the weather itself broke; ``outages``:
    how often the forge's API went out of order; ``early_calls``: requests before the time that a limit had named;
    ``torn_down_in_outage``: runners ended while the API was out of order, without a job that was over;
    ``lost_to_start_ms``: from queued to started, of jobs whose ``queued`` delivery was lost; ``told_to_start_ms``: from
    the delivery to started, of all others; ``reconcile_ms`` is how often the daemon reads what deliveries did not
    tell; ``recovered``: failed deliveries that it fetched.
    """

    jobs: int
    completed: int
    killed: int
    disturbed: int
    lost: int
    leaked: int
    dispatches: int
    wasted: int
    nominated: int
    vetoed: int
    vetoed_holding_job: int
    reaped: int
    escaped: int
    fence_refusals: int
    fence_breaches: int
    time_scale: float
    queue_to_start_ms: dict[str, float | None]
    dispatch_ms: dict[str, float | None]
    api_calls_per_job: float
    wall_s: float
    weather: str
    broken_by_weather: int
    seed: int
    act_jobs: int
    cancelled_queued: int
    foreign_taken: int
    outages: int
    operator_kills: dict[str, int]
    daemon_exit: int | None
    early_calls: int
    torn_down_in_outage: int
    lost_queued: int
    lost_to_start_ms: dict[str, float | None]
    told_to_start_ms: dict[str, float | None]
    reconcile_ms: float
    recovered: int
    leaks: list[str] = field(default_factory=list)
    broken_promises: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The report as one JSON object."""
        return dataclasses.asdict(self)

    @property
    def exit_code(self) -> int:
        """0, or 8 if a promise did not hold."""
        return 8 if self.broken_promises else 0


def broken_promises(report: DemoReport, *, act: bool) -> list[str]:
    """What the daemon promised and did not keep, as sentences; none is the aim."""
    broken = []
    if report.completed + report.broken_by_weather != report.jobs:
        broken.append(f"{report.completed} of {report.jobs} jobs were completed")
    for name, what in (
        ("killed", "jobs were killed at work"),
        ("lost", "jobs were never run"),
        ("leaked", "processes, folders or registrations are left"),
        ("escaped", "runners were destroyed past a bound without proof"),
    ):
        if getattr(report, name):
            broken.append(f"{getattr(report, name)} {what}")
    if report.weather in PROMISED_WEATHERS:
        if report.disturbed:
            broken.append(f"{report.disturbed} jobs lost the runner they were offered to")
        if report.wasted:
            broken.append(f"{report.wasted} runners were made for nothing")
    if act and not report.vetoed_holding_job:
        broken.append("no runner was nominated and vetoed while it held a job, so the act showed nothing")
    if act and not report.reaped:
        broken.append("no idle runner was reaped")
    if report.early_calls:
        broken.append(f"{report.early_calls} requests were sent before the time that the forge had named")
    if report.torn_down_in_outage and report.weather not in WRONG_TWICE:
        broken.append(f"{report.torn_down_in_outage} runners were torn down while the forge answered nobody")
    longest = report.lost_to_start_ms["max"] or 0.0
    start = max(report.told_to_start_ms["max"] or 0.0, LEAST_START_S * 1000)
    if longest > report.reconcile_ms + start and not report.outages:
        broken.append(
            f"a job whose delivery was lost started after {longest / 1000:.1f} s, later than within a reconcile "
            f"interval ({report.reconcile_ms / 1000:g} s) and what a start took here ({start / 1000:.1f} s)"
        )
    if report.daemon_exit not in (0, None):
        broken.append(f"the daemon ended with code {report.daemon_exit}")
    return broken
