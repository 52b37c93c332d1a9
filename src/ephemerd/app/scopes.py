"""What is known of each scope's health from our own calls, and when the core is told of it.

A "not found" means something only if another call on the same scope answered normally within a minute
(DOMAIN.md, section 6, step 5): a lost permission looks alike. So the core is told `ScopeAnswered` now and
then, always after a fault is over, and always fresh before a "not found".
"""

from __future__ import annotations

from dataclasses import dataclass

from ephemerd.core.events import ScopeAnswered
from ephemerd.domain.ids import Scope
from ephemerd.domain.pool import SECOND

TELL_EVERY = 30 * SECOND
TELL_AT_MOST_EVERY = 3 * SECOND
FRESH_FOR = 30 * SECOND
"""An answer younger than this vouches for a "not found": half of the core's minute, since the answer may
wait in the inbox before it is handled."""
DEFAULT_LIMIT = 60 * SECOND
"""How long a limit holds that names no end: GitHub's advice for secondary limits."""


@dataclass(slots=True)
class _Scope:
    answered: int | None = None
    heard: int | None = None
    told: int | None = None
    faulted: bool = False


class ScopeBook:
    """One entry a scope; times are ms of the shell clock."""

    def __init__(self) -> None:
        self._scopes: dict[Scope, _Scope] = {}

    def answered(self, scope: Scope, now: int, *, vouches: bool = True) -> ScopeAnswered | None:
        """Note a normal answer; return the event to tell where it is time for one.

        vouches   it was about registrations: a token may keep its access to jobs and lose that to runners
        """
        entry = self._entry(scope)
        entry.heard = now
        if vouches:
            entry.answered = now
        due = TELL_AT_MOST_EVERY if entry.faulted else TELL_EVERY
        if entry.told is not None and now - entry.told < due:
            return None
        return self._tell(scope, entry, now)

    def faulted(self, scope: Scope) -> None:
        """Note that a call got no usable answer."""
        self._entry(scope).faulted = True

    def limited(self, scope: Scope, now: int, after_ms: int | None) -> ScopeAnswered:
        """Note that a rate limit was hit; return the event that says until when."""
        self._entry(scope).faulted = True
        wait = DEFAULT_LIMIT if after_ms is None else after_ms
        return ScopeAnswered(scope, limited_until=now + wait)

    def fresh(self, scope: Scope, now: int) -> bool:
        """Whether the last normal answer is young enough to vouch for a "not found"."""
        answered = self._entry(scope).answered
        return answered is not None and now - answered <= FRESH_FOR

    def answers(self, scope: Scope, now: int) -> bool:
        """Whether a normal answer of any kind came just now, and no fault since the core was told of one."""
        entry = self._entry(scope)
        return entry.heard is not None and now - entry.heard <= FRESH_FOR and not entry.faulted

    def vouch(self, scope: Scope, now: int) -> ScopeAnswered | None:
        """Return the event to tell before a "not found", None where it was told just now or cannot be."""
        entry = self._entry(scope)
        if not self.fresh(scope, now):
            return None
        if entry.told is not None and now - entry.told < TELL_AT_MOST_EVERY:
            return None
        return self._tell(scope, entry, now)

    def _tell(self, scope: Scope, entry: _Scope, now: int) -> ScopeAnswered:
        entry.told = now
        entry.faulted = False
        return ScopeAnswered(scope)

    def _entry(self, scope: Scope) -> _Scope:
        return self._scopes.setdefault(scope, _Scope())
