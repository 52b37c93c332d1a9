"""The legal edges of jobs and runners, and the only functions that let a row move to another state.

Law: an edge that is not in these tables is an error (`IllegalEdge`), never a silent no-op; whoever may
meet a late or doubled event asks before it moves. Nothing leaves GONE but by being a new runner.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ephemerd.domain.job import J, Job, JobStatus
from ephemerd.domain.runner import Runner, RunnerState, S

RUNNER_EDGES: dict[RunnerState, frozenset[RunnerState]] = {
    S.PLANNED: frozenset({S.REGISTERING, S.GONE}),
    S.REGISTERING: frozenset({S.STARTING, S.GONE}),
    S.STARTING: frozenset({S.LISTENING, S.ASSIGNED, S.RUNNING, S.FINISHING, S.RETIRING, S.STUCK, S.GONE}),
    S.LISTENING: frozenset({S.ASSIGNED, S.RUNNING, S.FINISHING, S.RETIRING, S.STUCK, S.GONE}),
    S.ASSIGNED: frozenset({S.LISTENING, S.RUNNING, S.FINISHING, S.RETIRING, S.STUCK, S.GONE}),
    S.RUNNING: frozenset({S.FINISHING, S.RETIRING, S.STUCK, S.GONE}),
    S.FINISHING: frozenset({S.RUNNING, S.RETIRING, S.STUCK, S.GONE}),
    S.STUCK: frozenset({S.LISTENING, S.ASSIGNED, S.RUNNING, S.FINISHING, S.RETIRING, S.GONE}),
    S.RETIRING: frozenset({S.STUCK, S.GONE, S.ABANDONED}),
    S.ABANDONED: frozenset({S.GONE}),
    S.GONE: frozenset(),
}

JOB_EDGES: dict[JobStatus, frozenset[JobStatus]] = {
    J.QUEUED: frozenset({J.WAITING, J.RUNNING, J.DONE, J.GONE}),
    J.WAITING: frozenset({J.QUEUED, J.RUNNING, J.DONE, J.GONE}),
    J.RUNNING: frozenset({J.DONE, J.GONE}),
    J.DONE: frozenset(),
    J.GONE: frozenset({J.QUEUED, J.WAITING, J.RUNNING, J.DONE}),
}


class IllegalEdge(Exception):
    """A row was to move along an edge that its table does not have; the message tells the row's story."""


def next_state(row: Runner, to: RunnerState, now: int) -> RunnerState:
    """Return the state that a runner moves to at `now`, for whoever writes it with other changes of the row, `since`
    among them; raise `IllegalEdge`. Handed on as keywords, as `move_runner` does, changes cost several times what they
    cost at once."""
    if to not in RUNNER_EDGES[row.state]:
        raise IllegalEdge(f"runner {row.id}: {row.state.value} -> {to.value} at {now}; row: {row!r}")
    return to


def next_status(row: Job, to: JobStatus, now: int) -> JobStatus:
    """Return the status that a job moves to at `now`, as `next_state` does; raise `IllegalEdge`."""
    if to not in JOB_EDGES[row.status]:
        raise IllegalEdge(f"job {row.key}: {row.status.value} -> {to.value} at {now}; row: {row!r}")
    return to


def move_runner(row: Runner, to: RunnerState, now: int, **changes: Any) -> Runner:
    """Return the row in its next state, since `now`, with further changes; raise `IllegalEdge`."""
    return replace(row, state=next_state(row, to, now), since=now, **changes)


def move_job(row: Job, to: JobStatus, now: int, **changes: Any) -> Job:
    """Return the job's row in its next status, since `now`, with further changes; raise `IllegalEdge`."""
    return replace(row, status=next_status(row, to, now), since=now, **changes)
