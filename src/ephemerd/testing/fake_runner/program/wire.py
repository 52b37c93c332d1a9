"""HTTP by hand, and waiting that signals can interrupt. Small on purpose: it is started hundreds of times."""

# pathlib and contextlib would cost more than the rest of the start.
# ruff: noqa: PTH103, PTH118, PTH123, SIM105

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

CALL_S = 100.0
"""A request is given up after so many seconds, as the real one does [src]."""


class LinkError(Exception):
    """The broker cannot be reached, or its answer makes no sense."""


class Stopped(Exception):
    """A signal that asks the process to end came while it waited."""


class Signals:
    """Turns signals into flags and wakes whoever waits."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.ignore = False
        self.reader, writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def catch(self, *numbers: int) -> None:
        """Note these signals; a disposition that was inherited (ignored, say) is replaced."""
        for number in numbers:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: object) -> None:
        if number in (signal.SIGINT, signal.SIGTERM) and not self.ignore:
            self.seen.append(number)

    def wait(self, readers: list[Any], seconds: float) -> list[Any]:
        """Wait until one of ``readers`` can be read, a signal comes, or the time is over."""
        ready, _, _ = select.select([self.reader, *readers], [], [], max(0.0, seconds))
        if self.reader in ready:
            ready.remove(self.reader)
            try:
                os.read(self.reader, 512)
            except BlockingIOError:
                pass  # somebody read it already
        return ready

    def pause(self, seconds: float) -> None:
        """Sleep; raises :class:`Stopped` if asked to end."""
        until = time.monotonic() + seconds
        while not self.seen and time.monotonic() < until:
            self.wait([], until - time.monotonic())
        if self.seen:
            raise Stopped


class Exchange:
    """One request and its answer on a connection of its own."""

    def __init__(
        self, address: tuple[str, int], secret: str, method: str, path: str, body: Any = None
    ) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nUser-Agent: fake-runner\r\n"
            f"Authorization: Bearer {secret}\r\nConnection: close\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        try:
            self.socket = socket.create_connection(address, timeout=10)
            self.socket.sendall(head.encode() + content)
        except OSError as error:
            raise LinkError(str(error)) from error
        self._got = b""

    def fileno(self) -> int:
        """For select."""
        return self.socket.fileno()

    def read(self) -> tuple[int, dict[str, Any]] | None:
        """Read what has come; return status and body once the answer is whole."""
        try:
            piece = self.socket.recv(65536)
        except OSError as error:
            raise LinkError(str(error)) from error
        self._got += piece
        head, found, content = self._got.partition(b"\r\n\r\n")
        if not found:
            if not piece:
                raise LinkError("the connection was closed before an answer came")
            return None
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ")[1])
        length = 0
        for line in lines[1:]:
            name, _, value = line.partition(":")
            if name.lower() == "content-length":
                length = int(value)
        if len(content) < length:
            if not piece:
                raise LinkError("the answer was cut off")
            return None
        self.close()
        try:
            return status, json.loads(content[:length]) if length else {}
        except ValueError as error:
            raise LinkError("the answer is not JSON") from error

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


class Link:
    """The way to one broker with one credential."""

    def __init__(self, url: str, secret: str, signals: Signals) -> None:
        host, _, port = url.split("://", 1)[-1].split("/", 1)[0].rpartition(":")
        self.address = (host, int(port))
        self.secret = secret
        self.signals = signals

    def begin(self, method: str, path: str, body: Any = None) -> Exchange:
        """Send a request; read its answer later."""
        return Exchange(self.address, self.secret, method, path, body)

    def call(
        self, method: str, path: str, body: Any = None, *, stoppable: bool = True, seconds: float = CALL_S
    ) -> tuple[int, dict[str, Any]]:
        """Send a request and wait for its answer. If ``stoppable``, a stop signal raises :class:`Stopped`."""
        exchange = self.begin(method, path, body)
        until = time.monotonic() + seconds
        try:
            while True:
                if stoppable and self.signals.seen:
                    raise Stopped
                if time.monotonic() > until:
                    raise LinkError("no answer in time")
                if exchange in self.signals.wait([exchange], until - time.monotonic()):
                    answer = exchange.read()
                    if answer is not None:
                        return answer
        finally:
            exchange.close()

    def lifeline(self, query: str) -> Exchange:
        """Open the connection that lasts as long as this process does; it is never read to its end."""
        exchange = self.begin("GET", f"/_broker/lifeline?pid={os.getpid()}&{query}")
        exchange.socket.recv(1)
        return exchange


class Files:
    """The files that a runner leaves for others to read: performance counters and the diagnostic log."""

    def __init__(self, root: str, kind: str) -> None:
        self.kind = kind
        self.perf = os.environ.get("RUNNER_PERFLOG", "")
        folder = os.path.join(root, "_diag")
        os.makedirs(folder, exist_ok=True)
        name = time.strftime(f"{kind}_%Y%m%d-%H%M%S-utc.log", time.gmtime())
        self.log = os.path.join(folder, name)

    def counter(self, name: str) -> None:
        """Append a performance counter; a failure is only logged, as in the real one [src]."""
        if not self.perf:
            return
        now = time.time()
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e7):07d}Z"
        try:
            os.makedirs(self.perf, exist_ok=True)
            append(os.path.join(self.perf, self.kind + ".perf"), f"{name.replace(':', '_')}:{at}\n")
        except OSError as error:
            self.diag("Terminal", f"cannot write the performance counter: {error}")

    def diag(self, where: str, text: str) -> None:
        """Append a line to the diagnostic log."""
        at = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
        try:
            append(self.log, f"[{at} INFO {where}] {text}\n")
        except OSError:
            pass  # a full disk does not end the real listener either


def append(path: str, text: str) -> None:
    """Append to a file that stays closed between calls."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def say(text: str, stream: int = 1) -> None:
    """Print a line at once, in UTF-8 whatever the locale is."""
    try:
        os.write(stream, (text + "\n").encode())
    except OSError:
        pass  # whoever read it is gone


def show_name(name: str) -> None:
    """Make the process table show ``name`` also where a wrapper started us (Linux)."""
    try:
        with open("/proc/self/comm", "r+") as comm:
            if comm.read().strip() != name:
                comm.write(name)
    except OSError:
        pass  # no such file on this system: the script's own name is what shows


def main_of(run: Callable[[], int]) -> None:
    """Run a program and leave at once with its code, without the cost of a tidy interpreter end."""
    code = run()
    os._exit(code)
