"""The store: rows are the state, the journal explains. One writer, one transaction a batch."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from ephemerd.core.codec import Body
from ephemerd.domain.value import Value

Plain = dict[str, Any]


class DeliveryId(Value, frozen=True, cache_hash=True):
    forge: str
    id: str


class StepRecord(Value, frozen=True):
    """One handled event as the store is given it. What is no JSON yet the store turns into it; of a row that changed
    several times in a batch it keeps the last state.

    event       as JSON {"kind": class name, …fields}
    commands    hash (hex) over the commands
    changed     (kind, id, row or None for a deletion)
    decisions   plain (dict, list, str, int, float, None), each with an integer "id"
    subjects    runner ids and job keys that it concerns
    """

    now: int
    event: Body
    commands: str
    changed: tuple[tuple[str, str, Body | None], ...]
    decisions: tuple[Plain, ...]
    subjects: tuple[str, ...]


class Batch(Value, frozen=True):
    """What one transaction holds: delivery ids and the steps in their order."""

    deliveries: tuple[DeliveryId, ...]
    steps: tuple[StepRecord, ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """All rows by kind and id, each as JSON, and the clock as last written (ms, boot id, monotonic ms)."""

    store: str
    rows: dict[str, dict[str, str]]
    clock: tuple[int, str, int] | None


@dataclass(frozen=True, slots=True)
class JournalEntry:
    seq: int
    segment: int
    now: int
    event: Plain
    commands: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the journal: its number, the version of the rules that wrote it, the state it starts from
    (as `open_segment` was given it, or {"rules", "at", "rows"} of the rows as they stood; `at`, ms, is when a core
    stands up from them), and the number of its first entry."""

    number: int
    rules: str
    checkpoint: Plain
    first_seq: int


@dataclass(frozen=True, slots=True)
class SetAside:
    """What is in quarantine, without its body: when it was put there (ms), the delivery, bytes, and why."""

    seq: int
    at: int
    forge: str
    delivery: str
    size: int
    error: str


DAY = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Keep:
    """How much history a store keeps. Ages in ms, sizes in bytes. State and delivery ids are not history.

    age               of a journal segment's newest entry and of what is in quarantine; decisions go with the
                      entries of their time
    size              of everything in the store; beyond it the oldest segments go, whatever their age
    segment_age       of the open segment's first entry, from which the next segment is opened
    segment_entries   of the open segment, from which the next is opened
    least_entries     below so many a segment stays open however old it is
    """

    age: int = 14 * DAY
    size: int = 2 * 1024**3
    segment_age: int = DAY
    segment_entries: int = 100_000
    least_entries: int = 1000


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one call of `prune` did; `more` says that there is more to do."""

    segments: int = 0
    entries: int = 0
    decisions: int = 0
    quarantined: int = 0
    opened: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True)
class StoreSize:
    """What a store takes, in bytes: in all, of that free for use again, and what its disk has left (None where
    that is not known). `oldest` is when its oldest journal entry was made (ms), None where there is none."""

    total: int
    reusable: int
    disk_free: int | None
    oldest: int | None


class Store(Protocol):
    """Durable state. Methods are coroutines that hand over to the one writer thread.

    `commit` raises `NotStored`, when it is awaited, where nothing of the batch is in the store. A store that need not
    wait may return a future that is done instead of a coroutine.
    """

    async def open(self) -> None:
        """Open or create, lock against a second daemon (`StoreHeld`), migrate (`NewerStore`)."""
        ...

    async def load(self) -> Loaded:
        """Read all rows. The journal is never loaded."""
        ...

    async def open_segment(self, rules: str, checkpoint: Plain | None = None) -> int:
        """Begin a journal segment with the state it starts from, the rows as they stand where none is given;
        returns its number."""
        ...

    def commit(self, batch: Batch, clock: tuple[int, str, int]) -> Awaitable[int]:
        """Write the batch in one durable transaction; return the number of the newest journal entry."""
        ...

    async def seen(self, deliveries: Iterable[DeliveryId]) -> set[DeliveryId]:
        """Return those delivery ids that were committed before."""
        ...

    async def quarantine(self, now: int, forge: str, delivery: str, body: bytes, error: str) -> None:
        """Keep the raw body of what could not be handled, with the reason."""
        ...

    async def quarantined(self) -> int:
        """Count what is in quarantine."""
        ...

    async def set_aside(self, *, after: int = 0, limit: int = 100) -> list[SetAside]:
        """Read what is in quarantine, oldest first."""
        ...

    async def clear_quarantine(self, upto: int) -> int:
        """Forget what is in quarantine up to and including that number; returns how many that were."""
        ...

    async def prune(self, now: int, keep: Keep) -> Pruned:
        """Do a bounded piece of tidying up: forget history that is past its time or size, open the next segment
        where the open one is long, give space back. Rows, delivery ids and the open segment always stay."""
        ...

    async def size(self) -> StoreSize:
        """Measure."""
        ...

    async def decisions(
        self, *, after: int = 0, limit: int = 100, runner: str = "", outcome: str = "", newest: bool = False
    ) -> list[Plain]:
        """Read decisions in the order of their ids (newest first where asked)."""
        ...

    async def journal(self, *, subject: str = "", after: int = 0, limit: int = 1000) -> list[JournalEntry]:
        """Read journal entries, those that concern a subject where one is named."""
        ...

    async def segment(self, number: int | None = None) -> Segment | None:
        """Read a journal segment's beginning, the newest one's without a number; None where there is none."""
        ...

    async def subjects_like(self, text: str, limit: int = 10) -> list[str]:
        """Return subjects that contain the text, newest first."""
        ...

    async def close(self) -> None:
        """Finish what was begun and release the lock."""
        ...
