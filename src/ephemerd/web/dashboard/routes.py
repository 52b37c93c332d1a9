"""The dashboard's routes. They read with the role to read, and order with the role to operate."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ephemerd.app.daemon import Daemon
from ephemerd.app.history import History
from ephemerd.app.logs import Logs
from ephemerd.app.operator import Operator
from ephemerd.app.present import Present
from ephemerd.app.queries import Queries
from ephemerd.app.timeline import Timeline
from ephemerd.ports.access import Role
from ephemerd.web.access import access_of, require
from ephemerd.web.dashboard.assets import asset_routes
from ephemerd.web.dashboard.orders import OrderPages
from ephemerd.web.dashboard.pages import Pages
from ephemerd.web.dashboard.render import page, rendered
from ephemerd.web.dashboard.shared import Endpoint, Shared
from ephemerd.web.dashboard.sources import Figures, Sources, Viewer
from ephemerd.web.pace import Pace

FEED = "/api/v1/events"


def dashboard_pages(
    daemon: Daemon,
    queries: Queries,
    operator: Operator,
    figures: Figures,
    logs: Logs | None,
    pace: Pace,
) -> Sequence[BaseRoute]:
    """Build the dashboard of a daemon that does not run yet: its timeline is followed from here on."""
    timeline = Timeline(daemon)
    timeline.begin()
    sources = Sources(queries, operator, Present(daemon), timeline, History(daemon), figures, logs)
    return dashboard_routes(sources, pace)


def dashboard_routes(sources: Sources, pace: Pace) -> list[Route]:
    """Build the routes of all pages, orders and static files, for an app behind one of the doors of `access`."""
    pages = Pages(sources, viewer_of, FEED)
    orders = OrderPages(pages, sources, viewer_of)
    shared = Shared(viewer_of, pace)
    read, operate = require(Role.READ), require(Role.OPERATE)

    def live(endpoint: Endpoint) -> Endpoint:
        return read(shared.once(endpoint))

    def alone(endpoint: Endpoint) -> Endpoint:
        return read(pace.over(endpoint))

    async def pill(_: Request) -> Response:
        return page(rendered("_health.html", {"health": sources.queries.health()}))

    return [
        *asset_routes(),
        Route("/", live(pages.now)),
        Route("/pill", alone(pill)),
        Route("/timeline", alone(pages.timeline)),
        Route("/timeline.json", alone(pages.timeline_data)),
        Route("/runners/{id}", live(pages.runner)),
        Route("/jobs", live(pages.jobs)),
        Route("/jobs/{id:path}", live(pages.job)),
        Route("/decisions", live(pages.decisions)),
        Route("/forge", live(pages.forge)),
        Route("/history", live(pages.history)),
        Route("/find", alone(pages.find)),
        Route("/orders/{verb}", operate(orders.ask), methods=["GET"]),
        Route("/orders/{verb}", operate(orders.give), methods=["POST"]),
    ]


def viewer_of(request: Request) -> Viewer:
    """Return for whom a page is rendered, as the door before the app found out."""
    access = access_of(request)
    if access is None:
        return Viewer()
    return Viewer(access.who, access.role.covers(Role.OPERATE), access.csrf, access.via == "session")
