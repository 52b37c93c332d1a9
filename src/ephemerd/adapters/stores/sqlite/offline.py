"""A store's journal, read from its file without the daemon: read-only, without the lock, nothing migrated.

A daemon may write to the file meanwhile; what was committed when a segment is read is what is seen.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ephemerd.adapters.stores.sqlite import migrate, reading, words
from ephemerd.adapters.stores.sqlite.database import connect, explained
from ephemerd.ports.errors import Broken
from ephemerd.ports.store import JournalEntry, Segment

PAGE = 1000


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a store's file read-only, with one view of it for all that is read; `Broken` with what to do where
    it cannot be."""
    if not path.is_file():
        raise Broken(words.missing(path))
    with explained(path), closing(connect(path.resolve(), read_only=True)) as connection:
        if not migrate.check(connection, path, migrate.migrations()):
            raise Broken(words.foreign(path))
        connection.execute("BEGIN")
        try:
            yield connection
        except reading.BadRow as error:
            raise Broken(words.unreadable(path, str(error))) from error
        finally:
            connection.rollback()


@contextmanager
def open_journal(path: Path, number: int | None = None) -> Iterator[tuple[Segment, Iterator[JournalEntry]]]:
    """Read a segment and then its entries in their order; the newest segment without a number.

    Raises `Broken` (no such file, segment, or a damaged one) or `NewerStore`, with what to do.
    """
    with opened(path) as connection:
        segment = reading.segment(connection, number)
        if segment is None:
            raise Broken(f"{path} has no segment {'at all' if number is None else number}.")

        def entries() -> Iterator[JournalEntry]:
            after = segment.first_seq - 1
            while page := reading.journal(connection, "", after, PAGE):
                for entry in page:
                    if entry.segment != segment.number:
                        return
                    yield entry
                after = page[-1].seq

        yield segment, entries()
