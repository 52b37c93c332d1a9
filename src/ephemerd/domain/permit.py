"""What destroying and deregistering take. Only `core/gate.py` makes these (a test keeps it so)."""

from __future__ import annotations

from ephemerd.domain.ids import RunnerId, Scope
from ephemerd.domain.value import Value, Word
from ephemerd.domain.verdict import Evidence, Verdict


class Warrant(Word):
    """On what ground a permit or a fence stands.

    IDLE     proven idle before and after an accepted fence
    ENDED    listener and worker are proven gone, or never started and can no longer start
    ESCAPE   past its bound (DOMAIN.md section 6), logged and counted as such
    OVERDUE  past a `job_timeout` that a person set
    FORCED   an operator's order to end even a busy runner
    """

    IDLE = "idle"
    ENDED = "ended"
    ESCAPE = "escape"
    OVERDUE = "overdue"
    FORCED = "forced"


class FenceIntent(Value, frozen=True):
    """Leave to ask the forge to deregister one registration."""

    runner: RunnerId
    scope: Scope
    registration: int
    warrant: Warrant
    rule: str
    made: int
    evidence: tuple[Evidence, ...]


class Permit(Value, frozen=True):
    """Leave to destroy one environment, for 10 s and one process life.

    made, expires   ms of the shell clock
    epoch           the process life it belongs to
    environment     the runtime's own reference; another environment of the same runner is not meant
    proofs          the two times of proof (before and after the fence), equal where one look proved it
    polite          ask the listener to stop and end nothing else (first half of an `overdue` end)
    """

    runner: RunnerId
    environment: str
    warrant: Warrant
    rule: str
    verdict: Verdict
    made: int
    expires: int
    epoch: str
    fence: str
    proofs: tuple[int, int]
    evidence: tuple[Evidence, ...]
    polite: bool = False
