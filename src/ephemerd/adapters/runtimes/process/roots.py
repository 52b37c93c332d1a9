"""A runner's folder: made from the application, and removed whatever a job left in it.

The application is a template. Its files are shared (hard links, a link to `externals`) only with a user
who can neither own nor write them; everybody else gets blocks shared copy-on-write, or a copy.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ephemerd.adapters.runtimes.process.identity import Place
from ephemerd.adapters.runtimes.process.options import Account
from ephemerd.ports.errors import Broken

CHUNK = 1024 * 1024
LONG = struct.Struct("l")
GET_FLAGS, SET_FLAGS = (
    0x8000_6601 | LONG.size << 16,
    0x4000_6602 | LONG.size << 16,
)  # FS_IOC_…, of <linux/fs.h>
TOP_FOLDER = 0x0002_0000  # FS_TOPDIR_FL
LISTENER = Path("bin/Runner.Listener")
WORKER = Path("bin/Runner.Worker")


def check_application(application: Path) -> None:
    """Raise `Broken` with what to do where a folder is not an unpacked runner application."""
    for name in (LISTENER, WORKER):
        path = application / name
        if not path.is_file():
            raise Broken(
                f"there is no {name} in {application}: unpack the runner application there, "
                "or set runner.application"
            )
        if not path.stat().st_mode & 0o111:
            raise Broken(f"{path} is not executable: unpack the runner application anew")


def writable_by(status: os.stat_result, account: Account) -> bool:
    """Say whether an account owns a file (and so may make it writable) or can write it now."""
    if account.uid in (0, status.st_uid):
        return True
    if status.st_gid in (account.gid, *account.groups):
        return bool(status.st_mode & stat.S_IWGRP)
    return bool(status.st_mode & stat.S_IWOTH)


def out_of_reach(tree: Path, account: Account) -> bool:
    """Say whether an account can neither own nor write anything in a tree."""
    if writable_by(tree.lstat(), account):
        return False
    for folder, folders, files in os.walk(tree):
        for name in (*folders, *files):
            status = (Path(folder) / name).lstat()
            if not stat.S_ISLNK(status.st_mode) and writable_by(status, account):
                return False
    return True


class Builder:
    """Copies one tree for one account, within a deadline (`time.monotonic()` seconds)."""

    def __init__(self, account: Account, reflink: Callable[[int, int], bool], deadline: float) -> None:
        self._account = account
        self._reflink: Callable[[int, int], bool] | None = reflink
        self._links = True
        self._deadline = deadline

    def tree(self, source: Path | str, target: Path | str) -> None:
        """Copy a folder, links as links. Everything new is given to the account at the end.

        A start waits for this, and each step lets other threads of the daemon go first: there are few of them.
        """
        Path(target).mkdir(mode=0o755)
        with os.scandir(source) as entries:
            for entry in entries:
                if time.monotonic() > self._deadline:
                    raise Broken(f"copying {source} took too long: is the disk overloaded or full?")
                copy = f"{target}/{entry.name}"
                if entry.is_symlink():
                    Path(copy).symlink_to(Path(entry.path).readlink())
                    self._give(copy)
                elif entry.is_dir():
                    self.tree(entry.path, copy)
                elif entry.is_file():
                    self._file(entry, copy)
        self._give(target)

    def _file(self, entry: os.DirEntry[str], copy: str) -> None:
        status = entry.stat(follow_symlinks=False)
        if self._links and not writable_by(status, self._account):
            try:
                os.link(entry.path, copy)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
                    raise
                self._links = False
            else:
                return  # shared: never given away, since that would give the template's file away
        reading = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            writing = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                if not self._clone(reading, writing):
                    copy_content(reading, writing, status.st_size)
            finally:
                os.close(writing)
        finally:
            os.close(reading)
        Path(copy).chmod(stat.S_IMODE(status.st_mode) & 0o777)
        self._give(copy)

    def _clone(self, reading: int, writing: int) -> bool:
        if self._reflink is None:
            return False
        if self._reflink(reading, writing):
            return True
        self._reflink = None  # one filesystem, one answer
        return False

    def _give(self, path: Path | str) -> None:
        if self._account.switch:
            os.chown(path, self._account.uid, self._account.gid, follow_symlinks=False)


def copy_content(reading: int, writing: int, size: int) -> None:
    """Copy an open file, by the kernel as far as that can, to its end however long it is by now."""
    try:
        while size > 0 and (done := os.copy_file_range(reading, writing, size)):
            size -= done
    except (AttributeError, OSError):
        pass  # not here, or not between these: what is left comes below, where a full disk shows again
    while part := os.read(reading, CHUNK):
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(writing, rest) :]


def spread(folder: Path) -> None:
    """Let an ext4 filesystem give each folder in this one a part of the disk of its own, as it does for home folders.

    For minutes ext4 takes no inode again that was freed, and passes them over one by one. Where runners come and go in
    one part of the disk, that costs most of a millisecond for each file of the next runner. Other filesystems know
    neither the trouble nor the mark.
    """
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            (marks,) = LONG.unpack(fcntl.ioctl(descriptor, GET_FLAGS, bytes(LONG.size)))
            fcntl.ioctl(descriptor, SET_FLAGS, LONG.pack(marks | TOP_FOLDER))
        finally:
            os.close(descriptor)


def make_folder(place: Place) -> None:
    """Make the daemon's own part: a folder that others may only pass through, and the state in it."""
    if not place.folder.parent.exists():
        place.folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        spread(place.folder.parent)
    place.log.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    place.folder.mkdir(mode=0o711)
    place.folder.chmod(0o711)
    place.state.mkdir(mode=0o700)


def build(place: Place, application: Path, account: Account, builder: Builder, *, share: bool) -> None:
    """Make the application's root below the folder; `share`: `externals` may be a link to the template."""
    place.root.mkdir(mode=0o700)
    builder.tree(application / "bin", place.root / "bin")
    externals = application / "externals"
    if externals.is_dir() and share:
        (place.root / "externals").symlink_to(externals.resolve())
    elif externals.is_dir():
        builder.tree(externals.resolve(), place.root / "externals")
    for folder in (place.perf, place.root):
        folder.mkdir(mode=0o700, exist_ok=True)
        if account.switch:
            os.chown(folder, account.uid, account.gid)
