"""Field problems that bite at the webhook port, over the real daemon loop and GitHub's own reading.

Numbers are those of docs/FIELD-PROBLEMS.md.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from ephemerd.adapters.forges.github import make_webhooks
from ephemerd.app.intake import Intake
from ephemerd.app.queries import Queries
from ephemerd.web.body import Bodies
from ephemerd.web.webhooks import webhook_app
from tests.unit.adapters.forges.github.test_webhooks import BODY, JOB, SECRET, signed
from tests.unit.app.fakes import until
from tests.unit.app.test_daemon import House


class Port:
    """A client before the webhook port of one house, with GitHub's own reader behind it."""

    def __init__(self, house: House, **bodies: Any) -> None:
        self.house, self.bodies = house, Bodies(**bodies)
        hooks = {"github": make_webhooks("github", secret=SECRET)}
        intake = Intake(hooks, house.daemon.inbox, house.meter, wait=60)
        app = webhook_app(intake, Queries(house.daemon, "1"), bodies=self.bodies)
        self.client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app), base_url="http://hook", timeout=60
        )

    async def send(self, body: Any, headers: dict[str, str] | None = None) -> int:
        raw = json.dumps(body).encode() if isinstance(body, dict) else body
        sent = signed(raw) if headers is None else headers
        answer = await self.client.post("/webhooks/github", content=raw, headers=sent)
        status: int = answer.status_code
        return status

    @property
    def jobs(self) -> int:
        return len(self.house.daemon.core.state.jobs)


@pytest.fixture
async def port():
    async with House() as house:
        made = Port(house)
        yield made
        await made.client.aclose()


@pytest.mark.parametrize(
    "body",
    [
        {**BODY, "workflow_job": None},
        {"action": "queued", "workflow_job": JOB},
        {**BODY, "action": "an action of the future"},
        {**BODY, "workflow_job": {**JOB, "status": "completed", "conclusion": "of the future"}},
        {**BODY, "workflow_job": {**JOB, "labels": None}},
        {**BODY, "repository": {"full_name": "Other/Thing"}},
        {**BODY, "workflow_job": {**JOB, "labels": ["somebody-elses"]}},
    ],
)
async def test_fp_31_a_signed_body_with_holes_is_answered_with_2xx(port, body):
    """A 500 would be redelivered: one product got the same body every five minutes for three days."""
    assert await port.send(body) in (200, 202)
    assert await port.send({**BODY, "workflow_job": {**JOB, "id": 99}}, None) in (200, 202)
    assert port.house.store.poison == []


async def test_fp_33_what_is_forged_changes_no_state_and_costs_no_memory(port):
    raw = json.dumps(BODY).encode()
    again = json.dumps(BODY, indent=1).encode()
    for headers in (
        {name: value for name, value in signed(raw).items() if name != "x-hub-signature-256"},
        {**signed(raw), "x-hub-signature-256": "sha256=" + "0" * 64},
        signed(again),
        signed(raw, "another hook's secret"),
    ):
        assert await port.send(raw, headers) == 401
    assert (port.jobs, port.bodies.held) == (0, 0)
    assert "JobReported" not in port.house.store.kinds()


async def test_fp_33_200_mb_are_refused_by_their_announcement(port):
    raw = json.dumps(BODY).encode()
    headers = {**signed(raw), "content-length": str(200 * 1024 * 1024)}
    assert await port.send(raw, headers) == 413
    assert port.bodies.held == 0


async def test_fp_33_one_byte_a_second_meets_a_deadline():
    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(10)

    async with House() as house:
        port = Port(house, seconds=0.02)
        assert await port.send(drip(), signed(b"x")) == 408
        assert port.bodies.held == 0
        await port.client.aclose()


async def test_fp_48_256_deliveries_at_once_are_stored_before_they_are_answered(port):
    """All taken, each once, four runners at most: what waits are jobs in the books and no tasks."""
    bodies = [{**BODY, "workflow_job": {**JOB, "id": number}} for number in range(1, 257)]
    raws = [json.dumps(body).encode() for body in bodies]
    answers = await asyncio.gather(
        *(port.send(raw, {**signed(raw), "x-github-delivery": f"d-{n}"}) for n, raw in enumerate(raws))
    )
    assert set(answers) == {202}
    assert port.house.store.kinds().count("JobReported") == port.jobs == 256
    await until(lambda: len(port.house.runtime.orders) == 4)
    assert len(port.house.forge.named("register")) == 4
