"""Answers of a forge are recorded on their way, given again from memory, and lead to where they are given."""

from __future__ import annotations

import asyncio

import pytest

from ephemerd.testing.bench.wires import Answers, exchange, moved, read_plainly, recording, replaying

ASKED = b"GET /one HTTP/1.1\r\nhost: x\r\n\r\n"
WRITTEN = b"POST /one HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}"


async def _forge(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    port = writer.get_extra_info("sockname")[1]
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if head.startswith(b"POST"):
                await reader.readexactly(2)
            body = b'{"next": "http://127.0.0.1:%d/two"}' % port
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    finally:
        writer.close()


async def _ask(port: int, *requests: bytes) -> list[bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = []
    for request in requests:
        writer.write(request)
        answers.append(await exchange(reader))
    writer.close()
    return answers


def test_what_was_answered_is_kept_and_given_again_with_links_that_lead_here():
    async def play() -> None:
        answers: Answers = {}
        tasks = []

        def connected(*ends) -> None:
            tasks.append(asyncio.create_task(_forge(*ends)))

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with recording(port, answers) as between:
            through = await _ask(between, ASKED, WRITTEN)
            assert all(b"127.0.0.1:%d/two" % between in answer for answer in through)
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert list(answers) == [b"GET /one HTTP/1.1"]
        async with replaying(port, answers) as memory:
            again, unknown = await _ask(memory, ASKED, b"GET /else HTTP/1.1\r\n\r\n")
            assert again == through[0].replace(b":%d/" % between, b":%d/" % memory)
            assert unknown.startswith(b"HTTP/1.1 404 ")
            assert await read_plainly(memory, answers, 3) > 0

    asyncio.run(play())


def test_an_answer_without_a_body_is_whole_and_one_without_a_length_is_refused():
    async def play() -> None:
        for text in (b"HTTP/1.1 304 Not Modified\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n"):
            reader = asyncio.StreamReader()
            reader.feed_data(text)
            assert await exchange(reader) == text
        reader = asyncio.StreamReader()
        reader.feed_data(b"HTTP/1.1 200 OK\r\n\r\n")
        with pytest.raises(ValueError, match="without a length"):
            await exchange(reader)

    asyncio.run(play())


def test_a_port_of_another_length_is_refused():
    assert moved(b"127.0.0.1:20000/x", 20_000, 30_000) == b"127.0.0.1:30000/x"
    with pytest.raises(ValueError, match="another length"):
        moved(b"", 20_000, 3_000)
