"""What changed, told to whoever watches: one event a journal entry, many in one while much happens.

There is one ring of the newest events and a cursor for each subscriber, so that nothing is queued for a slow
one: it finds what it missed in the ring, then in the journal, and where that is too much it gets one `reset`,
which says that everything may have changed. All are woken together, a few times a second at most.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, get_args

import msgspec

from ephemerd.app.daemon import Daemon
from ephemerd.app.writer import Handled
from ephemerd.core import codec
from ephemerd.core.events import Event
from ephemerd.core.step import Step
from ephemerd.domain.job import Job, JobReport
from ephemerd.domain.runner import Runner
from ephemerd.domain.value import Value
from ephemerd.ports.errors import PortError
from ephemerd.ports.store import JournalEntry

KEPT = 2000
"""Events in the ring: at a hundred a second, 20 s of a subscriber that does not read."""
CAUGHT_UP = 1000
"""Entries that are read back from the journal for one subscriber; more is a `reset`."""
AT_ONCE = 50
"""Events that a subscriber gets one by one; more at one waking are told as one of kind `many`."""
MOST_SUBJECTS = 500
"""Subjects of an event of kind `many`; beyond them it is a `reset`."""
MOST_SUBSCRIBERS, MOST_EACH = 100, 50
"""In all, and of one owner."""
PAUSE = 0.2
"""Seconds between two wakings."""
BEAT = 15.0
"""Seconds without an event after which a `heartbeat` is told."""
FROM_THE_FIRST = -1
"""Where one begins who subscribed before anything was committed in this process."""

MANY, RESET, HEARTBEAT = "many", "reset", "heartbeat"
KINDS = tuple(sorted(kind.__name__ for kind in get_args(Event)))
"""What else an event may be of: the kinds of the journal."""


class TooMany(Exception):
    """There are as many subscribers as there may be."""


class FeedEvent(Value, frozen=True, eq=False, omit_defaults=False):
    """One thing that changed.

    id        number of the journal entry, of several in one the last; that of the newest one in a `reset` or
              `heartbeat`. Give it as `after` to go on
    kind      name of the journal's event (`JobReported`, …), or `many`, `reset`, `heartbeat`
    at        when, ms of the shell clock
    subjects  ids of runners, jobs, pools and hosts that it concerns, sorted
    data      what became of them, each key only where there is something: `runners` (id -> state), `jobs` (id ->
              status), both "" for what is forgotten; `decisions` (id, runner, rule, outcome, verdict, via); of
              `many` also `count` and `kinds` (kind -> how many). Empty where it was read back from the journal
    """

    id: int
    kind: str
    at: int
    subjects: tuple[str, ...] = ()
    data: dict[str, Any] = msgspec.field(default_factory=dict)


class _Kept(msgspec.Struct):
    """A committed event in the ring: its step, until the first one asks what is told of it. Most often nobody does."""

    id: int
    kind: str
    at: int
    found: Step | FeedEvent

    def event(self) -> FeedEvent:
        """Return what is told of it; from then on that alone is kept."""
        if isinstance(self.found, Step):
            self.found = _from_step(self.id, self.kind, self.at, self.found)
        return self.found


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events a subscriber wants: of these kinds (none given: all), of one subject ("": all)."""

    kinds: frozenset[str] = frozenset()
    subject: str = ""

    def __contains__(self, event: FeedEvent) -> bool:
        return (not self.kinds or event.kind in self.kinds) and (
            not self.subject or self.subject in event.subjects
        )


class Feed:
    """The broadcast of one daemon. All methods belong to the event loop's thread."""

    def __init__(
        self,
        daemon: Daemon,
        *,
        kept: int = KEPT,
        most: int = MOST_SUBSCRIBERS,
        pause: float = PAUSE,
        beat: float = BEAT,
    ) -> None:
        self._daemon = daemon
        self._most = most
        self._pause = pause
        self._beat = beat
        self._ring: deque[_Kept] = deque(maxlen=kept)
        self._newest = self._first = 0
        self._rung = 0
        self._rung_at = float("-inf")
        self._bell = asyncio.Event()
        self._ringing: asyncio.TimerHandle | None = None
        self._merges: dict[tuple[int, int, Wanted], FeedEvent] = {}
        self._owners: Counter[bytes] = Counter()
        self._closed = False
        self._end_watch: Callable[[], None] = daemon.watch(self._take)

    @property
    def newest(self) -> int:
        """Number of the newest journal entry that is known here; 0 before the first of this process."""
        return self._newest

    @property
    def subscribers(self) -> int:
        """How many are subscribed."""
        return self._owners.total()

    def is_full(self, owner: bytes = b"") -> bool:
        """Whether the next subscriber of that owner would be refused."""
        return self.subscribers >= self._most or (bool(owner) and self._owners[owner] >= MOST_EACH)

    async def subscribe(
        self,
        after: int | None = None,
        *,
        kinds: Iterable[str] = (),
        subject: str = "",
        owner: bytes = b"",
    ) -> AsyncGenerator[FeedEvent, None]:
        """Yield what changes from now on, or what changed since the entry `after`, then what changes.

        Events come in the order of their ids, each once. With `kinds` or a `subject` only those, and `reset` and
        `heartbeat` in any case. Raises `TooMany` at the first step. Ends when the feed is closed; close it
        (`aclosing`) where you leave it early. Of one `owner`, where one is named, there may be half of all.
        """
        if self.is_full(owner):
            raise TooMany
        self._owners[owner] += 1
        try:
            wanted = Wanted(frozenset(kinds), subject)
            cursor = after if after is not None else self._rung or FROM_THE_FIRST
            told = self._loop_time()
            while not self._closed:
                if cursor == FROM_THE_FIRST and self._rung:
                    cursor = self._first - 1
                elif cursor > self._newest > 0:  # of another store, or of one that was put back
                    cursor = self._newest
                    yield FeedEvent(cursor, RESET, self._now())
                elif cursor != FROM_THE_FIRST and cursor < self._rung:
                    missed, cursor = await self._missed(cursor, wanted)
                    for event in missed:
                        yield event
                        told = self._loop_time()
                elif not await self._news(told + self._beat):
                    yield FeedEvent(self._rung, HEARTBEAT, self._now())
                    told = self._loop_time()
        finally:
            self._owners[owner] -= 1
            if not self._owners[owner]:
                del self._owners[owner]

    def close(self) -> None:
        """Tell nothing more, and let every subscriber end."""
        if self._closed:
            return
        self._closed = True
        self._end_watch()
        if self._ringing is not None:
            self._ringing.cancel()
        self._bell.set()

    async def _news(self, until: float) -> bool:
        """Wait for the next waking; false where none came before the loop's time was `until`."""
        bell = self._bell
        try:
            async with asyncio.timeout_at(until):
                await bell.wait()
        except TimeoutError:
            return False
        return True

    async def _missed(self, cursor: int, wanted: Wanted) -> tuple[list[FeedEvent], int]:
        """Return what came after `cursor` up to the last waking, and the cursor then."""
        upto = self._rung
        if self._ring and self._ring[0].id <= cursor + 1:
            found = [event for event in self._newer(cursor) if event.id <= upto and event in wanted]
        else:
            read = await self._read_back(cursor, upto, wanted)
            if read is None:
                return [FeedEvent(upto, RESET, self._now())], upto
            found = read
        if len(found) <= AT_ONCE:
            return found, upto
        return [self._merged(cursor, upto, wanted, found)], upto

    def _newer(self, cursor: int) -> list[FeedEvent]:
        """Return the ring's events after `cursor` in their order; costs as much as there are."""
        found = [kept.event() for kept in takewhile(lambda kept: kept.id > cursor, reversed(self._ring))]
        found.reverse()
        return found

    async def _read_back(self, cursor: int, upto: int, wanted: Wanted) -> list[FeedEvent] | None:
        """Read from the journal what the ring does not have (any more); None where that cannot be told."""
        if upto - cursor > CAUGHT_UP or self._is_place(wanted.subject):
            return None
        store = self._daemon.ports.store
        try:
            entries = await store.journal(subject=wanted.subject, after=cursor, limit=CAUGHT_UP)
        except PortError:
            return None
        if not wanted.subject and (not entries or entries[0].seq != cursor + 1):
            return None  # pruned
        about = (wanted.subject,) if wanted.subject else ()
        events = [_from_journal(entry, about) for entry in entries if entry.seq <= upto]
        return [event for event in events if event in wanted]

    def _is_place(self, subject: str) -> bool:
        """Whether a subject is a pool or host: the journal does not say which entries concern one."""
        setup = self._daemon.setup
        return subject in {*(pool.name for pool in setup.pools), *(host.name for host in setup.hosts)}

    def _merged(self, cursor: int, upto: int, wanted: Wanted, events: list[FeedEvent]) -> FeedEvent:
        """Return many events as one, made once for all who missed the same."""
        key = (cursor, upto, wanted)
        if key not in self._merges:
            self._merges[key] = merge(events)
        return self._merges[key]

    def _now(self) -> int:
        return self._daemon.ports.clock.now()

    def _loop_time(self) -> float:
        return asyncio.get_running_loop().time()

    def _take(self, handled: Handled) -> None:
        """Put a committed event into the ring."""
        number = handled.seq
        if self._ring and number != self._newest + 1:
            self._ring.clear()  # committed and not told, as where a disk answered too late: the journal has it
        self._ring.append(_Kept(number, type(handled.item.event).__name__, handled.now, handled.step))
        self._newest = number
        self._first = self._first or number
        if self._ringing is None:
            loop = asyncio.get_running_loop()
            self._ringing = loop.call_at(max(loop.time(), self._rung_at + self._pause), self._wake)

    def _wake(self) -> None:
        self._ringing = None
        self._rung = self._newest
        self._rung_at = asyncio.get_running_loop().time()
        self._merges.clear()
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()


def merge(events: list[FeedEvent]) -> FeedEvent:
    """Return several events as one of kind `many`, or as a `reset` where they concern too much."""
    last = events[-1]
    subjects: set[str] = set()
    kinds: dict[str, int] = {}
    data: dict[str, Any] = {"count": len(events), "kinds": kinds}
    for event in events:
        subjects.update(event.subjects)
        kinds[event.kind] = kinds.get(event.kind, 0) + 1
        for key in ("runners", "jobs"):
            if key in event.data:
                data.setdefault(key, {}).update(event.data[key])
        if "decisions" in event.data:
            data.setdefault("decisions", []).extend(event.data["decisions"])
    if len(subjects) > MOST_SUBJECTS:
        return FeedEvent(last.id, RESET, last.at)
    return FeedEvent(last.id, MANY, last.at, tuple(sorted(subjects)), data)


def _from_step(number: int, kind: str, at: int, step: Step) -> FeedEvent:
    places: list[str] = []
    data: dict[str, Any] = {}
    for of, key, row in step.changed:
        if of == "runner":
            data.setdefault("runners", {})[key] = row.state.value if isinstance(row, Runner) else ""
            if isinstance(row, Runner):
                places += (row.pool, row.host)
        elif of == "job":
            data.setdefault("jobs", {})[key] = row.status.value if isinstance(row, Job) else ""
        elif of in ("pool", "host"):
            places.append(key)
    if step.decisions:
        data["decisions"] = [
            {
                "id": made.id,
                "runner": made.runner,
                "rule": made.rule,
                "outcome": made.outcome,
                "verdict": made.verdict,
                "via": made.via,
            }
            for made in step.decisions
        ]
    subjects = step.subjects  # sorted already
    return FeedEvent(number, kind, at, tuple(sorted({*subjects, *places})) if places else subjects, data)


def _from_journal(entry: JournalEntry, about: tuple[str, ...]) -> FeedEvent:
    """Make an event of an entry: its subjects are `about`, and those that the event itself names."""
    kind = str(entry.event.get("kind", ""))
    try:
        named = set(_named(codec.decode_event(entry.event)))
    except ValueError:  # written by another version
        named = set()
    return FeedEvent(entry.seq, kind, entry.now, tuple(sorted({*about, *named})))


def _named(event: Event) -> Iterable[str]:
    """Yield the ids that an event names."""
    runner, job = getattr(event, "runner", None), getattr(event, "job", None)
    if runner is not None:
        yield runner
    if job is not None:
        yield str(job)
    for report in (getattr(event, "report", None), *getattr(event, "reports", ())):
        if isinstance(report, JobReport):
            yield str(report.key)
            if report.runner_name is not None:
                yield report.runner_name
    for found in getattr(event, "found", ()):
        yield str(getattr(found, "runner", None) or found.name)
