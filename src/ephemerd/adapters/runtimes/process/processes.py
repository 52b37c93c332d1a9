"""What a machine says of its processes, in one form for every system."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ephemerd.adapters.runtimes.process.identity import ProcessId

# Until a handle without a kernel object looks again: often at first, then rarely.
FIRST_LOOK, LAST_LOOK = 0.02, 1.0


@dataclass(frozen=True, slots=True)
class Process:
    """One process as a listing shows it.

    exited   it executes nothing any more (a zombie that waits to be reaped)
    """

    pid: int
    parent: int
    group: int
    session: int
    start: int
    comm: str
    exited: bool

    @property
    def id(self) -> ProcessId:
        return ProcessId(self.pid, self.start)


@dataclass(frozen=True, slots=True)
class Program:
    """What a process runs. Either part is empty where it does not say."""

    argv: tuple[str, ...]
    exe: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All processes by pid; not `complete` where some could not be read although they are there."""

    processes: Mapping[int, Process]
    complete: bool


class Unreadable(Exception):
    """A process is there, but the system does not tell what was asked."""


class Vanished(Exception):
    """The process went while it was being looked at."""


class Handle(Protocol):
    """A hold on one process, which a later one with the same pid never satisfies."""

    async def wait(self, limit: float) -> bool:
        """Wait until the process has exited, at most `limit` seconds; return whether it has."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


class Table(Protocol):
    """What a look at an environment needs of a process table."""

    def boot(self) -> str:
        """Return what names this boot, the same until the machine is started anew."""
        ...

    def snapshot(self) -> Snapshot:
        """List all processes; raise `OSError` where that is impossible."""
        ...

    def program(self, process: Process) -> Program:
        """Return what a process runs; raise `Unreadable` or `Vanished`."""
        ...

    def marker(self, process: Process) -> str | None:
        """Return the runner that its environment names; None where it names none or cannot be read."""
        ...


class Machine(Table, Protocol):
    """One operating system's process table. Every call is quick and none waits for a process."""

    def find(self, pid: int) -> Process | None:
        """Return one process, None where there is none."""
        ...

    def signal(self, target: ProcessId, number: int) -> bool:
        """Signal exactly this process; return false where it is no more (or only a zombie)."""
        ...

    def handle(self, target: ProcessId) -> Handle | None:
        """Take hold of a process; None where it is no more (or only a zombie)."""
        ...

    def reflink(self, source: int, target: int) -> bool:
        """Let an empty file share the blocks of another (open descriptors); false where that cannot be."""
        ...


class PollingHandle:
    """A handle for systems that have no object for it: looks at pid and start time again and again."""

    def __init__(self, machine: Machine, target: ProcessId) -> None:
        self._machine = machine
        self._target = target
        self._interval = FIRST_LOOK

    def _gone(self) -> bool:
        found = self._machine.find(self._target.pid)
        return found is None or found.id != self._target or found.exited

    async def wait(self, limit: float) -> bool:
        loop = asyncio.get_running_loop()
        end = loop.time() + limit
        while not self._gone():
            left = end - loop.time()
            if left <= 0:
                return False
            await asyncio.sleep(min(self._interval, left))
            self._interval = min(self._interval * 1.5, LAST_LOOK)
        return True

    def close(self) -> None:
        """Nothing is held."""


class Still:
    """A machine looked at for many environments at once, in several threads: one listing serves them all.

    Whatever was started before the first look is in the listing. What goes while it is looked at makes it list anew.

    before_listing   called once, just before the first listing
    """

    def __init__(self, machine: Machine, before_listing: Callable[[], None] | None = None) -> None:
        self._machine = machine
        self._before = before_listing
        self._lock = threading.Lock()
        self._listed: Snapshot | None = None
        self._markers: dict[ProcessId, str | None] = {}

    def boot(self) -> str:
        return self._machine.boot()

    def snapshot(self) -> Snapshot:
        with self._lock:
            if self._listed is None:
                if self._before is not None:
                    self._before()
                    self._before = None
                self._listed = self._machine.snapshot()
            return self._listed

    def program(self, process: Process) -> Program:
        try:
            return self._machine.program(process)
        except Vanished:
            with self._lock:
                self._listed = None
            raise

    def marker(self, process: Process) -> str | None:
        if process.id not in self._markers:
            self._markers[process.id] = self._machine.marker(process)
        return self._markers[process.id]


class Looks:
    """Lets looks that are asked for while another one lists the processes share the next listing.

    Every look is at a listing that was begun after it was asked for.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._next = self._fresh()

    def join(self) -> Table:
        """Return the table of the next listing; several at once list one after the other."""
        with self._lock:
            joined = self._next
        with self._turn, contextlib.suppress(OSError):  # whoever looks meets it again, and says so
            joined.snapshot()
        return joined

    def _fresh(self) -> Still:
        return Still(self._machine, self._begin)

    def _begin(self) -> None:
        with self._lock:
            self._next = self._fresh()


def same(machine: Machine, target: ProcessId) -> Process | None:
    """Return the process if it is still the one that was meant and still executes, else None."""
    found = machine.find(target.pid)
    return found if found is not None and found.id == target and not found.exited else None


def this_machine() -> Machine:
    """Return the process table of the system that this runs on."""
    if sys.platform == "darwin":
        from ephemerd.adapters.runtimes.process.darwin import Darwin

        return Darwin()
    from ephemerd.adapters.runtimes.process.linux import Linux

    return Linux()
