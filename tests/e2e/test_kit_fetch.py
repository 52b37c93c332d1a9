"""A large file over real sockets: bounds, breaks that are gone on with, redirects, and where a token may go."""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
from pathlib import Path
from typing import Any

import pytest

from ephemerd.adapters.kit import fetch as fetching
from ephemerd.adapters.kit.fetch import Source, fetch
from ephemerd.ports.errors import Broken, Refused, RetryLater
from tests.e2e.scripted_server import Endless, Raw, Received, Reply, Reset, Silence, in_turn, server

pytestmark = pytest.mark.e2e
CONTENT = os.urandom(3_000_000)
SUM = hashlib.sha256(CONTENT).hexdigest()
TOKEN = "t0p-secret"
TLS = Path(__file__).parent / "tls"


async def get(url: str, part: Path, *, resume: bool = True, seconds: float = 60.0, **how: Any) -> str:
    source = Source(url, "ephemerd-test", **{key: how.pop(key) for key in ("token", "ca_file") if key in how})
    deadline = asyncio.get_running_loop().time() + seconds
    return await fetch(
        source, part, most=how.pop("most", 10_000_000), deadline=deadline, resume=resume, **how
    )


def broken_off(at: int) -> Raw:
    return Raw(f"HTTP/1.1 200 OK\r\nContent-Length: {len(CONTENT)}\r\n\r\n".encode() + CONTENT[:at])


def rest(request: Received) -> Reply:
    begin = int(request.headers["range"].removeprefix("bytes=").removesuffix("-"))
    end = len(CONTENT)
    return Reply(206, CONTENT[begin:], {"Content-Range": f"bytes {begin}-{end - 1}/{end}"})


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / "a.part"


async def test_it_comes_whole_with_its_sum_and_what_is_told_on_the_way(part):
    told: list[tuple[int, int]] = []
    async with server(lambda _request: Reply(200, CONTENT)) as running:
        assert await get(f"{running.url}/x", part, progress=lambda *now: told.append(now)) == SUM
    assert part.read_bytes() == CONTENT
    assert part.stat().st_mode & 0o777 == 0o600
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert running.requests[0].headers["accept-encoding"] == "identity"
    assert "authorization" not in running.requests[0].headers


async def test_what_broke_off_is_gone_on_with(part):
    async with server(in_turn(broken_off(1_234_567))) as running:
        with pytest.raises(RetryLater):
            await get(f"{running.url}/x", part)
        assert part.stat().st_size == 1_234_567
        running.answer = rest
        assert await get(f"{running.url}/x", part) == SUM
        assert running.requests[-1].headers["range"] == "bytes=1234567-"


async def test_a_server_that_cannot_go_on_sends_it_anew(part):
    part.write_bytes(CONTENT[:1000])
    async with server(lambda _request: Reply(200, CONTENT)) as running:
        assert await get(f"{running.url}/x", part) == SUM


@pytest.mark.parametrize(
    "answer",
    [Reply(416), Reply(206, b"other", {"Content-Range": "bytes 7-11/12"})],
)
async def test_a_part_that_fits_nothing_is_thrown_away(part, answer):
    part.write_bytes(CONTENT)
    async with server(in_turn(answer, Reply(200, CONTENT))) as running:
        with pytest.raises(RetryLater, match="begins anew"):
            await get(f"{running.url}/x", part)
        assert await get(f"{running.url}/x", part) == SUM


async def test_without_a_sum_to_judge_by_nothing_is_gone_on_with(part):
    part.write_bytes(b"something else")
    async with server(lambda _request: Reply(200, CONTENT)) as running:
        assert await get(f"{running.url}/x", part, resume=False) == SUM
    assert "range" not in running.requests[0].headers


async def test_what_is_too_large_is_not_fetched(part):
    async with server(lambda _request: Reply(200, CONTENT)) as running:
        with pytest.raises(Refused, match="larger than 1000 bytes"):
            await get(f"{running.url}/x", part, most=1000)
    assert not part.exists()
    async with server(lambda _request: Endless()) as running:
        with pytest.raises(Refused, match="larger than 2000000 bytes"):
            await get(f"{running.url}/x", part, most=2_000_000)
    assert not part.exists()
    part.write_bytes(CONTENT)
    async with server(lambda _request: Reply(200, CONTENT)) as running:
        with pytest.raises(Refused, match="larger than"):
            await get(f"{running.url}/x", part, most=1000)
    assert not part.exists()
    assert running.requests == []


@pytest.mark.parametrize(
    "answer", [Silence(), Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal", then_silent=True)]
)
async def test_it_has_a_deadline(part, answer):
    async with server(lambda _request: answer) as running:
        with pytest.raises(RetryLater, match="in time"):
            await get(f"{running.url}/x", part, seconds=0.3)


async def test_something_has_to_come_again_and_again(part, monkeypatch):
    monkeypatch.setattr(fetching, "STALL", 0.2)
    async with server(lambda _request: Silence()) as running:
        with pytest.raises(RetryLater, match="in time"):
            await get(f"{running.url}/x", part)


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_what_passes_is_tried_again(part, status):
    async with server(lambda _request: Reply(status, headers={"Retry-After": "7"})) as running:
        with pytest.raises(RetryLater, match=str(status)) as caught:
            await get(f"{running.url}/x", part)
    assert caught.value.after_ms == 7000


async def test_a_wait_that_is_no_time_is_none(part):
    async with server(lambda _request: Reply(429, headers={"Retry-After": "9" * 5000})) as running:
        with pytest.raises(RetryLater, match="429") as caught:
            await get(f"{running.url}/x", part)
    assert caught.value.after_ms is None


@pytest.mark.parametrize("status", [401, 403, 404, 410, 204])
async def test_what_does_not_pass_is_refused(part, status):
    async with server(lambda _request: Reply(status)) as running:
        with pytest.raises(Refused, match=f"{running.url}/x answered {status}"):
            await get(f"{running.url}/x?sig=secret", part)
    assert not part.exists()


async def test_a_connection_that_breaks_is_tried_again(part):
    async with server(lambda _request: Reset()) as running:
        with pytest.raises(RetryLater):
            await get(f"{running.url}/x", part)
    with pytest.raises(RetryLater, match="nothing listens there"):
        await get(f"{running.url}/x", part)


async def test_redirects_are_followed_and_the_token_stays_at_home(part):
    async with server(lambda _request: Reply(200, CONTENT)) as far:
        moved = Reply(302, headers={"Location": f"{far.url}/there?sig=secret"})
        async with server(in_turn(Reply(307, headers={"Location": "/next"}), moved)) as running:
            assert await get(f"{running.url}/x", part, token=TOKEN) == SUM
    assert [request.headers.get("authorization") for request in running.requests] == [f"Bearer {TOKEN}"] * 2
    assert "authorization" not in far.requests[0].headers


async def test_redirects_end(part):
    async with server(lambda _request: Reply(302, headers={"Location": "/again"})) as running:
        with pytest.raises(Refused, match="leads on and on"):
            await get(f"{running.url}/x", part)
    assert len(running.requests) == 6


@pytest.mark.parametrize(
    "location",
    [
        *("ftp://127.0.0.1/x", "http://ann:pw@127.0.0.1/x", "file:///etc/passwd"),
        *("http://[::1/x", "http://127.0.0.1:x/x", "http://127.0.0.1:99999/x"),
    ],
)
async def test_a_redirect_to_what_is_no_plain_address_is_not_followed(part, location):
    async with server(lambda _request: Reply(302, headers={"Location": location})) as running:
        with pytest.raises(Refused, match="no plain http or https address") as caught:
            await get(f"{running.url}/x", part)
    assert "pw" not in str(caught.value)


async def test_what_is_no_address_from_the_first_is_refused(part):
    with pytest.raises(Refused, match="no plain http or https address"):
        await get("http://127.0.0.1:99999/x", part)


async def test_https_does_not_become_http(part):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    async with server(
        lambda _request: Reply(302, headers={"Location": "http://127.0.0.1:9/x"}), context
    ) as running:
        with pytest.raises(Refused, match="from https to http"):
            await get(f"{running.url}/x", part, ca_file=TLS / "cert.pem")
    async with server(lambda _request: Reply(200, CONTENT), context) as running:
        assert await get(f"{running.url}/x", part, ca_file=TLS / "cert.pem") == SUM
        with pytest.raises(RetryLater, match="ca_file"):
            await get(f"{running.url}/x", part)


async def test_a_place_that_cannot_be_written_is_said(tmp_path):
    async with server(lambda _request: Reply(200, CONTENT)) as running:
        with pytest.raises(Broken, match="cannot be written"):
            await get(f"{running.url}/x", tmp_path / "missing" / "a.part")


def test_neither_token_nor_signature_is_shown():
    shown = repr(Source("https://example.org/a.tar.gz?sig=secret", "x", TOKEN))
    assert shown == "Source('https://example.org/a.tar.gz')"
