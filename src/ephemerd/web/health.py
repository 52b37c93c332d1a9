"""`/healthz` (200 for ok and degraded, 503 for stuck) and `/readyz` (200 once deliveries are stored)."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ephemerd.app.queries import Queries
from ephemerd.web.answers import json_answer


def health_routes(queries: Queries) -> list[Route]:
    """Build the two routes that every port of ours serves."""

    async def healthz(_: Request) -> Response:
        health = queries.health()
        return json_answer(health, 503 if health.status == "stuck" else 200)

    async def readyz(_: Request) -> Response:
        ready = queries.ready()
        return json_answer({"ready": ready}, 200 if ready else 503)

    return [Route("/healthz", healthz), Route("/readyz", readyz)]
