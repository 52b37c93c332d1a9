"""Who asks, and may they: the doors before the API and the dashboard.

Each door finds out who asks and puts an `Access` into the request's scope; a route says with `require` which
role it needs. Without a door nobody is anybody, so that an app without one refuses everything. What a door lets
through without an `Access` is `OPEN`.

- The unix socket (`OnSocket`): whoever can open it operates.
- A loopback port for demonstrations (`local.LocalOnly`): the same, for this machine's programs and its own pages.
- TCP (`WithTokens`): a bearer token, or a browser's session.

A browser sends a cookie along whoever made it ask, so an unsafe method needs more: the page that asks must be
ours (`Origin`, `Sec-Fetch-Site`), and it must bring the session's CSRF token, in the header `X-CSRF-Token` or in
the form field `csrf`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from http.cookies import CookieError, SimpleCookie
from ipaddress import IPv6Address, ip_address
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ephemerd.app.sessions import Failures, Sessions
from ephemerd.app.tokens import Tokens
from ephemerd.ports.access import Role
from ephemerd.web.answers import problem

logger = logging.getLogger(__name__)

OPEN = frozenset({"/healthz", "/readyz", "/login"})
"""Paths that are answered to everybody; and what lies under `/assets/`."""
ASSETS = "/assets/"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
KEY = "ephemerd.access"
FIELD, HEADER = "csrf", "x-csrf-token"
FORM = "application/x-www-form-urlencoded"
MOST_FORM = 64 * 1024
FORM_LIMIT = 5.0

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Access:
    """Who asks: what they may do, what the journal calls them, and what their forms must bring along.

    local   over the unix socket: the only way to make and revoke tokens
    via     `socket`, `loopback`, `token` or `session`
    token   digest of the token, also of the one that a session came from; empty for none
    good    whether it still is so: for answers that go on for long
    """

    role: Role
    who: str
    csrf: str = field(repr=False)
    via: str
    local: bool = False
    token: bytes = field(default=b"", repr=False)
    good: Callable[[], bool] = field(default=lambda: True, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Keys:
    """What the door of the TCP port knows. `cookie` names the session's cookie."""

    tokens: Tokens
    sessions: Sessions
    failures: Failures
    cookie: str


def access_of(request: Request) -> Access | None:
    """Return who asks; None where nobody is known, which an open route alone can see."""
    found = request.scope.get(KEY)
    return found if isinstance(found, Access) else None


def require(role: Role) -> Callable[[Endpoint], Endpoint]:
    """Make an endpoint answer only to those who have the role: 401 to nobody, 403 to others."""

    def wrap(endpoint: Endpoint) -> Endpoint:
        async def guarded(request: Request) -> Response:
            access = access_of(request)
            if access is None:
                return unauthorized()
            if not access.role.covers(role):
                return problem(403, f"this needs a token with the role {role.value}")
            return await endpoint(request)

        return guarded

    return wrap


def unauthorized(detail: str = "send a token: Authorization: Bearer ephd_…") -> Response:
    """Answer that nobody is known here."""
    return problem(401, detail, headers={"www-authenticate": 'Bearer realm="ephemerd"'})


def may_pass(path: str) -> bool:
    """Whether a path is answered to everybody."""
    return path in OPEN or path.startswith(ASSETS)


def same_origin(headers: Headers) -> bool:
    """Whether a request was made by a page of ours, as far as the browser says where it comes from."""
    if headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == headers.get("host", "").lower() != ""
    except ValueError:
        return False


def content_type(headers: Headers) -> str:
    """Return the content type without its parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def from_browser(headers: Headers) -> bool:
    """Whether a browser sent this."""
    return any(name in headers for name in ("origin", "sec-fetch-site", "cookie"))


class OnSocket:
    """The door of the unix socket. What a browser sends through a tunnel to it is held to a page of ours."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._access = Access(Role.OPERATE, "", secrets.token_urlsafe(32), "socket", local=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        if scope["method"] not in SAFE and from_browser(headers):
            refused, receive = await forged(headers, receive, self._access.csrf)
            if refused is not None:
                await refused(scope, receive, send)
                return
        await self._app({**scope, KEY: self._access}, receive, send)


class WithTokens:
    """The door of the TCP port: a bearer token or a session, or 401."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        found = self._who(scope, headers)
        if isinstance(found, Response) and not may_pass(scope["path"]):
            await found(scope, receive, send)
            return
        access = found if isinstance(found, Access) else None
        if access is not None and access.via == "session" and scope["method"] not in SAFE:
            refused, receive = await forged(headers, receive, access.csrf)
            if refused is not None:
                await refused(scope, receive, send)
                return
        await self._app({**scope, KEY: access}, receive, send)

    def _who(self, scope: Scope, headers: Headers) -> Access | Response:
        """Return who asks, or what nobody is answered."""
        given = headers.get("authorization")
        if given is not None:
            scheme, _, token = given.strip().partition(" ")
            if scheme.lower() != "bearer" or not token.strip():
                return unauthorized("the only scheme is Bearer: Authorization: Bearer ephd_…")
            record = self._keys.tokens.find(token.strip())
            if record is None:
                return self._wrong(scope, "the token is not known, was revoked or is over; make a new one")
            good = partial(self._keys.tokens.holds, record.digest)
            return Access(record.role, record.name, "", "token", token=record.digest, good=good)
        secret = cookie(headers, self._keys.cookie)
        if not secret:
            return ask_for_login(scope, headers)
        session = self._keys.sessions.find(secret)
        if session is None:
            return self._wrong(scope, "the login is over; get a new link: ephemerd token login", headers)
        good = partial(self._keys.sessions.holds, secret)
        return Access(session.role, session.who, session.csrf, "session", token=session.token, good=good)

    def _wrong(self, scope: Scope, detail: str, headers: Headers | None = None) -> Response:
        """Answer to credentials that are wrong: 401, or 429 after some of them."""
        address = address_of(scope)
        wait = self._keys.failures.wrong(address)
        if wait:
            return problem(429, "too many wrong tokens from this address", headers={"retry-after": str(wait)})
        logger.warning("wrong credentials were sent to the API", extra={"fields": {"address": address}})
        return ask_for_login(scope, headers, detail) if headers is not None else unauthorized(detail)


def ask_for_login(scope: Scope, headers: Headers, detail: str = "") -> Response:
    """Answer to nobody: a page that was opened in a browser leads to the login, everything else is 401."""
    page = not scope["path"].startswith("/api/") and "text/html" in headers.get("accept", "")
    if page and scope["method"] in {"GET", "HEAD"}:
        return RedirectResponse("/login", 303, {"cache-control": "no-store"})
    answer = unauthorized(detail) if detail else unauthorized()
    if "hx-request" in headers:
        answer.headers["hx-redirect"] = "/login"
    return answer


async def forged(headers: Headers, receive: Receive, csrf: str) -> tuple[Response | None, Receive]:
    """Say whether an unsafe request that a browser sent was not meant by a page of ours: the refusal, or None.

    A form is read for that; read on from what is returned.
    """
    if not same_origin(headers):
        text = "this was sent by a page from elsewhere (a proxy must pass the Host header on as it is)"
        return problem(403, text), receive
    given = headers.get(HEADER)
    if given is None and content_type(headers) == FORM:
        try:
            body, receive = await _body(receive)
        except ValueError as error:
            return problem(413, str(error), headers={"connection": "close"}), receive
        except TimeoutError:
            return problem(408, "the form did not arrive in time", headers={"connection": "close"}), receive
        given = form(body).get(FIELD)
    if given is None or not hmac.compare_digest(given.encode(), csrf.encode()):
        return problem(403, f"the page is too old; load it again (no valid {FIELD} or {HEADER})"), receive
    return None, receive


async def _body(receive: Receive) -> tuple[bytes, Receive]:
    """Read a small body; return it with what reads it again. Raises `ValueError` and `TimeoutError`."""
    raw = bytearray()
    async with asyncio.timeout(FORM_LIMIT):
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                break
            raw += message.get("body", b"")
            more = message.get("more_body", False)
            if len(raw) > MOST_FORM:
                raise ValueError(f"a form holds {MOST_FORM} bytes at most")
    left: list[Message] = [{"type": "http.request", "body": bytes(raw), "more_body": False}]

    async def again() -> Message:
        return left.pop() if left else await receive()

    return bytes(raw), again


def form(body: bytes) -> dict[str, str]:
    """Return the fields of a form as browsers send them; of a field that comes twice the last."""
    text = body.decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=200))
    except ValueError:
        return {}


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a request's form; what is no form has none."""
    if content_type(request.headers) != FORM:
        return {}
    body, _ = await _body(request.receive)
    return form(body)


def cookie(headers: Headers, name: str) -> str:
    """Return a cookie's value, "" where it was not sent."""
    try:
        jar = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return ""
    return jar[name].value if name in jar else ""


def address_of(scope: Scope) -> str:
    """Return the caller's address; of IPv6 the network, of which one caller has all."""
    client = scope.get("client")
    text = str(client[0]) if client else ""
    try:
        address = ip_address(text)
    except ValueError:
        return text
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(IPv6Address(int(address) >> 64 << 64)) + "/64"
    return text
