"""Fetching a large file: within bounds, to a name of its own, gone on with where an earlier try broke off.

What has come is judged by its SHA-256 alone, so that a part of an earlier try may be kept: a wrong one shows in the
sum. Redirects are followed, never from https to http, and a token goes nowhere but where it was meant for.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import SplitResult, urljoin, urlsplit

from ephemerd.adapters.kit.answer import NoAnswer
from ephemerd.adapters.kit.http import HttpClient
from ephemerd.ports.errors import Broken, PortError, Refused, RetryLater

REDIRECTS = frozenset({301, 302, 303, 307, 308})
MOST_REDIRECTS = 5
PIECE = 1024 * 1024
"""Bytes that are written and summed up at a time, in a thread."""
STALL = 60.0
"""Seconds in which something has to come."""
OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Source:
    """Where a file is.

    token      sent as a bearer to the origin of `url` alone; "" for none
    ca_file    authorities that replace the system's at the origin of `url`, or None
    """

    url: str
    user_agent: str
    token: str = ""
    ca_file: Path | None = None

    def __repr__(self) -> str:
        return f"Source({_shown(self.url)!r})"


async def fetch(
    source: Source,
    part: Path,
    *,
    most: int,
    deadline: float,
    resume: bool,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> str:
    """Fetch into `part`; return the SHA-256 of the whole, as hex digits.

    most       bytes that it may have
    deadline   time of the event loop, seconds
    resume     go on with what `part` holds already; else it begins anew
    progress   told the bytes that are there, and all of them (0 where that is not known)

    `Refused` where the source will not give it (and `part` is gone), `RetryLater` where it may another time,
    `Broken` where this machine cannot keep it. Where `part` may be gone on with, it is left there.
    """
    try:
        async with asyncio.timeout_at(deadline):
            return await _fetch(source, part, most, progress, resume=resume)
    except TimeoutError:
        pass
    except NoAnswer as error:
        raise RetryLater(f"{_shown(source.url)}: {error.text}") from None
    except OSError as error:
        raise Broken(f"{part} cannot be written: {error.strerror}; is the disk full?") from None
    raise RetryLater(f"{_shown(source.url)} did not come in time")


async def _fetch(
    source: Source, part: Path, most: int, progress: Callable[[int, int], None], *, resume: bool
) -> str:
    if not resume:
        part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, OPEN, 0o600), "r+b") as file:
        try:
            work = await asyncio.to_thread(_Part, file, most)
            await _follow(source, work, progress)
        except Refused:
            part.unlink(missing_ok=True)
            raise
        await asyncio.to_thread(work.close)
    return work.sum.hexdigest()


class _Part:
    """The file so far, and the sum over it."""

    def __init__(self, file: IO[bytes], most: int) -> None:
        self.sum = hashlib.sha256()
        self.size = 0
        self.most = most
        self._file = file
        while piece := file.read(PIECE):
            self._count(piece)

    def _count(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > self.most:
            raise Refused(f"it is larger than {self.most} bytes; it is not fetched")
        self.sum.update(piece)

    def begin_anew(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self.sum, self.size = hashlib.sha256(), 0

    def write(self, piece: bytes) -> None:
        self._count(piece)
        self._file.write(piece)

    def close(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


async def _follow(source: Source, work: _Part, progress: Callable[[int, int], None]) -> None:
    url = source.url
    _usable(url, source)
    first = _origin(url)
    for _ in range(MOST_REDIRECTS + 1):
        parts = _usable(url, source)
        at_home = _origin(url) == first
        headers = {"User-Agent": source.user_agent, "Accept": "application/octet-stream"}
        headers["Accept-Encoding"] = "identity"
        if source.token and at_home:
            headers["Authorization"] = f"Bearer {source.token}"
        if work.size:
            headers["Range"] = f"bytes={work.size}-"
        client = HttpClient(url, ca_file=source.ca_file if at_home else None)
        try:
            async with (
                asyncio.timeout(STALL) as patience,
                client.opened(url, headers=headers) as (
                    status,
                    named,
                    body,
                ),
            ):
                location = named.get("location", "")
                if status in REDIRECTS and location:
                    url = _joined(url, location, source)
                    if parts.scheme == "https" and urlsplit(url).scheme != "https":
                        raise Refused(f"{_shown(source.url)} leads from https to http; it is not followed")
                    continue
                await _begin(source, work, status, named)
                await _take(work, body, patience, _total(work, named), progress)
                return
        finally:
            await client.close()
    raise Refused(f"{_shown(source.url)} leads on and on; it is not followed")


async def _begin(source: Source, work: _Part, status: int, named: dict[str, str]) -> None:
    """Judge an answer's head: whether it goes on where the part ends, or begins anew."""
    if status == 206 and work.size and named.get("content-range", "").startswith(f"bytes {work.size}-"):
        pass
    elif status in (200, 206, 416) and work.size:
        await asyncio.to_thread(work.begin_anew)
        if status != 200:
            raise RetryLater(f"{_shown(source.url)} does not go on where it broke off; it begins anew")
    elif status != 200:
        raise _fault(source, status, named)
    if _total(work, named) > work.most:
        raise Refused(f"{_shown(source.url)} is larger than {work.most} bytes; it is not fetched")


def _fault(source: Source, status: int, named: dict[str, str]) -> PortError:
    what = f"{_shown(source.url)} answered {status}"
    if status in (408, 429) or status >= 500:
        wait = _number(named.get("retry-after", ""))
        return RetryLater(what, after_ms=wait * 1000 if wait is not None else None)
    return Refused(f"{what}: is the address right, and does a proxy let it through?")


def _total(work: _Part, named: dict[str, str]) -> int:
    length = _number(named.get("content-length", ""))
    return work.size + length if length is not None else 0


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None


async def _take(
    work: _Part,
    body: AsyncIterator[bytes],
    patience: asyncio.Timeout,
    total: int,
    progress: Callable[[int, int], None],
) -> None:
    loop = asyncio.get_running_loop()
    waiting = bytearray()
    try:
        async for chunk in body:
            patience.reschedule(loop.time() + STALL)
            waiting += chunk
            if len(waiting) >= PIECE:
                piece, waiting = bytes(waiting), bytearray()
                await asyncio.to_thread(work.write, piece)
                progress(work.size, total)
    finally:
        if waiting:
            await asyncio.to_thread(work.write, bytes(waiting))
    progress(work.size, total)


def _joined(url: str, location: str, source: Source) -> str:
    """Return where a redirect leads; `Refused` where that is no address at all."""
    try:
        return urljoin(url, location)
    except ValueError:
        raise _not_plain(source) from None


def _usable(url: str, source: Source) -> SplitResult:
    parts = urlsplit(url)
    try:
        plain = parts.scheme in ("https", "http") and parts.hostname and parts.port != 0
    except ValueError:  # the port
        plain = False
    if not plain or parts.username or parts.password:
        raise _not_plain(source)
    return parts


def _not_plain(source: Source) -> Refused:
    return Refused(f"{_shown(source.url)} leads to what is no plain http or https address")


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _shown(url: str) -> str:
    """Return an address without its query, which may hold a signature."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"[:200]
