"""Makes an image of this machine's files: an interpreter, its library, a shell and a few programs. No registry."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable
from pathlib import Path

USER = 1001
HOME = "home/runner"
PROGRAMS = ("sh", "sleep", "rm", "mkdir", "cat", "kill")
LEFT_OUT = frozenset(
    {
        *("site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "ensurepip", "lib2to3"),
        *("turtledemo", "distutils", "pydoc_data", "config", "unittest", "sqlite3", "dbm"),
    }
)


def python_image(interpreter: str | None = None) -> bytes:
    """Return the root folder of an image in which scripts of this interpreter run, as a tar archive.

    The interpreter stands where it stands here, so that a script may name it. Its user owns ``/home/runner``.
    """
    program = Path(interpreter or os.path.realpath(sys.executable))
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        root = Root(tar)
        for name in ("proc", "sys", "dev", "etc", "usr", "bin"):
            root.folder(name)
        root.folder("tmp", mode=0o1777)
        root.folder(HOME, owner=USER)
        root.file("etc/passwd", f"root:x:0:0::/:/bin/sh\nrunner:x:{USER}:{USER}::/{HOME}:/bin/sh\n")
        root.file("etc/group", f"root:x:0:\nrunner:x:{USER}:\n")
        for found in (found for name in PROGRAMS if (found := shutil.which(name)) is not None):
            root.program(Path(found), f"bin/{Path(found).name}")
        root.program(program, str(program).lstrip("/"))
        paths = sysconfig.get_paths()
        for library in dict.fromkeys((paths["stdlib"], paths["platstdlib"])):
            root.library(Path(library))
    return written.getvalue()


class Root:
    """A root folder in the making."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._known: set[str] = set()

    def folder(self, name: str, *, mode: int = 0o755, owner: int = 0) -> None:
        """Add a folder, and those above it."""
        parent = os.path.dirname(name)  # noqa: PTH120 - names of an archive, not paths of this machine
        if parent and parent not in self._known:
            self.folder(parent)
        if name in self._known:
            return
        self._known.add(name)
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, mode, owner, owner
        self._tar.addfile(entry)

    def file(
        self, name: str, content: str | bytes, *, mode: int = 0o644, owner: int = 0, written: float = 0
    ) -> None:
        """Add a file; one that is there already stays. ``written`` is when it was, in s since 1970."""
        if name in self._known:
            return
        self.folder(os.path.dirname(name))  # noqa: PTH120
        self._known.add(name)
        text = content.encode() if isinstance(content, str) else content
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode, entry.uid, entry.gid = len(text), mode, owner, owner
        entry.mtime = int(written)
        self._tar.addfile(entry, io.BytesIO(text))

    def link(self, name: str, target: str) -> None:
        """Add a symbolic link."""
        if name not in self._known:
            self._known.add(name)
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            self._tar.addfile(entry)

    def program(self, source: Path, name: str) -> None:
        """Add a program with the libraries that it needs, where its loader looks for them."""
        self.file(name, source.read_bytes(), mode=0o755)
        for library in libraries(source):
            self.file(str(library).lstrip("/"), library.read_bytes(), mode=0o755)

    def library(self, folder: Path) -> None:
        """Add a library of Python modules, compiled ones with it, less what no runner needs."""
        for path in _files(folder):
            name = str(path).lstrip("/")
            # A compiled module counts only beside a source of its own time.
            self.file(name, path.read_bytes(), written=path.stat().st_mtime)
            if path.suffix == ".so":
                for needed in libraries(path):
                    self.file(str(needed).lstrip("/"), needed.read_bytes(), mode=0o755)


def _files(folder: Path) -> Iterable[Path]:
    tag = f".{sys.implementation.cache_tag}.pyc"
    for where, below, names in os.walk(folder):
        below[:] = sorted(each for each in below if each not in LEFT_OUT and not each.startswith("config-"))
        for name in sorted(names):
            path = Path(where, name)
            if name.endswith((".py", ".so", tag)) and path.is_file():
                yield path


def libraries(program: Path) -> list[Path]:
    """Return the shared libraries of a program; none for a static one."""
    told = subprocess.run(
        ["ldd", str(program)], capture_output=True, text=True, timeout=60, check=False
    ).stdout
    return [Path(found) for found in re.findall(r"(?:=> )?(/\S+) \(0x", told)]
