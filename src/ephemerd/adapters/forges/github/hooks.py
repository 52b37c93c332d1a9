"""Webhooks of a repository or organization as they are set up at GitHub (GitHub's REST reference, webhooks)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from ephemerd.adapters.forges.github.connection import Connection
from ephemerd.adapters.forges.github.jobs import text
from ephemerd.adapters.forges.github.webhooks import USED
from ephemerd.adapters.forges.github.wire import MAX_PAGES, PER_PAGE, Request, next_page, scope_path
from ephemerd.adapters.kit.answer import Answer
from ephemerd.domain.ids import Scope
from ephemerd.ports.errors import Refused, RetryLater
from ephemerd.ports.hooks import Hook, HookDelivery

HINT = "check that it exists and that the token may administer its webhooks (Webhooks: write)"


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


class _Delivery(msgspec.Struct):
    id: int
    event: Any = None
    status_code: Any = None
    status: Any = None


class GitHubHooks:
    """The `HookAdmin` port over a forge's connection."""

    def __init__(self, connection: Connection, timeout_s: float = 20.0) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    async def hooks(self, scope: Scope) -> list[Hook]:
        """List all hooks of a scope, ours and others."""
        deadline, found = self._deadline(), list[Hook]()
        request: Request | None = _request("GET", scope, f"?per_page={PER_PAGE}")
        for _ in range(MAX_PAGES):
            if request is None:
                break
            answer = await self._connection.fetch(request, deadline)
            found += [_hook(entry) for entry in _read(request, answer, list[_Hook])]
            request = next_page(self._connection.base, request, answer.headers)
        return found

    async def create(self, scope: Scope, url: str, secret: str) -> None:
        """Make an active hook for the deliveries that we use."""
        await self._done(_request("POST", scope, body={"name": "web", **_wanted(url, secret)}), 201)

    async def update(self, scope: Scope, hook: int, url: str, secret: str) -> None:
        """Bring a hook to what `create` would make."""
        await self._done(_request("PATCH", scope, f"/{hook:d}", body=_wanted(url, secret)), 200)

    async def remove(self, scope: Scope, hook: int) -> None:
        """Delete a hook; one that is gone already is no error."""
        await self._done(_request("DELETE", scope, f"/{hook:d}"), 204, 404)

    async def ping(self, scope: Scope, hook: int) -> None:
        """Have GitHub send a ping."""
        await self._done(_request("POST", scope, f"/{hook:d}/pings"), 204)

    async def deliveries(self, scope: Scope, hook: int) -> list[HookDelivery]:
        """List the newest deliveries, newest first."""
        request = _request("GET", scope, f"/{hook:d}/deliveries?per_page={PER_PAGE}")
        answer = await self._connection.fetch(request, self._deadline())
        return [_delivery(entry) for entry in _read(request, answer, list[_Delivery])]

    async def _done(self, request: Request, *good: int) -> None:
        answer = await self._connection.ask(request, self._deadline())
        if answer.status not in good:
            raise self._connection.fault(request, answer)

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout_s


def _request(method: str, scope: Scope, rest: str = "", body: dict[str, Any] | None = None) -> Request:
    """`Refused` for an enterprise: its hooks have no documented API for tokens of ours."""
    if scope.kind == "enterprise":
        raise Refused(f"the hook of {scope.path} cannot be managed from here; set it up in its settings")
    path = rest.partition("?")[0]
    template = "/{id}" + path[path.index("/", 1) :] if path.count("/") > 1 else "/{id}" if path else ""
    return Request(
        method,
        f"{scope_path(scope)}/hooks{rest}",
        f"{method} {{scope}}/hooks{template}",
        f"the webhooks of {scope.path}",
        HINT,
        msgspec.json.encode(body) if body is not None else b"",
        account=scope_path(scope),
    )


def _wanted(url: str, secret: str) -> dict[str, Any]:
    config = {"url": url, "content_type": "json", "secret": secret, "insecure_ssl": "0"}
    return {"active": True, "events": [USED], "config": config}


def _hook(entry: _Hook) -> Hook:
    config = entry.config
    events = entry.events if isinstance(entry.events, list) else []
    code = entry.last_response.code if entry.last_response is not None else None
    return Hook(
        id=entry.id,
        url=config.url if isinstance(config.url, str) else "",
        active=entry.active is True,
        events=tuple(event for event in events if isinstance(event, str)),
        json=config.content_type == "json",
        signed=bool(config.secret),
        verified=str(config.insecure_ssl) == "0",
        answered=code if isinstance(code, int) and code > 0 else None,
    )


def _delivery(entry: _Delivery) -> HookDelivery:
    code = entry.status_code if isinstance(entry.status_code, int) else 0
    return HookDelivery(entry.id, text(entry.event, 100), code, text(entry.status, 200))


def _read(request: Request, answer: Answer, kind: Any) -> Any:
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, RecursionError):
        raise RetryLater(f"GitHub's answer to {request.endpoint} is not understood") from None
