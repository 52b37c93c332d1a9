"""The webhook port's answers, over the real daemon loop with in-memory ports and no socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
import pytest

from ephemerd.app.intake import Intake
from ephemerd.app.queries import Queries
from ephemerd.core.events import JobReported
from ephemerd.core.machine import HANDLERS
from ephemerd.ports.webhooks import BadSignature, Delivery, Malformed, WrongType
from ephemerd.web.body import Bodies
from ephemerd.web.webhooks import webhook_app
from tests.unit.app.fakes import report, until
from tests.unit.app.test_daemon import House


class Hooks:
    """Takes `job:N` as the delivery of a queued job, `ping` as a ping; raises what its body names."""

    name = "github"

    def receive(self, headers: Mapping[str, str], body: bytes) -> Delivery:
        if headers.get("x-signature") != "right":
            raise BadSignature
        kind = headers.get("content-type", "")
        if kind != "application/json":
            raise WrongType(f"send application/json, not {kind}")
        text = body.decode("utf-8", "replace")
        if text.startswith("job:"):
            return Delivery(headers["x-delivery"], "workflow_job", report(int(text[4:])))
        if text == "ping":
            return Delivery("p", "ping", None, "ping")
        raise Malformed("the body is no JSON")


class Door:
    """A client in front of the app of one house."""

    def __init__(self, house: House, **bodies: Any) -> None:
        self.house = house
        self.bodies = Bodies(**bodies)
        intake = Intake({"github": Hooks()}, house.daemon.inbox, house.meter, wait=2)
        app = webhook_app(intake, Queries(house.daemon, "1"), bodies=self.bodies)
        self.app = app
        self.client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app), base_url="http://hook", timeout=10
        )

    async def post(self, body: Any, delivery: str = "d1", forge: str = "github", **headers: str):
        sent = {"content-type": "application/json", "x-signature": "right", "x-delivery": delivery}
        return await self.client.post(f"/webhooks/{forge}", content=body, headers={**sent, **headers})


@pytest.fixture
async def house():
    async with House() as made:
        yield made


@pytest.fixture
async def door(house):
    made = Door(house)
    yield made
    await made.client.aclose()


async def test_a_delivery_is_stored_before_it_is_answered(door, house):
    house.store.gate = asyncio.Event()
    posting = asyncio.create_task(door.post("job:1"))
    for _ in range(50):
        await asyncio.sleep(0)
    still_waiting = not posting.done()
    house.store.gate.set()
    assert still_waiting
    answer = await posting
    assert (answer.status_code, answer.json()) == (202, {"result": "stored"})
    assert "JobReported" in house.store.kinds()


async def test_a_redelivery_is_taken_and_handled_once(door, house):
    assert (await door.post("job:1")).status_code == 202
    answer = await door.post("job:1")
    assert (answer.status_code, answer.json()["result"]) == (202, "duplicate")
    assert house.store.kinds().count("JobReported") == 1


async def test_what_is_not_used_is_200(door, house):
    answer = await door.post("ping")
    assert (answer.status_code, answer.json()) == (200, {"result": "unused", "detail": "ping"})
    assert "JobReported" not in house.store.kinds()


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ("job:1", {"x-signature": "wrong"}, 401),
        ("nonsense", {}, 400),
        ("job:1", {"content-type": "text/plain"}, 415),
    ],
)
async def test_refusals_say_why_and_store_nothing(door, house, body, headers, status):
    answer = await door.post(body, **headers)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert answer.json()["detail"]
    assert "JobReported" not in house.store.kinds()
    assert (await door.post("job:2", "d2")).status_code == 202


async def test_an_unknown_forge_is_404_and_another_method_405(door):
    assert (await door.post("job:1", forge="gitea")).status_code == 404
    answer = await door.client.get("/webhooks/github")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert (await door.client.get("/api/v1/status")).status_code == 404


async def test_a_failing_commit_is_503_and_the_next_delivery_is_stored(door, house):
    house.store.fail = 1
    answer = await door.post("job:1")
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert house.daemon.core.state.jobs == {}
    assert (await door.post("job:1")).status_code == 202
    assert len(house.daemon.core.state.jobs) == 1


async def test_a_daemon_that_stops_is_503(door, house):
    house.daemon.inbox.close()
    assert (await door.post("job:1")).status_code == 503


async def test_a_full_inbox_is_503(house):
    door = Door(house)
    house.daemon.inbox._most = 0
    assert (await door.post("job:1")).status_code == 503
    house.daemon.inbox._most = 10


async def test_an_event_that_cannot_be_handled_is_kept_and_taken(door, house, monkeypatch):
    def raising(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setitem(HANDLERS, JobReported, raising)
    answer = await door.post("job:1")
    assert (answer.status_code, answer.json()["result"]) == (202, "quarantined")
    ((_, delivery, body, error),) = house.store.poison
    assert (delivery, body, error) == ("d1", b"job:1", "RuntimeError: a bug")
    await until(lambda: house.daemon.pulse.quarantined)
    health = (await door.client.get("/healthz")).json()
    assert health["status"] == "degraded"
    assert "quarantine" in health["reasons"][0]


async def test_a_body_at_the_limit_is_read_and_one_beyond_it_413(house):
    door = Door(house, limit=10)
    assert (await door.post("job:" + "1" * 6)).status_code == 202
    answer = await door.post("job:" + "1" * 7)
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"
    assert door.bodies.held == 0
    assert house.meter.total("webhooks_total", result="too_large") == 1


async def test_a_body_without_a_length_is_counted_as_it_comes(house):
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 10

    door = Door(house, limit=50)
    assert (await door.post(chunks())).status_code == 413
    assert door.bodies.held == 0


async def test_a_slow_body_is_408(house):
    async def drip() -> AsyncIterator[bytes]:
        yield b"job"
        await asyncio.sleep(10)
        yield b":1"

    door = Door(house, seconds=0.02)
    answer = await door.post(drip())
    assert answer.status_code == 408
    assert door.bodies.held == 0


async def test_all_bodies_together_are_bounded(house):
    door = Door(house, together=8)
    assert (await door.post("job:12345")).status_code == 503
    assert (await door.post("job:1")).status_code == 202
    assert house.meter.total("webhooks_total", result="overloaded") == 1
    assert door.bodies.held == 0


async def test_a_client_that_leaves_is_not_answered(house):
    door = Door(house)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    app: Any = door.app
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/webhooks/github",
        "raw_path": b"/webhooks/github",
        "headers": [],
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "server": ("hook", 80),
    }
    await app(scope, receive, send)
    assert sent == []


async def test_health_and_readiness(door, house):
    assert (await door.client.get("/healthz")).json() == {"status": "ok", "reasons": []}
    assert (await door.client.get("/readyz")).status_code == 200
    house.daemon.pulse.error = "no space left"
    stuck = await door.client.get("/healthz")
    assert (stuck.status_code, stuck.json()["status"]) == (503, "stuck")
    assert (await door.client.get("/readyz")).status_code == 503
    house.daemon.pulse.error = ""
