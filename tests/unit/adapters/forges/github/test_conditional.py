"""What is kept for a 304: the last whole answer to a question under one token, bounded by number and size."""

from __future__ import annotations

from ephemerd.adapters.forges.github.conditional import Kept, Key, mark_of
from ephemerd.adapters.kit.answer import Answer

MARK = mark_of("a token")
A, B, C = (("acme", name) for name in "abc")


def answer(body: bytes = b"x", status: int = 200, etag: str = 'W/"1"') -> Answer:
    return Answer(status, {"etag": etag} if etag else {}, body)


def found(kept: Kept, *keys: Key) -> list[Key]:
    return [key for key in keys if kept.find(key, MARK)]


def test_the_last_whole_answer_is_found():
    kept, first, second = Kept(), answer(b"1"), answer(b"2")
    assert kept.find(A, MARK) is None
    kept.keep(A, MARK, first)
    kept.keep(A, MARK, second)
    assert kept.find(A, MARK) == second


def test_an_answer_without_an_etag_or_that_is_none_is_forgotten():
    kept = Kept()
    for worse in (answer(status=404), answer(etag="")):
        kept.keep(A, MARK, answer())
        kept.keep(A, MARK, worse)
        assert kept.find(A, MARK) is None


def test_the_least_recently_used_goes_first():
    kept = Kept(most=2)
    kept.keep(A, MARK, answer())
    kept.keep(B, MARK, answer())
    kept.find(A, MARK)
    kept.keep(C, MARK, answer())
    assert found(kept, A, B, C) == [A, C]


def test_the_bytes_are_bounded():
    kept = Kept(most_bytes=10)
    for key in (A, B, C):
        kept.keep(key, MARK, answer(b"1234"))
    assert found(kept, A, B, C) == [B, C]
    kept.keep(B, MARK, answer(b"12345678901"))
    assert found(kept, A, B, C) == []
    kept.keep(A, MARK, answer(b"1234567890"), whole=False)
    kept.keep(B, MARK, answer(b"1234567890"))
    assert found(kept, A, B) == [A, B]


def test_fp_39_an_etag_counts_under_the_token_that_it_came_for():
    kept, other = Kept(), mark_of("another token")
    kept.keep(A, MARK, answer())
    assert kept.has(A, MARK)
    assert not kept.has(A, other)
    assert kept.find(A, other) is None
    assert kept.find(A, MARK) is not None
    assert b"token" not in MARK


def test_the_same_address_asked_for_two_accounts_is_two_questions():
    kept = Kept()
    kept.keep(("acme", "/installation/repositories"), MARK, answer(b"acme's"))
    kept.keep(("other", "/installation/repositories"), MARK, answer(b"other's"))
    assert kept.find(("acme", "/installation/repositories"), MARK) == answer(b"acme's")


def test_of_the_headers_only_those_are_kept_that_the_next_question_needs():
    kept = Kept()
    kept.keep(A, MARK, Answer(200, {"etag": "x", "link": "next", "x-ratelimit-remaining": "7"}, b""))
    answered = kept.find(A, MARK)
    assert answered is not None
    assert answered.headers == {"etag": "x", "link": "next"}


def test_what_nobody_asks_again_is_dropped():
    kept = Kept(most_bytes=8)
    kept.keep(A, MARK, answer(b"12345678"))
    kept.forget(A)
    kept.forget(A)
    kept.keep(B, MARK, answer(b"12345678"))
    assert found(kept, A, B) == [B]
