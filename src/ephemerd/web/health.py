"""`/healthz` (200 for ok and degraded, 503 for stuck) and `/readyz` (200 once deliveries are stored)."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import Route

from ephemerd.app.queries import Queries
from ephemerd.ports.views import HealthView, ReadyView
from ephemerd.web.answers import json_answer
from ephemerd.web.operations import Given, Operation, routes_of


def health_operations(queries: Queries) -> list[Operation]:
    """Declare the two operations that every port of ours serves to everybody."""

    async def healthz(_: Given) -> Response:
        health = queries.health()
        return json_answer(health, 503 if health.status == "stuck" else 200)

    async def readyz(_: Given) -> Response:
        ready = queries.ready()
        return json_answer(ReadyView(ready), 200 if ready else 503)

    return [
        Operation(
            *(
                "healthz",
                "GET",
                "/healthz",
                "Health: ok, degraded or stuck, and each reason with its remedy.",
            ),
            healthz,
            {200: HealthView, 503: HealthView},
            role=None,
            text="503 while it is stuck.",
            group="daemon",
        ),
        Operation(
            *("readyz", "GET", "/readyz", "Whether deliveries are taken and stored."),
            readyz,
            {200: ReadyView, 503: ReadyView},
            role=None,
            text="503 while they are not.",
            group="daemon",
        ),
    ]


def health_routes(queries: Queries) -> list[Route]:
    """Build their routes."""
    return routes_of(health_operations(queries))
