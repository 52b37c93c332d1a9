"""What the service manager is told over its socket (sd_notify): ready, reloading, stopping, alive, and a status.

Plain datagrams to `$NOTIFY_SOCKET`; without one nothing is sent. Sending never waits: what does not fit into
the socket's queue is sent with the next word, but for pings and lines of status that are out of date by then.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping

KEPT = 16
"""Words that wait for room in the socket's queue; the oldest go first."""
LONGEST_STATUS = 200
PINGS = 3
"""Pings within the manager's limit, so that one that comes late ends nothing."""


class Notifier:
    """Tells the service manager. Not thread-safe: it belongs to the loop.

    address    a path, or `@NAME` for an abstract socket; "" where nobody wants to hear
    watchdog   seconds within which the manager wants to hear that we are alive; None where it does not
    """

    def __init__(
        self,
        address: str = "",
        watchdog: float | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._monotonic = monotonic
        self._socket: socket.socket | None = None
        self._waiting: deque[bytes] = deque(maxlen=KEPT)
        self._pinged = float("-inf")
        self._status = ""
        self.interval = None if watchdog is None or not address else watchdog / PINGS

    @classmethod
    def from_environment(cls, env: Mapping[str, str], pid: int | None = None) -> Notifier:
        """Read `$NOTIFY_SOCKET`, `$WATCHDOG_USEC` and `$WATCHDOG_PID`; what makes no sense counts as not set."""
        address = env.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")) or len(address) < 2:
            return cls()
        usec, wanted = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
        ours = not wanted or wanted == str(os.getpid() if pid is None else pid)
        asked = ours and usec.isascii() and usec.isdigit() and int(usec) > 0
        return cls(address, int(usec) / 1_000_000 if asked else None)

    @property
    def wanted(self) -> bool:
        """Whether somebody listens."""
        return bool(self._address)

    def ready(self) -> None:
        """Everything is up; also the end of a reload."""
        self._send("READY=1")

    def reloading(self) -> None:
        """The configuration is read again; `ready` says when that is over."""
        clock = getattr(time, "CLOCK_MONOTONIC", None)
        usec = time.clock_gettime_ns(clock) // 1_000 if clock is not None else time.monotonic_ns() // 1_000
        self._send(f"RELOADING=1\nMONOTONIC_USEC={usec}")

    def stopping(self) -> None:
        """A stop has begun."""
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """Show one line in `systemctl status`; the same line again is not sent again."""
        line = " ".join(text.split())[:LONGEST_STATUS]
        if line != self._status:
            self._status = line
            stale = [word for word in self._waiting if word.startswith(b"STATUS=")]
            for word in stale:
                self._waiting.remove(word)
            self._send(f"STATUS={line}")

    def alive(self) -> None:
        """The loop has turned: ping, a third of the limit after the last ping at the earliest."""
        if self.interval is None:
            return
        now = self._monotonic()
        if now - self._pinged >= self.interval / 2:
            self._pinged = now
            self._send("WATCHDOG=1", keep=False)

    def close(self) -> None:
        """Let go of the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, text: str, *, keep: bool = True) -> None:
        if not self._address:
            return
        self._waiting.append(text.encode())
        while self._waiting:
            if not self._try(self._waiting[0]):
                if not keep:
                    self._waiting.pop()
                return
            self._waiting.popleft()

    def _try(self, word: bytes) -> bool:
        """Send one word; False where it would have to wait, or nobody is there just now."""
        try:
            if self._socket is None:
                self._socket = socket.socket(
                    socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0)
                )
                self._socket.setblocking(False)
                with contextlib.suppress(OSError):
                    self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            self._socket.sendto(word, self._address)
        except (OSError, ValueError):
            return False
        return True
