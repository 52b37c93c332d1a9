"""Which images our runners used, and when: written beside the copies, so that it outlives the daemon."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

FILE = ".images.json"
GRAIN = 600.0
"""An image that was used within so many seconds is not written down again."""


class Notebook:
    """Notes uses. A file that cannot be read or written loses notes, which only keeps images longer."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._notes = self._read()

    def notes(self) -> dict[str, tuple[str, float]]:
        """Return name and last use (s since 1970) by image id."""
        return dict(self._notes)

    def used(self, image: str, name: str, now: float) -> None:
        """Note a use."""
        known = self._notes.get(image)
        if known is None or known[0] != name or now - known[1] >= GRAIN:
            self._notes[image] = (name, now)
            self._write()

    def forget(self, image: str) -> None:
        """An image is gone."""
        if self._notes.pop(image, None) is not None:
            self._write()

    def _read(self) -> dict[str, tuple[str, float]]:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            return {str(key): (str(note[0]), float(note[1])) for key, note in content.items()}
        except (OSError, ValueError, AttributeError, TypeError, IndexError, KeyError):
            return {}

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh = self._path.with_suffix(".new")
            fresh.write_text(json.dumps(self._notes), encoding="utf-8")
            fresh.replace(self._path)
