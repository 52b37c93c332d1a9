"""API tokens: what is kept, what is refused, and when one ends."""

from __future__ import annotations

import hashlib

import pytest

from ephemerd.app.tokens import MOST, PREFIX, NoSuchToken, Refused, Tokens, digest
from ephemerd.ports.access import Role, TokenRecord
from ephemerd.ports.errors import Broken

T0 = 1_800_000_000_000


class MemoryShelf:
    def __init__(self) -> None:
        self.records: list[TokenRecord] = []
        self.broken = False

    def read(self) -> list[TokenRecord]:
        return list(self.records)

    def write(self, records: list[TokenRecord]) -> None:
        if self.broken:
            raise Broken("the disk is full")
        self.records = list(records)


class Case:
    def __init__(self) -> None:
        self.now = T0
        self.shelf = MemoryShelf()
        self.tokens = Tokens(self.shelf, lambda: self.now)


@pytest.fixture
def case():
    return Case()


def test_a_token_is_found_by_itself_and_kept_as_a_digest(case):
    made = case.tokens.create("grafana", Role.READ, 60)
    assert made.token.startswith(PREFIX)
    found = case.tokens.find(made.token)
    assert (found.name, found.role) == ("grafana", Role.READ)
    (record,) = case.shelf.records
    assert record.digest == hashlib.sha256(made.token.encode()).digest() == digest(made.token)
    assert made.token not in repr(made) + repr(record)


def test_no_two_tokens_are_alike(case):
    made = {case.tokens.create(f"t{number}", Role.READ, None).token for number in range(20)}
    assert len(made) == 20
    assert all(len(token) >= len(PREFIX) + 43 for token in made)


def test_unknown_ones_are_not_found(case):
    made = case.tokens.create("a", Role.READ, None)
    for text in ("", "x", PREFIX, made.token[:-1], made.token + "x", "\udcff", "é"):
        assert case.tokens.find(text) is None, text


def test_a_token_ends_at_its_time(case):
    made = case.tokens.create("a", Role.OPERATE, 60)
    case.now = T0 + 59_999
    assert case.tokens.find(made.token) is not None
    assert case.tokens.holds(digest(made.token))
    case.now = T0 + 60_000
    assert case.tokens.find(made.token) is None
    assert not case.tokens.holds(digest(made.token))
    assert [(view.name, view.expired) for view in case.tokens.list()] == [("a", True)]


def test_a_revoked_one_is_void_at_once_and_its_name_is_free(case):
    made = case.tokens.create("a", Role.READ, None)
    case.tokens.revoke("a")
    assert case.tokens.find(made.token) is None
    assert case.shelf.records == []
    with pytest.raises(NoSuchToken):
        case.tokens.revoke("a")
    again = case.tokens.create("a", Role.READ, None)
    assert case.tokens.holds(digest(again.token))
    assert not case.tokens.holds(digest(made.token)), "another token has its name now"


def test_what_is_kept_is_found_again(case):
    made = case.tokens.create("a", Role.READ, None)
    again = Tokens(case.shelf, lambda: case.now)
    assert again.find(made.token) is None
    again.load()
    assert again.find(made.token) is not None


def test_when_it_was_used_last(case):
    made = case.tokens.create("a", Role.READ, None)
    assert [view.used for view in case.tokens.list()] == [None]
    case.now += 5
    case.tokens.find(made.token)
    assert [view.used for view in case.tokens.list()] == [T0 + 5]


@pytest.mark.parametrize("name", ["", "A", "-a", ".a", "a b", "a/b", "x" * 64, "ä", "a\n"])
def test_names_are_plain(case, name):
    with pytest.raises(Refused, match="a name is"):
        case.tokens.create(name, Role.READ, None)


@pytest.mark.parametrize("seconds", [0, -1, 11 * 365 * 24 * 3600])
def test_lives_are_bounded(case, seconds):
    with pytest.raises(Refused, match="ten years"):
        case.tokens.create("a", Role.READ, seconds)


def test_names_are_given_once_and_tokens_are_few(case):
    case.tokens.create("a", Role.READ, None)
    with pytest.raises(Refused, match="already"):
        case.tokens.create("a", Role.OPERATE, None)
    for number in range(MOST - 1):
        case.tokens.create(f"t{number}", Role.READ, None)
    with pytest.raises(Refused, match="revoke some"):
        case.tokens.create("one-more", Role.READ, None)


def test_what_cannot_be_kept_does_not_hold(case):
    kept = case.tokens.create("a", Role.READ, None)
    case.shelf.broken = True
    with pytest.raises(Broken):
        case.tokens.create("b", Role.READ, None)
    with pytest.raises(Broken):
        case.tokens.revoke("a")
    assert [view.name for view in case.tokens.list()] == ["a"]
    assert case.tokens.find(kept.token) is not None


def test_roles():
    assert Role.OPERATE.covers(Role.READ)
    assert Role.OPERATE.covers(Role.OPERATE)
    assert Role.READ.covers(Role.READ)
    assert not Role.READ.covers(Role.OPERATE)
