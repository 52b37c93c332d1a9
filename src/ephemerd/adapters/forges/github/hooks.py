"""Webhooks as they are set up at GitHub: those of repositories and organizations, and the one of an App.

Of an App's hook a program may change where it leads, its secret and its content type (GitHub's REST reference, App
webhooks). Whether it is active, and which events it sends, is set in the App's settings by people alone; it has no
ping and cannot be deleted.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ephemerd.adapters.forges.github.connection import Connection
from ephemerd.adapters.forges.github.hook_wire import (
    app_request,
    config,
    hook_request,
    read_app_hook,
    read_hooks,
    read_tries,
)
from ephemerd.adapters.forges.github.webhooks import USED
from ephemerd.adapters.forges.github.wire import MAX_PAGES, PER_PAGE, Request, next_page
from ephemerd.domain.ids import Scope
from ephemerd.ports.hooks import Hook, HookDelivery


class _Asking:
    """What both have in common: a connection, and a deadline for each call."""

    def __init__(self, connection: Connection, timeout_s: float = 20.0) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    async def _done(self, request: Request, *good: int) -> None:
        answer = await self._connection.ask(request, self._deadline())
        if answer.status not in good:
            raise self._connection.fault(request, answer)

    async def _tries(self, request: Request) -> list[HookDelivery]:
        return read_tries(request, await self._connection.fetch(request, self._deadline()))

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout_s


class GitHubHooks(_Asking):
    """The `HookAdmin` port over a forge's connection."""

    async def hooks(self, scope: Scope) -> list[Hook]:
        """List all hooks of a scope, ours and others."""
        deadline, found = self._deadline(), list[Hook]()
        request: Request | None = hook_request("GET", scope, f"?per_page={PER_PAGE}")
        for _ in range(MAX_PAGES):
            if request is None:
                break
            answer = await self._connection.fetch(request, deadline)
            found += read_hooks(request, answer)
            request = next_page(self._connection.base, request, answer.headers)
        return found

    async def create(self, scope: Scope, url: str, secret: str) -> None:
        """Make an active hook for the deliveries that we use."""
        await self._done(hook_request("POST", scope, body={"name": "web", **_wanted(url, secret)}), 201)

    async def update(self, scope: Scope, hook: int, url: str, secret: str) -> None:
        """Bring a hook to what `create` would make."""
        await self._done(hook_request("PATCH", scope, f"/{hook:d}", body=_wanted(url, secret)), 200)

    async def remove(self, scope: Scope, hook: int) -> None:
        """Delete a hook; one that is gone already is no error."""
        await self._done(hook_request("DELETE", scope, f"/{hook:d}"), 204, 404)

    async def ping(self, scope: Scope, hook: int) -> None:
        """Have GitHub send a ping."""
        await self._done(hook_request("POST", scope, f"/{hook:d}/pings"), 204)

    async def deliveries(self, scope: Scope, hook: int) -> list[HookDelivery]:
        """List the newest deliveries, newest first."""
        return await self._tries(hook_request("GET", scope, f"/{hook:d}/deliveries?per_page={PER_PAGE}"))


class GitHubAppHook(_Asking):
    """The `AppHookAdmin` port over the connection of a forge that is asked as an App."""

    async def hook(self) -> Hook:
        """Get where the hook leads, and which events the App wants."""
        where, app = app_request("GET", "/hook/config"), app_request("GET", "")
        answer = await self._connection.fetch(where, self._deadline())
        return read_app_hook(where, answer, await self._connection.fetch(app, self._deadline()))

    async def update(self, url: str, secret: str) -> None:
        """Have it lead to `url`."""
        await self._done(app_request("PATCH", "/hook/config", config(url, secret)), 200)

    async def deliveries(self) -> list[HookDelivery]:
        """List the newest deliveries, newest first."""
        return await self._tries(app_request("GET", f"/hook/deliveries?per_page={PER_PAGE}"))

    async def redeliver(self, number: int) -> None:
        """Have GitHub try a delivery once more."""
        await self._done(app_request("POST", f"/hook/deliveries/{number:d}/attempts"), 202)


def _wanted(url: str, secret: str) -> dict[str, Any]:
    return {"active": True, "events": [USED], "config": config(url, secret)}
