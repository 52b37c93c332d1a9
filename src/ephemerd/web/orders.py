"""What a person orders over the API. Each body is a small JSON object; unknown keys are refused."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ephemerd.app.operator import TARGETS, NotTaken, Operator, Unknown
from ephemerd.app.reload import Reloader
from ephemerd.ports.access import Role
from ephemerd.ports.views import OrderView, ReloadView
from ephemerd.web.access import Access
from ephemerd.web.answers import json_answer, problem
from ephemerd.web.operations import (
    MOST_NUMBER,
    PREFIX,
    Answering,
    Given,
    Operation,
    whole,
    whole_number,
)
from ephemerd.web.views import RUNNER

TEXT = 500
"""Characters of a reason or a name that are kept: they go into the journal."""
NOBODY = "operator"
AGAIN = {"retry-after": "5"}

EVERYTHING = {"properties": {"target": {"const": "all"}, "name": {"const": ""}}}
A_PLACE = {
    "properties": {"target": {"enum": ["pool", "host"]}, "name": {"minLength": 1}},
    "required": ["target", "name"],
}


class TargetBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of cordon, uncordon and drain: `target` is `all`, `pool` or `host`, the latter two with a `name`."""

    target: Annotated[str, Meta(extra_json_schema={"enum": list(TARGETS)})] = "all"
    name: str = ""
    reason: str = ""
    who: str = ""


class KillBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of kill. A busy runner is ended only with `even_if_busy`."""

    reason: Annotated[str, Meta(extra_json_schema={"pattern": r"\S"})]
    even_if_busy: bool = False
    who: str = ""


class SweepBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of sweep."""

    who: str = ""


class ReloadBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of reload."""

    who: str = ""


class ClearBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of clearing the quarantine: `upto` is the number of the last event to forget."""

    upto: Annotated[int | float, Meta(extra_json_schema=whole_number(1, MOST_NUMBER))]


class Orders:
    """The answers: 200 accepted, 202 not decided yet, 400, 404 unknown, 409 vetoed, 503 not stored."""

    def __init__(self, operator: Operator, reloader: Reloader | None = None) -> None:
        self._operator = operator
        self._reloader = reloader

    async def cordon(self, given: Given) -> Response:
        body = _targeted(given)
        return await _answer(self._operator.cordon(_who(given), body.target, body.name, _short(body.reason)))

    async def uncordon(self, given: Given) -> Response:
        body = _targeted(given)
        return await _answer(self._operator.uncordon(_who(given), body.target, body.name))

    async def drain(self, given: Given) -> Response:
        body = _targeted(given)
        return await _answer(self._operator.drain(_who(given), body.target, body.name, _short(body.reason)))

    async def sweep(self, _: Given) -> Response:
        return await _answer(self._operator.sweep())

    async def clear_quarantine(self, given: Given) -> Response:
        upto = whole(given.body.upto)
        if upto is None or not 0 < upto <= MOST_NUMBER:
            raise HTTPException(400, "upto must be the number of an event in quarantine")
        return await _answer(self._operator.clear_quarantine(upto))

    async def reload(self, given: Given) -> Response:
        """200 applied or unchanged; 409 refused: the configuration before it stays in use."""
        if self._reloader is None:
            return problem(404, "this daemon was not started from a configuration that can be read again")
        try:
            view = await self._reloader.reload(_who(given))
        except NotTaken as error:
            return problem(503, str(error), headers=AGAIN)
        return json_answer(view, 409 if view.outcome == "refused" else 200)

    async def kill(self, given: Given) -> Response:
        body = given.body
        if not body.reason.strip():
            raise HTTPException(400, "reason must say why the runner is to be ended")
        order = self._operator.kill(_who(given), given.text("id"), _short(body.reason), body.even_if_busy)
        return await _answer(order)


def order_operations(operator: Operator, reloader: Reloader | None = None) -> list[Operation]:
    """Declare the operations that change something."""
    orders = Orders(operator, reloader)
    targeted = Annotated[TargetBody, Meta(extra_json_schema={"anyOf": [EVERYTHING, A_PLACE]})]
    runner = RUNNER
    return [
        _order("cordon", "/cordon", "Start no more runners there.", orders.cordon, targeted),
        _order("uncordon", "/uncordon", "End a cordon or drain.", orders.uncordon, targeted),
        _order("drain", "/drain", "Cordon, and let idle runners go.", orders.drain, targeted),
        _order("sweep", "/sweep", "Evaluate all rules of nomination now.", orders.sweep, SweepBody),
        Operation(
            *("reload", "POST", f"{PREFIX}/reload", "Read the configuration again."),
            orders.reload,
            {200: ReloadView, 409: ReloadView},
            role=Role.OPERATE,
            body=ReloadBody,
            problems=(404, 503),
            text="409: it is refused, and the one before it stays in use.",
            group="order",
        ),
        Operation(
            *("kill", "POST", f"{PREFIX}/runners/{{id}}/kill", "End a runner through the gate."),
            orders.kill,
            {200: OrderView, 202: OrderView, 409: OrderView},
            role=Role.OPERATE,
            params=(runner,),
            body=KillBody,
            problems=(503,),
            text="409: vetoed, since it is or may be busy; 202: the gate has not decided yet.",
            group="order",
        ),
        _order(
            *("clear-quarantine", "/quarantine/clear", "Forget events in quarantine."),
            orders.clear_quarantine,
            ClearBody,
        ),
    ]


def _order(name: str, path: str, summary: str, answer: Answering, body: Any) -> Operation:
    return Operation(
        *(name, "POST", f"{PREFIX}{path}", summary),
        answer,
        {200: OrderView},
        role=Role.OPERATE,
        body=body,
        problems=(404, 503),
        group="order",
    )


async def _answer(order: Awaitable[OrderView]) -> Response:
    try:
        view = await order
    except Unknown as error:
        return problem(404, str(error), near=error.near)
    except NotTaken as error:
        return problem(503, str(error), headers=AGAIN)
    return json_answer(view, {"vetoed": 409, "pending": 202}.get(view.outcome, 200))


def _targeted(given: Given) -> TargetBody:
    body = given.body
    assert isinstance(body, TargetBody)
    if body.target not in TARGETS:
        raise HTTPException(400, f"target must be one of {', '.join(TARGETS)}, got {body.target[:40]!r}")
    if (body.target == "all") != (not body.name):
        raise HTTPException(400, "name a pool or host, or give target all without a name")
    return body


def _who(given: Given) -> str:
    """Return who orders, for the journal."""
    return named(given.access, str(given.body.who))


def named(access: Access | None, said: str) -> str:
    """Return what the journal calls a caller: over TCP the token's or session's name, which nobody can choose,
    goes with what they say of themselves, and is never what is cut off."""
    said = _short(said).strip()
    if access is None or not access.who:
        return said or NOBODY
    if not said or said == access.who:
        return _short(access.who)
    sure = f" ({access.who})"
    room = TEXT - len(sure)
    return said[:room] + sure if room > 0 else _short(access.who)


def _short(text: str) -> str:
    return text[:TEXT]
