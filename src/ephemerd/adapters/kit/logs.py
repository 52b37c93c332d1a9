"""Reads a runner's logs: the listener's output, and its diagnostics where they are now, or were kept.

The diagnostics of a living runner lie in a folder that is the job's: only plain files that the folder's owner
owns are read, links are not followed.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from ephemerd.ports.errors import Gone
from ephemerd.ports.runtime import LogFile

OUTPUT = "output"
MOST_FILES = 40
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Place(Protocol):
    """Where a runner's logs are: its output, its diagnostics while it lives, those that were kept of it."""

    @property
    def log(self) -> Path: ...

    @property
    def diag(self) -> Path: ...

    @property
    def kept(self) -> Path: ...


def files(place: Place) -> list[LogFile]:
    """Return what there is, `output` first, then diagnostics, the newest first. Blocks for a moment."""
    found = []
    with contextlib.suppress(OSError):
        found.append(LogFile(OUTPUT, place.log.stat().st_size))
    with _diagnostics(place) as folder:
        if folder is not None:
            found += [LogFile(name, size) for _, name, size in _listed(folder)]
    return found


def read(place: Place, name: str, start: int, most: int) -> bytes:
    """Return up to `most` bytes from `start` on; raise `Gone` where there is no such log."""
    if name == OUTPUT:
        return _read(os.fspath(place.log), None, start, most)
    if not _is_name(name):
        raise Gone(f"there is no log {name[:80]!r}")
    with _diagnostics(place) as folder:
        if folder is None:
            raise Gone(f"there is no log {name!r} any more")
        return _read(name, folder, start, most)


def _is_name(name: str) -> bool:
    return name.endswith(".log") and "/" not in name and "\0" not in name and not name.startswith(".")


@contextlib.contextmanager
def _diagnostics(place: Place) -> Iterator[int | None]:
    """Open the folder of the diagnostics: the living runner's own, else what was kept of it; None without any."""
    descriptor = _open(place.diag.parent, place.diag.name)
    if descriptor is None:
        descriptor = _open(place.kept, "")
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open(folder: Path, below: str) -> int | None:
    try:
        top = os.open(folder, FOLDER)
    except OSError:
        return None
    if not below:
        return top
    try:
        return os.open(below, FOLDER, dir_fd=top)
    except OSError:
        return None
    finally:
        os.close(top)


def _listed(folder: int) -> list[tuple[int, str, int]]:
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _is_name(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime_ns, entry.name, status.st_size))
    return sorted(found, reverse=True)[:MOST_FILES]


def _read(name: str, folder: int | None, start: int, most: int) -> bytes:
    try:
        descriptor = os.open(name, FILE, dir_fd=folder)
    except OSError:
        raise Gone(f"there is no log {Path(name).name!r} any more") from None
    try:
        status = os.fstat(descriptor)
        owned = folder is None or status.st_uid == os.fstat(folder).st_uid
        if not stat.S_ISREG(status.st_mode) or not owned:
            raise Gone(f"{Path(name).name!r} is no log of the runner")
        return os.pread(descriptor, most, max(0, start))
    finally:
        os.close(descriptor)
