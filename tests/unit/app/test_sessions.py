"""Login links, sessions and wrong credentials: each once, for a time, and few."""

from __future__ import annotations

import pytest

from ephemerd.app.sessions import (
    CODE_LIFE,
    FAILURES,
    FORGIVEN_EVERY,
    IDLE,
    LIFE,
    MOST_ADDRESSES,
    MOST_CODES,
    MOST_SESSIONS,
    Failures,
    Sessions,
)
from ephemerd.ports.access import Role


class Case:
    def __init__(self) -> None:
        self.now = 1_800_000_000_000
        self.good: set[bytes] = set()
        self.sessions = Sessions(lambda: self.now, self.good.__contains__)
        self.failures = Failures(lambda: self.now)

    def log_in(self, role: Role = Role.OPERATE, token: bytes = b"") -> str:
        code, _ = self.sessions.invite(role, "ann", token)
        secret = self.sessions.enter(code)
        assert secret is not None
        return secret


@pytest.fixture
def case():
    return Case()


def test_a_link_works_once(case):
    code, until = case.sessions.invite(Role.READ, "ann")
    assert until == case.now + CODE_LIFE
    session = case.sessions.find(case.sessions.enter(code))
    assert (session.role, session.who) == (Role.READ, "ann")
    assert case.sessions.enter(code) is None


def test_a_link_ends(case):
    code, until = case.sessions.invite(Role.READ, "ann")
    case.now = until
    assert case.sessions.enter(code) is None
    case.now = until - 1
    assert case.sessions.enter(code) is None, "it was spent by the late try"


def test_what_was_never_given_opens_nothing(case):
    for text in ("", "x", "é", "\udcff"):
        assert case.sessions.enter(text) is None
        assert case.sessions.find(text) is None


def test_the_oldest_links_and_sessions_go(case):
    first, _ = case.sessions.invite(Role.READ, "ann")
    for _ in range(MOST_CODES):
        case.sessions.invite(Role.READ, "ann")
    assert case.sessions.enter(first) is None
    old, *_, last = (case.log_in() for _ in range(MOST_SESSIONS + 1))
    assert case.sessions.find(old) is None
    assert case.sessions.find(last) is not None


def test_a_session_ends_when_nobody_uses_it_and_in_any_case(case):
    secret = case.log_in()
    case.now += IDLE - 1
    assert case.sessions.find(secret) is not None
    case.now += IDLE
    assert case.sessions.find(secret) is None
    secret, began = case.log_in(), case.now
    assert case.sessions.holds(secret)
    assert not case.sessions.holds("another")
    while case.now - began < LIFE - IDLE:
        case.now += IDLE - 1
        assert case.sessions.find(secret) is not None
    case.now = began + LIFE
    assert not case.sessions.holds(secret)
    assert case.sessions.find(secret) is None


def test_who_makes_many_pushes_out_nobody_else(case):
    """Whoever may only read could else log everybody out."""
    case.good.add(b"reader")
    code, _ = case.sessions.invite(Role.OPERATE, "ann")
    secret = case.log_in()
    for _ in range(MOST_SESSIONS * 2):
        case.log_in(Role.READ, b"reader")
    for _ in range(MOST_CODES * 2):
        case.sessions.invite(Role.READ, "bob", b"reader")
    assert case.sessions.find(secret) is not None
    assert case.sessions.enter(code) is not None


def test_leaving(case):
    secret = case.log_in()
    case.sessions.leave(secret)
    case.sessions.leave(secret)
    assert case.sessions.find(secret) is None


def test_a_session_ends_with_the_token_it_came_from(case):
    case.good.add(b"grafana")
    secret = case.log_in(token=b"grafana")
    code, _ = case.sessions.invite(Role.READ, "ann", b"grafana")
    assert case.sessions.find(secret) is not None
    case.good.clear()
    assert case.sessions.find(secret) is None
    assert case.sessions.enter(code) is None


def test_each_session_has_its_own_csrf_token(case):
    one, two = (case.sessions.find(case.log_in()) for _ in range(2))
    assert one.csrf != two.csrf
    assert one.csrf not in repr(one)


def test_after_some_failures_one_waits(case):
    assert [case.failures.wrong("a") for _ in range(FAILURES)] == [0] * FAILURES
    assert case.failures.wrong("a") == FORGIVEN_EVERY // 1000
    assert case.failures.wrong("b") == 0
    case.now += FORGIVEN_EVERY
    assert case.failures.wrong("a") == 0
    assert case.failures.wrong("a") > 0
    case.now += FORGIVEN_EVERY * FAILURES * 2
    assert [case.failures.wrong("a") for _ in range(FAILURES)] == [0] * FAILURES


def test_addresses_are_few(case):
    for number in range(MOST_ADDRESSES * 2):
        case.failures.wrong(str(number))
    assert len(case.failures._by_address) == MOST_ADDRESSES
