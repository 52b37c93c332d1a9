"""A copy of a store while it is used, and what is changed in one without a daemon."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from ephemerd.adapters.stores.sqlite import migrate, reading, words
from ephemerd.adapters.stores.sqlite.copying import Progress, copy_to
from ephemerd.adapters.stores.sqlite.database import Database, explained, make_and_connect, transaction
from ephemerd.adapters.stores.sqlite.offline import opened
from ephemerd.ports.errors import Broken
from ephemerd.ports.store import SetAside


def backup(path: Path, target: Path, *, replace: bool = False, progress: Progress | None = None) -> int:
    """Copy a store into one file, as it is at this moment, and check the copy; return its bytes.

    A daemon may work on meanwhile: the copy is one view of the file. It is written beside the target and
    renamed when it is whole, so that an older backup of that name stays until then. Raises `Broken` or
    `NewerStore` with what to do; nothing is left then.
    """
    if target.exists() and not replace:
        raise Broken(f"{target} exists already. Name another file, or replace it with --force.")
    if target.exists() and path.exists() and target.samefile(path):
        raise Broken(f"{target} is the store itself. Name another file.")
    with opened(path) as source:
        migrate.check(source, path, migrate.migrations())
        with explained(target):
            return copy_to(source, target, open_target=make_and_connect, progress=progress)


def put_aside(path: Path, rows: Iterable[tuple[str, str, str]]) -> int:
    """Move rows (kind, id, why) into quarantine, in a store without a daemon; return how many there were.

    Raises `StoreHeld` while a daemon has it, `Broken` or `NewerStore` where it cannot be opened.
    """
    if not path.is_file():
        raise Broken(words.missing(path))
    database, moved = Database(path), 0
    database.open()
    try:
        with explained(path), transaction(database.connection, lambda: True):
            for kind, key, why in rows:
                moved += _put_aside(database.connection, kind, key, why)
    finally:
        database.close()
    return moved


def _put_aside(connection: sqlite3.Connection, kind: str, key: str, why: str) -> int:
    connection.execute(
        "INSERT INTO quarantine (seq, at, forge, delivery, body, error)"
        " SELECT next_aside, coalesce(clock_now, 0), '', ?, CAST(data AS BLOB), ?"
        " FROM record, store WHERE record.kind = ? AND record.id = ?",
        (f"row {kind} {key}", why, kind, key),
    )
    connection.execute("UPDATE store SET next_aside = next_aside + 1")
    return connection.execute("DELETE FROM record WHERE kind = ? AND id = ?", (kind, key)).rowcount


def quarantine_of(path: Path) -> list[SetAside]:
    """Read what is in quarantine from a store's file; raises as `survey` does."""
    with opened(path) as connection:
        migrate.check(connection, path, migrate.migrations())
        return reading.set_aside(connection, 0, 2**31)


def clear_quarantine_of(path: Path) -> int:
    """Forget everything in quarantine, in a store without a daemon; raises as `put_aside` does."""
    if not path.is_file():
        raise Broken(words.missing(path))
    database = Database(path)
    database.open()
    try:
        with explained(path):
            return database.connection.execute("DELETE FROM quarantine").rowcount
    finally:
        database.close()
