"""What a person orders over the API. Each body is a small JSON object; unknown keys are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ephemerd.app.operator import TARGETS, NotTaken, Operator, Unknown
from ephemerd.app.reload import Reloader
from ephemerd.ports.views import OrderView
from ephemerd.web.answers import json_answer, problem

MOST_BYTES = 64 * 1024
READ_LIMIT = 5.0
TEXT = 500
"""Characters of a reason or a name that are kept: they go into the journal."""

T = TypeVar("T", bound=msgspec.Struct)
Endpoint = Callable[[Request], Awaitable[Response]]


class TargetBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of cordon, uncordon and drain: `target` is `all`, `pool` or `host`."""

    target: str = "all"
    name: str = ""
    reason: str = ""
    who: str = ""


class KillBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of kill. A busy runner is ended only with `even_if_busy`."""

    reason: str
    even_if_busy: bool = False
    who: str = ""


class SweepBody(msgspec.Struct, forbid_unknown_fields=True):
    who: str = ""


class ReloadBody(msgspec.Struct, forbid_unknown_fields=True):
    who: str = ""


class ClearBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of clearing the quarantine: `upto` is the number of the last event to forget."""

    upto: int


class Orders:
    """The endpoints: 200 accepted, 202 not decided yet, 400, 404 unknown, 409 vetoed, 503 not stored."""

    def __init__(self, operator: Operator, reloader: Reloader | None = None) -> None:
        self._operator = operator
        self._reloader = reloader

    async def cordon(self, request: Request) -> Response:
        body = await _targeted(request)
        return await _answer(
            self._operator.cordon(_who(body.who), body.target, body.name, _short(body.reason))
        )

    async def uncordon(self, request: Request) -> Response:
        body = await _targeted(request)
        return await _answer(self._operator.uncordon(_who(body.who), body.target, body.name))

    async def drain(self, request: Request) -> Response:
        body = await _targeted(request)
        return await _answer(
            self._operator.drain(_who(body.who), body.target, body.name, _short(body.reason))
        )

    async def sweep(self, request: Request) -> Response:
        await _read(request, SweepBody)
        return await _answer(self._operator.sweep())

    async def clear_quarantine(self, request: Request) -> Response:
        body = await _read(request, ClearBody)
        if not 0 < body.upto < 2**63:
            raise HTTPException(400, "upto must be the number of an event in quarantine")
        return await _answer(self._operator.clear_quarantine(body.upto))

    async def reload(self, request: Request) -> Response:
        """200 applied or unchanged; 409 refused: the configuration before it stays in use."""
        body = await _read(request, ReloadBody)
        if self._reloader is None:
            return problem(404, "this daemon was not started from a configuration that can be read again")
        try:
            view = await self._reloader.reload(_who(body.who))
        except NotTaken as error:
            return problem(503, str(error), headers={"retry-after": "5"})
        return json_answer(view, 409 if view.outcome == "refused" else 200)

    async def kill(self, request: Request) -> Response:
        body = await _read(request, KillBody)
        if not body.reason.strip():
            raise HTTPException(400, "reason must say why the runner is to be ended")
        order = self._operator.kill(
            _who(body.who), request.path_params["id"], _short(body.reason), body.even_if_busy
        )
        return await _answer(order)


def order_routes(operator: Operator, reloader: Reloader | None = None) -> list[Route]:
    """Build the routes that change something."""
    orders = Orders(operator, reloader)
    prefix = "/api/v1"

    def post(path: str, endpoint: Endpoint) -> Route:
        return Route(f"{prefix}{path}", endpoint, methods=["POST"])

    return [
        post("/cordon", orders.cordon),
        post("/uncordon", orders.uncordon),
        post("/drain", orders.drain),
        post("/sweep", orders.sweep),
        post("/reload", orders.reload),
        post("/runners/{id}/kill", orders.kill),
        post("/quarantine/clear", orders.clear_quarantine),
    ]


async def _answer(order: Awaitable[OrderView]) -> Response:
    try:
        view = await order
    except Unknown as error:
        return problem(404, str(error), near=error.near)
    except NotTaken as error:
        return problem(503, str(error), headers={"retry-after": "5"})
    return json_answer(view, {"vetoed": 409, "pending": 202}.get(view.outcome, 200))


async def _targeted(request: Request) -> TargetBody:
    body = await _read(request, TargetBody)
    if body.target not in TARGETS:
        raise HTTPException(400, f"target must be one of {', '.join(TARGETS)}, got {body.target[:40]!r}")
    if (body.target == "all") != (not body.name):
        raise HTTPException(400, "name a pool or host, or give target all without a name")
    return body


async def _read(request: Request, shape: type[T]) -> T:
    """Return the body as `shape`, an empty one as its defaults; raises the problems 400, 408 and 413."""
    raw = bytearray()
    try:
        async with asyncio.timeout(READ_LIMIT):
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > MOST_BYTES:
                    raise HTTPException(413, f"an order holds {MOST_BYTES} bytes at most")
    except TimeoutError:
        raise HTTPException(408, "the body did not arrive in time") from None
    try:
        return msgspec.json.decode(bytes(raw) or b"{}", type=shape)
    except msgspec.MsgspecError as error:
        raise HTTPException(400, str(error)) from None


def _who(name: str) -> str:
    return _short(name).strip() or "operator"


def _short(text: str) -> str:
    return text[:TEXT]
