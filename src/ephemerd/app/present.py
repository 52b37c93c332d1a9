"""What is there now: the waiting line oldest first, and the runners that live. Bounded and cheap."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import islice

from ephemerd.app import render
from ephemerd.app.daemon import Daemon
from ephemerd.core.waiting import why_waiting
from ephemerd.domain.job import ENDED_STATUSES, Job, JobStatus
from ephemerd.domain.runner import RunnerState
from ephemerd.ports.views import JobView, RunnerView

LOOKED_AT = 1_000
"""Ended jobs that are looked at for the last ones: there may be 200,000."""


@dataclass(frozen=True, slots=True)
class Line:
    """The first of the jobs that wait, oldest first, and how many wait in all."""

    jobs: tuple[JobView, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Crew:
    """The newest of the runners that are not gone, and how many there are in all."""

    runners: tuple[RunnerView, ...]
    total: int


class Present:
    """Views of one daemon as of the last commit."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def waiting(self, limit: int = 100) -> Line:
        """The jobs that wait for a runner or an approval, each with the reason, from the index of what waits."""
        state, now = self._daemon.core.state, self._daemon.ports.clock.now()
        keys = [key for group in state.index.groups.values() for key in group.queued]
        rows = [*(state.jobs[key] for key in keys), *(state.jobs[key] for key in state.index.refused)]
        waits = [row for row in dict.fromkeys(rows) if row.status is JobStatus.QUEUED]
        first = heapq.nsmallest(limit, waits, key=_order)
        views = tuple(render.job(row, now, why_waiting(state, row.key, now)) for row in first)
        return Line(views, len(waits))

    def crew(self, limit: int = 200, pool: str = "") -> Crew:
        """The runners that are not gone, newest first."""
        state, now = self._daemon.core.state, self._daemon.ports.clock.now()
        rows = [
            row
            for row in reversed(state.runners.values())
            if row.state is not RunnerState.GONE and (not pool or row.pool == pool)
        ]
        newest = heapq.nlargest(limit, rows, key=lambda row: row.order)
        life = state.setup.policy.soft_sign_life
        return Crew(tuple(render.runner(row, now, life) for row in newest), len(rows))

    def ended(self, limit: int = 20) -> tuple[JobView, ...]:
        """The jobs that ended last, newest first, among those that the state came to know last as ended."""
        state, now = self._daemon.core.state, self._daemon.ports.clock.now()
        last = islice(reversed(state.index.finished), LOOKED_AT)
        rows = [row for row in map(state.jobs.get, last) if row is not None and row.status in ENDED_STATUSES]
        newest = heapq.nlargest(limit, rows, key=lambda row: row.ended or 0)
        return tuple(render.job(row, now, "") for row in newest)


def _order(row: Job) -> int:
    return row.order
