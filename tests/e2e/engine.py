"""A Docker Engine of the tests' own: own containerd, sockets, data and network namespace; it ends only that.

`netns` is the namespace that stands for the engine's machine; `outside` stands for everything beyond it and carries
stand-in addresses. Nothing leaves the two.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.e2e.stand_in import write_application

PROGRAMS = ("dockerd", "containerd", "nft", "ip", "busybox", "nsenter")
READY_LIMIT = 60.0
USER = 1001
IMAGE = "ephemerd-test/stand-in:1"
PUBLIC = "203.0.113.10"
PRIVATE = ("10.9.8.7", "172.20.0.7", "192.168.77.7", "100.64.3.3", "169.254.169.254")
UPLINK, FAR_SIDE = "198.51.100.1", "198.51.100.2"
CONTAINERD = """version = 2
root = "{folder}/cd/root"
state = "{folder}/cd/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "{folder}/cd.sock"
"""


def missing() -> str:
    """Name what is not installed; empty where nothing is missing."""
    return ", ".join(name for name in PROGRAMS if shutil.which(name) is None)


def may_make_namespaces() -> bool:
    """Whether this root may do what an engine does: not in most containers."""
    probe = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, timeout=30)
    return probe.returncode == 0


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


@dataclass
class TestEngine:
    """One engine. `start` and `stop` belong together; `restart` ends only the engine, not its containers."""

    __test__ = False

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="eph-engine-")))
    name: str = field(default_factory=lambda: f"eph{secrets.token_hex(4)}")
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def socket(self) -> Path:
        return self.folder / "docker.sock"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def enter(self) -> tuple[str, ...]:
        """What stands before a command that has to run on the engine's machine."""
        return ("nsenter", f"--net=/run/netns/{self.name}")

    @property
    def beyond(self) -> tuple[str, ...]:
        return ("nsenter", f"--net=/run/netns/{self.name}o")

    def start(self) -> None:
        self._networks()
        (self.folder / "containerd.toml").write_text(CONTAINERD.format(folder=self.folder))
        self._run("containerd", "containerd", "-c", str(self.folder / "containerd.toml"))
        _until((self.folder / "cd.sock").is_socket, "containerd")
        self.start_engine()

    def start_engine(self) -> None:
        pid = self.folder / "pid"
        pid.unlink(missing_ok=True)
        self._run(
            "dockerd",
            *("dockerd", "--host", self.url, "--data-root", str(self.folder / "data")),
            *("--exec-root", str(self.folder / "exec"), "--pidfile", str(pid), "--live-restore"),
            *("--containerd", str(self.folder / "cd.sock")),
            *("--containerd-namespace", self.name, "--containerd-plugins-namespace", f"{self.name}p"),
            *("--default-address-pool", "base=10.200.0.0/16,size=28", "--log-level", "warn"),
        )
        _until(self._answers, "dockerd", self.folder / "dockerd.log")

    def stop_engine(self, number: int = signal.SIGTERM) -> None:
        """End the engine alone; its containers live on."""
        process = self.processes.pop("dockerd")
        process.send_signal(number)
        process.wait(60)

    def stop(self) -> None:
        """End every container of this engine, then the engine, and remove what is left of both."""
        with contextlib.suppress(OSError, AssertionError):
            if "dockerd" not in self.processes:
                self.start_engine()
            for container in self.call("GET", "/containers/json?all=1"):
                self.call("DELETE", f"/containers/{container['Id']}?force=1&v=1", fine=(404, 409))
        for name in ("dockerd", "containerd"):
            process = self.processes.pop(name, None)
            if process is not None:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(30)
        for name in (self.name, f"{self.name}o"):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=30)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            where = line.split()[1]
            if where.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "-l", where], capture_output=True, timeout=30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method: str, path: str, body: Any = None, fine: tuple[int, ...] = ()) -> Any:
        """Ask the engine; the answer of a call that fails is the test's failure."""
        status, content = self._ask(method, path, body)
        assert status < 400 or status in fine, f"{method} {path}: {status} {content!r}"
        with contextlib.suppress(ValueError):
            return json.loads(content) if content else None
        return content

    def inspect(self, container: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"/containers/{container}/json")
        return found

    def import_image(self, name: str, archive: bytes, *changes: str) -> None:
        repository, _, tag = name.partition(":")
        query = [
            ("fromSrc", "-"),
            ("repo", repository),
            ("tag", tag),
            *(("changes", each) for each in changes),
        ]
        status, content = self._ask("POST", f"/images/create?{urlencode(query)}", archive)
        assert status == 200, content
        assert b'"error"' not in content, content

    def execute(self, container: str, *command: str) -> int:
        """Run a program in a container and wait for it; return its exit code."""
        return self.output(container, *command)[0]

    def output(self, container: str, *command: str) -> tuple[int, str]:
        options = {"Cmd": list(command), "AttachStdout": True, "AttachStderr": True}
        made = self.call("POST", f"/containers/{container}/exec", options)
        content = self._ask("POST", f"/exec/{made['Id']}/start", {"Detach": False, "Tty": True})[1]
        found = self.call("GET", f"/exec/{made['Id']}/json")
        return int(found["ExitCode"]), content.decode(errors="replace")

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        connection = _Connection(str(self.socket))
        try:
            content = body if body is None or isinstance(body, bytes) else json.dumps(body)
            kind = "application/x-tar" if isinstance(body, bytes) else "application/json"
            connection.request(
                method, f"/v1.41{path}", content, {"Content-Type": kind, "Connection": "close"}
            )
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _answers(self) -> bool:
        process = self.processes["dockerd"]
        assert process.poll() is None, (self.folder / "dockerd.log").read_text()[-2000:]
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self._ask("GET", "/_ping")[0] == 200
        return False

    def _run(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self.enter, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _networks(self) -> None:
        here, far = self.name, f"{self.name}o"
        commands = [
            ["ip", "netns", "add", here],
            ["ip", "netns", "add", far],
            ["ip", "-n", here, "link", "add", "up0", "type", "veth", "peer", "name", "up0", "netns", far],
        ]
        for space, address in ((here, UPLINK), (far, FAR_SIDE)):
            commands += [
                ["ip", "-n", space, "link", "set", "lo", "up"],
                ["ip", "-n", space, "link", "set", "up0", "up"],
                ["ip", "-n", space, "address", "add", f"{address}/24", "dev", "up0"],
            ]
        commands += [
            ["ip", "-n", far, "address", "add", f"{each}/32", "dev", "lo"] for each in (PUBLIC, *PRIVATE)
        ]
        commands += [
            ["ip", "-n", here, "route", "add", "default", "via", FAR_SIDE],
            ["ip", "-n", far, "route", "add", "10.200.0.0/16", "via", UPLINK],
        ]
        for command in commands:
            subprocess.run(command, check=True, capture_output=True, timeout=30)


def _until(holds: Any, what: str, log: Path | None = None) -> None:
    end = time.monotonic() + READY_LIMIT
    while not holds():
        words = log.read_text(errors="replace")[-2000:] if log is not None else ""
        assert time.monotonic() < end, f"{what} did not get ready within {READY_LIMIT:g} s: {words}"
        time.sleep(0.05)


def _libraries(program: Path) -> list[Path]:
    told = subprocess.run(["ldd", str(program)], capture_output=True, text=True, timeout=30).stdout
    return [Path(found) for found in re.findall(r"(?:=> )?(/\S+) \(0x", told)]


def busybox_image() -> bytes:
    """Return a root folder with busybox and the stand-in runner at /runner, owned by the runner's user."""
    program = Path(shutil.which("busybox") or "busybox").resolve()
    applets = subprocess.run(
        [program, "--list"], capture_output=True, text=True, check=True, timeout=30
    ).stdout
    with tempfile.TemporaryDirectory() as temporary:
        application = write_application(Path(temporary) / "runner")
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode="w") as tar:
            for name, mode in (
                ("bin", 0o755),
                ("etc", 0o755),
                ("proc", 0o755),
                ("sys", 0o755),
                ("tmp", 0o1777),
            ):
                _folder(tar, name, mode, 0)
            for source in (program, *_libraries(program)):
                tar.add(source, "bin/busybox" if source == program else str(source).lstrip("/"))
            for applet in sorted(set(applets.split()) - {"busybox"}):
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
            _file(tar, "etc/passwd", f"root:x:0:0::/:/bin/sh\nrunner:x:{USER}:{USER}::/runner:/bin/sh\n")
            _file(tar, "etc/group", f"root:x:0:\nrunner:x:{USER}:\n")
            _folder(tar, "runner", 0o755, USER)
            for path in sorted(application.rglob("*")):
                tar.add(path, f"runner/{path.relative_to(application)}", recursive=False, filter=_owned)
    return written.getvalue()


def _owned(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = USER
    return entry


def _folder(tar: tarfile.TarFile, name: str, mode: int, owner: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, mode, owner, owner
    tar.addfile(entry)


def _file(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text.encode()), 0o644
    tar.addfile(entry, io.BytesIO(text.encode()))


def remove_left(folder: Path) -> None:
    """Remove a folder of a test."""
    shutil.rmtree(folder, ignore_errors=True)
