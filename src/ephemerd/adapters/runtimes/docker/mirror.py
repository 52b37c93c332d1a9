"""Copies of a container's files on this machine, so that they can be followed, and stay when it goes.

A copy never hides what became of the original: what shrank or was exchanged there is exchanged here, and what
is missing there is missing here. Whoever reads the copy sees all of it (`kit.evidence`).
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tarfile
from pathlib import Path

from ephemerd.adapters.runtimes.docker import local
from ephemerd.adapters.runtimes.docker.reference import Place

FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
FILE_MOST = 32 * 1024 * 1024
CHUNK = 1024 * 1024
DIAG_FILES = 16
PERF_FILE = "Runner.perf"


class Copy:
    """One file's copy."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity: tuple[int, int] | None = None
        self._size = 0
        self.fault = ""

    def same(self, status: os.stat_result) -> bool:
        """Say whether nothing has changed since the last copy."""
        return (status.st_dev, status.st_ino) == self._identity and status.st_size == self._size

    def take(self, descriptor: int) -> None:
        """Copy what is new of an open file."""
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            self.missing()
            return
        identity = (status.st_dev, status.st_ino)
        if self._identity is None and self.path.exists():
            # Copied as a whole until now: what is the same goes on, anything else was exchanged.
            known = self.path.read_bytes()
            if os.pread(descriptor, len(known), 0) == known:
                self._identity, self._size = identity, len(known)
            else:
                self._anew(exchanged=True)
        elif identity != self._identity or status.st_size < self._size:
            self._anew(exchanged=self._identity is not None)
        self._identity = identity
        with self.path.open("ab") as copy:
            while self._size < FILE_MOST:
                text = os.pread(descriptor, CHUNK, self._size)
                if not text:
                    break
                copy.write(text)
                self._size += len(text)
        if self._size >= FILE_MOST:
            self.fault = "longer than is read"

    def take_whole(self, text: bytes) -> None:
        """Copy a file that came as a whole: what continues the copy is added, anything else exchanges it."""
        known = self.path.read_bytes() if self.path.exists() else None
        if known is None or not text.startswith(known):
            self._anew(exchanged=known is not None)
            known = b""
        if len(text) > len(known) or not self.path.exists():
            with self.path.open("ab") as copy:
                copy.write(text[len(known) : FILE_MOST])
        self._identity = None
        if len(text) >= FILE_MOST:
            self.fault = "longer than is read"

    def missing(self) -> None:
        """The original is not there."""
        if self.path.exists():
            self.fault = "no longer there"
            self.path.unlink()
        self._identity, self._size = None, 0

    def _anew(self, *, exchanged: bool) -> None:
        """Begin again; under another inode, so that a reader knows."""
        self._size = 0
        if exchanged:
            fresh = self.path.with_suffix(".new")
            fresh.write_bytes(b"")
            fresh.replace(self.path)


class Mirror:
    """The copies of one runner. The first look makes the folder anew; all calls block for a moment.

    root   the folder of the runner application in the container
    """

    def __init__(self, place: Place, root: str) -> None:
        self._place = place
        self._root = root.rstrip("/")
        self._perf = Copy(place.perf / PERF_FILE)
        self._diags: dict[str, Copy] = {}
        self._folder: int | None = None
        self._made = False

    @property
    def fault(self) -> str:
        """Why the performance file's copy proves nothing any more; empty where it is whole."""
        return f"the performance file is {self._perf.fault}" if self._perf.fault else ""

    @property
    def perf_path(self) -> str:
        """Where the performance file is in the container."""
        return f"{self._root}/_perf/{PERF_FILE}"

    def make(self) -> None:
        """Make the folders, empty."""
        if self._made:
            return
        for folder in (self._place.perf, self._place.diag):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in folder.iterdir():
                left.unlink()
        self._made = True

    def changed(self) -> bool:
        """Say cheaply whether the performance file has something new; true where that is not known."""
        if self._folder is None:
            return True
        try:
            return not self._perf.same(os.stat(PERF_FILE, dir_fd=self._folder, follow_symlinks=False))
        except OSError:
            return True

    def sync_local(self, pid: int, container: str) -> bool:
        """Copy from the container's own root; return whether that was possible. The performance file comes
        last: an offer is written there before anything else is written anywhere."""
        self.make()
        root = local.open_root(pid, container)
        if root is None:
            return False
        try:
            self._take_diag(local.open_below(root, f"{self._root}/_diag"))
            local.close(self._folder)
            self._folder = local.open_below(root, f"{self._root}/_perf")
            self._take(self._folder, PERF_FILE, self._perf)
        finally:
            local.close(root)
        return True

    def sync_archive(self, archive: bytes | None) -> None:
        """Copy the performance file out of an archive; None where the container has none."""
        self.make()
        text = None if archive is None else only_file(archive)
        if text is None:
            self._perf.missing()
        else:
            self._perf.take_whole(text)

    def diag_archive(self, archive: bytes) -> None:
        """Copy the diagnostics out of an archive of their folder."""
        self.make()
        with contextlib.suppress(tarfile.TarError), tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            members = [m for m in tar.getmembers() if m.isreg() and _is_diag(Path(m.name).name)]
            for member in sorted(members, key=lambda m: m.name)[-DIAG_FILES:]:
                text = tar.extractfile(member)
                if text is not None:
                    self._diag(Path(member.name).name).take_whole(text.read(FILE_MOST))

    def close(self) -> None:
        """Let go of what is open."""
        local.close(self._folder)
        self._folder = None

    def _take_diag(self, folder: int | None) -> None:
        if folder is None:
            return
        try:
            with os.scandir(folder) as entries:
                names = sorted(
                    e.name for e in entries if _is_diag(e.name) and e.is_file(follow_symlinks=False)
                )
            for name in names[-DIAG_FILES:]:
                self._take(folder, name, self._diag(name))
        except OSError:
            return
        finally:
            local.close(folder)

    def _diag(self, name: str) -> Copy:
        return self._diags.setdefault(name, Copy(self._place.diag / name))

    @staticmethod
    def _take(folder: int | None, name: str, copy: Copy) -> None:
        try:
            descriptor = os.open(name, FILE, dir_fd=folder) if folder is not None else None
        except OSError:
            descriptor = None
        if descriptor is None:
            copy.missing()
            return
        try:
            copy.take(descriptor)
        finally:
            os.close(descriptor)


def _is_diag(name: str) -> bool:
    return name.endswith(".log") and name.startswith(("Runner_", "Worker_")) and "/" not in name


def only_file(archive: bytes) -> bytes | None:
    """Return the one plain file of an archive; None for a link or anything else."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            member = tar.next()
            if member is None or not member.isreg():
                return None
            file = tar.extractfile(member)
            return None if file is None else file.read(FILE_MOST)
    except tarfile.TarError:
        return None
