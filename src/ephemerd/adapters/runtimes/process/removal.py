"""Remove a folder that a job could fill as it liked.

Links are removed, never followed; what lies on another filesystem is left; folders without permissions
and trees of any depth are no obstacle.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

DEEPEST = 64
MAKING, REMOVING = ".making-", ".removing-"
"""What a folder is called before it is an environment, and from when on it is none any more: a daemon that dies in
between leaves a name that says what to do with it."""
OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(folder: Path, last: str = "") -> list[str]:
    """Remove a folder and everything in it; return what stayed, in words. `last` goes after the rest."""
    try:
        top = os.open(folder, OPEN)
    except FileNotFoundError:
        return []
    except OSError as error:
        return [f"{folder}: {error.strerror}"]
    try:
        sweep = _Sweep(top)
        sweep.empty(top, 0, keep=last)
        if not sweep.stayed:
            sweep.empty(top, 0)
    finally:
        os.close(top)
    if not sweep.stayed:
        try:
            folder.rmdir()
        except OSError as error:
            sweep.stayed.append(f"{folder}: {error.strerror}")
    return sweep.stayed


def making(folder: Path) -> Path:
    """Return where a runner's folder is made before it gets its own name."""
    return folder.with_name(MAKING + folder.name)


def put_aside(folder: Path) -> Path:
    """Rename a runner's folder: from here on it is no environment, however long its removal takes."""
    for number in range(1000):
        target = folder.with_name(f"{REMOVING}{folder.name}-{number}")
        if not target.exists():
            with contextlib.suppress(OSError):
                return folder.rename(target)
    return folder


def runner_of(name: str) -> str | None:
    """Return whose folder is being made or removed under a name; None where it is neither."""
    if name.startswith(MAKING):
        return name.removeprefix(MAKING)
    if name.startswith(REMOVING):
        return name.removeprefix(REMOVING).rpartition("-")[0]
    return None


class _Sweep:
    def __init__(self, top: int) -> None:
        self._top = top
        self._device = os.fstat(top).st_dev
        self._moved = 0
        self.stayed: list[str] = []

    def empty(self, folder: int, depth: int, keep: str = "") -> None:
        """Empty an open folder. What was moved up from too far below is met again by the next round."""
        while True:
            moved = self._moved
            for name in os.listdir(folder):
                if name != keep:
                    self._remove(folder, name, depth)
            if depth or moved == self._moved:
                return

    def _remove(self, folder: int, name: str, depth: int) -> None:
        try:
            status = os.lstat(name, dir_fd=folder)
            if not stat.S_ISDIR(status.st_mode):
                os.unlink(name, dir_fd=folder)
                return
            if status.st_dev != self._device:
                self.stayed.append(f"{name}: another filesystem is mounted there")
            elif depth >= DEEPEST:
                self._moved += 1
                os.rename(name, f".deep-{self._moved}", src_dir_fd=folder, dst_dir_fd=self._top)
            else:
                self._remove_folder(folder, name, depth)
        except FileNotFoundError:
            pass
        except OSError as error:
            self.stayed.append(f"{name}: {error.strerror}")

    def _remove_folder(self, folder: int, name: str, depth: int) -> None:
        try:
            below = os.open(name, OPEN, dir_fd=folder)
        except PermissionError:
            # Ours, but closed by its owner. Not as root, to whom nothing is closed: no link is followed.
            os.chmod(name, 0o700, dir_fd=folder)
            below = os.open(name, OPEN, dir_fd=folder)
        try:
            with contextlib.suppress(OSError):
                os.fchmod(below, 0o700)
            self.empty(below, depth + 1)
        finally:
            os.close(below)
        os.rmdir(name, dir_fd=folder)
