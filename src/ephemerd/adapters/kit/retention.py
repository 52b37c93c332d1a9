"""How long logs of runners that are over are kept: by age, and by the bytes of all of them."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection
from pathlib import Path


def tidy(logs_dir: Path, living: Collection[str], *, age: float, size: int, now: float) -> None:
    """Remove the logs of runners that are over: those last written more than `age` seconds before `now`, then the
    oldest until all that is kept takes `size` bytes at most. What living runners write counts and stays."""
    found: dict[str, tuple[float, int]] = {}
    with contextlib.suppress(OSError), os.scandir(logs_dir) as entries:
        for entry in entries:
            path = Path(entry.path)
            if path.suffix in (".log", ".diag"):
                written, taken = _measured(path)
                before = found.get(path.stem, (0.0, 0))
                found[path.stem] = (max(written, before[0]), taken + before[1])
    total = sum(taken for _, taken in found.values())
    for name, (written, taken) in sorted(found.items(), key=lambda item: (item[1][0], item[0])):
        if name in living or (now - written <= age and total <= size):
            continue
        with contextlib.suppress(OSError):
            (logs_dir / f"{name}.log").unlink(missing_ok=True)
        shutil.rmtree(logs_dir / f"{name}.diag", ignore_errors=True)
        total -= taken


def _measured(path: Path) -> tuple[float, int]:
    """When a log or a folder of diagnostics was last written (seconds since 1970), and the bytes it holds."""
    files = [path]
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            files = [Path(entry.path) for entry in os.scandir(path)]
    written, taken = 0.0, 0
    for file in files:
        with contextlib.suppress(OSError):
            status = file.lstat()
            written, taken = max(written, status.st_mtime), taken + status.st_size
    return written, taken
