"""Outcomes: what happened to jobs and runners, computed from the records of the truth log alone.

The words are those of SIMULATION.md. Everything here is a pure function of the records, so that a saved truth
file can be judged again later.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ephemerd.testing.forge_sim.truth import Record

DESTROYED = frozenset({"shutdown", "worker_crashed", "lost_communication"})
"""Reasons of a failed job that mean that its runner went away in mid-job."""
BREAKS_A_JOB = frozenset(
    {"hang_after_acknowledge", "listener_dies", "wedged_worker", "delete_accepted_while_held"}
)
"""Faults that can fail a job without anybody having destroyed its runner."""
BREAKS_A_RUNNER = frozenset({"ghost", "hang_after_acknowledge", "exit_without_job", "jit_answer_lost"})
"""Faults after which a runner that never got a job is not wasted by its manager."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A runner held a job from ``begins_ms`` (assigned) until ``ends_ms`` (worker gone; None = still)."""

    runner: str
    job: int
    begins_ms: float
    ends_ms: float | None


@dataclass(slots=True)
class _Story:
    """What the records say about one job."""

    queued_ms: float
    tag: str = ""
    acquired_by: str | None = None
    started_ms: float | None = None
    completed: Record | None = None
    cancelled_queued: bool = False
    foreign: bool = False


@dataclass(slots=True)
class _Facts:
    jobs: dict[int, _Story] = field(default_factory=dict)
    registered: list[str] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    faults: dict[str, set[str]] = field(default_factory=dict)
    requeued: list[Record] = field(default_factory=list)
    fences: list[Record] = field(default_factory=list)
    holdings: list[Holding] = field(default_factory=list)
    open: dict[str, Holding] = field(default_factory=dict)
    api_calls: int = 0


def outcomes(records: Iterable[Record]) -> dict[str, Any]:
    """Count what happened.

    ``killed``: acquired jobs that failed because their runner was stopped, killed or lost, except where the
    weather broke it. ``disturbed``: assignments that were not acquired, lost their runner to somebody's doing
    and went back to the queue. ``lost``: jobs that never ran although they were neither cancelled nor taken by
    a foreign runner. ``wasted``: runners that never got a job, less the jobs cancelled while queued or taken
    by a foreign runner, less the runners that the weather broke. ``leaked``: registrations that are left.
    ``broken_jobs``: jobs that failed because the weather broke their runner.
    ``completed``: jobs that a runner of ours ended as ``success`` or as the failure they were meant to have.
    """
    facts = _gather(records)
    waits = sorted(
        story.started_ms - story.queued_ms for story in facts.jobs.values() if story.started_ms is not None
    )
    own = [story for story in facts.jobs.values() if not story.foreign]
    cancelled = sum(story.cancelled_queued for story in own)
    foreign = len(facts.jobs) - len(own)
    unused = [name for name in facts.registered if name not in facts.used]
    broken = [name for name in unused if BREAKS_A_RUNNER & facts.faults.get(name, set())]
    completed = sum(1 for story in own if _completed(story))
    ours = max(1, completed)
    return {
        "jobs": len(facts.jobs),
        "completed": completed,
        "killed": sum(1 for story in own if _killed(story, facts)),
        "disturbed": sum(1 for record in facts.requeued if _disturbed(record, facts)),
        "broken_jobs": sum(1 for story in own if _broken(story, facts)),
        "lost": sum(1 for story in own if story.started_ms is None and story.completed is None),
        "unfinished": sum(1 for story in own if story.started_ms is not None and story.completed is None),
        "cancelled_queued": cancelled,
        "foreign_taken": foreign,
        "dispatches": len(facts.registered),
        "unused_runners": len(unused),
        "broken_runners": len(broken),
        "wasted": max(0, len(unused) - cancelled - foreign - len(broken)),
        "leaked": len(facts.left),
        "left_registrations": sorted(facts.left),
        "fence_refusals": sum(1 for record in facts.fences if record["status"] == 422),
        "fence_breaches": sum(1 for record in facts.fences if record["status"] == 204 and record["held"]),
        "fences": len(facts.fences),
        "api_calls": facts.api_calls,
        "api_calls_per_job": round(facts.api_calls / ours, 3),
        "queue_to_start_ms": {
            "p50": quantile(waits, 0.50),
            "p95": quantile(waits, 0.95),
            "max": waits[-1] if waits else None,
        },
    }


def broken_jobs(records: Iterable[Record]) -> set[int]:
    """Jobs that failed because the weather broke their runner: nobody's kill, and not completed either."""
    facts = _gather(records)
    return {number for number, story in facts.jobs.items() if _broken(story, facts)}


def holdings(records: Iterable[Record]) -> list[Holding]:
    """Every interval in which a runner held a job, in the order in which they began."""
    facts = _gather(records)
    return sorted([*facts.holdings, *facts.open.values()], key=lambda item: item.begins_ms)


def held_at(intervals: Sequence[Holding], runner: str, ms: float) -> Holding | None:
    """The job that ``runner`` held at ``ms`` of the truth log's clock, if any."""
    for item in intervals:
        if item.runner == runner and item.begins_ms <= ms and (item.ends_ms is None or ms < item.ends_ms):
            return item
    return None


def wall_to_ms(records: Sequence[Record], at: float) -> float:
    """Turn a wall clock time (milliseconds since 1970) into the truth log's clock, by its first record."""
    first = records[0]
    return float(first["ms"] + (at - first["at"]))


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The nearest-rank quantile of an ordered sequence, None of an empty one."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _completed(story: _Story) -> bool:
    record = story.completed
    return record is not None and story.acquired_by is not None and record["reason"] == "finished"


def _killed(story: _Story, facts: _Facts) -> bool:
    record = story.completed
    if record is None or not record["acquired"] or record["reason"] not in DESTROYED:
        return False
    return not BREAKS_A_JOB & facts.faults.get(record["runner"] or "", set())


def _broken(story: _Story, facts: _Facts) -> bool:
    record = story.completed
    return record is not None and record["reason"] in DESTROYED and not _killed(story, facts)


def _disturbed(record: Mapping[str, Any], facts: _Facts) -> bool:
    if record["cause"] not in ("runner_lost", "deregistered"):
        return False
    return not (BREAKS_A_RUNNER | BREAKS_A_JOB) & facts.faults.get(record["runner"], set())


def _gather(records: Iterable[Record]) -> _Facts:
    facts = _Facts()
    for record in records:
        handler = _HANDLERS.get(record["kind"])
        if handler is not None:
            handler(facts, record)
    return facts


def _on_queued(facts: _Facts, record: Record) -> None:
    story = facts.jobs.setdefault(record["job"], _Story(record["ms"], record["tag"]))
    story.queued_ms = record["ms"]


def _on_assigned(facts: _Facts, record: Record) -> None:
    facts.open[record["runner"]] = Holding(record["runner"], record["job"], record["ms"], None)


def _on_acquired(facts: _Facts, record: Record) -> None:
    facts.used.add(record["runner"])
    facts.jobs[record["job"]].acquired_by = record["runner"]


def _on_started(facts: _Facts, record: Record) -> None:
    facts.jobs[record["job"]].started_ms = record["ms"]


def _on_completed(facts: _Facts, record: Record) -> None:
    story = facts.jobs.setdefault(record["job"], _Story(record["ms"]))
    story.completed = record
    if story.started_ms is None and record["runner"] is not None:
        _close(facts, record["runner"], record["ms"])  # no worker will come to end this interval


def _on_worker_exited(facts: _Facts, record: Record) -> None:
    _close(facts, record["runner"], record["ms"])


def _on_requeued(facts: _Facts, record: Record) -> None:
    facts.requeued.append(record)
    _close(facts, record["runner"], record["ms"])


def _close(facts: _Facts, runner: str, ms: float) -> None:
    item = facts.open.pop(runner, None)
    if item is not None:
        facts.holdings.append(Holding(item.runner, item.job, item.begins_ms, ms))


def _on_registered(facts: _Facts, record: Record) -> None:
    facts.registered.append(record["runner"])
    facts.left.add(record["runner"])


def _on_deregistered(facts: _Facts, record: Record) -> None:
    facts.left.discard(record["runner"])


def _on_misbehaved(facts: _Facts, record: Record) -> None:
    facts.faults.setdefault(record["runner"], set()).add(record["what"])


def _on_cancelled_queued(facts: _Facts, record: Record) -> None:
    facts.jobs.setdefault(record["job"], _Story(record["ms"])).cancelled_queued = True


def _on_foreign(facts: _Facts, record: Record) -> None:
    facts.jobs[record["job"]].foreign = True


def _on_fence(facts: _Facts, record: Record) -> None:
    facts.fences.append(record)


def _on_api_call(facts: _Facts, record: Record) -> None:
    facts.api_calls += 1


_HANDLERS = {
    "job_queued": _on_queued,
    "job_assigned": _on_assigned,
    "job_acquired": _on_acquired,
    "worker_started": _on_started,
    "job_completed": _on_completed,
    "worker_exited": _on_worker_exited,
    "job_requeued": _on_requeued,
    "runner_registered": _on_registered,
    "runner_deregistered": _on_deregistered,
    "misbehaved": _on_misbehaved,
    "job_cancelled_queued": _on_cancelled_queued,
    "foreign_taken": _on_foreign,
    "fence_asked": _on_fence,
    "api_call": _on_api_call,
}
