"""The dashboard behind the door of the TCP port: a login leads to it, its forms hold, and a reader stays one."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from ephemerd.app.sessions import Failures, Sessions
from ephemerd.app.tokens import Tokens
from ephemerd.ports.access import Role, TokenRecord
from ephemerd.web.access import Keys, WithTokens
from ephemerd.web.api import app_of
from ephemerd.web.dashboard.assets import assets
from ephemerd.web.login import login_routes
from tests.unit.web.dashboard.page import Element, faults, read

BROWSER = {"accept": "text/html", "sec-fetch-site": "same-origin", "origin": "http://ci.example:8081"}


class Shelf:
    def read(self) -> list[TokenRecord]:
        return []

    def write(self, records: list[TokenRecord]) -> None:
        """Keep nothing."""


class Visitor:
    """A browser at the TCP port, without scripts."""

    def __init__(self, app: Any) -> None:
        def now() -> int:
            return 1_000_000

        tokens = Tokens(Shelf(), now)
        tokens.load()
        self.keys = Keys(tokens, Sessions(now, tokens.holds), Failures(now), "ephemerd-abc")
        behind = app_of([*login_routes(self.keys), *app.routes])
        self.client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=WithTokens(behind, self.keys)),
            base_url="http://ci.example:8081",
            headers=BROWSER,
            timeout=10,
        )

    async def log_in(self, role: Role, who: str) -> None:
        code, _ = self.keys.sessions.invite(role, who)
        answer = await self.client.get("/login", params={"code": code})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")

    async def page(self, path: str) -> Element:
        answer = await self.client.get(path)
        assert answer.status_code == 200, answer.text[:300]
        root = read(answer.text)
        assert faults(root, set(assets().files)) == []
        return root


@pytest.fixture
async def visitor(desk):
    made = Visitor(desk.app)
    yield made
    await made.client.aclose()


async def test_who_is_not_known_is_led_to_the_login(visitor):
    for path in ("/", "/timeline", "/runners/x"):
        answer = await visitor.client.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    update = await visitor.client.get("/", headers={"accept": "*/*", "hx-request": "true"})
    assert (update.status_code, update.headers["hx-redirect"]) == (401, "/login")
    assert (await visitor.client.get(assets().url("dashboard.css"))).status_code == 200


async def test_an_operator_logs_in_orders_and_signs_out(visitor, house):
    await visitor.log_in(Role.OPERATE, "ann")
    assert "ann, may operate" in (await visitor.page("/")).one("footer").text
    form = (await visitor.page("/orders/cordon?target=pool&name=linux")).one("main").one("form")
    fields = {one.attributes["name"]: one.attributes.get("value", "") for one in form.all("input")}
    answer = await visitor.client.post(form.attributes["action"], data={**fields, "reason": "full"})
    assert answer.status_code == 200
    assert house.daemon.core.state.pools["linux"].cordoned.startswith("ann")
    page = await visitor.page("/")
    out = page.one("footer").one("form")
    token = out.one("input").attributes["value"]
    answer = await visitor.client.post(out.attributes["action"], data={"csrf": token})
    assert answer.status_code == 303
    assert (await visitor.client.get("/")).status_code == 303


async def test_a_reader_sees_all_and_orders_nothing(visitor, house):
    await visitor.log_in(Role.READ, "eve")
    page = await visitor.page("/")
    assert "eve, may read" in page.one("footer").text
    token = page.one("footer").one("input").attributes["value"]
    fields = {"csrf": token, "target": "pool", "name": "linux"}
    assert (await visitor.client.post("/orders/cordon", data=fields)).status_code == 403
    assert not house.daemon.core.cordoned("linux")
