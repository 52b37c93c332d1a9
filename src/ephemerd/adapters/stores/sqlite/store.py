"""`ports.store.Store` on one SQLite file: coroutines over a writer's lane and a reader's lane."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from ephemerd.adapters.stores.sqlite import pruning, reading, words, writing
from ephemerd.adapters.stores.sqlite.database import Database, connect, explained, transaction
from ephemerd.adapters.stores.sqlite.known import MOST, Known
from ephemerd.adapters.stores.sqlite.lane import Lane, Late, Overloaded
from ephemerd.adapters.stores.sqlite.wire import to_text
from ephemerd.ports.errors import Broken, NotStored
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
R = TypeVar("R")
OPEN_DEADLINE = 120.0  # checking and migrating a large file takes its time
DEADLINE = 30.0
LEARNT_AT_ONCE = 1000
"""Ids of deliveries that are read at once: adding so many holds the loop up for a millisecond or two."""


class _Reader:
    """The connection for queries, used by the reader's thread alone (`interrupt` apart)."""

    def __init__(self) -> None:
        self.connection: sqlite3.Connection | None = None

    def open(self, path: Path) -> None:
        self.connection = connect(path, read_only=True)

    def interrupt(self) -> None:
        with suppress(sqlite3.Error):  # it may be closing just now
            if self.connection is not None:
                self.connection.interrupt()

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class SqliteStore:
    """The store in one file (and SQLite's two beside it, and a lock file), made with mode 0600.

    Writes and `load` pass through one thread, in their order: a `load` after a failed `commit` tells what
    is really there, also where a slow disk ended the commit after its deadline. Queries have a thread and
    a read-only connection of their own and see what is committed. Calls wait `deadline` seconds at most;
    beyond `NotStored` they raise `Broken`, whose text says what to do.
    """

    def __init__(self, path: Path, *, deadline: float = DEADLINE) -> None:
        self.path = path
        self._deadline = deadline
        self._database = Database(path)
        self._reading = _Reader()
        self._writer: Lane | None = None
        self._reader: Lane | None = None
        self._known = Known()
        self._learnt: Known | None = None
        self._learning: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open or create the file; raises `StoreHeld`, `NewerStore`, or `Broken` with what to do."""
        if self._writer is not None:
            raise RuntimeError("this store is open already")
        self._known = Known()
        database = self._database = Database(self.path)
        reading_ = self._reading = _Reader()
        self._writer = Lane("ephemerd-store-writer", database.interrupt)
        self._reader = Lane("ephemerd-store-reader", reading_.interrupt)
        try:
            await self._in(self._writer, database.open, OPEN_DEADLINE)
            await self._in(self._reader, lambda: reading_.open(database.path), OPEN_DEADLINE)
        except BaseException:
            self._stop_reader()
            self._stop_writer()
            raise
        self._begin_to_learn()

    async def load(self) -> Loaded:
        """Read all rows, after every write that was asked for before."""
        return await self._in(self._writer, lambda: reading.load(self._database.connection))

    async def open_segment(self, rules: str, checkpoint: Plain | None = None) -> int:
        """Begin a journal segment with the state it starts from, the rows as they stand where none is given;
        returns its number (1, 2, …)."""
        return await self._write(
            lambda: None if checkpoint is None else to_text(checkpoint),
            lambda connection, text: writing.open_segment(
                connection, rules, pruning.checkpoint(connection, rules, 0) if text is None else text
            ),
        )

    async def commit(self, batch: Batch, clock: tuple[int, str, int]) -> int:
        """Write the batch in one durable transaction, or raise `NotStored`; return the newest entry's number."""
        for delivery in batch.deliveries:
            self._known.add(delivery)
            if self._learnt is not None:
                self._learnt.add(delivery)
        return await self._write(
            lambda: writing.prepare(batch, clock[0]),
            lambda connection, ready: writing.write(connection, ready, clock),
        )

    async def seen(self, deliveries: Iterable[DeliveryId]) -> set[DeliveryId]:
        """Return those delivery ids that were committed before (in the last 8 days)."""
        asked = tuple([delivery for delivery in deliveries if delivery in self._known])
        if self._reader is not None:
            if self._known.added > MOST and self._learnt is None:
                self._begin_to_learn()
            if not asked:
                return set()
        return await self._read(lambda connection: reading.seen(connection, asked))

    async def quarantine(self, now: int, forge: str, delivery: str, body: bytes, error: str) -> None:
        """Keep the raw body of what could not be handled; the newest 1000 and 256 MiB are kept."""
        await self._write(
            lambda: None,
            lambda connection, _: writing.quarantine(connection, now, forge, delivery, body, error),
        )

    async def quarantined(self) -> int:
        """Count what is in quarantine."""
        return await self._read(reading.quarantined)

    async def set_aside(self, *, after: int = 0, limit: int = 100) -> list[SetAside]:
        """Read what is in quarantine, oldest first."""
        return await self._read(lambda connection: reading.set_aside(connection, after, limit))

    async def clear_quarantine(self, upto: int) -> int:
        """Forget what is in quarantine up to and including that number; returns how many that were."""
        return await self._write(
            lambda: None,
            lambda connection, _: (
                connection.execute("DELETE FROM quarantine WHERE seq <= ?", (upto,)).rowcount
            ),
        )

    async def prune(self, now: int, keep: Keep) -> Pruned:
        """Do a bounded piece of tidying up, and give back some free pages where there was nothing to forget."""
        done = await self._write(lambda: None, lambda connection, _: pruning.prune(connection, now, keep))
        if done.more:
            return done
        more = await self._in(self._writer, lambda: pruning.vacuum(self._database.connection))
        return replace(done, more=more)

    async def size(self) -> StoreSize:
        """Measure the file with its log, and what the disk has left."""
        return await self._read(lambda connection: pruning.size(connection, self.path))

    async def decisions(
        self, *, after: int = 0, limit: int = 100, runner: str = "", outcome: str = "", newest: bool = False
    ) -> list[Plain]:
        """Read decisions in the order of their ids; with `newest` downwards, and `after` goes downwards too."""
        return await self._read(
            lambda connection: reading.decisions(connection, after, limit, runner, outcome, newest)
        )

    async def journal(self, *, subject: str = "", after: int = 0, limit: int = 1000) -> list[JournalEntry]:
        """Read journal entries, those that concern a subject where one is named."""
        return await self._read(lambda connection: reading.journal(connection, subject, after, limit))

    async def segment(self, number: int | None = None) -> Segment | None:
        """Read a journal segment's beginning, the newest one's without a number; None where there is none."""
        return await self._read(lambda connection: reading.segment(connection, number))

    async def subjects_like(self, text: str, limit: int = 10) -> list[str]:
        """Return subjects that contain the text (whatever the case), newest first."""
        return await self._read(lambda connection: reading.subjects_like(connection, text, limit))

    async def close(self) -> None:
        """Finish what was begun, close the file and release the lock; nothing where it is not open."""
        learning, self._learning = self._learning, None
        if learning is not None and not learning.done():
            learning.cancel()
            await asyncio.wait({learning}, timeout=self._deadline)
        try:  # the reader first: the last one to close tidies up, and only the writer may
            reader_ended = await self._end(self._stop_reader())
        finally:
            writer = self._stop_writer()
        if not (await self._end(writer) and reader_ended):
            raise Broken(f"{self.path}: not closed within {self._deadline:g} s; the disk gives no answer")

    def _begin_to_learn(self) -> None:
        """Learn anew which deliveries the store may have, beside everything else."""
        self._learnt = Known()
        self._learning = asyncio.create_task(self._learn(self._learnt), name="learn deliveries")

    async def _learn(self, known: Known) -> None:
        """Read the ids of all deliveries, a few at a time; those of a commit that begins meanwhile are added by it."""
        try:
            await self._in(self._writer, lambda: None)  # the commits that began before have ended
            found = [DeliveryId("", "")]
            while found:
                found = await self._read(partial(reading.deliveries, after=found[-1], most=LEARNT_AT_ONCE))
                for delivery in found:
                    known.add(delivery)
        except Exception:  # whoever writes or asks is told; it is tried again with the next delivery
            self._known.added = MOST + 1
        else:
            known.added, known.whole, self._known = 0, True, known
        finally:
            self._learnt = None

    async def _end(self, lane: Lane | None) -> bool:
        return lane is None or await lane.ended(self._deadline)

    def _stop_reader(self) -> Lane | None:
        lane, self._reader = self._reader, None
        if lane is not None:
            lane.stop(self._reading.close)
        return lane

    def _stop_writer(self) -> Lane | None:
        lane, self._writer = self._writer, None
        if lane is not None:
            lane.stop(self._database.close)
        return lane

    async def _write(self, prepare: Callable[[], T], write: Callable[[sqlite3.Connection, T], R]) -> R:
        """Prepare, then write in one transaction, both in the writer's thread."""
        lane, database = self._writer, self._database
        if lane is None:
            raise RuntimeError("this store is not open")

        def work() -> R:
            ready = prepare()
            with transaction(database.connection, lane.wanted):
                return write(database.connection, ready)

        try:
            return await lane.do(work, self._deadline)
        except Late as error:
            raise NotStored(f"{self.path}: {error}; loading again tells what is there") from None
        except Exception as error:
            raise NotStored(words.explain(self.path, error)) from error

    async def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        def work() -> T:
            assert self._reading.connection is not None, "not open"
            return query(self._reading.connection)

        return await self._in(self._reader, work)

    async def _in(self, lane: Lane | None, work: Callable[[], T], deadline: float | None = None) -> T:
        """Do what writes nothing in a lane; whatever is wrong with the file or the disk becomes `Broken`."""
        if lane is None:
            raise RuntimeError("this store is not open")
        try:
            with explained(self.path):
                return await lane.do(work, self._deadline if deadline is None else deadline)
        except (Late, Overloaded) as error:
            raise Broken(f"{self.path}: {error}") from None
        except reading.BadRow as error:
            raise Broken(words.unreadable(self.path, str(error))) from error
