"""REST: webhooks and their deliveries (github.md, sections 9 and 11).

One deviation, on purpose: GitHub refuses hook URLs on ``localhost``; here loopback is where the daemon lives.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.routing import Route

from ephemerd.testing.forge_sim import payloads
from ephemerd.testing.forge_sim.model import Delivery, Hook
from ephemerd.testing.forge_sim.rest import Reply, Site, json_body, link, number, paged, route
from ephemerd.testing.forge_sim.world import Refused


def routes(site: Site) -> list[Route]:
    """The endpoints of this module."""
    hooks, needs = "/repos/{owner}/{repo}/hooks", "repository_hooks"
    one = f"{hooks}/{{hook_id:int}}"
    delivery = f"{one}/deliveries/{{delivery_id:int}}"
    return [
        *route(site, "POST", hooks, create_hook, needs=needs),
        *route(site, "GET", hooks, list_hooks, needs=needs),
        *route(site, "GET", one, get_hook, needs=needs),
        *route(site, "PATCH", one, update_hook, needs=needs),
        *route(site, "DELETE", one, delete_hook, needs=needs),
        *route(site, "POST", f"{one}/pings", ping_hook, needs=needs),
        *route(site, "GET", f"{one}/deliveries", list_deliveries, needs=needs),
        *route(site, "GET", delivery, get_delivery, needs=needs),
        *route(site, "POST", f"{delivery}/attempts", redeliver, needs=needs),
    ]


async def create_hook(request: Request, site: Site) -> Reply:
    """Create a hook: 201, 422. ``content_type`` defaults to ``form`` as on GitHub."""
    body = await json_body(request)
    config = body.get("config")
    url = config.get("url") if isinstance(config, dict) else None
    if (
        not isinstance(config, dict)
        or not isinstance(url, str)
        or not url.startswith(("http://", "https://"))
    ):
        raise Refused(422, "Validation Failed: config.url is missing or not a URL")
    repository = site.repository(request)
    if any(hook.url == url for hook in repository.hooks.values()):
        raise Refused(422, "Validation Failed: Hook already exists on this repository")
    hook = site.deliverer.add_hook(
        repository,
        url,
        secret=str(config.get("secret", "")),
        content_type=str(config.get("content_type", "form")),
        events=tuple(body.get("events") or ("push",)),
        active=bool(body.get("active", True)),
        insecure_ssl=str(config.get("insecure_ssl", "0")),
    )
    return Reply(201, payloads.hook_json(site.base(request), repository, hook))


async def list_hooks(request: Request, site: Site) -> Reply:
    """List the hooks of a repository."""
    repository = site.repository(request)
    page, headers = paged(request, site, list(repository.hooks.values()))
    return Reply(200, [payloads.hook_json(site.base(request), repository, hook) for hook in page], headers)


async def get_hook(request: Request, site: Site) -> Reply:
    """Get one hook."""
    return Reply(200, payloads.hook_json(site.base(request), site.repository(request), _hook(request, site)))


async def update_hook(request: Request, site: Site) -> Reply:
    """Change a hook: what is not named stays, but a `config` without a secret takes the secret away."""
    body, hook = await json_body(request), _hook(request, site)
    hook.active = bool(body.get("active", hook.active))
    hook.events = tuple(body.get("events") or hook.events)
    config = body.get("config")
    if isinstance(config, dict):
        hook.url = str(config.get("url", hook.url))
        hook.secret = str(config.get("secret", ""))
        hook.content_type = str(config.get("content_type", hook.content_type))
        hook.insecure_ssl = str(config.get("insecure_ssl", hook.insecure_ssl))
    return Reply(200, payloads.hook_json(site.base(request), site.repository(request), hook))


async def delete_hook(request: Request, site: Site) -> Reply:
    """Delete a hook: 204."""
    hook = _hook(request, site)
    hook.active = False
    del site.repository(request).hooks[hook.id]
    return Reply(204)


async def ping_hook(request: Request, site: Site) -> Reply:
    """Send a ping: 204."""
    site.deliverer.ping(site.repository(request), _hook(request, site))
    return Reply(204)


async def list_deliveries(request: Request, site: Site) -> Reply:
    """List deliveries, newest first, by ``cursor``; ``status=success|failure`` chooses."""
    hook, repository = _hook(request, site), site.repository(request)
    wanted = request.query_params.get("status")
    if wanted not in (None, "success", "failure"):
        raise Refused(422, "Validation Failed: status")
    before = number(request, "cursor", 0)
    size = min(max(number(request, "per_page", 30), 1), 100)
    chosen = [
        delivery
        for delivery in sorted(hook.deliveries, key=lambda d: -d.id)
        if (not before or delivery.id < before)
        and (wanted is None or (delivery.status == "OK") == (wanted == "success"))
    ]
    page = chosen[:size]
    headers = {}
    if len(chosen) > size:
        headers["link"] = f'<{link(request, site, cursor=str(page[-1].id))}>; rel="next"'
    return Reply(200, [payloads.delivery_json(item, repository, full=False) for item in page], headers)


async def get_delivery(request: Request, site: Site) -> Reply:
    """Get one delivery with its request and response."""
    return Reply(200, payloads.delivery_json(_delivery(request, site), site.repository(request), full=True))


async def redeliver(request: Request, site: Site) -> Reply:
    """Ask for a redelivery: 202."""
    site.deliverer.redeliver(_delivery(request, site))
    return Reply(202, {})


def _hook(request: Request, site: Site) -> Hook:
    hook = site.repository(request).hooks.get(request.path_params["hook_id"])
    if hook is None:
        raise Refused(404, "Not Found")
    return hook


def _delivery(request: Request, site: Site) -> Delivery:
    wanted = request.path_params["delivery_id"]
    for delivery in _hook(request, site).deliveries:
        if delivery.id == wanted:
            return delivery
    raise Refused(404, "Not Found")
