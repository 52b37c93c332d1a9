"""The index follows each row: whatever a row was before, what is counted and found is what it is now."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ephemerd.core.index import Group, Index, group_name, is_supply
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import Job, JobStatus
from ephemerd.domain.labels import SEPARATOR
from ephemerd.domain.runner import Fence, Order, Runner, RunnerState
from tests.unit.core.world import APP, LABELS, LIB, key

S = RunnerState
WHO = RunnerId("eph-s1-e1-1")
ODD = f"small{SEPARATOR}gpu"

Entries = dict[str, Any]


def runner(state: RunnerState, **changes: Any) -> Runner:
    return replace(Runner(WHO, "small", "here", APP, 1, state, 1, 1), **changes)


def of_runners(index: Index) -> Entries:
    """Return what the index says of runners; empty rests say nothing."""
    members = {
        name: {subject: list(found) for subject, found in getattr(index, name).items() if found}
        for name in ("supply", "consuming", "live", "intents", "registrations")
    }
    counts = {name: getattr(index, name) for name in ("held", "abandoned", "by_state", "by_repository")}
    return {name: found for name, found in (members | counts).items() if found}


def stands(state: str, **entries: Any) -> Entries:
    return {"by_state": {("small", state): 1}, **entries}


def live(state: str, **entries: Any) -> Entries:
    return stands(state, live={"small": [WHO]}, held={"here": 1}, **entries)


REGISTERED = {("github/repo:acme/app", 7): [WHO]}
FOR_APP, FOR_LIB = {("github", "acme/app"): 1}, {("github", "acme/lib"): 1}
SUPPLY, SPARE = {"small": [WHO]}, {"supply": {"small": [WHO]}}

RUNNERS: list[tuple[Runner | None, Entries]] = [
    (None, {}),
    (runner(S.PLANNED), live("planned", **SPARE)),
    (
        runner(S.REGISTERING, intent=key(1, "Acme/App")),
        live("registering", supply=SUPPLY, intents={key(1, "Acme/App"): [WHO]}, by_repository=FOR_APP),
    ),
    (
        runner(S.LISTENING, intent=key(2), registration=7, labels=("gpu",)),
        live(
            "listening",
            supply={ODD: [WHO]},
            intents={key(2): [WHO]},
            by_repository=FOR_APP,
            registrations=REGISTERED,
        ),
    ),
    (runner(S.LISTENING, registration=7, late=True), live("listening", registrations=REGISTERED)),
    (
        runner(S.RUNNING, registration=8, consumes=True, labels=("gpu",), hard=5),
        live("running", consuming={ODD: [WHO]}, registrations={("github/repo:acme/app", 8): [WHO]}),
    ),
    (
        runner(S.RUNNING, intent=key(1), job=key(9, "acme/lib"), registration=7, hard=5),
        live("running", intents={key(1): [WHO]}, by_repository=FOR_LIB, registrations=REGISTERED),
    ),
    (runner(S.RUNNING, job=key(9, "acme/lib")), live("running", by_repository=FOR_LIB)),
    (runner(S.STUCK, consumes=True), live("stuck", consuming=SUPPLY)),
    (
        runner(S.ABANDONED, intent=key(1), job=key(1), registration=7),
        stands("abandoned", abandoned={"here": 1}, registrations=REGISTERED),
    ),
    (runner(S.ABANDONED), stands("abandoned", abandoned={"here": 1})),
    (runner(S.GONE, intent=key(1), job=key(1)), stands("gone")),
    (runner(S.GONE, registration=7), stands("gone", registrations=REGISTERED)),
]


def unlike(before: Entries, after: Entries) -> set[str]:
    """Return the varieties whose supply, or what stands for its jobs, is another."""
    return {
        variety
        for name in ("supply", "consuming")
        for variety in {*before.get(name, ()), *after.get(name, ())}
        if before.get(name, {}).get(variety) != after.get(name, {}).get(variety)
    }


@pytest.mark.parametrize("place", range(len(RUNNERS)))
def test_whatever_a_runner_becomes_it_is_counted_as_that_and_as_nothing_else(place: int) -> None:
    before, was = RUNNERS[place]
    for after, now in RUNNERS:
        if before is None and after is None:
            continue
        index = Index()
        if before is not None:
            index.runner_changed(None, before)
        assert of_runners(index) == was
        index.dirty_varieties.clear()
        index.leftover.update(dict.fromkeys(was.get("supply", ()), 1))
        index.runner_changed(before, after)
        assert of_runners(index) == now
        assert set(index.dirty_varieties) == unlike(was, now)
        moved = before is not None and after is not None and before.state is not after.state
        stayed = set(now.get("supply", ())) & set(was.get("supply", ()))
        assert set(index.advanced) == (stayed if moved else set())  # the most advanced are matched first
        if after is not None:
            index.runner_changed(after, None)
        assert of_runners(index) == {}


def test_many_runners_are_counted_each_for_itself() -> None:
    index = Index()
    rows = [replace(runner(S.LISTENING, intent=key(1)), id=RunnerId(f"r{number}")) for number in range(3)]
    for row in rows:
        index.runner_changed(None, row)
    assert (index.held, index.by_state) == ({"here": 3}, {("small", "listening"): 3})
    index.runner_changed(rows[1], None)
    assert (index.held, index.by_repository) == ({"here": 2}, {("github", "acme/app"): 2})
    assert index.intents == {key(1): {"r0": None, "r2": None}}


@pytest.mark.parametrize("state", [S.PLANNED, S.REGISTERING, S.STARTING, S.LISTENING])
def test_whoever_waits_for_a_job_in_good_order_is_supply(state: RunnerState) -> None:
    assert is_supply(runner(state))


@pytest.mark.parametrize(
    "changes",
    [
        {"late": True},
        {"offered": True},
        {"fence": Fence(sent=0)},
        {"lost": 0},
        {"order_given": Order("ann", "why", False, 1)},
        {"state": S.ASSIGNED},
        {"state": S.RETIRING},
    ],
)
def test_one_reason_is_enough_to_be_no_supply(changes: dict[str, Any]) -> None:
    assert not is_supply(replace(runner(S.LISTENING), **changes))


# -- jobs ----------------------------------------------------------------------------------------------


def job(status: JobStatus = JobStatus.QUEUED, **changes: Any) -> Job:
    return replace(Job(key(1), LABELS, 1, status, 1, 1, 1, run_id=7), **changes)


def of_jobs(index: Index) -> Entries:
    """Return what the index says of jobs; a class without a job says nothing."""
    members = {
        name: list(getattr(index, name))
        for name in ("running", "finished", "refused")
        if getattr(index, name)
    }
    counts = {
        name: getattr(index, name) for name in ("by_status", "reserved", "asked") if getattr(index, name)
    }
    groups = {name: list(group.queued) for name, group in index.groups.items() if group.queued}
    unsure = {run: list(found) for run, found in index.unsure.items()}
    return members | counts | ({"groups": groups} if groups else {}) | ({"unsure": unsure} if unsure else {})


NAME = group_name(job())
ARM = group_name(job(labels=("arm",)))
QUEUED = {"by_status": {"queued": 1}, "groups": {NAME: [key(1)]}}
REFUSED = {"by_status": {"queued": 1}, "refused": [key(1)]}

JOBS: list[tuple[Job | None, Entries]] = [
    (None, {}),
    (job(), QUEUED),
    (job(confirmed=99, asking="waiting"), QUEUED),
    (job(asking="confirm", pool="small"), QUEUED | {"reserved": {"at small": 1}, "asked": {NAME: 1}}),
    (job(asking="confirm", pool="big"), QUEUED | {"reserved": {"at big": 1}, "asked": {NAME: 1}}),
    (job(labels=("arm",)), {"by_status": {"queued": 1}, "groups": {ARM: [key(1)]}}),
    (job(refused="fork"), REFUSED),
    (job(refused="unknown"), REFUSED | {"unsure": {("github", "acme/app", 7): [key(1)]}}),
    (job(refused="unknown", run_id=8), REFUSED | {"unsure": {("github", "acme/app", 8): [key(1)]}}),
    (job(JobStatus.WAITING), {"by_status": {"waiting": 1}}),
    (job(JobStatus.RUNNING), {"by_status": {"running": 1}, "running": [key(1)]}),
    (job(JobStatus.RUNNING, refused="fork"), {"by_status": {"running": 1}, "running": [key(1)]}),
    (job(JobStatus.DONE, ended=5), {"by_status": {"done": 1}, "finished": [key(1)]}),
    (job(JobStatus.GONE, ended=5), {"by_status": {"gone": 1}, "finished": [key(1)]}),
]


@pytest.mark.parametrize("place", range(len(JOBS)))
def test_whatever_a_job_becomes_it_is_counted_as_that_and_as_nothing_else(place: int) -> None:
    before, was = JOBS[place]
    for after, now in JOBS:
        index = Index()
        index.job_changed(None, before, "at {}".format)
        assert of_jobs(index) == was
        index.dirty_groups.clear()
        index.job_changed(before, after, "at {}".format)
        assert of_jobs(index) == now
        if was.get("groups") != now.get("groups"):
            assert set(index.dirty_groups) == {*was.get("groups", ()), *now.get("groups", ())}
        index.job_changed(after, None, "at {}".format)
        assert of_jobs(index) == {}


def test_a_class_keeps_its_jobs_in_the_order_in_which_they_came() -> None:
    index = Index()
    for number in (3, 1, 2):
        index.job_changed(None, replace(job(), key=key(number), order=number), str)
    (group,) = index.groups.values()
    assert (list(group.queued), group.unmatched) == ([key(1), key(2), key(3)], 3)
    group.matched = 2
    assert group.unmatched == 1
    index.job_changed(replace(job(), key=key(2), order=2), None, str)
    assert list(group.queued) == [key(1), key(3)]


def test_repositories_of_one_name_in_other_letters_are_one_class() -> None:
    assert group_name(job(key=key(1, "Acme/App"))) == group_name(job())


def test_a_new_class_has_nothing_matched() -> None:
    assert Group("any", key(1), LABELS).unmatched == 0


def test_ended_jobs_are_counted_at_once_as_they_would_be_one_by_one() -> None:
    rows = [
        replace(job(status, ended=number), key=key(number))
        for number, status in enumerate((JobStatus.DONE, JobStatus.GONE, JobStatus.DONE), start=1)
    ]
    at_once, singly = Index(), Index()
    at_once.ended_jobs({row.key: row for row in rows})
    for row in rows:
        singly.job_changed(None, row, str)
    assert of_jobs(at_once) == of_jobs(singly)
    assert at_once.by_status == {"done": 2, "gone": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"state": S.LISTENING},
        {"fence": Fence(sent=5)},
        {"job": key(2, "acme/lib")},
        {"consumes": True},
        {"offered": True},
        {"late": True},
        {"registration": 9},
        {"lost": 5},
        {"order_given": Order("ann", "why", even_if_busy=False, at=5)},
        {"intent": key(3)},
        {"labels": ("gpu",)},
        {"pool": "big"},
        {"host": "there"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_each_field_that_an_index_rests_on_is_followed_by_itself(change: dict[str, Any]) -> None:
    old = runner(S.STARTING, intent=key(1), registration=3)
    new = replace(old, **change)
    index, fresh = Index(), Index()
    index.runner_changed(None, old)
    index.runner_changed(old, new)
    fresh.runner_changed(None, new)
    assert of_runners(index) == of_runners(fresh)


def test_the_job_that_a_runner_was_made_for_is_followed_although_it_has_another_one() -> None:
    old = runner(S.RUNNING, intent=key(1), job=key(9))
    new = replace(old, intent=key(3))
    index, fresh = Index(), Index()
    index.runner_changed(None, old)
    index.runner_changed(old, new)
    fresh.runner_changed(None, new)
    assert of_runners(index) == of_runners(fresh)


def test_a_runner_that_comes_nearer_to_listening_changes_who_is_left_over_where_one_is() -> None:
    old = runner(S.STARTING)
    new = replace(old, state=S.LISTENING)
    index = Index()
    index.runner_changed(None, old)
    index.runner_changed(old, new)
    assert index.advanced == {}
    index.runner_changed(new, old)
    index.leftover["small"] = 1
    index.runner_changed(old, new)
    assert index.advanced == {"small": None}


def test_a_runner_of_another_scope_has_another_registration() -> None:
    old = runner(S.STARTING, registration=3)
    new = replace(old, scope=LIB)
    index = Index()
    index.runner_changed(None, old)
    index.runner_changed(old, new)
    assert list(index.registrations) == [(str(LIB), 3)]
