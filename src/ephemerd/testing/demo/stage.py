"""The stage: a folder, the look-alike and the daemon as two programs, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil

from ephemerd.testing.demo.clients import Daemon, Forge, until
from ephemerd.testing.demo.containers import Containers
from ephemerd.testing.demo.options import DemoError, DemoOptions
from ephemerd.testing.demo.settings import Places, config_text, write_secret
from ephemerd.testing.weather import Weather, load

REPOSITORY = "acme/app"
READY_WITHIN_S = 60.0
READY_EVERY_S = 0.05
STOP_WITHIN_S = 30.0
EXIT_ENVIRONMENT = 5
SERVICE_PORTS = range(10_240, 32_768)
"""Below what Linux and macOS give to outgoing connections."""


class Stage:
    """Everything that one demo starts. Use as an async context manager."""

    def __init__(self, options: DemoOptions) -> None:
        self.options = options
        self.weather: Weather = load(options.weather)
        self.places = Places(_folder(options.folder))
        self.ready: dict[str, Any] = {}
        self.webhook_port = 0
        self.open_port = 0
        self._forge_process: asyncio.subprocess.Process | None = None
        self._daemon_process: asyncio.subprocess.Process | None = None
        self._clients: contextlib.AsyncExitStack = contextlib.AsyncExitStack()
        self.containers = Containers(options.engine) if options.runtime == "docker" else None
        self.forge: Forge
        self.daemon: Daemon

    async def __aenter__(self) -> Stage:
        """Start both programs and join them by a webhook."""
        try:
            if self.containers is not None:
                await asyncio.to_thread(self.containers.open)
            await self._start_forge()
            await self._start_daemon()
            hook = f"http://127.0.0.1:{self.webhook_port}/webhooks/github"
            await self.forge.admin("/hooks", url=hook)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Starting

    async def _start_forge(self) -> None:
        places, options = self.places, self.options
        token = "ghp_" + secrets.token_hex(18)
        write_secret(places.token, token)
        write_secret(places.webhook_secret, secrets.token_hex(20))
        self._forge_process = await self._program(
            "forge-sim",
            *("forge-sim", "--port", "0", "--weather", options.weather, "--seed", str(options.seed)),
            *("--time-scale", f"{options.time_scale:g}", "--repository", REPOSITORY),
            *("--truth", str(places.truth), "--write-runner", str(places.application)),
            *("--token-file", str(places.token), "--webhook-secret-file", str(places.webhook_secret)),
            piped=True,
        )
        assert self._forge_process.stdout is not None
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                line = await self._forge_process.stdout.readline()
            self.ready = json.loads(line)
        except (TimeoutError, ValueError) as error:
            raise self._failed("forge-sim", self._forge_process) from error
        self.forge = Forge(self.ready["url"], token, REPOSITORY)
        self._clients.push_async_callback(self.forge.close)

    async def _start_daemon(self) -> None:
        places, options = self.places, self.options
        self.webhook_port = free_port()
        if options.port is not None:
            self.open_port = options.port or free_port()
        places.config.write_text(self._config(), encoding="utf-8")
        await self.spawn_daemon()
        self.daemon = self._client()
        self._clients.push_async_callback(self.daemon.close)
        await self.daemon_ready()

    def _config(self) -> str:
        return config_text(
            self.places,
            self.weather,
            forge_url=self.ready["url"],
            repository=REPOSITORY,
            webhook_port=self.webhook_port,
            factor=self.options.time_scale,
            more=self.containers.tables("act", "burst") if self.containers is not None else {},
            job_timeout_s=self.options.job_timeout_s,
        )

    def _client(self) -> Daemon:
        return Daemon(self.places.socket)

    async def spawn_daemon(self) -> None:
        """Start the daemon with the configuration that is written; it is not ready yet."""
        open_api = ["--open-api", f"127.0.0.1:{self.open_port}"] if self.open_port else []
        self._daemon_process = await self._program(
            "daemon", "--log-format", "json", "serve", "--config", str(self.places.config), *open_api
        )

    async def daemon_ready(self) -> None:
        """Return once the daemon takes deliveries; raises :class:`DemoError` where it does not get so far."""
        assert self._daemon_process is not None
        if not await until(self._daemon_is_ready, READY_WITHIN_S, every=READY_EVERY_S):
            raise self._failed("daemon", self._daemon_process)

    async def _daemon_is_ready(self) -> bool:
        assert self._daemon_process is not None
        if self._daemon_process.returncode is not None:
            raise self._failed("daemon", self._daemon_process)
        try:
            async with httpx2.AsyncClient(verify=False) as http:
                answer = await http.get(f"http://127.0.0.1:{self.webhook_port}/readyz")
        except httpx2.HTTPError:
            return False
        return answer.status_code == 200

    async def _program(self, name: str, *arguments: str, piped: bool = False) -> asyncio.subprocess.Process:
        with self.places.log(name).open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "ephemerd", *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if piped else log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is ours to hand on, in the right order
            )

    def _failed(self, name: str, process: asyncio.subprocess.Process) -> DemoError:
        """Why a program did not come up: its last words."""
        lines = self.places.log(name).read_text(encoding="utf-8", errors="replace").splitlines()
        words = " | ".join(lines[-4:]) or "it said nothing"
        code = process.returncode
        ended = f"ended with code {code}" if code is not None else "did not get ready in time"
        return DemoError(f"{name} {ended}: {words}", f"see {self.places.log(name)}", EXIT_ENVIRONMENT)

    # Ending

    @property
    def daemon_pid(self) -> int:
        """The daemon's process id; it has been started."""
        assert self._daemon_process is not None
        return self._daemon_process.pid

    async def stop_daemon(self) -> int | None:
        """Stop the daemon as an init system would; returns its exit code."""
        return await _stop(self._daemon_process)

    async def kill_daemon(self) -> None:
        """End the daemon as a crash would: it alone, at once, with nothing said."""
        assert self._daemon_process is not None
        with contextlib.suppress(ProcessLookupError):
            self._daemon_process.kill()
        await self._daemon_process.wait()

    async def close(self) -> None:
        """Stop both programs, end what is left of the runners, close the clients. Safe to call twice."""
        await self._clients.aclose()
        await _stop(self._daemon_process)
        left = self.runner_processes()
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if left:
            await asyncio.to_thread(psutil.wait_procs, left, timeout=STOP_WITHIN_S)
            await asyncio.to_thread(self._remove_groups)
        await _stop(self._forge_process)
        if self.containers is not None:
            await asyncio.to_thread(self.containers.close, self._names())

    def _names(self) -> list[str]:
        """The names of all runners that the daemon was seen to have."""
        daemon: Daemon | None = getattr(self, "daemon", None)
        return list(daemon.runners) if daemon is not None else []

    def _remove_groups(self) -> None:
        """Remove the control groups of runners that no daemon will tidy up after."""
        names = {item.name for item in self.places.runners.glob("*")}
        remove_groups(names.__contains__)

    def remove_folder(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.places.root, ignore_errors=True)

    # Looking for what is left

    def runner_processes(self) -> list[psutil.Process]:
        """Processes that run in, or were started from, the folder of this demo's runners, job leftovers included."""
        marker = str(self.places.runners)
        return [process for process in _other_processes() if _belongs(process, marker)]

    def leaks(self) -> list[str]:
        """Processes and runner folders that are left, in words."""
        left = [f"process {p.pid} ({_name(p)})" for p in self.runner_processes()]
        if self.places.runners.is_dir():
            left += [f"folder {item.name}" for item in sorted(self.places.runners.iterdir()) if item.is_dir()]
        if self.containers is not None:
            left += self.containers.left(self._names())
        return left


def _folder(wanted: Path | None) -> Path:
    """A fresh folder: a temporary one, or the one that was asked for, which must be empty or new."""
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="ephemerd-demo-")).resolve()
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        used = any(wanted.iterdir())
    except OSError as error:
        raise DemoError(f"{wanted}: {error.strerror}", "choose another folder", EXIT_ENVIRONMENT) from error
    if used:
        raise DemoError(f"{wanted} is not empty", "choose another folder, or empty it", EXIT_ENVIRONMENT)
    return wanted.resolve()


def remove_groups(wanted: Callable[[str], bool]) -> None:
    """Remove the control groups, as far as they are empty, of runners whose names are wanted."""
    for folder, below, _ in os.walk("/sys/fs/cgroup"):
        for name in below:
            if name.startswith("ephemerd-") and wanted(name.removeprefix("ephemerd-")):
                with contextlib.suppress(OSError):
                    (Path(folder) / name).rmdir()


def free_port() -> int:
    """A port that no connection gets by itself as its own end: nothing takes it while the daemon is away."""
    while True:
        port = secrets.choice(SERVICE_PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


async def _stop(process: asyncio.subprocess.Process | None) -> int | None:
    """SIGTERM, and SIGKILL if that does not help in time."""
    if process is None:
        return None
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
    return process.returncode


def _other_processes() -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        if process.pid != os.getpid():
            yield process


def _belongs(process: psutil.Process, marker: str) -> bool:
    """Whether a process bears the folder in its environment or its command line."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        environment = process.environ().values()
        return any(marker in value for value in environment) or any(
            marker in word for word in process.cmdline()
        )
    except psutil.Error:
        return False


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return "gone"
