"""One exchange over real sockets: deadlines, bounds, breaks, proxies, authorities."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from pathlib import Path

import httpx2
import pytest

from ephemerd.adapters.kit.answer import Answer, NoAnswer
from ephemerd.adapters.kit.http import HttpClient, _failure, is_loopback
from ephemerd.ports.errors import Broken
from tests.e2e.scripted_server import Endless, Raw, Reply, Reset, Server, Silence, server

pytestmark = pytest.mark.e2e
SECRET = "t0p-secret"
TLS = Path(__file__).parent / "tls"  # made for these tests alone, signed by itself, for 127.0.0.1


async def get(running: Server, *, seconds: float = 20.0, max_body: int = 1_000_000) -> Answer:
    client = HttpClient(running.url, max_body=max_body)
    try:
        deadline = asyncio.get_running_loop().time() + seconds
        headers = {"Authorization": f"Bearer {SECRET}"}
        return await client.send("GET", f"{running.url}/x", headers=headers, deadline=deadline)
    finally:
        await client.close()


async def failure(answer: object, **how: float) -> NoAnswer:
    async with server(lambda _request: answer) as running:
        with pytest.raises(NoAnswer) as caught:
            await get(running, **how)  # type: ignore[arg-type]
    return caught.value


async def test_an_answer_comes_with_lower_case_headers():
    async with server(lambda _request: Reply(418, b"tea", {"X-Kind": "Pot"})) as running:
        answer = await get(running)
    assert (answer.status, answer.headers["x-kind"], answer.body) == (418, "Pot", b"tea")
    assert "tea" not in repr(answer)
    assert running.requests[0].headers["authorization"] == f"Bearer {SECRET}"


async def test_a_compressed_answer_is_unpacked_and_its_bound_is_that_of_the_contents():
    packed = Reply(200, gzip.compress(b"a" * 500_000), {"Content-Encoding": "gzip"})
    async with server(lambda _request: packed) as running:
        assert len((await get(running)).body) == 500_000
        with pytest.raises(NoAnswer, match="larger than 1000 bytes"):
            await get(running, max_body=1000)


@pytest.mark.parametrize(
    "answer",
    [
        Silence(),
        Raw(b"HTTP/1.1 200 OK\r\nContent-", then_silent=True),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", then_silent=True),
    ],
)
async def test_a_server_that_goes_silent_ends_at_the_deadline(answer):
    found = await failure(answer, seconds=0.2)
    assert "no complete answer within 0.2 s" in found.text
    assert not found.broken


async def test_a_deadline_that_has_passed_sends_nothing_that_is_waited_for():
    assert "within 0.0 s" in (await failure(Silence(), seconds=-1)).text


async def test_an_endless_answer_is_cut_at_its_bound():
    assert "larger than 100000 bytes" in (await failure(Endless(), max_body=100_000)).text


@pytest.mark.parametrize(
    "answer",
    [
        Reset(),
        Raw(b""),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
        Raw(b"\x00\x01 no HTTP\r\n\r\n"),
    ],
)
async def test_a_broken_connection_is_told_as_such(answer):
    assert (await failure(answer)).broken


async def test_a_failure_carries_no_request_with_its_headers():
    found = await failure(Raw(f"HTTP/1.1 nonsense {SECRET}\r\n\r\n".encode()))
    assert found.__context__ is None
    assert found.__cause__ is None
    assert SECRET not in repr(found) + found.text


async def test_nobody_listens():
    async with server(lambda _request: Reply()) as running:
        pass
    with pytest.raises(NoAnswer, match="ConnectError") as caught:
        await get(running)
    assert not caught.value.broken


async def test_a_closed_client_says_so():
    client = HttpClient("http://127.0.0.1:1")
    await client.close()
    with pytest.raises(NoAnswer, match="closed by ourselves"):
        await client.send("GET", "http://127.0.0.1:1", headers={}, deadline=1e12)


async def test_no_redirect_is_followed():
    async with server(lambda _request: Reply(302, None, {"Location": "/elsewhere"})) as running:
        assert (await get(running)).status == 302
    assert running.lines == ["GET /x"]


async def test_a_cancelled_caller_stays_cancelled():
    arrived = asyncio.Event()

    def answer(_request):
        arrived.set()
        return Silence()

    async with server(answer) as running:
        task = asyncio.create_task(get(running))
        await asyncio.wait_for(arrived.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_an_own_machine_is_never_asked_by_proxy(monkeypatch):
    async with server(lambda _request: Reply(502)) as proxy, server(lambda _request: Reply(200)) as running:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert (await get(running)).status == 200
    assert proxy.requests == []


async def test_others_are_asked_by_the_proxy_of_the_environment(monkeypatch):
    async with server(lambda _request: Reply(203)) as proxy:
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        client = HttpClient("http://forge.invalid")
        deadline = asyncio.get_running_loop().time() + 20
        answer = await client.send("GET", "http://forge.invalid/x", headers={}, deadline=deadline)
        await client.close()
    assert answer.status == 203
    assert proxy.lines == ["GET http://forge.invalid/x"]


@pytest.mark.parametrize("proxy", [f"nonsense://user:{SECRET}@x", f"http://user:{SECRET}@x:port"])
async def test_an_unusable_proxy_is_told_without_its_password(monkeypatch, proxy):
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(Broken, match="_PROXY") as caught:
        HttpClient("https://forge.invalid")
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8080", True),
        ("http://127.9.9.9", True),
        ("http://localhost:1/api/v3", True),
        ("http://LOCALHOST", True),
        ("http://forge.localhost", True),
        ("http://[::1]:8080", True),
        ("https://api.github.com", False),
        ("http://localhost.example", False),
        ("http://10.0.0.1", False),
        ("http://128.0.0.1", False),
        ("", False),
    ],
)
def test_what_is_the_own_machine(url, expected):
    assert is_loopback(url) is expected


async def test_the_ca_file_is_what_is_trusted():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    async with server(lambda _request: Reply(200, b"private"), tls=context) as running:
        deadline = asyncio.get_running_loop().time() + 20
        client = HttpClient(running.url, ca_file=TLS / "cert.pem")
        answer = await client.send("GET", running.url, headers={}, deadline=deadline)
        await client.close()
        assert answer.body == b"private"
        with pytest.raises(NoAnswer, match="set ca_file"):
            await get(running)


@pytest.mark.parametrize("content", [None, b"", b"no PEM"])
async def test_an_unusable_ca_file_is_told_with_its_path(tmp_path, content):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Broken, match="must hold PEM certificates") as caught:
        HttpClient("https://forge.invalid", ca_file=path)
    assert str(path) in caught.value.detail


@pytest.mark.parametrize(
    ("said", "todo"),
    [
        ("[Errno -2] Name or service not known", "check url and this machine's name server"),
        (
            "[Errno 8] nodename nor servname provided, or not known",
            "check url and this machine's name server",
        ),
        ("[Errno -3] Temporary failure in name resolution", "check this machine's network"),
        ("All connection attempts failed", "check url, firewall and proxy"),
        ("[Errno 101] Network is unreachable", "check this machine's network"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate", "set ca_file"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired", "renew the forge's certificate"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate is not yet valid", "set this machine's clock right"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", "is it https at all"),
    ],
)
def test_what_a_system_says_comes_with_what_to_do(said, todo):
    assert todo in _failure(httpx2.ConnectError(said)).text


def test_what_was_sent_is_never_quoted():
    assert (
        _failure(httpx2.LocalProtocolError("Illegal header value b'Bearer ghp_x'")).text
        == "LocalProtocolError"
    )
