"""A GitHub App's tokens: one renewal at a time, before the end, by a clock that need not be right."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ephemerd.adapters.forges.github import app_wire, make_forge
from ephemerd.adapters.forges.github.app import AppTokens
from ephemerd.adapters.forges.github.wire import Request
from ephemerd.adapters.kit.answer import Answer
from ephemerd.ports.errors import Denied, Limited, PortError, RetryLater

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ACME, OTHER = "/repos/Acme/App", "/orgs/other"
HOUR = 3600.0


def pem(key: Any = KEY) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()  # type: ignore[no-any-return]


def told(status: int, body: Any = None, **headers: str) -> Answer:
    return Answer(status, headers, json.dumps(body).encode())


@dataclass
class GitHub:
    """GitHub as an App sees it. `at` is its wall clock, `ours` by how much ours is ahead of it."""

    at: float = 1_790_000_000.0
    ours: float = 0.0
    passed: float = 0.0
    installations: dict[str, int] = field(default_factory=lambda: {"acme": 7, "other": 8})
    lines: list[str] = field(default_factory=list)
    wrong: Callable[[Request], Answer | None] = lambda _: None
    gate: asyncio.Event | None = None
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    made: int = 0

    def tokens(self, **key: Any) -> AppTokens:
        source = AppTokens(
            12,
            now=lambda: self.at + self.passed + self.ours,
            monotonic=lambda: 50.0 + self.passed,
            **(key or {"key": pem()}),
        )
        source.bind(self.ask)
        return source

    async def ask(self, request: Request, bearer: str) -> Answer:
        self.lines.append(f"{request.method} {request.target}")
        self.asked.set()
        if self.gate is not None:
            await self.gate.wait()
        there = self.at + self.passed
        date = format_datetime(datetime.fromtimestamp(int(there), UTC), usegmt=True)
        claims = jwt.decode(
            bearer, KEY.public_key(), algorithms=["RS256"], options={"verify_exp": False, "verify_iat": False}
        )
        assert claims["iss"] == "12"
        if not (claims["iat"] <= there < claims["exp"] <= there + 600):
            return told(401, {"message": "'Expiration time' claim is too far in the future"}, date=date)
        if (answer := self.wrong(request)) is not None:
            return answer
        if found := re.fullmatch(r"/app/installations/(\d+)/access_tokens", request.target):
            if int(found[1]) not in self.installations.values():
                return told(404, {"message": "Not Found"})
            self.made += 1
            end = datetime.fromtimestamp(int(there + HOUR), UTC).isoformat().replace("+00:00", "Z")
            return told(201, {"token": f"ghs_{self.made}", "expires_at": end, "permissions": {}}, date=date)
        number = self.installations.get(request.target.split("/")[2].lower())
        return (
            told(200, {"id": number}, date=date) if number else told(404, {"message": "Not Found"}, date=date)
        )


async def test_a_token_is_made_once_for_an_account_and_its_repositories():
    github = GitHub()
    tokens = github.tokens()
    assert await tokens.token(ACME) == "ghs_1"
    assert await tokens.token("/repos/acme/another") == "ghs_1"
    assert await tokens.token("/orgs/ACME") == "ghs_1"
    assert await tokens.token(OTHER) == "ghs_2"
    assert github.lines == [
        "GET /repos/Acme/App/installation",
        "POST /app/installations/7/access_tokens",
        "GET /orgs/other/installation",
        "POST /app/installations/8/access_tokens",
    ]
    assert [tokens.holder(account) for account in (ACME, "/orgs/ACME", OTHER)] == ["acme", "acme", "other"]


async def test_a_token_is_renewed_ten_minutes_before_its_end():
    github = GitHub()
    tokens = github.tokens()
    await tokens.token(ACME)
    github.passed = HOUR - 610
    assert await tokens.token(ACME) == "ghs_1"
    github.passed = HOUR - 590
    assert await tokens.token(ACME) == "ghs_2"
    assert github.lines[2:] == ["POST /app/installations/7/access_tokens"]


async def test_many_who_need_a_token_make_one():
    github = GitHub(gate=asyncio.Event())
    tokens = github.tokens()
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(tokens.token(ACME)) for _ in range(20)]
        await github.asked.wait()
        assert github.gate is not None
        github.gate.set()
    assert {task.result() for task in waiting} == {"ghs_1"}
    assert len(github.lines) == 2


async def test_who_gives_up_waiting_leaves_the_renewal_to_the_next():
    github = GitHub(gate=asyncio.Event())
    tokens = github.tokens()
    impatient = asyncio.create_task(tokens.token(ACME))
    await github.asked.wait()
    patient = asyncio.create_task(tokens.token(ACME))
    impatient.cancel()
    assert github.gate is not None
    github.gate.set()
    assert await patient == "ghs_1"


async def test_while_renewing_fails_the_old_token_is_used_until_shortly_before_its_end():
    github = GitHub()
    tokens = github.tokens()
    await tokens.token(ACME)
    github.passed = HOUR - 590
    github.wrong = lambda _: told(503, {"message": "Unavailable"})
    asked = len(github.lines)
    for _ in range(5):
        assert await tokens.token(ACME) == "ghs_1"
    assert len(github.lines) == asked + 1  # not with every call
    github.passed = HOUR - 50
    with pytest.raises(RetryLater, match="503"):
        await tokens.token(ACME)
    github.wrong = lambda _: None
    assert await tokens.token(ACME) == "ghs_2"


async def test_a_refused_token_is_replaced_once_for_all_who_had_it():
    github = GitHub()
    tokens = github.tokens()
    old = await tokens.token(ACME)
    assert await asyncio.gather(*(tokens.refused(ACME, old) for _ in range(5))) == [True] * 5
    assert await tokens.token(ACME) == "ghs_2"
    assert github.made == 2


@pytest.mark.parametrize("ahead", [-86_400.0, -300.0, 300.0, 86_400.0])
async def test_fp_37_a_wrong_clock_of_ours_is_corrected_by_githubs(ahead, caplog):
    github = GitHub(ours=ahead)
    tokens = github.tokens()
    assert await tokens.token(ACME) == "ghs_1"
    assert "set it right" in caplog.text
    assert len(github.lines) <= 3  # one more than every token takes, where the first was refused
    github.passed = HOUR - 610
    assert await tokens.token(ACME) == "ghs_1"
    github.passed = HOUR - 590
    assert await tokens.token(ACME) == "ghs_2"


async def test_an_app_that_github_does_not_know_by_its_key_is_denied_at_once():
    github = GitHub()
    github.wrong = lambda _: told(401, {"message": "A JSON web token could not be decoded"})
    with pytest.raises(Denied, match="check app_id"):
        await github.tokens().token(ACME)
    assert len(github.lines) == 1


async def test_fp_37_an_app_that_is_not_installed_is_denied_and_found_once_it_is():
    github = GitHub(installations={})
    tokens = github.tokens()
    with pytest.raises(Denied, match="not installed there; install it"):
        await tokens.token(ACME)
    github.installations["acme"] = 9
    assert await tokens.token(ACME) == "ghs_1"


async def test_an_app_that_was_installed_anew_is_found_again():
    github = GitHub()
    tokens = github.tokens()
    old = await tokens.token(ACME)
    github.installations["acme"] = 19
    with pytest.raises(Denied, match="was uninstalled from acme"):
        await tokens.refused(ACME, old)
    assert await tokens.token(ACME) == "ghs_2"
    assert github.lines[-1] == "POST /app/installations/19/access_tokens"


async def test_github_lets_no_app_see_to_an_enterprise():
    github = GitHub()
    with pytest.raises(Denied, match="use a token there"):
        await github.tokens().token("/enterprises/big")
    assert github.lines == []


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (told(403, {"message": "This installation has been suspended"}), Denied, "suspended; lift that"),
        (told(403, {"message": "Resource not accessible"}), Denied, "may not do this"),
        (told(429, {"message": "slow down"}, **{"retry-after": "7"}), Limited, "rate limit"),
        (told(201, {"token": "", "expires_at": "2026-11-30T00:00:00Z"}), RetryLater, "usable token"),
        (told(201, {"token": "a b", "expires_at": "2026-11-30T00:00:00Z"}), RetryLater, "usable token"),
        (told(201, {"token": "x", "expires_at": "2026-11-30T00:00:00"}), RetryLater, "time zone"),
        (told(201, {"token": "x"}), RetryLater, "not understood"),
        (told(201, [1]), RetryLater, "not understood"),
    ],
)
async def test_an_answer_without_a_token_is_told_by_what_to_do(answer, error, words):
    github = GitHub()
    github.wrong = lambda request: answer if request.writes else None
    with pytest.raises(error, match=words) as caught:
        await github.tokens().token(ACME)
    assert type(caught.value) is error


async def test_a_new_key_in_the_file_is_found_without_a_restart(tmp_path):
    github, file = GitHub(), tmp_path / "app.pem"
    tokens = github.tokens(key_file=file)
    with pytest.raises(Denied, match=r"app\.pem cannot be read"):
        await tokens.token(ACME)
    file.write_text("what is this", encoding="utf-8")
    with pytest.raises(Denied, match="holds no RSA private key"):
        await tokens.token(ACME)
    file.write_text(pem(), encoding="utf-8")
    assert await tokens.token(ACME) == "ghs_1"


def test_a_key_of_another_kind_is_refused_when_the_app_is_made():
    with pytest.raises(Denied, match="no RSA private key"):
        AppTokens(12, key=pem(ec.generate_private_key(ec.SECP256R1())))


async def test_neither_key_nor_token_shows(caplog):
    caplog.set_level("DEBUG")
    github = GitHub()
    tokens = github.tokens()
    await tokens.token(ACME)
    shown = f"{tokens!r} {tokens._held!r} {caplog.text}"
    assert "ghs_" not in shown
    assert "PRIVATE" not in shown
    with pytest.raises(PortError) as caught:
        app_wire.read_key(pem()[:300] + "\n-----END RSA PRIVATE KEY-----\n", "private_key")
    assert pem().splitlines()[1] not in repr(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"app_id": 1}, "exactly one private key"),
        ({"app_id": 1, "private_key": "x", "private_key_file": Path("x")}, "exactly one private key"),
        ({"app_id": 1, "token": "x"}, "keep one"),
        ({"app_id": 1, "token_file": Path("x")}, "keep one"),
        ({"private_key": "x"}, "without app_id"),
        ({"private_key_file": Path("x")}, "without app_id"),
        ({"app_id": 1, "private_key": "x"}, "no RSA private key"),
    ],
)
def test_half_a_credential_and_two_of_them_are_refused(given, words):
    with pytest.raises(Denied, match=words):
        make_forge("github", **given)
