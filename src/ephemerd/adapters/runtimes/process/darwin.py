"""macOS: processes through psutil, exits through kqueue.

A signal goes to a bare pid here, so identity is compared immediately before. There are no control groups and no
subreaper: session, process group, descent and the marker in the environment are what a runner's processes are known
by, and orphans of a job are launchd's children.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil

from ephemerd.adapters.kit.boot import boot_session
from ephemerd.adapters.runtimes.process.identity import ProcessId
from ephemerd.adapters.runtimes.process.kqueue import KqueueHandle, Queue, watch_exit
from ephemerd.adapters.runtimes.process.options import MARKER
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

F_GETPATH = 50  # from <sys/fcntl.h>; the module has it on macOS alone
ATTRIBUTES = ["pid", "ppid", "name", "status"]


def clone_file(source: int, target: int) -> bool:
    """Replace the empty target by an APFS clone of the source.

    `clonefile` wants to make the target itself, so the clone is made beside it and moved over it; the
    descriptor of the target then is of no more use than to be closed.
    """
    try:
        names = [fcntl.fcntl(number, F_GETPATH, bytes(1024)).rstrip(b"\0") for number in (source, target)]
        clone = names[1] + b".clone"
        if ctypes.CDLL(None, use_errno=True).clonefile(names[0], clone, 0) != 0:
            return False
        Path(os.fsdecode(clone)).replace(os.fsdecode(names[1]))
    except (OSError, AttributeError):
        return False
    return True


def start_of(process: Any) -> float | None:
    """Return when a process was started, seconds since 1970, as the kernel noted it at that moment.

    psutil's `create_time()` is shifted as soon as the wall clock is set, and every running process would be
    another one from then on: a step of the clock would read as the end of all runners. The form behind it, on which
    psutil rests its own identity of a process, stays what it was.
    """
    try:
        noted: float | None = process._proc.create_time(monotonic=True)
    except (AttributeError, TypeError):  # a psutil that is made differently
        noted = process.create_time()
    return noted


class Darwin:
    """`Machine` for macOS. What it asks of the system are arguments, so that a test can be the system."""

    def __init__(
        self,
        *,
        listing: Callable[..., Iterable[Any]] = psutil.process_iter,
        process: Callable[[int], Any] = psutil.Process,
        group: Callable[[int], int] = os.getpgid,
        session: Callable[[int], int] = os.getsid,
        kill: Callable[[int, int], None] = os.kill,
        boot: Callable[[], str] = boot_session,
        watch: Callable[[int], Queue] = watch_exit,
        clone: Callable[[int, int], bool] = clone_file,
    ) -> None:
        self._listing = listing
        self._process = process
        self._group = group
        self._session = session
        self._kill = kill
        self._boot = boot
        self._watch = watch
        self._clone = clone
        self._booted = ""

    def boot(self) -> str:
        if not self._booted:
            try:
                self._booted = self._boot()
            except OSError:
                # A system that names none: the boot's second is nearly as good a name.
                self._booted = f"boot-{int(psutil.boot_time())}"
        return self._booted

    def _read(self, found: Any, info: dict[str, Any]) -> Process:
        pid = int(info["pid"])
        start = start_of(found)
        if start is None:
            raise Unreadable(f"pid {pid}: no start time")
        return Process(
            pid=pid,
            parent=info["ppid"] or 0,
            group=self._number(self._group, pid),
            session=self._number(self._session, pid),
            start=round(start * 1_000_000),
            comm=info["name"] or "",
            exited=info["status"] in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD),
        )

    @staticmethod
    def _number(ask: Callable[[int], int], pid: int) -> int:
        """A group or session; -1, which none has, where the system does not say."""
        try:
            return ask(pid)
        except OSError:
            return -1

    def snapshot(self) -> Snapshot:
        processes, complete = {}, True
        for found in self._listing(ATTRIBUTES):
            try:
                process = self._read(found, found.info)
            except psutil.NoSuchProcess:
                continue
            except (psutil.Error, Unreadable):
                complete = False
                continue
            processes[process.pid] = process
        return Snapshot(processes, complete)

    def find(self, pid: int) -> Process | None:
        try:
            found = self._process(pid)
            return self._read(found, found.as_dict(ATTRIBUTES))
        except (psutil.Error, Unreadable):
            return None

    def program(self, process: Process) -> Program:
        try:
            found = self._process(process.pid)
            argv = tuple(found.cmdline())
        except psutil.ZombieProcess:
            return Program((), "")
        except psutil.NoSuchProcess:
            raise Vanished from None
        except (psutil.AccessDenied, OSError) as error:
            raise Unreadable(f"pid {process.pid}: {type(error).__name__}") from None
        exe = ""
        with contextlib.suppress(psutil.Error, OSError):
            exe = found.exe()
        return Program(argv, exe)

    def marker(self, process: Process) -> str | None:
        try:
            value = self._process(process.pid).environ().get(MARKER)
        except (psutil.Error, OSError):
            return None
        return None if value is None else str(value)

    def signal(self, target: ProcessId, number: int) -> bool:
        if same(self, target) is None:
            return False
        try:
            self._kill(target.pid, number)
        except ProcessLookupError:
            return False
        return True

    def handle(self, target: ProcessId) -> Handle | None:
        try:
            queue = self._watch(target.pid)
        except ProcessLookupError:
            return None
        except OSError:
            return PollingHandle(self, target) if same(self, target) else None
        # Watched first and compared then: whom the queue watches cannot change any more.
        if same(self, target) is None:
            queue.close()
            return None
        return KqueueHandle(queue)

    def reflink(self, source: int, target: int) -> bool:
        return self._clone(source, target)
