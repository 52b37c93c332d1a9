"""Which processes belong to one environment, and what each of them is.

A number (session, group) is believed only while the process that gave it is still there: its pid is not
free for another one before. Without it a process belongs by descent, by cgroup, or because its
environment names the runner. So nothing of somebody else's is ever taken for ours.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ephemerd.adapters.kit import names
from ephemerd.adapters.runtimes.process.identity import ProcessId, Reference
from ephemerd.adapters.runtimes.process.processes import (
    Process,
    Program,
    Snapshot,
    Table,
    Unreadable,
    Vanished,
)
from ephemerd.domain.verdict import Listing
from ephemerd.domain.worker import is_listener, is_worker


@dataclass(frozen=True, slots=True)
class Look:
    """One look at an environment's processes, the parent not among them.

    workers    live workers
    others     live processes that are neither listener nor worker
    forks      those of `others` that bear the listener's name: between fork and exec a worker does
    """

    listing: Listing
    listener: bool
    parent: bool
    workers: tuple[ProcessId, ...]
    others: tuple[ProcessId, ...]
    forks: tuple[ProcessId, ...]
    detail: str = ""

    @property
    def all(self) -> tuple[ProcessId, ...]:
        return (*self.workers, *self.others)


def nothing(detail: str) -> Look:
    """A look at what cannot be alive any more."""
    return Look(Listing.EMPTY, False, False, (), (), (), detail)


def belonging(
    machine: Table, snapshot: Snapshot, reference: Reference, in_cgroup: Collection[int]
) -> list[Process]:
    """Return the environment's processes in order of pid, parent and listener among them."""
    processes = snapshot.processes
    anchors = [
        found
        for identity in (reference.parent, reference.listener)
        if identity is not None and (found := processes.get(identity.pid)) and found.id == identity
    ]
    numbers = {anchor.pid for anchor in anchors}
    eldest = min((i.start for i in (reference.parent, reference.listener) if i is not None), default=None)
    ours = {anchor.pid for anchor in anchors}
    for process in processes.values():
        if process.pid in ours or process.pid in (0, 1, os.getpid()):
            continue
        if process.session in numbers or process.group in numbers or process.pid in in_cgroup:
            ours.add(process.pid)
    _add_descendants(processes.values(), ours)
    for process in processes.values():
        young = eldest is None or process.start >= eldest
        if process.pid in ours or process.exited or not young or process.pid in (0, 1, os.getpid()):
            continue
        if machine.marker(process) == reference.runner:
            ours.add(process.pid)
    _add_descendants(processes.values(), ours)
    return [processes[pid] for pid in sorted(ours)]


def _add_descendants(processes: Iterable[Process], ours: set[int]) -> None:
    children: dict[int, list[int]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process.pid)
    waiting = sorted(ours)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in ours and child != os.getpid():
                ours.add(child)
                waiting.append(child)


def names_worker(process: Process, program: Program) -> bool:
    """Say whether anything that a process is called by is the worker's name."""
    return names.names_worker(process.comm, program.argv, program.exe)


def look(machine: Table, reference: Reference, in_cgroup: Collection[int]) -> Look:
    """Look once; once more where a process went in between. Never raises."""
    try:
        return _look(machine, reference, in_cgroup)
    except Vanished:
        pass
    try:
        return _look(machine, reference, in_cgroup)
    except Vanished:
        # What goes so fast may have left children behind that no listing has shown.
        return Look(Listing.PARTIAL, True, True, (), (), (), "processes come and go")


def _look(machine: Table, reference: Reference, in_cgroup: Collection[int]) -> Look:
    try:
        snapshot = machine.snapshot()
        if not snapshot.processes:
            raise OSError("the process list is empty")
        found = belonging(machine, snapshot, reference, in_cgroup)
    except OSError as error:
        return Look(Listing.FAILED, False, False, (), (), (), str(error))
    workers, others, forks, unreadable = [], [], [], []
    alive = [process for process in found if not process.exited]
    for process in alive:
        if process.id in (reference.parent, reference.listener):
            continue
        try:
            program = machine.program(process)
        except Unreadable as error:
            # Its kernel name alone can say "worker"; it cannot say "no worker".
            if is_worker(process.comm):
                workers.append(process.id)
            else:
                unreadable.append(str(error))
                others.append(process.id)
            continue
        if names_worker(process, program):
            workers.append(process.id)
            continue
        others.append(process.id)
        if is_listener(process.comm) or (program.argv and is_listener(program.argv[0])):
            forks.append(process.id)
    complete = snapshot.complete and not unreadable
    runs = any(process.id != reference.parent for process in alive)
    listing = Listing.PARTIAL if not complete else Listing.COMPLETE if runs else Listing.EMPTY
    identities = {process.id for process in alive}
    return Look(
        listing,
        reference.listener in identities,
        reference.parent in identities,
        tuple(workers),
        tuple(others),
        tuple(forks),
        "; ".join(unreadable),
    )
