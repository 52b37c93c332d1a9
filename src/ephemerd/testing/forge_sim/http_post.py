"""A small HTTP/1.1 POST over asyncio streams: enough to deliver a webhook, and nothing that could be shared with
the daemon's own HTTP stack."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

MAX_RESPONSE = 64 * 1024
"""GitHub keeps only the beginning of a receiver's answer; so do we, in bytes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a receiver answered."""

    status: int
    headers: dict[str, str]
    body: str


class PostError(Exception):
    """No usable answer came; ``status`` is the short text that GitHub's delivery list would show."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


async def post(url: str, headers: Mapping[str, str], body: bytes, *, timeout: float) -> Answer:
    """POST ``body`` to ``url`` on a fresh connection, at most ``timeout`` seconds; raises :class:`PostError`."""
    try:
        async with asyncio.timeout(timeout):
            return await _post(url, headers, body)
    except TimeoutError:
        raise PostError("timed out") from None
    except (OSError, ValueError, EOFError, IndexError) as error:
        raise PostError(f"failed to connect to host: {type(error).__name__}") from error


async def _post(url: str, headers: Mapping[str, str], body: bytes) -> Answer:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    context = ssl.create_default_context() if secure else None
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=context)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"POST {path} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(f"Content-Length: {len(body)}")
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()
        return await _read_answer(reader)
    finally:
        writer.close()


async def _read_answer(reader: asyncio.StreamReader) -> Answer:
    status = int((await reader.readline()).split(b" ", 2)[1])
    headers: dict[str, str] = {}
    while (line := (await reader.readline()).strip()) != b"":
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    length = headers.get("content-length")
    wanted = min(int(length), MAX_RESPONSE) if length is not None else MAX_RESPONSE
    body = b""
    while len(body) < wanted and (piece := await reader.read(wanted - len(body))):
        body += piece
    return Answer(status, headers, body.decode("utf-8", "replace"))
