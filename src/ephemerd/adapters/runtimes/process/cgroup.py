"""A control group of each runner's own, where one may be made: nothing of a job can leave it.

Optional in every step: without one, session, descent and marker are what there is. Version 2 in a place
that is ours to divide, else a version 1 hierarchy that we may write.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from functools import lru_cache
from pathlib import Path

from ephemerd.domain.ids import is_ours

PREFIX = "ephemerd-"
FIRST_CHOICE = ("pids", "name=systemd", "freezer")
DEEPEST = 8


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


@lru_cache(maxsize=2)
def candidates(mountinfo: str, membership: str) -> tuple[Path, ...]:
    """Return where this process stands in each usable hierarchy, the best first.

    mountinfo    text of `/proc/self/mountinfo`
    membership   text of `/proc/self/cgroup`
    """
    mine = {}
    for line in membership.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(",") if number != "0" else ("",):
            mine[controller] = path
    found: dict[str, Path] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        top, mount = _unescape(fields[3]), Path(_unescape(fields[4]))
        names = ("",) if kind[0] == "cgroup2" else kind[2].split(",")
        for name in names:
            own = mine.get(name, "")
            if own.startswith("/") and (own + "/").startswith(top.rstrip("/") + "/"):
                found.setdefault(name, mount / own[len(top.rstrip("/")) :].lstrip("/"))
    return tuple(found[name] for name in ("", *FIRST_CHOICE) if name in found)


def make(runner: str) -> Path | None:
    """Make a group for a runner below our own; None where that is not possible."""
    for place in _places():
        path = place / f"{PREFIX}{runner}"
        try:
            path.mkdir(mode=0o755, exist_ok=True)
        except OSError:
            continue
        # Made but not to be entered (a hierarchy without `cgroup.procs`, or one not delegated to us).
        if os.access(path / "cgroup.procs", os.W_OK):
            return path
        remove(path)
    return None


def _places() -> tuple[Path, ...]:
    if not sys.platform.startswith("linux"):
        return ()
    try:
        mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        membership = Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    return candidates(mountinfo, membership)


def pids(path: Path | None) -> frozenset[int]:
    """Return the pids in a group and below it; none where the group is gone."""
    found: set[int] = set()
    for folder in _folders(path):
        with contextlib.suppress(OSError, ValueError):
            found.update(int(line) for line in (folder / "cgroup.procs").read_text(encoding="ascii").split())
    return frozenset(found)


def kill(path: Path | None) -> None:
    """Kill everything in a group at once where the kernel can; the caller kills one by one as well."""
    if path is not None and path.name.startswith(PREFIX):
        with contextlib.suppress(OSError):
            descriptor = os.open(path / "cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, b"1")
            finally:
                os.close(descriptor)


def remove(path: Path | None) -> None:
    """Remove an empty group and what is below it; one that is not empty stays."""
    for folder in reversed(_folders(path)):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _folders(path: Path | None) -> list[Path]:
    """The group and those below it, parents first; only ever one that we named."""
    if path is None or not path.name.startswith(PREFIX):
        return []
    folders, level = [path], [path]
    for _ in range(DEEPEST):
        below: list[Path] = []
        for folder in level:
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                below += [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        folders += below
        level = below
    return folders


def existing(runner: str) -> Path | None:
    """Return the group that `make` made for a runner, None where there is none."""
    for place in _places():
        path = place / f"{PREFIX}{runner}"
        if path.is_dir():
            return path
    return None


def left(store: str) -> list[tuple[str, Path]]:
    """Return the runners of a store that have a group here, with it, whether or not anything is left of them."""
    found: list[tuple[str, Path]] = []
    for place in _places():
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                runner = entry.name.removeprefix(PREFIX)
                if entry.name != runner and is_ours(runner, store):
                    found.append((runner, Path(entry.path)))
    return found
