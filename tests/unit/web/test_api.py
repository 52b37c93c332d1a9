"""The API over the real daemon loop with in-memory ports: views, paging, orders, problems."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from ephemerd.adapters.telemetry.metrics import Metrics
from ephemerd.app.operator import Operator
from ephemerd.app.queries import Queries
from ephemerd.domain.runner import RunnerState
from ephemerd.domain.verdict import Sign
from ephemerd.web.access import OnSocket
from ephemerd.web.api import api_app, metrics_app
from ephemerd.web.local import LocalOnly, names_this_machine
from tests.unit.app.fakes import T0, idle_report, until
from tests.unit.app.test_daemon import House
from tests.unit.app.test_operator import listening


class Desk:
    """A client in front of the API of one house."""

    def __init__(self, house: House, *, local: bool = False, orders: bool = True) -> None:
        self.metrics = Metrics()
        queries = Queries(house.daemon, "1.2.3")
        self.metrics.show(queries.snapshot)
        operator = Operator(house.daemon, kill_wait=1.0)
        app = api_app(queries, operator, self.metrics.text, orders=orders)
        self.app = LocalOnly(app) if local else OnSocket(app)
        self.client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=self.app),
            base_url="http://localhost",
            timeout=10,
        )

    async def get(self, path: str, **query: Any) -> Any:
        return await self.client.get(f"/api/v1/{path}", params=query)

    async def post(self, path: str, body: object = None, **more: Any) -> Any:
        return await self.client.post(f"/api/v1/{path}", json=body or {}, **more)


@pytest.fixture
async def house():
    async with House() as made:
        yield made


@pytest.fixture
async def desk(house):
    made = Desk(house)
    yield made
    await made.client.aclose()


async def test_status_is_the_view(desk):
    status = (await desk.get("status")).json()
    assert status["version"] == "1.2.3"
    assert status["health"] == {"status": "ok", "reasons": []}
    assert status["jobs"]["queued"] == 0


async def test_lists_have_items_and_next(desk, house):
    await house.report()
    for path in ("pools", "hosts", "runners", "jobs", "decisions", "journal"):
        page = (await desk.get(path)).json()
        assert set(page) == {"items", "next"}, path
    assert [pool["name"] for pool in (await desk.get("pools")).json()["items"]] == ["linux"]


async def test_jobs_are_paged_by_their_cursor(desk, house):
    for number in range(1, 4):
        await house.report(number=number)
    page = (await desk.get("jobs", limit=2)).json()
    assert [job["number"] for job in page["items"]] == [3, 2]
    page = (await desk.get("jobs", limit=2, after=page["next"])).json()
    assert ([job["number"] for job in page["items"]], page["next"]) == ([1], None)


@pytest.mark.parametrize("query", [{"limit": "x"}, {"after": "-1"}, {"after": "9" * 30}])
@pytest.mark.parametrize("path", ["jobs", "runners", "decisions", "journal"])
async def test_numbers_must_be_numbers(desk, path, query):
    answer = await desk.get(path, **query)
    assert answer.status_code == 400
    assert "whole number" in answer.json()["detail"]


async def test_an_empty_cursor_is_the_beginning(desk):
    for path in ("jobs", "runners", "decisions", "journal"):
        assert (await desk.get(path, after="")).status_code == 200, path


async def test_a_segment_by_its_number_and_the_newest(desk, house):
    await house.report()
    newest = (await desk.get("segments/newest")).json()
    assert newest == (await desk.get(f"segments/{newest['number']}")).json()
    assert set(newest) == {"number", "rules", "first_seq", "rows", "stands_at"}
    assert newest["rows"] == {}, "a new store starts from nothing"
    entries = (await desk.get("journal", after=newest["first_seq"] - 1)).json()["items"]
    assert {entry["segment"] for entry in entries} == {newest["number"]}


@pytest.mark.parametrize("number", ["0", "99", "-1", "x", "9" * 30])
async def test_an_unknown_segment_is_not_found(desk, number):
    answer = await desk.get(f"segments/{number}")
    assert answer.status_code == 404
    assert answer.json()["detail"].startswith("there is no segment ")


async def test_the_quarantine_is_listed_and_cleared(desk, house):
    for name in ("d1", "d2"):
        await house.store.quarantine(T0, "github", name, b"{}", "ValueError: odd")
    house.daemon.pulse.quarantined = 2
    page = (await desk.get("quarantine", limit=1)).json()
    assert [(one["seq"], one["delivery"], one["size"]) for one in page["items"]] == [(1, "d1", 2)]
    assert [one["seq"] for one in (await desk.get("quarantine", after=page["next"])).json()["items"]] == [2]
    for body in ({}, {"upto": 0}, {"upto": -1}, {"upto": 2**63}, {"upto": "1"}, {"upto": 1, "more": 1}):
        assert (await desk.post("quarantine/clear", body)).status_code == 400
    answer = await desk.post("quarantine/clear", {"upto": 2})
    assert (answer.status_code, answer.json()["outcome"]) == (200, "accepted")
    assert (await desk.get("status")).json()["quarantined"] == 0


async def test_one_job_by_its_key_with_slashes(desk, house):
    await house.report()
    for path in ("jobs/github/acme/app/1", "jobs/github%2Facme%2Fapp%2F1"):
        assert (await desk.get(path)).json()["id"] == "github/acme/app/1"
    story = (await desk.get("jobs/github/acme/app/1/story")).json()
    assert (story["kind"], story["lines"][0]["kind"]) == ("job", "JobReported")


async def test_one_runner_and_its_story(desk, house):
    name = await listening(house)
    assert (await desk.get(f"runners/{name}")).json()["state"] == "listening"
    story = (await desk.get(f"runners/{name}/story")).json()
    assert story["runner"]["id"] == name
    assert "Registered" in [line["kind"] for line in story["lines"]]


async def test_an_unknown_id_comes_with_what_is_near(desk, house):
    name = await listening(house)
    for path in (f"runners/{name}x", f"runners/{name}x/story"):
        answer = await desk.get(path)
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["near"] == [name]
    answer = await desk.get("jobs/github/acme/app/2")
    assert answer.json()["near"] == ["github/acme/app/1"]


async def test_an_unknown_path_and_a_wrong_method_are_problems(desk):
    answer = await desk.get("nothing")
    assert (answer.status_code, answer.json()["title"]) == (404, "Not Found")
    answer = await desk.client.get("/api/v1/cordon")
    assert (answer.status_code, answer.json()["status"]) == (405, 405)
    assert "POST" in answer.headers["allow"]


async def test_cordon_and_uncordon(desk, house):
    answer = await desk.post("cordon", {"target": "pool", "name": "linux", "reason": "disk", "who": "ann"})
    assert (answer.status_code, answer.json()["outcome"]) == (200, "accepted")
    assert (await desk.get("status")).json()["cordoned"] == ["linux"]
    assert (await desk.post("uncordon", {"target": "pool", "name": "linux"})).status_code == 200
    assert (await desk.get("status")).json()["cordoned"] == []


async def test_drain_without_a_body_is_for_everything(desk):
    answer = await desk.client.post("/api/v1/drain")
    assert answer.status_code == 200
    assert (await desk.get("status")).json()["draining"] is True


async def test_sweep(desk, house):
    assert (await desk.post("sweep")).status_code == 200
    assert "SweepOrdered" in house.store.kinds()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("cordon", {"target": "planet", "name": "x"}),
        ("cordon", {"target": "pool"}),
        ("cordon", {"target": "all", "name": "linux"}),
        ("cordon", {"targt": "all"}),
        ("cordon", {"target": 3}),
        ("runners/x/kill", {}),
        ("runners/x/kill", {"reason": "  "}),
        ("runners/x/kill", {"reason": "y", "force": True}),
    ],
)
async def test_bad_orders_are_refused_and_nothing_is_ordered(desk, house, path, body):
    answer = await desk.post(path, body)
    assert answer.status_code == 400
    assert not [kind for kind in house.store.kinds() if kind.endswith("Ordered")]


async def test_an_order_that_is_no_json_is_refused(desk):
    assert (await desk.client.post("/api/v1/cordon", content=b"{")).status_code == 400
    assert (await desk.client.post("/api/v1/cordon", content=b"x" * 100_000)).status_code == 413


async def test_an_unknown_pool_comes_with_what_is_near(desk):
    answer = await desk.post("cordon", {"target": "pool", "name": "linus"})
    assert (answer.status_code, answer.json()["near"]) == (404, ["linux"])


async def test_an_order_that_cannot_be_stored_is_503(desk, house):
    house.store.fail = 10**6
    assert (await desk.post("sweep")).status_code == 503
    house.store.fail = 0


async def test_a_kill_of_a_busy_runner_is_409_with_the_decision(desk, house):
    name = await listening(house)
    house.runtime.answers["probe"] = idle_report(workers=1)
    answer = await desk.post(f"runners/{name}/kill", {"reason": "odd"})
    assert answer.status_code == 409
    assert answer.json()["outcome"] == "vetoed"
    assert answer.json()["decision"]["verdict"] == "busy"


async def test_a_kill_that_is_not_decided_yet_is_202(desk, house):
    name = await listening(house)
    house.runtime.hold["probe"] = asyncio.Event()
    answer = await desk.post(f"runners/{name}/kill", {"reason": "odd"})
    assert (answer.status_code, answer.json()["outcome"]) == (202, "pending")


async def test_a_forced_kill_is_200(desk, house):
    name = await listening(house)
    house.runtime.tell(name, Sign.ANNOUNCED)
    await house.runner(RunnerState.RUNNING)
    house.runtime.answers["probe"] = idle_report(workers=1)
    body = {"reason": "it mines coins", "even_if_busy": True, "who": "ann"}
    killing = asyncio.create_task(desk.post(f"runners/{name}/kill", body))
    await until(lambda: "KillOrdered" in house.store.kinds())
    await until(lambda: house.store.kinds()[-1] != "KillOrdered")
    house.pass_time(10_000)
    answer = await killing
    assert (answer.status_code, answer.json()["outcome"]) == (200, "accepted")
    event = next(entry.event for entry in house.store.entries if entry.event["kind"] == "KillOrdered")
    assert (event["who"], event["reason"]) == ("ann", "it mines coins")


async def test_a_kill_of_nobody_is_404(desk):
    assert (await desk.post("runners/nobody/kill", {"reason": "x"})).status_code == 404


async def test_without_orders_it_only_reads(house):
    desk = Desk(house, orders=False)
    assert (await desk.post("cordon")).status_code == 404
    assert (await desk.get("status")).status_code == 200


async def test_a_fault_of_ours_is_a_problem_and_tells_nothing(house, monkeypatch):
    def broken(_: Queries) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(Queries, "status", broken)
    app = Desk(house).app
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/api/v1/status")
    assert answer.status_code == 500
    assert "secret detail" not in answer.text


async def test_metrics_in_both_formats(desk):
    old = await desk.client.get("/metrics")
    assert old.headers["content-type"].startswith("text/plain")
    new = await desk.client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert new.headers["content-type"].startswith("application/openmetrics-text")
    assert new.text.endswith("# EOF\n")


async def test_the_metrics_port_serves_metrics_and_health_alone(house, desk):
    app = metrics_app(Queries(house.daemon, "1"), desk.metrics.text)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.get("/metrics")).status_code == 200
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/api/v1/status")).status_code == 404


async def test_an_open_port_answers_this_machine_alone(house):
    desk = Desk(house, local=True)
    assert (await desk.get("status")).status_code == 200
    assert (await desk.post("sweep")).status_code == 200
    for headers in (
        {"host": "evil.example"},
        {"host": "evil.example:8081"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ):
        assert (await desk.client.get("/api/v1/status", headers=headers)).status_code == 403, headers
    own = {"origin": "http://127.0.0.1:8081"}
    assert (await desk.client.get("/api/v1/status", headers=own)).status_code == 200


async def test_an_open_port_takes_orders_as_json_alone(house):
    desk = Desk(house, local=True)
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = await desk.client.post("/api/v1/sweep", content=b"{}", headers={"content-type": kind})
        assert answer.status_code == 403, kind
    assert "SweepOrdered" not in house.store.kinds()


@pytest.mark.parametrize(
    ("url", "ours"),
    [
        ("//localhost", True),
        ("//localhost:80", True),
        ("//127.0.0.1:8081", True),
        ("//127.9.9.9", True),
        ("//[::1]:80", True),
        ("http://localhost:3000", True),
        ("//example.com", False),
        ("//127.0.0.1.example.com", False),
        ("//localhost.example.com", False),
        ("//10.0.0.1", False),
        ("//[::2]", False),
        ("//[bad", False),
        ("//", False),
        ("null", False),
    ],
)
def test_which_names_are_this_machine(url, ours):
    assert names_this_machine(url) is ours
