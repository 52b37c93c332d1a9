"""Webhooks and their deliveries as GitHub's REST API has them: what to send, and what an answer says; pure.

Sources: GitHub's REST reference (webhooks and webhook deliveries of repositories, organizations and Apps).
"""

from __future__ import annotations

from typing import Any

import msgspec

from ephemerd.adapters.forges.github.jobs import integer, moment, text
from ephemerd.adapters.forges.github.webhooks import USED, carried
from ephemerd.adapters.forges.github.wire import APP, Request, scope_path
from ephemerd.adapters.kit.answer import Answer
from ephemerd.domain.ids import Scope
from ephemerd.ports.errors import Refused, RetryLater
from ephemerd.ports.hooks import Hook, HookDelivery
from ephemerd.ports.webhooks import Delivery, Malformed

HINT = "check that it exists and that the token may administer its webhooks (Webhooks: write)"
APP_HINT = "check app_id and private_key_file: what an App's hook does is shown to the App alone"


class _Config(msgspec.Struct):
    url: Any = None
    content_type: Any = None
    secret: Any = None
    insecure_ssl: Any = None


class _Response(msgspec.Struct):
    code: Any = None


class _Hook(msgspec.Struct):
    id: int
    config: _Config
    active: Any = None
    events: Any = None
    last_response: _Response | None = None


class _App(msgspec.Struct):
    events: Any = None


class _Try(msgspec.Struct):
    id: int
    guid: Any = None
    delivered_at: Any = None
    event: Any = None
    status_code: Any = None
    status: Any = None
    repository_id: Any = None


class _Sent(msgspec.Struct):
    payload: msgspec.Raw = msgspec.Raw(b"null")


class _Whole(msgspec.Struct):
    guid: Any = None
    event: Any = None
    request: _Sent | None = None


# -- what to send -------------------------------------------------------------------------------------------


def hook_request(method: str, scope: Scope, rest: str = "", body: dict[str, Any] | None = None) -> Request:
    """Ask about the hooks of a scope; `rest` is what follows `/hooks`.

    `Refused` for an enterprise: its hooks have no documented API for tokens of ours.
    """
    if scope.kind == "enterprise":
        raise Refused(f"the hook of {scope.path} cannot be managed from here; set it up in its settings")
    return Request(
        method,
        f"{scope_path(scope)}/hooks{rest}",
        f"{method} {{scope}}/hooks{_template(rest)}",
        f"the webhooks of {scope.path}",
        HINT,
        _encoded(body),
        account=scope_path(scope),
    )


def app_request(method: str, rest: str, body: dict[str, Any] | None = None) -> Request:
    """Ask about the App that we are, and its one hook; `rest` is what follows `/app`."""
    return Request(
        method,
        f"{APP}{rest}",
        f"{method} {APP}{_template(rest)}",
        "the App's webhook",
        APP_HINT,
        _encoded(body),
        account=APP,
    )


def _template(rest: str) -> str:
    parts = rest.partition("?")[0].split("/")
    return "/".join("{id}" if part.isdigit() else part for part in parts)


def _encoded(body: dict[str, Any] | None) -> bytes:
    return msgspec.json.encode(body) if body is not None else b""


def config(url: str, secret: str) -> dict[str, Any]:
    """Return how a hook of ours is configured; GitHub's own default for the content type is a form."""
    return {"url": url, "content_type": "json", "secret": secret, "insecure_ssl": "0"}


# -- what an answer says ------------------------------------------------------------------------------------


def read_hooks(request: Request, answer: Answer) -> list[Hook]:
    """Read a page of hooks."""
    return [_hook(entry) for entry in _read(request, answer, list[_Hook])]


def read_app_hook(request: Request, answer: Answer, app: Answer) -> Hook:
    """Read where an App's hook leads, and from the App itself which events it wants."""
    events = _read(request, app, _App).events
    return _hook(_Hook(0, _read(request, answer, _Config), active=True, events=events))


def read_tries(request: Request, answer: Answer) -> list[HookDelivery]:
    """Read a page of tries to deliver, newest first."""
    return [_try(entry) for entry in _read(request, answer, list[_Try])]


def read_held(forge: str, request: Request, answer: Answer) -> tuple[Delivery, bytes]:
    """Read what a try held, and its body. `Refused` where there is none that can be read: asking again gives the
    same."""
    try:
        whole = msgspec.json.decode(answer.body, type=_Whole)
        body = _body(whole)
    except (msgspec.DecodeError, RecursionError):
        raise Refused(f"GitHub's answer to {request.endpoint} is not understood") from None
    event, delivery = text(whole.event, 100), text(whole.guid, 200)
    if event != USED:
        return Delivery(delivery, event, None, f"event {event}"), body
    try:
        return carried(forge, delivery, body), body
    except Malformed as error:
        raise Refused(f"a delivery is shown without a usable payload: {error}") from None


def _body(whole: _Whole) -> bytes:
    """Return the payload's bytes, also where it is shown as a text."""
    raw = bytes(whole.request.payload) if whole.request is not None else b""
    return msgspec.json.decode(raw, type=str).encode("utf-8", "replace") if raw.startswith(b'"') else raw


def _hook(entry: _Hook) -> Hook:
    where = entry.config
    events = entry.events if isinstance(entry.events, list) else []
    code = entry.last_response.code if entry.last_response is not None else None
    return Hook(
        id=entry.id,
        url=where.url if isinstance(where.url, str) else "",
        active=entry.active is True,
        events=tuple(event for event in events if isinstance(event, str)),
        json=where.content_type == "json",
        signed=bool(where.secret),
        verified=str(where.insecure_ssl) == "0",
        answered=code if isinstance(code, int) and code > 0 else None,
    )


def _try(entry: _Try) -> HookDelivery:
    code = entry.status_code if type(entry.status_code) is int else 0
    event, outcome = text(entry.event, 100), text(entry.status, 200)
    return HookDelivery(
        entry.id,
        event,
        code,
        outcome,
        delivery=text(entry.guid, 200),
        good=outcome == "OK" or 200 <= code < 300,
        at=moment(entry.delivered_at),
        used=event == USED,
        repository=integer(entry.repository_id),
    )


def _read(request: Request, answer: Answer, kind: Any) -> Any:
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, RecursionError):
        raise RetryLater(f"GitHub's answer to {request.endpoint} is not understood") from None
