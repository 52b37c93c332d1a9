"""`ephemerd serve` and `ephemerd forge-sim` as two programs, joined by HTTP and a configuration file alone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

LABELS = ["self-hosted", "linux", "x64"]
SECRET = "hook-secret"
CONFIG = """
[forge.github]
url = "{forge}"
scope = "repo:acme/app"
token_file = "{folder}/token"
webhook_secret_file = "{folder}/hook"

[pools.linux]
labels = {labels}
runtime = "process"
max_concurrent = 4

[runner]
application = "{folder}/application"
work_dir = "{folder}/state/runners"
allow_root = {root}

[server]
webhook_listen = "127.0.0.1:{port}"
api_socket = "{folder}/api.sock"
metrics_listen = "none"
store = "sqlite:///{folder}/state/state.db"
"""

POLLING = (
    CONFIG.replace('webhook_secret_file = "{folder}/hook"', 'discovery = "poll"')
    .replace('webhook_listen = "127.0.0.1:{port}"', "")
    .replace('metrics_listen = "none"', 'metrics_listen = "127.0.0.1:{port}"')
    .replace("[server]", '[policy]\npoll_every = "1s"\npoll_idle = "2s"\n\n[server]')
)


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Look again and again until the condition holds; fail after a deadline."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)
    return value


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def plain_client(**transport: Any) -> httpx2.Client:
    """Return a client for addresses without TLS.

    Reading the certificates of all authorities takes more processor than a daemon's answer to fifty questions, and
    most tests ask again and again. So one client is kept, which reads none.
    """
    made = httpx2.HTTPTransport(verify=False, limits=httpx2.Limits(max_keepalive_connections=0), **transport)
    return httpx2.Client(transport=made, timeout=10)


class Site:
    """A folder with a look-alike forge and a daemon that serves it; ends what it started."""

    def __init__(self, folder: Path, config: str = CONFIG) -> None:
        self.folder = folder
        self.port = free_port()
        self.web = plain_client()
        self.own = plain_client(uds=str(folder / "api.sock"))
        self.hook = f"http://127.0.0.1:{self.port}/webhooks/github"
        self.config = folder / "ephemerd.toml"
        self.processes: list[subprocess.Popen[bytes]] = []
        for name, text in (("token", "token-for-tests"), ("hook", SECRET)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o600)
        try:
            self.forge = self._start_forge()
            root = "true" if os.geteuid() == 0 else "false"
            self.config.write_text(
                config.format(
                    forge=self.forge, folder=folder, labels=json.dumps(LABELS), root=root, port=self.port
                )
            )
            self.daemon = self.start()
        except BaseException:
            self.close()  # nobody else has it yet
            raise

    def run(self, *arguments: str, out: str) -> subprocess.Popen[bytes]:
        """Start the program in the background, its output in files of that name."""
        with (
            (self.folder / f"{out}.out").open("ab") as stdout,
            (self.folder / f"{out}.err").open("ab") as stderr,
        ):
            process = subprocess.Popen(
                [sys.executable, "-m", "ephemerd", *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
        self.processes.append(process)
        return process

    def _start_forge(self) -> str:
        self.run(
            *("forge-sim", "--token-file", "token", "--webhook-secret-file", "hook"),
            *("--hook-url", self.hook, "--write-runner", "application"),
            out="forge",
        )
        line = until(lambda: (self.folder / "forge.out").read_text().partition("\n")[0])
        url: str = json.loads(line)["url"]
        return url

    def start(self) -> subprocess.Popen[bytes]:
        """Start the daemon and wait until it takes deliveries."""
        daemon = self.run("serve", "--config", str(self.config), out="serve")
        until(lambda: daemon.poll() is not None or self.ready())
        assert daemon.poll() is None, self.log()
        return daemon

    def log(self) -> str:
        return (self.folder / "serve.err").read_text()

    def ready(self) -> bool:
        try:
            return self.web.get(f"http://127.0.0.1:{self.port}/readyz", timeout=5).status_code == 200
        except httpx2.TransportError:
            return False

    def api(self, path: str) -> Any:
        answer = self.own.get(f"http://ephemerd/{path}")
        return answer.json() if "json" in answer.headers["content-type"] else answer.text

    def queue(self, count: int, seconds: float = 0.5) -> list[int]:
        """Queue jobs at the forge and return their ids."""
        body = {"count": count, "labels": LABELS, "duration_s": seconds}
        jobs: list[int] = self.web.post(f"{self.forge}/_admin/jobs", json=body).json()["jobs"]
        return jobs

    def outcomes(self) -> dict[str, Any]:
        found: dict[str, Any] = self.web.get(f"{self.forge}/_admin/outcomes").json()
        return found

    def completed(self, count: int, seconds: float = 90.0) -> dict[str, Any]:
        """Wait until so many jobs are completed and nothing is left; return the outcomes."""
        until(lambda: self.outcomes()["completed"] >= count, seconds)
        until(lambda: self.outcomes()["leaked"] == 0, seconds)
        return self.outcomes()

    def second(self, config: str) -> subprocess.CompletedProcess[str]:
        """Run another daemon with this configuration to its end."""
        other = self.folder / "other.toml"
        other.write_text(config)
        return subprocess.run(
            [sys.executable, "-m", "ephemerd", "serve", "--config", str(other)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def close(self) -> None:
        """End the daemon in peace, then the forge, then runners that were left."""
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(40)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(10)
        self.web.close()
        self.own.close()
