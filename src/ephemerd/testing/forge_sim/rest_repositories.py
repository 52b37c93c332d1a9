"""REST: the repositories of an organization, and repositories by their number (GitHub's REST reference, repositories).

What was asked for by a name of the past is answered with 301 and an address by number, as ``Link`` headers and
redirects of github.com have it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ephemerd.testing.forge_sim import payloads
from ephemerd.testing.forge_sim.model import Repository
from ephemerd.testing.forge_sim.rest import Reply, Site, paged, route
from ephemerd.testing.forge_sim.world import World

_BY_NUMBER = re.compile(r"(/api/v3)?/repositories/(\d+)(/.*)?", re.ASCII)
_TYPES: dict[str, Callable[[Repository], bool]] = {
    "public": lambda one: not one.private,
    "private": lambda one: one.private,
    "forks": lambda one: False,
    "member": lambda one: True,
    "sources": lambda one: True,
    "all": lambda one: True,
}
_ORDERS: dict[str, Callable[[Repository], float | str]] = {
    "created": lambda one: one.id,
    "updated": lambda one: one.pushed_at,
    "pushed": lambda one: one.pushed_at,
    "full_name": lambda one: one.full_name.lower(),
}


def routes(site: Site) -> list[Route]:
    """The endpoints of this module."""
    return route(site, "GET", "/orgs/{org}/repos", list_owned, needs="metadata")


async def list_owned(request: Request, site: Site) -> Reply:
    """List an organization's repositories; of an installation's token those that it reaches, and public ones."""
    login = site.company(request).login.lower()
    wanted = _TYPES.get(request.query_params.get("type", "all"), _TYPES["all"])
    order = request.query_params.get("sort", "created")
    ascending = request.query_params.get("direction", "asc" if order == "full_name" else "desc") == "asc"
    found = [
        one
        for one in site.world.repositories.values()
        if one.owner.lower() == login and wanted(one) and _sees(request, one)
    ]
    found.sort(key=_ORDERS.get(order, _ORDERS["created"]), reverse=not ascending)
    page, headers = paged(request, site, found)
    base = site.base(request)
    return Reply(200, [payloads.repository_json(base, one) for one in page], headers)


def _sees(request: Request, repository: Repository) -> bool:
    issued = request.state.grant.issued
    if issued is None or not repository.private:
        return True
    chosen = (issued.repositories, issued.installation.repositories)
    return all(some is None or repository.full_name.lower() in some for some in chosen)


class ByNumber:
    """Takes ``/repositories/ID/…`` for ``/repos/OWNER/NAME/…``."""

    def __init__(self, app: ASGIApp, world: World) -> None:
        self.app = app
        self.world = world

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, by the name that its number stands for."""
        found = _BY_NUMBER.fullmatch(scope.get("path", "")) if scope["type"] == "http" else None
        if found is not None:
            prefix, number, rest = found.groups()
            named = (one for one in self.world.repositories.values() if one.id == int(number))
            repository = next(named, None)
            if repository is not None:
                path = f"{prefix or ''}/repos/{repository.full_name}{rest or ''}"
                scope = {**scope, "path": path, "raw_path": path.encode()}
        await self.app(scope, receive, send)
