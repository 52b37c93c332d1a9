"""A real HTTP/1.1 server on a loopback port whose every answer is scripted, also the broken ones."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Received:
    """One request as it came in; header names are lower-case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """A well-formed answer."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        body = self.body
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [
            f"HTTP/1.1 {self.status} Scripted",
            *(f"{name}: {text}" for name, text in self.headers.items()),
        ]
        if self.status != 204:
            lines.append(f"Content-Length: {len(raw)}")
        return "\r\n".join([*lines, "", ""]).encode() + raw


class Silence:
    """Take the request and never answer."""


@dataclass(frozen=True)
class Raw:
    """Send these bytes, then close the connection, or stay silent."""

    data: bytes
    then_silent: bool = False


class Reset:
    """Take the request and drop the connection (RST)."""


class Endless:
    """Answer 200 with a body that never ends."""


Answerer = Callable[[Received], object]


class Server:
    """Answers by a function of the request, and remembers every request."""

    def __init__(self, answer: Answerer) -> None:
        self.answer = answer
        self.requests: list[Received] = []
        self.url = ""
        self.most_connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def lines(self) -> list[str]:
        return [f"{request.method} {request.target}" for request in self.requests]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.most_connections = max(self.most_connections, len(self._tasks))
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                if not await _send(writer, self.answer(request)):
                    return
        except (ConnectionError, asyncio.CancelledError):
            return
        finally:
            self._tasks.discard(task)
            writer.close()

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))


async def _read(reader: asyncio.StreamReader) -> Received | None:
    with suppress(asyncio.IncompleteReadError):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *rest = head.rstrip("\r\n").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in rest)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Received(method, target, headers, body)
    return None


async def _send(writer: asyncio.StreamWriter, answer: object) -> bool:
    """Send; return whether the connection goes on."""
    if isinstance(answer, Reply):
        writer.write(answer.encode())
        await writer.drain()
        return True
    if isinstance(answer, Raw):
        writer.write(answer.data)
        await writer.drain()
        if answer.then_silent:
            await asyncio.Event().wait()
        return False
    if isinstance(answer, Endless):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await writer.drain()
    if isinstance(answer, Reset):
        writer.transport.abort()
        return False
    assert isinstance(answer, Silence)
    await asyncio.Event().wait()
    return False


@asynccontextmanager
async def server(answer: Answerer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Run a server for the body of a `with`; all its connections end with it."""
    made = Server(answer)
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    port = listening.sockets[0].getsockname()[1]
    made.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        yield made
    finally:
        listening.close()
        await made.stop()


def in_turn(*answers: object) -> Answerer:
    """Answer with each of these once, in order; one request more fails the test."""
    left = list(answers)
    return lambda _request: left.pop(0) if left else Reply(599, {"message": "one request too many"})
