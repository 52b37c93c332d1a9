"""How a browser comes in and goes out: `/login` with a one-time code, `/logout`.

The code is spent by a GET, which no other page can read the answer of; a HEAD, as chat programs send to show a
link, spends nothing. The cookie is HttpOnly and SameSite=Strict, and Secure where TLS is in front.
"""

from __future__ import annotations

from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ephemerd.app.sessions import LIFE
from ephemerd.web.access import Keys, access_of, address_of, cookie
from ephemerd.web.answers import problem

HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in – ephemerd</title>
<style>:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }}
main {{ max-width: 34rem; margin: 12vh auto; padding: 0 1rem }}
code {{ padding: .1em .3em; border: 1px solid; border-radius: .25em }}</style></head>
<body><main><h1>Log in to ephemerd</h1>
{said}<p>On the daemon's machine, run <code>ephemerd token login</code> and open the link that it prints. With an API
token from elsewhere: <code>ephemerd token login --url {base} --token-file FILE</code>.</p>
<p>A link works once and for five minutes.</p></main></body></html>
"""


def login_routes(keys: Keys | None) -> list[Route]:
    """Build the routes; without `keys` there is nothing to log in to."""

    async def login(request: Request) -> Response:
        code = request.query_params.get("code", "")
        if request.method == "HEAD":
            return HTMLResponse(headers=HEADERS)
        if keys is None or (not code and access_of(request) is not None):
            return RedirectResponse("/", 303, HEADERS)
        if not code:
            return _page(request, 401, "")
        secret = keys.sessions.enter(code)
        if secret is None:
            wait = keys.failures.wrong(address_of(request.scope))
            if wait:
                return problem(
                    429, "too many wrong links from this address", headers={"retry-after": str(wait)}
                )
            return _page(request, 401, "This link was used already, or is too old.")
        answer = RedirectResponse("/", 303, HEADERS)
        answer.set_cookie(
            keys.cookie,
            secret,
            max_age=LIFE // 1000,
            path="/",
            secure=_over_tls(request),
            httponly=True,
            samesite="strict",
        )
        return answer

    async def logout(request: Request) -> Response:
        answer = RedirectResponse("/login", 303, HEADERS)
        if keys is not None:
            secret = cookie(request.headers, keys.cookie)
            if secret:
                keys.sessions.leave(secret)
            answer.delete_cookie(keys.cookie, path="/", httponly=True, samesite="strict")
        return answer

    return [Route("/login", login, methods=["GET"]), Route("/logout", logout, methods=["POST"])]


def _over_tls(request: Request) -> bool:
    """Whether the browser speaks TLS, to us or to a proxy. Who lies about it only makes their own cookie strict."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", "").lower())


def _page(request: Request, status: int, said: str) -> Response:
    base = f"{'https' if _over_tls(request) else 'http'}://{request.headers.get('host', 'HOST:PORT')}"
    text = f"<p><strong>{escape(said)}</strong></p>\n" if said else ""
    return HTMLResponse(PAGE.format(said=text, base=escape(base)), status, HEADERS)
