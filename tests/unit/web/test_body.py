"""Reading bodies: what a declared or actual size does, and how much is read beyond the limit."""

from __future__ import annotations

from typing import Any

import pytest

from ephemerd.web.body import Bodies, Disconnected, Overloaded, TooLarge, declared_size


class Sender:
    """Hands out chunks and counts what was asked for."""

    def __init__(self, *chunks: bytes, endless: bytes = b"") -> None:
        self.chunks = list(chunks)
        self.endless = endless
        self.read = 0

    async def __call__(self) -> dict[str, Any]:
        if self.chunks:
            chunk = self.chunks.pop(0)
            self.read += len(chunk)
            more = bool(self.chunks or self.endless)
            return {"type": "http.request", "body": chunk, "more_body": more}
        if self.endless:
            self.read += len(self.endless)
            return {"type": "http.request", "body": self.endless, "more_body": True}
        return {"type": "http.disconnect"}


async def read(bodies: Bodies, sender: Sender, **headers: str) -> bytes:
    with bodies.lease() as lease:
        return await lease.read(headers, sender)


async def test_chunks_are_joined():
    assert await read(Bodies(), Sender(b"a", b"", b"bc")) == b"abc"


async def test_an_empty_body():
    assert await read(Bodies(), Sender(b"")) == b""


async def test_a_declared_size_beyond_the_limit_is_drained_for_a_megabyte_at_most(monkeypatch):
    monkeypatch.setattr("ephemerd.web.body.DRAIN", 100)
    sender = Sender(endless=b"x" * 30)
    with pytest.raises(TooLarge):
        await read(Bodies(limit=50), sender, **{"content-length": "51"})
    assert sender.read == 120


async def test_a_body_that_grows_beyond_the_limit_is_drained_too(monkeypatch):
    monkeypatch.setattr("ephemerd.web.body.DRAIN", 100)
    sender = Sender(endless=b"x" * 30)
    with pytest.raises(TooLarge):
        await read(Bodies(limit=50), sender)
    assert sender.read <= 60 + 100


async def test_a_short_body_with_a_large_declared_size_ends_the_drain():
    sender = Sender(b"abc")
    with pytest.raises(TooLarge):
        await read(Bodies(limit=2), sender, **{"content-length": "99"})


async def test_a_client_that_leaves():
    with pytest.raises(Disconnected):
        await read(Bodies(), Sender())


async def test_memory_is_given_back_whatever_happens():
    bodies = Bodies(limit=10, together=12)
    with bodies.lease() as first:
        await first.read({}, Sender(b"12345678"))
        assert bodies.held == 8
        with pytest.raises(Overloaded):
            await read(bodies, Sender(b"123", b"45"))
        assert bodies.held == 8
    assert bodies.held == 0


@pytest.mark.parametrize(("text", "size"), [("12", 12), ("", 0), ("-5", 0), ("x", 0), ("²", 0)])
def test_a_declared_size_is_a_plain_number(text, size):
    assert declared_size({"content-length": text}) == size
