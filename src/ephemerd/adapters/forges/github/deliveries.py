"""What GitHub tried to deliver by one hook: the `DeliveryLog` port.

GitHub's list reaches three days back, on Enterprise Server seven, holds what never arrived with its payload, and is
paged by a cursor (REST reference, webhook deliveries). A payload is read rather than delivered again: that needs no
more than leave to read, costs a fifth of the points of a write, and works although the hook may still lead nowhere.
That a payload is authentic follows from where it was read, over our own connection to GitHub; its signature is for
those who get it by the hook.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ephemerd.adapters.forges.github.connection import Connection
from ephemerd.adapters.forges.github.hook_wire import app_request, hook_request, read_held, read_tries
from ephemerd.adapters.forges.github.hooks import GitHubHooks
from ephemerd.adapters.forges.github.wire import PER_PAGE, Request, next_page
from ephemerd.adapters.kit.answer import Answer
from ephemerd.domain.ids import Scope
from ephemerd.ports.errors import Refused
from ephemerd.ports.hooks import Tries
from ephemerd.ports.webhooks import Delivery


class GitHubDeliveries:
    """The deliveries of one hook: of a scope's that leads to `url`, or of the App that GitHub is asked as."""

    def __init__(
        self,
        connection: Connection,
        forge: str,
        scopes: tuple[Scope, ...],
        *,
        url: str = "",
        app: bool = False,
        timeout_s: float = 20.0,
    ) -> None:
        """`scopes`: one, or all that the App's hook tells of. `timeout_s` bounds one call."""
        assert app or len(scopes) == 1, "a scope's hook is of one scope"
        self.forge = forge
        self.scopes = scopes
        self.name = f"{forge}/app" if app else str(scopes[0])
        self._connection = connection
        self._hooks = GitHubHooks(connection, timeout_s)
        self._url = url
        self._app = app
        self._timeout_s = timeout_s
        self._hook: int | None = None
        self._chooses = True

    async def failed(self, older: str = "") -> Tries:
        """Read a page of tries that failed; of all tries where GitHub does not know how to choose."""
        while True:
            choosing, hook = self._chooses, self._hook
            request = await self._request(
                "?per_page=" + str(PER_PAGE) + ("&status=failure" if choosing else "")
            )
            request = replace(request, target=older) if older else replace(request, conditional=True)
            answer = await self._connection.ask(request, self._deadline())
            if not older and choosing and answer.status in (400, 422):
                self._chooses = False  # an Enterprise Server that is older than the choice
            elif not older and hook is not None and answer.status == 404:
                self._hook = None  # it may have been made anew
            else:
                return self._page(request, answer)

    async def read(self, number: int) -> tuple[Delivery, bytes]:
        """Read what one try held."""
        request = replace(await self._request(f"/{number:d}"), hint="")
        answer = await self._connection.fetch(request, self._deadline())
        return read_held(self.forge, request, answer)

    def _page(self, request: Request, answer: Answer) -> Tries:
        if answer.status != 200:
            raise self._connection.fault(request, answer)
        further = next_page(self._connection.base, request, answer.headers)
        return Tries(tuple(read_tries(request, answer)), further.target if further is not None else "")

    async def _request(self, rest: str) -> Request:
        if self._app:
            return app_request("GET", f"/hook/deliveries{rest}")
        return hook_request("GET", self.scopes[0], f"/{await self._number():d}/deliveries{rest}")

    async def _number(self) -> int:
        """Return the number of our hook; found by its address, once."""
        if self._hook is None:
            scope = self.scopes[0]
            ours = [hook for hook in await self._hooks.hooks(scope) if hook.url == self._url]
            if not ours:
                raise Refused(
                    f"no hook of {scope.path} leads to {self._url}; run `ephemerd webhook install`, or correct "
                    f"forge.{self.forge}.webhook_url"
                )
            self._hook = ours[0].id
        return self._hook

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout_s
