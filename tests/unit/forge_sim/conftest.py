"""A look-alike on a real socket, without the weather's delays, and the clients that tests use."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
import pytest

from ephemerd.testing.forge_sim.main import ForgeSim, Options, running
from ephemerd.testing.weather import Uniform, Weather, load

REPO = "/repos/acme/app"
LABELS = ["self-hosted", "Linux"]
TIME_SCALE = 100.0


def quick(**changes: Any) -> Weather:
    """The calm weather without delays, changed as a test needs it."""
    nothing = Uniform()
    calm = dataclasses.replace(
        load("calm"),
        webhook_delay=nothing,
        rest_delay=nothing,
        assign=nothing,
        acknowledge=nothing,
        acquire=nothing,
        spawn=nothing,
        report=nothing,
        boot=nothing,
        wind_down=nothing,
        stop=nothing,
    )
    return dataclasses.replace(calm, **changes)


Start = Callable[..., Awaitable[ForgeSim]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start look-alikes that end with the test: `sim = await start(ghost=1.0)`."""
    async with contextlib.AsyncExitStack() as stack:

        async def begin(*, options: dict[str, Any] | None = None, **changes: Any) -> ForgeSim:
            chosen = Options(weather=quick(**changes), time_scale=TIME_SCALE, seed=7, **(options or {}))
            sim: ForgeSim = await stack.enter_async_context(running(chosen))
            return sim

        yield begin


@pytest.fixture
async def sim(start: Start) -> ForgeSim:
    return await start()


def client(sim: ForgeSim, **headers: str) -> httpx2.AsyncClient:
    """A REST client with the headers that GitHub asks for."""
    standard = {
        "Authorization": f"Bearer {sim.token}",
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
        "User-Agent": "a-test",
    }
    return httpx2.AsyncClient(base_url=sim.url, headers={**standard, **headers}, timeout=30, verify=False)


@pytest.fixture
async def api(sim: ForgeSim) -> AsyncIterator[httpx2.AsyncClient]:
    async with client(sim) as opened:
        yield opened


async def admin(api: httpx2.AsyncClient, path: str, **body: Any) -> Any:
    """Call the admin API and expect it to agree."""
    answer = await api.post("/_admin" + path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def register(api: httpx2.AsyncClient, name: str, labels: list[str] | None = None) -> Any:
    """Register a runner and return the answer's body."""
    body = {"name": name, "runner_group_id": 1, "labels": labels or LABELS}
    answer = await api.post(f"{REPO}/actions/runners/generate-jitconfig", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


class ScriptedRunner:
    """Speaks the broker's side of a runner, one step at a time, as the test tells it."""

    def __init__(self, sim: ForgeSim, name: str) -> None:
        self.runner = next(r for r in sim.world.runners.values() if r.name == name)
        self.http = httpx2.AsyncClient(
            base_url=sim.url,
            headers={"Authorization": f"Bearer {self.runner.secret}"},
            timeout=30,
            verify=False,
        )
        self.session = ""
        self.offer = ""

    async def connect(self) -> None:
        answer = await self.http.post("/_broker/session", json={"pid": 1})
        assert answer.status_code == 201, answer.text
        self.session = answer.json()["session"]

    async def poll(self, status: str = "Online") -> httpx2.Response:
        return await self.http.get(f"/_broker/message?session={self.session}&status={status}")

    async def offered(self) -> str:
        """Connect if need be, and poll until a job is offered."""
        if not self.session:
            await self.connect()
        answer = await self.poll()
        assert answer.status_code == 200, answer.status_code
        self.offer = answer.json()["offer"]
        return self.offer

    async def step(self, path: str, **body: Any) -> int:
        answer = await self.http.post(path, json={"offer": self.offer, **body})
        return answer.status_code

    async def acquire(self) -> None:
        await self.offered()
        assert await self.step("/_broker/acknowledge") == 200
        assert await self.step("/_run/acquirejob") == 200
        assert await self.step("/_run/renewjob", first=True) == 200

    async def complete(self, conclusion: str = "success", reason: str = "finished") -> int:
        return await self.step("/_run/completejob", conclusion=conclusion, reason=reason)

    async def close(self) -> None:
        await self.http.aclose()


@pytest.fixture
async def runner_of(api: httpx2.AsyncClient) -> AsyncIterator[Callable[[ForgeSim, str], ScriptedRunner]]:
    """Make scripted runners that are closed with the test."""
    made: list[ScriptedRunner] = []

    def make(sim: ForgeSim, name: str) -> ScriptedRunner:
        made.append(ScriptedRunner(sim, name))
        return made[-1]

    yield make
    for runner in made:
        await runner.close()


def kinds(sim: ForgeSim, *wanted: str) -> list[str]:
    """The kinds of the truth log in order, only those of interest."""
    return [record["kind"] for record in sim.truth.records if not wanted or record["kind"] in wanted]


async def seen(sim: ForgeSim, kind: str, count: int = 1, **fields: Any) -> list[dict[str, Any]]:
    """Wait until the truth log has so many records of a kind with these fields; return them."""

    def found() -> list[dict[str, Any]]:
        return [r for r in sim.truth.records if r["kind"] == kind and fields.items() <= r.items()]

    assert await sim.truth.wait_until(lambda: len(found()) >= count, 20), (kind, fields, sim.truth.records)
    return found()
