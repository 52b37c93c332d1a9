"""What is kept for a 304: the last whole answer of a URL, bounded by number and size."""

from __future__ import annotations

from ephemerd.adapters.forges.github.conditional import Kept
from ephemerd.adapters.kit.answer import Answer


def answer(body: bytes = b"x", status: int = 200, etag: str = 'W/"1"') -> Answer:
    return Answer(status, {"etag": etag} if etag else {}, body)


def test_the_last_whole_answer_is_found():
    kept, first, second = Kept(), answer(b"1"), answer(b"2")
    assert kept.find("a") is None
    kept.keep("a", first)
    kept.keep("a", second)
    assert kept.find("a") is second


def test_an_answer_without_an_etag_or_that_is_none_is_forgotten():
    kept = Kept()
    for worse in (answer(status=404), answer(etag="")):
        kept.keep("a", answer())
        kept.keep("a", worse)
        assert kept.find("a") is None


def test_the_least_recently_used_goes_first():
    kept = Kept(most=2)
    kept.keep("a", answer())
    kept.keep("b", answer())
    kept.find("a")
    kept.keep("c", answer())
    assert [name for name in "abc" if kept.find(name)] == ["a", "c"]


def test_the_bytes_are_bounded():
    kept = Kept(most_bytes=10)
    for name in "abc":
        kept.keep(name, answer(b"1234"))
    assert [name for name in "abc" if kept.find(name)] == ["b", "c"]
    kept.keep("b", answer(b"12345678901"))
    assert [name for name in "abc" if kept.find(name)] == []
