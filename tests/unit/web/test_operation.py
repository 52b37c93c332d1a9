"""Reload and logs over the API: what is answered, and what is refused with a problem."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from ephemerd.adapters.telemetry.logs import redacted
from ephemerd.adapters.telemetry.metrics import Metrics
from ephemerd.app.logs import Logs
from ephemerd.app.operator import Operator
from ephemerd.app.queries import Queries
from ephemerd.app.reload import Prepared, Reloader
from ephemerd.ports.errors import Gone
from ephemerd.ports.runtime import LogFile
from ephemerd.ports.views import ChangeView, FindingView
from ephemerd.web.access import OnSocket
from ephemerd.web.api import api_app
from tests.unit.app import fakes
from tests.unit.app.test_daemon import House

RUNNER = "eph-s0000001-abcd-1"
TEXT = b"one\nghp_abcdefghijklmnopqrstuvwxyz0123456789\nthree\n"
CHANGE = ChangeView("policy.settle", '"5s"', '"1s"', True)
FINDING = FindingView("error", 3, "policy.settle", "must be longer than zero", "write 5s")


async def log_files(runner: str) -> list[LogFile]:
    if runner != RUNNER:
        raise Gone("no logs")
    return [LogFile("output", len(TEXT))]


async def read_log(runner: str, name: str, start: int, most: int) -> bytes:
    if (runner, name) != (RUNNER, "output"):
        raise Gone("no such log")
    return TEXT[start : start + most]


class Desk:
    def __init__(self, house: House, *, whole: bool = True) -> None:
        self.prepared = Prepared(fakes.setup())
        runtime: Any = house.runtime
        runtime.log_files, runtime.read_log = log_files, read_log
        app = api_app(
            Queries(house.daemon, "1"),
            Operator(house.daemon),
            Metrics().text,
            reloader=Reloader(house.daemon, lambda: self.prepared) if whole else None,
            logs=Logs(house.daemon, redacted) if whole else None,
        )
        transport = httpx2.ASGITransport(app=OnSocket(app))
        self.client = httpx2.AsyncClient(transport=transport, base_url="http://localhost/api/v1/", timeout=10)


@pytest.fixture
async def house():
    async with House() as made:
        yield made


@pytest.fixture
async def desk(house):
    made = Desk(house)
    yield made
    await made.client.aclose()


async def test_a_reload_that_applies(desk):
    desk.prepared = Prepared(fakes.setup(), (CHANGE,))
    answer = await desk.client.post("reload", json={"who": "ann"})
    assert answer.status_code == 200
    assert answer.json()["changes"] == [
        {"key": "policy.settle", "before": '"5s"', "after": '"1s"', "applied": True, "note": ""}
    ]


async def test_a_reload_that_is_refused(desk):
    desk.prepared = Prepared(None, findings=(FINDING,))
    answer = await desk.client.post("reload", json={})
    assert (answer.status_code, answer.json()["outcome"]) == (409, "refused")
    assert answer.json()["findings"][0]["todo"] == "write 5s"


async def test_a_reload_that_cannot_be_stored(desk, house):
    house.store.fail = 10**6
    answer = await desk.client.post("reload", json={})
    house.store.fail = 0
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


async def test_logs_in_pieces_and_without_secrets(desk):
    listed = (await desk.client.get(f"runners/{RUNNER}/logs")).json()
    assert listed == {"runner": RUNNER, "ended": True, "files": [{"name": "output", "size": len(TEXT)}]}
    read = (await desk.client.get(f"runners/{RUNNER}/logs/output")).json()
    assert (read["text"], read["next"], read["end"]) == ("one\n[hidden]\nthree\n", len(TEXT), True)
    rest = (await desk.client.get(f"runners/{RUNNER}/logs/output", params={"start": 4})).json()
    assert rest["text"] == "[hidden]\nthree\n"


@pytest.mark.parametrize("path", ["eph-other/logs", "eph-other/logs/output", f"{RUNNER}/logs/x.log"])
async def test_logs_that_are_not_there(desk, path):
    answer = await desk.client.get(f"runners/{path}")
    assert (answer.status_code, answer.json()["near"]) == (404, [])


@pytest.mark.parametrize("query", [{"start": "-1"}, {"start": "x"}, {"most": "1e9"}])
async def test_places_that_are_no_numbers(desk, query):
    assert (await desk.client.get(f"runners/{RUNNER}/logs/output", params=query)).status_code == 400


async def test_without_a_configuration_and_logs_there_are_none(house):
    made = Desk(house, whole=False)
    assert (await made.client.post("reload", json={})).status_code == 404
    assert (await made.client.get(f"runners/{RUNNER}/logs")).status_code == 404
    await made.client.aclose()
