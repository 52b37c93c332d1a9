"""What a listing of a container's processes says. Pure.

An engine on Linux is asked for pid, parent, kernel name and arguments; one on Windows gives image names and no
parents. Without a listing that shows the container's own first process nothing is proven.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ephemerd.adapters.kit.names import names_listener, names_worker
from ephemerd.domain.verdict import Listing
from ephemerd.domain.worker import is_listener, is_worker

PS_ARGUMENTS = "-eo pid,ppid,comm,args"
PODMAN_ARGUMENTS = "pid,ppid,comm,args"
COLUMNS = {"PID": "pid", "HPID": "pid", "PPID": "ppid", "COMMAND": "args", "CMD": "args", "COMM": "comm"}
WINDOWS_SYSTEM = frozenset(
    {
        *("aggregatorhost.exe", "cexecsvc.exe", "conhost.exe", "csrss.exe", "dllhost.exe", "fontdrvhost.exe"),
        *("lsass.exe", "msdtc.exe", "services.exe", "smss.exe", "svchost.exe", "system", "taskhostw.exe"),
        *("wininit.exe", "wmiprvse.exe", "cmd.exe", "sihost.exe", "system idle process"),
    }
)
"""What runs in every Windows container, and the shell that starts the listener."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a container. `parent` is 0 where the listing tells none; `argv` is empty likewise."""

    pid: int
    parent: int
    comm: str
    argv: tuple[str, ...] = ()
    zombie: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """One look. `listener` is the listener's pid, 0 where it is not there.

    others   processes that are neither the container's first one, nor listener or worker
    """

    listing: Listing
    listener: int = 0
    workers: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    detail: str = ""
    via: str = "engine"


def classify(processes: Collection[Process], first: int, *, whole: bool = True, via: str = "engine") -> Look:
    """Say what the processes of a container are.

    first   the pid of the container's first process, our own script above the listener
    whole   whether every process could be read
    """
    alive = [process for process in processes if not process.zombie]
    if not alive:
        return Look(Listing.EMPTY, detail="the process list is empty", via=via)
    if all(process.pid != first for process in alive):
        return Look(Listing.PARTIAL, detail="the container's first process is not in the list", via=via)
    listener, workers, others = 0, [], []
    for process in alive:
        if names_worker(process.comm, process.argv):
            workers.append(process.pid)
        elif process.pid == first:
            continue
        elif not listener and process.parent == first and names_listener(process.comm, process.argv):
            listener = process.pid
        else:
            others.append(process.pid)
    listing = Listing.COMPLETE if whole else Listing.PARTIAL
    return Look(listing, listener, tuple(workers), tuple(others), via=via)


def classify_images(names: Sequence[str], *, via: str = "engine") -> Look:
    """Say the same of a Windows container, of which only image names are known."""
    if not names:
        return Look(Listing.EMPTY, detail="the process list is empty", via=via)
    numbers = list(enumerate(names, start=1))
    workers = tuple(number for number, name in numbers if is_worker(name))
    listeners = [number for number, name in numbers if is_listener(name)]
    others = [
        number
        for number, name in numbers
        if number not in workers and number not in listeners and name.strip().lower() not in WINDOWS_SYSTEM
    ]
    others += listeners[1:]
    return Look(Listing.COMPLETE, listeners[0] if listeners else 0, workers, tuple(others), via=via)


def read_listing(titles: Sequence[str], rows: Sequence[Sequence[str]], first: int) -> Look:
    """Read the engine's listing, whichever of its two forms it has; what cannot be read proves nothing."""
    if not titles or not rows:
        return Look(Listing.EMPTY, detail="the engine lists no process")
    heads = [title.strip().upper() for title in titles]
    if heads[0] == "NAME" and "PID" in heads:
        return classify_images([row[0] for row in rows if row])
    processes, whole = [], True
    for row in rows:
        process = _process(heads, row)
        if process is None:
            whole = False
        else:
            processes.append(process)
    return classify(processes, first, whole=whole)


def _process(heads: Sequence[str], row: Sequence[str]) -> Process | None:
    """Read a row. A second COMMAND column holds the arguments, the first then the kernel name (procps)."""
    if len(row) != len(heads):
        return None
    cells: dict[str, str] = {}
    for head, cell in zip(heads, row, strict=True):
        name = COLUMNS.get(head, head.lower())
        if name == "args" and head == "COMMAND" and heads.count("COMMAND") > 1 and "comm" not in cells:
            name = "comm"
        cells[name] = cell
    try:
        pid, parent = int(cells["pid"]), int(cells["ppid"])
    except (KeyError, ValueError):
        return None
    arguments = tuple(cells.get("args", "").split())
    comm = cells.get("comm", "")
    if not comm and not arguments:
        return None
    return Process(pid, parent, comm, arguments, zombie="<defunct>" in cells.get("args", ""))
