"""The lives of runners: claimed, started, ended by themselves or torn down, deregistered last, made anew."""

from __future__ import annotations

from typing import Any

from ephemerd.core import backoff
from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.transitions import move_runner
from ephemerd.core.turn import Turn
from ephemerd.domain.errors import Fault
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import Job, JobStatus
from ephemerd.domain.permit import Warrant
from ephemerd.domain.pool import HOUR, MINUTE, SECOND
from ephemerd.domain.runner import FINAL, FenceAnswer, Runner, RunnerState
from ephemerd.testing.simulate.foils import forged
from ephemerd.testing.simulate.foils.dispatch import Dispatches

S = RunnerState

JOB_TIMEOUT = 2 * HOUR
"""Default of the earlier daemon, counted from the dispatch (field problem 9)."""

MOST_ATTEMPTS = 5
"""Runners for one job that end without it being seen running, until the next reconcile (#95)."""

CLAIM_PAUSES = (30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE)
MOST_CLAIMS = 12
"""Failed registrations of one job, about 90 minutes, until the next reconcile (#104)."""


class Lives(Dispatches):
    """What becomes of each runner. A teardown asks nobody: whether it may be done, the designs decide."""

    def of_runner(self, t: Turn, row: Runner, event: Any) -> None:
        match event:
            case ev.Registered() if row.state is S.REGISTERING:
                t.put_runner(move_runner(row, S.STARTING, t.now, registration=event.registration))
                t.send(cm.StartRunner(row.id, row.pool))
            case ev.RegistrationFailed() if row.state is S.REGISTERING:
                self._claim_failed(t, row, event.fault)
            case ev.NameLookedUp():
                self._name_found(t, row, event)
            case ev.EnvironmentStarted() if row.state is S.STARTING:
                self.environment_started(t, row, event.environment)
            case ev.StartFailed() if row.state is S.STARTING:
                self.ended(t, row, f"it did not start: {event.fault.detail}")
            case ev.EnvironmentExited() if row.state not in FINAL and row.state is not S.RETIRING:
                self.ended(t, row, "it exited")
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

    def environment_started(self, t: Turn, row: Runner, environment: str) -> None:
        row = move_runner(row, S.LISTENING, t.now, environment=environment, started=t.now)
        self.arm(t, t.put_runner(row))

    def arm(self, t: Turn, row: Runner) -> None:
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

    def ended(self, t: Turn, row: Runner, why: str) -> None:
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

    def looked(self, t: Turn, row: Runner, event: ev.Probed | ev.RunnerLookedUp) -> None:
        """An answer to a look at a nominated runner."""
