"""The OpenAPI 3.1 document, made from the declared operations and the views they answer with."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from ephemerd.ports.views import ProblemView
from ephemerd.web.answers import PROBLEM
from ephemerd.web.operations import Operation, Param

VERSION = "3.1.0"
TEXT = """\
What the daemon shows and what it can be told to do. Over the unix socket everything is allowed; over TCP send a
token made by `ephemerd token create`, as `Authorization: Bearer ephd_…`. The role `read` may see everything, the role
`operate` may order as well. Times are ms since the epoch, names that end in `_s` are seconds. Lists are read page by
page: give `next` as `after`. Errors are problem details (RFC 9457). Fields may be added at any time."""
GROUPS = {
    "read": "What there is and what happened.",
    "order": "What a person orders.",
    "access": "Tokens and logins.",
    "daemon": "Health, metrics and this document.",
}
Json = dict[str, Any]


def document(operations: Sequence[Operation], version: str) -> Json:
    """Return the document of these operations as plain data."""
    schemas = _Schemas(operations)
    paths: Json = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    return {
        "openapi": VERSION,
        "info": {"title": "ephemerd", "version": version, "description": TEXT},
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in GROUPS.items()],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas.components,
        },
    }


class _Schemas:
    """The schemas of all bodies and answers, each type's once."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        sent = [operation.body for operation in operations if operation.body is not None]
        told = [
            view for operation in operations for view in operation.answers.values() if view not in (None, str)
        ]
        self._types = [*sent, *told, ProblemView]
        self._refs, components = msgspec.json.schema_components(
            self._types, ref_template="#/components/schemas/{name}"
        )
        partly = {_name_of(ref) for ref in [*self._refs[: len(sent)], self._refs[-1]]}
        self.components = {
            _plain(name): _renamed(schema if name in partly else _whole(schema))
            for name, schema in sorted(components.items())
        }

    def of(self, shape: Any) -> Json:
        """Return where the schema of a type is."""
        for known, ref in zip(self._types, self._refs, strict=True):
            if known is shape or known == shape:
                found: Json = _renamed(ref)
                return found
        raise KeyError(shape)


def _name_of(ref: Json) -> str:
    return str(ref.get("$ref", "")).rpartition("/")[2]


def _plain(name: str) -> str:
    """`Page_RunnerView_` is called `PageOfRunner`, `RunnerView` `Runner`."""
    if name.startswith("Page_"):
        return "PageOf" + _plain(name.removeprefix("Page_").removesuffix("_"))
    return name.removesuffix("View")


def _renamed(schema: Any) -> Any:
    """Return the schema with the references' names as they are here; titles repeat them and go."""
    if isinstance(schema, dict):
        return {
            key: (
                f"#/components/schemas/{_plain(value.rpartition('/')[2])}"
                if key == "$ref"
                else _renamed(value)
            )
            for key, value in schema.items()
            if key != "title" or not isinstance(value, str)
        }
    if isinstance(schema, list):
        return [_renamed(value) for value in schema]
    return schema


def _whole(schema: Json) -> Json:
    """Return the schema of something that we answer: each field is always there, whatever its default."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    fields = {
        name: {key: value for key, value in inner.items() if key != "default"}
        for name, inner in properties.items()
    }
    return {**schema, "properties": fields, "required": list(properties)}


def _operation(operation: Operation, schemas: _Schemas) -> Json:
    found: Json = {
        "operationId": operation.name,
        "tags": [operation.group],
        "summary": operation.summary,
        "responses": _responses(operation, schemas),
    }
    if operation.text:
        found["description"] = operation.text
    params = [_param(param, "path" if param.path else "query") for param in operation.params]
    params += [_param(param, "header") for param in operation.headers]
    if params:
        found["parameters"] = params
    if operation.body is not None:
        content = {"application/json": {"schema": schemas.of(operation.body)}}
        found["requestBody"] = {"content": content, "required": _needs_body(operation.body)}
    if operation.role is not None:
        found["security"] = [{"token": []}]
        found["x-role"] = operation.role.value
    return found


def _param(param: Param, where: str) -> Json:
    schema = param.schema()
    if where == "path":
        schema = {**schema, "minLength": 1}
    found: Json = {"name": param.name, "in": where, "description": param.text, "schema": schema}
    if where == "path":
        found["required"] = True
    elif param.default not in ("", None):
        schema["default"] = param.default
    if schema["type"] == "array":
        found |= {"style": "form", "explode": False}
    if where == "query":
        found["allowEmptyValue"] = True
    if param.example:
        found["example"] = param.example
    return found


def _responses(operation: Operation, schemas: _Schemas) -> Json:
    found: Json = {}
    for status, view in operation.answers.items():
        found[str(status)] = {"description": HTTPStatus(status).phrase}
        if view is not None:
            schema = {"type": "string"} if view is str else schemas.of(view)
            if operation.media == "text/event-stream":
                schema = {"type": "string", "description": "The data of each event is a FeedEvent."}
            found[str(status)]["content"] = {operation.media: {"schema": schema}}
    for status in operation.refusals():
        content = {PROBLEM: {"schema": schemas.of(ProblemView)}}
        known = found.setdefault(str(status), {"description": HTTPStatus(status).phrase, "content": {}})
        known["content"] = {**known["content"], **content}
    return found


def _needs_body(shape: Any) -> bool:
    """Whether an empty body is refused: something in it has no default."""
    try:
        msgspec.json.decode(b"{}", type=shape)
    except msgspec.ValidationError:
        return True
    return False
