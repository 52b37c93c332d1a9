"""Answers of a forge as bytes: recorded once on their way, then given again from memory, to the daemon or to a reader
that does nothing with them. What the look-alike itself costs, and what the loopback costs, can so be told apart."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
Answers = dict[bytes, bytes]
"""Whole answers by the first line of what was asked."""


async def exchange(reader: asyncio.StreamReader) -> bytes:
    """Read one answer whole; raises `ValueError` where it does not state its length."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    for line in lines:
        if line.startswith(b"content-length:"):
            return head + await reader.readexactly(int(line[15:]))
    if head.startswith((b"HTTP/1.1 304", b"HTTP/1.1 204")):
        return head
    raise ValueError("an answer without a length")


@asynccontextmanager
async def recording(port: int, answers: Answers) -> AsyncIterator[int]:
    """Stand before a server on this port, keep what it answers to what is read, and give the port to ask instead."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, ahead = await asyncio.open_connection("127.0.0.1", port)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    head, body = await _asked(reader)
                    ahead.write(head + body)
                    answer = await exchange(behind)
                    if head.startswith(b"GET "):
                        answers[_line(head)] = answer
                    writer.write(moved(answer, port, own))
        finally:
            ahead.close()
            writer.close()

    async with _server(serve) as found:
        own = found
        yield own


@asynccontextmanager
async def replaying(port: int, answers: Answers) -> AsyncIterator[int]:
    """Give those answers of the server on this port again; what was never asked is not found."""
    here: Answers = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    head, _ = await _asked(reader)
                    writer.write(here.get(_line(head), NOT_FOUND))
        finally:
            writer.close()

    async with _server(serve) as own:
        here.update((line, moved(answer, port, own)) for line, answer in answers.items())
        yield own


def moved(answer: bytes, before: int, after: int) -> bytes:
    """Have an answer's links, of the next page say, lead to another port, which is as long: ports that the system
    chooses have five digits."""
    old, new = b"127.0.0.1:%d" % before, b"127.0.0.1:%d" % after
    if len(old) != len(new):
        raise ValueError("a port of another length would make the stated length of an answer wrong")
    return answer.replace(old, new)


async def read_plainly(port: int, answers: Answers, connections: int) -> float:
    """Ask for everything once over so many connections and do nothing with it; return the seconds."""
    waiting = iter(answers)

    async def read() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for line in waiting:
                writer.write(line + b"\r\nhost: localhost\r\n\r\n")
                await exchange(reader)
        finally:
            writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(read() for _ in range(connections)))
    return time.perf_counter() - began


async def _asked(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read one request: its head, and its body where it says how long that is."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return head, await reader.readexactly(int(line[15:]))
    return head, b""


def _line(head: bytes) -> bytes:
    return head.partition(b"\r\n")[0]


@asynccontextmanager
async def _server(serve: Serve) -> AsyncIterator[int]:
    """Serve each connection by a task of ours, which ends with this."""
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        left = list(tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
