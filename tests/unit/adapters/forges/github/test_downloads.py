"""What GitHub's list of runner applications is read as, whatever stands in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ephemerd.adapters.forges.github import downloads
from ephemerd.adapters.forges.github.downloads import MOST, GitHubDownloads
from ephemerd.adapters.kit.answer import Answer
from ephemerd.domain.ids import Scope
from ephemerd.ports.applications import Ends
from ephemerd.ports.errors import Denied, PortError, RetryLater

APP = Scope("github", "repo:acme/app")
SUM = "ab" * 32
ENTRY: dict[str, Any] = {
    "os": "linux",
    "architecture": "x64",
    "download_url": "https://github.com/actions/runner/releases/download/v2.336.0/a.tar.gz",
    "filename": "actions-runner-linux-x64-2.336.0.tar.gz",
    "sha256_checksum": SUM.upper(),
}


class Wire:
    """Stands in for the connection: gives one answer and remembers what was asked."""

    base = "https://ghes.example.org/api/v3"

    def __init__(self, body: object, status: int = 200) -> None:
        self.answer = Answer(status, {}, body if isinstance(body, bytes) else json.dumps(body).encode())
        self.asked: list[Any] = []

    async def fetch(self, request: Any, _deadline: float) -> Answer:
        self.asked.append(request)
        if self.answer.status != 200:
            raise self.fault(request, self.answer)
        return self.answer

    async def ask(self, request: Any, _deadline: float) -> Answer:
        self.asked.append(request)
        return self.answer

    def fault(self, _request: Any, answer: Answer) -> PortError:
        return Denied(f"answered {answer.status}")


def reading(body: object, status: int = 200, **how: Any) -> tuple[GitHubDownloads, Wire]:
    wire = Wire(body, status)
    return GitHubDownloads(wire, **how), wire  # type: ignore[arg-type]


async def test_an_entry_is_read_whole():
    catalogue, wire = reading([{**ENTRY, "temp_download_token": "short-lived"}])
    (found,) = await catalogue.offered(APP)
    assert (found.system, found.architecture, found.version) == ("linux", "x64", "2.336.0")
    assert (found.file, found.checksum, found.token) == (ENTRY["filename"], SUM, "short-lived")
    assert found.url == ENTRY["download_url"]
    assert "short-lived" not in repr(found)
    (request,) = wire.asked
    assert request.target == "/repos/acme/app/actions/runners/downloads"
    assert request.conditional
    assert not request.writes


@pytest.mark.parametrize(
    ("scope", "path"),
    [
        ("org:acme", "/orgs/acme/actions/runners/downloads"),
        ("enterprise:big", "/enterprises/big/actions/runners/downloads"),
    ],
)
async def test_each_kind_of_scope_has_its_own_list(scope, path):
    catalogue, wire = reading([])
    assert await catalogue.offered(Scope("github", scope)) == []
    assert wire.asked[0].target == path


@pytest.mark.parametrize("told", [None, "", "  ", 7])
async def test_a_checksum_that_is_not_stated_is_none(told):
    catalogue, _ = reading([{**ENTRY, "sha256_checksum": told}])
    assert [one.checksum for one in await catalogue.offered(APP)] == [""]


@pytest.mark.parametrize(
    "odd",
    [
        {"sha256_checksum": "ab" * 31},
        {"sha256_checksum": "x" * 64},
        {"os": None},
        {"os": "Linux!"},
        {"architecture": ["x64"]},
        {"architecture": "../x64"},
        {"download_url": None},
        {"download_url": "not an address"},
        {"download_url": "https://[::1/x"},
        {"filename": "actions-runner-linux-x64.tar.gz"},
        {"filename": "actions-runner-linux-x64-2.336.0.rar"},
        {"filename": "../actions-runner-linux-x64-2.336.0.tar.gz"},
        {"filename": "actions-runner-linux-x64-2.336.0.tar.gz\n"},
        {"filename": 7},
    ],
)
async def test_what_is_not_understood_is_left_out_and_the_rest_counts(odd):
    catalogue, _ = reading([{**ENTRY, **odd}, ENTRY])
    assert len(await catalogue.offered(APP)) == 1


async def test_a_zip_is_read_as_well_and_there_is_a_bound():
    name = "actions-runner-win-x64-2.336.0.zip"
    catalogue, _ = reading([{**ENTRY, "os": "win", "filename": name}] * (MOST + 50))
    found = await catalogue.offered(APP)
    assert len(found) == MOST
    assert found[0].file == name


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"message": "x"}', b"[" * 100_000])
async def test_an_answer_that_is_no_list_is_asked_for_again(body):
    catalogue, _ = reading(body)
    with pytest.raises(RetryLater, match="not understood"):
        await catalogue.offered(APP)


async def test_a_refusal_is_told_as_such():
    catalogue, _ = reading({}, 403)
    with pytest.raises(Denied):
        await catalogue.offered(APP)
    with pytest.raises(Denied):
        await catalogue.ends(APP, "2.336.0")


async def test_the_forges_own_authorities_are_trusted_at_the_forge_alone():
    here = {**ENTRY, "download_url": "https://GHES.example.org/runner/a.tar.gz"}
    catalogue, _ = reading([here, ENTRY], ca_file=Path("/ca.pem"))
    assert [one.ca_file for one in await catalogue.offered(APP)] == [Path("/ca.pem"), None]


@pytest.mark.parametrize(
    ("body", "ends"),
    [
        (
            {
                "registration_deprecates_at": "2026-12-01T00:00:00Z",
                "runtime_deprecates_at": "2026-12-31T01:00:00+01:00",
            },
            Ends(1_796_083_200_000, 1_798_675_200_000),
        ),
        ({"registration_deprecates_at": None, "runtime_deprecates_at": "soon"}, Ends()),
        ({"runtime_deprecates_at": 7}, Ends()),
        ({}, Ends()),
    ],
)
async def test_the_ends_of_a_version(body, ends):
    catalogue, wire = reading(body)
    assert await catalogue.ends(APP, "2.336.0") == ends
    assert wire.asked[0].target == "/repos/acme/app/actions/runners/deprecations/2.336.0"


async def test_where_that_question_is_not_known_there_is_no_answer():
    catalogue, _ = reading({"message": "Not Found"}, 404)
    assert await catalogue.ends(APP, "2.336.0") is None
    catalogue, _ = reading(b"[]")
    with pytest.raises(RetryLater):
        await catalogue.ends(APP, "2.336.0")


def test_a_moment_that_is_none():
    assert downloads._moment("9999-99-99") is None
