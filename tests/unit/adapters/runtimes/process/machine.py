"""A machine whose processes a test writes down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ephemerd.adapters.runtimes.process.identity import ProcessId, Reference
from ephemerd.adapters.runtimes.process.processes import (
    Handle,
    PollingHandle,
    Process,
    Program,
    Snapshot,
    Unreadable,
    Vanished,
    same,
)

PARENT, LISTENER = ProcessId(100, 1000), ProcessId(101, 1001)
REFERENCE = Reference("eph-s-b-1", "linux", "s", "boot", PARENT, LISTENER)


@dataclass
class FakeMachine:
    """`Machine` by tables. `programs` by pid; a pid in `unreadable` or `vanishing` answers with that."""

    processes: dict[int, Process] = field(default_factory=dict)
    programs: dict[int, Program] = field(default_factory=dict)
    markers: dict[int, str] = field(default_factory=dict)
    unreadable: set[int] = field(default_factory=set)
    vanishing: set[int] = field(default_factory=set)
    complete: bool = True
    broken: bool = False
    signals: list[tuple[ProcessId, int]] = field(default_factory=list)
    asked_markers: list[int] = field(default_factory=list)
    on_vanish: Callable[[int], object] | None = None

    def add(
        self,
        pid: int,
        comm: str,
        *,
        parent: int = 1,
        group: int | None = None,
        session: int | None = None,
        start: int | None = None,
        exited: bool = False,
        argv: tuple[str, ...] | None = None,
        exe: str = "",
        marker: str = "",
    ) -> Process:
        made = Process(
            pid,
            parent,
            pid if group is None else group,
            pid if session is None else session,
            900 + pid if start is None else start,
            comm,
            exited,
        )
        self.processes[pid] = made
        self.programs[pid] = Program((comm,) if argv is None else argv, exe)
        if marker:
            self.markers[pid] = marker
        return made

    def idle(self) -> FakeMachine:
        """Add what every listening runner has."""
        self.add(PARENT.pid, "python3", argv=("python3", "parent.py"), start=PARENT.start)
        self.add(LISTENER.pid, "Runner.Listener", parent=100, session=100, start=LISTENER.start)
        return self

    def boot(self) -> str:
        return "boot"

    def snapshot(self) -> Snapshot:
        if self.broken:
            raise PermissionError("no list")
        return Snapshot(dict(self.processes), self.complete)

    def find(self, pid: int) -> Process | None:
        return self.processes.get(pid)

    def program(self, process: Process) -> Program:
        if process.pid in self.unreadable:
            raise Unreadable(f"pid {process.pid}: Permission denied")
        if process.pid in self.vanishing:
            if self.on_vanish is not None:
                self.on_vanish(process.pid)
            raise Vanished
        return self.programs[process.pid]

    def marker(self, process: Process) -> str | None:
        self.asked_markers.append(process.pid)
        return self.markers.get(process.pid)

    def signal(self, target: ProcessId, number: int) -> bool:
        self.signals.append((target, number))
        return same(self, target) is not None

    def handle(self, target: ProcessId) -> Handle | None:
        return PollingHandle(self, target) if same(self, target) else None

    def reflink(self, source: int, target: int) -> bool:
        return False
