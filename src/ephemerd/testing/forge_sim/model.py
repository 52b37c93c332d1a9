"""What the look-alike keeps: repositories, runs, jobs, runners, hooks. Plain data, no behaviour beyond looks.

Times are seconds since 1970 (wall clock, shown to clients) unless the name ends in ``_mono`` (event loop time).
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from ephemerd.testing.forge_sim.companies import Company

HookKind = Literal["repository", "organization", "integration"]


class JobStatus(StrEnum):
    """The states that GitHub shows for a job (github.md, section 5)."""

    QUEUED = "queued"
    WAITING = "waiting"
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class Fault(StrEnum):
    """What a runner can be told to do wrong (SIMULATION.md, section 2)."""

    GHOST = "ghost"
    HANG = "hang_after_acknowledge"
    WEDGED_WORKER = "wedged_worker"
    LISTENER_DIES = "listener_dies"
    EXIT_WITHOUT_JOB = "exit_without_job"
    STOP_IGNORED = "stop_ignored"
    LEAVE_DAEMON = "leave_daemon"
    COMPLETED_EARLY = "completed_while_worker_runs"
    REGISTRATION_404 = "registration_404_on_assignment"
    DELETE_ACCEPTED = "delete_accepted_while_held"


ENDS_WITHOUT_JOB = frozenset({Fault.GHOST, Fault.HANG, Fault.EXIT_WITHOUT_JOB})
"""Faults after which a runner that never got a job counts as broken by the weather, not as wasted."""


@dataclass(slots=True)
class Repository:
    """A repository, and at the same time a scope in which runners are registered. Each run that is queued counts as
    pushed, unless it is said not to be."""

    id: int
    owner: str
    name: str
    private: bool = True
    forks: int = 0
    archived: bool = False
    disabled: bool = False
    pushed_at: float = 1_796_000_000.0
    hooks: dict[int, Hook] = field(default_factory=dict)
    runners: dict[int, Runner] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    registrations: deque[float] = field(default_factory=deque)

    @property
    def full_name(self) -> str:
        """``owner/name``, as GitHub spells it."""
        return f"{self.owner}/{self.name}"


@dataclass(slots=True)
class Run:
    """A workflow run: jobs by attempt, the newest attempt last. `fork` is the repository that its commit is from
    where that is another one (`deleted` where it is gone)."""

    id: int
    repository: Repository
    name: str
    created_at: float
    max_parallel: int | None = None
    fork: str = ""
    branch: str = "main"
    attempt: int = 1
    jobs: list[Job] = field(default_factory=list)

    def latest(self) -> list[Job]:
        """The jobs of the newest attempt, with those of earlier ones that were not run again."""
        by_name: dict[str, Job] = {}
        for job in self.jobs:
            by_name[job.name] = job
        return list(by_name.values())


@dataclass(slots=True)
class Job:
    """One job of one attempt of a run."""

    id: int
    run: Run
    attempt: int
    name: str
    labels: tuple[str, ...]
    duration_s: float
    created_at: float
    tag: str = ""
    wanted: str = "success"
    prompt: bool = False
    hidden: bool = False
    status: JobStatus = JobStatus.QUEUED
    conclusion: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    shown_runner: tuple[int, str] | None = None
    had_runner: bool = False
    offer: Offer | None = None
    held: bool = False
    pinned: str | None = None
    foreign: str | None = None
    cancel_asked: bool = False

    @property
    def ended(self) -> bool:
        """Whether nothing can happen to this job any more."""
        return self.status is JobStatus.COMPLETED


@dataclass(slots=True, eq=False)
class Offer:
    """One assignment of a job to a runner, from the assignment to the end of its worker."""

    id: str
    job: Job
    runner: Runner
    assigned_at: float
    acknowledged: bool = False
    acquired: bool = False
    revoked: bool = False
    worker_pid: int | None = None
    worker_alive: bool = False
    reported: bool = False
    start_to_show: bool = False
    renewed_mono: float = 0.0
    timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the runner holds the job: from the assignment until job and worker are both over."""
        return not self.revoked and (not self.job.ended or self.worker_alive)

    def cancel_timers(self) -> None:
        """Forget every deadline of this offer."""
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()


@dataclass(slots=True, eq=False)
class Runner:
    """One registration of a just-in-time runner."""

    id: int
    name: str
    labels: tuple[str, ...]
    scope: Repository | Company
    group_id: int
    secret: str
    created_at: float
    registered: bool = True
    gone_by: str | None = None
    session: str | None = None
    pid: int | None = None
    version: str | None = None
    last_poll_mono: float | None = None
    polling: bool = False
    listener_alive: bool = False
    ended_session: bool = False
    spent: bool = False
    offer: Offer | None = None
    faults: dict[Fault, str] = field(default_factory=dict)
    busy_flag_lag_s: float = 0.0
    messages: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)

    @property
    def holds(self) -> Job | None:
        """The job that this runner holds, if any."""
        return self.offer.job if self.offer is not None and self.offer.holds else None


@dataclass(slots=True, eq=False)
class Hook:
    """A webhook of a repository or organization, or the one of an App.

    kind    as the header `X-GitHub-Hook-Installation-Target-Type` names it; ``target`` is the id of what it names
    path    where REST has it
    """

    id: int
    url: str
    secret: str
    content_type: str
    events: tuple[str, ...]
    active: bool
    created_at: float
    insecure_ssl: str = "0"
    deliveries: list[Delivery] = field(default_factory=list)
    kind: HookKind = "repository"
    target: int = 0
    path: str = ""

    def wants(self, event: str) -> bool:
        """Whether it is to be told of an event."""
        return self.active and bool(self.url) and bool({event, "*"} & set(self.events))


@dataclass(slots=True, eq=False)
class Delivery:
    """One attempt to deliver one event to one hook. ``delivered_at`` is None until the attempt has ended."""

    id: int
    guid: str
    hook: Hook
    event: str
    action: str | None
    job_id: int | None
    body: bytes
    redelivery: bool = False
    delivered_at: float | None = None
    duration: float = 0.0
    status: str = "pending"
    status_code: int = 0
    repository_id: int | None = None
    installation_id: int | None = None
    request_headers: dict[str, str] = field(default_factory=dict)
    response_headers: dict[str, str] = field(default_factory=dict)
    response_body: str = ""
