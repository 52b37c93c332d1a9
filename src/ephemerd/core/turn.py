"""One turn: the handling of one event. Everything that changes or leaves the core goes through it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from ephemerd.core.commands import Command
from ephemerd.core.rows import ClassRow, HostRow, PoolRow, ScopeRow
from ephemerd.core.state import State
from ephemerd.core.step import Note, Step
from ephemerd.domain.access import Access
from ephemerd.domain.ids import JobKey, RunnerId, job_text, scope_text
from ephemerd.domain.job import Job
from ephemerd.domain.pool import Policy, Setup
from ephemerd.domain.runner import Decision, Runner


class Turn(msgspec.Struct, eq=False, gc=False):
    """Collects the effects of one event at `now` (ms) and keeps the indexes true as rows change. Each turn has lists
    and dicts of its own, which msgspec makes in C.

    policy   the state's, whatever is given
    stirred  how often anything was changed that planning could rest on
    """

    state: State
    now: int
    policy: Policy = Policy()
    touched: dict[RunnerId, None] = {}
    stirred: int = 0
    _commands: list[Command] = []
    _changed: dict[tuple[str, str], tuple[str, str, Any]] = {}
    _decisions: list[Decision] = []
    _notes: list[Note] = []
    _subjects: dict[str, None] = {}

    def __post_init__(self) -> None:
        self.policy = self.state.setup.policy

    def configure(self, setup: Setup) -> None:
        """Go on with another configuration; its policy is kept, so that the rows alone give an equal core."""
        self.state.setup = setup
        self.policy = setup.policy
        self._changed["policy", "policy"] = ("policy", "policy", setup.policy)

    def runner(self, name: RunnerId) -> Runner | None:
        return self.state.runners.get(name)

    def put_runner(self, row: Runner) -> Runner:
        """Make this the runner's row; the runner is examined again before the turn ends."""
        name, state, subjects = row.id, self.state, self._subjects
        old = state.runners.get(name)
        if old == row:
            return row
        self.stirred += 1
        state.runners[name] = row
        state.index.runner_changed(old, row)
        self._changed["runner", name] = ("runner", name, row)
        self.touched[name] = None
        subjects[name] = None
        if row.job is not None:
            subjects[job_text(row.job)] = None
        return row

    def change_runner(self, row: Runner, **changes: Any) -> Runner:
        """Put the row with some fields changed."""
        return self.put_runner(replace(row, **changes))

    def drop_runner(self, row: Runner) -> None:
        """Forget a runner that is over and done with."""
        self.stirred += 1
        self.state.index.runner_changed(self.state.runners.pop(row.id), None)
        self._changed["runner", row.id] = ("runner", row.id, None)
        self.state.agenda.set("runner", row.id, None)
        self.touched.pop(row.id, None)

    def touch(self, names: Iterable[RunnerId]) -> None:
        """Have these runners examined before the turn ends."""
        for name in names:
            self.touched[name] = None

    def put_job(self, row: Job) -> Job:
        """Make this the job's row."""
        key, state = row.key, self.state
        old = state.jobs.get(key)
        if old is row or old == row:
            return row
        self.stirred += 1
        name = job_text(key)
        state.jobs[key] = row
        state.index.job_changed(old, row, state.host_of)
        self._changed["job", name] = ("job", name, row)
        self._subjects[name] = None
        if not (_is_quiet(row) and (old is None or _is_quiet(old))):
            self.schedule_job(row)
        return row

    def schedule_job(self, row: Job) -> None:
        """Wake when the job's row wants the next look."""
        self.state.agenda.set("job", job_text(row.key), job_moment(row, self.policy, self.now))

    def change_job(self, row: Job, **changes: Any) -> Job:
        """Put the row with some fields changed."""
        return self.put_job(replace(row, **changes))

    def drop_job(self, key: JobKey) -> None:
        """Forget a finished job."""
        self.stirred += 1
        old = self.state.jobs.pop(key)
        self.state.index.job_changed(old, None, self.state.host_of)
        self._changed["job", str(key)] = ("job", str(key), None)
        self.state.agenda.set("job", str(key), None)

    def put_scope(self, row: ScopeRow) -> ScopeRow:
        self.stirred += 1
        name = scope_text(row.scope)
        self.state.keep_scope(row)
        self._changed["scope", name] = ("scope", name, row)
        return row

    def put_pool(self, row: PoolRow) -> PoolRow:
        self.stirred += 1
        self.state.keep_pool(row)
        self._changed["pool", row.pool.name] = ("pool", row.pool.name, row)
        self.state.agenda.set("pool", row.pool.name, row.not_before if row.not_before > self.now else None)
        return row

    def put_host(self, row: HostRow) -> HostRow:
        self.stirred += 1
        self.state.hosts[row.name] = row
        self._changed["host", row.name] = ("host", row.name, row)
        return row

    def put_class(self, name: str, row: ClassRow | None) -> None:
        """Keep, or forget (None), what is known of a class of demand."""
        self.stirred += 1
        state = self.state
        if row is not None and row.held:
            state.index.held_back[name] = None
        else:
            state.index.held_back.pop(name, None)
        if row is None:
            del state.classes[name]
        else:
            state.classes[name] = row
        self._changed["class", name] = ("class", name, row)

    def put_access(self, forge: str, row: Access | None) -> None:
        """Keep, or forget (None), who may use the runners of a forge."""
        self._changed["access", forge] = ("access", forge, row)

    def set_meta(self, name: str, value: Any) -> None:
        self.stirred += 1
        self.state.meta[name] = value
        self._changed["meta", name] = ("meta", name, value)

    def draw(self, name: str) -> int:
        """Return the next number of a persisted sequence (1, 2, …)."""
        value = int(self.state.meta.get(name, 0)) + 1
        self.set_meta(name, value)
        return value

    def count(self, name: str, by: int = 1, **labels: str) -> None:
        """Add to a counter that is part of the state."""
        key = _counter(name, **labels)
        value = self.state.counters.get(key, 0) + by
        self.state.counters[key] = value
        self._changed["counter", key] = ("counter", key, value)

    def send(self, command: Command) -> None:
        self._commands.append(command)

    def decide(self, decision: Decision) -> None:
        self._decisions.append(decision)
        self._subjects[decision.runner] = None

    def note(self, level: str, text: str, **fields: object) -> None:
        """Leave a line for the log."""
        pairs = tuple(sorted((name, str(value)) for name, value in fields.items()))
        self._notes.append(Note(level, text, pairs))

    def concern(self, subject: str) -> None:
        """Say that this event concerns a runner or job (as text)."""
        self._subjects[subject] = None

    def step(self) -> Step:
        """Return the turn's whole effect."""
        return Step(
            tuple(self._commands) if self._commands else (),
            tuple(self._changed.values()),
            tuple(self._decisions) if self._decisions else (),
            tuple(self._notes) if self._notes else (),
            tuple(sorted(self._subjects)),
        )


@lru_cache(maxsize=1_024)
def _counter(name: str, **labels: str) -> str:
    """Return the key of a counter with its labels."""
    return "|".join([name, *(f"{label}={value}" for label, value in sorted(labels.items()))])


def _is_quiet(row: Job) -> bool:
    """Say whether nothing is open about a job, so that it has no moment: nearly all of them, nearly always."""
    return row.asked is None and row.ask_again is None and not row.not_before


def job_moment(row: Job, policy: Policy, now: int) -> int | None:
    """Return when a job's row wants a look: an unanswered question, one to be repeated, a backoff's end."""
    moment = row.ask_again if row.asked is None else row.asked + policy.confirm_wait
    if row.not_before > now and (moment is None or row.not_before < moment):
        return row.not_before
    return moment
