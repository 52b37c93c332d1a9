"""Orders from the pages: asked before they are given, refused to readers and to forged forms."""

from __future__ import annotations

import pytest

from ephemerd.app.timeline import Timeline
from ephemerd.domain.runner import RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.app.fakes import idle_report, until
from tests.unit.app.test_daemon import House
from tests.unit.app.test_operator import listening
from tests.unit.web.dashboard.desk import Desk

ASKS = [
    "/orders/cordon?target=pool&name=linux",
    "/orders/drain?target=host&name=local",
    "/orders/uncordon?target=all&name=",
]


@pytest.mark.parametrize("path", [*ASKS, "/orders/kill?runner=r1"])
async def test_an_order_is_asked_for_before_it_is_given(desk, house, path):
    page = await desk.page(path)
    assert page.id("dialog-title").text
    assert page.one("form", method="post").one("input", name="csrf").attributes["value"]
    assert not house.daemon.core.cordoned("linux")


async def test_cordon_and_uncordon(desk, house):
    page = await desk.order(ASKS[0], reason="disk full")
    assert "Pool linux is cordoned." in page.text
    assert house.daemon.core.cordoned("linux")
    now = await desk.page("/")
    assert "disk full" in now.id("pool-linux").text
    assert now.id("pool-linux").all("a", href="/orders/uncordon?target=pool&name=linux")
    await desk.order("/orders/uncordon?target=pool&name=linux")
    assert not house.daemon.core.cordoned("linux")


async def test_drain_of_a_host(desk, house):
    page = await desk.order(ASKS[1])
    assert "drains" in page.text
    assert house.daemon.core.cordoned("linux")


async def test_kill_of_a_busy_runner_is_vetoed_with_the_evidence_unless_ticked(desk, house):
    name = await listening(house)
    house.runtime.tell(name, Sign.ANNOUNCED)
    await house.runner(RunnerState.RUNNING)
    house.runtime.answers["probe"] = idle_report(workers=1, detail="worker 7")
    page = await desk.order(f"/orders/kill?runner={name}", reason="test")
    assert "vetoed" in page.id("order").text
    assert house.runners()[0].state is RunnerState.RUNNING
    page = await desk.order(f"/orders/kill?runner={name}", reason="test", even_if_busy="yes")
    assert "accepted" in page.id("order").text or "pending" in page.id("order").text
    await until(lambda: house.runners()[0].state in {RunnerState.RETIRING, RunnerState.GONE})


async def test_a_kill_without_a_reason_is_asked_for_again(desk, house):
    name = await listening(house)
    page = await desk.order(f"/orders/kill?runner={name}", status=400, reason="  ")
    assert page.one(role="alert").text == "Say why the runner is to be ended."
    assert not house.daemon.core.state.runners[name].order_given


async def test_what_does_not_exist_is_said_with_what_was_perhaps_meant(desk, house):
    page = await desk.order("/orders/cordon?target=pool&name=linus", status=404)
    assert "There is no pool 'linus'." in page.text
    assert "Perhaps: linux" in page.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/orders/explode?target=all", 404),
        ("/orders/cordon?target=pool", 400),
        ("/orders/cordon?target=moon&name=x", 400),
        ("/orders/cordon?target=all&name=x", 400),
    ],
)
async def test_an_order_that_makes_no_sense_is_refused(desk, path, status):
    await desk.page(path, status=status)


async def test_a_form_from_elsewhere_or_without_the_token_is_refused(desk, house):
    fields = {"target": "pool", "name": "linux", "reason": "x"}
    ours = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    for headers, given in (
        (ours, fields),
        (ours, {**fields, "csrf": "guess"}),
        ({"origin": "http://evil.example"}, fields),
        ({"origin": "http://localhost:1", "sec-fetch-site": "cross-site"}, fields),
    ):
        answer = await desk.client.post("/orders/cordon", data=given, headers=headers)
        assert answer.status_code == 403
    assert not house.daemon.core.cordoned("linux")


async def test_a_reader_sees_no_order_and_may_give_none():
    house = House()
    timeline = Timeline(house.daemon)
    timeline.begin()
    async with house:
        desk = Desk(house, timeline, reads=True)
        name = await listening(house)
        for path in ("/", f"/runners/{name}"):
            page = await desk.page(path)
            assert "data-order" not in {name for one in page for name in one.attributes}
            assert "eve, may read" in page.one("footer").text
        for path in (*ASKS, f"/orders/kill?runner={name}"):
            assert (await desk.answer(path)).status_code == 403
            answer = await desk.client.post(path, data={"csrf": "csrf", "runner": name, "reason": "x"})
            assert answer.status_code == 403
        await desk.client.aclose()
    assert not house.forge.named("deregister")


async def test_without_a_door_nobody_gets_anything(desk):
    import httpx2

    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=desk.app), base_url="http://localhost"
    ) as client:
        for path in ("/", "/timeline", "/timeline.json", "/pill", "/forge", "/history", "/find?q=x", ASKS[0]):
            assert (await client.get(path)).status_code == 401, path
        page = await desk.page("/")
        style = page.all("link", rel="stylesheet")[0].attributes["href"]
        assert (await client.get(style)).status_code == 200
