"""The daemon, or its webhook port alone, as a program of its own with a small configuration in a fresh folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ephemerd.testing.alone import write_alone
from ephemerd.testing.demo.stage import free_port

LABELS = ("self-hosted", "linux", "x64")
READY_WITHIN_S = 60.0
STOP_WITHIN_S = 30.0


class Program:
    """One that runs. `port` takes deliveries; with nothing behind it, it never says that it is ready."""

    def __init__(self, folder: Path, port: int, process: subprocess.Popen[bytes], *, bare: bool) -> None:
        self.folder = folder
        self.port = port
        self.process = process
        self._good = b"HTTP/" if bare else b" 200 "

    async def ready(self) -> None:
        """Return when it takes deliveries; raises `RuntimeError` with its last words where it does not get so far."""
        async with asyncio.timeout(READY_WITHIN_S):
            while not await self._is_ready():
                if self.process.poll() is not None:
                    said = (self.folder / "log").read_text("utf-8", "replace").splitlines()
                    raise RuntimeError(
                        f"it ended with code {self.process.returncode}: {' | '.join(said[-3:])}"
                    )
                await asyncio.sleep(0.02)

    async def _is_ready(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        try:
            writer.write(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            return self._good in await reader.readline()
        except OSError:
            return False
        finally:
            writer.close()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_WITHIN_S)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@contextmanager
def running(*, bare: bool = False) -> Iterator[Program]:
    """Start the daemon, or with `bare` its webhook port with nothing behind it; stop it at the end."""
    with TemporaryDirectory(prefix="ephemerd-bench-") as name:
        folder, port = Path(name), free_port()
        config = write_alone(folder, port, LABELS)
        module = (
            ["ephemerd.testing.bench.bare", str(config)]
            if bare
            else ["ephemerd", "serve", "--config", str(config)]
        )
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *module],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "EPHEMERD_CONFIG": ""},
                start_new_session=True,
            )
        program = Program(folder, port, process, bare=bare)
        try:
            yield program
        finally:
            program.stop()
