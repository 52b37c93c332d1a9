"""What was done over time: throughput, waits, durations and waste, told from job rows and decisions.

Pure but for `History`, which reads the rows at most once in a few seconds: they may be 200,000. Job rows are kept
for 8 days, decisions for as long as the store keeps its history.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ephemerd.app.daemon import Daemon
from ephemerd.core import codec
from ephemerd.domain.job import Job, JobStatus
from ephemerd.domain.pool import DAY, HOUR, MINUTE, SECOND
from ephemerd.domain.runner import Decision, Rule

FRESH = 5 * SECOND
"""ms for which what was read is told again."""
LIMIT = 20.0
"""Seconds for telling, beside the loop: the rows are values that nobody changes."""
READ = 5_000
"""Decisions that are read at most, the newest."""
PURPOSE = frozenset({Rule.FINISHED.value, Rule.ENDED.value, Rule.SPENT.value, Rule.OVERDUE.value})
"""Rules that end runners whose job is over: no waste."""


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch that History can show: its name, its length and that of one bucket, ms."""

    name: str
    length: int
    bucket: int


WINDOWS = (
    Window("1 h", HOUR, 2 * MINUTE),
    Window("6 h", 6 * HOUR, 10 * MINUTE),
    Window("24 h", DAY, 30 * MINUTE),
    Window("8 d", 8 * DAY, 4 * HOUR),
)


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of durations in seconds (nearest rank); None where there is none."""

    count: int
    p50: float | None
    p90: float | None
    p99: float | None
    most: float | None


@dataclass(frozen=True, slots=True)
class Bucket:
    """One stretch: jobs that ended in it by conclusion, how long those started in it had waited, how long those
    ended in it had run, and the idle runners that were let go."""

    at: int
    succeeded: int
    failed: int
    other: int
    wait: Spread
    duration: Spread
    let_go: int

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.other


@dataclass(frozen=True, slots=True)
class PoolWaste:
    """Runners made for a pool since the store began, and those of them that ended without a job."""

    pool: str
    made: int
    wasted: int

    @property
    def percent(self) -> float:
        return 100 * self.wasted / self.made if self.made else 0.0


@dataclass(frozen=True, slots=True)
class Worst:
    """One job name with its spread of durations or waits, for what takes longest."""

    repository: str
    name: str
    ended: int
    failed: int
    wait: Spread
    duration: Spread


@dataclass(frozen=True, slots=True)
class HistoryView:
    window: Window
    since: int
    now: int
    buckets: tuple[Bucket, ...]
    ended: int
    failed: int
    wait: Spread
    duration: Spread
    let_go: int
    vetoed: int
    escaped: int
    waste: tuple[PoolWaste, ...]
    jobs: tuple[Worst, ...]


def spread(values: Iterable[float]) -> Spread:
    """Return percentiles by nearest rank."""
    ordered = sorted(values)
    if not ordered:
        return Spread(0, None, None, None, None)

    def at(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return Spread(len(ordered), at(0.5), at(0.9), at(0.99), ordered[-1])


def told(jobs: Sequence[Job], decisions: Sequence[Decision], now: int, window: Window) -> HistoryView:
    """Tell what happened in the window that ends at `now`; buckets begin at multiples of their length."""
    first = (now - window.length) // window.bucket * window.bucket + window.bucket
    count = (now - first) // window.bucket + 1
    ended: list[list[Job]] = [[] for _ in range(count)]
    started: list[list[Job]] = [[] for _ in range(count)]
    for job in jobs:
        if job.ended is not None and first <= job.ended <= now:
            ended[(job.ended - first) // window.bucket].append(job)
        if job.started is not None and first <= job.started <= now:
            started[(job.started - first) // window.bucket].append(job)
    recent = [made for made in decisions if first <= made.at <= now]
    gone = [made for made in recent if made.outcome == "reaped" and made.rule not in PURPOSE]
    let_go = [0] * count
    for made in gone:
        let_go[(made.at - first) // window.bucket] += 1
    all_ended = [job for one in ended for job in one]
    return HistoryView(
        window=window,
        since=first,
        now=now,
        buckets=tuple(
            _bucket(first + place * window.bucket, ended[place], started[place], let_go[place])
            for place in range(count)
        ),
        ended=len(all_ended),
        failed=sum(_failed(job) for job in all_ended),
        wait=spread(_wait(job) for one in started for job in one),
        duration=spread(_durations(all_ended)),
        let_go=len(gone),
        vetoed=sum(made.outcome == "vetoed" for made in recent),
        escaped=sum(made.outcome == "escaped" for made in recent),
        waste=(),
        jobs=_worst(all_ended),
    )


def _bucket(at: int, ended: list[Job], started: list[Job], let_go: int) -> Bucket:
    failed = sum(_failed(job) for job in ended)
    succeeded = sum(job.conclusion == "success" for job in ended)
    return Bucket(
        at=at,
        succeeded=succeeded,
        failed=failed,
        other=len(ended) - failed - succeeded,
        wait=spread(_wait(job) for job in started),
        duration=spread(_durations(ended)),
        let_go=let_go,
    )


def _worst(ended: Iterable[Job], most: int = 12) -> tuple[Worst, ...]:
    """Jobs by repository and name, those that took the most time in all first."""
    by_name: dict[tuple[str, str], list[Job]] = {}
    for job in ended:
        by_name.setdefault((job.key.repository, job.name), []).append(job)
    rows = [
        Worst(
            repository,
            name,
            len(jobs),
            sum(_failed(job) for job in jobs),
            spread(_wait(job) for job in jobs if job.started is not None),
            spread(_durations(jobs)),
        )
        for (repository, name), jobs in by_name.items()
    ]
    rows.sort(key=lambda row: (-row.ended * (row.duration.p50 or 0.0), row.repository, row.name))
    return tuple(rows[:most])


def _failed(job: Job) -> bool:
    return job.conclusion in {"failure", "timed_out", "startup_failure"}


def _wait(job: Job) -> float:
    return max(0, (job.started or job.first_seen) - job.first_seen) / SECOND


def _durations(jobs: Iterable[Job]) -> list[float]:
    return [
        max(0, job.ended - job.started) / SECOND
        for job in jobs
        if job.started is not None and job.ended is not None and job.status is JobStatus.DONE
    ]


class History:
    """Reads what `told` needs from a daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._last: dict[str, HistoryView] = {}
        self._telling = asyncio.Lock()

    async def view(self, name: str = "") -> HistoryView:
        """Return the window of that name; 24 h where there is no such."""
        window = next((one for one in WINDOWS if one.name == name), WINDOWS[2])
        async with asyncio.timeout(LIMIT), self._telling:  # one at a time: it takes a core
            return await self._view(window)

    async def _view(self, window: Window) -> HistoryView:
        now = self._daemon.ports.clock.now()
        last = self._last.get(window.name)
        if last is not None and 0 <= now - last.now < FRESH:
            return last
        decisions = [codec.decode_decision(one) for one in await self._read(now - window.length)]
        state = self._daemon.core.state
        view = await asyncio.to_thread(told, list(state.jobs.values()), decisions, now, window)
        view = replace(view, waste=self._waste())
        self._last[window.name] = view
        return view

    async def _read(self, since: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after = 0
        while len(found) < READ:
            page = await self._daemon.ports.store.decisions(after=after, limit=1_000, newest=True)
            found += page
            if len(page) < 1_000 or int(page[-1]["at"]) < since:
                break
            after = int(page[-1]["id"])
        return found

    def _waste(self) -> tuple[PoolWaste, ...]:
        counters = self._daemon.core.state.counters
        pools = [pool.name for pool in self._daemon.core.state.setup.pools]
        return tuple(
            PoolWaste(
                name,
                counters.get(f"dispatches_total|pool={name}", 0),
                counters.get(f"wasted_dispatches_total|pool={name}", 0),
            )
            for name in pools
        )
