"""A store in memory that keeps the whole contract of `ports.store.Store`, and fails when it is told to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from ephemerd.ports.errors import NotStored, StoreHeld
from ephemerd.ports.store import Batch, DeliveryId, JournalEntry, Loaded, Plain, Segment

DELIVERIES_KEPT = 8 * 24 * 60 * 60 * 1000  # ms
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class _Entry:
    segment: int
    now: int
    event: bytes
    commands: str


@dataclass(eq=False)
class MemoryDisk:
    """What outlives a store: give it to the next `MemoryStore` as a daemon gets its file back.

    Everything is held as JSON, so that nobody can change it from outside, and what is no plain data is
    refused here as it is by a real store.
    """

    store: str = "memory00"
    clock: tuple[int, str, int] | None = None
    rows: dict[str, dict[str, bytes]] = field(default_factory=dict)
    deliveries: dict[DeliveryId, int] = field(default_factory=dict)
    segments: list[tuple[str, bytes, int]] = field(default_factory=list)
    journal: list[_Entry] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    decisions: dict[int, bytes] = field(default_factory=dict)
    quarantine: list[tuple[int, str, str, bytes, str]] = field(default_factory=list)
    holder: MemoryStore | None = None


class MemoryStore:
    """A store on a `MemoryDisk`.

    `fail_next_commit` makes the next commit raise `NotStored` with nothing written, once. `crash` ends the
    store as the death of its process would.
    """

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = MemoryDisk() if disk is None else disk
        self.fail_next_commit = False

    async def open(self) -> None:
        """Take the disk; `StoreHeld` while another store has it."""
        if self.disk.holder is self:
            raise RuntimeError("this store is open already")
        if self.disk.holder is not None:
            raise StoreHeld("this disk is in use by another store")
        self.disk.holder = self

    async def load(self) -> Loaded:
        """Return all rows, in the order of kind and id as a database gives them."""
        disk = self._held()
        rows = {
            kind: {name: _decode(rows[name]) for name in sorted(rows)}
            for kind, rows in sorted(disk.rows.items())
            if rows
        }
        return Loaded(disk.store, rows, disk.clock)

    async def open_segment(self, rules: str, checkpoint: Plain) -> int:
        """Begin a journal segment; returns its number (1, 2, …)."""
        disk = self._held()
        disk.segments.append((rules, _encode(checkpoint), len(disk.journal) + 1))
        return len(disk.segments)

    async def commit(self, batch: Batch, clock: tuple[int, str, int]) -> None:
        """Write the batch, or raise `NotStored` with nothing written."""
        disk = self._held()
        if self.fail_next_commit:
            self.fail_next_commit = False
            raise NotStored("the disk is full (this store was told to fail)")
        try:
            ready = _prepare(disk, batch)
        except Exception as error:
            raise NotStored(f"{type(error).__name__}: {error}") from error
        _write(disk, batch, ready, clock)

    async def seen(self, deliveries: Iterable[DeliveryId]) -> set[DeliveryId]:
        """Return those delivery ids that were committed before (in the last 8 days)."""
        disk = self._held()
        return {delivery for delivery in deliveries if delivery in disk.deliveries}

    async def quarantine(self, now: int, forge: str, delivery: str, body: bytes, error: str) -> None:
        """Keep what could not be handled."""
        self._held().quarantine.append((now, forge, delivery, bytes(body), error))

    async def quarantined(self) -> int:
        """Count what is in quarantine."""
        return len(self._held().quarantine)

    async def decisions(
        self, *, after: int = 0, limit: int = 100, runner: str = "", outcome: str = "", newest: bool = False
    ) -> list[Plain]:
        """Read decisions in the order of their ids; with `newest` downwards, and `after` goes downwards too."""
        found: list[Plain] = []
        disk = self._held()
        for number in sorted(disk.decisions, reverse=newest):
            if len(found) >= limit:
                break
            if after and not (number < after if newest else number > after):
                continue
            plain = _decode(disk.decisions[number])
            if plain.get("runner", "") == (runner or plain.get("runner", "")) and plain.get(
                "outcome", ""
            ) == (outcome or plain.get("outcome", "")):
                found.append(plain)
        return found

    async def journal(self, *, subject: str = "", after: int = 0, limit: int = 1000) -> list[JournalEntry]:
        """Read journal entries, those that concern a subject where one is named."""
        disk = self._held()
        numbers: Iterable[int] = (
            (seq for seq in disk.subjects.get(subject, []) if seq > after)
            if subject
            else range(max(after, 0) + 1, len(disk.journal) + 1)
        )
        found: list[JournalEntry] = []
        for seq in numbers:
            if len(found) >= limit:
                break
            entry = disk.journal[seq - 1]
            found.append(JournalEntry(seq, entry.segment, entry.now, _decode(entry.event), entry.commands))
        return found

    async def segment(self, number: int | None = None) -> Segment | None:
        """Return a segment's beginning, the newest one's without a number."""
        segments = self._held().segments
        wanted = len(segments) if number is None else number
        if not 0 < wanted <= len(segments):
            return None
        rules, checkpoint, first = segments[wanted - 1]
        return Segment(wanted, rules, _decode(checkpoint), first)

    async def subjects_like(self, text: str, limit: int = 10) -> list[str]:
        """Return subjects that contain the text (whatever the case), newest first."""
        disk, wanted = self._held(), _fold(text)
        found = [name for name in disk.subjects if wanted in _fold(name)]
        found.sort(key=lambda name: (-disk.subjects[name][-1], name))
        return found[: max(limit, 0)]

    async def close(self) -> None:
        """Give the disk back; nothing where it is not held."""
        self.crash()

    def crash(self) -> None:
        """Let go of the disk as a dying process does."""
        if self.disk.holder is self:
            self.disk.holder = None

    def _held(self) -> MemoryDisk:
        if self.disk.holder is not self:
            raise RuntimeError("this store is not open")
        return self.disk


@dataclass(frozen=True, slots=True)
class _Ready:
    """Everything that can be refused, done before the first change."""

    rows: dict[tuple[str, str], bytes | None]
    events: list[bytes]
    decisions: dict[int, bytes]


def _prepare(disk: MemoryDisk, batch: Batch) -> _Ready:
    decisions: dict[int, bytes] = {}
    for step in batch.steps:
        for plain in step.decisions:
            if plain["id"] in disk.decisions or plain["id"] in decisions:
                raise ValueError(f"decision {plain['id']} is there already")
            decisions[plain["id"]] = _encode(plain)
    final = {(kind, name): row for step in batch.steps for kind, name, row in step.changed}
    rows = {key: None if row is None else _encode(row) for key, row in final.items()}
    return _Ready(rows, [_encode(step.event) for step in batch.steps], decisions)


def _write(disk: MemoryDisk, batch: Batch, ready: _Ready, clock: tuple[int, str, int]) -> None:
    now = max([clock[0], *(step.now for step in batch.steps)])
    for delivery in batch.deliveries:
        disk.deliveries.setdefault(delivery, now)
    for old in [delivery for delivery, seen in disk.deliveries.items() if seen < now - DELIVERIES_KEPT]:
        del disk.deliveries[old]
    for (kind, name), row in ready.rows.items():
        if row is None:
            disk.rows.get(kind, {}).pop(name, None)
        else:
            disk.rows.setdefault(kind, {})[name] = row
    for step, event in zip(batch.steps, ready.events, strict=True):
        disk.journal.append(_Entry(len(disk.segments), step.now, event, step.commands))
        for subject in dict.fromkeys(step.subjects):
            disk.subjects.setdefault(subject, []).append(len(disk.journal))
    disk.decisions.update(ready.decisions)
    disk.clock = clock


def _fold(text: str) -> bytes:
    """Lower the ASCII letters only, as a database does."""
    return text.encode("utf-8", "replace").lower()
