"""How a runner manager behaved toward the forge, computed from the records of the truth log alone.

Pure functions, as in `outcomes.py`: whether it sent requests that it had been told to keep, what it tore down while
the forge answered nobody, and how soon jobs began whose `queued` delivery was lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ephemerd.testing.forge_sim.outcomes import BREAKS_A_JOB, BREAKS_A_RUNNER
from ephemerd.testing.forge_sim.truth import Record

HEARD_WITHIN_MS = 1000.0
"""A request that came in so soon after a refusal may have been sent before that was heard; the forge cannot tell."""
STOPS_BY_ITSELF = BREAKS_A_JOB | BREAKS_A_RUNNER | {"leave_daemon", "stop_ignored"}
"""Faults after which a runner may end without anybody's doing."""


@dataclass(frozen=True, slots=True)
class Early:
    """A request that came in before the time that a refusal had named."""

    seq: int
    ms: float
    permitted_ms: float


def early_calls(records: Iterable[Record]) -> list[Early]:
    """Requests that began after a limit was answered to the same credential, and before the time that it named.

    A limit without a time means a minute (GitHub's page on rate limits); the look-alike writes down which it was.
    """
    found: list[Early] = []
    heard: dict[str, float] = {}
    permitted: dict[str, float] = {}
    for record in records:
        if record["kind"] != "api_call":
            continue
        who, began = record.get("who", ""), record["ms"] - record["took_ms"]
        if heard.get(who, began) + HEARD_WITHIN_MS < began < permitted.get(who, 0.0):
            found.append(Early(record["seq"], began, permitted[who]))
        if (wait := record.get("wait_ms")) is not None:
            until = record["ms"] + wait
            if record["ms"] >= permitted.get(who, 0.0):
                heard[who] = record["ms"]
            permitted[who] = max(permitted.get(who, 0.0), until)
    return found


def torn_down_in_outages(records: Iterable[Record]) -> list[str]:
    """Runners that ended while the API was out of order, had no job that was over, and were still registered.

    Nobody can have asked the forge about them then; what was fenced before the outage is not among them, and
    neither is what the weather broke.
    """
    out = False
    torn: list[str] = []
    registered: set[str] = set()
    over: set[str] = set()
    broken: set[str] = set()
    for record in records:
        kind, runner = record["kind"], record.get("runner")
        if kind == "outage":
            out = record["state"] == "begins"
        elif kind == "runner_registered":
            registered.add(record["runner"])
        elif kind == "runner_deregistered":
            registered.discard(record["runner"])
        elif kind == "job_completed" and runner is not None:
            over.add(runner)
        elif kind == "misbehaved" and record["what"] in STOPS_BY_ITSELF:
            broken.add(record["runner"])
        elif kind == "listener_exited" and out and runner in registered and runner not in over:
            torn.append(record["runner"])
    return [name for name in torn if name not in broken]


def lost_to_start_ms(records: Sequence[Record]) -> list[float]:
    """How long each job took from being queued to its worker's start whose `queued` delivery never arrived, in order
    of length; jobs that were cancelled, taken by somebody else or never started are not among them."""
    news = _news(records)
    return sorted(
        news.started[job] - news.queued[job]
        for job in news.lost
        if job in news.started and job in news.queued and job not in news.arrived
    )


def told_to_start_ms(records: Sequence[Record]) -> list[float]:
    """How long each job took from the arrival of its `queued` delivery to its worker's start, in order of length: what
    a start takes in this run, on this machine. 0 where the job was known of before the delivery came."""
    news = _news(records)
    return sorted(max(0.0, news.started[job] - at) for job, at in news.arrived.items() if job in news.started)


@dataclass(slots=True)
class _News:
    """When jobs were queued, told of and started, ms; and of which jobs a `queued` delivery was lost."""

    queued: dict[int, float] = field(default_factory=dict)
    arrived: dict[int, float] = field(default_factory=dict)
    started: dict[int, float] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)


def _news(records: Iterable[Record]) -> _News:
    news = _News()
    for record in records:
        kind = record["kind"]
        if kind == "job_queued":
            news.queued[record["job"]] = record["ms"]
        elif kind == "worker_started":
            news.started.setdefault(record["job"], record["ms"])
        elif kind == "delivery_lost" and record["action"] == "queued":
            news.lost.add(record["job"])
        elif kind == "delivery_sent" and record["action"] == "queued" and 200 <= record["status"] < 300:
            news.arrived.setdefault(record["job"], record["ms"])
    return news
