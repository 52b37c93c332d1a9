"""The listener's output as the engine tells it, written to a file that outlives the container."""

from __future__ import annotations

import os
from pathlib import Path

MOST = 64 * 1024 * 1024
OPEN = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Output:
    """One runner's output. The engine tells it from its beginning each time; what is written already is left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._written: int | None = None
        self.attached = False

    def begin(self) -> None:
        """The engine begins to tell from the beginning; the file is made if there is none."""
        self._at = 0
        if self._written is None:
            self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            os.close(os.open(self._path, OPEN, 0o640))
            self._written = self._path.stat().st_size
        self.attached = True

    def take(self, text: bytes) -> bool:
        """Write what is new of it; return whether anything was."""
        assert self._written is not None, "begin first"
        known = max(min(self._written - self._at, len(text)), 0)
        self._at += len(text)
        fresh = text[known:][: max(MOST - self._written, 0)]
        if not fresh:
            return False
        file = os.open(self._path, OPEN, 0o640)
        try:
            os.write(file, fresh)
        finally:
            os.close(file)
        self._written += len(fresh)
        return True
