"""The files of one runner, followed and latched: what was once seen stays seen.

Job code of the same user can cut or forge these files (runner.md, section 6.1): a positive is certain
enough to keep a runner, a missing line proves nothing unless the files are whole. A file that shrank or
was exchanged is never whole again.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ephemerd.adapters.kit.signs import (
    detail_of,
    diag_sign,
    log_sign,
    may_become_sign,
    perf_sign,
    refused_version,
)
from ephemerd.domain.exits import REFUSED_VERSION
from ephemerd.domain.verdict import Sign

OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
CHUNK = 1024 * 1024
LINE_LIMIT = 8 * 1024
DIAG_FILES = 16
HISTORY = 1000
GRAIN = 1_000_000_000  # ns; coarser than any file time that matters here
SOFT_ORDER = (Sign.LISTENING, Sign.OFFERED, Sign.ACKNOWLEDGED, Sign.SKIPPED)


class ListenerFiles(Protocol):
    """Where the files of one runner are: output, folder with `Runner.perf`, folder of diagnostics."""

    @property
    def log(self) -> Path: ...

    @property
    def perf(self) -> Path: ...

    @property
    def diag(self) -> Path: ...


class Tail:
    """One growing file, read once: whole lines, in order, and whether it can be trusted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.exists = False
        self.shrunk = False
        self.behind = False
        self.failed = ""
        self._inode: tuple[int, int] | None = None
        self._size = 0
        self._offset = 0
        self._pending = b""
        self._overlong = False

    @property
    def beginning(self) -> str:
        """The last line as far as it is written; empty where the file ends with a whole one."""
        return self._pending.decode(errors="replace")

    @property
    def torn(self) -> bool:
        return bool(self._pending) or self._overlong

    def changed(self) -> bool:
        """Say cheaply whether there is something to read."""
        try:
            status = self.path.lstat()
        except OSError:
            return self.exists
        return (status.st_dev, status.st_ino) != self._inode or status.st_size != self._offset

    def read(self) -> list[str]:
        """Return the whole lines that are new, at most a chunk of them; never raises."""
        self.failed = ""
        try:
            descriptor = os.open(self.path, OPEN)
        except FileNotFoundError:
            self.shrunk |= self.exists
            return []
        except OSError as error:
            self.failed = error.strerror or "unreadable"
            return []
        try:
            return self._read(descriptor)
        except OSError as error:
            self.failed = error.strerror or "unreadable"
            return []
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int) -> list[str]:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            self.failed = "no plain file"
            return []
        inode = (status.st_dev, status.st_ino)
        if self.exists and (inode != self._inode or status.st_size < self._offset):
            self.shrunk = True
            self._offset, self._pending, self._overlong = 0, b"", False
        self.exists, self._inode = True, inode
        text = os.pread(descriptor, CHUNK, self._offset)
        self._offset += len(text)
        self.behind = self._offset < os.fstat(descriptor).st_size
        return self._lines(text)

    def _lines(self, text: bytes) -> list[str]:
        parts = (self._pending + text).split(b"\n")
        self._pending = parts.pop()
        if self._overlong and parts:
            parts.pop(0)
            self._overlong = False
        lines = [part[:LINE_LIMIT].decode(errors="replace").rstrip("\r") for part in parts]
        if len(self._pending) > LINE_LIMIT:
            # What a line says stands at its beginning: say it now, drop the rest when it comes.
            if not self._overlong:
                lines.append(self._pending[:LINE_LIMIT].decode(errors="replace"))
            self._pending, self._overlong = b"", True
        return lines


def in_order(told: list[tuple[Sign, str]]) -> list[tuple[Sign, str]]:
    """Bring what several files told at once into the order in which it happens.

    Soft signs come before hard ones and a worker after the last announcement; what one file tells keeps
    its order.
    """
    soft = [item for item in told if item[0] not in (Sign.ANNOUNCED, Sign.WORKER, Sign.ENDED)]
    soft.sort(key=lambda item: SOFT_ORDER.index(item[0]))
    spoken = [item for item in told if item[0] in (Sign.ANNOUNCED, Sign.ENDED)]
    at = max((i + 1 for i, item in enumerate(spoken) if item[0] is Sign.ANNOUNCED), default=0)
    workers = [item for item in told if item[0] is Sign.WORKER]
    return [*soft, *spoken[:at], *workers, *spoken[at:]]


class Evidence:
    """The log, performance file and diagnostics of one runner. Times are ms of the shell clock.

    offered_at     when the latest offer or acknowledgement was first seen
    announced_at   when the latest announcement was first seen
    ended_at       when the end of the latest announced job was first seen; None while it has not ended
    refused        the version of its application that the forge refuses; "" where it does not
    """

    def __init__(self, place: ListenerFiles) -> None:
        self._diag = place.diag
        self._log = Tail(place.log)
        self._perf = Tail(place.perf / "Runner.perf")
        self._diags: dict[str, Tail] = {}
        self._diags_made = 0
        self._current: list[Tail] = []
        self._lock = threading.Lock()
        self._session = False
        self._log_listening = False
        self._workers_written = 0
        self._workers_seen: set[object] = set()
        self.listening = False
        self.offered_at: int | None = None
        self.announced_at: int | None = None
        self.ended_at: int | None = None
        self.workers_told = 0
        self.refused = ""
        self.history: deque[tuple[Sign, str]] = deque(maxlen=HISTORY)

    @property
    def bound(self) -> bool:
        """Whether a worker was seen, so that nothing urgent is to be expected any more."""
        return self.workers_told > 0

    def exit_code(self, code: int | None) -> int | None:
        """Return what an exit code means: an older listener leaves with 1 where its version is refused."""
        return REFUSED_VERSION if self.refused and code == 1 else code

    def changed(self) -> bool:
        """Say cheaply whether a file has something new."""
        if self._log.changed() or self._perf.changed():
            return True
        return any(tail.changed() for tail in self._diag_tails())

    def refresh(self, now: int) -> list[tuple[Sign, str]]:
        """Read what is new in all files; return the signs in it. Never raises."""
        with self._lock:
            told: list[tuple[Sign, str]] = []
            # An offer is written to the performance file before anything else is written anywhere: what
            # is not there when it is read last has not happened.
            self._follow(self._log, log_sign, now, told)
            for tail in self._diag_tails():
                self._follow(tail, diag_sign, now, told)
            self._follow(self._perf, perf_sign, now, told)
            told = in_order(told)
            self.history.extend(told)
            return told

    def saw_worker(self, identity: object) -> list[tuple[Sign, str]]:
        """Note a worker of the process table; return the sign if no file had told of this one."""
        with self._lock:
            self._workers_seen.add(identity)
            told = self._count_workers(f"worker process {identity}")
            self.history.extend(told)
            return told

    def _diag_tails(self) -> list[Tail]:
        """The newest pages of the listener's diagnostics; listed anew only when the folder changed."""
        try:
            made = self._diag.lstat().st_mtime_ns
            if made == self._diags_made:
                return self._current
            with os.scandir(self._diag) as entries:
                names = sorted(
                    entry.name
                    for entry in entries
                    if entry.name.startswith("Runner_") and entry.name.endswith(".log")
                )
        except OSError:
            return []
        for name in names[-DIAG_FILES:]:
            if name not in self._diags and len(self._diags) < 4 * DIAG_FILES:
                self._diags[name] = Tail(self._diag / name)
        self._current = [self._diags[name] for name in names[-DIAG_FILES:] if name in self._diags]
        # A page made within the clock's grain of this listing would leave the time as it is: only a time
        # that has passed is believed to stand for what was listed.
        self._diags_made = made if time.time_ns() - made > GRAIN else 0
        return self._current

    def _follow(
        self, tail: Tail, sign_of: Callable[[str], Sign | None], now: int, told: list[tuple[Sign, str]]
    ) -> None:
        for line in tail.read():
            sign = sign_of(line)
            if tail is self._log and not self.refused:
                self.refused = refused_version(line)
            if sign is not None:
                told += self._note(sign, detail_of(line), now, written=tail is self._perf)

    def _note(self, sign: Sign, detail: str, now: int, *, written: bool) -> list[tuple[Sign, str]]:
        match sign:
            case Sign.LISTENING:
                self._session |= written
                self._log_listening |= not written
                first, self.listening = not self.listening, True
                return [(sign, detail)] if first else []
            case Sign.OFFERED | Sign.ACKNOWLEDGED:
                self.offered_at = now
            case Sign.ANNOUNCED:
                self.announced_at, self.ended_at = now, None
            case Sign.ENDED:
                if self.announced_at is None:
                    return []
                self.ended_at = now
            case Sign.WORKER:
                self._workers_written += 1
                return self._count_workers(detail)
            case Sign.SKIPPED:
                pass
        return [(sign, detail)]

    def _count_workers(self, detail: str) -> list[tuple[Sign, str]]:
        """File and process table tell of the same workers: one sign for each worker, not two."""
        if max(self._workers_written, len(self._workers_seen)) <= self.workers_told:
            return []
        self.workers_told += 1
        return [(Sign.WORKER, detail)]

    def faults(self) -> list[str]:
        """Say why the files prove nothing; empty where they are readable, whole and never shrank."""
        with self._lock:
            found = []
            for name, tail in (("log", self._log), ("performance file", self._perf)):
                if tail.failed:
                    found.append(f"the {name} cannot be read ({tail.failed})")
                elif tail.shrunk:
                    found.append(f"the {name} shrank or was exchanged")
                elif not tail.exists:
                    found.append(f"there is no {name} yet")
                elif tail.behind:
                    found.append(f"the {name} is longer than can be read at once")
            if self._perf.torn or (self._log.torn and may_become_sign(self._log.beginning)):
                found.append("a last line is not whole")
            if self._log_listening and not self._session:
                found.append("the performance file misses the session that the log shows")
            return found
