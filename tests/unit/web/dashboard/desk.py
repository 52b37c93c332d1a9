"""A dashboard over the real daemon loop with in-memory ports, asked as a browser without scripts asks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from ephemerd.app.history import History
from ephemerd.app.logs import Logs
from ephemerd.app.operator import Operator
from ephemerd.app.present import Present
from ephemerd.app.queries import Queries
from ephemerd.app.timeline import Timeline
from ephemerd.ports.access import Role
from ephemerd.web.access import KEY, Access
from ephemerd.web.dashboard.assets import assets
from ephemerd.web.dashboard.forges import Figure
from ephemerd.web.dashboard.routes import dashboard_routes
from ephemerd.web.dashboard.sources import Sources
from ephemerd.web.local import LocalOnly
from ephemerd.web.pace import Pace
from tests.unit.app.test_daemon import House
from tests.unit.web.dashboard.page import Element, faults, read


class Reader:
    """A door that lets everybody in with the role to read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, KEY: Access(Role.READ, "eve", "csrf", "session")}, receive, send)


class Desk:
    """Pages of one house. `figures` is what the meter would tell."""

    def __init__(self, house: House, timeline: Timeline, *, reads: bool = False) -> None:
        self.house = house
        self.figures: list[Figure] = []
        daemon = house.daemon
        sources = Sources(
            queries=Queries(daemon, "1.2.3"),
            operator=Operator(daemon, kill_wait=5.0),
            present=Present(daemon),
            timeline=timeline,
            history=History(daemon),
            figures=self._figures,
            logs=Logs(daemon, lambda text: text.replace("hush", "[hidden]")),
        )
        pace = Pace(lambda: 0.0, lambda: daemon.pulse.commits)
        app: ASGIApp = Starlette(routes=list(dashboard_routes(sources, pace)))
        self.app = app
        self.client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=Reader(app) if reads else LocalOnly(app)),
            base_url="http://localhost",
            timeout=10,
        )

    def _figures(self) -> Iterable[Figure]:
        return self.figures

    async def answer(self, path: str, **more: Any) -> Any:
        return await self.client.get(path, **more)

    async def page(self, path: str, status: int = 200, **more: Any) -> Element:
        """Get a page; fails where it is not whole, strict and readable."""
        answer = await self.answer(path, **more)
        assert answer.status_code == status, answer.text[:500]
        root = read(answer.text)
        assert faults(root, set(assets().files)) == []
        return root

    async def order(self, path: str, status: int = 200, **fields: str) -> Element:
        """Open the page that asks, fill its form in and send it, as a browser would."""
        form = (await self.page(path)).one("form", method="post")
        given = {
            one.attributes["name"]: one.attributes.get("value", "")
            for one in form.all("input")
            if one.attributes.get("type") != "checkbox"
        }
        headers = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
        answer = await self.client.post(form.attributes["action"], data={**given, **fields}, headers=headers)
        assert answer.status_code == status, answer.text[:500]
        return read(answer.text)
