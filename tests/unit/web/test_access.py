"""The doors: who is let in with what, and which requests of a browser are refused."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ephemerd.app.sessions import FAILURES, Failures, Sessions
from ephemerd.app.tokens import Tokens
from ephemerd.ports.access import Role
from ephemerd.web.access import (
    MOST_FORM,
    Keys,
    OnSocket,
    WithTokens,
    access_of,
    address_of,
    form_of,
    require,
)
from ephemerd.web.local import LocalOnly
from tests.unit.app.test_tokens import T0, MemoryShelf

FORM = {"content-type": "application/x-www-form-urlencoded"}


async def who(request: Request) -> Response:
    access = access_of(request)
    if access is None:
        return PlainTextResponse("nobody")
    return JSONResponse(
        {"who": access.who, "role": access.role.value, "via": access.via, "local": access.local}
        | {"csrf": access.csrf, "form": await form_of(request)}
    )


APP = Starlette(
    routes=[
        Route("/", require(Role.READ)(who)),
        Route("/page", require(Role.READ)(who)),
        Route("/api/v1/status", require(Role.READ)(who)),
        Route("/order", require(Role.OPERATE)(who), methods=["POST"]),
        Route("/healthz", who),
        Route("/login", who),
        Route("/assets/x.css", who),
        Route("/forgotten", who),
    ]
)


class Site:
    def __init__(self) -> None:
        self.now = T0
        self.tokens = Tokens(MemoryShelf(), lambda: self.now)
        self.sessions = Sessions(lambda: self.now, self.tokens.holds)
        keys = Keys(self.tokens, self.sessions, Failures(lambda: self.now), "ephemerd-abc")
        self.client = client(WithTokens(APP, keys))

    def token(self, name: str, role: Role) -> dict[str, str]:
        return {"authorization": f"Bearer {self.tokens.create(name, role, 3600).token}"}

    def browser(self, role: Role = Role.OPERATE) -> tuple[dict[str, str], str]:
        """Log a browser in; return its headers and its CSRF token."""
        code, _ = self.sessions.invite(role, "ann")
        secret = self.sessions.enter(code)
        assert secret is not None
        session = self.sessions.find(secret)
        assert session is not None
        return {"cookie": f"other=1; ephemerd-abc={secret}"}, session.csrf


def client(app: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost")


@pytest.fixture
async def site():
    made = Site()
    yield made
    await made.client.aclose()


async def test_nobody_is_refused_everywhere_but_at_the_open_paths(site):
    for path in ("/", "/page", "/api/v1/status", "/forgotten", "/nothing"):
        answer = await site.client.get(path)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.headers["content-type"] == "application/problem+json"
    assert (await site.client.post("/order")).status_code == 401
    for path in ("/healthz", "/login", "/assets/x.css"):
        assert (await site.client.get(path)).text == "nobody"


async def test_without_any_door_nobody_is_anybody():
    async with client(APP) as bare:
        assert (await bare.get("/")).status_code == 401
        assert (await bare.post("/order")).status_code == 401


async def test_a_token_is_let_in_with_its_role(site):
    read, operate = site.token("reader", Role.READ), site.token("worker", Role.OPERATE)
    answer = (await site.client.get("/", headers=read)).json()
    assert (answer["who"], answer["role"], answer["via"], answer["local"]) == (
        *("reader", "read", "token"),
        False,
    )
    refused = await site.client.post("/order", headers=read)
    assert refused.status_code == 403
    assert "operate" in refused.json()["detail"]
    assert (await site.client.post("/order", headers=operate)).json()["who"] == "worker"
    assert (await site.client.get("/", headers=operate)).status_code == 200


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", "Basic eDp5", "ephd_x", "Bearer ephd_wrong"])
async def test_wrong_credentials(site, value):
    answer = await site.client.get("/api/v1/status", headers={"authorization": value})
    assert answer.status_code == 401
    assert answer.json()["detail"]


async def test_a_token_goes_before_a_cookie_and_a_wrong_one_is_not_saved_by_it(site):
    cookie, _ = site.browser()
    answer = await site.client.get("/", headers={**cookie, "authorization": "Bearer ephd_wrong"})
    assert answer.status_code == 401


async def test_a_wrong_token_keeps_nobody_from_open_paths(site):
    answer = await site.client.get("/healthz", headers={"authorization": "Bearer ephd_wrong"})
    assert answer.text == "nobody"


async def test_too_many_wrong_tokens_are_429_and_the_right_one_still_passes(site):
    wrong = {"authorization": "Bearer ephd_wrong"}
    codes = [(await site.client.get("/", headers=wrong)).status_code for _ in range(FAILURES + 1)]
    assert codes == [401] * FAILURES + [429]
    assert int((await site.client.get("/", headers=wrong)).headers["retry-after"]) > 0
    assert (await site.client.get("/", headers=site.token("a", Role.READ))).status_code == 200


async def test_a_revoked_or_expired_token_is_401_at_once(site):
    headers = site.token("a", Role.READ)
    site.now += 3600 * 1000
    assert (await site.client.get("/", headers=headers)).status_code == 401
    headers = site.token("b", Role.READ)
    site.tokens.revoke("b")
    assert (await site.client.get("/", headers=headers)).status_code == 401


async def test_a_session_is_let_in(site):
    cookie, csrf = site.browser()
    answer = (await site.client.get("/", headers=cookie)).json()
    assert (answer["who"], answer["via"], answer["csrf"]) == ("ann", "session", csrf)


async def test_an_order_of_a_session_needs_the_csrf_token(site):
    cookie, csrf = site.browser()
    post = site.client.post
    assert (await post("/order", headers=cookie)).status_code == 403
    assert (await post("/order", headers=cookie, json={"reason": "x"})).status_code == 403
    assert (await post("/order", headers={**cookie, "x-csrf-token": "wrong"})).status_code == 403
    assert (await post("/order", headers={**cookie, "x-csrf-token": "é".encode()})).status_code == 403
    other, _ = site.browser()
    assert (await post("/order", headers={**other, "x-csrf-token": csrf})).status_code == 403
    assert (await post("/order", headers={**cookie, "x-csrf-token": csrf})).status_code == 200


async def test_a_form_brings_it_in_a_field_and_is_read_again_by_the_route(site):
    cookie, csrf = site.browser()
    answer = await site.client.post("/order", headers=cookie, data={"csrf": csrf, "name": "ä b"})
    assert answer.json()["form"] == {"csrf": csrf, "name": "ä b"}
    assert (await site.client.post("/order", headers=cookie, data={"csrf": "no"})).status_code == 403
    assert (
        await site.client.post("/order", headers={**cookie, **FORM}, content=b"\xff&&=")
    ).status_code == 403


async def test_a_form_is_bounded(site):
    cookie, csrf = site.browser()
    answer = await site.client.post(
        "/order", headers=cookie, data={"csrf": csrf, "text": "x" * (MOST_FORM + 1)}
    )
    assert answer.status_code == 413
    many = "&".join(f"a{number}=1" for number in range(1000))
    answer = await site.client.post("/order", headers={**cookie, **FORM}, content=f"csrf={csrf}&{many}")
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://localhost"}, 200),
        ({"origin": "https://localhost"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://localhost:9999"}, 403),
        ({"origin": "http://localhost.evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://[bad"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"origin": "http://localhost", "sec-fetch-site": "cross-site"}, 403),
    ],
)
async def test_an_order_must_come_from_a_page_of_ours(site, headers, status):
    cookie, csrf = site.browser()
    answer = await site.client.post("/order", headers={**cookie, "x-csrf-token": csrf, **headers})
    assert answer.status_code == status
    assert (await site.client.get("/", headers={**cookie, **headers})).status_code == 200


async def test_a_reading_session_orders_nothing(site):
    cookie, csrf = site.browser(Role.READ)
    assert (await site.client.get("/", headers=cookie)).status_code == 200
    assert (await site.client.post("/order", headers={**cookie, "x-csrf-token": csrf})).status_code == 403


async def test_a_page_without_a_session_leads_to_the_login(site):
    page = {"accept": "text/html,application/xhtml+xml"}
    for cookie in ({}, {"cookie": "ephemerd-abc=old"}, {"cookie": "\x7f=;;"}):
        answer = await site.client.get("/page", headers={**page, **cookie})
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert (await site.client.get("/api/v1/status", headers=page)).status_code == 401
    assert (await site.client.post("/order", headers=page)).status_code == 401
    answer = await site.client.get("/page", headers={"hx-request": "true"})
    assert (answer.status_code, answer.headers["hx-redirect"]) == (401, "/login")


async def test_who_opens_the_socket_operates():
    async with client(OnSocket(APP)) as socket:
        answer = (await socket.post("/order")).json()
        assert (answer["role"], answer["via"], answer["local"]) == ("operate", "socket", True)
        assert (await socket.get("/", headers={"authorization": "Bearer whatever"})).status_code == 200


async def test_a_browser_behind_a_tunnel_to_the_socket_needs_a_page_of_ours():
    async with client(OnSocket(APP)) as socket:
        csrf = (await socket.get("/")).json()["csrf"]
        ours = {"origin": "http://localhost"}
        foreign = {"origin": "http://evil.example"}
        assert (await socket.post("/order", headers=ours)).status_code == 403
        assert (await socket.post("/order", headers={**ours, "x-csrf-token": csrf})).status_code == 200
        assert (await socket.post("/order", headers={**foreign, "x-csrf-token": csrf})).status_code == 403


async def test_the_loopback_port_takes_forms_of_its_own_pages():
    async with client(LocalOnly(APP)) as local:
        answer = (await local.get("/")).json()
        assert (answer["role"], answer["via"], answer["local"]) == ("operate", "loopback", False)
        form = {"csrf": answer["csrf"], "name": "linux"}
        assert (await local.post("/order", data=form)).json()["form"]["name"] == "linux"
        assert (await local.post("/order", data={"name": "linux"})).status_code == 403
        foreign = {"origin": "http://localhost:3000"}
        assert (await local.post("/order", data=form, headers=foreign)).status_code == 403
        assert (await local.post("/order", json={}, headers=foreign)).status_code == 403
        assert (await local.post("/order", json={})).status_code == 200


async def test_doors_ignore_what_is_no_request():
    for door in (OnSocket(APP), LocalOnly(APP), WithTokens(APP, None)):  # type: ignore[arg-type]
        await door({"type": "lifespan"}, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("client_", "address"),
    [
        (("10.0.0.1", 5), "10.0.0.1"),
        (("2001:db8::1:2:3:4", 5), "2001:db8::/64"),
        (("::ffff:10.0.0.1", 5), "::ffff:10.0.0.1"),
        (None, ""),
        (("somewhere", 0), "somewhere"),
    ],
)
def test_addresses(client_, address):
    assert address_of({"client": client_}) == address
