"""The runner applications that GitHub offers, and until when a version is good.

Sources: GitHub's REST reference, self-hosted runners: `GET {scope}/actions/runners/downloads` lists archives for each
platform, with `sha256_checksum` and `temp_download_token` both optional; the version listed is the one that GitHub
expects of this account, since roll-outs are progressive. `GET {scope}/actions/runners/deprecations/{version}` is
described for GitHub Enterprise Cloud and answers 404 elsewhere.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ephemerd.adapters.forges.github.connection import Connection
from ephemerd.adapters.forges.github.wire import Request, scope_path
from ephemerd.domain.ids import Scope
from ephemerd.ports.applications import Ends, Offered
from ephemerd.ports.errors import RetryLater

MOST = 200
"""Entries of a listing that are read; GitHub has seven."""
HINT = "check the scope, and that the token may see its runners"
_VERSION = re.compile(r"-(\d{1,6}\.\d{1,6}\.\d{1,6})\.(?:tar\.gz|zip)\Z", re.ASCII)
_WORD = re.compile(r"[a-z0-9_]{1,20}", re.ASCII)
_SUM = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)


class _Entry(msgspec.Struct):
    os: Any = None
    architecture: Any = None
    download_url: Any = None
    filename: Any = None
    sha256_checksum: Any = None
    temp_download_token: Any = None


class _Ends(msgspec.Struct):
    registration_deprecates_at: Any = None
    runtime_deprecates_at: Any = None


class GitHubDownloads:
    """The `Catalogue` port over a forge's connection."""

    def __init__(
        self, connection: Connection, *, ca_file: Path | None = None, timeout_s: float = 20.0
    ) -> None:
        """`ca_file` is trusted where an archive lies at the forge itself, as at an Enterprise Server."""
        self._connection = connection
        self._ca_file = ca_file
        self._timeout_s = timeout_s

    async def offered(self, scope: Scope) -> list[Offered]:
        """List what GitHub offers for a scope; an entry that is not understood is left out."""
        request = Request(
            "GET",
            f"{scope_path(scope)}/actions/runners/downloads",
            "GET {scope}/actions/runners/downloads",
            f"the runner applications for {scope.path}",
            HINT,
            account=scope_path(scope),
            conditional=True,
        )
        answer = await self._connection.fetch(request, self._deadline())
        try:
            entries = msgspec.json.decode(answer.body, type=list[_Entry])
        except (msgspec.DecodeError, RecursionError):
            raise RetryLater(f"GitHub's answer to {request.endpoint} is not understood") from None
        home = _host(self._connection.base)
        found = [one for entry in entries[:MOST] if (one := _offered(entry)) is not None]
        return [replace(one, ca_file=self._ca_file) if _host(one.url) == home else one for one in found]

    async def ends(self, scope: Scope, version: str) -> Ends | None:
        """Ask from when a version is refused; None where GitHub answers 404."""
        request = Request(
            "GET",
            f"{scope_path(scope)}/actions/runners/deprecations/{version}",
            "GET {scope}/actions/runners/deprecations/{version}",
            f"until when version {version} is good",
            account=scope_path(scope),
            conditional=True,
        )
        answer = await self._connection.ask(request, self._deadline())
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise self._connection.fault(request, answer)
        try:
            told = msgspec.json.decode(answer.body, type=_Ends)
        except (msgspec.DecodeError, RecursionError):
            raise RetryLater(f"GitHub's answer to {request.endpoint} is not understood") from None
        return Ends(_moment(told.registration_deprecates_at), _moment(told.runtime_deprecates_at))

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout_s


def _offered(entry: _Entry) -> Offered | None:
    words = (entry.os, entry.architecture, entry.download_url, entry.filename)
    if not all(isinstance(word, str) for word in words):
        return None
    version = _VERSION.search(entry.filename)
    named = _WORD.fullmatch(entry.os) and _WORD.fullmatch(entry.architecture)
    if version is None or not named or "/" in entry.filename or not _host(entry.download_url):
        return None
    told, token = entry.sha256_checksum, entry.temp_download_token
    checksum = told.strip() if isinstance(told, str) else ""
    if checksum and not _SUM.fullmatch(checksum):
        return None  # a sum that nothing can have is no missing one
    return Offered(
        entry.os,
        entry.architecture,
        version[1],
        entry.download_url,
        entry.filename,
        checksum.lower(),
        token if isinstance(token, str) else "",
    )


def _host(url: str) -> str:
    """Return host and port of an address; "" for what is none."""
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""


def _moment(told: object) -> int | None:
    """Return a moment in ms since the epoch; None where none is told, or not in a way that is understood."""
    if not isinstance(told, str):
        return None
    try:
        return round(datetime.fromisoformat(told).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
