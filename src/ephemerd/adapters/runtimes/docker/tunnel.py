"""A way to an engine on another machine: OpenSSH forwards a local socket to the engine's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from ephemerd.ports.errors import Broken, RetryLater

READY_LIMIT = 20.0
STOP_LIMIT = 5.0
REMOTE_SOCKET = "/var/run/docker.sock"
SSH_OPTIONS = (
    *("-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3", "-o", "StreamLocalBindUnlink=yes"),
)


class Tunnel:
    """One `ssh` that is started when it is needed and again when it has ended.

    url       ssh://[USER@]HOST[:PORT][/SOCKET]; the account's own ssh settings, keys and known hosts count
    program   the ssh client, with arguments
    """

    def __init__(self, url: str, program: Sequence[str] = ("ssh",)) -> None:
        self._url = url
        self._program = tuple(program)
        self._folder: Path | None = None
        self.process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()

    async def ready(self) -> Path:
        """Return the local socket once the other side can be reached through it."""
        async with self._lock:
            if self.process is None or self.process.returncode is not None:
                await self._open()
            assert self._folder is not None
            return self._folder / "engine.sock"

    async def close(self) -> None:
        """End the tunnel."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
            try:
                async with asyncio.timeout(STOP_LIMIT):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
                await self.process.wait()
        self.process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    async def _open(self) -> None:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="ephemerd-ssh-"))
        local = self._folder / "engine.sock"
        local.unlink(missing_ok=True)
        command = [*self._program, *arguments(self._url, local)]
        errors = self._folder / "errors"
        try:
            with errors.open("wb") as file:
                self.process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=file,
                    start_new_session=True,
                )
        except OSError as error:
            raise Broken(f"ssh cannot be started ({error}): install the OpenSSH client") from None
        try:
            async with asyncio.timeout(READY_LIMIT):
                while not _accepts(local):
                    if self.process.returncode is not None:
                        raise RetryLater(f"no way to {self._url}: {_last_words(errors)}")
                    await asyncio.sleep(0.05)
        except TimeoutError:
            await self.close()
            raise RetryLater(f"no way to {self._url} within {READY_LIMIT:g} s") from None


def _accepts(local: Path) -> bool:
    """Say whether somebody listens on a socket: between its making and that, connections are refused."""
    with socket.socket(socket.AF_UNIX) as trial:
        trial.setblocking(False)
        try:
            trial.connect(str(local))
        except BlockingIOError:  # it listens, and many wait
            return True
        except OSError:
            return False
        return True


def arguments(url: str, local: Path) -> list[str]:
    """Return what ssh is called with."""
    parts = urlsplit(url)
    if not parts.hostname or parts.hostname.startswith("-") or (parts.username or "").startswith("-"):
        raise Broken(f"{url!r} names no machine: write ssh://USER@HOST")
    remote = parts.path if parts.path not in ("", "/") else REMOTE_SOCKET
    port = ["-p", str(parts.port)] if parts.port else []
    login = ["-l", parts.username] if parts.username else []
    return ["-N", *SSH_OPTIONS, *port, *login, "-L", f"{local}:{remote}", "--", parts.hostname]


def _last_words(errors: Path) -> str:
    with contextlib.suppress(OSError), errors.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(file.tell() - 400, 0))
        text = file.read().decode(errors="replace").strip()
        if text:
            return text.splitlines()[-1]
    return "ssh ended without a word"
