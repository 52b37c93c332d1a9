"""The routes of runners' logs: which there are, and one piece of one of them."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ephemerd.app.logs import MOST, Logs, NoLogs
from ephemerd.web.answers import json_answer, problem


def log_routes(logs: Logs) -> list[Route]:
    """Build the routes; `start` and `most` count bytes."""

    async def files(request: Request) -> Response:
        try:
            return json_answer(await logs.files(request.path_params["id"]))
        except NoLogs as error:
            return problem(404, str(error), near=[])

    async def piece(request: Request) -> Response:
        start, most = _bytes(request, "start", 0), _bytes(request, "most", MOST)
        try:
            view = await logs.read(request.path_params["id"], request.path_params["name"], start, most)
        except NoLogs as error:
            return problem(404, str(error), near=[])
        return json_answer(view)

    prefix = "/api/v1/runners/{id}/logs"
    return [Route(prefix, files), Route(f"{prefix}/{{name}}", piece)]


def _bytes(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise HTTPException(400, f"{name} must be a number of bytes, got {text[:40]!r}")
    return int(text)
