"""Webhooks as a receiver sees them: signed, pinged, lost, doubled, held back, listed and redelivered."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from ephemerd.testing.forge_sim.http_post import PostError, post
from ephemerd.testing.weather import Chance, Uniform
from tests.unit.forge_sim.conftest import LABELS, REPO, admin, client, seen

DATA = Path(__file__).parents[2] / "data" / "webhooks"


@dataclass
class Receiver:
    """A webhook endpoint that keeps what it got and answers with `status`."""

    url: str = ""
    status: int = 202
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:]
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head if line)}
        body = await reader.readexactly(int(headers["content-length"]))
        self.got.append((headers, body))
        self.arrived.set()
        writer.write(f"HTTP/1.1 {self.status} X\r\nContent-Length: 2\r\n\r\nok".encode())
        await writer.drain()
        writer.close()

    def jobs(self) -> list[tuple[str, int]]:
        """Action and job id of each `workflow_job` that came, in order."""
        bodies = [
            json.loads(body) for headers, body in self.got if headers["x-github-event"] == "workflow_job"
        ]
        return [(body["action"], body["workflow_job"]["id"]) for body in bodies]

    async def until(self, count: int) -> None:
        """Wait for so many `workflow_job` deliveries."""
        async with asyncio.timeout(20):
            while len(self.jobs()) < count:
                self.arrived.clear()
                await self.arrived.wait()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/webhooks/github"
    yield made
    server.close()
    await server.wait_closed()


async def hook(api, receiver, **config: Any) -> str:
    """Create a hook by REST; returns its path."""
    body = {
        "name": "web",
        "active": True,
        "events": ["workflow_job"],
        "config": {"url": receiver.url, "content_type": "json", "secret": "s3cret", **config},
    }
    answer = await api.post(f"{REPO}/hooks", json=body)
    assert answer.status_code == 201, answer.text
    assert answer.json()["config"]["secret"] == "********"
    return f"{REPO}/hooks/{answer.json()['id']}"


async def queue(api, **body):
    return (await admin(api, "/jobs", **{"labels": LABELS, **body}))["jobs"]


async def test_a_new_hook_is_pinged(sim, api, receiver):
    path = await hook(api, receiver)
    await seen(sim, "delivery_sent", event="ping", status=202)
    headers, body = receiver.got[0]
    assert headers["x-github-event"] == "ping"
    assert json.loads(body)["hook_id"] == int(path.rpartition("/")[2])
    assert (await api.post(f"{path}/pings")).status_code == 204
    await seen(sim, "delivery_sent", 2, event="ping")


async def test_deliveries_are_signed_over_their_raw_bytes(api, receiver):
    await hook(api, receiver)
    [job] = await queue(api)
    await receiver.until(1)
    headers, body = receiver.got[-1]
    expected = hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
    assert headers["x-hub-signature-256"] == f"sha256={expected}"
    assert headers["user-agent"].startswith("GitHub-Hookshot/")
    assert headers["x-github-hook-installation-target-type"] == "repository"
    assert headers["content-type"] == "application/json"
    assert receiver.jobs() == [("queued", job)]


@pytest.mark.parametrize("action", ["queued", "waiting", "completed.cancelled-while-queued"])
async def test_payloads_have_the_fields_of_the_fixtures(api, receiver, action):
    await hook(api, receiver)
    [job] = await queue(api, waiting=action == "waiting")
    if action.startswith("completed"):
        await receiver.until(1)
        await admin(api, f"/jobs/{job}/cancel")
        await receiver.until(2)
    await receiver.until(1)
    body = json.loads(receiver.got[-1][1])
    fixture = json.loads((DATA / f"workflow_job.{action}.json").read_text())
    assert set(body["workflow_job"]) == set(fixture["workflow_job"])
    assert set(body) >= set(fixture) - {"installation", "deployment"}
    assert {"id", "name", "full_name", "private", "owner", "url", "html_url"} <= set(body["repository"])
    for key in ("runner_id", "runner_name", "conclusion", "status", "steps"):
        assert body["workflow_job"][key] == fixture["workflow_job"][key], key


async def test_a_hook_without_content_type_sends_a_form(api, receiver):
    body = {"events": ["workflow_job"], "config": {"url": receiver.url}}
    assert (await api.post(f"{REPO}/hooks", json=body)).json()["config"]["content_type"] == "form"
    await queue(api)
    async with asyncio.timeout(20):
        while len(receiver.got) < 2:
            receiver.arrived.clear()
            await receiver.arrived.wait()
    forms = [parse_qs(content.decode()) for _, content in receiver.got]
    assert any(json.loads(form["payload"][0]).get("action") == "queued" for form in forms)
    assert "x-hub-signature-256" not in receiver.got[0][0]


async def test_held_deliveries_wait_for_their_release(sim, api, receiver):
    await hook(api, receiver)
    held, free = await queue(api, count=2)
    await admin(api, "/deliveries/hold", jobs=[held])
    await admin(api, f"/jobs/{held}/foreign", duration_s=60)
    await admin(api, f"/jobs/{free}/foreign", duration_s=60)
    await receiver.until(3)
    assert ("in_progress", free) in receiver.jobs()
    assert ("in_progress", held) not in receiver.jobs()
    assert (await admin(api, "/deliveries/release", jobs=[free])) == {"released": 0}
    assert (await admin(api, "/deliveries/release")) == {"released": 1}
    await receiver.until(4)
    assert receiver.jobs()[-1] == ("in_progress", held)


async def test_a_failed_delivery_is_listed_and_redelivered_under_its_guid(sim, api, receiver):
    receiver.status = 500
    path = await hook(api, receiver)
    [job] = await queue(api)
    await seen(sim, "delivery_sent", event="workflow_job", status=500)
    [failed] = [
        d for d in (await api.get(f"{path}/deliveries?status=failure")).json() if d["event"] != "ping"
    ]
    assert (failed["status"], failed["status_code"]) == ("Invalid HTTP Response: 500", 500)
    full = (await api.get(f"{path}/deliveries/{failed['id']}")).json()
    assert full["request"]["payload"]["workflow_job"]["id"] == job
    assert full["response"]["payload"] == "ok"
    receiver.status = 202
    assert (await api.post(f"{path}/deliveries/{failed['id']}/attempts")).status_code == 202
    [again] = await seen(sim, "delivery_sent", redelivery=True)
    assert (again["guid"], again["status"]) == (failed["guid"], 202)
    assert len((await api.get(f"{path}/deliveries?status=success")).json()) == 1


async def test_a_receiver_that_is_away_fails_and_stays_listed(sim, api, receiver):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    receiver.url = f"http://127.0.0.1:{port}/"
    path = await hook(api, receiver)
    await seen(sim, "delivery_sent", status=0)
    [ping] = (await api.get(f"{path}/deliveries")).json()
    assert ping["status"].startswith("failed to connect")


async def test_the_list_is_paged_by_cursor_newest_first(sim, api, receiver):
    path = await hook(api, receiver)
    await queue(api, count=4)
    await seen(sim, "delivery_sent", 5)
    found, url = [], f"{path}/deliveries?per_page=2"
    while url:
        answer = await api.get(url)
        found += [item["id"] for item in answer.json()]
        url = answer.links.get("next", {}).get("url")
    assert found == sorted(found, reverse=True)
    assert len(found) == 5
    assert (await api.get(f"{path}/deliveries?status=odd")).status_code == 422
    assert (await api.get(f"{path}/deliveries/1")).status_code == 404


async def test_lost_deliveries_do_not_come_and_some_of_them_are_listed(start, receiver):
    sim = await start(webhook_lost=1.0)
    async with client(sim) as api:
        path = await hook(api, receiver)
        await queue(api, count=20)
        lost = await seen(sim, "delivery_lost", 20)
        listed = [
            d for d in (await api.get(f"{path}/deliveries?per_page=100")).json() if d["event"] != "ping"
        ]
    assert receiver.jobs() == []
    assert 0 < len(listed) == sum(record["listed"] for record in lost) < 20


async def test_doubled_deliveries_share_their_guid(start, receiver):
    sim = await start(webhook_duplicated=1.0)
    async with client(sim) as api:
        await hook(api, receiver)
        await queue(api)
        await receiver.until(2)
    assert len({headers["x-github-delivery"] for headers, _ in receiver.got[-2:]}) == 1


async def test_late_and_skewed_deliveries_come_after_prompt_ones(start, receiver):
    sim = await start(webhook_late=Chance(1.0, Uniform(0.2, 0.2)), sibling_skew=Uniform(0.1, 0.3))
    async with client(sim) as api:
        await hook(api, receiver)
        jobs = await queue(api, count=8)
        await receiver.until(8)
    assert sorted(job for _, job in receiver.jobs()) == jobs
    assert [job for _, job in receiver.jobs()] != jobs, "siblings overtake one another"
    sent = [r for r in sim.truth.records if r["kind"] == "delivery_sent" and r["event"] != "ping"]
    queued = next(r["ms"] for r in sim.truth.records if r["kind"] == "job_queued")
    assert min(record["ms"] for record in sent) - queued >= 290


async def test_hooks_are_listed_refused_and_deleted(api, receiver):
    path = await hook(api, receiver)
    assert len((await api.get(f"{REPO}/hooks")).json()) == 1
    assert (await api.get(path)).json()["config"]["url"] == receiver.url
    for config in ({}, {"url": "ftp://x"}, {"url": receiver.url}):
        assert (await api.post(f"{REPO}/hooks", json={"config": config})).status_code == 422
    assert (await api.delete(path)).status_code == 204
    assert (await api.get(path)).status_code == 404
    await queue(api)
    assert receiver.jobs() == []


async def test_a_hook_for_other_events_gets_none_of_ours(sim, api, receiver):
    body = {"events": ["push"], "config": {"url": receiver.url, "content_type": "json"}}
    await api.post(f"{REPO}/hooks", json=body)
    await queue(api)
    await admin(api, "/hooks", url=receiver.url + "2")
    await queue(api)
    await receiver.until(1)
    assert len(receiver.jobs()) == 1


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1\r\n\r\n"])
async def test_an_answer_that_is_no_http_is_a_failure(answer):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        with pytest.raises(PostError, match="failed to connect"):
            await post(url, {}, b"{}", timeout=10)


async def test_a_silent_receiver_times_out():
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        closed.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        with pytest.raises(PostError, match="timed out"):
            await post(url, {}, b"{}", timeout=0.1)
        await closed.wait()
