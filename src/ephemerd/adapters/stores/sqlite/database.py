"""The file itself: made with tight modes, locked, checked, migrated, and opened for writing or reading."""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog

from ephemerd.adapters.stores.sqlite import migrate, words
from ephemerd.adapters.stores.sqlite.copying import keep_before_upgrade
from ephemerd.adapters.stores.sqlite.lock import Lock
from ephemerd.ports.errors import Broken

log = structlog.get_logger(__name__)

ALPHABET = string.ascii_lowercase + string.digits
STORE_ID_LENGTH = 8
BUSY_SECONDS = 5.0  # a backup tool may hold the file for a moment
COMPILED = 256
"""Statements that a connection keeps compiled: a commit has a handful of kinds, each for 1 to 32 rows."""
CHECKED_MOST = 2 * 1024**3  # bytes; measured: 0.16 s for 100 MB, and a start should not take minutes
CONVERTED_MOST = 256 * 1024**2  # bytes; rewriting it takes a second or two
WAL_KEPT = 64 * 1024 * 1024  # bytes of write-ahead log that stay on disk after a burst


class Database:
    """The locked file and the connection that writes. Belongs to one thread, apart from `interrupt`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: Lock | None = None
        self._connection: sqlite3.Connection | None = None

    @property
    def connection(self) -> sqlite3.Connection:
        assert self._connection is not None, "not open"
        return self._connection

    def open(self) -> None:
        """Make what is missing, lock, check, migrate.

        Raises `StoreHeld`, `NewerStore`, or `Broken` with what to do; nothing is held then.
        """
        try:
            with explained(self.path):
                make_folder(self.path.parent)
                self.path = self.path.resolve()  # one lock also where a link leads to the file
                lock = Lock(self.path)
                lock.take()
                self._lock = lock
                make_file(self.path)
                self._connection = connect(self.path)
                prepare(self._connection, self.path)
        except BaseException:
            self.close()
            raise

    def interrupt(self) -> None:
        """Break off the statement that runs now, if any; from any thread."""
        with suppress(sqlite3.Error):  # it may be closing just now
            if self._connection is not None:
                self._connection.interrupt()

    def close(self) -> None:
        """Close and release; nothing where it is not open."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(sqlite3.Error):
                connection.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of the database and of the operating system into `Broken` with words about what to do."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise Broken(words.explain(path, error)) from error


@contextmanager
def transaction(connection: sqlite3.Connection, wanted: Callable[[], bool]) -> Iterator[None]:
    """All of the block or nothing. `wanted` is asked just before the commit: false takes all back."""
    if connection.in_transaction:  # an earlier roll-back failed together with the disk
        connection.rollback()
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        if not wanted():
            raise TimeoutError("given up before the commit")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.rollback()
        raise


def make_folder(folder: Path) -> None:
    """Make the folder and what is missing above it, for this user only."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)


def make_file(path: Path) -> None:
    """Make the file for this user only, and be sure that it can be written; the log files copy its mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a connection in autocommit mode: every transaction here is begun and ended by hand."""
    mode = "ro" if read_only else "rw"
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        cached_statements=COMPILED,
    )


def make_and_connect(path: Path) -> sqlite3.Connection:
    """Make the file for this user only where it is missing, and open it."""
    make_file(path)
    return connect(path)


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Check whose database it is, set how it is written, migrate it and give it an id."""
    known = migrate.migrations()
    version = migrate.check(connection, path, known)
    if version:
        _check_pages(connection, path)
    _give_space_back(connection, path)
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise Broken(words.unusable(path, "no write-ahead log here; is it a network file system?"))
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")  # macOS: a plain fsync leaves data in the drive's cache
    connection.execute("PRAGMA checkpoint_fullfsync = ON")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT}")
    if 0 < version < len(known):
        kept = keep_before_upgrade(connection, path, version, make_and_connect)
        log.warning("the store is migrated", store=str(path), was=version, becomes=len(known), copy=str(kept))
    migrate.apply(connection, version, known)
    name = "".join(secrets.choice(ALPHABET) for _ in range(STORE_ID_LENGTH))
    connection.execute("INSERT OR IGNORE INTO store (only, id) VALUES (1, ?)", (name,))


def _give_space_back(connection: sqlite3.Connection, path: Path) -> None:
    """Let the file shrink when history is forgotten. An older file is converted where that is quick."""
    if connection.execute("PRAGMA auto_vacuum").fetchone()[0]:
        return
    size = path.stat().st_size
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # takes hold in an empty file, or with VACUUM
    if 0 < size <= CONVERTED_MOST and shutil.disk_usage(path.parent).free > 3 * size:
        connection.execute("VACUUM")


def _check_pages(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file with broken pages now rather than in the middle of the work (not a very large one)."""
    if path.stat().st_size > CHECKED_MOST:
        return
    answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if answer != "ok":
        raise Broken(words.damaged(path, str(answer).splitlines()[-1]))
