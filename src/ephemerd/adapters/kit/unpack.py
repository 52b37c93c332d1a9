"""Unpacking an archive that came from elsewhere: inside its folder and nowhere else, within bounds, modes kept.

Links are made last, so that no file is ever written through one, and none may lead out of the folder. Whoever owns
things in the archive, they become the daemon's own. Blocks; call it in a thread.
"""

from __future__ import annotations

import errno
import shutil
import stat
import tarfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from ephemerd.ports.errors import Broken, Refused

MOST_BYTES = 8 * 1024**3
MOST_ENTRIES = 500_000
LONGEST_NAME = 1024
CHUNK = 1024 * 1024
KINDS = (".tar.gz", ".tgz", ".zip")
MODES = 0o755
"""Of a file's mode bits, what is kept: nobody but the owner may write, and nothing is set-user-id."""


@dataclass(slots=True)
class _Unpacking:
    """One archive on its way into a folder. `deadline` in seconds of `time.monotonic()`."""

    root: Path
    deadline: float
    most_bytes: int
    most_entries: int
    written: int = 0
    entries: int = 0
    links: list[tuple[Path, str]] = field(default_factory=list)
    copies: list[tuple[Path, Path]] = field(default_factory=list)

    def place(self, name: str) -> Path:
        """Return where an entry goes, its folders made; `Refused` for what is no plain path inside."""
        self.entries += 1
        if self.entries > self.most_entries:
            raise Refused(f"the archive holds more than {self.most_entries} entries; it is not unpacked")
        path = self.root / self.inside(name)
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        return path

    def inside(self, name: str) -> PurePosixPath:
        """Return a name as a path below the root; `Refused` where it is none."""
        path = PurePosixPath(name)
        odd = any(sign in name for sign in "\\\0:")
        if odd or path.is_absolute() or ".." in path.parts or len(name) > LONGEST_NAME:
            raise Refused(
                f"the archive holds {name[:100]!r}, which leads out of its folder; it is not unpacked"
            )
        return path

    def write(self, name: str, source: IO[bytes], mode: int) -> None:
        path = self.place(name)
        with path.open("xb") as file:
            while chunk := source.read(CHUNK):
                self.written += len(chunk)
                if self.written > self.most_bytes:
                    raise Refused(
                        f"the archive unpacks to more than {self.most_bytes} bytes; it is not unpacked"
                    )
                if time.monotonic() > self.deadline:
                    raise Broken("unpacking took too long: is the disk overloaded or full?")
                file.write(chunk)
        path.chmod(mode & MODES | 0o600)

    def folder(self, name: str) -> None:
        self.place(name).mkdir(mode=0o755, exist_ok=True)

    def link(self, name: str, target: str) -> None:
        self.links.append((self.place(name), target))

    def copy(self, name: str, source: str) -> None:
        self.copies.append((self.place(name), self.root / self.inside(source)))

    def finish(self) -> None:
        """Make what refers to others, now that all of them are there."""
        for path, source in self.copies:
            if source.is_symlink() or not source.is_file():
                raise Refused(f"the archive's {path.name!r} is a link to nothing in it; it is not unpacked")
            self.written += source.stat().st_size
            if self.written > self.most_bytes:
                raise Refused(f"the archive unpacks to more than {self.most_bytes} bytes; it is not unpacked")
            with source.open("rb") as reading, path.open("xb") as writing:
                shutil.copyfileobj(reading, writing, CHUNK)
            path.chmod(stat.S_IMODE(source.stat().st_mode))
        for path, target in self.links:
            if PurePosixPath(target).is_absolute() or "\0" in target:
                raise Refused(f"the archive's link {path.name!r} leads out of its folder; it is not unpacked")
            path.symlink_to(target)
        root = self.root.resolve()
        for path, _ in self.links:
            if _endless(path):
                raise Refused(f"the archive's link {path.name!r} leads round in circles; it is not unpacked")
            if not path.resolve().is_relative_to(root):
                raise Refused(f"the archive's link {path.name!r} leads out of its folder; it is not unpacked")


def _endless(link: Path) -> bool:
    """Whether links lead only to links; `Path.resolve` says so no longer, since Python 3.13."""
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def unpack(
    archive: Path,
    name: str,
    folder: Path,
    *,
    deadline: float,
    most_bytes: int = MOST_BYTES,
    most_entries: int = MOST_ENTRIES,
) -> int:
    """Unpack into a folder that does not exist yet; return the bytes written.

    name       of the archive, which says its kind (`KINDS`)
    deadline   seconds of `time.monotonic()`

    `Refused` for what is no archive of that kind or holds what does not belong there, `Broken` where this machine
    cannot; the folder is then half full and to be removed.
    """
    folder.mkdir(mode=0o755)
    work = _Unpacking(folder, deadline, most_bytes, most_entries)
    with _told(name):
        if name.endswith(".zip"):
            _zip(archive, work)
        elif name.endswith((".tar.gz", ".tgz")):
            _tar(archive, work)
        else:
            raise Refused(f"{name!r} is no archive of a known kind ({', '.join(KINDS)})")
        work.finish()
    return work.written


@contextmanager
def _told(name: str) -> Iterator[None]:
    try:
        yield
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise Refused(f"{name} is damaged: {error}") from None
    except FileExistsError as error:
        raise Refused(f"{name} holds {Path(str(error.filename)).name!r} twice; it is not unpacked") from None
    except OSError as error:
        if error.errno is None:  # gzip: not a gzipped file, a wrong sum
            raise Refused(f"{name} is damaged: {error}") from None
        raise Broken(f"{name} cannot be unpacked: {error.strerror}") from None


def _tar(archive: Path, work: _Unpacking) -> None:
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            if member.isdir():
                work.folder(member.name)
            elif member.isreg():
                source = tar.extractfile(member)
                assert source is not None, "a plain file has content"
                work.write(member.name, source, member.mode)
            elif member.issym():
                work.link(member.name, member.linkname)
            elif member.islnk():
                work.copy(member.name, member.linkname)
            else:
                raise Refused(
                    f"the archive holds {member.name[:100]!r}, which is no file; it is not unpacked"
                )


def _zip(archive: Path, work: _Unpacking) -> None:
    with zipfile.ZipFile(archive) as packed:
        for entry in packed.infolist():
            mode = entry.external_attr >> 16
            if entry.is_dir():
                work.folder(entry.filename)
                continue
            with packed.open(entry) as source:
                if stat.S_ISLNK(mode):
                    work.link(entry.filename, source.read(LONGEST_NAME).decode("utf-8", "replace"))
                else:
                    work.write(entry.filename, source, stat.S_IMODE(mode) or 0o644)
