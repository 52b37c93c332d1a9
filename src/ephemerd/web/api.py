"""The API: views as JSON, operator orders, what changes, health and metrics, and the document of all that.

It knows no door: whoever serves it puts one of `access.py` before it. Errors are problem details (RFC 9457); an
unknown id comes with `near`, what was perhaps meant.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute

from ephemerd.app.feed import Feed
from ephemerd.app.logs import Logs
from ephemerd.app.operator import Operator
from ephemerd.app.queries import Queries
from ephemerd.app.reload import Reloader
from ephemerd.ports.access import Role
from ephemerd.ports.errors import NotStored, PortError
from ephemerd.web.access import Keys
from ephemerd.web.answers import json_answer, problem
from ephemerd.web.apidocs import PAGE_HEADERS, markdown, page
from ephemerd.web.events import event_operations
from ephemerd.web.health import health_operations, health_routes
from ephemerd.web.login import login_routes
from ephemerd.web.logs import log_operations
from ephemerd.web.openapi import document
from ephemerd.web.operations import PREFIX, Given, Operation, routes_of
from ephemerd.web.orders import order_operations
from ephemerd.web.pace import Pace
from ephemerd.web.tokens import token_operations
from ephemerd.web.views import view_operations

logger = logging.getLogger(__name__)

MetricsText = Callable[[str], tuple[bytes, str]]
"""Takes the request's Accept header; returns the metrics and their content type."""
DOCUMENT, DOCS = f"{PREFIX}/openapi.json", "/api/docs"


@dataclass(frozen=True, slots=True)
class Api:
    """What the API is made of. Without a `reloader` the configuration cannot be read again, without `logs` those
    of runners cannot be read, without a `feed` nobody can follow, without `keys` there are no tokens and logins.

    orders   whether it does more than read
    listen   `HOST:PORT` where browsers are served, "" where they are not
    pace     when it may be read; None: at any time
    pages    routes beside the API's own: the dashboard's
    """

    queries: Queries
    operator: Operator
    metrics: MetricsText
    version: str = ""
    orders: bool = True
    reloader: Reloader | None = None
    logs: Logs | None = None
    feed: Feed | None = None
    keys: Keys | None = None
    listen: str = ""
    pages: Sequence[BaseRoute] = ()
    pace: Pace | None = None

    def operations(self) -> list[Operation]:
        """Return everything that it can do."""
        found = [
            *health_operations(self.queries),
            *_paced([metrics_operation(self.metrics), *view_operations(self.queries)], self.pace),
        ]
        if self.logs is not None:
            found += log_operations(self.logs)
        if self.feed is not None:
            found += event_operations(self.feed)
        if self.orders:
            found += order_operations(self.operator, self.reloader)
        if self.keys is not None:
            found += token_operations(self.keys, self.listen)
        return found + document_operations(found, self.version)

    def app(self) -> Starlette:
        """Build the app, for a door to stand before."""
        routes: list[BaseRoute] = [*routes_of(self.operations()), *login_routes(self.keys), *self.pages]
        return app_of(routes)


def api_app(queries: Queries, operator: Operator, metrics: MetricsText, **more: Any) -> Starlette:
    """Build the app of an `Api` of these parts."""
    return Api(queries, operator, metrics, **more).app()


def metrics_app(queries: Queries, metrics: MetricsText, pace: Pace | None = None) -> Starlette:
    """Build what the metrics port serves to everybody: metrics and health."""
    routes = routes_of(_paced([metrics_operation(metrics, open_=True)], pace))
    return app_of([*health_routes(queries), *routes])


def _paced(operations: Sequence[Operation], pace: Pace | None) -> list[Operation]:
    """Have operations that read wait for their turn. Health does not: it is what tells of a loop that is late."""
    if pace is None:
        return [*operations]
    return [replace(operation, answer=pace.over(operation.answer)) for operation in operations]


def app_of(routes: Sequence[BaseRoute]) -> Starlette:
    """Build an app whose errors are problem details, whatever goes wrong."""
    handlers: Any = {
        HTTPException: _http_problem,
        PortError: _store_problem,
        NotStored: _store_problem,
        Exception: _unforeseen,
    }
    made = Starlette(routes=routes, exception_handlers=handlers)
    made.router.redirect_slashes = False
    return made


def metrics_operation(metrics: MetricsText, *, open_: bool = False) -> Operation:
    """Declare `/metrics`, in the format that the request accepts."""

    async def answer(given: Given) -> Response:
        text, content_type = metrics(given.request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    return Operation(
        *("metrics", "GET", "/metrics", "Metrics for Prometheus, in the format that is accepted."),
        answer,
        {200: str},
        role=None if open_ else Role.READ,
        media="text/plain",
        group="daemon",
    )


def document_operations(operations: Sequence[Operation], version: str) -> list[Operation]:
    """Declare the document itself, for programs and for people. It is made when it is first asked for."""

    @cache
    def made() -> dict[str, Any]:
        return document([*operations, *declared], version)

    @cache
    def text() -> str:
        return page(made())

    async def as_json(_: Given) -> Response:
        return json_answer(made())

    async def as_page(_: Given) -> Response:
        return HTMLResponse(text(), headers=PAGE_HEADERS)

    declared = [
        Operation(
            *("openapi", "GET", DOCUMENT, "This document."), as_json, {200: dict[str, Any]}, group="daemon"
        ),
        Operation(
            *("docs", "GET", DOCS, "This document as a page."),
            as_page,
            {200: str},
            media="text/html",
            group="daemon",
        ),
    ]
    return declared


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers) if error.headers else None
    detail = error.detail
    if error.status_code == 404 and detail == HTTPStatus.NOT_FOUND.phrase:
        detail = f"there is nothing at {request.url.path[:200]!r}; {DOCS} lists what there is"
    return problem(error.status_code, detail, headers=headers)


async def _store_problem(_: Request, error: Exception) -> Response:
    logger.error("a query could not be answered", extra={"fields": {"error": str(error)}})
    return problem(
        503, "the store does not answer; the log and /healthz say why", headers={"retry-after": "5"}
    )


async def _unforeseen(_: Request, error: Exception) -> Response:
    if isinstance(error, msgspec.MsgspecError):
        return problem(500, "the answer could not be written as JSON; see the log")
    return problem(500, "something went wrong here; the log says what")


def reference() -> str:
    """Return everything that the API can do as a part of `docs/API.md`; needs no daemon."""
    nothing: Any = object()
    api = Api(nothing, nothing, nothing, logs=nothing, feed=nothing, keys=nothing)
    return markdown(document(api.operations(), ""))
