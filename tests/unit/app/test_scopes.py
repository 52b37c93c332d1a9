"""When the core is told that a scope answers."""

from __future__ import annotations

from ephemerd.app.scopes import DEFAULT_LIMIT, FRESH_FOR, TELL_AT_MOST_EVERY, TELL_EVERY, ScopeBook
from ephemerd.core.events import ScopeAnswered
from ephemerd.domain.ids import Scope

A, B = Scope("github", "repo:acme/a"), Scope("github", "repo:acme/b")


def test_the_first_answer_is_told_and_the_next_only_after_a_while():
    book = ScopeBook()
    assert book.answered(A, 0) == ScopeAnswered(A)
    assert book.answered(A, TELL_EVERY - 1) is None
    assert book.answered(A, TELL_EVERY) == ScopeAnswered(A)


def test_scopes_are_told_apart():
    book = ScopeBook()
    book.answered(A, 0)
    assert book.answered(B, 1) == ScopeAnswered(B)
    assert not ScopeBook().fresh(A, 0)


def test_after_a_fault_it_is_told_soon_but_not_at_once_again():
    book = ScopeBook()
    book.answered(A, 0)
    book.faulted(A)
    assert book.answered(A, TELL_AT_MOST_EVERY - 1) is None
    assert book.answered(A, TELL_AT_MOST_EVERY) == ScopeAnswered(A)
    assert book.answered(A, TELL_AT_MOST_EVERY * 2) is None


def test_an_answer_vouches_for_half_a_minute():
    book = ScopeBook()
    assert book.vouch(A, 0) is None
    book.answered(A, 0)
    assert book.fresh(A, FRESH_FOR)
    assert not book.fresh(A, FRESH_FOR + 1)
    assert book.vouch(A, FRESH_FOR) == ScopeAnswered(A)
    assert book.vouch(A, FRESH_FOR + 1) is None


def test_what_was_told_just_now_is_not_told_again():
    book = ScopeBook()
    book.answered(A, 0)
    assert book.vouch(A, 1) is None


def test_a_limit_names_its_end():
    book = ScopeBook()
    assert book.limited(A, 1000, 5000) == ScopeAnswered(A, limited_until=6000)
    assert book.limited(A, 1000, None) == ScopeAnswered(A, limited_until=1000 + DEFAULT_LIMIT)
    assert book.limited(A, 1000, 0) == ScopeAnswered(A, limited_until=1000)
