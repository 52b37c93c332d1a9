"""A core with a configuration of one host, and the events of whole runner lives; only `handle` is timed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.machine import Core
from ephemerd.core.state import Rows
from ephemerd.core.step import Step
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.job import ForgeStatus, Job, JobReport, JobStatus, Told
from ephemerd.domain.pool import Host, Policy, Pool, Setup
from ephemerd.domain.runner import FenceAnswer
from ephemerd.domain.verdict import Files, Listing, ProbeReport, Sign

SCOPE = Scope("github", "repo:acme/app")
LABELS = ("linux", "self-hosted", "x64")
BEGAN = 1_800_000_000_000
"""The time (ms) at which a scene begins."""


def key(number: int) -> JobKey:
    return JobKey("github", "acme/app", number)


def report(number: int, status: ForgeStatus, labels: Sequence[str] = LABELS, **fields: Any) -> JobReport:
    return JobReport(key(number), status, tuple(labels), name="build", run_id=number, **fields)


def ended(count: int) -> Rows:
    """Rows of so many jobs that ended an hour ago, as a store gives them."""
    at = BEGAN - 3_600_000
    jobs = (
        Job(
            key=key(number),
            labels=LABELS,
            order=number,
            status=JobStatus.DONE,
            since=at,
            first_seen=at,
            confirmed=at,
            conclusion="success",
            ended=at,
        )
        for number in range(1, count + 1)
    )
    return {"job": {str(job.key): job for job in jobs}, "meta": {"job": count}}


def _own_ns(times: int = 2_000) -> int:
    """Return what one look at the processor's clock takes by itself, ns: a call of the system, some 3 % of an event."""
    spent = []
    for _ in range(times):
        began = time.process_time_ns()
        spent.append(time.process_time_ns() - began)
    return sorted(spent)[times // 2]


class Scene:
    """A booted core. `took` is the processor's time (s) that `handle` used, over `events` events, without what the
    looks at the clock took."""

    def __init__(
        self,
        *,
        slots: int,
        rows: Rows | None = None,
        labels: Sequence[str] = LABELS,
        policy: Policy | None = None,
        surplus_grace: int = 30_000,
    ) -> None:
        self.now = BEGAN
        self.core = Core(rows, self.now)
        self.took, self.events = 0.0, 0
        self._own = _own_ns()
        self._registrations = 0
        pool = Pool(
            "linux",
            SCOPE,
            tuple(labels),
            "local",
            "process",
            max_concurrent=slots,
            surplus_grace=surplus_grace,
        )
        self.feed(ev.Booted("bench000", "aaaa", Setup((pool,), (Host("local", slots),), policy or Policy())))
        self.feed(ev.EnvironmentsListed("local", (), complete=True))
        self.feed(ev.RegistrationsListed(SCOPE, ()))
        self.feed(ev.JobsListed(SCOPE, 0))
        self.reset()

    def reset(self) -> None:
        """Count from zero."""
        self.took, self.events = 0.0, 0

    @property
    def per_event(self) -> float:
        """Seconds an event."""
        return self.took / self.events

    def feed(self, event: ev.Event) -> Step:
        began = time.process_time_ns()
        step = self.core.handle(event, self.now)
        self.took += (time.process_time_ns() - began - self._own) / 1e9
        self.events += 1
        return step

    def queue(self, number: int, labels: Sequence[str] = LABELS) -> list[RunnerId]:
        """A job is queued; return the runners that are made for it."""
        step = self.feed(ev.JobReported(report(number, ForgeStatus.QUEUED, labels), Told.WEBHOOK))
        return [one.runner for one in step.commands if isinstance(one, cm.Register)]

    def listen(self, runner: RunnerId) -> None:
        """A runner is registered and started, and listens."""
        self._registrations += 1
        self.feed(ev.Registered(runner, self._registrations))
        self.feed(ev.EnvironmentStarted(runner, f"process:1:{runner}"))
        self.feed(ev.SignSeen(runner, Sign.LISTENING, ""))

    def work(self, runner: RunnerId, number: int) -> None:
        """A runner is given a job and its worker starts; the forge tells of it."""
        self.feed(ev.SignSeen(runner, Sign.ANNOUNCED, f"job {number}"))
        self.feed(ev.SignSeen(runner, Sign.WORKER, ""))
        self.feed(ev.JobReported(report(number, ForgeStatus.IN_PROGRESS, runner_name=runner), Told.WEBHOOK))

    def leave(self, runner: RunnerId, number: int) -> None:
        """The job ends, the runner leaves and is cleaned up."""
        self.now += 1_000
        self.feed(ev.SignSeen(runner, Sign.ENDED, ""))
        told = report(number, ForgeStatus.COMPLETED, runner_name=runner, conclusion="success")
        self.feed(ev.JobReported(told, Told.WEBHOOK))
        self.gone(self.feed(ev.EnvironmentExited(runner, 0)))

    def gone(self, step: Step) -> None:
        """What was ordered to be destroyed is gone, what was to be deregistered too."""
        for command in step.commands:
            if isinstance(command, cm.Destroy):
                self.feed(ev.EnvironmentDestroyed(command.permit.runner, command.permit.environment))
            elif isinstance(command, cm.Deregister):
                intent = command.intent
                self.feed(
                    ev.FenceAnswered(intent.runner, intent.registration, command.token, FenceAnswer.NOT_FOUND)
                )

    def live(self, numbers: Iterable[int]) -> None:
        """Whole lives, one after the other."""
        for number in numbers:
            (runner,) = self.queue(number)
            self.listen(runner)
            self.work(runner, number)
            self.leave(runner, number)


IDLE = ProbeReport(Listing.COMPLETE, 0, 0, True, Files.HEALTHY, True, None, None, None, "process", "")
"""What a look into an idle runner gives."""
