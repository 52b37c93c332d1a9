"""REST: organizations, and the runner groups of an organization or enterprise (github.md, section 6)."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from ephemerd.testing.forge_sim import payloads
from ephemerd.testing.forge_sim.companies import Company, Group
from ephemerd.testing.forge_sim.model import Repository, Runner
from ephemerd.testing.forge_sim.rest import Json, Reply, Site, json_body, paged, route
from ephemerd.testing.forge_sim.world import Refused

VISIBILITIES = ("all", "selected", "private")


def routes(site: Site, scope: str) -> list[Route]:
    """The group endpoints below ``scope``, e.g. ``/orgs/{org}``."""
    base, needs = f"{scope}/actions/runner-groups", "organization_self_hosted_runners"
    one = f"{base}/{{group_id:int}}"
    found = [
        *route(site, "GET", base, list_groups, needs=needs),
        *route(site, "POST", base, create_group, needs=needs),
        *route(site, "GET", one, get_group, needs=needs),
        *route(site, "PATCH", one, change_group, needs=needs),
        *route(site, "DELETE", one, delete_group, needs=needs),
        *route(site, "GET", f"{one}/runners", list_members, needs=needs),
        *route(site, "PUT", f"{one}/runners", set_members, needs=needs),
        *route(site, "PUT", f"{one}/runners/{{runner_id:int}}", add_member, needs=needs),
        *route(site, "DELETE", f"{one}/runners/{{runner_id:int}}", remove_member, needs=needs),
    ]
    if scope.startswith("/orgs"):
        found += [
            *route(site, "GET", scope, get_organization),
            *route(site, "GET", f"{one}/repositories", list_repositories, needs=needs),
            *route(site, "PUT", f"{one}/repositories", set_repositories, needs=needs),
            *route(site, "PUT", f"{one}/repositories/{{repository_id:int}}", add_repository, needs=needs),
            *route(site, "DELETE", f"{one}/repositories/{{repository_id:int}}", drop_repository, needs=needs),
        ]
    return found


async def get_organization(request: Request, site: Site) -> Reply:
    """Get an organization."""
    return Reply(200, payloads.organization_json(site.base(request), site.company(request).login))


async def list_groups(request: Request, site: Site) -> Reply:
    """List the groups, or those that one repository may use."""
    company = site.company(request)
    groups = list(company.groups.values())
    wanted = request.query_params.get("visible_to_repository")
    if wanted is not None:
        repository = site.world.repositories.get(f"{company.login}/{wanted}".lower())
        groups = [group for group in groups if repository is not None and group.lets_in(repository)]
    page, headers = paged(request, site, groups)
    shown = [_shown(request, site, company, group) for group in page]
    return Reply(200, {"total_count": len(groups), "runner_groups": shown}, headers)


async def create_group(request: Request, site: Site) -> Reply:
    """Make a group: 201, 409 for a name that is taken, 422."""
    company, body = site.company(request), await json_body(request)
    name = body.get("name")
    if not isinstance(name, str) or not name.strip():
        raise Refused(422, "Invalid input: object is missing required key: name")
    if company.group_named(name) is not None:
        raise Refused(409, f"Runner group {name} already exists.")
    _check(body)
    group = company.add_group(name)
    _change(group, body)
    group.repositories = set(body.get("selected_repository_ids") or [])
    for number in body.get("runners") or []:
        _runner(company, number).group_id = group.id
    return Reply(201, _shown(request, site, company, group))


async def get_group(request: Request, site: Site) -> Reply:
    """Get one group."""
    company, group = _group(request, site)
    return Reply(200, _shown(request, site, company, group))


async def change_group(request: Request, site: Site) -> Reply:
    """Change a group's name, visibility or who may use it."""
    company, group = _group(request, site)
    body = await json_body(request)
    _check(body)
    _change(group, body)
    site.world.on_change()
    return Reply(200, _shown(request, site, company, group))


async def delete_group(request: Request, site: Site) -> Reply:
    """Delete a group; its runners come to the default one."""
    company, group = _group(request, site)
    if group.default:
        raise Refused(422, "The default runner group cannot be deleted.")
    del company.groups[group.id]
    for runner in _members(company, group):
        runner.group_id = 1
    site.world.on_change()
    return Reply(204)


async def list_members(request: Request, site: Site) -> Reply:
    """List the runners of a group."""
    company, group = _group(request, site)
    members = _members(company, group)
    page, headers = paged(request, site, members)
    world = site.world
    shown = [
        payloads.runner_json(runner, online=world.online(runner), busy=world.busy_flag(runner))
        for runner in page
    ]
    return Reply(200, {"total_count": len(members), "runners": shown}, headers)


async def set_members(request: Request, site: Site) -> Reply:
    """Let exactly these runners be in a group; others go to the default one."""
    company, group = _group(request, site)
    wanted = [_runner(company, number) for number in (await json_body(request)).get("runners") or []]
    for runner in _members(company, group):
        runner.group_id = 1
    for runner in wanted:
        runner.group_id = group.id
    site.world.on_change()
    return Reply(204)


async def add_member(request: Request, site: Site) -> Reply:
    """Move a runner into a group."""
    company, group = _group(request, site)
    _runner(company, request.path_params["runner_id"]).group_id = group.id
    site.world.on_change()
    return Reply(204)


async def remove_member(request: Request, site: Site) -> Reply:
    """Move a runner out of a group, into the default one."""
    company, group = _group(request, site)
    runner = _runner(company, request.path_params["runner_id"])
    if runner.group_id == group.id:
        runner.group_id = 1
    site.world.on_change()
    return Reply(204)


async def list_repositories(request: Request, site: Site) -> Reply:
    """List the repositories that were selected for a group."""
    _, group = _group(request, site)
    chosen = [one for one in site.world.repositories.values() if one.id in group.repositories]
    page, headers = paged(request, site, chosen)
    shown = [payloads.repository_json(site.base(request), repository) for repository in page]
    return Reply(200, {"total_count": len(chosen), "repositories": shown}, headers)


async def set_repositories(request: Request, site: Site) -> Reply:
    """Select exactly these repositories."""
    company, group = _group(request, site)
    numbers = (await json_body(request)).get("selected_repository_ids") or []
    group.repositories = {_repository(site, company, number).id for number in numbers}
    site.world.on_change()
    return Reply(204)


async def add_repository(request: Request, site: Site) -> Reply:
    """Select one repository more."""
    company, group = _group(request, site)
    group.repositories.add(_repository(site, company, request.path_params["repository_id"]).id)
    site.world.on_change()
    return Reply(204)


async def drop_repository(request: Request, site: Site) -> Reply:
    """Select one repository less."""
    _, group = _group(request, site)
    group.repositories.discard(request.path_params["repository_id"])
    site.world.on_change()
    return Reply(204)


def _check(body: Json) -> None:
    if body.get("visibility", "all") not in VISIBILITIES:
        raise Refused(422, f"Invalid property /visibility: is not one of {', '.join(VISIBILITIES)}.")


def _change(group: Group, body: Json) -> None:
    group.name = str(body.get("name", group.name))
    group.visibility = str(body.get("visibility", group.visibility))
    group.public = bool(body.get("allows_public_repositories", group.public))
    if body.get("restricted_to_workflows", True):
        group.workflows = tuple(body.get("selected_workflows", group.workflows))
    else:
        group.workflows = ()


def _group(request: Request, site: Site) -> tuple[Company, Group]:
    company = site.company(request)
    group = company.groups.get(request.path_params["group_id"])
    if group is None:
        raise Refused(404, "Not Found")
    return company, group


def _members(company: Company, group: Group) -> list[Runner]:
    return [runner for runner in company.runners.values() if runner.group_id == group.id]


def _runner(company: Company, number: int) -> Runner:
    runner = company.runners.get(number)
    if runner is None:
        raise Refused(404, "Not Found")
    return runner


def _repository(site: Site, company: Company, number: int) -> Repository:
    for repository in site.world.repositories.values():
        if repository.id == number and company.owns(repository):
            return repository
    raise Refused(404, "Not Found")


def _shown(request: Request, site: Site, company: Company, group: Group) -> Json:
    url = f"{site.base(request)}/{company.kind}s/{company.login}/actions/runner-groups/{group.id}"
    shown: dict[str, Any] = {
        "id": group.id,
        "name": group.name,
        "visibility": group.visibility,
        "default": group.default,
        "inherited": False,
        "allows_public_repositories": group.public,
        "restricted_to_workflows": bool(group.workflows),
        "selected_workflows": list(group.workflows),
        "workflow_restrictions_read_only": False,
        "runners_url": f"{url}/runners",
        "hosted_runners_url": f"{url}/hosted-runners",
    }
    if group.visibility == "selected":
        shown["selected_repositories_url"] = f"{url}/repositories"
    return shown
