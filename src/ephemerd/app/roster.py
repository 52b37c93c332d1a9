"""The repositories of one scope: which there are, what is known of each, and which are looked at next; no I/O.

A repository is lively for half an hour after something happened in it: a delivery, a push, a new run, a job that is
queued or runs. It is looked at in every round. The others are glanced at in turn, by one request that is mostly
free, and read wholly a few times a day, since a glance shows the newest runs alone.

Where deliveries are vouched for, repositories are audited instead: their newest runs are laid beside what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from ephemerd.app.ledger import Judge
from ephemerd.app.spending import Ease, Spending
from ephemerd.app.trust import Standing
from ephemerd.domain.ids import Scope
from ephemerd.domain.pool import HOUR, MINUTE
from ephemerd.ports.forge import Audit, Glance, JobsSeen, Look, RepositorySeen

LIVELY_FOR = 30 * MINUTE
WHOLE_EVERY = 45_000
"""A lively repository is read wholly so often (ms), queued and running runs alone in between. Less than the minute
after which the core asks about a job that nobody confirmed."""
SPARING = {Ease.EASY: 1, Ease.FAIR: 10, Ease.TIGHT: 20}
"""So many times that pause lies between whole looks as the budget shrinks; the core then asks about single jobs that
wait for long. In between the newest runs alone are looked at, and of these only what shows itself changed."""
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
STRETCH = 36
"""Where deliveries flow a repository is audited once in so many rounds, and one of them in each."""
STRETCH_ALONE = 12
"""So many rounds where it is the whole scope."""
LIST_EVERY_FLOWING = HOUR
"""So often the list of repositories is asked for there: a delivery of one that it lacks brings the list forward."""
TRUSTED_WHOLE_EVERY = 24 * HOUR
"""So often every repository is read wholly there: an audit shows the newest runs alone."""


class Kind(Enum):
    """Why a repository is asked about: by whose share."""

    LIVELY = "lively"
    FIRST = "first"
    GLANCE = "glance"
    IDLE = "idle"
    AUDIT = "audit"
    IDLE_AUDIT = "idle audit"


@dataclass(slots=True)
class Entry:
    """One repository. Times are ms of the shell clock.

    looked     when the last look began that read it wholly; seen: the last look of any kind
    glanced    when its newest runs were looked at; newest: the highest number among them
    audited    when they were last laid beside what is known; reached: the highest number then
    open       jobs that were queued or ran at the last look, or runs; asks, cost: what that look took
    again      runs whose jobs are read at the next look whatever it shows
    cut        the last look that should have been whole was not
    """

    name: str
    id: int = 0
    pushed: str = ""
    looked: int | None = None
    seen: int = 0
    glanced: int | None = None
    newest: int = 0
    audited: int | None = None
    reached: int = 0
    lively_until: int = 0
    failed_until: int = 0
    open: int = 0
    asks: int = FIRST_ASKS
    cost: int = FIRST_ASKS
    again: set[int] = field(default_factory=set)
    cut: bool = False
    busy: bool = False

    def is_lively(self, now: int) -> bool:
        """Say whether something happened here lately."""
        return now < self.lively_until or self.open > 0

    @property
    def checked(self) -> int:
        """When it was last read wholly or audited."""
        return max(self.looked or 0, self.audited or 0)

    def depth(self, now: int, ease: Ease = Ease.EASY) -> Look:
        """Return how much of it the next look reads; less, and more rarely all, the tighter the budget is."""
        pause = WHOLE_EVERY * SPARING[ease]
        due = self.looked is None or self.cut or now - self.looked >= pause
        return Look.WHOLE if due else Look.QUICK if ease is Ease.EASY else Look.NEWEST

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

    def take_audit(self, began: int, seen: Audit, judge: Judge) -> bool:
        """Take in an audit; say whether it suffices: else a later run may lie beyond what was shown, or one that is
        believed to be open was not shown."""
        before, self.audited = self.checked, began
        self.asks, self.cost = seen.asked, seen.charged
        if not seen.changed:
            return True
        self.open = seen.open
        if judge.strange:
            self.lively_until = began + LIVELY_FOR
        reaches = not seen.more or judge.reaches(self.reached, before)
        self.reached = max(self.reached, judge.newest)
        return reaches and not judge.misses()


@dataclass(frozen=True, slots=True)
class Pace:
    """How a scope is audited: what vouches for it, the interval (ms) of its rounds, and whether the forge answered
    something about it just now, so that a round need not ask."""

    standing: Standing
    every: int
    answered: bool


@dataclass(slots=True)
class Roster:
    """The repositories of a scope. `fixed`: it is one repository itself, and nothing is to be found out.

    entries    those that are looked at, by name in lower case
    names      every name that the last list had, allowed or not
    listed     when the list was read last; due: when it is asked for again, and `urgent`: for a reason
    left       names whose open jobs are to be asked about one by one, since no look shows them any more
    """

    scope: Scope
    fixed: bool = False
    entries: dict[str, Entry] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    listed: int | None = None
    due: int = 0
    urgent: bool = False
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
        self.listed, self.due, self.urgent = now, now + LIST_EVERY * max(1, pages), False

    def hurry(self, at: int) -> None:
        """Something wants the list to be read anew: `at` that time (ms) at the latest."""
        self.due, self.urgent = min(self.due, at), True

    def wants_list(self, now: int, standing: Standing) -> bool:
        """Say whether the list of repositories is to be asked for."""
        if self.fixed or now < self.due:
            return False
        if standing is not Standing.FLOWING or self.urgent or self.listed is None:
            return True
        return now - self.listed >= LIST_EVERY_FLOWING

    def notice(self, repository: str, now: int) -> None:
        """Something was heard of a job in that repository."""
        name = repository.lower()
        entry = self.entries.get(name)
        if entry is not None:
            entry.lively_until = now + LIVELY_FOR
        elif not self.fixed and len(self.strays) < MOST_STRAYS and name not in self.strays:
            self.strays[name] = now + STRAY_FOR
            if name not in self.names:
                self.hurry((self.listed or 0) + LIST_EVERY)

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
        yield from self._fresh(at, now, spending)
        idle = [one for one in self._wanted(at) if one.looked is not None and not one.is_lively(at)]
        for entry in sorted(idle, key=_glanced) if not self.fixed else ():
            due = entry.glanced is None or at - entry.glanced >= GLANCE_EVERY
            if due and spending.may_see_idle(now(), 1, 0 if free(entry.name) else 1):
                yield entry, Kind.GLANCE
        for entry in sorted(idle, key=_looked) if not self.fixed else ():
            due = entry.looked is not None and at - entry.looked >= IDLE_WHOLE_EVERY
            if due and spending.may_see_idle(now(), FIRST_ASKS, FIRST_ASKS):
                yield entry, Kind.IDLE

    def _fresh(self, at: int, now: Callable[[], int], spending: Spending) -> Iterator[tuple[Entry, Kind]]:
        """Yield those that were never read, or not since the machine slept."""
        fresh = [entry for entry in self._wanted(at) if entry.looked is None]
        for entry in sorted(fresh, key=lambda one: (one.is_lively(at), one.pushed), reverse=True):
            if entry.looked is None and (self.fixed or spending.may_look_first(now(), entry.asks)):
                yield entry, Kind.FIRST

    def choose_audits(
        self, now: Callable[[], int], spending: Spending, free: Callable[[str], bool], pace: Pace
    ) -> Iterator[tuple[Entry, Kind]]:
        """Yield what to ask about in this round where the scope's deliveries are vouched for."""
        at = now()
        yield from self._fresh(at, now, spending)
        known = [entry for entry in self._wanted(at) if entry.looked is not None]
        for entry in sorted(known, key=_looked):
            due = entry.looked is not None and at - entry.looked >= TRUSTED_WHOLE_EVERY
            if due and spending.may_see_idle(now(), FIRST_ASKS, FIRST_ASKS):
                yield entry, Kind.IDLE
        asked = False
        for entry in sorted(known, key=lambda one: (not one.is_lively(at), one.checked)):
            if entry.checked >= at or not self._audit_due(entry, at, pace, first=not asked):
                continue
            cost = 0 if free(entry.name) else 1
            lively = self.fixed or entry.is_lively(at) or pace.standing is Standing.FLOWING
            if spending.may_look(now(), 1, 1) if lively else spending.may_see_idle(now(), 1, cost):
                asked = True
                yield entry, Kind.AUDIT if lively else Kind.IDLE_AUDIT

    def _audit_due(self, entry: Entry, at: int, pace: Pace, *, first: bool) -> bool:
        """Say whether a repository is to be audited. `first`: none of this round was yet; one is in any case, so that
        a round asks the forge something, and what ails all of them is noticed soon."""
        waited = at - entry.checked
        if pace.standing is Standing.QUIET:
            return self.fixed or entry.is_lively(at) or waited >= GLANCE_EVERY
        if self.fixed:
            return waited >= STRETCH_ALONE * pace.every or not pace.answered
        return waited >= STRETCH * pace.every or (first and (entry.is_lively(at) or not pace.answered))

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

    def as_of(self, began: int, vouched: int = 0) -> int | None:
        """Return since when (ms) all that is open here was read anew, for a round that began at `began`; None before
        every repository was read once, or while a list of one is cut. What deliveries told up to the time `vouched`
        need not be read.

        A repository that cannot be read at all (its right was taken, it answers with errors) is left out: one such
        would else keep what is left over in the whole scope for ever. It only lets rules nominate; the gate proves.
        """
        readable = [one for one in self.entries.values() if began >= one.failed_until]
        if any(one.looked is None or one.cut for one in readable) or (self.entries and not readable):
            return None
        lively = [one.looked for one in readable if one.looked is not None and one.is_lively(began)]
        last = max((max(one.looked or 0, one.glanced or 0) for one in readable), default=began)
        return max(min(lively, default=last), vouched)

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
