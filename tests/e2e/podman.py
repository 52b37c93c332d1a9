"""Podman's compatible socket, with storage of its own; it ends only that."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from ephemerd.testing.engines.api import EngineApi, EngineError

NEEDED = ("podman", "runc")
READY_S = 60.0
CONFIGURATION = """[containers]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


class Podman:
    """One service. Has what tests use of `TestEngine`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="eph-podman-"))
        self.api = EngineApi(f"unix://{self.folder / 'podman.sock'}")
        self.url = self.api.url
        self.enter: tuple[str, ...] = ()
        self.call, self.inspect = self.api.call, self.api.inspect
        self._program: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        configuration = self.folder / "containers.conf"
        configuration.write_text(CONFIGURATION)
        with (self.folder / "log").open("ab") as log:
            self._program = subprocess.Popen(
                [*self._command(), "system", "service", "--time", "0", self.url],
                env={
                    "CONTAINERS_CONF": str(configuration),
                    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                    "HOME": "/root",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + READY_S
        while not self.api.answers():
            words = (self.folder / "log").read_text()[-500:]
            assert self._program.poll() is None, words
            assert time.monotonic() < end, words
            time.sleep(0.05)

    def stop(self) -> None:
        with contextlib.suppress(EngineError):
            for container in self.call("GET", "/containers/json?all=1"):
                self.call("DELETE", f"/containers/{container['Id']}?force=1&v=1", fine=(404, 409))
        if self._program is not None:
            self._program.terminate()
            self._program.wait(30)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            where = line.split()[1]
            if where.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "-l", where], capture_output=True, timeout=30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _command(self) -> list[str]:
        return [
            "podman",
            "--root",
            str(self.folder / "root"),
            "--runroot",
            str(self.folder / "run"),
            "--runtime",
            "runc",
        ]
