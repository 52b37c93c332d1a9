"""Browsers: one-time login codes, the sessions they open, and how often a caller may be wrong.

All of it is in memory alone: a restart of the daemon logs every browser out, and nothing of a session is ever
on a disk. Codes and sessions are 256 random bits and are held as digests.
"""

from __future__ import annotations

import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ephemerd.app.tokens import digest
from ephemerd.ports.access import Role

CODE_LIFE = 5 * 60 * 1000
IDLE = 12 * 60 * 60 * 1000
LIFE = 7 * 24 * 60 * 60 * 1000
"""ms: of a login link, of a session that nobody uses, of any session."""
MOST_CODES = 20
MOST_SESSIONS = 200
"""Beyond them the oldest go, of the token that has the most."""
FAILURES = 10
"""Wrong credentials in a row from one address that are answered 401; then 429."""
FORGIVEN_EVERY = 6_000
"""ms after which one of them is forgotten."""
MOST_ADDRESSES = 1024


@dataclass(frozen=True, slots=True)
class Code:
    """What a login link stands for; `token` is the digest of the token that asked for it, empty for none."""

    role: Role
    who: str
    token: bytes
    until: int


@dataclass(slots=True)
class Session:
    """One browser. `csrf` is what its forms must bring along."""

    role: Role
    who: str
    token: bytes
    csrf: str
    began: int
    seen: int

    def __repr__(self) -> str:
        return f"Session({self.role.value}, {self.who!r})"


Held = TypeVar("Held", Code, Session)


class Sessions:
    """Login codes and sessions. `now` is the wall clock in ms; `holds` says whether the token of a digest is still
    good: each lasts no longer than the very token that it came from, whatever bears its name later."""

    def __init__(self, now: Callable[[], int], holds: Callable[[bytes], bool]) -> None:
        self._now = now
        self._holds = holds
        self._codes: OrderedDict[bytes, Code] = OrderedDict()
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    def invite(self, role: Role, who: str, token: bytes = b"") -> tuple[str, int]:
        """Make a login code; return it and until when it holds (ms)."""
        code, until = secrets.token_urlsafe(32), self._now() + CODE_LIFE
        self._codes[digest(code)] = Code(role, who, token, until)
        _trim(self._codes, MOST_CODES)
        return code, until

    def enter(self, code: str) -> str | None:
        """Open a session with a code, which is spent by that; return the session's secret, None for a code that
        is unknown, spent or over."""
        found = self._codes.pop(digest(code), None)
        if found is None or found.until <= self._now() or not self._good(found.token):
            return None
        secret, now = secrets.token_urlsafe(32), self._now()
        session = Session(found.role, found.who, found.token, secrets.token_urlsafe(32), now, now)
        self._sessions[digest(secret)] = session
        _trim(self._sessions, MOST_SESSIONS)
        return secret

    def find(self, secret: str) -> Session | None:
        """Return the session of a secret, which counts as used by that; None where there is none (any more)."""
        key, now = digest(secret), self._now()
        session = self._sessions.get(key)
        if session is None:
            return None
        if not self._alive(session, now):
            del self._sessions[key]
            return None
        session.seen = now
        return session

    def holds(self, secret: str) -> bool:
        """Whether a session is still good; it does not count as used by that."""
        session, now = self._sessions.get(digest(secret)), self._now()
        return session is not None and self._alive(session, now)

    def leave(self, secret: str) -> None:
        """End a session."""
        self._sessions.pop(digest(secret), None)

    def _alive(self, session: Session, now: int) -> bool:
        return now - session.seen < IDLE and now - session.began < LIFE and self._good(session.token)

    def _good(self, token: bytes) -> bool:
        return not token or self._holds(token)


def _trim(held: OrderedDict[bytes, Held], most: int) -> None:
    while len(held) > most:
        counts = Counter(one.token for one in held.values())
        crowd = max(counts.values())
        del held[next(key for key, one in held.items() if counts[one.token] == crowd)]


class Failures:
    """Counts wrong credentials by address. Who has the right ones is never kept out by a neighbour's: behind a
    proxy all have one address, and 256 bits are not guessed at any speed. What it spares is work and log lines.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._by_address: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def wrong(self, address: str) -> int:
        """Note one; return after how many seconds the next may be tried, 0 where it may at once."""
        now = self._now()
        count, at = self._by_address.pop(address, (0.0, now))
        count = max(0.0, count - max(0, now - at) / FORGIVEN_EVERY)
        limited = count >= FAILURES
        self._by_address[address] = (count if limited else count + 1, now)
        while len(self._by_address) > MOST_ADDRESSES:
            self._by_address.popitem(last=False)
        return max(1, round((count - FAILURES + 1) * FORGIVEN_EVERY / 1000)) if limited else 0
