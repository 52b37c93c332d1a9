"""What the API can do, declared: each operation with its parameters, body, answers and refusals.

The routes are built from the declarations, and so is the OpenAPI document (`openapi.py`): what is not declared
here is refused, so that the document cannot say something else than what is served.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ephemerd.ports.access import Role
from ephemerd.web.access import Access, access_of, require
from ephemerd.web.answers import problem

PREFIX = "/api/v1"
MOST_BYTES = 64 * 1024
"""Bytes of a body."""
READ_LIMIT = 5.0
MOST_NUMBER = 2**63 - 1
SHOWN = 40
"""Characters of a wrong value that are repeated in a refusal."""

Value = str | int | bool | None
B = TypeVar("B")


class Wrong(ValueError):
    """A parameter's value is not one that it takes; the message ends the sentence `NAME must be …`."""


@dataclass(frozen=True, slots=True)
class Param:
    """A text in the query (or, with `path`, a part of the address)."""

    name: str
    text: str
    path: bool = False
    whole_rest: bool = False  # a path's part that may hold slashes
    default: Value = ""
    example: str = ""

    def read(self, given: str) -> Value:
        """Return the value that was meant. Raises `Wrong`."""
        return given

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of its values."""
        return {"type": "string"}


@dataclass(frozen=True, slots=True)
class Choice(Param):
    """One of a few words."""

    words: tuple[str, ...] = ()

    def read(self, given: str) -> Value:
        if given not in self.words:
            raise Wrong(f"one of {', '.join(self.words)}")
        return given

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class Choices(Choice):
    """Some of a few words, with commas between."""

    def read(self, given: str) -> Value:
        for word in given.split(","):
            if word not in self.words:
                raise Wrong(f"some of {', '.join(self.words)}, with commas between")
        return given

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "string", "enum": list(self.words)}, "minItems": 1}


@dataclass(frozen=True, slots=True)
class Number(Param):
    """A whole number within bounds."""

    default: Value = 0
    least: int = 0
    most: int = MOST_NUMBER

    def read(self, given: str) -> Value:
        if not (given.isascii() and given.isdigit() and len(given) <= 19) or not (
            self.least <= int(given) <= self.most
        ):
            bounds = f" from {self.least} to {self.most}" if self.most != MOST_NUMBER else ""
            raise Wrong(f"a whole number{bounds}")
        return int(given)

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "format": "int64", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Flag(Param):
    """Yes or no."""

    default: Value = False

    def read(self, given: str) -> Value:
        if given not in {"true", "false", "1", "0"}:
            raise Wrong("true or false")
        return given in {"true", "1"}

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Given:
    """A request whose parameters and body are what was declared."""

    request: Request
    access: Access | None
    values: Mapping[str, Value]
    body: Any = None

    def text(self, name: str) -> str:
        """Return a text parameter."""
        return str(self.values[name])

    def number(self, name: str) -> int:
        """Return a number."""
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def flag(self, name: str) -> bool:
        """Return a flag."""
        return self.values[name] is True


Answering = Callable[[Given], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that the API does.

    path      as OpenAPI writes it, parts in braces
    role      who may; None: everybody
    answers   the view (or None: nothing) by the status of an answer that is no problem
    problems  statuses of refusals beyond those that every operation has (see `refusals`)
    body      what is sent along; an empty body counts as all of its defaults
    media     content type of the answers
    text      more than the summary says
    """

    name: str
    method: str
    path: str
    summary: str
    answer: Answering
    answers: Mapping[int, Any]
    role: Role | None = Role.READ
    params: Sequence[Param] = ()
    problems: Sequence[int] = ()
    body: Any = None
    media: str = "application/json"
    text: str = ""
    group: str = "read"
    headers: Sequence[Param] = field(default=())

    def refusals(self) -> tuple[int, ...]:
        """Return the statuses of all problems that it may answer with."""
        found = {400, *self.problems}
        if self.role is not None:
            found |= {401, 403, 429}
        if self.body is not None:
            found |= {408, 413}
        if any(param.path for param in self.params):
            found.add(404)
        return tuple(sorted(found))

    async def __call__(self, request: Request) -> Response:
        """Read what was given and answer; raises the problems of what is not as declared."""
        body = await read_body(request, self.body) if self.body is not None else None
        return await self.answer(Given(request, access_of(request), self._values(request), body))

    def _values(self, request: Request) -> dict[str, Value]:
        values: dict[str, Value] = {}
        query = request.query_params
        known = [param.name for param in self.params if not param.path]
        for name in query:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                there = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known) or 'none'}"
                raise HTTPException(400, f"there is no parameter {name[:SHOWN]!r}; {there}")
        for param in self.params:
            if param.path:
                values[param.name] = request.path_params[param.name]
            else:
                given = query.getlist(param.name)
                if len(given) > 1:
                    raise HTTPException(400, f"{param.name} is given more than once")
                values[param.name] = _read(param, given[0]) if given and given[0] else param.default
        for param in self.headers:
            text = request.headers.get(param.name, "")
            values[param.name] = _read(param, text) if text else param.default
        return values


def _read(param: Param, given: str) -> Value:
    try:
        return param.read(given)
    except Wrong as error:
        raise HTTPException(400, f"{param.name} must be {error}, got {given[:SHOWN]!r}") from None


def routes_of(operations: Sequence[Operation]) -> list[Route]:
    """Build one route for each address, in the order in which they are first named."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return [_route(path, by_method) for path, by_method in by_path.items()]


def _route(path: str, by_method: Mapping[str, Operation]) -> Route:
    handlers = {
        method: require(operation.role)(operation) if operation.role is not None else operation
        for method, operation in by_method.items()
    }
    if "GET" in handlers:
        handlers["HEAD"] = handlers["GET"]
    allow = ", ".join(sorted({*handlers, "OPTIONS"}))

    async def dispatch(request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"allow": allow})
        return await handlers[request.method](request)

    pattern = path
    for operation in by_method.values():
        for param in operation.params:
            if param.whole_rest:
                pattern = pattern.replace(f"{{{param.name}}}", f"{{{param.name}:path}}")
    return Route(pattern, dispatch, methods=[*handlers, "OPTIONS"], name=next(iter(by_method.values())).name)


async def read_body(request: Request, shape: Any) -> Any:
    """Return the body as `shape`, an empty one as its defaults; raises the problems 400, 408 and 413."""
    raw = bytearray()
    try:
        async with asyncio.timeout(READ_LIMIT):
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > MOST_BYTES:
                    raise HTTPException(413, f"a body holds {MOST_BYTES} bytes at most")
    except TimeoutError:
        raise HTTPException(408, "the body did not arrive in time") from None
    try:
        return msgspec.json.decode(bytes(raw) or b"{}", type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HTTPException(400, f"the body is not what this takes: {error}") from None


def whole_number(least: int, most: int) -> dict[str, Any]:
    """Return the JSON schema of a whole number in a body, for which JSON may write 5.0 too (see `whole`)."""
    return {"type": "integer", "minimum": least, "maximum": most}


def whole(value: float) -> int | None:
    """Return a number of a body as a whole one, None where it is none."""
    return int(value) if isinstance(value, int) or value.is_integer() else None


def unknown(what: str, name: str, near: Sequence[str] = ()) -> Response:
    """Answer that there is no such thing, with what was perhaps meant."""
    return problem(404, f"there is no {what} {name[:200]!r}", near=near)
