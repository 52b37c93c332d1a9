"""Latencies that are read off committed steps: they are observations of the shell, no state of the core."""

from __future__ import annotations

from collections.abc import Mapping

from ephemerd.app.writer import Handled
from ephemerd.core.events import JobsListed
from ephemerd.domain.job import Job, JobStatus
from ephemerd.domain.pool import SECOND
from ephemerd.domain.runner import Runner, RunnerState
from ephemerd.ports.system import Meter


class Measure:
    """Observes each transition once: at the step whose time is the transition's own."""

    def __init__(self, meter: Meter, runtimes: Mapping[str, str]) -> None:
        self._meter = meter
        self._runtimes = dict(runtimes)

    def reconfigure(self, runtimes: Mapping[str, str]) -> None:
        """Know new pools; those that went stay known, for their runners."""
        self._runtimes.update(runtimes)

    def take(self, handled: Handled, reconciled: dict[str, int]) -> None:
        """Observe what this step says of jobs and runners; note a complete listing of a scope's jobs."""
        event = handled.item.event
        if isinstance(event, JobsListed) and event.fault is None:
            listed = handled.now if event.repositories is None else event.as_of
            if listed is not None:
                reconciled[str(event.scope)] = listed
        now = handled.now
        for kind, _, row in handled.step.changed:
            if row is None:
                continue
            if kind == "job":
                if row.since == now:
                    self._job(row, now)
            elif kind == "runner" and row.listening == now:
                self._runner(row, now)

    def _job(self, job: Job, now: int) -> None:
        if job.status is JobStatus.RUNNING:
            self._meter.observe("job_queue_wait_seconds", (now - job.first_seen) / SECOND)
        elif job.status is JobStatus.DONE and job.started is not None:
            self._meter.observe("job_duration_seconds", (now - job.started) / SECOND)

    def _runner(self, runner: Runner, now: int) -> None:
        if runner.state is RunnerState.LISTENING and runner.since == now:
            seconds = (now - runner.created) / SECOND
            runtime = self._runtimes.get(runner.pool, "")
            self._meter.observe("runner_startup_seconds", seconds, runtime=runtime)
