"""GitHub's job object, in REST answers and in deliveries alike, as a `JobReport`; pure.

Every field is taken for what it may be (null, 0, "", missing, of a wrong type): GitHub's own examples and
deliveries seen in the field contain all of it. What cannot be used gives a few words that say why.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import msgspec

from ephemerd.domain.ids import JobKey
from ephemerd.domain.job import ForgeStatus, JobReport, Origin
from ephemerd.domain.labels import usable

MAX_LABELS = 100  # of one just-in-time runner (GitHub's REST reference): a job that asks for more gets none
MAX_LABEL = 256  # characters, the runner application's own check
MAX_ID = 2**63 - 1
_MAX_NAME = 500
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+", re.ASCII)
_BINDS = frozenset({ForgeStatus.IN_PROGRESS, ForgeStatus.COMPLETED})
_BINDING_ACTIONS = frozenset({"in_progress", "completed"})
_NEVER_RAN = frozenset({"cancelled", "skipped"})
_WAITS = frozenset({"waiting", "pending"})
"""For an approval or a timer; for another run of its concurrency group. Neither is demand yet."""


class JobWire(msgspec.Struct):
    """The fields of a job object that we read; unknown ones are passed over."""

    id: Any = None
    run_id: Any = None
    run_attempt: Any = None
    status: Any = None
    conclusion: Any = None
    name: Any = None
    labels: Any = None
    runner_id: Any = None
    runner_name: Any = None
    head_branch: Any = None
    workflow_name: Any = None


def repository_name(value: object) -> str | None:
    """Return `owner/name` in the case in which it came, or None where it is no such thing."""
    if not isinstance(value, str) or not _REPOSITORY.fullmatch(value):
        return None
    return None if set(value.split("/")) & {".", ".."} else value


def integer(value: object) -> int | None:
    """Return a positive integer that every part of the program can keep (63 bits), or None."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_ID:
        return value
    return None


def text(value: object, longest: int = _MAX_NAME) -> str:
    """Return a trimmed, printable, bounded text; "" for anything that is no text."""
    if not isinstance(value, str):
        return ""
    return "".join(sign if sign.isprintable() else " " for sign in value[:longest]).strip()


def moment(value: object) -> int:
    """Return a time as GitHub writes it, ms since the epoch; 0 for what is none."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return 0
    if at is None:
        return 0
    return round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)


def job_report(job: JobWire, forge: str, repository: str, action: str | None = None) -> JobReport | str:
    """Return what the job object says, or in a few words why it says nothing usable.

    `action` is a delivery's; the status counts, and the action only where a status is missing. A runner's name
    binds only in a running or completed job: GitHub's published `queued` example carries one.
    """
    number = integer(job.id)
    if number is None:
        return "job without a usable id"
    labels = _labels(job.labels)
    if labels is None:
        return "job with unusable labels"
    status = _status(job.status, action)
    conclusion = text(job.conclusion, 64) or None
    names_runner = status in _BINDS and (action is None or action in _BINDING_ACTIONS)
    runner_name = text(job.runner_name) if names_runner else ""
    runner_id = integer(job.runner_id) if names_runner else None
    nobody_ran_it = status is ForgeStatus.COMPLETED and not runner_name and runner_id is None
    # A check run attached to a job (actions/actions-runner-controller#2118). A job that asks for a runner group
    # alone has no labels either, but where nobody ran it, it can only have been cancelled or skipped.
    if nobody_ran_it and not labels and conclusion not in _NEVER_RAN:
        return "completed check run, not a job"
    return JobReport(
        key=JobKey(forge, repository, number),
        status=status,
        labels=labels,
        name=text(job.name),
        run_id=integer(job.run_id) or 0,
        attempt=integer(job.run_attempt) or 1,
        runner_name=runner_name or None,
        runner_id=runner_id,
        conclusion=conclusion,
        origin=Origin(branch=text(job.head_branch), workflow=text(job.workflow_name)),
    )


def _labels(value: object) -> tuple[str, ...] | None:
    """Return the labels; None where one is unusable: leaving it out would ask for less than the job does."""
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_LABELS:
        return None
    if any(not isinstance(label, str) or len(label) > MAX_LABEL or not usable(label) for label in value):
        return None
    return tuple(value)


def _status(value: object, action: str | None) -> ForgeStatus:
    word = value if isinstance(value, str) and value else action
    if word in _WAITS:
        return ForgeStatus.WAITING
    try:
        return ForgeStatus(word)
    except ValueError:
        return ForgeStatus.OTHER
