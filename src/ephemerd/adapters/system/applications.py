"""`ports.applications.Shelf`: versions of the runner application side by side in one folder.

Each version is a folder named by its key, which is complete or not there: it is fetched, verified and unpacked under
names that begin with a dot. Once it has its name nobody writes it, and its files say so: runners get copies, or
links that they cannot write. The lock keeps a second daemon from removing what the first one's runners use.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import platform
import shutil
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ephemerd.adapters.kit.fetch import Source, fetch
from ephemerd.adapters.kit.http import is_loopback
from ephemerd.adapters.kit.unpack import KINDS, unpack
from ephemerd.ports.applications import Offered, Unpacked, Use, Uses
from ephemerd.ports.errors import Broken, Refused

MOST_ARCHIVE = 2 * 1024**3
"""Bytes of an archive; a real one has some 200 MiB."""
FETCH_LIMIT, UNPACK_LIMIT = 1800.0, 900.0
"""Seconds."""
GROWTH = 5
"""Unpacked, an archive takes less than so many times its size."""
SYSTEMS = {"linux": "linux", "darwin": "osx", "win32": "win"}
ARCHITECTURES = {
    "x86_64": "x64",
    "amd64": "x64",
    "aarch64": "arm64",
    "arm64": "arm64",
    "armv7l": "arm",
    "armv6l": "arm",
}
NOTE = ".ephemerd.json"
PROGRAMS = (Path("bin/Runner.Listener"), Path("bin/Runner.Worker"))
VERSION = 1
MOST_NOTE = 1024 * 1024


def this_platform() -> tuple[str, str]:
    """Return system and architecture in the forge's words; the machine's own where it has none for them."""
    machine = platform.machine().lower()
    return SYSTEMS.get(sys.platform, sys.platform), ARCHITECTURES.get(machine, machine)


class ApplicationShelf:
    """The versions in one folder. Files are read and written in threads."""

    def __init__(
        self,
        folder: Path,
        *,
        user_agent: str,
        unverified: bool = False,
        system: str = "",
        architecture: str = "",
        most: int = MOST_ARCHIVE,
        fetch_limit: float = FETCH_LIMIT,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`unverified` allows what the forge states no checksum for; `most` is bytes, `fetch_limit` seconds."""
        own = this_platform()
        self.system, self.architecture = system or own[0], architecture or own[1]
        self.unverified = unverified
        self.folder = folder
        self._user_agent = user_agent
        self._most = most
        self._fetch_limit = fetch_limit
        self._now = now
        self._lock: int | None = None

    async def open(self) -> None:
        if self._lock is None:
            self._lock = await asyncio.to_thread(self._opened)

    async def close(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    async def unpacked(self) -> list[Unpacked]:
        return await asyncio.to_thread(self._unpacked)

    async def fetch(self, offered: Offered, progress: Callable[[int, int], None]) -> Unpacked:
        if found := await asyncio.to_thread(self._at_hand, offered.key):
            return found
        self._may_fetch(offered)
        part = self.folder / f".{offered.key}.part"
        loop = asyncio.get_running_loop()
        source = Source(offered.url, self._user_agent, offered.token, offered.ca_file)
        found_sum = await fetch(
            source,
            part,
            most=self._most,
            deadline=loop.time() + self._fetch_limit,
            resume=bool(offered.checksum),
            progress=progress,
        )
        if offered.checksum and found_sum != offered.checksum:
            await asyncio.to_thread(part.unlink, missing_ok=True)
            raise Refused(
                f"{offered.file} has the SHA-256 {found_sum}, and the forge states {offered.checksum}: it was thrown "
                "away. Does a proxy change what is fetched?"
            )
        return await asyncio.to_thread(self._unpack, offered, part, found_sum)

    async def remove(self, key: str) -> None:
        await asyncio.to_thread(self._remove, key)

    async def uses(self) -> dict[str, list[Use]]:
        return await asyncio.to_thread(self._uses)

    async def keep_uses(self, uses: Uses) -> None:
        await asyncio.to_thread(self._keep_uses, uses)

    # Below: in threads, but for `_may_fetch`.

    def _opened(self) -> int:
        try:
            self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            self.folder.chmod(0o755)  # whoever runs jobs has to come through
            lock = os.open(
                self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except OSError as error:
            raise Broken(f"{self.folder} cannot be used: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise Broken(
                f"another daemon keeps its runner applications in {self.folder}: give one of them another "
                "runner.work_dir"
            ) from None
        self._clear()
        return lock

    def _clear(self) -> None:
        """Remove what an earlier life left half done; a part of an archive is gone on with."""
        for entry in self.folder.iterdir():
            if entry.name.startswith(".") and entry.name.endswith((".new", ".old")):
                _discard(entry)

    def _unpacked(self) -> list[Unpacked]:
        try:
            names = sorted(entry.name for entry in self.folder.iterdir() if not entry.name.startswith("."))
        except OSError:
            return []
        return [found for name in names if (found := self._at_hand(name)) is not None]

    def _at_hand(self, key: str) -> Unpacked | None:
        note = _read(self.folder / key / NOTE)
        version, at = note.get("version"), note.get("at")
        if not isinstance(version, str) or not isinstance(at, int):
            return None
        return Unpacked(key, version, self.folder / key, at, note.get("verified") is True)

    def _may_fetch(self, offered: Offered) -> None:
        if "/" in offered.key or offered.key.startswith("."):
            raise Refused(f"the forge names a version {offered.version[:50]!r}, which is none")
        if not offered.file.endswith(KINDS):
            raise Refused(f"the forge offers {offered.file[:100]!r}, which is no archive of a known kind")
        if not offered.checksum and not self.unverified:
            raise Refused(
                f"the forge states no checksum for {offered.file[:100]}: set runner.download.unverified = true to use "
                "it all the same, or unpack it by hand and write the folder into runner.application"
            )
        if not offered.checksum and offered.url.startswith("http:") and not is_loopback(offered.url):
            raise Refused(f"{offered.file[:100]} has no checksum and no https: it is not fetched")

    def _unpack(self, offered: Offered, part: Path, found_sum: str) -> Unpacked:
        final, fresh = self.folder / offered.key, self.folder / f".{offered.key}.new"
        try:
            self._room(part.stat().st_size)
            _discard(fresh)
            size = unpack(part, offered.file, fresh, deadline=time.monotonic() + UNPACK_LIMIT)
            for program in PROGRAMS:
                if not _runs(fresh / _named(program, offered.system)):
                    raise Refused(f"{offered.file} holds no {program} that can be executed: it is not used")
            at = round(self._now() * 1000)
            note = {"version": offered.version, "at": at, "verified": bool(offered.checksum), "size": size}
            (fresh / NOTE).write_text(
                json.dumps({**note, "sha256": found_sum, "file": offered.file}), "utf-8"
            )
            _read_only(fresh)
            os.sync()  # a name after a crash of the machine has to mean that the files are whole
            if final.exists():  # of a name that no note makes a version
                _discard(final)
            fresh.rename(final)
        except Refused:
            part.unlink(missing_ok=True)  # the next try begins anew
            _discard(fresh)
            raise
        except OSError as error:
            _discard(fresh)
            raise Broken(f"{offered.file} cannot be unpacked in {self.folder}: {error.strerror}") from None
        except Broken:
            _discard(fresh)
            raise
        part.unlink(missing_ok=True)
        self._forget_parts()
        return Unpacked(offered.key, offered.version, final, at, bool(offered.checksum))

    def _room(self, archive: int) -> None:
        free, wanted = shutil.disk_usage(self.folder).free, archive * GROWTH
        if free < wanted:
            raise Broken(
                f"{self.folder} has {free // 1024**2} MiB left, and unpacking the runner application takes up to "
                f"{wanted // 1024**2} MiB: free space"
            )

    def _forget_parts(self) -> None:
        """A newer version is here: nobody goes on with an older archive."""
        for entry in self.folder.glob(".*.part"):
            entry.unlink(missing_ok=True)

    def _remove(self, key: str) -> None:
        """Take the name away first, so that what is half removed is no version."""
        if self._at_hand(key) is None:
            return
        old = self.folder / f".{key}.old"
        try:
            _discard(old)
            (self.folder / key).rename(old)
        except OSError as error:
            raise Broken(f"{self.folder / key} cannot be removed: {error.strerror}") from None
        _discard(old)

    def _uses(self) -> dict[str, list[Use]]:
        note = _read(self.folder / ".uses.json")
        told = note.get("uses") if note.get("version") == VERSION else None
        found: dict[str, list[Use]] = {}
        for scope, entries in told.items() if isinstance(told, dict) else ():
            pairs = entries if isinstance(entries, list) else []
            found[str(scope)] = [
                Use(pair[0], pair[1])
                for pair in pairs
                if isinstance(pair, list)
                and len(pair) == 2
                and isinstance(pair[0], str)
                and isinstance(pair[1], int)
            ]
        return found

    def _keep_uses(self, uses: Uses) -> None:
        content = {scope: [[use.key, use.since] for use in of_scope] for scope, of_scope in uses.items()}
        fresh = self.folder / ".uses.json.new"
        try:
            with fresh.open("w", encoding="utf-8") as file:
                json.dump({"version": VERSION, "uses": content}, file)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.folder / ".uses.json")
        except OSError as error:
            raise Broken(f"{fresh} cannot be written: {error.strerror}") from None


def _named(program: Path, system: str) -> Path:
    return program.with_name(f"{program.name}.exe") if system == "win" else program


def _runs(path: Path) -> bool:
    """Say whether a program is there and may be executed; Windows knows no such bit."""
    return path.is_file() and (path.suffix == ".exe" or bool(path.stat().st_mode & stat.S_IXUSR))


def _read_only(root: Path) -> None:
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            path = Path(folder) / name
            if not path.is_symlink():
                path.chmod(stat.S_IMODE(path.stat().st_mode) & 0o555 | 0o444)
        Path(folder).chmod(0o555)


def _discard(path: Path) -> None:
    """Remove a folder of ours that is read only, or a file."""
    if path.is_dir() and not path.is_symlink():
        for folder, _, _ in os.walk(path):
            Path(folder).chmod(0o755)
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MOST_NOTE:
            return {}
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
