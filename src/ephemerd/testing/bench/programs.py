"""The daemon, or its webhook port alone, as a program of its own with a small configuration in a fresh folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ephemerd.domain.ids import is_ours
from ephemerd.storing import check_store
from ephemerd.testing.alone import write_alone
from ephemerd.testing.demo.settings import tables_text
from ephemerd.testing.demo.stage import free_port, remove_groups

LABELS = ("self-hosted", "linux", "x64")
PACE = {"write_burst": 100_000, "write_per_second": 100_000.0}
"""Writes to the forge are not paced here: the bucket of the daemon that is measured is never empty."""
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
                    raise RuntimeError(f"it ended with code {self.process.returncode}: {self.words()}")
                await asyncio.sleep(0.02)

    def words(self) -> str:
        """Return the last of what it wrote into its log."""
        return " | ".join((self.folder / "log").read_text("utf-8", "replace").splitlines()[-3:])

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

    def store(self) -> str:
        """Return the id of its store, which is in the names of its runners; "" before there is one."""
        path = self.folder / "state.db"
        return check_store(path).store if path.exists() else ""

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
        arguments = (
            ("ephemerd.testing.bench.bare", str(config))
            if bare
            else ("ephemerd", "serve", "--config", str(config))
        )
        with started(folder, port, *arguments, bare=bare) as program:
            yield program


@contextmanager
def started(
    folder: Path, port: int, *arguments: str, bare: bool = False, output: int | None = None
) -> Iterator[Program]:
    """Start `python -m` with these arguments; stop it at the end. Its log is in the folder, with what it writes to
    stdout where that goes nowhere else."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log if output is None else output,
            stderr=log,
            env={**os.environ, "EPHEMERD_CONFIG": ""},
            start_new_session=True,
        )
    program = Program(folder, port, process, bare=bare)
    try:
        yield program
    finally:
        program.stop()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def with_runners(folder: Path, port: int, *arguments: str) -> Iterator[Program]:
    """Start a daemon that makes runners, and leave no control group of theirs: it may end before it tidied up."""
    with started(folder, port, *arguments) as program:
        try:
            yield program
        finally:
            program.stop()
            store = program.store()
            if store:
                remove_groups(lambda name: is_ours(name, store))


def config_text(
    folder: Path,
    port: int,
    *,
    url: str,
    scope: str,
    slots: int,
    more: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """The configuration of a daemon in a folder that has `token`, `hook` and `application`; `more` is laid over it."""
    tables: dict[str, dict[str, Any]] = {
        "forge.github": {
            "url": url,
            "scope": scope,
            "token_file": str(folder / "token"),
            "webhook_secret_file": str(folder / "hook"),
        },
        "hosts.local": {"slots": slots},
        "pools.linux": {"labels": list(LABELS), "runtime": "process", "max_concurrent": slots},
        "policy": PACE,
        "runner": {
            "application": str(folder / "application"),
            "work_dir": str(folder / "runners"),
            "allow_root": os.geteuid() == 0,
        },
        "server": {
            "webhook_listen": f"127.0.0.1:{port}",
            "api_socket": str(folder / "api.sock"),
            "metrics_listen": "none",
            "store": f"sqlite:///{folder}/state.db",
        },
    }
    for title, table in (more or {}).items():
        tables[title] = {**tables.get(title, {}), **table}
    return tables_text(tables, "Written by a benchmark; writes to the forge are not paced.")
