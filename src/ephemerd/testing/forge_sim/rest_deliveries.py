"""REST: what was tried to deliver, by the hook of a repository, organization or App (github.md, section 11)."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.routing import Route

from ephemerd.testing.forge_sim import payloads
from ephemerd.testing.forge_sim.model import Delivery
from ephemerd.testing.forge_sim.rest import Reply, Site, link, number, route
from ephemerd.testing.forge_sim.rest_hooks import APP_HOOK, SCOPES, hook_of
from ephemerd.testing.forge_sim.world import Refused

WINDOW_S = 3 * 86_400.0
"""For so long deliveries are listed and can be asked for again [doc]; scaled."""
CURSOR = "v1_"
"""A cursor is opaque; ours is this and the id of the last delivery of a page."""


def routes(site: Site) -> list[Route]:
    """The endpoints of this module."""
    found = []
    for hooks, needs in SCOPES:
        found += _below(site, f"{hooks}/{{hook_id:int}}", needs=needs, jwt=False)
    return [*found, *_below(site, APP_HOOK, needs=None, jwt=True)]


def _below(site: Site, hook: str, *, needs: str | None, jwt: bool) -> list[Route]:
    one = f"{hook}/deliveries/{{delivery_id:int}}"
    return [
        *route(site, "GET", f"{hook}/deliveries", list_deliveries, needs=needs, jwt=jwt),
        *route(site, "GET", one, get_delivery, needs=needs, jwt=jwt),
        *route(site, "POST", f"{one}/attempts", redeliver, needs=needs, jwt=jwt),
    ]


async def list_deliveries(request: Request, site: Site) -> Reply:
    """List deliveries, newest first, by ``cursor``; ``status=success|failure`` chooses."""
    wanted = request.query_params.get("status")
    if wanted not in (None, "success", "failure"):
        raise Refused(422, "Validation Failed: status")
    before = _cursor(request.query_params.get("cursor"))
    size = min(max(number(request, "per_page", 30), 1), 100)
    chosen = [
        delivery
        for delivery in sorted(_listed(request, site), key=lambda d: -d.id)
        if (before is None or delivery.id < before)
        and (wanted is None or (delivery.status == "OK") == (wanted == "success"))
    ]
    page = chosen[:size]
    headers = {}
    if len(chosen) > size:
        headers["link"] = f'<{link(request, site, cursor=f"{CURSOR}{page[-1].id}")}>; rel="next"'
    return Reply(200, [payloads.delivery_json(item, full=False) for item in page], headers)


async def get_delivery(request: Request, site: Site) -> Reply:
    """Get one delivery with its request and response."""
    return Reply(200, payloads.delivery_json(_delivery(request, site), full=True))


async def redeliver(request: Request, site: Site) -> Reply:
    """Ask for a redelivery: 202; 422 where the hook is switched off."""
    delivery = _delivery(request, site)
    if not delivery.hook.active:
        raise Refused(422, "The hook is not active")
    site.deliverer.redeliver(delivery)
    return Reply(202, {})


def _listed(request: Request, site: Site) -> list[Delivery]:
    oldest = time.time() - site.world.seconds(WINDOW_S)
    return [one for one in hook_of(request, site).deliveries if (one.delivered_at or 0) >= oldest]


def _cursor(given: str | None) -> int | None:
    if given is None:
        return None
    text = given.removeprefix(CURSOR)
    if text == given or not text.isdigit():
        raise Refused(400, "Invalid cursor")
    return int(text)


def _delivery(request: Request, site: Site) -> Delivery:
    wanted = request.path_params["delivery_id"]
    for delivery in _listed(request, site):
        if delivery.id == wanted:
            return delivery
    raise Refused(404, "Not Found")
