"""The webhook port: deliveries and health, nothing else.

`POST /webhooks/{forge}` answers 202 stored; 200 ping or an event we do not use; 400 malformed; 401 signature
missing or wrong; 404 unknown forge; 408 body too slow; 413 over 25 MB; 415 content type; 503 not stored.
A plain ASGI endpoint: the body is read here, within bounds, before anything looks at it.
"""

from __future__ import annotations

import logging

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ephemerd.app.intake import Intake, Taken
from ephemerd.app.queries import Queries
from ephemerd.ports.webhooks import BadSignature, Malformed, WrongType
from ephemerd.web.answers import json_answer, problem
from ephemerd.web.body import Bodies, Disconnected, Overloaded, TooLarge, TooSlow
from ephemerd.web.health import health_routes

logger = logging.getLogger(__name__)

AGAIN = {"retry-after": "5"}
CLOSE = {"connection": "close"}


class Deliveries:
    """The endpoint of all forges."""

    def __init__(self, intake: Intake, bodies: Bodies) -> None:
        self._intake = intake
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            answer = problem(405, "deliveries are sent by POST", headers={"allow": "POST"})
            await answer(scope, receive, send)
            return
        forge = scope["path_params"]["forge"]
        if not self._intake.knows(forge):
            answer = problem(404, f"no forge is configured under the name {forge[:64]!r}", headers=CLOSE)
            await answer(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in Headers(scope=scope).items()}
        with self._bodies.lease() as lease:
            try:
                body = await lease.read(headers, receive)
            except Disconnected:
                return
            except (TooLarge, TooSlow, Overloaded) as error:
                answer = self._unread(forge, error)
            else:
                answer = await self._take(forge, headers, body)
        await answer(scope, receive, send)

    async def _take(self, forge: str, headers: dict[str, str], body: bytes) -> Response:
        try:
            taken, word = await self._intake.take(forge, headers, body)
        except BadSignature:
            logger.warning("a delivery's signature is missing or wrong", extra={"fields": {"forge": forge}})
            return problem(401, "the signature is missing or wrong; check the hook's secret")
        except Malformed as error:
            return problem(400, str(error) or "the body is not a JSON object")
        except WrongType as error:
            return problem(415, str(error) or "send application/json")
        match taken:
            case Taken.UNUSED:
                return json_answer({"result": taken.value, "detail": word})
            case Taken.NOT_STORED:
                return problem(503, "the delivery could not be stored; deliver it again", headers=AGAIN)
            case Taken.STORED | Taken.DUPLICATE | Taken.QUARANTINED:
                return json_answer({"result": taken.value}, 202)

    def _unread(self, forge: str, error: Exception) -> Response:
        if isinstance(error, TooLarge):
            self._intake.refused(forge, "too_large")
            return problem(413, "a delivery holds 25 MB at most", headers=CLOSE)
        if isinstance(error, TooSlow):
            self._intake.refused(forge, "too_slow")
            return problem(408, "the body did not arrive in time", headers=CLOSE)
        self._intake.refused(forge, "overloaded")
        return problem(503, "too many deliveries at once; deliver it again", headers={**AGAIN, **CLOSE})


def webhook_app(intake: Intake, queries: Queries, *, bodies: Bodies | None = None) -> Starlette:
    """Build the app of the webhook port."""
    deliveries = Deliveries(intake, bodies or Bodies())
    return Starlette(routes=[Route("/webhooks/{forge}", deliveries), *health_routes(queries)])
