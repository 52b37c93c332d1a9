"""Linux: processes from /proc, exits and signals by pidfd where the kernel has them."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
from pathlib import Path

from ephemerd.adapters.kit.boot import boot_id
from ephemerd.adapters.runtimes.process.identity import ProcessId
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

PROC = Path("/proc")
FICLONE = 0x40049409
STAT_LIMIT, TEXT_LIMIT = 4096, 256 * 1024
GONE = (FileNotFoundError, ProcessLookupError)


def parse_stat(text: bytes) -> Process:
    """Read a `/proc/PID/stat` line. The name is in brackets and may itself hold brackets and blanks.

    A zombie whose threads go on (its first one ended before them) still executes. Raises `ValueError`.
    """
    head, bracket, rest = text.rpartition(b")")
    pid, opening, comm = head.partition(b"(")
    fields = rest.split()
    if not bracket or not opening or len(fields) < 20:
        raise ValueError("no stat line")
    return Process(
        pid=int(pid),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        start=int(fields[19]),
        comm=comm.decode(errors="replace"),
        exited=fields[0] in (b"Z", b"X", b"x") and int(fields[17]) <= 1,
    )


def split_zeros(text: bytes) -> tuple[str, ...]:
    """Split a cmdline or environ file."""
    return tuple(os.fsdecode(part) for part in text.removesuffix(b"\0").split(b"\0")) if text else ()


def read(path: str, limit: int) -> bytes:
    """Read at most `limit` bytes of a small file in /proc."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts, left = [], limit
        while left > 0 and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


class Linux:
    """`Machine` for Linux; `proc` is elsewhere only in tests."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = str(proc)
        self._booted = ""

    def boot(self) -> str:
        if not self._booted:
            self._booted = boot_id()
        return self._booted

    def snapshot(self) -> Snapshot:
        processes, complete = {}, True
        with os.scandir(self._proc) as entries:
            names = [entry.name for entry in entries if entry.name.isdigit()]
        for name in names:
            try:
                process = parse_stat(read(f"{self._proc}/{name}/stat", STAT_LIMIT))
            except GONE:
                continue
            except (OSError, ValueError):
                complete = complete and not self._may_be_ours(name)
                continue
            processes[process.pid] = process
        return Snapshot(processes, complete)

    def _may_be_ours(self, name: str) -> bool:
        """Where the system hides other users' processes from an ordinary daemon, none of them is ours."""
        try:
            return os.geteuid() in (0, Path(f"{self._proc}/{name}").stat().st_uid)
        except OSError:
            return False

    def find(self, pid: int) -> Process | None:
        try:
            return parse_stat(read(f"{self._proc}/{pid}/stat", STAT_LIMIT))
        except (OSError, ValueError):
            return None

    def program(self, process: Process) -> Program:
        try:
            argv = split_zeros(read(f"{self._proc}/{process.pid}/cmdline", TEXT_LIMIT))
        except GONE:
            raise Vanished from None
        except OSError as error:
            raise Unreadable(f"pid {process.pid}: {error.strerror}") from None
        exe = ""
        with contextlib.suppress(OSError):  # another user's link is not ours to read; argv is enough
            exe = str(Path(f"{self._proc}/{process.pid}/exe").readlink())
        return Program(argv, exe)

    def marker(self, process: Process) -> str | None:
        try:
            text = read(f"{self._proc}/{process.pid}/environ", TEXT_LIMIT)
        except OSError:
            return None
        wanted = f"{MARKER}=".encode()
        for part in text.split(b"\0"):
            if part.startswith(wanted):
                return part.removeprefix(wanted).decode(errors="replace")
        return None

    def signal(self, target: ProcessId, number: int) -> bool:
        try:
            descriptor = os.pidfd_open(target.pid)
        except ProcessLookupError:
            return False
        except OSError:
            return self._signal_bare(target, number)
        try:
            # Taken hold of first and compared then: what the descriptor holds cannot change any more.
            if same(self, target) is None:
                return False
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def _signal_bare(self, target: ProcessId, number: int) -> bool:
        """For kernels and sandboxes without pidfd: compared immediately before."""
        if same(self, target) is None:
            return False
        try:
            os.kill(target.pid, number)
        except ProcessLookupError:
            return False
        return True

    def handle(self, target: ProcessId) -> Handle | None:
        try:
            descriptor = os.pidfd_open(target.pid)
        except ProcessLookupError:
            return None
        except OSError:
            return PollingHandle(self, target) if same(self, target) else None
        if same(self, target) is None:
            os.close(descriptor)
            return None
        return PidfdHandle(descriptor)

    def reflink(self, source: int, target: int) -> bool:
        try:
            fcntl.ioctl(target, FICLONE, source)
        except OSError:
            return False
        return True


class PidfdHandle:
    """A hold by pidfd: the kernel says when the process exits, nothing is polled."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def wait(self, limit: float) -> bool:
        loop = asyncio.get_running_loop()
        exited: asyncio.Future[None] = loop.create_future()

        def told() -> None:
            if not exited.done():
                exited.set_result(None)

        loop.add_reader(self._descriptor, told)
        try:
            await asyncio.wait((exited,), timeout=max(limit, 0.0))
        finally:
            loop.remove_reader(self._descriptor)
        return exited.done()

    def close(self) -> None:
        os.close(self._descriptor)
