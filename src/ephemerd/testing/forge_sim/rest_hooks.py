"""REST: webhooks of repositories and organizations, and where an App's one hook leads (github.md, section 9).

One deviation, on purpose: GitHub refuses hook URLs on ``localhost``; here loopback is where the daemon lives.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.routing import Route

from ephemerd.testing.forge_sim import payloads
from ephemerd.testing.forge_sim.model import Hook
from ephemerd.testing.forge_sim.rest import Json, Reply, Site, json_body, paged, route
from ephemerd.testing.forge_sim.world import Refused

SCOPES = (("/repos/{owner}/{repo}/hooks", "repository_hooks"), ("/orgs/{org}/hooks", "organization_hooks"))
"""Where hooks are, and the permission that each place wants (section 2.3)."""
APP_HOOK = "/app/hook"


def routes(site: Site) -> list[Route]:
    """The endpoints of this module."""
    found = [
        *route(site, "GET", f"{APP_HOOK}/config", get_config, jwt=True),
        *route(site, "PATCH", f"{APP_HOOK}/config", update_config, jwt=True),
    ]
    for hooks, needs in SCOPES:
        one = f"{hooks}/{{hook_id:int}}"
        found += [
            *route(site, "POST", hooks, create_hook, needs=needs),
            *route(site, "GET", hooks, list_hooks, needs=needs),
            *route(site, "GET", one, get_hook, needs=needs),
            *route(site, "PATCH", one, update_hook, needs=needs),
            *route(site, "DELETE", one, delete_hook, needs=needs),
            *route(site, "POST", f"{one}/pings", ping_hook, needs=needs),
        ]
    return found


async def create_hook(request: Request, site: Site) -> Reply:
    """Create a hook: 201, 422. ``content_type`` defaults to ``form`` as on GitHub."""
    body = await json_body(request)
    config = body.get("config")
    url = config.get("url") if isinstance(config, dict) else None
    if not isinstance(config, dict) or not _is_url(url):
        raise Refused(422, "Validation Failed: config.url is missing or not a URL")
    place = site.scope(request)
    if any(hook.url == url for hook in place.hooks.values()):
        kind = "organization" if "org" in request.path_params else "repository"
        raise Refused(422, f"Validation Failed: Hook already exists on this {kind}")
    hook = site.deliverer.add_hook(
        place,
        str(url),
        secret=str(config.get("secret", "")),
        content_type=str(config.get("content_type", "form")),
        events=tuple(body.get("events") or ("push",)),
        active=bool(body.get("active", True)),
        insecure_ssl=str(config.get("insecure_ssl", "0")),
    )
    return Reply(201, payloads.hook_json(site.base(request), hook))


async def list_hooks(request: Request, site: Site) -> Reply:
    """List the hooks of a repository or organization."""
    page, headers = paged(request, site, list(site.scope(request).hooks.values()))
    return Reply(200, [payloads.hook_json(site.base(request), hook) for hook in page], headers)


async def get_hook(request: Request, site: Site) -> Reply:
    """Get one hook."""
    return Reply(200, payloads.hook_json(site.base(request), hook_of(request, site)))


async def update_hook(request: Request, site: Site) -> Reply:
    """Change a hook: what is not named stays, but a `config` without a secret takes the secret away."""
    body, hook = await json_body(request), hook_of(request, site)
    hook.active = bool(body.get("active", hook.active))
    hook.events = tuple(body.get("events") or hook.events)
    config = body.get("config")
    if isinstance(config, dict):
        _configure(hook, {"secret": "", **config})
    return Reply(200, payloads.hook_json(site.base(request), hook))


async def delete_hook(request: Request, site: Site) -> Reply:
    """Delete a hook: 204."""
    hook = hook_of(request, site)
    hook.active = False
    del site.scope(request).hooks[hook.id]
    return Reply(204)


async def ping_hook(request: Request, site: Site) -> Reply:
    """Send a ping: 204."""
    site.deliverer.ping(site.scope(request), hook_of(request, site))
    return Reply(204)


async def get_config(request: Request, site: Site) -> Reply:
    """Say where the App's hook leads."""
    return Reply(200, payloads.hook_config_json(hook_of(request, site)))


async def update_config(request: Request, site: Site) -> Reply:
    """Change where the App's hook leads; what is not named stays."""
    body, hook = await json_body(request), hook_of(request, site)
    if "url" in body and not _is_url(body["url"]):
        raise Refused(422, "Validation Failed: url is not a URL")
    _configure(hook, body)
    return Reply(200, payloads.hook_config_json(hook))


def hook_of(request: Request, site: Site) -> Hook:
    """The hook that a path names: the App's own, or one of a repository or organization, else 404."""
    if "hook_id" not in request.path_params:
        app = request.state.grant.app
        assert app is not None, "the endpoint is for Apps"
        found: Hook = app.hook
        return found
    hook = site.scope(request).hooks.get(request.path_params["hook_id"])
    if hook is None:
        raise Refused(404, "Not Found")
    return hook


def _is_url(value: object) -> bool:
    return isinstance(value, str) and value.startswith(("http://", "https://"))


def _configure(hook: Hook, config: Json) -> None:
    hook.url = str(config.get("url", hook.url))
    hook.secret = str(config.get("secret", hook.secret))
    hook.content_type = str(config.get("content_type", hook.content_type))
    hook.insecure_ssl = str(config.get("insecure_ssl", hook.insecure_ssl))
