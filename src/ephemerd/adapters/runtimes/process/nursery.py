"""The daemon's side of the nursery: the process that runners' parents are forked from (`parent`)."""

from __future__ import annotations

import contextlib
import marshal
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ephemerd.adapters.runtimes.process.options import DEFAULT_PATH
from ephemerd.ports.errors import Broken

PARENT = Path(__file__).with_name("parent.py")
ROOM = "(waits for runners to start)".ljust(512)
"""An argument that leaves room for the state folder of a runner, by which people find its parent."""
LEAVES = 1.0
"""Seconds that the process may take to end, by itself and once more when it was killed."""


class Line:
    """What is said to one parent, and its answer. Blocks until `end` at most, then raises `TimeoutError`."""

    def __init__(self, stream: socket.socket, end: float) -> None:
        self._stream = stream
        self._end = end

    def say(self, words: dict[str, Any]) -> None:
        """Tell it something; that it is gone shows in its answer."""
        self._stream.settimeout(_left(self._end))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._stream.sendall(marshal.dumps(words))

    def answer(self) -> Any:
        """Return what it answers; raise `EOFError` where it went without an answer."""
        parts = []
        with contextlib.suppress(ConnectionResetError):
            while True:
                self._stream.settimeout(_left(self._end))
                part = self._stream.recv(64 * 1024)
                if not part:
                    break
                parts.append(part)
        return marshal.loads(b"".join(parts))  # noqa: S302 - from our own script, through our own stream


class Nursery:
    """Has parents made. The process is started by the first order, and anew where it is gone. Belongs to no thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._wire: socket.socket | None = None
        self._closed = False

    @contextlib.contextmanager
    def parent(self, group: Path | None, end: float) -> Iterator[Line]:
        """Have a parent made, in its control group where it can be, and give the line to it.

        Everything has to be over before `end` (`time.monotonic()`).

        Raises `OSError`, or `Broken`, where no process can be made.
        """
        ours, theirs = socket.socketpair()
        with ours:
            with theirs, _opened(group) as folder:
                self._send([theirs.fileno(), *folder], end)
            yield Line(ours, end)

    def renew(self) -> None:
        """End the process, so that the next order gets a new one; what was made stays."""
        with self._lock:
            self._end(kill=True)

    def close(self) -> None:
        """Let the process end by itself: what was ordered is made. Blocks for a moment."""
        with self._lock:
            self._closed = True
            self._end(kill=False)

    def _send(self, descriptors: list[int], end: float) -> None:
        with self._lock:
            if self._wire is not None:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self._pass(self._wire, descriptors, end)
                    return
            if self._closed:
                raise Broken("no runner is started any more: the daemon ends")
            self._end(kill=True)
            self._pass(self._begin(), descriptors, end)

    @staticmethod
    def _pass(wire: socket.socket, descriptors: list[int], end: float) -> None:
        wire.settimeout(_left(end))
        socket.send_fds(wire, [b"o"], descriptors)

    def _begin(self) -> socket.socket:
        if not sys.executable:
            raise Broken("the interpreter's own path is unknown, so that no runner's parent can be started")
        wire, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(PARENT), ROOM],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env={"PATH": DEFAULT_PATH, "LANG": "C.UTF-8"},
                    start_new_session=True,
                )
        except BaseException:
            wire.close()
            raise
        self._wire = wire
        return wire

    def _end(self, *, kill: bool) -> None:
        wire, process = self._wire, self._process
        self._wire = self._process = None
        if wire is not None:
            wire.close()
        if process is None:
            return
        for last in (kill, True):
            if last:
                process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LEAVES)
                return


@contextlib.contextmanager
def _opened(group: Path | None) -> Iterator[list[int]]:
    """Open a control group; none where there is none, or it cannot be opened."""
    try:
        found = [os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)] if group is not None else []
    except OSError:
        found = []
    try:
        yield found
    finally:
        for descriptor in found:
            os.close(descriptor)


def _left(end: float) -> float:
    """Return the seconds that are left; raise `TimeoutError` where none are."""
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
