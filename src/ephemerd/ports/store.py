"""The store: rows are the state, the journal explains. One writer, one transaction a batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DeliveryId:
    forge: str
    id: str


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One handled event as the store keeps it; everything is plain (dict, list, str, int, float, None).

    event       {"kind": class name, …fields}
    commands    hash (hex) over the commands
    changed     (kind, id, plain row or None for a deletion)
    decisions   plain decisions, each with an integer "id"
    subjects    runner ids and job keys that it concerns
    """

    now: int
    event: Plain
    commands: str
    changed: tuple[tuple[str, str, Plain | None], ...]
    decisions: tuple[Plain, ...]
    subjects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one transaction holds: delivery ids and the steps in their order."""

    deliveries: tuple[DeliveryId, ...]
    steps: tuple[StepRecord, ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """All rows by kind and id, and the clock as last written (ms, boot id, monotonic ms)."""

    store: str
    rows: dict[str, dict[str, Plain]]
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
    (as `open_segment` was given it), and the number of its first entry."""

    number: int
    rules: str
    checkpoint: Plain
    first_seq: int


class Store(Protocol):
    """Durable state. Methods are coroutines that hand over to the one writer thread.

    `commit` raises `NotStored` when nothing of the batch is in the store.
    """

    async def open(self) -> None:
        """Open or create, lock against a second daemon (`StoreHeld`), migrate (`NewerStore`)."""
        ...

    async def load(self) -> Loaded:
        """Read all rows. The journal is never loaded."""
        ...

    async def open_segment(self, rules: str, checkpoint: Plain) -> int:
        """Begin a journal segment with the state it starts from; returns its number."""
        ...

    async def commit(self, batch: Batch, clock: tuple[int, str, int]) -> None:
        """Write the batch in one durable transaction."""
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
