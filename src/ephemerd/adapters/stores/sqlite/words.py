"""What went wrong with the file, in sentences that say what to do next."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

# Primary result codes; the extended code's lowest byte. https://sqlite.org/rescode.html
BUSY, READONLY, IOERR, CORRUPT, FULL, CANTOPEN, NOTADB = 5, 8, 10, 11, 13, 14, 26


def explain(path: Path, error: BaseException) -> str:
    """Return one or two sentences about an error of the database, the operating system or the data."""
    if isinstance(error, OSError):
        return unusable(path, error.strerror or str(error))
    if not isinstance(error, sqlite3.Error):
        return f"{path}: {type(error).__name__}: {error}"
    code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
    if code in (CORRUPT, NOTADB):
        return damaged(path, str(error))
    if code in (READONLY, CANTOPEN):
        return unusable(path, str(error))
    if code == FULL:
        return f"{path}: the disk is full. Free some space; what was not stored is fetched again."
    if code == IOERR:
        return f"{path}: the disk failed ({error}). Look for a full disk, a quota or a broken device."
    if code == BUSY:
        return f"{path}: another program keeps it locked ({error}). End that program."
    return f"{path}: {error}"


def damaged(path: Path, what: str) -> str:
    """Return what to do about a file whose content is broken."""
    return (
        f"{path} is damaged or no database ({what}). Stop the daemon, move {path.name} with the -wal and -shm files"
        " beside it away, and put a backup (`ephemerd store backup`) in its place; without one, save what can be"
        f" read: sqlite3 {path.name} .recover | sqlite3 repaired.db. With nothing in its place a new store begins,"
        " which does not know the runners of the old one."
    )


def missing(path: Path) -> str:
    """Return what to do where there is no file."""
    return f"there is no store {path}. Name the file of server.store."


def unreadable(path: Path, what: str) -> str:
    """Return what to do about a row or record whose text cannot be read while the file itself is sound."""
    return (
        f"{path} is damaged ({what}). Stop the daemon and run `ephemerd store check --set-aside`: rows that cannot"
        " be read go into quarantine, and what they stood for is found again; or restore a backup."
    )


def foreign(path: Path) -> str:
    """Return what to do about a database of another program."""
    return f"{path} is a database of another program. Choose another place for the store."


def unusable(path: Path, what: str) -> str:
    """Return what to do where the file cannot be made, opened or written."""
    return (
        f"{path} cannot be opened for writing as {_user()} ({what}). Give that user the folder and"
        " the file, or choose another place for the store."
    )


def _user() -> str:
    return f"user {os.geteuid()}"
