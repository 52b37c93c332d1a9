"""The repositories of one scope: which there are, what is known of each, and which are looked at next; no I/O.

A repository is lively for half an hour after something happened in it: a delivery, a push, a new run, a job that is
queued or runs. It is looked at in every round. The others are glanced at in turn, by one request that is mostly
free, and read wholly a few times a day, since a glance shows the newest runs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from ephemerd.app.spending import Spending
from ephemerd.domain.ids import Scope
from ephemerd.domain.pool import HOUR, MINUTE
from ephemerd.ports.forge import Glance, JobsSeen, Look, RepositorySeen

LIVELY_FOR = 30 * MINUTE
WHOLE_EVERY = 45_000
"""A lively repository is read wholly so often (ms), queued and running runs alone in between. Less than the minute
after which the core asks about a job that nobody confirmed."""
WHOLE_EVERY_TIGHT = 4 * WHOLE_EVERY
"""So often where the budget is tight: the core then asks about single jobs that wait for long."""
GLANCE_EVERY = MINUTE
IDLE_WHOLE_EVERY = 6 * HOUR
LIST_EVERY = MINUTE
"""So often (ms), for each page that it takes, the list of repositories is asked for."""
FAILED_FOR = 10 * MINUTE
"""A repository that cannot be read is left alone for so long (ms)."""
STRAY_FOR = 10 * MINUTE
MOST_STRAYS = 1_000
FIRST_ASKS = 4
"""What a look takes where nothing is known yet: one list for each status of runs that are not over."""


class Kind(Enum):
    """Why a repository is asked about: by whose share."""

    LIVELY = "lively"
    FIRST = "first"
    GLANCE = "glance"
    IDLE = "idle"


@dataclass(slots=True)
class Entry:
    """One repository. Times are ms of the shell clock.

    looked     when the last look began that read it wholly; seen: the last look of any kind
    glanced    when its newest runs were looked at; newest: the highest number among them
    open       jobs that were queued or ran at the last look; asks, cost: what that look took
    cut        the last look that should have been whole was not
    """

    name: str
    id: int = 0
    pushed: str = ""
    looked: int | None = None
    seen: int = 0
    glanced: int | None = None
    newest: int = 0
    lively_until: int = 0
    failed_until: int = 0
    open: int = 0
    asks: int = FIRST_ASKS
    cost: int = FIRST_ASKS
    cut: bool = False
    busy: bool = False

    def is_lively(self, now: int) -> bool:
        """Say whether something happened here lately."""
        return now < self.lively_until or self.open > 0

    def depth(self, now: int, *, tight: bool = False) -> Look:
        """Return how much of it the next look reads; less in between where the budget is `tight`."""
        pause = WHOLE_EVERY_TIGHT if tight else WHOLE_EVERY
        due = self.looked is None or self.cut or now - self.looked >= pause
        return Look.WHOLE if due else Look.THRIFTY if tight else Look.QUICK

    def take_look(self, began: int, depth: Look, seen: JobsSeen) -> None:
        """Take in a look that began at `began`."""
        self.seen, self.open, self.asks, self.cost = began, seen.open, seen.asked, seen.charged
        if seen.complete:
            self.looked = began
        if depth is Look.WHOLE:
            self.cut = not seen.complete
        if seen.open:
            self.lively_until = began + LIVELY_FOR

    def take_glance(self, began: int, seen: Glance) -> bool:
        """Take in a glance; say whether something happens here."""
        first, self.glanced = self.glanced is None, began
        if not seen.changed:
            return False
        news = seen.newest > self.newest and not first
        self.newest = max(self.newest, seen.newest)
        if seen.busy or news:
            self.lively_until = began + LIVELY_FOR
        return seen.busy or news


@dataclass(slots=True)
class Roster:
    """The repositories of a scope. `fixed`: it is one repository itself, and nothing is to be found out.

    entries    those that are looked at, by name in lower case
    names      every name that the last list had, allowed or not
    listed     when the list was read last; due: when it is asked for again
    left       names whose open jobs are to be asked about one by one, since no look shows them any more
    """

    scope: Scope
    fixed: bool = False
    entries: dict[str, Entry] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    listed: int | None = None
    due: int = 0
    left: set[str] = field(default_factory=set)
    strays: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, scope: Scope) -> Roster:
        """Make the roster of a scope."""
        if scope.kind != "repo":
            return cls(scope)
        name = scope.target.lower()
        return cls(scope, fixed=True, entries={name: Entry(scope.target)}, names=frozenset({name}))

    def take_in(
        self, found: Iterable[RepositorySeen], pages: int, allowed: Callable[[RepositorySeen], bool], now: int
    ) -> None:
        """Take in a whole list: what is new, renamed, pushed to, put to rest or gone."""
        seen = list(found)
        by_id = {entry.id: entry for entry in self.entries.values()}
        entries: dict[str, Entry] = {}
        for one in seen:
            if one.dormant or not allowed(one):
                continue
            entry = by_id.get(one.id) or Entry(one.name, one.id)
            if entry.pushed and one.pushed != entry.pushed:
                entry.lively_until = now + LIVELY_FOR
            entry.name, entry.pushed = one.name, one.pushed
            entries[one.name.lower()] = entry
        self.left.update(self.entries.keys() - entries.keys())
        self.entries = entries
        self.names = frozenset(one.name.lower() for one in seen)
        self.listed, self.due = now, now + LIST_EVERY * max(1, pages)

    def notice(self, repository: str, now: int) -> None:
        """Something was heard of a job in that repository."""
        name = repository.lower()
        entry = self.entries.get(name)
        if entry is not None:
            entry.lively_until = now + LIVELY_FOR
        elif not self.fixed and len(self.strays) < MOST_STRAYS and name not in self.strays:
            self.strays[name] = now + STRAY_FOR
            if name not in self.names:
                self.due = min(self.due, (self.listed or 0) + LIST_EVERY)

    def forget(self) -> None:
        """The machine slept: everything is read anew, as after a start."""
        for entry in self.entries.values():
            entry.looked = None

    def choose(
        self, now: Callable[[], int], spending: Spending, free: Callable[[str], bool]
    ) -> Iterator[tuple[Entry, Kind]]:
        """Yield what to ask about in this round, the most urgent first, as far as `spending` allows it.

        What is yielded may be asked about while this goes on: each is judged when its turn comes.
        """
        at = now()
        for entry in sorted(self._wanted(at), key=_seen):
            lively = self.fixed or entry.is_lively(at)
            if lively and entry.looked is not None and spending.may_look(now(), entry.asks, entry.cost):
                yield entry, Kind.LIVELY
        fresh = [entry for entry in self._wanted(at) if entry.looked is None]
        for entry in sorted(fresh, key=lambda one: (one.is_lively(at), one.pushed), reverse=True):
            if entry.looked is None and (self.fixed or spending.may_look_first(now(), entry.asks)):
                yield entry, Kind.FIRST
        idle = [one for one in self._wanted(at) if one.looked is not None and not one.is_lively(at)]
        for entry in sorted(idle, key=_glanced) if not self.fixed else ():
            due = entry.glanced is None or at - entry.glanced >= GLANCE_EVERY
            if due and spending.may_see_idle(now(), 1, 0 if free(entry.name) else 1):
                yield entry, Kind.GLANCE
        for entry in sorted(idle, key=_looked) if not self.fixed else ():
            due = entry.looked is not None and at - entry.looked >= IDLE_WHOLE_EVERY
            if due and spending.may_see_idle(now(), FIRST_ASKS, FIRST_ASKS):
                yield entry, Kind.IDLE

    def _wanted(self, now: int) -> list[Entry]:
        return [one for one in self.entries.values() if not one.busy and now >= one.failed_until]

    def covered(self, read: Iterable[Entry], now: int) -> tuple[str, ...]:
        """Return the repositories of which a round says everything: those read wholly, and those never read again."""
        stray = [name for name, due in self.strays.items() if now >= due]
        for name in stray:
            del self.strays[name]
        gone = self.left | {name for name in stray if name not in self.entries}
        self.left = set()
        return tuple(sorted(gone | {entry.name.lower() for entry in read}))

    def as_of(self, began: int) -> int | None:
        """Return since when (ms) all that is open here was read anew, for a round that began at `began`; None before
        every repository was read once, or while a list of one is cut.

        A repository that cannot be read at all (its right was taken, it answers with errors) is left out: one such
        would else keep what is left over in the whole scope for ever. It only lets rules nominate; the gate proves.
        """
        readable = [one for one in self.entries.values() if began >= one.failed_until]
        if any(one.looked is None or one.cut for one in readable) or (self.entries and not readable):
            return None
        lively = [one.looked for one in readable if one.looked is not None and one.is_lively(began)]
        last = max((max(one.looked or 0, one.glanced or 0) for one in readable), default=began)
        return min(lively, default=last)

    def is_lively(self, now: int) -> bool:
        """Say whether something happened in one of them lately."""
        return any(entry.is_lively(now) for entry in self.entries.values())

    def open(self) -> int:
        """Return how many jobs were queued or ran when each was looked at last."""
        return sum(entry.open for entry in self.entries.values())


def _seen(entry: Entry) -> int:
    return entry.seen


def _glanced(entry: Entry) -> int:
    return entry.glanced or 0


def _looked(entry: Entry) -> int:
    return entry.looked or 0
