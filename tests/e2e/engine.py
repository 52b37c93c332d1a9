"""A Docker Engine of the tests' own, on a machine of its own as far as networks go.

The engine's network namespace stands for its machine; another one stands for everything beyond it and carries
stand-in addresses. Nothing leaves the two.
"""

from __future__ import annotations

import io
import secrets
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from ephemerd.testing.engines.image import USER, Root, libraries
from ephemerd.testing.engines.own import PROGRAMS, OwnEngine
from tests.e2e.stand_in import write_application

NEEDED = (*PROGRAMS, "nft", "ip", "busybox", "nsenter")
IMAGE = "ephemerd-test/stand-in:1"
WITH_ENGINE = "ephemerd-test/with-engine:1"
ENGINE_PROGRAMS = (
    *("dockerd", "docker", "docker-init", "docker-proxy"),
    *("containerd", "containerd-shim-runc-v2", "runc"),
)
PUBLIC = "203.0.113.10"
PRIVATE = ("10.9.8.7", "172.20.0.7", "192.168.77.7", "100.64.3.3", "169.254.169.254")
UPLINK, FAR_SIDE = "198.51.100.1", "198.51.100.2"


class TestEngine(OwnEngine):
    """The engine with its machine and what is beyond it."""

    __test__ = False

    def __init__(self) -> None:
        self._machine = f"eph{secrets.token_hex(4)}"
        enter = ("nsenter", f"--net=/run/netns/{self._machine}")
        super().__init__(enter, ("--default-address-pool", "base=10.200.0.0/16,size=28"))
        self.beyond = ("nsenter", f"--net=/run/netns/{self._machine}o")
        self.call, self.inspect, self.output = self.api.call, self.api.inspect, self.api.output

    def start(self) -> None:
        self._networks()
        super().start()

    def stop(self) -> None:
        super().stop()
        for name in (self._machine, f"{self._machine}o"):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=30)

    def execute(self, container: str, *command: str) -> int:
        """Run a program in a container and wait for it; return its exit code."""
        return self.output(container, *command)[0]

    def _networks(self) -> None:
        here, far = self._machine, f"{self._machine}o"
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


def busybox_image(mark: str = "") -> bytes:
    """Return a root folder with busybox and the stand-in runner at /runner, owned by the runner's user. Another
    `mark` makes another image."""
    return _image(lambda root: root.file("etc/mark", mark))


def image_with_engine() -> bytes:
    """Return the same with what a Docker Engine needs, of this machine's programs, and its client."""
    return _image(_add_engine)


def _image(more: Callable[[Root], None]) -> bytes:
    program = Path(shutil.which("busybox") or "busybox").resolve()
    applets = subprocess.run(
        [program, "--list"], capture_output=True, text=True, check=True, timeout=30
    ).stdout
    written = io.BytesIO()
    with tempfile.TemporaryDirectory() as temporary, tarfile.open(fileobj=written, mode="w") as tar:
        application = write_application(Path(temporary) / "runner")
        root = Root(tar)
        for name in ("bin", "etc", "proc", "sys"):
            root.folder(name)
        root.folder("tmp", mode=0o1777)
        more(root)
        root.file("bin/busybox", program.read_bytes(), mode=0o755)
        for library in libraries(program):
            root.file(str(library).lstrip("/"), library.read_bytes(), mode=0o755)
        for applet in sorted(set(applets.split()) - {"busybox"}):
            root.link(f"bin/{applet}", "busybox")
        root.file("etc/passwd", f"root:x:0:0::/:/bin/sh\nrunner:x:{USER}:{USER}::/runner:/bin/sh\n")
        root.file("etc/group", f"root:x:0:\nrunner:x:{USER}:\n")
        root.folder("runner", owner=USER)
        for path in sorted(application.rglob("*")):
            name = f"runner/{path.relative_to(application)}"
            if path.is_symlink():
                root.link(name, str(path.readlink()))
            elif path.is_dir():
                root.folder(name, owner=USER)
            else:
                root.file(name, path.read_bytes(), mode=path.stat().st_mode & 0o777, owner=USER)
    return written.getvalue()


def _add_engine(root: Root) -> None:
    for name in ENGINE_PROGRAMS:
        root.program(Path(shutil.which(name) or name), f"bin/{name}")
    tables = Path(shutil.which("iptables") or "iptables").resolve()
    root.program(tables, f"bin/{tables.name}")
    for name in ("iptables", "ip6tables"):
        root.link(f"bin/{name}", tables.name)
    for folder in Path("/usr/lib").glob("*/xtables"):
        for library in folder.glob("lib*.so"):
            root.file(str(library).lstrip("/"), library.read_bytes(), mode=0o755)
    root.folder("run")
    root.folder("var/lib")
    root.link("var/run", "/run")


def remove_left(folder: Path) -> None:
    """Remove a folder of a test."""
    shutil.rmtree(folder, ignore_errors=True)
