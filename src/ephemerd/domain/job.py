"""Jobs: what the forge says of one, and the row that we keep."""

from __future__ import annotations

from typing import Final

from ephemerd.domain.ids import JobKey, RunnerId
from ephemerd.domain.value import Value, Word


class ForgeStatus(Word):
    """The `status` field of a job as the forge writes it; anything unknown is OTHER."""

    QUEUED = "queued"
    WAITING = "waiting"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    OTHER = "other"


class F:
    """The members of `ForgeStatus` as plain attributes, as `runner.S`."""

    QUEUED: Final = ForgeStatus.QUEUED
    WAITING: Final = ForgeStatus.WAITING
    IN_PROGRESS: Final = ForgeStatus.IN_PROGRESS
    COMPLETED: Final = ForgeStatus.COMPLETED
    OTHER: Final = ForgeStatus.OTHER


class Told(Word):
    """By what a report of a job came."""

    WEBHOOK = "webhook"
    LISTING = "listing"
    LOOKUP = "lookup"


class Origin(Value, frozen=True):
    """Whose work a run is, as far as it was told: `public` of its repository, `fork` where its commit is from
    another repository than the one it runs in (None: not told); the branch's and the workflow's name, or ""."""

    public: bool | None = None
    fork: bool | None = None
    branch: str = ""
    workflow: str = ""


class JobReport(Value, frozen=True):
    """What the forge said of a job at one moment. `runner_name` "" and id 0 have become None."""

    key: JobKey
    status: ForgeStatus
    labels: tuple[str, ...]
    name: str = ""
    run_id: int = 0
    attempt: int = 1
    runner_name: str | None = None
    runner_id: int | None = None
    conclusion: str | None = None
    origin: Origin = Origin()


class JobStatus(Word):
    QUEUED = "queued"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    GONE = "gone"


class J:
    """The members of `JobStatus` as plain attributes, as `runner.S`."""

    QUEUED: Final = JobStatus.QUEUED
    WAITING: Final = JobStatus.WAITING
    RUNNING: Final = JobStatus.RUNNING
    DONE: Final = JobStatus.DONE
    GONE: Final = JobStatus.GONE


ENDED_STATUSES = frozenset({JobStatus.DONE, JobStatus.GONE})


class Job(Value, frozen=True):
    """A job's row. Times are ms of the shell clock.

    labels      normalised
    order       arrival number: the persisted key of "oldest first"
    runner      the name the forge gave, ours or somebody else's; `ours` the id where it is our runner
    confirmed   when the forge last said (delivery, listing, look-up) that the job is as it is here
    asked       when a question about the job went out and no answer has come; None otherwise
    missing     when the forge first answered "not found" in a row; None otherwise
    asking      why: "confirm" (for pool `pool`, whose slot is reserved), "waiting", "gone", "name" or "origin";
                `token` numbers the question; `ask_again` when it is to be asked once more
    waived      the forge could not confirm it, and a runner may be made all the same
    unconfirmed when a runner was last made although the forge could not confirm the job
    remade      when a runner was last made for the job after one had expired untaken
    not_before  its own backoff: no runner is made for it before
    public, fork, branch, workflow  whose work it is (`Origin`), None or "" while that was not told
    refused     the `Refusal` by which no runner is made for it while it is queued; "" where it is served
    """

    key: JobKey
    labels: tuple[str, ...]
    order: int
    status: JobStatus
    since: int
    first_seen: int
    confirmed: int
    name: str = ""
    run_id: int = 0
    attempt: int = 1
    runner: str | None = None
    ours: RunnerId | None = None
    conclusion: str | None = None
    started: int | None = None
    ended: int | None = None
    asked: int | None = None
    asking: str = ""
    pool: str = ""
    token: int = 0
    ask_again: int | None = None
    waived: bool = False
    missing: int | None = None
    unconfirmed: int | None = None
    remade: int | None = None
    not_before: int = 0
    public: bool | None = None
    fork: bool | None = None
    branch: str = ""
    workflow: str = ""
    refused: str = ""
