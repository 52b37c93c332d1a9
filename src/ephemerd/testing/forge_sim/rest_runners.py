"""REST: registrations of just-in-time runners (github.md, sections 3 and 4)."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from ephemerd.testing.forge_sim import jit, payloads
from ephemerd.testing.forge_sim.companies import Company
from ephemerd.testing.forge_sim.limits import Limited
from ephemerd.testing.forge_sim.model import Fault, Job, Repository, Runner
from ephemerd.testing.forge_sim.rest import Json, Reply, Site, json_body, paged, route
from ephemerd.testing.forge_sim.world import Refused

MAX_RUNNERS = 10_000
"""Runners in one group [doc]."""
MAX_REGISTRATIONS = 1500
"""Registrations of one scope in five minutes [doc]; more are refused with 429 [field]."""
MAX_NAME = 64
"""Characters of a runner's name [field]."""
FORBIDDEN_IN_NAMES = frozenset('"/:<>\\|*?')


def routes(site: Site, scope: str) -> list[Route]:
    """The runner endpoints below ``scope``, e.g. ``/repos/{owner}/{repo}``."""
    base = f"{scope}/actions/runners"
    needs = "administration" if scope.startswith("/repos") else "organization_self_hosted_runners"
    return [
        *route(site, "POST", f"{base}/generate-jitconfig", generate_jitconfig, needs=needs),
        *route(site, "POST", f"{base}/registration-token", registration_token, needs=needs),
        *route(site, "GET", base, list_runners, needs=needs),
        *route(site, "GET", f"{base}/{{runner_id:int}}", get_runner, needs=needs),
        *route(site, "DELETE", f"{base}/{{runner_id:int}}", delete_runner, needs=needs),
    ]


async def generate_jitconfig(request: Request, site: Site) -> Reply:
    """Register a runner for one job: 201, 403, 404, 409, 422, 429."""
    scope = site.scope(request)
    name, group_id, labels, work_folder = _wanted(await json_body(request))
    if group_id == 2:
        raise Refused(403, "Resource not accessible: the group of GitHub-hosted runners")
    if group_id not in (scope.groups if isinstance(scope, Company) else (1,)):
        raise Refused(404, "Not Found")
    if sum(runner.group_id == group_id for runner in scope.runners.values()) >= MAX_RUNNERS:
        raise Refused(422, f"Runner group {group_id} has reached max limit of {MAX_RUNNERS} runners")
    _count_registration(site, scope)
    world = site.world
    lost = world.rng("answers").random() < world.weather.jit_answer_lost and not world.sparing
    runner = world.register(scope, name, labels, group_id, answer_lost=lost)
    blob = jit.encode(runner, world.base_url, work_folder, world.rng("keys"))
    body = {"runner": _shown(site, runner), "encoded_jit_config": blob}
    return Reply(201, body, answer_lost=lost, runner=name)


async def registration_token(request: Request, site: Site) -> Reply:
    """Give a token that another runner could register itself with: 201 [doc]. Nothing here takes it."""
    site.scope(request)
    token = site.world.rng("keys").getrandbits(144).to_bytes(18, "big").hex().upper()
    ends = datetime.now(UTC) + timedelta(hours=1)
    return Reply(201, {"token": token[:29], "expires_at": ends.isoformat(timespec="milliseconds")})


def _count_registration(site: Site, scope: Repository | Company) -> None:
    """Count one registration, or refuse it: there is a limit for five minutes, which are scaled."""
    window = site.world.seconds(300.0)
    now, recent = time.time(), scope.registrations
    while recent and recent[0] < now - window:
        recent.popleft()
    if len(recent) >= MAX_REGISTRATIONS:
        raise Limited("Too many runners were registered at once.", retry_after=math.ceil(window), status=429)
    recent.append(now)


def _wanted(body: Json) -> tuple[str, int, list[str], str]:
    """Check the body and word the refusals as GitHub does [field]."""
    for key in ("name", "runner_group_id", "labels"):
        if key not in body:
            raise Refused(422, f"Invalid input: object is missing required key: {key}")
    name, group_id, labels = body["name"], body["runner_group_id"], body["labels"]
    if not isinstance(name, str) or not name or len(name) > MAX_NAME or FORBIDDEN_IN_NAMES & set(name):
        raise Refused(422, "Invalid property /name: the name is empty, too long or has a forbidden character")
    if not isinstance(group_id, int) or isinstance(group_id, bool):
        raise Refused(422, f"Invalid property /runner_group_id: {group_id!r} is not of type integer.")
    if not isinstance(labels, list) or not all(isinstance(label, str) and label for label in labels):
        raise Refused(422, "Invalid property /labels: is not an array of strings.")
    if not labels:
        raise Refused(422, "Invalid property /labels: 1 item required; only 0 were supplied")
    if len(labels) > 100:
        raise Refused(422, "Invalid property /labels: 100 items at most")
    work_folder: Any = body.get("work_folder", "_work")
    if not isinstance(work_folder, str) or not work_folder:
        raise Refused(422, "Invalid property /work_folder: is not a string.")
    return name, group_id, labels, work_folder


async def list_runners(request: Request, site: Site) -> Reply:
    """List registrations, by exact ``name`` if given; may leave a live one out if the weather says so."""
    world, rng = site.world, site.world.rng("lists")
    wanted = request.query_params.get("name")
    runners = [
        runner
        for runner in site.scope(request).runners.values()
        if (wanted is None or runner.name == wanted)
        and not _consumed(runner)
        and rng.random() >= world.weather.list_omits_runner
    ]
    page, headers = paged(request, site, runners)
    body = {"total_count": len(runners), "runners": [_shown(site, runner) for runner in page]}
    return Reply(200, body, headers)


async def get_runner(request: Request, site: Site) -> Reply:
    """Get one registration, 404 when it is gone."""
    return Reply(200, _shown(site, _find(request, site)))


async def delete_runner(request: Request, site: Site) -> Reply:
    """Deregister: 204; 422 while a job is held; 404 when gone or consumed by an assignment."""
    status, runner, held = 404, None, None
    try:
        runner = _find(request, site, also_consumed=True)
        held = runner.holds
        if _consumed(runner):
            raise Refused(404, "Not Found")
        if held is not None and _refuses(site, runner):
            raise Refused(422, f'Bad request - Runner "{runner.name}" is still running a job"')
        status = 204
    except Refused as refusal:
        status = refusal.status
        raise
    finally:
        _note_fence(request, site, runner, held, status)
    if held is not None and Fault.DELETE_ACCEPTED in runner.faults:
        site.world.misbehaved(runner, Fault.DELETE_ACCEPTED)
    site.offers.deregister(runner)
    return Reply(204)


def _note_fence(request: Request, site: Site, runner: Runner | None, held: Job | None, status: int) -> None:
    known = runner or site.world.runners.get(request.path_params["runner_id"])
    site.world.truth.add(
        "fence_asked",
        runner=known.name if known else None,
        runner_id=request.path_params["runner_id"],
        status=status,
        held=held is not None,
        job=held.id if held else None,
    )


def _refuses(site: Site, runner: Runner) -> bool:
    """Whether the forge, as it sees this runner, refuses to let it go. Reports differ on when that begins."""
    offer = runner.offer
    if offer is None or Fault.DELETE_ACCEPTED in runner.faults:
        return False
    return site.world.refuses_from == "assignment" or offer.acquired


def _consumed(runner: Runner) -> bool:
    return Fault.REGISTRATION_404 in runner.faults and runner.holds is not None


def _find(request: Request, site: Site, *, also_consumed: bool = False) -> Runner:
    runner = site.scope(request).runners.get(request.path_params["runner_id"])
    if runner is None or (_consumed(runner) and not also_consumed):
        raise Refused(404, "Not Found")
    return runner


def _shown(site: Site, runner: Runner) -> Json:
    online = site.world.online(runner)
    return payloads.runner_json(runner, online=online, busy=site.world.busy_flag(runner))
