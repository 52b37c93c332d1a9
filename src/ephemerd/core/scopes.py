"""How a scope answers, and whether another call may go to it now.

While a scope gives no answer, one call a minute tries it and all else waits. A rate limit waits for its
reset. A refused credential stops the scope and is tried again rarely. Scopes of one forge that fell silent
together are tried one after the other, so that they do not all knock at the same moment for hours.
"""

from __future__ import annotations

from msgspec.structs import replace

from ephemerd.core.commands import ListJobs, ListRegistrations
from ephemerd.core.rows import ScopeRow
from ephemerd.core.turn import Turn
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import Scope, scope_text

ANSWER_KEPT_FOR = 10_000
"""An answer is written down at most once in so many ms; "within a minute" needs no more."""

LATELY = 60_000
"""So young (ms) an answer vouches for a "not found" (DOMAIN.md, section 6, step 5). Never less, however short a
policy's pauses are: an answer is written down only now and then."""

LIMIT_WITHOUT_WORD = 60_000
"""GitHub: a limit without a `retry-after` wants at least a minute (github.md 7.2)."""

TRIAL_LISTING_AFTER = 1_000
"""A silent scope that nobody has tried so many ms after it could be is tried by listing registrations."""

APART = 250
"""So many ms lie between the tries of two scopes of one forge that got into trouble together."""

LISTING_LIMIT = 600_000
"""A listing that was not answered for so long (ms) is asked for again."""


def may_call(t: Turn, scope: Scope) -> bool:
    """Say whether a call may go out now; saying yes uses up the trial call of a scope in trouble."""
    row = t.state.scope(scope)
    if t.now < row.limited_until or t.now < row.denied_until:
        return False
    if row.denied:
        keep(t, replace(row, denied_until=t.now + t.policy.denied_retry))
        return True
    if row.silent is not None:
        if t.now < row.next_try:
            return False
        keep(t, replace(row, next_try=t.now + t.policy.try_silent_every))
    return True


def is_open(t: Turn, scope: Scope) -> bool:
    """Say whether a scope is in no trouble at all."""
    row = t.state.scope(scope)
    return t.now >= row.limited_until and not row.denied and row.silent is None


def answered_lately(t: Turn, scope: Scope) -> bool:
    """Say whether some call on the scope was answered normally within a minute."""
    answered = t.state.scope(scope).answered
    return answered is not None and t.now - answered <= max(t.policy.look_again, LATELY)


def note_answer(t: Turn, scope: Scope, fault: Fault | None) -> None:
    """Take in how a call on the scope ended: normally (None) or with a fault."""
    if fault is None:
        _answered(t, scope)
    elif fault.remedy is Remedy.REFUSED:
        _refused(t, scope)
    elif fault.remedy is Remedy.RETRY:
        _silent(t, scope, fault)
    elif fault.remedy is Remedy.LIMITED:
        limit(t, scope, t.now + (fault.after_ms or LIMIT_WITHOUT_WORD))
    elif fault.remedy is Remedy.DENIED:
        _denied(t, scope, fault)


def limit(t: Turn, scope: Scope, until: int) -> None:
    """Keep quiet toward a scope until `until` (ms)."""
    row = t.state.scope(scope)
    if until > row.limited_until:
        t.note("warning", "the forge limits our requests", scope=scope, wait_ms=until - t.now)
        keep(t, replace(row, limited_until=until))


def limit_said(t: Turn, scope: Scope, until: int) -> None:
    """The forge itself says that it limits us until `until` (ms): it is silent no more."""
    limit(t, scope, until)
    row = t.state.scope(scope)
    if row.silent is not None:
        keep(t, replace(row, silent=None, why="", next_try=0))


def keep(t: Turn, row: ScopeRow) -> None:
    """Put the row and set when the scope wants the next look."""
    t.put_scope(row)
    schedule(t, row)


def schedule(t: Turn, row: ScopeRow) -> None:
    """Set when the scope wants the next look. A moment that is over stays until that look: it is what asks for what
    is due, and an event that is handled between the two must not put that off."""
    name, now, agenda = scope_text(row.scope), t.now, t.state.agenda
    if agenda.is_over("scope", name, now):
        return
    moments = [row.jobs_due, row.registrations_due, row.limited_until, row.denied_until]
    if row.silent is not None:
        moments.extend((row.next_try, row.next_try + TRIAL_LISTING_AFTER))
    if row.jobs_asked is not None:
        moments.append(row.jobs_asked + LISTING_LIMIT)
    if row.registrations_asked is not None:
        moments.append(row.registrations_asked + LISTING_LIMIT)
    later = [moment for moment in moments if moment > now]
    agenda.set("scope", name, min(later, default=None))


def due(t: Turn, row: ScopeRow) -> None:
    """A moment of the scope has come: list what is due, and look again at its runners."""
    if row.silent is not None and t.now >= row.next_try + TRIAL_LISTING_AFTER:
        keep(t, replace(row, registrations_due=min(row.registrations_due, t.now)))
    list_if_due(t, row.scope)
    t.touch(runner.id for runner in t.state.live_of_scope(row.scope))
    t.touch(
        name
        for name, runner in t.state.runners.items()
        if (runner.unregister or runner.consumes or runner.leak is not None) and runner.scope == row.scope
    )
    schedule(t, t.state.scope(row.scope))


def list_if_due(t: Turn, scope: Scope) -> None:
    """Send the listings whose time has come, where the scope may be called and somebody uses it."""
    if not t.state.uses(scope):
        return
    row = t.state.scope(scope)
    if _wanted(t, row.jobs_due, row.jobs_asked) and may_call(t, scope):
        row = replace(t.state.scope(scope), jobs_asked=t.now, jobs_due=t.now + until_next(t, row))
        keep(t, row)
        t.send(ListJobs(scope))
    if _wanted(t, row.registrations_due, row.registrations_asked) and may_call(t, scope):
        row = replace(
            t.state.scope(scope),
            registrations_asked=t.now,
            registrations_due=t.now + t.policy.reconcile_every,
        )
        keep(t, row)
        t.send(ListRegistrations(scope))


def until_next(t: Turn, row: ScopeRow) -> int:
    """Return how long (ms) it is from one listing of jobs to the next.

    Where deliveries tell of jobs a listing only repairs what they missed. Where we poll it is all that we hear:
    often while something is queued or runs, and ever more seldom, up to a bound, while nothing is.
    """
    if t.state.is_observed(row.scope):
        return t.policy.reconcile_every
    return min(t.policy.poll_every << min(row.quiet, 16), max(t.policy.poll_every, t.policy.poll_idle))


def heard(t: Turn, row: ScopeRow, *, active: bool) -> ScopeRow:
    """Return the row after a listing of jobs that was asked for at `jobs_asked`; activity brings the next nearer."""
    if t.state.is_observed(row.scope):
        return row
    row = replace(row, quiet=0 if active else row.quiet + 1)
    asked = row.jobs_asked if row.jobs_asked is not None else t.now
    return replace(row, jobs_due=asked + until_next(t, row))


def _wanted(t: Turn, due_at: int, asked: int | None) -> bool:
    if asked is not None and t.now - asked < LISTING_LIMIT:
        return False
    return t.now >= due_at


def _answered(t: Turn, scope: Scope) -> None:
    row = t.state.scope(scope)
    lately = row.answered is not None and t.now - row.answered < ANSWER_KEPT_FOR
    if _in_trouble(row) or not lately:
        _well(t, replace(row, answered=t.now))


def _refused(t: Turn, scope: Scope) -> None:
    """The forge is there and knows us, and this request was wrong. That vouches for nothing: behind a proxy
    that refuses everything, "not found" would else be believed."""
    row = t.state.scope(scope)
    if _in_trouble(row):
        _well(t, row)


def _in_trouble(row: ScopeRow) -> bool:
    return row.silent is not None or bool(row.denied)


def _turn_of(t: Turn, row: ScopeRow) -> int:
    """Return how many ms after the first of its forge's scopes this one, new in trouble, has its turn."""
    forge = row.scope.forge
    before = (other for other in t.state.scopes.values() if other.scope.forge == forge and _in_trouble(other))
    return APART * sum(1 for _ in before)


def _well(t: Turn, row: ScopeRow) -> None:
    trouble = _in_trouble(row)
    keep(t, replace(row, silent=None, why="", next_try=0, denied="", denied_until=0))
    if trouble:
        t.note("info", "the forge answers again", scope=row.scope)
        due(t, t.state.scope(row.scope))


def _silent(t: Turn, scope: Scope, fault: Fault) -> None:
    row = t.state.scope(scope)
    pause = t.policy.try_silent_every
    if row.silent is None:
        t.note("warning", "the forge gives no answer", scope=scope, detail=fault.detail)
        pause += _turn_of(t, row) % pause
        row = replace(row, silent=t.now, next_try=max(row.next_try, t.now + pause))
    elif row.next_try <= t.now:
        row = replace(row, next_try=t.now + pause)
    # Else the minute counts from when the scope was tried: an answer that only times out does not prolong it.
    keep(t, replace(row, why=fault.detail))


def _denied(t: Turn, scope: Scope, fault: Fault) -> None:
    row = t.state.scope(scope)
    pause = t.policy.denied_retry
    if not row.denied:
        t.note("warning", "the forge refuses our credential", scope=scope, detail=fault.detail)
        pause += _turn_of(t, row) % pause
    until = max(row.denied_until, t.now + pause)
    keep(t, replace(row, denied=fault.detail, denied_until=until))
