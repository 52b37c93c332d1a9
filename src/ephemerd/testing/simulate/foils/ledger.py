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

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.rows import HostRow, PoolRow
from ephemerd.core.state import Rows, load
from ephemerd.core.step import Step
from ephemerd.core.transitions import JOB_EDGES, move_job
from ephemerd.core.turn import Turn, job_moment
from ephemerd.domain.ids import RunnerId, parse_job_key
from ephemerd.domain.job import ForgeStatus, Job, JobReport, JobStatus, Told
from ephemerd.domain.labels import normalise
from ephemerd.domain.pool import MINUTE, Setup
from ephemerd.domain.runner import FINAL, Runner, RunnerState
from ephemerd.testing.simulate.foils import forged
from ephemerd.testing.simulate.foils.lives import Lives

S = RunnerState

SWEEP_EVERY = MINUTE
RECONCILE_EVERY = 30 * MINUTE
REMEMBERED = 130 * MINUTE
"""How long the end of a job is remembered (field problem 15: 2 h 10 min)."""

STATUS = {
    ForgeStatus.QUEUED: JobStatus.QUEUED,
    ForgeStatus.WAITING: JobStatus.WAITING,
    ForgeStatus.IN_PROGRESS: JobStatus.RUNNING,
    ForgeStatus.COMPLETED: JobStatus.DONE,
}


class Earlier(Lives):
    """A scheduler of an earlier design; what differs between them is in the hooks at the end of the class."""

    def next_wake(self) -> int | None:
        """Return when it wants a `Woke` (ms), or None."""
        return self.state.agenda.next()

    def reload(self, rows: Rows, now: int) -> None:
        """Stand up from the rows; what waited for a slot is found again by the reconcile at the start."""
        self.state = load(rows)
        self._forget()
        t = Turn(self.state, now)
        for row in self.state.runners.values():
            self.arm(t, row)
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
            case ev.JobsRead():
                for report in event.reports:
                    self._reported(t, report, Told.LISTING)
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
                    self.of_runner(t, row, event)
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
        t.configure(setup)
        for pool in setup.pools:
            t.put_pool(PoolRow(pool))
        for host in setup.hosts:
            t.put_host(HostRow(host.name, host.slots))

    def _resume(self, t: Turn, row: Runner) -> None:
        """Attach again to what runs; undo what was half made; repeat what was on its way out."""
        if row.state is S.PLANNED:
            self.ended(t, row, "half made when the daemon was started again")
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
                self.environment_started(t, row, found[row.id].environment)
                t.send(cm.WatchRunner(row.id, row.pool, found[row.id].environment))
            elif row.id not in found and row.state in (S.STARTING, S.LISTENING, S.RUNNING):
                self.ended(t, row, "its environment is not there")

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

    # What differs between the designs, beside `still_wanted`, `granted` and `looked`.

    def in_progress(self, t: Turn, job: Job, runner: str | None) -> None:
        """The job was seen running, on that runner."""

    def completed(self, t: Turn, job: Job, runner: str | None) -> None:
        """The job was seen completed, on that runner; None where it never had one."""

    def sweep(self, t: Turn) -> None:
        """Look for orphans."""
