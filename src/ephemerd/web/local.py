"""A port without accounts on loopback: who may talk to it from this machine, and which browsers may not.

A page from anywhere can make a browser send requests to 127.0.0.1. So the Host header must name this machine
(against rebinding a foreign name to it), a foreign Origin is refused, and orders must be JSON by their content
type, which a foreign page cannot send without being asked first.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ephemerd.web.answers import problem


class LocalOnly:
    """Wraps an app that is served on a loopback port without a token."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        refusal = _refusal(scope["method"], headers)
        if refusal is not None:
            await problem(403, refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _refusal(method: str, headers: Headers) -> str | None:
    if not names_this_machine(f"//{headers.get('host', '')}"):
        return "this port answers to its loopback address alone"
    origin = headers.get("origin")
    if origin is not None and not names_this_machine(origin):
        return "this port does not answer to pages from elsewhere"
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method not in {"GET", "HEAD", "OPTIONS"} and kind != "application/json":
        return "orders are sent as application/json"
    return None


def names_this_machine(url: str) -> bool:
    """Whether a URL's host is a loopback address or `localhost`."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
