"""The API: views as JSON, operator orders, health and metrics.

It has no accounts of its own: it is served on a unix socket that only its owner can open, and on a loopback
port where the one who starts it asks for that. Errors are problem details (RFC 9457); an unknown id comes
with `near`, what was perhaps meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ephemerd.app.logs import Logs
from ephemerd.app.operator import Operator
from ephemerd.app.queries import Queries
from ephemerd.app.reload import Reloader
from ephemerd.web.answers import json_answer, problem
from ephemerd.web.health import health_routes
from ephemerd.web.logs import log_routes
from ephemerd.web.orders import order_routes

MetricsText = Callable[[str], tuple[bytes, str]]
"""Takes the request's Accept header; returns the metrics and their content type."""


def api_app(
    queries: Queries,
    operator: Operator,
    metrics: MetricsText,
    *,
    orders: bool = True,
    reloader: Reloader | None = None,
    logs: Logs | None = None,
) -> Starlette:
    """Build the API. Without `orders` it only reads: for a port that others on this machine can open. Without
    a `reloader` the configuration cannot be read again, without `logs` those of runners cannot be read."""
    routes: list[BaseRoute] = [*health_routes(queries), metrics_route(metrics), *view_routes(queries)]
    if logs is not None:
        routes += log_routes(logs)
    if orders:
        routes += order_routes(operator, reloader)
    handlers: Any = {HTTPException: _http_problem, Exception: _unforeseen}
    return Starlette(routes=routes, exception_handlers=handlers)


def metrics_app(queries: Queries, metrics: MetricsText) -> Starlette:
    """Build what the metrics port serves: metrics and health."""
    return Starlette(routes=[*health_routes(queries), metrics_route(metrics)])


def metrics_route(metrics: MetricsText) -> Route:
    """Build `/metrics`, in the format that the request accepts."""

    async def answer(request: Request) -> Response:
        text, content_type = metrics(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    return Route("/metrics", answer)


def view_routes(queries: Queries) -> list[Route]:
    """Build the routes that read."""
    views = Views(queries)
    prefix = "/api/v1"
    return [
        Route(f"{prefix}/status", views.status),
        Route(f"{prefix}/pools", views.pools),
        Route(f"{prefix}/hosts", views.hosts),
        Route(f"{prefix}/runners", views.runners),
        Route(f"{prefix}/runners/{{id}}", views.runner),
        Route(f"{prefix}/runners/{{id}}/story", views.story),
        Route(f"{prefix}/jobs", views.jobs),
        Route(f"{prefix}/jobs/{{id:path}}/story", views.story),
        Route(f"{prefix}/jobs/{{id:path}}", views.job),
        Route(f"{prefix}/decisions", views.decisions),
        Route(f"{prefix}/journal", views.journal),
        Route(f"{prefix}/segments/{{number}}", views.segment),
        Route(f"{prefix}/quarantine", views.quarantine),
    ]


class Views:
    """One method a route; each answers with a view or a problem."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def status(self, _: Request) -> Response:
        return json_answer(self._queries.status())

    async def pools(self, _: Request) -> Response:
        return json_answer({"items": self._queries.pools(), "next": None})

    async def hosts(self, _: Request) -> Response:
        return json_answer({"items": self._queries.hosts(), "next": None})

    async def runners(self, request: Request) -> Response:
        query = request.query_params
        return json_answer(
            self._queries.runners(
                after=_number(request, "after", ""),
                limit=int(_number(request, "limit", "100")),
                pool=query.get("pool", ""),
                state=query.get("state", ""),
            )
        )

    async def runner(self, request: Request) -> Response:
        name = request.path_params["id"]
        view = self._queries.runner(name)
        return json_answer(view) if view is not None else await self._unknown("runner", name)

    async def jobs(self, request: Request) -> Response:
        return json_answer(
            self._queries.jobs(
                after=_number(request, "after", ""),
                limit=int(_number(request, "limit", "100")),
                status=request.query_params.get("status", ""),
            )
        )

    async def job(self, request: Request) -> Response:
        name = request.path_params["id"]
        view = self._queries.job(name)
        return json_answer(view) if view is not None else await self._unknown("job", name)

    async def story(self, request: Request) -> Response:
        name = request.path_params["id"]
        view = await self._queries.story(name)
        return json_answer(view) if view is not None else await self._unknown("runner or job", name)

    async def decisions(self, request: Request) -> Response:
        query = request.query_params
        return json_answer(
            await self._queries.decisions(
                after=int(_number(request, "after", "0")),
                limit=int(_number(request, "limit", "100")),
                runner=query.get("runner", ""),
                outcome=query.get("outcome", ""),
                newest=query.get("newest", "") in {"1", "true", "yes"},
            )
        )

    async def journal(self, request: Request) -> Response:
        return json_answer(
            await self._queries.journal(
                subject=request.query_params.get("subject", ""),
                after=int(_number(request, "after", "0")),
                limit=int(_number(request, "limit", "100")),
            )
        )

    async def quarantine(self, request: Request) -> Response:
        return json_answer(
            await self._queries.quarantine(
                after=int(_number(request, "after", "0")), limit=int(_number(request, "limit", "100"))
            )
        )

    async def segment(self, request: Request) -> Response:
        """`newest`, or a segment's number."""
        text = request.path_params["number"]
        known = text.isascii() and text.isdigit() and len(text) <= 18
        view = (
            await self._queries.segment(int(text) if known else None) if known or text == "newest" else None
        )
        return json_answer(view) if view is not None else problem(404, f"there is no segment {text[:40]!r}")

    async def _unknown(self, what: str, name: str) -> Response:
        near = await self._queries.near(name)
        return problem(404, f"there is no {what} {name[:200]!r}", near=near)


def _number(request: Request, name: str, default: str) -> str:
    """Return a query parameter that must be a whole number, as text; raises the problem 400."""
    text = request.query_params.get(name) or default
    if text != default and not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise HTTPException(400, f"{name} must be a whole number, got {text[:40]!r}")
    return text


async def _http_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers) if error.headers else None
    return problem(error.status_code, error.detail, headers=headers)


async def _unforeseen(_: Request, error: Exception) -> Response:
    if isinstance(error, msgspec.MsgspecError):
        return problem(500, "the answer could not be written as JSON; see the log")
    return problem(500, "something went wrong here; the log says what")
