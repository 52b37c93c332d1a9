"""API tokens: made once, shown once, kept as a digest.

A token is 256 random bits, so one round of SHA-256 is enough: there is nothing to guess word by word. Every
comparison takes the same time wherever it fails.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from ephemerd.ports.access import Role, Shelf, TokenRecord
from ephemerd.ports.views import TokenView

PREFIX = "ephd_"
"""Begins every token, so that it is known for one wherever it is found."""
MOST = 100
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
NAME_FORM = "a name is up to 63 of a-z, 0-9, dot, dash and underscore, and begins with a letter or digit"
LONGEST = 10 * 365 * 24 * 3600
"""Seconds: a token that lives longer than ten years is one without an end, and should say so."""


class Refused(Exception):
    """A token cannot be made so; the message says why and what to do."""


class NoSuchToken(Exception):
    """There is no token of that name."""


@dataclass(frozen=True, slots=True)
class Made:
    """A new token: the only moment at which it is known."""

    token: str
    view: TokenView

    def __repr__(self) -> str:
        return f"Made({self.view.name!r})"


def digest(secret: str) -> bytes:
    """Return what is kept of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


class Tokens:
    """All tokens of one daemon. `now` is the wall clock in ms. Changes are on the shelf before they hold."""

    def __init__(self, shelf: Shelf, now: Callable[[], int]) -> None:
        self._shelf = shelf
        self._now = now
        self._records: dict[str, TokenRecord] = {}
        self._used: dict[str, int] = {}

    def load(self) -> None:
        """Read the shelf. Raises `Broken`."""
        self._records = {record.name: record for record in self._shelf.read()}

    def create(self, name: str, role: Role, seconds: int | None) -> Made:
        """Make a token that holds for so many seconds (None: until it is revoked).

        Raises `Refused`, and `Broken` where it cannot be kept; there is no such token then.
        """
        if NAME.fullmatch(name) is None:
            raise Refused(NAME_FORM)
        if name in self._records:
            raise Refused(f"there is a token {name!r} already; revoke it first, or choose another name")
        if len(self._records) >= MOST:
            raise Refused(f"there are {MOST} tokens; revoke some that nobody uses")
        if seconds is not None and not 0 < seconds <= LONGEST:
            raise Refused("a token holds for at least a second and at most ten years, or without an end")
        token = PREFIX + secrets.token_urlsafe(32)
        now = self._now()
        record = TokenRecord(
            name, role, digest(token), now, None if seconds is None else now + seconds * 1000
        )
        self._keep({**self._records, name: record})
        return Made(token, self._view(record))

    def revoke(self, name: str) -> None:
        """Make a token void from now on. Raises `NoSuchToken`, and `Broken` where that cannot be kept."""
        if name not in self._records:
            raise NoSuchToken(f"there is no token {name!r}")
        self._keep({known: record for known, record in self._records.items() if known != name})
        self._used.pop(name, None)

    def list(self) -> tuple[TokenView, ...]:
        """Return all tokens by name, expired ones too."""
        return tuple(self._view(self._records[name]) for name in sorted(self._records))

    def find(self, token: str) -> TokenRecord | None:
        """Return whose token that is; None for an unknown or expired one."""
        wanted, found = digest(token), None
        for record in self._records.values():
            if hmac.compare_digest(record.digest, wanted):
                found = record
        if found is None or self._over(found):
            return None
        self._used[found.name] = self._now()
        return found

    def holds(self, kept: bytes) -> bool:
        """Whether the token of that digest is there and not expired; another one of its name is not meant."""
        return any(record.digest == kept and not self._over(record) for record in self._records.values())

    def _over(self, record: TokenRecord) -> bool:
        return record.expires is not None and record.expires <= self._now()

    def _keep(self, records: dict[str, TokenRecord]) -> None:
        self._shelf.write([*records.values()])
        self._records = records

    def _view(self, record: TokenRecord) -> TokenView:
        return TokenView(
            name=record.name,
            role=record.role.value,
            created=record.created,
            expires=record.expires,
            expired=self._over(record),
            used=self._used.get(record.name),
        )
