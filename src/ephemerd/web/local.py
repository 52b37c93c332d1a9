"""A port without accounts on loopback: who may talk to it from this machine, and which browsers may not.

A page from anywhere can make a browser send requests to 127.0.0.1. So the Host header must name this machine
(against rebinding a foreign name to it), a foreign Origin is refused, and an order must either be JSON by its
content type, which a foreign page cannot send without being asked first, or bring this port's CSRF token.
"""

from __future__ import annotations

import ipaddress
import secrets
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ephemerd.ports.access import Role
from ephemerd.web.access import KEY, SAFE, Access, content_type, forged, same_origin
from ephemerd.web.answers import problem


class LocalOnly:
    """Wraps an app that is served on a loopback port without a token: who gets through operates."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._access = Access(Role.OPERATE, "", secrets.token_urlsafe(32), "loopback")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        foreign = _foreign(headers)
        refused = problem(403, foreign) if foreign is not None else None
        if refused is None and scope["method"] not in SAFE and not _plain_order(headers):
            refused, receive = await forged(headers, receive, self._access.csrf)
        if refused is not None:
            await refused(scope, receive, send)
            return
        await self._app({**scope, KEY: self._access}, receive, send)


def _foreign(headers: Headers) -> str | None:
    if not names_this_machine(f"//{headers.get('host', '')}"):
        return "this port answers to its loopback address alone"
    origin = headers.get("origin")
    if origin is not None and not names_this_machine(origin):
        return "this port does not answer to pages from elsewhere"
    return None


def _plain_order(headers: Headers) -> bool:
    """Whether an order is one that a foreign page cannot send."""
    return content_type(headers) == "application/json" and same_origin(headers)


def names_this_machine(url: str) -> bool:
    """Whether a URL's host is a loopback address or `localhost`."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
