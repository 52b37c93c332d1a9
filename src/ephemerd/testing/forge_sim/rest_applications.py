"""REST: what runner applications there are (github.md, sections 3.4 and 15), and where their archives are.

As at GitHub an archive's address leads on to another host's, which takes no credential of the API.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from ephemerd.testing.forge_sim.applications import PLATFORMS, TOKEN, file_name
from ephemerd.testing.forge_sim.rest import Reply, Site, route
from ephemerd.testing.forge_sim.world import Refused

PIECES = 10
DAY = 86_400.0
GOOD_FOR = 30 * DAY
"""Seconds that a version is good after the next one [doc]."""


def routes(site: Site, scope: str) -> list[Route]:
    """The endpoints below ``scope``, e.g. ``/repos/{owner}/{repo}``."""
    base = f"{scope}/actions/runners"
    needs = "administration" if scope.startswith("/repos") else "organization_self_hosted_runners"
    return [
        *route(site, "GET", f"{base}/downloads", list_downloads, needs=needs),
        *route(site, "GET", f"{base}/deprecations/{{version}}", get_deprecation, needs=needs),
    ]


def files(site: Site) -> list[Route]:
    """Where archives are."""

    async def moved(request: Request) -> Response:
        if site.world.applications.token and request.headers.get("authorization") != f"Bearer {TOKEN}":
            return Response(status_code=401)
        return RedirectResponse(f"{site.world.base_url}/_archives/{request.path_params['name']}", 302)

    async def archive(request: Request) -> Response:
        return _archive(request, site)

    return [
        Route("/_releases/{name}", moved, methods=["GET"]),
        Route("/_archives/{name}", archive, methods=["GET"]),
    ]


async def list_downloads(request: Request, site: Site) -> Reply:
    """List one archive for each platform."""
    site.scope(request)
    known = site.world.applications
    entries = []
    for system, architecture in PLATFORMS:
        if system not in known.systems:
            continue
        name = file_name(system, architecture, known.listed)
        entry: dict[str, Any] = {
            "os": system,
            "architecture": architecture,
            "download_url": f"{site.world.base_url}/_releases/{name}",
            "filename": name,
        }
        checksum = await asyncio.to_thread(known.shown_checksum, known.listed, system)
        if checksum:
            entry["sha256_checksum"] = checksum
        if known.token:
            entry["temp_download_token"] = TOKEN
        entries.append(entry)
    return Reply(200, entries)


async def get_deprecation(request: Request, site: Site) -> Reply:
    """Say until when a version is good; 404 where that question is not known."""
    site.scope(request)
    known, version = site.world.applications, request.path_params["version"]
    if not known.deprecations:
        raise Refused(404, "Not Found")
    ends: str | None = None
    if version != known.listed:
        at = time.time() + (-DAY if known.refuses(version) else GOOD_FOR)
        ends = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT00:00:00Z")
    return Reply(
        200,
        {"runner_version": version, "registration_deprecates_at": ends, "runtime_deprecates_at": ends},
    )


def _archive(request: Request, site: Site) -> Response:
    known, name = site.world.applications, request.path_params["name"]
    version = name.removesuffix(".tar.gz").removesuffix(".zip").rpartition("-")[2]
    if known.status:
        return Response(status_code=known.status)
    system = name.split("-")[2] if name.count("-") >= 4 else ""
    if all(name != file_name(*platform, version) for platform in PLATFORMS) or not version[:1].isdigit():
        return Response(status_code=404)
    content = known.archive(version, system)
    if known.cut:
        content = content[: len(content) // 2]
    known.served += 1
    headers, status, begin = {"accept-ranges": "bytes"}, 200, _begin(request, len(content))
    if begin:
        status = 206
        headers["content-range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
    headers["content-length"] = str(len(content) - begin)
    return StreamingResponse(
        _pieces(content[begin:], known.seconds), status, headers, media_type="application/octet-stream"
    )


def _begin(request: Request, size: int) -> int:
    """Where a range begins that is open at its end; 0 for anything else, which is then sent whole."""
    asked = request.headers.get("range", "")
    begin = asked.removeprefix("bytes=").removesuffix("-")
    return int(begin) if asked.startswith("bytes=") and begin.isdigit() and int(begin) < size else 0


async def _pieces(content: bytes, seconds: float) -> AsyncIterator[bytes]:
    size = len(content) // PIECES + 1
    for begin in range(0, len(content), size):
        await asyncio.sleep(seconds / PIECES)
        yield content[begin : begin + size]
