"""A runner program that says when its first line ran, and who hears it: what `dispatch` waits for.

The program stands in the runner application's place. It sends the time by the machine's monotonic clock, which is the
same in every process and container, and lives until it is told to leave. It is a script, so that the start of an
interpreter is in every figure, in the baseline's as in ours.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from ephemerd.testing.fake_runner.folder import first_lines, write_folder

PROGRAM = """\
import time
began = time.monotonic_ns()
import _socket, sys
wire = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
wire.settimeout({life})
wire.connect(("127.0.0.1", {port}))
wire.send(b"%d" % began)
def say(text):
    print(time.strftime("%Y-%m-%d %H:%M:%SZ: ", time.gmtime()) + text, flush=True)
say("Listening for Jobs")
try:
    wire.recv(16)
except OSError:
    sys.exit(1)
say("Running job: bench")
say("Job bench completed with result: Succeeded")
"""
LIFE_S = 180.0
"""A program that nobody told to leave does so after this."""
WITHIN_S = 120.0


class Starts(asyncio.DatagramProtocol):
    """Hears of starts: their times, ns of the monotonic clock."""

    def __init__(self) -> None:
        self._heard: list[tuple[int, Any]] = []
        self._more = asyncio.Event()
        self._transport: asyncio.DatagramTransport
        self.port = 0

    async def open(self) -> None:
        """Listen on a free port of loopback."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=("127.0.0.1", 0))
        self.port = self._transport.get_extra_info("sockname")[1]

    def close(self) -> None:
        self._transport.close()

    def datagram_received(self, data: bytes, address: Any) -> None:
        self._heard.append((int(data), address))
        self._more.set()

    async def heard(self, count: int) -> list[int]:
        """Return the times of the next so many starts in order, and tell them to leave."""
        async with asyncio.timeout(WITHIN_S):
            while len(self._heard) < count:
                self._more.clear()
                await self._more.wait()
        return sorted(at for at, _ in self._heard)

    def dismiss(self) -> None:
        """Tell all that were heard to leave, and forget them."""
        for _, address in self._heard:
            self._transport.sendto(b"leave", address)
        self._heard.clear()


def write_application(folder: Path, port: int) -> Path:
    """Write a runner application whose listener is the program; return the listener."""
    write_folder(folder)
    listener = folder / "bin" / "Runner.Listener"
    listener.unlink()
    text = first_lines(os.path.realpath(sys.executable)) + PROGRAM.format(life=LIFE_S, port=port)
    listener.write_text(text, encoding="utf-8")
    listener.chmod(0o755)
    return listener


def spans(began: list[int], executing: list[int]) -> list[float]:
    """Return ms from each beginning to a start, the first to the first: who got which is not told."""
    return [(end - start) / 1e6 for start, end in zip(sorted(began), executing, strict=True)]


def now() -> int:
    """The clock that the program reads."""
    return time.monotonic_ns()
