"""A store in memory that keeps the whole contract of `ports.store.Store`, and fails when it is told to."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from ephemerd.core.codec import Body
from ephemerd.ports.errors import NotStored, StoreHeld
from ephemerd.ports.store import (
    Batch,
    DeliveryId,
    JournalEntry,
    Keep,
    Loaded,
    Plain,
    Pruned,
    Segment,
    SetAside,
    StoreSize,
)

T = TypeVar("T")
DELIVERIES_KEPT = 8 * 24 * 60 * 60 * 1000  # ms
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class _Entry(msgspec.Struct):
    segment: int
    now: int
    event: bytes
    commands: str
    subjects: tuple[str, ...]


def at_once(work: Callable[[], T]) -> asyncio.Future[T]:
    """Do it now, and return a future that is done: who awaits it gets the result, or what was raised."""
    done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    try:
        done.set_result(work())
    except Exception as error:
        done.set_exception(error)
    return done


@dataclass(eq=False)
class MemoryDisk:
    """What outlives a store: give it to the next `MemoryStore` as a daemon gets its file back.

    Everything is held as JSON, so that nobody can change it from outside, and what is no plain data is
    refused here as it is by a real store.
    """

    store: str = "memory00"
    clock: tuple[int, str, int] | None = None
    rows: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """By kind and id."""
    deliveries: OrderedDict[DeliveryId, int] = field(default_factory=OrderedDict)
    segments: dict[int, tuple[str, bytes, int]] = field(default_factory=lambda: {0: ("", b"{}", 1)})
    journal: dict[int, _Entry] = field(default_factory=dict)
    next_seq: int = 1
    subjects: dict[str, int] = field(default_factory=dict)
    """The newest entry of each."""
    decisions: dict[int, bytes] = field(default_factory=dict)
    quarantine: dict[int, tuple[int, str, str, bytes, str]] = field(default_factory=dict)
    next_aside: int = 1
    floor: int = 0
    """The first entry that was kept when subjects were last looked through."""
    used: int = len(b"{}")
    """Bytes of what is kept, names and numbers aside; counted as it changes, for it is asked for often."""
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
            kind: {name: row.decode() for name, row in found.items()}
            for kind, found in _by_kind(disk).items()
        }
        return Loaded(disk.store, rows, disk.clock)

    async def open_segment(self, rules: str, checkpoint: Plain | None = None) -> int:
        """Begin a journal segment, from the rows as they stand where none is given; returns its number (1, 2, …)."""
        disk = self._held()
        number = _newest(disk) + 1
        _open(disk, number, rules, _as_they_stand(disk, rules, 0) if checkpoint is None else checkpoint)
        return number

    def commit(self, batch: Batch, clock: tuple[int, str, int]) -> asyncio.Future[int]:
        """Write the batch, or raise `NotStored` with nothing written; return the newest entry's number. All of it is
        done when this returns; what is awaited tells the outcome."""
        return at_once(lambda: self._commit(batch, clock))

    def _commit(self, batch: Batch, clock: tuple[int, str, int]) -> int:
        disk = self._held()
        if self.fail_next_commit:
            self.fail_next_commit = False
            raise NotStored("the disk is full (this store was told to fail)")
        try:
            ready = _prepare(disk, batch)
        except Exception as error:
            raise NotStored(f"{type(error).__name__}: {error}") from error
        _write(disk, batch, ready, clock)
        return disk.next_seq - 1

    async def seen(self, deliveries: Iterable[DeliveryId]) -> set[DeliveryId]:
        """Return those delivery ids that were committed before (in the last 8 days)."""
        disk = self._held()
        return {delivery for delivery in deliveries if delivery in disk.deliveries}

    async def quarantine(self, now: int, forge: str, delivery: str, body: bytes, error: str) -> None:
        """Keep what could not be handled."""
        disk = self._held()
        disk.quarantine[disk.next_aside] = (now, forge, delivery, bytes(body), error)
        disk.used += len(body)
        disk.next_aside += 1

    async def quarantined(self) -> int:
        """Count what is in quarantine."""
        return len(self._held().quarantine)

    async def set_aside(self, *, after: int = 0, limit: int = 100) -> list[SetAside]:
        """Read what is in quarantine, oldest first."""
        found = [
            SetAside(seq, at, forge, delivery, len(body), error)
            for seq, (at, forge, delivery, body, error) in self._held().quarantine.items()
            if seq > after
        ]
        return found[: max(limit, 0)]

    async def clear_quarantine(self, upto: int) -> int:
        """Forget what is in quarantine up to and including that number."""
        disk = self._held()
        kept = {seq: one for seq, one in disk.quarantine.items() if seq > upto}
        cleared = len(disk.quarantine) - len(kept)
        disk.used -= sum(len(one[3]) for seq, one in disk.quarantine.items() if seq not in kept)
        disk.quarantine = kept
        return cleared

    async def prune(self, now: int, keep: Keep) -> Pruned:
        """Do a bounded piece of tidying up: one segment a call, as a database does."""
        return prune(self._held(), now, keep)

    async def size(self) -> StoreSize:
        """Measure what the disk holds."""
        disk = self._held()
        oldest = next((entry.now for entry in disk.journal.values()), None)
        return StoreSize(disk.used, 0, None, oldest)

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
        found: list[JournalEntry] = []
        for seq in range(max(after + 1, next(iter(disk.journal), disk.next_seq)), disk.next_seq):
            if len(found) >= limit:
                break
            entry = disk.journal[seq]
            if not subject or subject in entry.subjects:
                found.append(
                    JournalEntry(seq, entry.segment, entry.now, _decode(entry.event), entry.commands)
                )
        return found

    async def segment(self, number: int | None = None) -> Segment | None:
        """Return a segment's beginning, the newest one's without a number."""
        segments = self._held().segments
        wanted = _newest(self.disk) if number is None else number
        if wanted <= 0 or wanted not in segments:
            return None
        rules, checkpoint, first = segments[wanted]
        return Segment(wanted, rules, _decode(checkpoint), first)

    async def subjects_like(self, text: str, limit: int = 10) -> list[str]:
        """Return subjects that contain the text (whatever the case), newest first."""
        disk, wanted = self._held(), _fold(text)
        found = [name for name in disk.subjects if wanted in _fold(name)]
        found.sort(key=lambda name: (-disk.subjects[name], name))
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


class _Ready(msgspec.Struct):
    """Everything that can be refused, done before the first change."""

    rows: dict[tuple[str, str], bytes | None]
    entries: list[_Entry]
    decisions: dict[int, bytes]


def _prepare(disk: MemoryDisk, batch: Batch) -> _Ready:
    segment = _newest(disk)
    final: dict[tuple[str, str], Body | None] = {}
    entries: list[_Entry] = []
    decisions: dict[int, bytes] = {}
    for step in batch.steps:
        entries.append(_Entry(segment, step.now, _encode(step.event), step.commands, step.subjects))
        for kind, name, row in step.changed:
            final[kind, name] = row
        for plain in step.decisions:
            if plain["id"] in disk.decisions or plain["id"] in decisions:
                raise ValueError(f"decision {plain['id']} is there already")
            decisions[plain["id"]] = _encode(plain)
    rows = {key: None if row is None else _encode(row) for key, row in final.items()}
    return _Ready(rows, entries, decisions)


def _write(disk: MemoryDisk, batch: Batch, ready: _Ready, clock: tuple[int, str, int]) -> None:
    rows, used = disk.rows, disk.used
    for key, row in ready.rows.items():
        used -= len(rows.get(key, b""))
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row
            used += len(row)
    seq, latest = disk.next_seq, clock[0]
    for entry in ready.entries:
        disk.journal[seq] = entry
        disk.subjects.update(dict.fromkeys(entry.subjects, seq))
        used += len(entry.event)
        latest = max(latest, entry.now)
        seq += 1
    for number, decision in ready.decisions.items():
        disk.decisions[number] = decision
        used += len(decision)
    _keep_deliveries(disk, batch.deliveries, latest)
    disk.next_seq, disk.used, disk.clock = seq, used, clock


def _keep_deliveries(disk: MemoryDisk, deliveries: Iterable[DeliveryId], now: int) -> None:
    kept = disk.deliveries
    for delivery in deliveries:
        kept.setdefault(delivery, now)
    while kept:  # in the order in which they came
        # Found at once in an ordered dict alone: a plain one passes by all that were deleted.
        oldest = next(iter(kept))
        if kept[oldest] >= now - DELIVERIES_KEPT:
            break
        del kept[oldest]


def _newest(disk: MemoryDisk) -> int:
    """Return the number of the open segment; they are opened in their order."""
    return next(reversed(disk.segments))


def _open(disk: MemoryDisk, number: int, rules: str, checkpoint: Plain) -> None:
    encoded = _encode(checkpoint)
    disk.segments[number] = (rules, encoded, disk.next_seq)
    disk.used += len(encoded)


def prune(disk: MemoryDisk, now: int, keep: Keep) -> Pruned:
    """Forget history past its time or size, one segment a call."""
    cutoff = now - keep.age
    numbers = sorted(disk.segments)
    if len(numbers) > 1:
        first, following = disk.segments[numbers[0]][2], disk.segments[numbers[1]][2]
        last = disk.journal[following - 1].now if following > first else None
        if last is None or last < cutoff or disk.used > keep.size:
            disk.used -= len(disk.segments.pop(numbers[0])[1])
            disk.used -= sum(len(disk.journal.pop(seq).event) for seq in range(first, following))
            return Pruned(segments=1, entries=following - first, more=True)
    floor = disk.segments[numbers[0]][2]
    if floor != disk.floor:
        disk.floor = floor
        for name in [name for name, newest in disk.subjects.items() if newest < floor]:
            del disk.subjects[name]
    oldest = next((entry.now for entry in disk.journal.values()), 0)
    decisions = 0
    for number in sorted(disk.decisions):
        at = _decode(disk.decisions[number]).get("at")
        if at is None or at >= oldest:
            break
        disk.used -= len(disk.decisions.pop(number))
        decisions += 1
    late = [seq for seq, one in disk.quarantine.items() if one[0] < cutoff]
    for seq in late:
        disk.used -= len(disk.quarantine.pop(seq)[3])
    return Pruned(decisions=decisions, quarantined=len(late), opened=_open_next(disk, now, keep))


def _open_next(disk: MemoryDisk, now: int, keep: Keep) -> int:
    number = _newest(disk)
    rules, _, first = disk.segments[number]
    entries = disk.next_seq - first
    if number == 0 or not entries or entries < max(keep.least_entries, len(disk.rows)):
        return 0
    if now - disk.journal[first].now < keep.segment_age and entries < keep.segment_entries:
        return 0
    at = disk.journal[disk.next_seq - 1].now - 1
    _open(disk, number + 1, rules, _as_they_stand(disk, rules, at))
    return number + 1


def _as_they_stand(disk: MemoryDisk, rules: str, at: int) -> Plain:
    """Return all rows as a segment's beginning, not parsed: they are JSON already."""
    rows = {
        kind: {name: msgspec.Raw(row) for name, row in found.items()}
        for kind, found in _by_kind(disk).items()
    }
    return {"rules": rules, "at": at, "rows": rows}


def _by_kind(disk: MemoryDisk) -> dict[str, dict[str, bytes]]:
    """Return all rows in the order of kind and id."""
    rows: dict[str, dict[str, bytes]] = {}
    for (kind, name), row in sorted(disk.rows.items()):
        rows.setdefault(kind, {})[name] = row
    return rows


def _fold(text: str) -> bytes:
    """Lower the ASCII letters only, as a database does."""
    return text.encode("utf-8", "replace").lower()
