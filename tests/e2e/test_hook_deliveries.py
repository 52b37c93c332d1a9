"""The forge's list of deliveries as our adapter reads it: the look-alike's three kinds of hook, and odd answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from ephemerd.adapters.forges.github import make_delivery_logs, make_forge
from ephemerd.adapters.forges.github.client import GitHubForge
from ephemerd.adapters.forges.github.deliveries import GitHubDeliveries
from ephemerd.adapters.forges.github.tokens import FixedToken
from ephemerd.domain.ids import JobKey, Scope
from ephemerd.domain.job import ForgeStatus
from ephemerd.ports.errors import Denied, Gone, Refused, RetryLater
from ephemerd.ports.forge import Forge
from ephemerd.ports.hooks import DeliveryLog
from ephemerd.testing.forge_sim.apps import App
from ephemerd.testing.forge_sim.main import ForgeSim, Options, running
from tests.e2e.scripted_server import Reply, Silence, in_turn, server
from tests.unit.forge_sim.conftest import LABELS, admin, client, quick, seen

pytestmark = pytest.mark.e2e
REPO, ORG = Scope("github", "repo:acme/app"), Scope("github", "org:acme")
NOWHERE = "http://127.0.0.1:9/webhooks/github"
"""Nobody listens there: every delivery fails."""
OTHER = "http://127.0.0.1:9/somebody-else"


@pytest.fixture
async def sim() -> AsyncIterator[ForgeSim]:
    async with running(Options(weather=quick(), time_scale=100.0, seed=5)) as started:
        yield started


def as_app(sim: ForgeSim, **permissions: str) -> tuple[App, Forge]:
    app, key = sim.site.apps.create({"actions": "read", **permissions}, ("acme",))
    return app, make_forge("github", url=sim.url, app_id=app.id, private_key=key)


@asynccontextmanager
async def log_of(sim: ForgeSim, kind: str) -> AsyncIterator[DeliveryLog]:
    """The log of a hook of one kind, beside a hook of somebody else."""
    app, forge = as_app(sim, repository_hooks="read", organization_hooks="read")
    repository, organization = sim.world.repositories["acme/app"], sim.world.company("org", "acme")
    assert organization is not None
    place = organization if kind == "organization" else repository
    sim.site.deliverer.add_hook(place, OTHER, secret="theirs")
    if kind == "app":
        app.hook.url, app.hook.events = NOWHERE, ("workflow_job",)
        scopes: tuple[Scope, ...] = (REPO, ORG)
    else:
        sim.site.deliverer.add_hook(place, NOWHERE, secret="ours")
        scopes = (ORG if kind == "organization" else REPO,)
    try:
        (log,) = make_delivery_logs(forge, scopes, url=NOWHERE, app=kind == "app")
        yield log
    finally:
        await forge.close()


async def queue(sim: ForgeSim, count: int = 1, **body: Any) -> list[int]:
    async with client(sim) as api:
        return (await admin(api, "/jobs", labels=LABELS, count=count, **body))["jobs"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["repository", "organization", "app"])
async def test_what_failed_is_listed_newest_first_and_read_with_its_payload(sim, kind):
    async with log_of(sim, kind) as log:
        assert log.name == {"repository": "github/repo:acme/app", "organization": "github/org:acme"}.get(
            kind, "github/app"
        )
        jobs = await queue(sim, 3)
        await seen(sim, "delivery_sent", 3 if kind == "app" else 6, event="workflow_job", status=0)
        tries = await log.failed()
        used = [one for one in tries.items if one.used]
        assert len(used) == 3, "and none of the other hook's"
        assert {one.event for one in tries.items} - {"workflow_job", "ping"} == set()
        assert [one.id for one in used] == sorted((one.id for one in used), reverse=True)
        assert all(not one.good and one.status == 0 and "failed to connect" in one.outcome for one in used)
        assert all(one.at > 1_600_000_000_000 and one.repository for one in used)
        held = [await log.read(one.id) for one in used]
        assert sorted(delivery.report.key.id for delivery, _ in held if delivery.report) == sorted(jobs)
        (first, body), one = held[0], used[0]
        assert first.report is not None
        assert (first.id, first.event) == (one.delivery, "workflow_job")
        assert first.report.key == JobKey("github", "acme/app", first.report.key.id)
        assert (first.report.status, first.report.origin.public) == (ForgeStatus.QUEUED, False)
        assert b'"workflow_job"' in body
        with pytest.raises(Gone):
            await log.read(1)


@pytest.mark.parametrize("kind", ["repository", "app"])
async def test_pages_lead_to_older_ones_until_the_end(sim, kind):
    async with log_of(sim, kind) as log:
        await queue(sim, 120)
        await seen(sim, "delivery_sent", 120 if kind == "app" else 240, event="workflow_job", status=0)
        first = await log.failed()
        assert len(first.items) == 100
        second = await log.failed(first.older)
        assert second.older == ""
        ids = [one.id for one in (*first.items, *second.items) if one.used]
        assert len(set(ids)) == 120
        assert ids == sorted(ids, reverse=True)


async def test_while_nothing_fails_a_look_costs_nothing(sim):
    async with log_of(sim, "repository") as log:
        await log.failed()
        limits = next(iter(next(iter(sim.site.apps.apps.values())).installations.values())).limits
        before = limits.used
        for _ in range(5):
            await log.failed()
        assert limits.used == before, "304 each time"
        listed = [one["path"] for one in sim.truth.records if one["kind"] == "api_call"]
        assert listed.count("/repos/{owner}/{repo}/hooks") == 1, "the hook is looked for once"


async def test_a_hook_that_is_not_there_is_said_and_found_when_it_is_made(sim):
    _, forge = as_app(sim, repository_hooks="write")
    (log,) = make_delivery_logs(forge, (REPO,), url=NOWHERE, app=False)
    with pytest.raises(Refused, match="webhook install"):
        await log.failed()
    hook = sim.site.deliverer.add_hook(sim.world.repositories["acme/app"], NOWHERE, secret="ours")
    await log.failed()
    del sim.world.repositories["acme/app"].hooks[hook.id]
    with pytest.raises(Refused, match="webhook install"):
        await log.failed()
    sim.site.deliverer.add_hook(sim.world.repositories["acme/app"], NOWHERE, secret="ours")
    await seen(sim, "delivery_sent", 2, event="ping", status=0)
    assert len((await log.failed()).items) == 1
    await forge.close()


@pytest.mark.parametrize(("scope", "needs"), [(REPO, "repository_hooks"), (ORG, "organization_hooks")])
async def test_a_missing_permission_is_named(sim, scope, needs):
    _, forge = as_app(sim)
    (log,) = make_delivery_logs(forge, (scope,), url=NOWHERE, app=False)
    with pytest.raises(Denied, match=f"{needs}=read"):
        await log.failed()
    await forge.close()


def test_where_there_is_nothing_to_read_there_is_no_log(tmp_path):
    async def look() -> None:
        forge = make_forge("github", token="t")
        assert make_delivery_logs(forge, (REPO,), url=None, app=False) == ()
        assert make_delivery_logs(forge, (Scope("github", "enterprise:big"),), url=NOWHERE, app=False) == ()
        await forge.close()

    asyncio.run(look())


HOOKS = Reply(200, [{"id": 5, "config": {"url": NOWHERE}}, {"id": 6, "config": {"url": OTHER}}])
TRY = {
    "id": 9,
    "guid": "g",
    "delivered_at": "2026-11-29T10:00:00.5Z",
    "event": "workflow_job",
    "status": "OK",
}


@asynccontextmanager
async def scripted(*answers: Any) -> AsyncIterator[tuple[DeliveryLog, Any]]:
    async with server(in_turn(HOOKS, *answers)) as running_:
        forge = GitHubForge("github", url=running_.url, tokens=FixedToken("ghp_x"), timeout_s=20.0)
        (log,) = make_delivery_logs(forge, (REPO,), url=NOWHERE, app=False)
        yield log, running_
        await forge.close()


async def test_a_server_that_cannot_choose_is_asked_for_everything():
    every = [
        {**TRY, "status_code": 202},
        {**TRY, "id": 8, "guid": "h", "status": "timed out", "status_code": 0},
    ]
    async with scripted(Reply(422, {"message": "status"}), Reply(200, every), Reply(200, every)) as (
        log,
        running_,
    ):
        tries = await log.failed()
        assert [one.good for one in tries.items] == [True, False]
        assert tries.items[0].at == datetime(2026, 11, 29, 10, tzinfo=UTC).timestamp() * 1000 + 500
        await log.failed()
        asked = [line for line in running_.lines if "deliveries" in line]
        assert [("status=failure" in line) for line in asked] == [True, False, False]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Reply(500, None), RetryLater),
        (Reply(200, b"<html>"), RetryLater),
        (Reply(200, {"id": 1}), RetryLater),
        (Reply(403, {"message": "no"}), Denied),
    ],
)
async def test_odd_answers_to_a_listing_are_told_by_their_remedy(answer, error):
    async with scripted(answer) as (log, _):
        with pytest.raises(error):
            await log.failed()


@pytest.mark.parametrize("value", [None, 5, "yesterday", "2026-11-29T10:00:00"])
async def test_odd_fields_of_a_try_do_no_harm(value):
    odd = {
        "id": 9,
        "guid": value,
        "delivered_at": value,
        "event": value,
        "status": value,
        "repository_id": "x",
    }
    async with scripted(Reply(200, [odd, {"id": 3}])) as (log, _):
        first, second = (await log.failed()).items
        assert (first.good, first.used, first.repository) == (False, False, None)
        assert (second.delivery, second.at, second.status) == ("", 0, 0)


PAYLOAD = {
    "action": "queued",
    "repository": {"full_name": "acme/app"},
    "workflow_job": {"id": 4, "status": "queued"},
}


@pytest.mark.parametrize(
    ("whole", "unused"),
    [
        ({"event": "workflow_job", "request": {"payload": PAYLOAD}}, ""),
        ({"event": "workflow_job", "request": {"payload": json.dumps(PAYLOAD)}}, ""),
        ({"event": "workflow_job", "request": {"payload": {"workflow_job": None}}}, "no repository"),
        ({"event": "push", "request": {"payload": {}}}, "event push"),
        ({"event": "ping"}, "event ping"),
    ],
)
async def test_a_payload_is_read_however_it_is_shown(whole, unused):
    async with scripted(Reply(200, whole)) as (log, _):
        delivery, _ = await log.read(9)
        assert delivery.unused == unused
        assert (delivery.report is not None) is (unused == "")


@pytest.mark.parametrize(
    "whole",
    [
        b"[]",
        {"event": "workflow_job"},
        {"event": "workflow_job", "request": {"payload": None}},
        {"event": "workflow_job", "request": {"payload": "cut off {"}},
        {"event": "workflow_job", "request": {"payload": [1]}},
    ],
)
async def test_a_payload_that_is_not_there_is_not_asked_for_again(whole):
    async with scripted(Reply(200, whole)) as (log, _):
        with pytest.raises(Refused):
            await log.read(9)


async def test_a_forge_that_is_silent_is_no_hang():
    async with server(in_turn(HOOKS, Silence())) as running_:
        forge = GitHubForge("github", url=running_.url, tokens=FixedToken("ghp_x"), timeout_s=20.0)
        log = GitHubDeliveries(forge.connection, "github", (REPO,), url=NOWHERE, timeout_s=0.5)
        with pytest.raises(RetryLater):
            await log.failed()
        await forge.close()
