"""The tables of legal edges: every edge in them moves, every other one is an error that tells the story."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from ephemerd.core.transitions import JOB_EDGES, RUNNER_EDGES, IllegalEdge, move_job, move_runner
from ephemerd.domain.ids import JobKey, RunnerId
from ephemerd.domain.job import Job, JobStatus
from ephemerd.domain.runner import FINAL, LIVE, Runner, RunnerState
from tests.unit.core.build import SCOPE

S, J = RunnerState, JobStatus
RUNNER = Runner(RunnerId("a"), "linux", "local", SCOPE, 1, S.PLANNED, 5, 5)
JOB = Job(JobKey("github", "acme/app", 1), (), 1, J.QUEUED, 5, 5, 5)

# DOMAIN.md section 3, once more and independently: the way forward, signs skip forward, every live state
# may end by itself, every state with an environment may retire.
FORWARD = (S.STARTING, S.LISTENING, S.ASSIGNED, S.RUNNING, S.FINISHING)
BACK = {(S.ASSIGNED, S.LISTENING), (S.FINISHING, S.RUNNING)}


def is_legal(old: RunnerState, new: RunnerState) -> bool:
    if old in FINAL:
        return (old, new) == (S.ABANDONED, S.GONE)
    if new is S.GONE:
        return True
    if old is S.RETIRING:
        return new in (S.STUCK, S.ABANDONED)
    if old is S.STUCK:
        return new in (*FORWARD[1:], S.RETIRING)
    if old in FORWARD:
        later = new in FORWARD and FORWARD.index(new) > FORWARD.index(old)
        return later or (old, new) in BACK or new in (S.RETIRING, S.STUCK)
    return (old, new) in {(S.PLANNED, S.REGISTERING), (S.REGISTERING, S.STARTING)}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(S, S)), ids=lambda state: state.value)
def test_edge_of_a_runner(old, new):
    row = replace(RUNNER, state=old)
    if is_legal(old, new):
        moved = move_runner(row, new, 9, stuck="why")
        assert (moved.state, moved.since, moved.stuck) == (new, 9, "why")
        assert row.state is old
    else:
        with pytest.raises(IllegalEdge, match=rf"runner a: {old.value} -> {new.value} at 9; row: "):
            move_runner(row, new, 9)


@pytest.mark.parametrize(("old", "new"), list(itertools.product(J, J)), ids=lambda status: status.value)
def test_edge_of_a_job(old, new):
    legal = (
        new in {J.WAITING, J.RUNNING, J.DONE, J.GONE}
        if old is J.QUEUED
        else new in {J.QUEUED, J.RUNNING, J.DONE, J.GONE}
        if old is J.WAITING
        else new in {J.DONE, J.GONE}
        if old is J.RUNNING
        else new is not J.GONE and old is J.GONE
    )
    row = replace(JOB, status=old)
    if legal:
        moved = move_job(row, new, 9, conclusion="success")
        assert (moved.status, moved.since, moved.conclusion) == (new, 9, "success")
    else:
        with pytest.raises(IllegalEdge, match=rf"job github/acme/app/1: {old.value} -> {new.value} at 9"):
            move_job(row, new, 9)


def test_tables_name_every_state():
    assert set(RUNNER_EDGES) == set(S)
    assert set(JOB_EDGES) == set(J)


def test_every_live_state_is_reached_and_can_end():
    for state in LIVE:
        assert S.GONE in RUNNER_EDGES[state]
        assert state is S.PLANNED or any(state in edges for edges in RUNNER_EDGES.values())


def test_nothing_leaves_gone_and_done():
    assert RUNNER_EDGES[S.GONE] == frozenset()
    assert JOB_EDGES[J.DONE] == frozenset()


def test_diagram_can_be_drawn_from_the_table():
    lines = [
        f"{old.value} --> {new.value}"
        for old, edges in RUNNER_EDGES.items()
        for new in sorted(edges, key=lambda state: state.value)
    ]
    assert len(lines) == len(set(lines)) == 41
    assert "listening --> assigned" in lines
