"""Dispatches: one a queued job, filed under it, made when its slot is free."""

from __future__ import annotations

from ephemerd.core import commands as cm
from ephemerd.core.index import group_name
from ephemerd.core.state import State
from ephemerd.core.transitions import move_runner
from ephemerd.core.turn import Turn
from ephemerd.domain.ids import JobKey, runner_name
from ephemerd.domain.job import Job, JobStatus
from ephemerd.domain.labels import satisfies
from ephemerd.domain.pool import Pool
from ephemerd.domain.runner import Runner, RunnerState

S = RunnerState
Fit = tuple[str, str, tuple[str, ...]]


def _fit(job: Job) -> Fit:
    """Return what decides which pools serve a job."""
    return (job.key.forge, job.key.repository, job.labels)


class Dispatches:
    """The books, and the dispatches that wait for a slot.

    waiting   pool -> job -> number of the dispatch, in the order in which they came
    attempts  job -> runners for it that ended without its being seen running
    claims    job -> registrations for it that failed
    """

    def __init__(self) -> None:
        self.state = State()
        self._forget()

    def _forget(self) -> None:
        """Start with an empty memory: dispatches that wait, failures so far, pools by label set."""
        self.waiting: dict[str, dict[JobKey, int]] = {}
        self.attempts: dict[JobKey, int] = {}
        self.claims: dict[JobKey, int] = {}
        self._fitting: dict[Fit, tuple[str, ...]] = {}

    def dispatch(self, t: Turn, job: Job) -> None:
        """File a dispatch for a job that has none; it waits for a slot."""
        if job.status is not JobStatus.QUEUED or job.not_before > t.now or job.key in t.state.index.intents:
            return
        pool, group = self._pool_of(t, job), t.state.group(group_name(job))
        if pool is not None and group is not None and not group.pools:
            group.pools = self._fitting[_fit(job)]
        if pool is not None and job.key not in self.waiting.setdefault(pool.name, {}):
            self.waiting[pool.name][job.key] = t.draw("dispatch")

    def _pool_of(self, t: Turn, job: Job) -> Pool | None:
        """Return the most specific pool that serves the job."""
        fit = _fit(job)
        if fit not in self._fitting:
            fitting = [
                pool
                for pool in t.state.setup.pools
                if job.labels and pool.scope.serves(job.key) and satisfies(pool.labels, job.labels)
            ]
            fitting.sort(key=lambda pool: (len(pool.labels), pool.name))
            self._fitting[fit] = tuple(pool.name for pool in fitting)
        names = self._fitting[fit]
        return t.state.pool(names[0]) if names else None

    def _grant(self, t: Turn) -> None:
        """Give free slots to the dispatches that wait, the oldest first."""
        while True:
            heads = [(self._head(t, name), name) for name in list(self.waiting) if self._room(t, name)]
            ready = [(line_number, name) for line_number, name in heads if line_number is not None]
            if not ready:
                return
            _, name = min(ready)
            key = next(iter(self.waiting[name]))
            del self.waiting[name][key]
            job = t.state.jobs[key]
            self.granted(t, job, self._planned(t, job, t.state.pool(name)), waited=t.now > job.since)

    def _head(self, t: Turn, pool: str) -> int | None:
        """Return the number of a pool's first dispatch that is still to be made; drop those before it."""
        line = self.waiting[pool]
        while line:
            key = next(iter(line))
            job = t.state.jobs.get(key)
            if job is not None and key not in t.state.index.intents and self.still_wanted(job):
                return line[key]
            del line[key]
        return None

    def _room(self, t: Turn, name: str) -> bool:
        pool = t.state.pool(name)
        held = len(t.state.index.live.get(name, ()))
        return t.state.slots_free(pool.host) > 0 and held < pool.max_concurrent

    def _planned(self, t: Turn, job: Job, pool: Pool) -> Runner:
        number = t.draw("runner")
        return t.put_runner(
            Runner(
                id=runner_name(t.state.store, t.state.epoch, number),
                pool=pool.name,
                host=pool.host,
                scope=pool.scope,
                order=number,
                state=S.PLANNED,
                since=t.now,
                created=t.now,
                intent=job.key,
            )
        )

    def register(self, t: Turn, row: Runner) -> None:
        """Claim: register a runner for the job that it was planned for."""
        row = t.put_runner(move_runner(row, S.REGISTERING, t.now))
        t.send(cm.Register(row.id, row.scope, t.state.pool(row.pool).labels))

    def still_wanted(self, job: Job) -> bool:
        """Say whether a dispatch that waited is still to be made, when its slot is there."""
        return True

    def granted(self, t: Turn, job: Job, row: Runner, *, waited: bool) -> None:
        """A dispatch has its slot."""
        self.register(t, row)
