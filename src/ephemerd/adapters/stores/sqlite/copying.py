"""A whole copy of an open database in one file: beside the target first, checked, flushed, then renamed."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from ephemerd.adapters.kit.disk import sync
from ephemerd.ports.errors import Broken

PAGES = 1024
ROOM = 1.1
"""How much room a copy has to find, in sizes of the database."""
Progress = Callable[[int, int], None]
"""Is told pages done and pages in all."""


def copy_to(
    source: sqlite3.Connection,
    target: Path,
    *,
    open_target: Callable[[Path], sqlite3.Connection],
    progress: Progress | None = None,
) -> int:
    """Copy the database as it is at this moment and return the copy's bytes; nothing is left where it fails.

    A writer may work on meanwhile: the copy is one view of the file. An older file of that name stays until the
    copy is whole. `open_target` makes and opens a file. Raises `Broken` for a damaged copy, and what sqlite or
    the system raise.
    """
    beside = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        _copy(source, beside, open_target, progress)
        sync(beside)
        beside.replace(target)
        sync(target.parent)
        return target.stat().st_size
    finally:
        for file in (beside, Path(f"{beside}-journal"), Path(f"{beside}-wal"), Path(f"{beside}-shm")):
            with suppress(OSError):
                file.unlink(missing_ok=True)


def before_upgrade(path: Path, version: int) -> Path:
    """Return where the copy of a store lies that was made before it was brought from `version` to a newer one."""
    return path.with_name(f"{path.name}.v{version}.backup")


def keep_before_upgrade(
    source: sqlite3.Connection, path: Path, version: int, open_target: Callable[[Path], sqlite3.Connection]
) -> Path:
    """Copy a store before it is migrated; raise `Broken`, so that nothing is migrated, where there is no room."""
    target, size = before_upgrade(path, version), path.stat().st_size
    free = shutil.disk_usage(path.parent).free
    if free < size * ROOM:
        raise Broken(
            f"{path} is of an older version, and there is no room for the copy that is made before it is migrated:"
            f" {size} bytes are needed in {path.parent}, {free} are free. Free some space, then start again."
        )
    copy_to(source, target, open_target=open_target)
    return target


def _copy(
    source: sqlite3.Connection,
    target: Path,
    open_target: Callable[[Path], sqlite3.Connection],
    progress: Progress | None,
) -> None:
    def told(_: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress(total - remaining, total)

    with closing(open_target(target)) as copy:
        source.backup(copy, pages=PAGES, progress=told)
        copy.execute("PRAGMA journal_mode = DELETE").fetchone()  # one file, whole without a log beside it
        answer = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
    if answer != "ok":
        what = " ".join(str(answer).split())
        raise Broken(f"the copy is damaged ({what}): `ephemerd store check` says more about the store.")
