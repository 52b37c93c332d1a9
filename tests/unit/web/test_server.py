"""Sockets and servers on real loopback ports and unix sockets."""

from __future__ import annotations

import asyncio
import socket
import stat
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ephemerd.web import server
from ephemerd.web.server import Listener, ListenFailed, bind_tcp, bind_unix


async def hello(request: Request) -> Response:
    return PlainTextResponse(f"hello {len(await request.body())}")


APP = Starlette(routes=[Route("/", hello, methods=["GET", "POST"])])


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A short path for sockets: those of the test's folder may be too long."""
    monkeypatch.chdir(tmp_path)
    return Path("api.sock")


async def test_a_tcp_server_answers_and_stops():
    listener = Listener("test", APP, bind_tcp("127.0.0.1", 0))
    address = listener.address
    await listener.start()
    async with httpx2.AsyncClient() as client:
        answer = await client.get(f"http://{address}/")
        assert answer.text == "hello 0"
        assert "server" not in answer.headers
    await listener.stop()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address.split(":"))


async def test_a_taken_port_is_told():
    first = bind_tcp("127.0.0.1", 0)
    with pytest.raises(ListenFailed, match="in use") as caught:
        bind_tcp("127.0.0.1", first.getsockname()[1])
    assert caught.value.todo
    first.close()


def test_an_address_that_is_not_ours_is_told():
    with pytest.raises(ListenFailed, match=r"192\.0\.2\.1:80"):
        bind_tcp("192.0.2.1", 80)
    with pytest.raises(ListenFailed, match="no-such-host"):
        bind_tcp("no-such-host.invalid", 80)


async def test_a_unix_socket_is_its_owners_alone_and_goes_at_the_end(place):
    listener = Listener("api", APP, bind_unix(place), place)
    await listener.start()
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    transport = httpx2.AsyncHTTPTransport(uds=str(place))
    async with httpx2.AsyncClient(transport=transport) as client:
        assert (await client.post("http://x/", content=b"abc")).text == "hello 3"
    await listener.stop()
    assert list(place.parent.iterdir()) == []


def test_a_socket_of_a_dead_daemon_is_replaced(place):
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(place))
    dead.close()
    bind_unix(place).close()
    assert stat.S_ISSOCK(place.stat().st_mode)


async def test_a_socket_of_a_living_daemon_is_not_touched(place):
    listener = Listener("api", APP, bind_unix(place), place)
    await listener.start()
    inode = place.stat().st_ino
    with pytest.raises(ListenFailed, match="another daemon answers"):
        bind_unix(place)
    assert place.stat().st_ino == inode
    await listener.stop()


async def test_the_socket_of_a_successor_is_left_at_the_end(place):
    first = Listener("api", APP, bind_unix(place), place)
    place.unlink()
    second = bind_unix(place)
    first.close()
    assert place.exists()
    second.close()


def test_something_else_at_the_path_is_not_removed(place):
    place.write_text("precious")
    with pytest.raises(ListenFailed, match="no socket"):
        bind_unix(place)
    assert place.read_text() == "precious"


def test_a_path_that_is_too_long_is_told(tmp_path):
    with pytest.raises(ListenFailed, match="too long"):
        bind_unix(tmp_path / ("x" * 200))


def test_a_folder_that_cannot_be_made_is_told(place):
    place.write_text("")
    with pytest.raises(ListenFailed):
        bind_unix(place / "api.sock")
    assert list(Path().iterdir()) == [place]


def test_missing_folders_are_made_private(place):
    bind_unix(Path("run/api.sock")).close()
    assert stat.S_IMODE(Path("run").stat().st_mode) == 0o700


async def raw(address: str, *parts: bytes) -> bytes:
    """Send the parts and return what comes until the server closes."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for part in parts:
        writer.write(part)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


@pytest.fixture
async def address():
    listener = Listener("test", APP, bind_tcp("127.0.0.1", 0))
    where = listener.address
    await listener.start()
    yield where
    await listener.stop()


async def test_headers_that_never_end_are_closed(monkeypatch, address):
    monkeypatch.setattr(server, "HEADER_LIMIT", 0.02)
    assert await raw(address, b"GET / HTTP/1.1\r\nhost: x\r\n") == b""


async def test_headers_that_are_too_large_are_refused(monkeypatch, address):
    monkeypatch.setattr(server, "MOST_HEADERS", 100)
    answer = await raw(address, b"GET / HTTP/1.1\r\nx: " + b"y" * 200)
    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_a_second_request_on_a_connection_has_its_own_bounds(monkeypatch, address):
    monkeypatch.setattr(server, "MOST_HEADERS", 100)
    one = b"GET / HTTP/1.1\r\nhost: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n\r\n"
    last = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    answer = await raw(address, one, one, one, last)
    assert answer.count(b"HTTP/1.1 200 ") == 4


async def test_a_large_body_is_no_header(monkeypatch, address):
    monkeypatch.setattr(server, "MOST_HEADERS", 100)
    head = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 5000\r\n\r\n"
    answer = await raw(address, head, b"x" * 5000)
    assert answer.endswith(b"hello 5000")


async def test_what_is_no_http_is_refused(address):
    assert (await raw(address, b"\x16\x03\x01\x02\x00\x01\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
