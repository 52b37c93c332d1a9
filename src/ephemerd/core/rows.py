"""Rows of the core's own: what is kept of a scope, a pool and a class of demand. Times are ms."""

from __future__ import annotations

from ephemerd.domain.ids import Scope
from ephemerd.domain.pool import Pool
from ephemerd.domain.value import Value


class ScopeRow(Value, frozen=True):
    """How a scope of a forge answers.

    answered        last normal answer
    silent          since when it gives no answer (timeout, 5xx); one call a minute tries it
    why             what went wrong with the last call of a silent scope
    next_try        when the next such call may go out
    limited_until   a rate limit's reset; denied_until: a refused credential is tried again then
    denied          what the forge said when it refused the credential
    jobs_due, registrations_due   when the next listing is to go out
    jobs_asked, registrations_asked   when one went out that has not been answered
    jobs_listed     last complete listing of jobs since this process life began
    quiet           listings of jobs in a row in which nothing was queued or ran (where we poll)
    """

    scope: Scope
    answered: int | None = None
    silent: int | None = None
    why: str = ""
    next_try: int = 0
    limited_until: int = 0
    denied_until: int = 0
    denied: str = ""
    jobs_due: int = 0
    registrations_due: int = 0
    jobs_asked: int | None = None
    registrations_asked: int | None = None
    jobs_listed: int | None = None
    quiet: int = 0


class PoolRow(Value, frozen=True):
    """What happened to a pool. `pool` is its last known configuration, kept for runners that outlive it.

    failures, exits   in a row: failed registrations or starts, each begun after the one before had failed; exits
                      without a job
    failed            when the latest of these failures was noted; 0 where there was none
    not_before        backoff of both; why: the last fault; left: what the last exit without a job said
    cordoned          who and why; "" where it is not
    cordoned_at       since when
    missing           why its runner application is not there; "" where it is
    refused           when the forge last refused that application's version; None where it does not
    """

    pool: Pool
    configured: bool = True
    failures: int = 0
    exits: int = 0
    not_before: int = 0
    why: str = ""
    left: str = ""
    cordoned: str = ""
    draining: bool = False
    cordoned_at: int = 0
    missing: str = ""
    refused: int | None = None
    failed: int = 0


class HostRow(Value, frozen=True):
    """What an operator ordered for a host, and when its environments were last listed."""

    name: str
    slots: int
    configured: bool = True
    cordoned: str = ""
    draining: bool = False
    listed: int | None = None
    asked: int | None = None
    due: int = 0
    cordoned_at: int = 0


class ClassRow(Value, frozen=True):
    """Fairness and holding back of one class of demand.

    served   number of the last dispatch for it
    held     the forge may be holding back: no further runner but by credit
    credits  runners that may still be made; grant: how many the next taken runner adds
    """

    served: int = 0
    held: bool = False
    credits: int = 0
    grant: int = 1
