"""Reading a request's body within bounds: size, time, and what all requests hold together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.types import Message, Receive

LIMIT = 25 * 1024 * 1024
"""GitHub's cap on a payload, 25 MB (github.md, 9.3)."""
DRAIN = 1024 * 1024
"""What is read beyond the limit, so that a client that still sends sees the answer, not a reset."""
READ_LIMIT = 10.0
"""Seconds for a whole body: as long as GitHub waits for its answer."""
ALL_TOGETHER = 4 * LIMIT
"""Bytes that all bodies being read or stored may hold at one time; more is answered 503."""


class TooLarge(Exception):
    """Beyond the limit: 413. `declared` when nothing of it was read."""


class TooSlow(Exception):
    """Not complete within the deadline: 408."""


class Overloaded(Exception):
    """All bodies together hold too much already: 503."""


class Disconnected(Exception):
    """The client went away; nobody reads an answer."""


class Bodies:
    """Counts what bodies hold in memory, over all requests of one server."""

    def __init__(self, limit: int = LIMIT, together: int = ALL_TOGETHER, seconds: float = READ_LIMIT) -> None:
        self._limit = limit
        self._together = together
        self._seconds = seconds
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes held now."""
        return self._held

    def lease(self) -> Lease:
        """Begin to read one body; leave the context when it is not needed any more."""
        return Lease(self)

    def _take(self, count: int) -> None:
        if self._held + count > self._together:
            raise Overloaded
        self._held += count

    def _give_back(self, count: int) -> None:
        self._held -= count


class Lease:
    """One body's share of the memory, given back at the end of the context."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._count = 0

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self._bodies._give_back(self._count)
        self._count = 0

    async def read(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        """Return the whole body. Raises `TooLarge`, `TooSlow`, `Overloaded` or `Disconnected`."""
        bodies = self._bodies
        try:
            async with asyncio.timeout(bodies._seconds):
                if declared_size(headers) > bodies._limit:
                    await _drain(receive, DRAIN)
                    raise TooLarge
                return await self._collect(receive)
        except TimeoutError:
            raise TooSlow from None

    async def _collect(self, receive: Receive) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            chunk = _chunk(message)
            size += len(chunk)
            if size > self._bodies._limit:
                chunks.clear()
                if message.get("more_body", False):
                    await _drain(receive, DRAIN - len(chunk))
                raise TooLarge
            self._bodies._take(len(chunk))
            self._count += len(chunk)
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)


def declared_size(headers: Mapping[str, str]) -> int:
    """Return Content-Length; 0 where there is none (the server has refused one that is no number)."""
    text = headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() else 0


async def _drain(receive: Receive, most: int) -> None:
    """Read and drop up to `most` bytes."""
    while most > 0:
        message = await receive()
        most -= len(_chunk(message))
        if not message.get("more_body", False):
            return


def _chunk(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise Disconnected
    chunk: bytes = message.get("body", b"")
    return chunk
