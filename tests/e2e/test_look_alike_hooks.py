"""The look-alike's hooks of organizations and Apps, and their deliveries, held against the facts about GitHub
(github.md, sections 9 and 11). Those of repositories are in the contract test."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import jwt
import pytest

from ephemerd.testing.forge_sim.apps import App
from ephemerd.testing.forge_sim.main import ForgeSim, Options, running
from ephemerd.testing.forge_sim.rest_deliveries import WINDOW_S
from tests.unit.forge_sim.conftest import LABELS, admin, client, quick, seen
from tests.unit.forge_sim.test_deliveries import Receiver

pytestmark = pytest.mark.e2e
SECRET = "test-secret"
ORG = "/orgs/acme/hooks"
APP = "/app/hook"


@pytest.fixture
async def sim() -> AsyncIterator[ForgeSim]:
    async with running(Options(weather=quick(), time_scale=100.0, seed=5)) as started:
        started.world.add_repository("acme/lib")
        started.world.add_repository("other/tool")
        yield started


@pytest.fixture
async def api(sim: ForgeSim) -> AsyncIterator[httpx2.AsyncClient]:
    async with client(sim) as opened:
        yield opened


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/webhooks/github"
    yield made
    server.close()
    await server.wait_closed()


@dataclass
class Place:
    """A hook by its path, and a client that may ask about it."""

    path: str
    api: httpx2.AsyncClient
    target: int
    kind: str


@pytest.fixture
async def app(sim: ForgeSim, receiver: Receiver) -> AsyncIterator[tuple[App, httpx2.AsyncClient]]:
    made, key = sim.site.apps.create({"actions": "read"}, ("acme",))
    made.hook.url, made.hook.secret, made.hook.content_type = receiver.url, SECRET, "json"
    made.hook.events = ("workflow_job",)
    now = int(time.time())
    token = jwt.encode({"iat": now - 60, "exp": now + 300, "iss": str(made.id)}, key, algorithm="RS256")
    async with client(sim, Authorization=f"Bearer {token}") as opened:
        yield made, opened


@pytest.fixture(params=["repository", "organization", "integration"])
async def place(request, sim, api, receiver, app) -> Place:
    if request.param == "integration":
        return Place(APP, app[1], app[0].id, request.param)
    app[0].hook.active = False
    hooks = "/repos/acme/app/hooks" if request.param == "repository" else ORG
    path = await made_hook(api, hooks, receiver.url)
    await seen(sim, "delivery_sent", event="ping", status=202)
    found = sim.world.repositories["acme/app"].id if request.param == "repository" else 9_000_000_001
    return Place(path, api, found, request.param)


async def made_hook(api: httpx2.AsyncClient, hooks: str, url: str) -> str:
    config = {"url": url, "content_type": "json", "secret": SECRET, "insecure_ssl": "0"}
    answer = await api.post(
        hooks, json={"name": "web", "active": True, "events": ["workflow_job"], "config": config}
    )
    assert answer.status_code == 201, answer.text
    return f"{hooks}/{answer.json()['id']}"


async def get(api: httpx2.AsyncClient, path: str) -> Any:
    answer = await api.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def queue(api: httpx2.AsyncClient, **body: Any) -> list[int]:
    return (await admin(api, "/jobs", **{"labels": LABELS, **body}))["jobs"]  # type: ignore[no-any-return]


async def test_9_1_an_organizations_hook_is_made_shown_changed_pinged_and_deleted(sim, api, receiver):
    path = await made_hook(api, ORG, receiver.url)
    shown = await get(api, path)
    assert (shown["type"], shown["active"], shown["events"]) == ("Organization", True, ["workflow_job"])
    assert shown["config"]["secret"] == "********"
    assert "last_response" not in shown, "a repository's hook alone shows it"
    assert shown["url"] == sim.url + path
    assert [hook["id"] for hook in await get(api, ORG)] == [shown["id"]]
    assert (await api.get(ORG)).headers["x-accepted-github-permissions"] == "organization_hooks=read"
    assert (await api.post(ORG, json={"config": {"url": receiver.url}})).status_code == 422
    assert (await api.post(ORG, json={"config": {}})).status_code == 422
    await api.patch(path, json={"active": False})
    assert (await get(api, path))["active"] is False
    await api.patch(path, json={"active": True})
    await seen(sim, "delivery_sent", event="ping", status=202)
    assert (await api.post(f"{path}/pings")).status_code == 204
    await seen(sim, "delivery_sent", 2, event="ping", status=202)
    assert json.loads(receiver.got[-1][1])["organization"]["login"] == "acme"
    assert (await api.delete(path)).status_code == 204
    assert (await api.get(path)).status_code == 404
    assert (await api.get("/orgs/nobody/hooks")).status_code == 404


async def test_9_1_an_apps_hook_has_its_address_changed_and_nothing_else(sim, api, app, receiver):
    made, own = app
    shown = await get(own, f"{APP}/config")
    wanted = {"url": receiver.url, "content_type": "json", "insecure_ssl": "0", "secret": "********"}
    assert shown == wanted
    changed = await own.patch(f"{APP}/config", json={"url": f"{receiver.url}/2", "secret": "another"})
    assert changed.json() == {**wanted, "url": f"{receiver.url}/2"}
    assert made.hook.secret == "another"
    assert (await own.patch(f"{APP}/config", json={"url": "ftp://x"})).status_code == 422
    for method, path in (("POST", "/app/hook/pings"), ("DELETE", "/app/hook"), ("GET", "/app/hook")):
        assert (await own.request(method, path)).status_code == 404
    assert (await api.get(f"{APP}/config")).status_code == 401, "a token is no App"
    assert (await get(own, "/app"))["events"] == ["workflow_job"]


async def test_9_2_each_kind_of_hook_says_what_it_is(sim, api, place, receiver):
    await queue(api)
    await receiver.until(1)
    headers, body = receiver.got[-1]
    assert headers["x-github-hook-installation-target-type"] == place.kind
    assert headers["x-github-hook-installation-target-id"] == str(place.target)
    right = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert headers["x-hub-signature-256"] == right
    told = json.loads(body)
    assert ("installation" in told) is (place.kind == "integration")
    assert told["organization"]["login"] == "acme"


async def test_9_2_who_is_told_of_which_repository(sim, api, app, receiver):
    await made_hook(api, ORG, f"{receiver.url}?org")
    await made_hook(api, "/repos/other/tool/hooks", f"{receiver.url}?other")
    [ours] = await queue(api, repository="acme/lib")
    [other] = await queue(api, repository="other/tool")
    await receiver.until(3)
    told = [(headers["x-github-hook-installation-target-type"], json.loads(body))
            for headers, body in receiver.got if headers["x-github-event"] == "workflow_job"]  # fmt: skip
    assert sorted((kind, body["workflow_job"]["id"]) for kind, body in told) == sorted(
        [("organization", ours), ("integration", ours), ("repository", other)]
    )
    guids = {headers["x-github-delivery"] for headers, _ in receiver.got}
    assert len(guids) == len(receiver.got), "two hooks tell one event under ids of their own [field]"
    made = app[0]
    next(iter(made.installations.values())).suspended = True
    await queue(api)
    await seen(sim, "delivery_sent", 4, event="workflow_job")
    assert [headers["x-github-hook-installation-target-type"] for headers, _ in receiver.got[-1:]] == [
        "organization"
    ]


async def test_11_deliveries_are_listed_chosen_and_paged_by_an_opaque_cursor(sim, api, place, receiver):
    receiver.status = 500
    jobs = await queue(api, count=5)
    await seen(sim, "delivery_sent", 5, event="workflow_job", status=500)
    url: str | None = f"{place.path}/deliveries?per_page=2&status=failure"
    items: list[dict[str, Any]] = []
    while url:
        answer = await place.api.get(url)
        items += answer.json()
        assert not {"prev", "last", "first"} & set(answer.links)
        url = answer.links.get("next", {}).get("url")
    assert len({item["id"] for item in items}) == 5
    assert [item["id"] for item in items] == sorted((item["id"] for item in items), reverse=True)
    assert {item["action"] for item in items} == {"queued"}
    repository = sim.world.repositories["acme/app"].id
    assert {item["repository_id"] for item in items} == {repository}
    installed = {item["installation_id"] for item in items}
    assert (None not in installed) is (place.kind == "integration")
    whole = await get(place.api, f"{place.path}/deliveries/{items[0]['id']}")
    assert whole["request"]["payload"]["workflow_job"]["id"] in jobs
    assert whole["request"]["headers"]["X-GitHub-Delivery"] == whole["guid"]
    assert (await place.api.get(f"{place.path}/deliveries?cursor=17")).status_code == 400
    assert (await place.api.get(f"{place.path}/deliveries?status=odd")).status_code == 422


async def test_11_a_redelivery_is_another_try_under_the_same_guid(sim, api, place, receiver):
    receiver.status = 503
    await queue(api)
    await seen(sim, "delivery_sent", event="workflow_job", status=503)
    [failed] = await get(place.api, f"{place.path}/deliveries?status=failure")
    receiver.status = 202
    path = f"{place.path}/deliveries/{failed['id']}/attempts"
    assert (await place.api.post(path)).status_code == 202
    await seen(sim, "delivery_sent", redelivery=True, status=202)
    again = (await get(place.api, f"{place.path}/deliveries"))[0]
    assert (again["guid"], again["redelivery"], again["status"]) == (failed["guid"], True, "OK")
    assert again["id"] != failed["id"]
    assert again["installation_id"] == failed["installation_id"]
    assert [headers["x-github-delivery"] for headers, _ in receiver.got[-2:]] == [failed["guid"]] * 2
    for hook in [*sim.world.repositories["acme/app"].hooks.values(), *sim.site.apps.apps.values()]:
        getattr(hook, "hook", hook).active = False
    if place.kind != "organization":
        assert (await place.api.post(path)).status_code == 422


async def test_11_what_is_older_than_three_days_is_not_listed(sim, api, place, receiver):
    await queue(api)
    await seen(sim, "delivery_sent", event="workflow_job")
    newest = (await get(place.api, f"{place.path}/deliveries"))[0]
    hooks = [app.hook for app in sim.site.apps.apps.values()]
    hooks += [hook for one in sim.world.places() for hook in one.hooks.values()]
    for hook in hooks:
        for delivery in hook.deliveries:
            delivery.delivered_at -= sim.world.seconds(WINDOW_S) + 1
    assert await get(place.api, f"{place.path}/deliveries") == []
    assert (await place.api.get(f"{place.path}/deliveries/{newest['id']}")).status_code == 404
