"""A scheduler by itself on a clock that the test moves: what it is told, and what it orders."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.validate import slot_difference, validate
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.job import ForgeStatus, JobReport, Told
from ephemerd.domain.pool import Host, Policy, Pool, Setup
from ephemerd.domain.runner import FenceAnswer, Runner
from ephemerd.domain.verdict import Files, Listing, ProbeReport
from ephemerd.testing.simulate.scheduler import Scheduler

SCOPE = Scope("github", "repo:acme/app")
LABELS = ("linux", "self-hosted", "x64")
QUEUED, RUNNING, DONE = ForgeStatus.QUEUED, ForgeStatus.IN_PROGRESS, ForgeStatus.COMPLETED
C = TypeVar("C")


def setup(slots: int = 4, **pool: Any) -> Setup:
    return Setup(
        pools=(
            msgspec.structs.replace(
                Pool("linux", SCOPE, LABELS, "host", "process", max_concurrent=slots), **pool
            ),
        ),
        hosts=(Host("host", slots),),
        policy=Policy(),
    )


def key(number: int) -> JobKey:
    return JobKey("github", "acme/app", number)


class World:
    """`sent` are the commands of the last event."""

    def __init__(self, scheduler: Scheduler, **options: Any) -> None:
        self.scheduler = scheduler
        self.now = 1_000
        self.sent: tuple[cm.Command, ...] = ()
        self.setup = setup(**options)
        self.registrations = 100
        self.tell(ev.Booted("store", "e1", self.setup))

    def tell(self, event: ev.Event) -> tuple[cm.Command, ...]:
        """Feed one event; what holds always must hold after it."""
        self.sent = self.scheduler.handle(event, self.now).commands
        assert validate(self.scheduler.state) == []
        assert slot_difference(self.scheduler.state) == 0
        return self.sent

    def wait(self, seconds: float) -> list[cm.Command]:
        """Let time pass; return what was ordered meanwhile."""
        sent: list[cm.Command] = []
        until = self.now + int(seconds * 1000)
        while (wake := self.scheduler.next_wake()) is not None and wake <= until:
            self.now = max(self.now, wake)
            sent.extend(self.tell(ev.Woke()))
        self.now = until
        return sent

    def only(self, kind: type[C]) -> C:
        """Return the one command of that kind that the last event led to."""
        (found,) = self.all(kind)
        return found

    def all(self, kind: type[C]) -> list[C]:
        return [command for command in self.sent if isinstance(command, kind)]

    def job(
        self, number: int, status: ForgeStatus, runner: str | None = None, told: Told = Told.WEBHOOK
    ) -> None:
        self.tell(ev.JobReported(JobReport(key(number), status, LABELS, runner_name=runner), told))

    def registered(self, name: RunnerId) -> None:
        self.registrations += 1
        self.tell(ev.Registered(name, self.registrations))

    def dispatched(self, number: int) -> RunnerId:
        """Queue a job and bring the runner that is dispatched for it to life."""
        self.job(number, QUEUED)
        return self.up(self.only(cm.Register).runner)

    def up(self, name: RunnerId) -> RunnerId:
        self.registered(name)
        self.tell(ev.EnvironmentStarted(name, f"env-{name}"))
        return name

    def destroyed(self) -> None:
        """The environment that was to be destroyed is gone."""
        permit = self.only(cm.Destroy).permit
        self.tell(ev.EnvironmentDestroyed(permit.runner, permit.environment))

    def answer(self, answer: FenceAnswer) -> None:
        """The forge answers the deregistration that was asked for."""
        asked = self.only(cm.Deregister)
        self.tell(ev.FenceAnswered(asked.intent.runner, asked.intent.registration, asked.token, answer))

    def knows(self, name: str) -> bool:
        return RunnerId(name) in self.scheduler.state.runners

    def row(self, name: str) -> Runner:
        return self.scheduler.state.runners[RunnerId(name)]

    @property
    def runners(self) -> list[str]:
        return sorted(self.scheduler.state.runners)


def seen(**fields: Any) -> ProbeReport:
    """Return what a probe saw: a listener and nothing else, but for the fields."""
    quiet = ProbeReport(
        listing=Listing.COMPLETE,
        workers=0,
        strangers=0,
        listener_alive=True,
        files=Files.HEALTHY,
        listening=True,
        offered_at=None,
        announced_at=None,
        ended_at=None,
        probe="test",
        detail="",
    )
    return msgspec.structs.replace(quiet, **fields)
