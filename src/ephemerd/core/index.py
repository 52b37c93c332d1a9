"""Everything that is counted or found without a scan; each entry equals a recount of the rows.

`Index` only follows: `State` tells it of each row that changed. Where an order matters, whoever reads
sorts by a persisted key; dicts here are used as ordered sets and their order means nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

import msgspec

from ephemerd.core.line import Line
from ephemerd.core.matching import Taker
from ephemerd.domain.access import Refusal
from ephemerd.domain.ids import JobKey, RunnerId, scope_text
from ephemerd.domain.job import ENDED_STATUSES, J, Job, JobStatus
from ephemerd.domain.labels import SEPARATOR
from ephemerd.domain.runner import HOLDS_SLOT, UNBOUND, Runner, RunnerState, S

K = TypeVar("K", bound=Hashable)


class Group(msgspec.Struct):
    """One class of demand: the queued jobs of one repository with one class key.

    pools      those that satisfy it, the least flexible first: where a runner for it can be made
    varieties  the runners that satisfy it, the least flexible first
    matched    units that the last matching gave supply
    turn       its place in the line of each of its pools; None where it has none
    """

    name: str
    sample: JobKey
    labels: tuple[str, ...]
    pools: tuple[str, ...] = ()
    varieties: tuple[str, ...] = ()
    queued: Line = msgspec.field(default_factory=Line)
    matched: int = 0
    turn: Turn | None = None

    @property
    def unmatched(self) -> int:
        """Count the jobs that the last matching left without supply."""
        return len(self.queued.jobs) - self.matched


Turn = tuple[int, int, str]
"""Number of the last dispatch for a class, arrival number of its oldest job, its name."""


Run = tuple[str, str, int]
"""A run of a workflow: forge, repository, the forge's id of it."""


def run_of(job: Job) -> Run:
    """Return the run that a job belongs to."""
    return (job.key.forge, job.key.repository, job.run_id)


def group_name(job: Job) -> str:
    """Return the name of the class of demand that a job belongs to."""
    return _group_name(job.key.forge, job.key.repository, job.labels)


@lru_cache(maxsize=1_024)
def _group_name(forge: str, repository: str, labels: tuple[str, ...]) -> str:
    return f"{forge}/{repository.lower()}|{SEPARATOR.join(labels)}"


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


def variety_of(row: Runner) -> str:
    """Return the variety of a runner: its pool, and its labels where they are not the pool's."""
    return SEPARATOR.join((row.pool, *row.labels)) if row.labels else row.pool


def pool_of(variety: str) -> str:
    """Return the pool of a variety."""
    return variety.partition(SEPARATOR)[0]


def labels_of(variety: str) -> tuple[str, ...]:
    """Return the labels of a variety, () where they are its pool's."""
    _, found, labels = variety.partition(SEPARATOR)
    return tuple(labels.split(SEPARATOR)) if found else ()


_Seat = tuple[str | None, str | None, str | None, tuple[str, str] | None, JobKey | None]
_NO_SEAT: _Seat = (None, None, None, None, None)
_Place = tuple[str | None, str | None, _Seat, tuple[str, int] | None]
_NOWHERE: _Place = (None, None, _NO_SEAT, None)


@dataclass(slots=True)
class Index:
    """`supply`, `consuming`, `takers`, `flow` and `leftover` are by variety, `live` and `turns` by pool.

    advanced  the varieties of whose supply something is left over and a runner came nearer to listening, while all
              counts stay as they are
    leftover  how much supply of a variety the last matching left over, where it did
    takers    the classes that a variety serves, the least flexible first
    links     how many classes hang a variety and another one together
    flow      what of a class's demand the last matching gave a variety
    turns     the classes that a pool serves, in the order in which they are served
    states    how many runners of a pool are in each state; statuses: how many jobs in each status
    odd       the varieties with other labels than their pool's that have a runner
    held_back the classes for which the forge may be holding back
    unmatched the jobs that wait, of all classes, less the units that matchings gave them; once what changed is matched
              again it is 0 where no class has a job without supply
    """

    groups: dict[str, Group] = field(default_factory=dict)
    takers: dict[str, list[Taker]] = field(default_factory=dict)
    links: dict[str, dict[str, int]] = field(default_factory=dict)
    flow: dict[str, dict[str, int]] = field(default_factory=dict)
    turns: dict[str, list[Turn]] = field(default_factory=dict)
    odd: dict[str, None] = field(default_factory=dict)
    held_back: dict[str, None] = field(default_factory=dict)
    unmatched: int = 0
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
    statuses: dict[JobStatus, int] = field(default_factory=lambda: dict.fromkeys(JobStatus, 0))
    states: defaultdict[str, dict[RunnerState, int]] = field(
        default_factory=lambda: defaultdict(_in_no_state)
    )
    leftover: dict[str, int] = field(default_factory=dict)
    refused: dict[JobKey, None] = field(default_factory=dict)
    unsure: dict[Run, dict[JobKey, None]] = field(default_factory=dict)
    by_repository: dict[tuple[str, str], int] = field(default_factory=dict)
    dirty_groups: dict[str, None] = field(default_factory=dict)
    dirty_varieties: dict[str, None] = field(default_factory=dict)
    advanced: dict[str, None] = field(default_factory=dict)

    @property
    def by_status(self) -> dict[str, int]:
        """Return how many jobs there are in each status where there are any."""
        return {status.value: count for status, count in self.statuses.items() if count}

    @property
    def by_state(self) -> dict[tuple[str, str], int]:
        """Return how many runners there are of each pool in each state where there are any."""
        return {
            (pool, state.value): count
            for pool, counts in self.states.items()
            for state, count in counts.items()
            if count
        }

    def runner_changed(self, old: Runner | None, new: Runner | None) -> None:
        """Follow a runner's row from `old` to `new` (None where there is none).

        What is the very same object cannot have moved; another one that says the same may be followed in vain.
        """
        if old is None or new is None:
            self._runner_came_or_went(old, new)
        elif (
            old.state is not new.state
            or old.consumes is not new.consumes
            or old.job is not new.job
            or old.intent is not new.intent
            or old.registration is not new.registration
            or old.labels is not new.labels
            or old.pool is not new.pool
            or old.host is not new.host
            or old.scope is not new.scope
            or (new.state in UNBOUND and is_supply(old) is not is_supply(new))
        ):
            self._runner_moved(old, new)

    def _runner_came_or_went(self, old: Runner | None, new: Runner | None) -> None:
        """Take in, or take out, the whole of a row."""
        row = new or old
        assert row is not None, "a row that is, or that was"
        self.states[row.pool][row.state] += 1 if row is new else -1
        before, after, name = _place(old), _place(new), row.id
        self._rejoin(self.supply, name, before[0], after[0])
        self._rejoin(self.consuming, name, before[1], after[1])
        self._seat_changed(name, before[2], after[2])
        _refile(self.registrations, name, before[3], after[3])

    def _runner_moved(self, old: Runner, new: Runner) -> None:
        """Move a row in those indexes for which something that they rest on is another."""
        name, was, now = new.id, old.state, new.state
        if was is not now or old.pool != new.pool:
            self.states[old.pool][was] -= 1
            self.states[new.pool][now] += 1
        if was in UNBOUND or now in UNBOUND:
            left = variety_of(old) if is_supply(old) else None
            joined = variety_of(new) if is_supply(new) else None
            if left != joined:
                self._rejoin(self.supply, name, left, joined)
            elif joined in self.leftover and was is not now:
                self.advanced[joined] = None  # the most advanced of the supply are matched first
        if old.consumes or new.consumes:
            left = variety_of(old) if old.consumes else None
            joined = variety_of(new) if new.consumes else None
            if left != joined:
                self._rejoin(self.consuming, name, left, joined)
        if (
            (was is not now and (was not in HOLDS_SLOT or now not in HOLDS_SLOT))
            or old.intent is not new.intent
            or (old.job or old.intent) is not (new.job or new.intent)
            or old.pool != new.pool
            or old.host != new.host
        ):
            self._seat_changed(name, _seat(old), _seat(new))
        if old.registration is not new.registration or old.scope is not new.scope:
            _refile(self.registrations, name, _registered(old), _registered(new))

    def _seat_changed(self, name: RunnerId, before: _Seat, after: _Seat) -> None:
        """Follow a runner's slot, and what of its host, its repository and its job rests on it."""
        if before[0] != after[0]:
            _refile(self.live, name, before[0], after[0])
        if before[1] != after[1]:
            _moved(self.held, before[1], after[1])
        if before[2] != after[2]:
            _moved(self.abandoned, before[2], after[2])
        if before[3] != after[3]:
            _moved(self.by_repository, before[3], after[3])
        if before[4] != after[4]:
            _refile(self.intents, name, before[4], after[4])

    def _rejoin(
        self, members: dict[str, dict[RunnerId, None]], name: RunnerId, was: str | None, now: str | None
    ) -> None:
        """Move a runner among the members of varieties, which are matched anew."""
        if was is not None:
            del members[was][name]
            self.dirty_varieties[was] = None
        if now is not None:
            members.setdefault(now, {})[name] = None
            self.dirty_varieties[now] = None

    def job_changed(self, old: Job | None, new: Job | None, host: Callable[[str], str]) -> None:
        """Follow a job's row; `host` gives the host of a pool."""
        if old is not None and old.asking == "confirm":
            self._reserve(old, host, -1)
        if new is not None and new.asking == "confirm":
            self._reserve(new, host, 1)
        if (
            old is not None
            and new is not None
            and old.status is new.status
            and old.labels == new.labels
            and old.refused == new.refused
            and old.run_id == new.run_id
        ):
            return  # no index rests on anything else but its question
        if old is not None:
            self._job(old, -1)
        if new is not None:
            self._job(new, 1)

    def _reserve(self, row: Job, host: Callable[[str], str], sign: int) -> None:
        """The forge is asked about a job, for which a slot is kept free meanwhile."""
        _bump(self.reserved, host(row.pool), sign)
        _bump(self.asked, group_name(row), sign)

    def ended_jobs(self, rows: Mapping[JobKey, Job]) -> None:
        """Follow many ended jobs at once, oldest first: nearly all that a restart finds in the store."""
        self.finished.update(dict.fromkeys(rows))
        for status, count in Counter([row.status for row in rows.values()]).items():
            self.statuses[status] += count

    def _job(self, row: Job, sign: int) -> None:
        status = row.status
        self.statuses[status] += sign
        if status is J.QUEUED:
            if row.refused:
                self._refused(row, sign)
            else:
                self._queued(row, sign)
        elif status is J.RUNNING:
            _member_job(self.running, row.key, sign)
        elif status in ENDED_STATUSES:
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
        self.unmatched += sign
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


def _in_no_state() -> dict[RunnerState, int]:
    return dict.fromkeys(RunnerState, 0)


def _place(row: Runner | None) -> _Place:
    """Return where a whole row stands: supply, consuming, seat, registration."""
    if row is None:
        return _NOWHERE
    return (
        variety_of(row) if is_supply(row) else None,
        variety_of(row) if row.consumes else None,
        _seat(row),
        _registered(row),
    )


def _seat(row: Runner) -> _Seat:
    """Return where a row stands in each index that rests on its slot: live, held, abandoned, repository, intent."""
    if row.state not in HOLDS_SLOT:
        return (None, None, row.host, None, None) if row.state is S.ABANDONED else _NO_SEAT
    job = row.job or row.intent
    repository = None if job is None else (job.forge, job.repository.lower())
    return (row.pool, row.host, None, repository, row.intent)


def _registered(row: Runner) -> tuple[str, int] | None:
    return None if row.registration is None else (scope_text(row.scope), row.registration)


def _member_job(members: dict[JobKey, None], key: JobKey, sign: int) -> None:
    if sign > 0:
        members[key] = None
    else:
        del members[key]


def _bump(counts: dict[K, int], name: K, by: int) -> None:
    value = counts.get(name, 0) + by
    if value:
        counts[name] = value
    else:
        counts.pop(name, None)


def _moved(counts: dict[K, int], was: K | None, now: K | None) -> None:
    """Count one less there and one more here."""
    if was is not None:
        left = counts[was] - 1
        if left:
            counts[was] = left
        else:
            del counts[was]
    if now is not None:
        counts[now] = counts.get(now, 0) + 1


def _refile(files: dict[K, dict[RunnerId, None]], name: RunnerId, was: K | None, now: K | None) -> None:
    """Put a runner from one file into another; an empty file is thrown away."""
    if was is not None:
        del files[was][name]
        if not files[was]:
            del files[was]
    if now is not None:
        files.setdefault(now, {})[name] = None
