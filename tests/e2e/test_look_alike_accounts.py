"""The look-alike's Apps, organizations and runner groups held against the facts about GitHub (github.md, sections 2, 3,
6 and 7), and our own adapter as an App against it. Tests are named after the section that they check."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import jwt
import pytest

from ephemerd.adapters.forges.github import make_forge
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.job import ForgeStatus
from ephemerd.domain.permit import FenceIntent, Warrant
from ephemerd.domain.runner import FenceAnswer
from ephemerd.ports.errors import Denied, Gone, NotSent, PortError, Refused, RetryLater
from ephemerd.ports.forge import Forge
from ephemerd.testing.forge_sim.apps import App, Installation
from ephemerd.testing.forge_sim.assignment import satisfies
from ephemerd.testing.forge_sim.main import ForgeSim, Options, running
from tests.unit.forge_sim.conftest import LABELS, ScriptedRunner, admin, client, quick

pytestmark = pytest.mark.e2e
PERMISSIONS = {"administration": "write", "actions": "read", "organization_self_hosted_runners": "write"}
ORG = Scope("github", "org:acme")
GROUPS = "/orgs/acme/actions/runner-groups"
TEAM = [("acme/app", True), ("acme/lib", True), ("acme/open", False), ("other/tool", True)]


@pytest.fixture
async def sim() -> AsyncIterator[ForgeSim]:
    """An organization with three repositories, one of them public, and a stranger's repository."""
    async with running(Options(weather=quick(), time_scale=100.0, seed=5)) as started:
        for name, private in TEAM:
            started.world.add_repository(name, private=private)
        yield started


@pytest.fixture
async def api(sim: ForgeSim) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with a personal token."""
    async with client(sim) as opened:
        yield opened


@pytest.fixture
def app_key(sim: ForgeSim) -> tuple[App, str]:
    return sim.site.apps.create(PERMISSIONS, ("acme",))


def installation(app: App) -> Installation:
    return next(iter(app.installations.values()))


def signed(app: App, key: str, **changed: Any) -> str:
    now = int(time.time())
    return jwt.encode(
        {"iat": now - 60, "exp": now + 480, "iss": str(app.id), **changed}, key, algorithm="RS256"
    )


async def ask(api: httpx2.AsyncClient, method: str, path: str, bearer: str, **body: Any) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {bearer}"}
    return await api.request(method, path, headers=headers, json=body or None)


async def new_token(api: httpx2.AsyncClient, app: App, key: str, **body: Any) -> str:
    path = f"/app/installations/{installation(app).id}/access_tokens"
    answer = await ask(api, "POST", path, signed(app, key), **body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


# 2. Authentication


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({}, 200),
        ({"iss": "client"}, 200),
        ({"exp": 540}, 200),
        ({"exp": 700}, 401),
        ({"exp": -1}, 401),
        ({"iat": 90}, 401),
        ({"iss": "1"}, 404),
    ],
)
async def test_2_1_a_jwt_is_good_for_ten_minutes_at_most_and_by_either_name(api, app_key, changed, status):
    app, key = app_key
    claims = {name: int(time.time()) + by if isinstance(by, int) else by for name, by in changed.items()}
    if claims.get("iss") == "client":
        claims["iss"] = app.client_id
    assert (await ask(api, "GET", "/app", signed(app, key, **claims))).status_code == status


async def test_2_1_a_jwt_of_another_key_is_nobody_and_opens_only_what_is_for_apps(sim, api, app_key):
    app, key = app_key
    _, other = sim.site.apps.create({}, ())
    assert (await ask(api, "GET", "/app", signed(app, other))).status_code == 401
    assert (await ask(api, "GET", "/repos/acme/app", signed(app, key))).status_code == 403
    assert (await ask(api, "GET", "/app", sim.token)).status_code == 401
    for path in ("/repos/Acme/App/installation", "/orgs/acme/installation", "/users/acme/installation"):
        found = (await ask(api, "GET", path, signed(app, key))).json()
        assert (found["id"], found["app_id"], found["target_type"]) == (
            installation(app).id,
            app.id,
            "Organization",
        )
    for path in (
        "/repos/other/tool/installation",
        "/orgs/other/installation",
        "/repos/acme/missing/installation",
    ):
        assert (await ask(api, "GET", path, signed(app, key))).status_code == 404
    listed = (await ask(api, "GET", "/app/installations", signed(app, key))).json()
    assert [one["account"]["login"] for one in listed] == ["acme"]


async def test_2_2_a_token_is_long_ends_within_the_hour_and_reaches_its_account_alone(sim, api, app_key):
    app, key = app_key
    token = await new_token(api, app, key)
    assert token.startswith("ghs_")
    assert len(token) > 100
    assert (await ask(api, "GET", "/repos/acme/app", token)).status_code == 200
    assert (await ask(api, "GET", "/repos/other/tool", token)).status_code == 404
    assert (await ask(api, "GET", "/orgs/other/actions/runners", token)).status_code == 403
    assert (await ask(api, "GET", "/enterprises/big/actions/runners", token)).status_code == 403
    reached = (await ask(api, "GET", "/installation/repositories", token)).json()
    assert [one["full_name"] for one in reached["repositories"]] == ["acme/app", "acme/lib", "acme/open"]
    sim.site.apps.tokens[token].expires_at = time.time() - 1
    assert (await ask(api, "GET", "/repos/acme/app", token)).status_code == 401


async def test_2_2_a_token_may_be_narrowed_and_never_widened(api, app_key):
    app, key = app_key
    token = await new_token(api, app, key, repositories=["lib"], permissions={"actions": "read"})
    assert (await ask(api, "GET", "/repos/acme/lib/actions/runs", token)).status_code == 200
    assert (await ask(api, "GET", "/repos/acme/app/actions/runs", token)).status_code == 404
    assert (await ask(api, "GET", "/repos/acme/lib/actions/runners", token)).status_code == 403
    path = f"/app/installations/{installation(app).id}/access_tokens"
    for body in (
        {"repositories": ["missing"]},
        {"permissions": {"actions": "write"}},
        {"permissions": {"x": "read"}},
    ):
        assert (await ask(api, "POST", path, signed(app, key), **body)).status_code == 422
    installation(app).suspended = True
    assert (await ask(api, "POST", path, signed(app, key))).status_code == 403
    assert (await ask(api, "GET", "/repos/acme/lib/actions/runs", token)).status_code == 403


async def test_2_3_an_endpoint_wants_its_permission(sim, api):
    app, key = sim.site.apps.create({"actions": "read", "administration": "read"}, ("acme",))
    token = await new_token(api, app, key)
    assert (await ask(api, "GET", "/repos/acme/app/actions/runners", token)).status_code == 200
    refused = await ask(api, "POST", "/repos/acme/app/actions/runners/generate-jitconfig", token, name="a")
    assert refused.status_code == 403
    assert refused.headers["x-accepted-github-permissions"] == "administration=write"
    refused = await ask(api, "GET", "/orgs/acme/actions/runners", token)
    assert refused.headers["x-accepted-github-permissions"] == "organization_self_hosted_runners=read"


async def test_7_each_installation_has_a_limit_of_its_own(sim, api, app_key):
    app, _ = app_key
    sim.site.apps.install(app, "other", limit=7)
    tokens = [sim.site.apps.issue(one, app.permissions, None)[0] for one in app.installations.values()]
    left = [
        (await ask(api, "GET", path, token)).headers["x-ratelimit-remaining"]
        for path, token in (("/repos/acme/app", tokens[0]), ("/repos/other/tool", tokens[1]))
    ]
    assert left == ["4999", "6"]


# 3 and 6. Runners of an organization, and their groups


async def jit(
    api: httpx2.AsyncClient, name: str, group: int = 1, scope: str = "/orgs/acme"
) -> httpx2.Response:
    body = {"name": name, "runner_group_id": group, "labels": LABELS}
    return await api.post(f"{scope}/actions/runners/generate-jitconfig", json=body)


async def test_3_1_an_organization_and_an_enterprise_register_runners_as_a_repository_does(sim, api):
    await admin(api, "/enterprises", name="big")
    for scope in ("/orgs/acme", "/enterprises/big"):
        made = (await jit(api, "one", scope=scope)).json()["runner"]
        assert (await jit(api, "one", scope=scope)).status_code == 409
        assert (await jit(api, "two", 2, scope)).status_code == 403
        assert (await jit(api, "two", 77, scope)).status_code == 404
        listed = (await api.get(f"{scope}/actions/runners?name=one")).json()
        assert [one["id"] for one in listed["runners"]] == [made["id"]]
        assert (await api.delete(f"{scope}/actions/runners/{made['id']}")).status_code == 204
        assert (await api.get(f"{scope}/actions/runners/{made['id']}")).status_code == 404
    assert (await api.get("/orgs/nobody/actions/runners")).status_code == 404


async def test_5_an_organization_lists_its_repositories(api):
    assert (await api.get("/orgs/Acme")).json()["login"] == "acme"
    first = await api.get("/orgs/acme/repos?per_page=2")
    assert [one["full_name"] for one in first.json()] == ["acme/open", "acme/lib"], "the newest first"
    assert [one["full_name"] for one in (await api.get(first.links["next"]["url"])).json()] == ["acme/app"]


async def test_6_groups_are_made_changed_and_deleted(api):
    (default,) = (await api.get(GROUPS)).json()["runner_groups"]
    assert (default["id"], default["name"], default["default"]) == (1, "Default", True)
    made = await api.post(GROUPS, json={"name": "fast", "visibility": "selected"})
    group = made.json()
    assert (made.status_code, group["allows_public_repositories"], group["visibility"]) == (
        201,
        False,
        "selected",
    )
    assert (await api.post(GROUPS, json={"name": "Fast"})).status_code == 409
    assert (await api.post(GROUPS, json={"name": "x", "visibility": "some"})).status_code == 422
    one = f"{GROUPS}/{group['id']}"
    assert (await api.patch(one, json={"name": "faster"})).json()["name"] == "faster"
    lib = (await api.get("/repos/acme/lib")).json()["id"]
    assert (await api.put(f"{one}/repositories/{lib}")).status_code == 204
    assert [r["name"] for r in (await api.get(f"{one}/repositories")).json()["repositories"]] == ["lib"]
    seen = (await api.get(f"{GROUPS}?visible_to_repository=app")).json()["runner_groups"]
    assert [one["name"] for one in seen] == ["Default"]
    runner = (await jit(api, "one", group["id"])).json()["runner"]
    assert [r["id"] for r in (await api.get(f"{one}/runners")).json()["runners"]] == [runner["id"]]
    assert (await api.delete(one)).status_code == 204
    assert (await api.get(one)).status_code == 404
    assert (await api.get(f"/orgs/acme/actions/runners/{runner['id']}")).json()["runner_group_id"] == 1
    assert (await api.delete(f"{GROUPS}/1")).status_code == 422


async def test_6_a_group_moves_runners_and_lists_of_repositories_are_set_as_a_whole(api):
    group = (await api.post(GROUPS, json={"name": "fast"})).json()["id"]
    first, second = [(await jit(api, name)).json()["runner"]["id"] for name in ("one", "two")]
    members = f"{GROUPS}/{group}/runners"
    assert (await api.put(f"{members}/{first}")).status_code == 204
    assert (await api.put(members, json={"runners": [second]})).status_code == 204
    assert [r["id"] for r in (await api.get(members)).json()["runners"]] == [second]
    assert (await api.delete(f"{members}/{second}")).status_code == 204
    assert (await api.get(members)).json()["total_count"] == 0
    app, lib, tool = [
        (await api.get(f"/repos/{n}")).json()["id"] for n in ("acme/app", "acme/lib", "other/tool")
    ]
    chosen = f"{GROUPS}/{group}/repositories"
    assert (await api.put(chosen, json={"selected_repository_ids": [app, lib]})).status_code == 204
    assert (await api.delete(f"{chosen}/{app}")).status_code == 204
    assert [r["id"] for r in (await api.get(chosen)).json()["repositories"]] == [lib]
    assert (await api.put(f"{chosen}/{tool}")).status_code == 404


@pytest.mark.parametrize(
    ("group", "repository", "served"),
    [
        ({}, "acme/app", True),
        ({}, "acme/lib", True),
        (
            {},
            "acme/open",
            False,
        ),  # closed to public repositories unless asked for: the job waits without any error
        ({"allows_public_repositories": True}, "acme/open", True),
        ({"visibility": "selected"}, "acme/app", False),
        ({"visibility": "private"}, "acme/lib", True),
        ({}, "other/tool", False),
    ],
)
async def test_6_a_job_goes_to_a_group_that_lets_its_repository_in(sim, api, group, repository, served):
    number = (await api.post(GROUPS, json={"name": "fast", **group})).json()["id"]
    assert (await jit(api, "one", number)).status_code == 201
    job = (await admin(api, "/jobs", labels=LABELS, repository=repository))["jobs"][0]
    (registered,) = sim.world.runners.values()
    assert satisfies(registered, sim.world.jobs[job]) is served


async def test_6_a_runner_of_an_organization_is_offered_the_job_of_a_repository(sim, api):
    assert (await jit(api, "one")).status_code == 201
    runner = ScriptedRunner(sim, "one")
    try:
        await admin(api, "/jobs", labels=LABELS, repository="acme/open")
        await admin(api, "/jobs", labels=LABELS, repository="acme/lib")
        await runner.connect()
        await runner.offered()
        (registered,) = sim.world.runners.values()
        assert registered.holds is not None
        assert registered.holds.run.repository.full_name == "acme/lib"
    finally:
        await runner.close()


# Our adapter as an App


@pytest.fixture
async def forge(sim: ForgeSim, app_key: tuple[App, str], tmp_path: Any) -> AsyncIterator[Forge]:
    app, key = app_key
    file = tmp_path / "app.pem"
    file.write_text(key)
    made = make_forge("github", url=sim.url, app_id=app.id, private_key_file=file, runner_group="fast")
    yield made
    await made.close()


def calls(sim: ForgeSim) -> list[str]:
    return [f"{one['method']} {one['path']}" for one in sim.truth.records if one["kind"] == "api_call"]


async def test_a_runner_of_an_organization_by_an_app_from_its_registration_to_its_fence(sim, api, forge):
    with pytest.raises(Refused, match=r"no runner group 'fast'.*Default"):
        await forge.register(ORG, RunnerId("eph-s-b-1"), ("linux",))
    group = (await api.post(GROUPS, json={"name": "Fast"})).json()["id"]
    name = RunnerId("eph-s-b-2")
    made = await forge.register(ORG, name, ("linux",))
    assert (await api.get(f"/orgs/acme/actions/runners/{made.id}")).json()["runner_group_id"] == group
    assert [runner.id for runner in await forge.runners(ORG)] == [made.id]
    found = await forge.find(ORG, name)
    assert found is not None
    assert found.id == made.id
    job = (await admin(api, "/jobs", labels=LABELS, repository="acme/lib"))["jobs"][0]
    assert (await forge.job(JobKey("github", "acme/lib", job))).status is ForgeStatus.QUEUED
    intent = FenceIntent(name, ORG, made.id, Warrant.IDLE, "expired", 0, ())
    assert await forge.deregister(ORG, made.id, intent) is FenceAnswer.ACCEPTED
    with pytest.raises(Gone):
        await forge.runner(ORG, made.id)
    asked = calls(sim)
    assert asked.count("POST /app/installations/{installation_id:int}/access_tokens") == 1
    assert asked.count("GET /orgs/{org}/installation") == 1
    (budget,) = [one for one in forge.budgets() if one.account == "acme"]
    assert (budget.limit, budget.reserve) == (5000, 1000)


async def test_many_calls_at_once_take_one_token(sim, forge):
    await asyncio.gather(*(forge.runners(ORG) for _ in range(12)))
    assert calls(sim).count("POST /app/installations/{installation_id:int}/access_tokens") == 1


async def test_a_token_that_was_revoked_is_replaced_once(sim, api, forge, app_key):
    await forge.runners(ORG)
    sim.site.apps.tokens.clear()
    assert await forge.runners(ORG) == []
    await api.post(GROUPS, json={"name": "fast"})
    sim.site.apps.tokens.clear()
    await forge.runners(ORG)
    made = await forge.register(ORG, RunnerId("eph-s-b-1"), ("linux",))
    sim.site.apps.tokens.clear()
    intent = FenceIntent(RunnerId("eph-s-b-1"), ORG, made.id, Warrant.IDLE, "expired", 0, ())
    with pytest.raises(RetryLater, match="another one is at hand"):  # a write is never repeated
        await forge.deregister(ORG, made.id, intent)
    assert await forge.deregister(ORG, made.id, intent) is FenceAnswer.ACCEPTED
    sim.site.apps.uninstall(installation(app_key[0]))
    with pytest.raises(Denied, match="uninstalled"):
        await forge.runners(ORG)
    with pytest.raises(Denied, match="install it on that account"):
        await forge.runners(ORG)


async def test_what_an_app_is_not_installed_on_is_denied_and_never_gone(forge):
    for call in (
        forge.runner(Scope("github", "repo:other/tool"), 1),
        forge.runners(Scope("github", "org:other")),
        forge.runners(Scope("github", "enterprise:big")),
        forge.job(JobKey("github", "other/tool", 1)),
    ):
        with pytest.raises(PortError) as caught:
            await call
        assert isinstance(caught.value, Denied)


async def test_below_the_reserve_reads_wait_and_registrations_and_fences_go_on(sim, api, forge, app_key):
    await api.post(GROUPS, json={"name": "fast"})
    await forge.runners(ORG)
    limits = installation(app_key[0]).limits
    limits.used = limits.limit - limits.limit // 10
    with contextlib.suppress(NotSent):
        await forge.runners(ORG)  # this one hears of it
    told = len(sim.truth.records)
    with pytest.raises(NotSent, match="kept for registrations and fences"):
        await forge.runners(ORG)
    assert len(sim.truth.records) == told
    made = await forge.register(ORG, RunnerId("eph-s-b-1"), ("linux",))
    intent = FenceIntent(RunnerId("eph-s-b-1"), ORG, made.id, Warrant.IDLE, "expired", 0, ())
    assert await forge.deregister(ORG, made.id, intent) is FenceAnswer.ACCEPTED
