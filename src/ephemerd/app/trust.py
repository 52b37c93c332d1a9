"""How far the silence of deliveries is believed: what a scope's listings may leave out; no I/O.

Where the forge's own list of deliveries was read whole and each of them was received or fetched, listings find only
what the forge never tried to deliver. How likely that is shows in three ways: a listing that meets a job of which no
delivery told, a scope of which nothing is heard any more, and a delivery that could not be read. After the first and
the last everything is listed as if there were no such list; while nothing is heard, repositories are compared with
what is known at the same pace, by one request each. A scope of which little is known yet, after a start or since the
list can be read, is listed as if there were no list too: it is believed once no such thing was seen for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from ephemerd.domain.ids import JobKey, Scope
from ephemerd.domain.pool import MINUTE

READ_WITHIN = 2
"""The forge's list vouches for so many intervals of the reconcile after a pass over it began."""
HEARD_WITHIN = 1
"""Deliveries flow where one came within so many intervals."""
DOUBTED_FOR = 12
"""So many intervals a scope is listed in full after a delivery was seen to be missing."""
BELIEVED_AFTER = 12
"""For so many intervals after the first pass over the forge's list a scope is listed in full."""
GRACE = 2 * MINUTE
"""ms within which a job that a listing showed first must be told of by a delivery, late or fetched."""
MOST_UNTOLD = 1_000


class Standing(Enum):
    """What vouches for a scope.

    NONE     nothing: its jobs are listed
    QUIET    the forge's list of deliveries; none came lately
    FLOWING  that list, and deliveries come
    """

    NONE = "none"
    QUIET = "quiet"
    FLOWING = "flowing"


@dataclass(slots=True)
class _Scope:
    """Times in ms of the shell clock. `begun`: the first pass over the forge's list since it can be read. `untold`:
    jobs that a listing showed and no delivery told of, and since when."""

    begun: int | None = None
    read: int | None = None
    heard: int | None = None
    doubted: int | None = None
    untold: OrderedDict[JobKey, int] = field(default_factory=OrderedDict)


class Trust:
    """What deliveries have shown of themselves, by scope."""

    def __init__(self) -> None:
        self._scopes: dict[Scope, _Scope] = {}
        self._every = 0

    def configure(self, every: int, observed: Iterable[Scope]) -> None:
        """Know which scopes deliveries tell of, and the reconcile's interval (ms). The others are never vouched for."""
        self._every = every
        self._scopes = {scope: self._scopes.get(scope) or _Scope() for scope in observed}

    def read_back(self, scopes: Iterable[Scope], began: int, *, whole: bool) -> None:
        """The forge's list of these scopes' deliveries was read, in a pass that began at `began`. Not `whole`: not
        all that had failed could be fetched."""
        for row in self._rows(scopes):
            row.read = began
            if row.begun is None:
                row.begun = began
            if not whole:
                row.doubted = began

    def closed(self, scopes: Iterable[Scope]) -> None:
        """The list of these scopes' deliveries cannot be read."""
        for row in self._rows(scopes):
            row.begun = row.read = None

    def heard(self, job: JobKey, now: int) -> None:
        """A delivery told of a job."""
        if not job.repository.islower():
            job = JobKey(job.forge, job.repository.lower(), job.id)
        for scope, row in self._scopes.items():
            if scope.serves(job):
                row.heard = now
                row.untold.pop(job, None)

    def untold(self, job: JobKey, now: int) -> None:
        """A listing showed a job that lives and of which nothing had been heard; its row's key."""
        for scope, row in self._scopes.items():
            if scope.serves(job) and len(row.untold) < MOST_UNTOLD:
                row.untold.setdefault(job, now)

    def of(self, scope: Scope, now: int) -> Standing:
        """Say what vouches for a scope."""
        row = self._scopes.get(scope)
        if row is None:
            return Standing.NONE
        while row.untold and now - next(iter(row.untold.values())) >= GRACE:
            row.untold.popitem(last=False)
            row.doubted = now
        if row.begun is None or row.read is None or now - row.read > READ_WITHIN * self._every:
            return Standing.NONE
        if now - row.begun < BELIEVED_AFTER * self._every:
            return Standing.NONE
        if row.doubted is not None and now - row.doubted < DOUBTED_FOR * self._every:
            return Standing.NONE
        flowing = row.heard is not None and now - row.heard <= HEARD_WITHIN * self._every
        return Standing.FLOWING if flowing else Standing.QUIET

    def since(self, scope: Scope, now: int) -> int:
        """Return up to when (ms) a scope's deliveries are vouched for, 0 where they are not."""
        read = self._scopes[scope].read if self.of(scope, now) is not Standing.NONE else None
        return read or 0

    def _rows(self, scopes: Iterable[Scope]) -> Iterable[_Scope]:
        return (self._scopes[scope] for scope in scopes if scope in self._scopes)
