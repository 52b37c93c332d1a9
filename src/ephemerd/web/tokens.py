"""API tokens and login links, made over the API.

Tokens are made and revoked over the unix socket alone: whoever steals one that may operate cannot make himself
another that outlives it. A login link gives a browser no more than its maker may do, and ends with their token.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from ephemerd.app.tokens import LONGEST, NAME, NAME_FORM, NoSuchToken, Refused
from ephemerd.ports.access import Role
from ephemerd.ports.views import LoginView, NewTokenView, Page, TokenView
from ephemerd.web.access import Keys
from ephemerd.web.answers import json_answer, problem
from ephemerd.web.operations import PREFIX, Given, Operation, Param, unknown, whole
from ephemerd.web.orders import named

TOKENS = f"{PREFIX}/tokens"
ROLES = [role.value for role in Role]
ELSEWHERE = "tokens are made and revoked over the daemon's unix socket alone; run it on its machine"
NAME_PARAM = Param("name", "The token's name.", path=True)


class TokenBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of making a token: it holds for `seconds`, or without an end (null)."""

    name: Annotated[str, Meta(extra_json_schema={"pattern": f"^{NAME.pattern}$"})]
    role: Annotated[str, Meta(extra_json_schema={"enum": ROLES})]
    seconds: Annotated[
        int | float | None,
        Meta(extra_json_schema={"type": ["integer", "null"], "minimum": 1, "maximum": LONGEST}),
    ] = None


class LoginBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of making a login link: what the browser may do (none given: what its maker may), and who it is."""

    role: Annotated[str, Meta(extra_json_schema={"enum": ["", *ROLES]})] = ""
    who: str = ""


def token_operations(keys: Keys, listen: str) -> list[Operation]:
    """Declare them. `listen` is `HOST:PORT` where browsers are served, "" where they are not."""
    desk = Desk(keys, listen)
    return [
        Operation(
            *("tokens", "GET", TOKENS, "API tokens by name, without their secrets."),
            desk.list,
            {200: Page[TokenView]},
            role=Role.OPERATE,
            group="access",
            text=f"{ELSEWHERE[0].upper()}{ELSEWHERE[1:]}.",
        ),
        Operation(
            *("create-token", "POST", TOKENS, "Make a token; it is shown once."),
            desk.create,
            {201: NewTokenView},
            role=Role.OPERATE,
            body=TokenBody,
            problems=(409, 503),
            group="access",
        ),
        Operation(
            *("revoke-token", "DELETE", f"{TOKENS}/{{name}}", "Make a token void at once."),
            desk.revoke,
            {204: None},
            role=Role.OPERATE,
            params=(NAME_PARAM,),
            problems=(503,),
            group="access",
            text="The sessions of browsers that came from it end too.",
        ),
        Operation(
            *("login", "POST", f"{PREFIX}/login", "Make a one-time login link for a browser."),
            desk.invite,
            {201: LoginView},
            body=LoginBody,
            problems=(409,),
            group="access",
            text="Not by a browser's session. 409: this daemon serves no browsers, since api_listen is not set.",
        ),
    ]


class Desk:
    """One method an operation."""

    def __init__(self, keys: Keys, listen: str) -> None:
        self._keys = keys
        self._listen = listen

    async def list(self, given: Given) -> Response:
        if not _local(given):
            return problem(403, ELSEWHERE)
        return json_answer(Page(self._keys.tokens.list()))

    async def create(self, given: Given) -> Response:
        if not _local(given):
            return problem(403, ELSEWHERE)
        body: TokenBody = given.body
        if body.role not in ROLES:
            return problem(400, f"role must be one of {', '.join(ROLES)}, got {body.role[:40]!r}")
        seconds = None if body.seconds is None else whole(body.seconds)
        if NAME.fullmatch(body.name) is None:
            return problem(400, NAME_FORM)
        if body.seconds is not None and (seconds is None or not 0 < seconds <= LONGEST):
            return problem(400, f"seconds must be a whole number from 1 to {LONGEST}, or null")
        try:
            made = self._keys.tokens.create(body.name, Role(body.role), seconds)
        except Refused as error:
            return problem(409, str(error))
        view = made.view
        answer = json_answer(NewTokenView(made.token, view.name, view.role, view.expires), 201)
        answer.headers["cache-control"] = "no-store"
        return answer

    async def revoke(self, given: Given) -> Response:
        if not _local(given):
            return problem(403, ELSEWHERE)
        try:
            self._keys.tokens.revoke(given.text("name"))
        except NoSuchToken:
            return unknown("token", given.text("name"), [one.name for one in self._keys.tokens.list()][:10])
        return Response(status_code=204)

    async def invite(self, given: Given) -> Response:
        access, body = given.access, given.body
        assert access is not None
        if body.role not in ("", *ROLES):
            return problem(400, f"role must be one of {', '.join(ROLES)}, got {body.role[:40]!r}")
        role = Role(body.role) if body.role else access.role
        if access.via == "session":
            return problem(403, "a browser cannot let another one in; use ephemerd token login")
        if not access.role.covers(role):
            return problem(403, f"this needs a token with the role {role.value}")
        if not self._listen:
            return problem(409, "this daemon serves no browsers: server.api_listen is not set")
        code, until = self._keys.sessions.invite(role, named(access, body.who), access.token)
        answer = json_answer(LoginView(f"/login?code={code}", until, self._listen, role.value), 201)
        answer.headers["cache-control"] = "no-store"
        return answer


def _local(given: Given) -> bool:
    return given.access is not None and given.access.local
