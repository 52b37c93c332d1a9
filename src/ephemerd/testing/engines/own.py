"""An engine of our own: own containerd, sockets, data and, where wanted, network namespace. Needs root on Linux."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ephemerd.testing.engines.api import EngineApi, EngineError

PROGRAMS = ("dockerd", "containerd", "runc")
READY_S = 60.0
STOP_S = 30.0
CONTAINERD = """version = 2
root = "{folder}/cd/root"
state = "{folder}/cd/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "{folder}/cd.sock"
"""


def why_not(programs: Sequence[str] = PROGRAMS) -> str:
    """Why this machine cannot run an engine of its own, in words; empty where it can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "it needs root on Linux"
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    return ""


def may_make_namespaces() -> bool:
    """Whether this root may do what an engine does; in most containers it may not."""
    command = ["unshare", "--net", "--mount", "true"]
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


class OwnEngine:
    """One engine. `start` and `stop` belong together; `stop_engine` ends the engine alone, not its containers.

    enter    what stands before a command that has to run in the engine's network; empty: this machine's own
    extra    further arguments of the engine
    """

    def __init__(self, enter: Sequence[str] = (), extra: Sequence[str] = ()) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="eph-engine-"))
        self.name = f"eph{secrets.token_hex(4)}"
        self.enter = tuple(enter)
        self.api = EngineApi(f"unix://{self.folder / 'docker.sock'}")
        self._extra = tuple(extra)
        self._programs: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def socket(self) -> Path:
        """Its socket."""
        return self.folder / "docker.sock"

    @property
    def url(self) -> str:
        """Where it is reached."""
        return self.api.url

    def start(self) -> None:
        """Start it; raises `EngineError` with its last words where it does not come up."""
        text = CONTAINERD.format(folder=self.folder)
        (self.folder / "containerd.toml").write_text(text, encoding="utf-8")
        self._run("containerd", "containerd", "-c", str(self.folder / "containerd.toml"))
        self._until("containerd", (self.folder / "cd.sock").is_socket)
        self.start_engine()

    def start_engine(self) -> None:
        """Start the engine above a containerd that runs."""
        pid = self.folder / "pid"
        pid.unlink(missing_ok=True)
        self._run(
            "dockerd",
            *("dockerd", "--host", self.url, "--data-root", str(self.folder / "data")),
            *("--exec-root", str(self.folder / "exec"), "--pidfile", str(pid), "--live-restore"),
            *("--containerd", str(self.folder / "cd.sock"), "--log-level", "warn"),
            *("--containerd-namespace", self.name, "--containerd-plugins-namespace", f"{self.name}p"),
            *self._extra,
        )
        self._until("dockerd", self.api.answers)

    def stop_engine(self, number: int = signal.SIGTERM) -> None:
        """End the engine alone; its containers live on."""
        program = self._programs.pop("dockerd")
        program.send_signal(number)
        program.wait(READY_S)

    def stop(self) -> None:
        """End every container of this engine, then the engine, and remove what is left of both."""
        with contextlib.suppress(EngineError):
            if "dockerd" not in self._programs and "containerd" in self._programs:
                self.start_engine()
            if "dockerd" in self._programs:
                self._clear()
        for name in ("dockerd", "containerd"):
            program = self._programs.pop(name, None)
            if program is not None:
                _end(program)
        for line in reversed(Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()):
            where = line.split()[1]
            if where.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "-l", where], capture_output=True, timeout=STOP_S, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _clear(self) -> None:
        for container in self.api.call("GET", "/containers/json?all=1"):
            self.api.call("DELETE", f"/containers/{container['Id']}?force=1&v=1", fine=(404, 409))

    def _run(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            try:
                self._programs[name] = subprocess.Popen(
                    [*self.enter, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                raise EngineError(f"{name} cannot be started: {error}") from error

    def _until(self, name: str, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + READY_S
        while not holds():
            ended = self._programs[name].poll() is not None
            if ended or time.monotonic() > end:
                log = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
                raise EngineError(f"{name} did not come up: {' | '.join(log.splitlines()[-4:])[:600]}")
            time.sleep(0.05)


def _end(program: subprocess.Popen[bytes]) -> None:
    program.terminate()
    try:
        program.wait(STOP_S)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait(STOP_S)
