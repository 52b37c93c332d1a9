"""What every REST endpoint has in common: who may ask, limits, outages, headers, ETags, paging, the call log.

Sources: github.md, sections 1 (basics), 5 (paging), 7 (limits), 8 (ETags).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, TypeVar
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ephemerd.testing.forge_sim.apps import Apps, Grant
from ephemerd.testing.forge_sim.companies import Company
from ephemerd.testing.forge_sim.deliveries import Deliverer
from ephemerd.testing.forge_sim.limits import Limited, Limits
from ephemerd.testing.forge_sim.model import Repository
from ephemerd.testing.forge_sim.offers import Offers
from ephemerd.testing.forge_sim.outages import Outages
from ephemerd.testing.forge_sim.world import Refused, World

API_VERSIONS = ("2022-11-28", "2026-03-10")
GHES_PREFIX = "/api/v3"
NO_WORD_MS = 60_000

Json = dict[str, Any]
Handler = Callable[[Request, "Site"], Awaitable["Reply"]]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a handler answers; with ``answer_lost`` the caller never gets to see it. ``runner`` is noted in the
    call log."""

    status: int = 200
    body: Json | list[Json] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    answer_lost: bool = False
    runner: str | None = None


@dataclass(slots=True)
class Site:
    """Everything that an endpoint can reach."""

    world: World
    offers: Offers
    deliverer: Deliverer
    outages: Outages
    token: str
    limits: Limits
    apps: Apps

    def base(self, request: Request) -> str:
        """The start of the API's addresses as this caller reaches it; answers point back the same way."""
        return self.world.base_url + (GHES_PREFIX if request.url.path.startswith(GHES_PREFIX) else "")

    def repository(self, request: Request) -> Repository:
        """The repository that the path names, else 404."""
        name = f"{request.path_params['owner']}/{request.path_params['repo']}".lower()
        if name in self.world.repositories:
            return self.world.repositories[name]
        renamed = self.world.moved.get(name)
        if renamed is None or renamed.full_name.lower() not in self.world.repositories:
            raise Refused(404, "Not Found")
        asked = request.url.path.partition(f"/{request.path_params['repo']}")[2]
        query = f"?{request.url.query}" if request.url.query else ""
        raise Moved(f"{self.base(request)}/repositories/{renamed.id}{asked}{query}")

    def company(self, request: Request) -> Company:
        """The organization or enterprise that the path names, else 404."""
        for kind in ("org", "enterprise"):
            if kind in request.path_params:
                found = self.world.company(kind, request.path_params[kind])
                if found is not None:
                    return found
        raise Refused(404, "Not Found")

    def scope(self, request: Request) -> Repository | Company:
        """The scope of runners that the path names, else 404."""
        return self.repository(request) if "repo" in request.path_params else self.company(request)


def route(
    site: Site,
    method: str,
    path: str,
    handler: Handler,
    *,
    free: bool = False,
    needs: str | None = None,
    jwt: bool = False,
) -> list[Route]:
    """Make the routes of one endpoint: at the root as on github.com and under ``/api/v3`` as on a GHES.

    ``needs`` is the permission that the endpoint says it wants (github.md, section 2.3); ``jwt`` says that it is
    for Apps, by their JWT.
    """
    level = "read" if method == "GET" else "write"
    accepts = {"x-accepted-github-permissions": f"{needs}={level}"} if needs else {}

    def allow(request: Request, grant: Grant) -> None:
        site.apps.allow(grant, request.path_params, needs, level, jwt=jwt)

    async def answer(request: Request) -> Response:
        return await _answer(request, site, handler, path, allow, free=free, headers=accepts)

    return [Route(prefix + path, answer, methods=[method]) for prefix in ("", GHES_PREFIX)]


async def no_such_endpoint(request: Request, error: Exception) -> Response:
    """What is asked for at an address, or with a method, that does not exist: 404 as for anything unknown."""
    body = {"message": "Not Found", "documentation_url": "https://docs.github.com/rest", "status": "404"}
    return JSONResponse(body, 404)


async def _answer(
    request: Request,
    site: Site,
    handler: Handler,
    template: str,
    allow: Callable[[Request, Grant], None],
    *,
    free: bool,
    headers: Mapping[str, str],
) -> Response:
    began = time.monotonic()
    delay = site.world.weather.rest_delay.draw(site.world.rng("rest")) / 2
    await asyncio.sleep(delay)
    limits, entered, limited = site.limits, False, False
    try:
        grant = request.state.grant = _check(request, site)
        limits, entered = grant.limits, True
        limits.enter()
        await _suffer_outage(site)
        if not free:
            limits.spend(request.method, f"{request.method} {template}")
        allow(request, grant)
        reply = await handler(request, site)
    except Refused as refusal:
        reply, limited = _refusal(site, refusal), isinstance(refusal, Limited)
    await asyncio.sleep(delay)
    if reply.answer_lost:
        await _keep_silent(site, 30.0)
        reply = Reply(504, {"message": "We couldn't respond to your request in time."})
    if entered:
        limits.leave()
    response = _respond(request, site, reply, headers, limits, charged=not free)
    took = round((time.monotonic() - began) * 1000, 3)
    site.world.truth.add(
        "api_call",
        method=request.method,
        path=template,
        status=response.status_code,
        took_ms=took,
        who=_who(request),
        **({"runner": reply.runner} if reply.runner else {}),
        **({"wait_ms": _wait_ms(response)} if limited else {}),
    )
    return response


def _who(request: Request) -> str:
    """Name the credential of a request for the truth log; "" for one that was none."""
    grant: Grant | None = getattr(request.state, "grant", None)
    if grant is None:
        return ""
    if grant.app is not None:
        return f"app:{grant.app.id}"
    return f"installation:{grant.issued.installation.id}" if grant.issued is not None else "token"


def _wait_ms(response: Response) -> int:
    """How long the headers of a limit say to wait; without a word it is a minute at least (github.md, 7.2)."""
    headers = response.headers
    if "retry-after" in headers:
        return int(headers["retry-after"]) * 1000
    if headers["x-ratelimit-remaining"] == "0":
        return max(0, int(headers["x-ratelimit-reset"]) * 1000 - int(time.time() * 1000))
    return NO_WORD_MS


def _check(request: Request, site: Site) -> Grant:
    """Say who asks; refuse what GitHub refuses before it looks at the endpoint (github.md, section 1)."""
    if not request.headers.get("user-agent", "").strip():
        raise Refused(
            403, "Request forbidden by administrative rules. Please make sure it has a User-Agent header"
        )
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() not in ("bearer", "token") or not given:
        raise Refused(401, "Requires authentication")
    grant = site.apps.grant(given.strip(), site.token, site.limits)
    version = request.headers.get("x-github-api-version")
    if version is not None and version not in API_VERSIONS:
        raise Refused(410, f"API version {version} is not supported")
    return grant


async def _suffer_outage(site: Site) -> None:
    kind = site.outages.kind
    if kind == "503":
        raise Refused(503, "Service unavailable")
    if kind == "403-rate-limit":
        raise Limited("API rate limit exceeded.", retry_after=None)
    if kind == "429":
        raise Limited("Too many requests.", retry_after=math.ceil(site.outages.seconds_left()), status=429)
    if kind == "timeout":
        await _keep_silent(site, site.outages.seconds_left())
        raise Refused(504, "We couldn't respond to your request in time.")


async def _keep_silent(site: Site, seconds: float) -> None:
    """Leave the caller without an answer for a while; ends early when the server closes."""
    try:
        await asyncio.wait_for(site.world.closing.wait(), seconds)
    except TimeoutError:
        return


class Moved(Refused):
    """What was asked for is at another address."""

    def __init__(self, location: str) -> None:
        super().__init__(301, "Moved Permanently")
        self.location = location


def _refusal(site: Site, refusal: Refused) -> Reply:
    headers = {"location": refusal.location} if isinstance(refusal, Moved) else {}
    if isinstance(refusal, Limited):
        if refusal.retry_after is not None:
            headers["retry-after"] = str(refusal.retry_after)
        elif site.outages.kind is not None:
            reset = math.ceil(time.time() + site.outages.seconds_left())
            headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(reset)}
    body: Json = {
        "message": refusal.message,
        "documentation_url": "https://docs.github.com/rest",
        "status": str(refusal.status),
    }
    return Reply(refusal.status, body, headers)


def _respond(
    request: Request, site: Site, reply: Reply, standing: Mapping[str, str], limits: Limits, *, charged: bool
) -> Response:
    content = b"" if reply.body is None else json.dumps(reply.body, separators=(",", ":")).encode()
    headers = {
        "date": formatdate(time.time(), usegmt=True),
        "x-github-request-id": f"{site.world.rng('requests').getrandbits(64):016X}",
        "x-github-media-type": "github.v3; format=json",
        "x-github-api-version-selected": request.headers.get("x-github-api-version", API_VERSIONS[0]),
        **limits.headers(),
        **standing,
        **reply.headers,
    }
    status = reply.status
    if request.method == "GET" and status == 200:
        # Weak, and different for each credential (github.md, section 8).
        credential = request.headers.get("authorization", "")
        digest = hashlib.sha256(credential.encode() + b"\0" + content).hexdigest()[:40]
        headers["etag"] = f'W/"{digest}"'
        headers["cache-control"] = "private, max-age=60"
        if _known(request.headers.get("if-none-match", ""), headers["etag"]):
            if charged:
                limits.give_back()
            headers |= limits.headers()
            status, content = 304, b""
    if content:
        headers["content-type"] = "application/json; charset=utf-8"
    return Response(content, status, headers)


def _known(offered: str, etag: str) -> bool:
    """Whether a caller's ``If-None-Match`` names ``etag``; weak and strong count alike there."""
    plain = etag.removeprefix("W/")
    return plain in [one.strip().removeprefix("W/") for one in offered.split(",")]


async def json_body(request: Request) -> Json:
    """The request's JSON object; anything else is refused with 400."""
    try:
        body = json.loads(await request.body() or b"{}")
    except ValueError:
        raise Refused(400, "Problems parsing JSON") from None
    if not isinstance(body, dict):
        raise Refused(400, "Body should be a JSON object")
    return body


T = TypeVar("T")


def paged(request: Request, site: Site, items: Sequence[T]) -> tuple[list[T], dict[str, str]]:
    """Cut the page that the request asks for, with its ``Link`` header (30 a page, 100 at most [doc])."""
    size = min(max(number(request, "per_page", 30), 1), 100)
    page = max(number(request, "page", 1), 1)
    pages = max(1, math.ceil(len(items) / size))
    links = []
    for name, target, there in (
        ("prev", page - 1, page > 1),
        ("next", page + 1, page < pages),
        ("last", pages, page < pages),
        ("first", 1, page > 1),
    ):
        if there:
            links.append(f'<{link(request, site, page=str(target))}>; rel="{name}"')
    headers = {"link": ", ".join(links)} if links else {}
    return list(items[(page - 1) * size : page * size]), headers


def link(request: Request, site: Site, **changed: str) -> str:
    """The address of this request with some of its query changed."""
    query = urlencode({**dict(request.query_params), **changed})
    return f"{site.world.base_url}{request.url.path}?{query}"


def number(request: Request, name: str, default: int) -> int:
    """An integer of the query; what is not a number counts as absent."""
    try:
        return int(request.query_params.get(name, default))
    except ValueError:
        return default
