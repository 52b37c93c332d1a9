"""Faults by remedy: what a failed call of a port means for who made it."""

from __future__ import annotations

from ephemerd.domain.value import Value, Word


class Remedy(Word):
    """What to do about a failed call.

    RETRY   no answer or a passing failure (timeout, 5xx, connection): the call may have happened
    LIMITED a rate limit: wait until `after_ms` has passed, for the whole scope
    REFUSED the request itself is wrong (422, 409, bad configuration): repeating it does not help
    GONE    the thing is not there, or may not be seen (404)
    DENIED  a credential is missing, wrong or too weak (401, 403)
    BROKEN  the environment cannot do it (missing application, full disk, no such user)
    """

    RETRY = "retry"
    LIMITED = "limited"
    REFUSED = "refused"
    GONE = "gone"
    DENIED = "denied"
    BROKEN = "broken"


class Fault(Value, frozen=True):
    """A failed call as an event carries it: the remedy, how long to wait (ms), and one sentence."""

    remedy: Remedy
    detail: str
    after_ms: int | None = None
