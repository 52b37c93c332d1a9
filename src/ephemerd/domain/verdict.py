"""Verdicts and evidence: what a look at reality said, by which means and when."""

from __future__ import annotations

from ephemerd.domain.value import Value, Word


class Verdict(Word):
    """Whether a runner executes a job. UNKNOWN is the zero value and is never idle."""

    UNKNOWN = "unknown"
    IDLE = "idle"
    BUSY = "busy"

    @property
    def severity(self) -> int:
        """Order for "the worse of the two": idle < unknown < busy."""
        return {"idle": 0, "unknown": 1, "busy": 2}[self.value]


def worse(first: Verdict, second: Verdict) -> Verdict:
    """Return the verdict that permits less."""
    return first if first.severity >= second.severity else second


class Via(Word):
    """Which means gave a verdict."""

    NONE = "none"
    PROBE = "probe"
    LOG = "log"
    SIGN = "sign"
    FORGE = "forge"
    FENCE = "fence"
    EXIT = "exit"


class Evidence(Value, frozen=True):
    """One look: the verdict, the means, the time (ms of the shell clock) and what exactly was seen."""

    verdict: Verdict
    via: Via
    at: int
    detail: str


class Listing(Word):
    """How much of an environment's process list could be read."""

    FAILED = "failed"
    EMPTY = "empty"
    PARTIAL = "partial"
    COMPLETE = "complete"


class Files(Word):
    """Whether the listener's log and performance file could be read and look whole."""

    UNREADABLE = "unreadable"
    HEALTHY = "healthy"


class ProbeReport(Value, frozen=True):
    """What a runtime saw of one environment; `core.judge` turns it into a verdict.

    Counts are processes of the environment itself; times are ms of the shell clock at which the line
    was first seen, None where it was not. `strangers` are processes that are neither the listener nor a
    worker nor the parent that we put above the listener: between fork and exec a worker still bears the
    listener's name, so a stranger is never idle.
    """

    listing: Listing
    workers: int
    strangers: int
    listener_alive: bool
    files: Files
    listening: bool
    offered_at: int | None
    announced_at: int | None
    ended_at: int | None
    probe: str
    detail: str


class Sign(Word):
    """What a followed log, performance file or process table told without being asked.

    OFFERED and ACKNOWLEDGED are soft signs, ANNOUNCED ("Running job") and WORKER hard ones
    (runner.md, section 6). LISTENING and ENDED are no signs of a job.
    """

    LISTENING = "listening"
    OFFERED = "offered"
    ACKNOWLEDGED = "acknowledged"
    ANNOUNCED = "announced"
    WORKER = "worker"
    ENDED = "ended"
    SKIPPED = "skipped"


HARD_SIGNS = frozenset({Sign.ANNOUNCED, Sign.WORKER})
