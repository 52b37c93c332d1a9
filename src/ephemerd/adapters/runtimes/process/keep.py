"""What stays of a runner: its diagnostics beside its log, bounded in size and number."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from ephemerd.adapters.kit.retention import tidy
from ephemerd.adapters.runtimes.process.identity import Place

__all__ = ["keep_diagnostics", "prune", "tidy"]

PER_FILE = 4 * 1024 * 1024
PER_RUNNER = 16 * 1024 * 1024
MOST_FILES = 40
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def keep_diagnostics(place: Place) -> None:
    """Copy the newest diagnostic logs, the end of each, beside the listener's output.

    The folder is the job's: only plain files that its owner owns are read, links are not followed.
    """
    try:
        root = os.open(place.root, FOLDER)
    except OSError:
        return
    with _closing(root):
        owner = os.fstat(root).st_uid
        try:
            diag = os.open("_diag", FOLDER, dir_fd=root)
        except OSError:
            return
        with _closing(diag):
            _copy_newest(diag, owner, place.kept)


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)


def _copy_newest(diag: int, owner: int, target: Path) -> None:
    found: list[tuple[int, str]] = []
    with os.scandir(diag) as entries:
        for entry in entries:
            if entry.name.endswith(".log") and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    found.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.name))
    left = PER_RUNNER
    for _, name in sorted(found, reverse=True)[:MOST_FILES]:
        text = _end_of(diag, name, owner, min(PER_FILE, left))
        if text:
            target.mkdir(mode=0o750, exist_ok=True)
            (target / name).write_bytes(text)
            left -= len(text)


def _end_of(folder: int, name: str, owner: int, limit: int) -> bytes:
    try:
        descriptor = os.open(name, FILE, dir_fd=folder)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != owner or limit <= 0:
            return b""
        file.seek(max(0, status.st_size - limit))
        return file.read(limit)


def prune(logs_dir: Path, keep: int, living: Collection[str]) -> None:
    """Remove the oldest runners' logs beyond the newest `keep`, never those of living runners."""
    found: list[tuple[int, Path]] = []
    with contextlib.suppress(OSError), os.scandir(logs_dir) as entries:
        for entry in entries:
            path = Path(entry.path)
            if path.suffix == ".log" and path.stem not in living:
                with contextlib.suppress(OSError):
                    found.append((entry.stat(follow_symlinks=False).st_mtime_ns, path))
    for _, path in sorted(found, reverse=True)[max(keep, 0) :]:
        with contextlib.suppress(OSError):
            path.unlink()
        shutil.rmtree(path.with_suffix(".diag"), ignore_errors=True)
