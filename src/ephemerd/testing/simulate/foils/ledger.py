"""What the earlier designs share: one dispatch a job, a wait for a slot, claim retries, exits, a reconcile.

This much is common to the founding documents: a runner is registered for each queued job and filed under it;
a dispatch waits for a slot; a registration that fails is tried again with growing, jittered pauses; a runner
that ends while its job was never seen running is followed by another; a poll every 30 minutes dispatches what
is queued and has no runner; a runner is torn down when `job_timeout` has passed since it was dispatched.

Kept in their favour: the ledger survives a crash (theirs was in memory), a lost answer to a registration is
looked up, deregistrations that failed are repeated at each reconcile.

The ledger is the core's own `State`, written through `Turn`, so that slots, rows and indexes are checked alike.
A runner's `job` is the job that the forge said it runs ("bound"), its `intent` the one it was dispatched for.
"""

from __future__ import annotations

from typing import Any

from ephemerd.core import backoff
from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.index import group_name
from ephemerd.core.rows import HostRow, PoolRow
from ephemerd.core.state import Rows, State, load
from ephemerd.core.step import Step
from ephemerd.core.transitions import JOB_EDGES, move_job, move_runner
from ephemerd.core.turn import Turn, job_moment
from ephemerd.domain.errors import Fault
from ephemerd.domain.ids import JobKey, RunnerId, parse_job_key, runner_name
from ephemerd.domain.job import ForgeStatus, Job, JobReport, JobStatus, Told
from ephemerd.domain.labels import normalise, satisfies
from ephemerd.domain.permit import Warrant
from ephemerd.domain.pool import HOUR, MINUTE, SECOND, Pool, Setup
from ephemerd.domain.runner import FINAL, FenceAnswer, Runner, RunnerState
from ephemerd.testing.simulate.foils import forged

S = RunnerState

SWEEP_EVERY = MINUTE
RECONCILE_EVERY = 30 * MINUTE
JOB_TIMEOUT = 2 * HOUR
"""Default of the earlier daemon, counted from the dispatch (field problem 9)."""

MOST_ATTEMPTS = 5
"""Runners for one job that end without it being seen running, until the next reconcile (#95)."""

CLAIM_PAUSES = (30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE)
MOST_CLAIMS = 12
"""Failed registrations of one job, about 90 minutes, until the next reconcile (#104)."""

STATUS = {
    ForgeStatus.QUEUED: JobStatus.QUEUED,
    ForgeStatus.WAITING: JobStatus.WAITING,
    ForgeStatus.IN_PROGRESS: JobStatus.RUNNING,
    ForgeStatus.COMPLETED: JobStatus.DONE,
}
Fit = tuple[str, str, tuple[str, ...]]
REMEMBERED = 130 * MINUTE
"""How long the end of a job is remembered (field problem 15: 2 h 10 min)."""


def _fit(job: Job) -> Fit:
    """Return what decides which pools serve a job."""
    return (job.key.forge, job.key.repository, job.labels)


class Earlier:
    """A scheduler of an earlier design; what differs between them is in the hooks at the end of the class."""

    def __init__(self) -> None:
        self.state = State()
        self._forget()

    def _forget(self) -> None:
        """Start with an empty memory: dispatches that wait, failures so far, pools by label set."""
        self.waiting: dict[str, dict[JobKey, int]] = {}
        self.attempts: dict[JobKey, int] = {}
        self.claims: dict[JobKey, int] = {}
        self._fitting: dict[Fit, tuple[str, ...]] = {}

    def next_wake(self) -> int | None:
        """Return when it wants a `Woke` (ms), or None."""
        return self.state.agenda.next()

    def reload(self, rows: Rows, now: int) -> None:
        """Stand up from the rows; what waited for a slot is found again by the reconcile at the start."""
        self.state = load(rows)
        self._forget()
        t = Turn(self.state, now)
        for row in self.state.runners.values():
            self._arm(t, row)
        for job in self.state.jobs.values():
            self.state.agenda.set("job", str(job.key), job_moment(job, self.state.policy, now))
        for name in ("sweep", "reconcile"):
            if name in self.state.meta:
                self.state.agenda.set(name, "", int(self.state.meta[name]))

    def handle(self, event: ev.Event, now: int) -> Step:
        """Take in one event and return everything that follows from it."""
        t = Turn(self.state, now)
        self.take_in(t, event)
        self._grant(t)
        return t.step()

    def take_in(self, t: Turn, event: ev.Event) -> None:
        """Hand an event to what takes it in. Signs and operators' orders mean nothing to these designs."""
        match event:
            case ev.Booted():
                self._booted(t, event)
            case ev.Woke():
                self._due(t)
            case ev.JobReported():
                self._reported(t, event.report, event.told)
            case ev.SweepOrdered():
                self.sweep(t)
            case ev.EnvironmentsListed():
                self._environments(t, event)
            case (
                ev.Registered()
                | ev.RegistrationFailed()
                | ev.NameLookedUp()
                | ev.EnvironmentStarted()
                | ev.StartFailed()
                | ev.EnvironmentExited()
                | ev.FenceAnswered()
                | ev.EnvironmentDestroyed()
                | ev.DestroyFailed()
                | ev.Probed()
                | ev.RunnerLookedUp()
            ):
                row = t.runner(event.runner)
                if row is not None:
                    self._of_runner(t, row, event)
            case _:
                pass

    # The beginning of a process life, and the timers.

    def _booted(self, t: Turn, event: ev.Booted) -> None:
        self._configure(t, event)
        for row in sorted(t.state.runners.values(), key=lambda runner: runner.order):
            self._resume(t, row)
        self._next(t, "sweep", SWEEP_EVERY)
        for host in event.setup.hosts:
            t.send(cm.ListEnvironments(host.name))
        self._reconcile(t)

    def _configure(self, t: Turn, event: ev.Booted) -> None:
        setup: Setup = event.setup
        t.set_meta("store", event.store)
        t.set_meta("epoch", event.epoch)
        t.set_meta("booted", t.now)
        t.state.setup = setup
        t.put_policy(setup.policy)
        for pool in setup.pools:
            t.put_pool(PoolRow(pool))
        for host in setup.hosts:
            t.put_host(HostRow(host.name, host.slots))

    def _resume(self, t: Turn, row: Runner) -> None:
        """Attach again to what runs; undo what was half made; repeat what was on its way out."""
        if row.state is S.PLANNED:
            self._ended(t, row, "half made when the daemon was started again")
        elif row.state is S.REGISTERING:
            t.send(cm.LookUpName(row.id, row.scope))
        elif row.state is S.RETIRING or (row.state in FINAL and row.cleanup):
            t.send(forged.destroy(row, t.now, "resumed"))
        elif row.state in FINAL:
            self.deregister(t, row)
        elif row.environment is not None:
            t.send(cm.WatchRunner(row.id, row.pool, row.environment))

    def _environments(self, t: Turn, event: ev.EnvironmentsListed) -> None:
        """After a start: what was started without our hearing of it, and what is there no more."""
        found = {item.runner: item for item in event.found}
        for row in list(t.state.runners.values()):
            if row.host != event.host or not event.complete or row.created >= t.state.booted:
                continue
            if row.id in found and row.environment is None and row.state is S.STARTING:
                self._started(t, row, found[row.id].environment)
                t.send(cm.WatchRunner(row.id, row.pool, found[row.id].environment))
            elif row.id not in found and row.state in (S.STARTING, S.LISTENING, S.RUNNING):
                self._ended(t, row, "its environment is not there")

    def _next(self, t: Turn, name: str, pause: int) -> None:
        t.set_meta(name, t.now + pause)
        t.state.agenda.set(name, "", t.now + pause)

    def _due(self, t: Turn) -> None:
        for kind, name in t.state.agenda.due(t.now):
            if kind == "sweep":
                self._next(t, "sweep", SWEEP_EVERY)
                self._prune(t)
                self.sweep(t)
            elif kind == "reconcile":
                self._reconcile(t)
            elif kind == "job":
                key = parse_job_key(name)
                job = t.state.jobs.get(key) if key is not None else None
                if job is not None:
                    self.dispatch(t, job)
            elif kind == "runner":
                row = t.runner(RunnerId(name))
                if row is not None:
                    self.tear_down(t, row, "job_timeout has passed since its dispatch")

    def _prune(self, t: Turn) -> None:
        for key in list(t.state.index.finished):
            job = t.state.jobs[key]
            if job.ended is None or t.now - job.ended < REMEMBERED:
                break
            t.drop_job(key)

    def _reconcile(self, t: Turn) -> None:
        """The poll: jobs by scope; and what could not be deregistered is tried again."""
        self._next(t, "reconcile", RECONCILE_EVERY)
        for scope in sorted({pool.scope: None for pool in t.state.setup.pools}):
            t.send(cm.ListJobs(scope))
        for row in [row for row in t.state.runners.values() if row.state in FINAL]:
            self.deregister(t, row)

    # Jobs.

    def _reported(self, t: Turn, report: JobReport, told: Told) -> None:
        status = STATUS.get(report.status)
        if status is None:
            return
        job = t.state.jobs.get(report.key)
        if job is None:
            job = t.put_job(self._new_job(t, report, status))
        elif status is not job.status:
            if status not in JOB_EDGES[job.status]:
                return
            ended = t.now if status is JobStatus.DONE else None
            job = t.put_job(move_job(job, status, t.now, ended=ended, not_before=0))
        if status is JobStatus.QUEUED:
            if told is Told.LISTING:
                self.attempts.pop(job.key, None)
                self.claims.pop(job.key, None)
            self.dispatch(t, job)
        elif status is JobStatus.RUNNING:
            self._drop_retry(job)
            self.in_progress(t, job, report.runner_name)
        elif status is JobStatus.DONE:
            self._drop_retry(job)
            self.completed(t, job, report.runner_name)

    def _new_job(self, t: Turn, report: JobReport, status: JobStatus) -> Job:
        return Job(
            key=report.key,
            labels=normalise(report.labels),
            order=t.draw("job"),
            status=status,
            since=t.now,
            first_seen=t.now,
            confirmed=t.now,
            ended=t.now if status is JobStatus.DONE else None,
        )

    def _drop_retry(self, job: Job) -> None:
        """The job was seen running or over: its claim retry and its count of attempts go."""
        self.attempts.pop(job.key, None)
        self.claims.pop(job.key, None)

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

    # Runners.

    def _of_runner(self, t: Turn, row: Runner, event: Any) -> None:
        match event:
            case ev.Registered() if row.state is S.REGISTERING:
                t.put_runner(move_runner(row, S.STARTING, t.now, registration=event.registration))
                t.send(cm.StartRunner(row.id, row.pool))
            case ev.RegistrationFailed() if row.state is S.REGISTERING:
                self._claim_failed(t, row, event.fault)
            case ev.NameLookedUp():
                self._name_found(t, row, event)
            case ev.EnvironmentStarted() if row.state is S.STARTING:
                self._started(t, row, event.environment)
            case ev.StartFailed() if row.state is S.STARTING:
                self._ended(t, row, f"it did not start: {event.fault.detail}")
            case ev.EnvironmentExited() if row.state not in FINAL and row.state is not S.RETIRING:
                self._ended(t, row, "it exited")
            case ev.EnvironmentDestroyed():
                self._destroyed(t, row)
            case ev.DestroyFailed():
                t.send(forged.destroy(row, t.now, "once more"))
            case ev.FenceAnswered():
                if event.answer in (FenceAnswer.ACCEPTED, FenceAnswer.NOT_FOUND):
                    self._tidy(t, t.change_runner(row, unregister=False))
            case ev.Probed() | ev.RunnerLookedUp():
                self.looked(t, row, event)
            case _:
                pass

    def _claim_failed(self, t: Turn, row: Runner, fault: Fault) -> None:
        """Try the claim again later; the name may have been registered all the same."""
        gone = t.put_runner(move_runner(row, S.GONE, t.now, unregister=True))
        t.send(cm.LookUpName(gone.id, gone.scope))
        job = t.state.jobs.get(row.intent) if row.intent is not None else None
        if job is None or job.status is not JobStatus.QUEUED:
            return
        tries = self.claims.get(job.key, 0) + 1
        self.claims[job.key] = tries
        if tries <= MOST_CLAIMS:
            pause = backoff.delay(CLAIM_PAUSES, tries, 0.2, str(job.key))
            t.change_job(job, not_before=t.now + max(pause, fault.after_ms or 0))

    def _name_found(self, t: Turn, row: Runner, event: ev.NameLookedUp) -> None:
        if row.state is S.REGISTERING:
            row = t.put_runner(move_runner(row, S.GONE, t.now, unregister=True))
            self._provide_again(t, row)
        if event.fault is not None:
            t.change_runner(row, unregister=True)
        elif event.registration is None:
            self._tidy(t, t.change_runner(row, unregister=False))
        else:
            row = t.change_runner(row, registration=event.registration, unregister=True)
            self.deregister(t, row)

    def _started(self, t: Turn, row: Runner, environment: str) -> None:
        row = move_runner(row, S.LISTENING, t.now, environment=environment, started=t.now)
        self._arm(t, t.put_runner(row))

    def _arm(self, t: Turn, row: Runner) -> None:
        """Set the moment at which `job_timeout` tears the runner down."""
        if row.started is not None and row.state not in FINAL:
            limit = t.state.pool(row.pool).job_timeout or JOB_TIMEOUT
            t.state.agenda.set("runner", row.id, row.started + limit)

    def tear_down(self, t: Turn, row: Runner, rule: str, warrant: Warrant = Warrant.IDLE) -> None:
        """Destroy the runner's environment, now. One without an environment is not in the books yet."""
        if row.environment is None or row.state in FINAL or row.state is S.RETIRING:
            return
        t.note("info", "destroying runner environment", runner=row.id, rule=rule)
        t.count("destroyed_total", rule=rule)
        row = t.put_runner(move_runner(row, S.RETIRING, t.now, ending=rule))
        t.state.agenda.set("runner", row.id, None)
        t.send(forged.destroy(row, t.now, rule, warrant))

    def _destroyed(self, t: Turn, row: Runner) -> None:
        """Deregistration comes last."""
        if row.state is S.RETIRING:
            left = row.registration is not None
            row = t.put_runner(move_runner(row, S.GONE, t.now, unregister=left, cleanup=False))
            self.deregister(t, row)
            self._provide_again(t, row)
        else:
            self._tidy(t, t.change_runner(row, cleanup=False))

    def _ended(self, t: Turn, row: Runner, why: str) -> None:
        """A runner ended by itself: its slot is free, and its job may need another."""
        t.state.agenda.set("runner", row.id, None)
        remains = row.environment is not None
        left = row.registration is not None and row.job is None
        row = move_runner(row, S.GONE, t.now, ending=why, cleanup=remains, unregister=left)
        row = t.put_runner(row)
        if remains:
            t.send(forged.destroy(row, t.now, why))
        self.deregister(t, row)
        self._provide_again(t, row)

    def _provide_again(self, t: Turn, row: Runner) -> None:
        """Its intent job was never seen running: dispatch once more, a few times at most."""
        job = t.state.jobs.get(row.intent) if row.intent is not None else None
        if job is None or job.status is not JobStatus.QUEUED:
            return
        tries = self.attempts.get(job.key, 0) + 1
        self.attempts[job.key] = tries
        if tries < MOST_ATTEMPTS:
            self.dispatch(t, job)

    def deregister(self, t: Turn, row: Runner) -> None:
        """Have the registration of a runner that is gone removed, or its name looked up."""
        if not row.unregister:
            self._tidy(t, row)
        elif row.registration is None:
            t.send(cm.LookUpName(row.id, row.scope))
        else:
            t.send(forged.deregister(row, t.now, "gone", t.draw("token")))

    def _tidy(self, t: Turn, row: Runner) -> None:
        """Forget a runner of which nothing is left."""
        if row.state in FINAL and not row.unregister and not row.cleanup:
            t.drop_runner(row)

    def bind(self, t: Turn, name: str | None, job: Job) -> None:
        """The forge named a runner for a job: from now on it is bound."""
        row = t.runner(RunnerId(name or ""))
        if row is None or row.job == job.key:
            return
        if row.state in (S.STARTING, S.LISTENING):
            t.put_runner(move_runner(row, S.RUNNING, t.now, job=job.key, hard=t.now, hard_last=t.now))
        elif row.state is S.RUNNING:
            t.change_runner(row, job=job.key)

    # What differs between the designs.

    def still_wanted(self, job: Job) -> bool:
        """Say whether a dispatch that waited is still to be made, when its slot is there."""
        return True

    def granted(self, t: Turn, job: Job, row: Runner, *, waited: bool) -> None:
        """A dispatch has its slot."""
        self.register(t, row)

    def in_progress(self, t: Turn, job: Job, runner: str | None) -> None:
        """The job was seen running, on that runner."""

    def completed(self, t: Turn, job: Job, runner: str | None) -> None:
        """The job was seen completed, on that runner; None where it never had one."""

    def sweep(self, t: Turn) -> None:
        """Look for orphans."""

    def looked(self, t: Turn, row: Runner, event: ev.Probed | ev.RunnerLookedUp) -> None:
        """An answer to a look at a nominated runner."""
