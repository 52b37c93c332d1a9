"""One daemon a store: a lock on a file beside the database, which the kernel drops when its holder ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ephemerd.ports.errors import StoreHeld


class Lock:
    """An exclusive lock. The file stays when it is released: removing it would let two holders in."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(database.name + ".lock")
        self._file: int | None = None

    def take(self) -> None:
        """Take the lock or raise `StoreHeld`, with the holder's pid where it is known."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            holder = _holder(file)
            os.close(file)
            raise StoreHeld(
                f"{self._database} is in use by another daemon{holder}. Stop that one, or give this one"
                " a store of its own."
            ) from None
        except BaseException:
            os.close(file)
            raise
        self._file = file

    def release(self) -> None:
        """Give the lock back; nothing where it is not held."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)


def _holder(file: int) -> str:
    pid = os.pread(file, 32, 0).strip()
    return f" (pid {int(pid)})" if pid.isdigit() else ""
