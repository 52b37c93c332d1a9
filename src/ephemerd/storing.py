"""A store's file without the daemon that serves it: checked, copied, its journal and quarantine read.

Must not know `testing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ephemerd.adapters.stores import sqlite
from ephemerd.adapters.stores.sqlite import SqliteStore, open_journal
from ephemerd.app import inspection
from ephemerd.config.findings import Code
from ephemerd.ports.errors import NewerStore, PortError, StoreHeld
from ephemerd.ports.store import JournalEntry, Segment, SetAside, Store, StoreSize

Journal = tuple[Segment, Iterator[JournalEntry]]


class StartError(Exception):
    """A daemon cannot start, or its store cannot be read. `code` is the exit code, `todo` what to do about it."""

    def __init__(self, code: int, what: str, todo: str) -> None:
        super().__init__(what)
        self.code = code
        self.todo = todo


def journal_of(path: Path, number: int | None = None) -> AbstractContextManager[Journal]:
    """Read a journal segment and its entries from a store's file, read-only; the newest without a number.

    Raises `StartError` (5) with what to do.
    """
    return _journal_of(path, number)


@contextmanager
def _journal_of(path: Path, number: int | None) -> Iterator[Journal]:
    try:
        with open_journal(path, number) as found:
            yield found
    except NewerStore as error:
        raise StartError(Code.ENVIRONMENT, str(error), "run the newer version") from error
    except PortError as error:
        raise StartError(Code.ENVIRONMENT, error.detail, "name another store or segment") from error


def open_store(path: Path) -> Store:
    """Make a store on a file; nothing is opened yet."""
    return SqliteStore(path)


@dataclass(frozen=True, slots=True)
class StoreReport:
    """What `store check` finds: the file, who it is, what it holds (rows by kind, records by table), and what is
    wrong. `set_aside` rows were put into quarantine first."""

    path: Path
    store: str
    version: int
    size: StoreSize
    rows: dict[str, int]
    records: dict[str, int]
    unreadable: int
    set_aside: int
    problems: tuple[str, ...]


def check_store(path: Path, *, set_aside: bool = False) -> StoreReport:
    """Check a store's file and the state in it. Raises `StartError` (5) where it cannot be opened at all."""
    with _store_errors():
        found = sqlite.survey(path)
        broken = inspection.unreadable(found.loaded)
        moved = 0
        if set_aside and broken:
            moved = sqlite.put_aside(path, broken)
            found = sqlite.survey(path)
            broken = inspection.unreadable(found.loaded)
    named = [f"row {kind} {key}: cannot be read: {why}" for kind, key, why in broken]
    return StoreReport(
        path=path,
        store=found.loaded.store,
        version=found.version,
        size=found.size,
        rows={kind: len(rows) for kind, rows in found.loaded.rows.items()},
        records=found.counts,
        unreadable=len(broken),
        set_aside=moved,
        problems=(*found.problems, *named, *inspection.problems(found.loaded)),
    )


def back_up_store(
    path: Path, target: Path, *, replace: bool, progress: Callable[[int, int], None] | None = None
) -> int:
    """Copy a store, also beside a running daemon; return the copy's bytes. Raises `StartError` (5)."""
    with _store_errors():
        return sqlite.backup(path, target, replace=replace, progress=progress)


def lines_of_store(path: Path) -> Iterator[dict[str, object]]:
    """Yield everything in a store as plain objects. Raises `StartError` (5)."""
    with _store_errors():
        yield from sqlite.lines(path)


def quarantine_of_store(path: Path, *, clear: bool) -> list[SetAside]:
    """Read what a store's file has in quarantine, and forget it where asked. Raises `StartError` (5)."""
    with _store_errors():
        found = sqlite.quarantine_of(path)
        if clear:
            sqlite.clear_quarantine_of(path)
        return found


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except StoreHeld as error:
        raise StartError(Code.ENVIRONMENT, str(error), "stop the daemon first") from error
    except NewerStore as error:
        raise StartError(Code.ENVIRONMENT, str(error), "run the newer version") from error
    except PortError as error:
        raise StartError(Code.ENVIRONMENT, error.detail, "do what it says, or name another file") from error
