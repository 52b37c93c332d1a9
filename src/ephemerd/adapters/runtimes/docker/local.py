"""A container of this machine, read directly: its control group, its processes, its files.

Everything is tied to the container's full id, which its control group names: a pid that was given again is
another container's or nobody's. A job can put links where its files are; none is followed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal as signals
from pathlib import Path

from ephemerd.adapters.runtimes.docker.look import Look, Process, classify
from ephemerd.domain.verdict import Listing

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _read(path: str) -> bytes:
    """Return a short file of the kernel's; these are read hundreds of times a second, so without ceremony."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = b""
        while text := os.read(descriptor, 64 * 1024):
            found += text
        return found
    finally:
        os.close(descriptor)


def group_of(pid: int, container: str) -> Path | None:
    """Return the folder of the control group that the container's first process is in; None where the pid is
    not the container's, or this is not its machine."""
    try:
        told = _read(f"{PROC}/{pid}/cgroup").decode(errors="replace")
    except OSError:
        return None
    return _folder(told, container, GROUPS) if container in told else None


@functools.lru_cache(maxsize=1024)
def _folder(told: str, container: str, groups: Path) -> Path | None:
    """Find the folder of a group by what a process is told of its own; a container's group never moves."""
    found: Path | None = None
    for line in told.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if container not in path:
            continue
        place = None
        if number == "0" and not controllers:
            place = next(
                (top for top in (groups, groups / "unified") if (top / "cgroup.procs").exists()), None
            )
        elif "pids" in controllers.split(","):
            place = groups / "pids"
        if place is not None:
            # The group itself, not one that the container's own system made below it.
            parts = path.lstrip("/").split("/")
            end = next(index for index, part in enumerate(parts) if container in part) + 1
            folder = place.joinpath(*parts[:end])
            if (folder / "cgroup.procs").exists():
                found = folder if found is None or "pids" in controllers.split(",") else found
    return found


def pids_in(group: Path) -> list[int]:
    """Return the pids in a control group and all below it; raise `OSError` where they cannot be read."""
    found: list[int] = []
    for folder, below, _ in os.walk(group):
        below.sort()
        found += [int(line) for line in _read(f"{folder}/cgroup.procs").split()]
    return found


def look(pid: int, container: str) -> Look | None:
    """Look at the processes of a container; once more where one went in between. None where this is not its
    machine. Never raises."""
    group = group_of(pid, container)
    if group is None:
        return None
    seen: Look | None = None
    for _ in range(2):
        try:
            before = pids_in(group)
            read = [_process(each) for each in before]
            after = pids_in(group)
        except (OSError, ValueError) as error:
            return Look(Listing.FAILED, detail=str(error), via="control group")
        processes = [process for process in read if process is not None]
        whole = len(processes) == len(before) and set(after) <= set(before)
        seen = classify(processes, pid, whole=whole, via="control group")
        if whole:
            return seen
    return seen


def _process(pid: int) -> Process | None:
    """Read one process; None where it is gone."""
    try:
        status = _read(f"{PROC}/{pid}/stat")
        line = _read(f"{PROC}/{pid}/cmdline")
    except OSError:
        return None
    comm, _, rest = status.partition(b"(")[2].rpartition(b")")
    fields = rest.split()
    argv = tuple(part.decode(errors="replace") for part in line.rstrip(b"\0").split(b"\0") if part or line)
    return Process(pid, int(fields[1]), comm.decode(errors="replace"), argv, fields[0] in (b"Z", b"X"))


def interrupt(pid: int, container: str) -> bool:
    """Send the listener an interrupt if it is still this container's; return whether it was sent."""
    try:
        handle = os.pidfd_open(pid)
    except (OSError, AttributeError):
        return False
    try:
        # Looked at after it was opened: from here on the handle means this process and no later one.
        if group_of(pid, container) is None:
            return False
        signals.pidfd_send_signal(handle, signals.SIGINT)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def open_root(pid: int, container: str) -> int | None:
    """Open the container's root folder as its first process sees it; None where it is not to be had."""
    try:
        root = os.open(PROC / str(pid) / "root", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    if group_of(pid, container) is None:
        os.close(root)
        return None
    return root


def open_below(root: int, path: str) -> int | None:
    """Open a folder below an open one, step by step and through no link; None where there is none."""
    current = os.dup(root)
    for part in path.strip("/").split("/"):
        try:
            below = os.open(part, FOLDER, dir_fd=current) if part not in ("", ".", "..") else None
        except OSError:
            below = None
        os.close(current)
        if below is None:
            return None
        current = below
    return current


def close(*descriptors: int | None) -> None:
    """Close what is open."""
    for descriptor in descriptors:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)
