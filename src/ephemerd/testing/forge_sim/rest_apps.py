"""REST: what a GitHub App asks about itself, and the tokens of its installations (github.md, section 2)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from ephemerd.testing.forge_sim import payloads
from ephemerd.testing.forge_sim.apps import NOT_ACCESSIBLE, App, Installation, Issued, narrowed
from ephemerd.testing.forge_sim.rest import Json, Reply, Site, json_body, paged, route
from ephemerd.testing.forge_sim.world import Refused


def routes(site: Site) -> list[Route]:
    """The endpoints of this module."""
    installations = "/app/installations"
    one = f"{installations}/{{installation_id:int}}"
    return [
        *route(site, "GET", "/app", get_app, jwt=True),
        *route(site, "GET", installations, list_installations, jwt=True),
        *route(site, "GET", one, get_installation, jwt=True),
        *route(site, "POST", f"{one}/access_tokens", make_token, jwt=True),
        *route(site, "GET", "/repos/{owner}/{repo}/installation", find_installation, jwt=True),
        *route(site, "GET", "/orgs/{org}/installation", find_installation, jwt=True),
        *route(site, "GET", "/users/{org}/installation", find_installation, jwt=True),
        *route(site, "GET", "/installation/repositories", list_repositories),
    ]


async def get_app(request: Request, site: Site) -> Reply:
    """Get the App itself."""
    app = _app(request)
    body = {
        "id": app.id,
        "slug": app.slug,
        "client_id": app.client_id,
        "node_id": payloads.node_id("A", app.id),
        "name": app.slug,
        "owner": payloads.account(site.base(request), "look-alike", 1, "Organization"),
        "permissions": app.permissions,
        "events": list(app.hook.events),
        "installations_count": len(app.installations),
    }
    return Reply(200, body)


async def list_installations(request: Request, site: Site) -> Reply:
    """List where the App is installed."""
    page, headers = paged(request, site, list(_app(request).installations.values()))
    return Reply(200, [_shown(request, site, one) for one in page], headers)


async def get_installation(request: Request, site: Site) -> Reply:
    """Get one installation."""
    return Reply(200, _shown(request, site, _installation(request)))


async def find_installation(request: Request, site: Site) -> Reply:
    """Find the installation for a repository or an account; 404 where the App is not installed."""
    params = request.path_params
    owner = str(params.get("owner") or params["org"]).lower()
    name = f"{owner}/{params['repo']}".lower() if "repo" in params else None
    if name is not None and name not in site.world.repositories:
        raise Refused(404, "Not Found")
    for one in _app(request).installations.values():
        reaches = name is None or one.repositories is None or name in one.repositories
        if one.account.lower() == owner and reaches:
            return Reply(200, _shown(request, site, one))
    raise Refused(404, "Not Found")


async def make_token(request: Request, site: Site) -> Reply:
    """Make a token, for some repositories and permissions if asked: 201, 403, 404, 422."""
    installation = _installation(request)
    if installation.suspended:
        raise Refused(403, "This installation has been suspended")
    body = await json_body(request)
    chosen = _chosen(site, installation, body)
    wanted = body.get("permissions") or {}
    if not isinstance(wanted, dict):
        raise Refused(422, "Invalid request: permissions is no object")
    token, issued = site.apps.issue(installation, narrowed(installation, wanted), chosen)
    answer: Json = {
        "token": token,
        "expires_at": datetime.fromtimestamp(int(issued.expires_at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "permissions": issued.permissions,
        "repository_selection": "all" if _everything(issued) else "selected",
    }
    if chosen is not None:
        base = site.base(request)
        found = [site.world.repositories[name] for name in sorted(chosen)]
        answer["repositories"] = [payloads.repository_json(base, repository) for repository in found]
    return Reply(201, answer)


async def list_repositories(request: Request, site: Site) -> Reply:
    """List the repositories that an installation's token reaches."""
    issued: Issued | None = request.state.grant.issued
    if issued is None:
        raise Refused(403, "You must authenticate with an installation access token")
    account = issued.installation.account.lower()
    found = [
        repository
        for name, repository in site.world.repositories.items()
        if repository.owner.lower() == account
        and all(
            some is None or name in some for some in (issued.repositories, issued.installation.repositories)
        )
    ]
    page, headers = paged(request, site, found)
    base = site.base(request)
    body = {
        "total_count": len(found),
        "repository_selection": "all" if _everything(issued) else "selected",
        "repositories": [payloads.repository_json(base, repository) for repository in page],
    }
    return Reply(200, body, headers)


def _everything(issued: Issued) -> bool:
    return issued.repositories is None and issued.installation.repositories is None


def _chosen(site: Site, installation: Installation, body: Json) -> frozenset[str] | None:
    """The repositories that a token is asked for, by name or id; None for all."""
    names, numbers = body.get("repositories"), body.get("repository_ids")
    if names is None and numbers is None:
        return None
    account = installation.account.lower()
    wanted = {f"{account}/{name}".lower() for name in names or []}
    by_id = {repository.id: name for name, repository in site.world.repositories.items()}
    wanted |= {by_id.get(number, "") for number in numbers or []}
    allowed = installation.repositories
    for name in wanted:
        there = name in site.world.repositories and name.startswith(f"{account}/")
        if not there or (allowed is not None and name not in allowed):
            raise Refused(422, "There is at least one repository that does not exist or is not accessible")
    return frozenset(wanted)


def _app(request: Request) -> App:
    app: App | None = request.state.grant.app
    if app is None:
        raise Refused(403, NOT_ACCESSIBLE)
    return app


def _installation(request: Request) -> Installation:
    found = _app(request).installations.get(request.path_params["installation_id"])
    if found is None:
        raise Refused(404, "Not Found")
    return found


def _shown(request: Request, site: Site, one: Installation) -> Json:
    base = site.base(request)
    account: Any = payloads.account(base, one.account, payloads.ACCOUNT_ID, "Organization")
    return {
        "id": one.id,
        "account": account,
        "repository_selection": "all" if one.repositories is None else "selected",
        "access_tokens_url": f"{base}/app/installations/{one.id}/access_tokens",
        "repositories_url": f"{base}/installation/repositories",
        "html_url": f"{payloads.website(base)}/organizations/{one.account}/settings/installations/{one.id}",
        "app_id": one.app.id,
        "client_id": one.app.client_id,
        "app_slug": one.app.slug,
        "target_id": payloads.ACCOUNT_ID,
        "target_type": "Organization",
        "permissions": one.app.permissions,
        "events": [],
        "created_at": "2026-11-02T08:00:00Z",
        "updated_at": "2026-11-02T08:00:00Z",
        "single_file_name": None,
        "suspended_by": None,
        "suspended_at": "2026-11-29T08:00:00Z" if one.suspended else None,
    }
