"""Everything that is counted or found without a scan; each entry equals a recount of the rows.

`Index` only follows: `State` tells it of each row that changed. Where an order matters, whoever reads
sorts by a persisted key; dicts here are used as ordered sets and their order means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ephemerd.core.line import Line
from ephemerd.domain.access import Refusal
from ephemerd.domain.ids import JobKey, RunnerId
from ephemerd.domain.job import ENDED_STATUSES, Job, JobStatus
from ephemerd.domain.labels import SEPARATOR
from ephemerd.domain.runner import HOLDS_SLOT, UNBOUND, Runner, RunnerState


@dataclass(slots=True)
class Group:
    """One class of demand: the queued jobs of one repository with one class key.

    unmatched counts the jobs that the last matching left without supply.
    """

    name: str
    sample: JobKey
    labels: tuple[str, ...]
    pools: tuple[str, ...] = ()
    queued: Line = field(default_factory=Line)
    unmatched: int = 0


Run = tuple[str, str, int]
"""A run of a workflow: forge, repository, the forge's id of it."""


def run_of(job: Job) -> Run:
    """Return the run that a job belongs to."""
    return (job.key.forge, job.key.repository, job.run_id)


def group_name(job: Job) -> str:
    """Return the name of the class of demand that a job belongs to."""
    return f"{job.key.forge}/{job.key.repository.lower()}|{SEPARATOR.join(job.labels)}"


def is_supply(runner: Runner) -> bool:
    """Say whether a runner counts as supply (DOMAIN.md, glossary)."""
    return (
        runner.state in UNBOUND
        and not runner.late
        and not runner.offered
        and runner.fence.sent is None
        and runner.lost is None
        and runner.order_given is None
    )


@dataclass(slots=True)
class Index:
    groups: dict[str, Group] = field(default_factory=dict)
    pool_groups: dict[str, dict[str, None]] = field(default_factory=dict)
    supply: dict[str, dict[RunnerId, None]] = field(default_factory=dict)
    consuming: dict[str, dict[RunnerId, None]] = field(default_factory=dict)
    live: dict[str, dict[RunnerId, None]] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    reserved: dict[str, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    abandoned: dict[str, int] = field(default_factory=dict)
    intents: dict[JobKey, dict[RunnerId, None]] = field(default_factory=dict)
    registrations: dict[tuple[str, int], dict[RunnerId, None]] = field(default_factory=dict)
    running: dict[JobKey, None] = field(default_factory=dict)
    finished: dict[JobKey, None] = field(default_factory=dict)
    by_status: dict[str, int] = field(default_factory=dict)
    by_state: dict[tuple[str, str], int] = field(default_factory=dict)
    leftover: dict[str, int] = field(default_factory=dict)
    refused: dict[JobKey, None] = field(default_factory=dict)
    unsure: dict[Run, dict[JobKey, None]] = field(default_factory=dict)
    by_repository: dict[tuple[str, str], int] = field(default_factory=dict)
    dirty_groups: dict[str, None] = field(default_factory=dict)
    dirty_pools: dict[str, None] = field(default_factory=dict)

    def runner_changed(self, old: Runner | None, new: Runner | None) -> None:
        """Follow a runner's row from `old` to `new` (None where there is none)."""
        if old is not None and new is not None and _place(old) == _place(new):
            return
        if old is not None:
            self._runner(old, -1)
        if new is not None:
            self._runner(new, 1)

    def _runner(self, row: Runner, sign: int) -> None:
        pool = row.pool
        _bump_pair(self.by_state, (pool, row.state.value), sign)
        if is_supply(row):
            _member(self.supply.setdefault(pool, {}), row.id, sign)
            self.dirty_pools[pool] = None
        if row.consumes:
            _member(self.consuming.setdefault(pool, {}), row.id, sign)
            self.dirty_pools[pool] = None
        if row.state in HOLDS_SLOT:
            _member(self.live.setdefault(pool, {}), row.id, sign)
            _bump(self.held, row.host, sign)
            if (job := row.job or row.intent) is not None:
                _bump_pair(self.by_repository, (job.forge, job.repository.lower()), sign)
        elif row.state is RunnerState.ABANDONED:
            _bump(self.abandoned, row.host, sign)
        if row.intent is not None and row.state in HOLDS_SLOT:
            members = self.intents.setdefault(row.intent, {})
            _member(members, row.id, sign)
            if not members:
                del self.intents[row.intent]
        if row.registration is not None:
            key = (str(row.scope), row.registration)
            bearers = self.registrations.setdefault(key, {})
            _member(bearers, row.id, sign)
            if not bearers:
                del self.registrations[key]

    def job_changed(self, old: Job | None, new: Job | None, host: Callable[[str], str]) -> None:
        """Follow a job's row; `host` gives the host of a pool."""
        for row, sign in ((old, -1), (new, 1)):
            if row is not None and row.asking == "confirm":
                _bump(self.reserved, host(row.pool), sign)
                _bump(self.asked, group_name(row), sign)
        if old is not None and new is not None and _standing(old) == _standing(new):
            return
        if old is not None:
            self._job(old, -1)
        if new is not None:
            self._job(new, 1)

    def ended_jobs(self, rows: Iterable[Job]) -> None:
        """Follow many ended jobs at once, oldest first: nearly all that a restart finds in the store."""
        for row in rows:
            self.finished[row.key] = None
            status = row.status.value
            self.by_status[status] = self.by_status.get(status, 0) + 1

    def _job(self, row: Job, sign: int) -> None:
        _bump(self.by_status, row.status.value, sign)
        if row.status is JobStatus.QUEUED and row.refused:
            self._refused(row, sign)
        elif row.status is JobStatus.QUEUED:
            self._queued(row, sign)
        elif row.status is JobStatus.RUNNING:
            _member_job(self.running, row.key, sign)
        elif row.status in ENDED_STATUSES:
            _member_job(self.finished, row.key, sign)

    def _refused(self, row: Job, sign: int) -> None:
        _member_job(self.refused, row.key, sign)
        if row.refused == Refusal.UNKNOWN.value:
            run = run_of(row)
            members = self.unsure.setdefault(run, {})
            _member_job(members, row.key, sign)
            if not members:
                del self.unsure[run]

    def _queued(self, row: Job, sign: int) -> None:
        name = group_name(row)
        if sign < 0:
            group = self.groups[name]
            group.queued.drop(row.order)
            self.dirty_groups[name] = None
            return
        group_or_none = self.groups.get(name)
        if group_or_none is None:
            group_or_none = Group(name, row.key, row.labels)
            self.groups[name] = group_or_none
        group_or_none.queued.add(row.order, row.key)
        self.dirty_groups[name] = None


def _place(row: Runner) -> tuple[object, ...]:
    """Return everything of a row that an index rests on."""
    place = (row.state, is_supply(row), row.consumes, row.registration, row.pool, row.host, row.intent)
    return (*place, row.job)


def _standing(row: Job) -> tuple[object, ...]:
    """Return everything of a job's row that an index rests on, but for its question."""
    return (row.status, row.labels, row.refused, row.run_id)


def _member(members: dict[RunnerId, None], name: RunnerId, sign: int) -> None:
    if sign > 0:
        members[name] = None
    else:
        del members[name]


def _member_job(members: dict[JobKey, None], key: JobKey, sign: int) -> None:
    if sign > 0:
        members[key] = None
    else:
        del members[key]


def _bump(counts: dict[str, int], name: str, by: int) -> None:
    value = counts.get(name, 0) + by
    if value:
        counts[name] = value
    else:
        counts.pop(name, None)


def _bump_pair(counts: dict[tuple[str, str], int], name: tuple[str, str], by: int) -> None:
    value = counts.get(name, 0) + by
    if value:
        counts[name] = value
    else:
        counts.pop(name, None)
