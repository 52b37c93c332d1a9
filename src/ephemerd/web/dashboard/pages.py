"""The pages that only read: each gathers views, and a template says them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ephemerd.app.history import WINDOWS
from ephemerd.app.logs import Logs, NoLogs
from ephemerd.app.present import Crew
from ephemerd.app.timeline import compact
from ephemerd.ports.views import HostView, LogsView, RunnerView
from ephemerd.web.dashboard import charts, tales, words
from ephemerd.web.dashboard.forges import forges
from ephemerd.web.dashboard.render import HEADERS, page, rendered
from ephemerd.web.dashboard.sources import Sources, Viewer

NAV = (
    ("now", "/", "Now"),
    ("timeline", "/timeline", "Timeline"),
    ("jobs", "/jobs", "Jobs"),
    ("decisions", "/decisions", "Decisions"),
    ("forge", "/forge", "Forge"),
    ("history", "/history", "History"),
)
MOST_CELLS = 96
"""Slots of a host that are drawn one by one."""
MOST_ROWS = 100
MOST_HELD = 1_000
"""Runners that are looked through for who holds which slot."""
TABLE_LANES = 100
FIRST_PIECE = 32 * 1024
"""Bytes of a log that come with the page."""
OUTCOMES = ("reaped", "vetoed", "escaped")
VERDICTS = ("idle", "busy", "unknown")
RULES = (
    *("expired", "surplus", "displaced", "unborn", "finished", "spent", "leaked", "overdue"),
    *("operator", "cordoned", "ended"),
)
VIAS = ("none", "probe", "log", "sign", "forge", "fence", "exit")
LENGTHS = (
    ("2 min", 120_000),
    ("15 min", 900_000),
    ("1 h", 3_600_000),
    ("6 h", 21_600_000),
    ("24 h", 86_400_000),
)
MARKS = (
    ("nominated", "triangle-up", "wait", "a rule said that it could go"),
    ("vetoed", "shield", "work", "the gate kept it; the evidence is in its story"),
    ("fence", "diamond-open", "offer", "the forge was asked to deregister it, or answered"),
    ("reaped", "triangle", "leave", "proven idle, so it was ended"),
    ("ordered", "square-cross", "leave", "a person ordered its end"),
    ("escaped", "star", "bad", "past its bound, ended although not proven idle"),
    ("breach", "cross", "bad", "a sign of a job after an accepted fence"),
)
SHOWN_STATES = tuple(name for name in words.MEANINGS if name != "gone")

ViewerOf = Callable[[Request], Viewer]


class Pages:
    """One method a page. `viewer` says who asks; `feed` is the address of the events."""

    def __init__(self, sources: Sources, viewer: ViewerOf, feed: str) -> None:
        self._sources = sources
        self._viewer = viewer
        self._feed = feed

    def render(
        self, request: Request, template: str, *, status: int = 200, live: bool = True, **values: Any
    ) -> Response:
        """Answer with a page, or with its main part alone where a script of ours asks for that."""
        daemon = self._sources.queries.status()
        part = request.headers.get("hx-request") == "true"
        url = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        given = {
            "layout": "part.html" if part else "base.html",
            "viewer": self._viewer(request),
            "nav": NAV,
            "page": "",
            "status": daemon,
            "health": daemon.health,
            "version": daemon.version,
            "now": daemon.now,
            "feed_url": self._feed,
            "live_url": url if live else "",
            **values,
        }
        return page(rendered(template, given), status)

    async def now(self, request: Request) -> Response:
        sources = self._sources
        # What is waited for comes first: all else is of one commit.
        decisions = await sources.queries.decisions(limit=8, newest=True)
        hosts, line = sources.queries.hosts(), sources.present.waiting(MOST_ROWS)
        drawn = any(host.slots <= MOST_CELLS for host in hosts)
        crew = sources.present.crew(MOST_HELD if drawn else MOST_ROWS)
        return self.render(
            request,
            "now.html",
            page="now",
            pools=sources.queries.pools(),
            hosts=[Cells(host, cells(host, crew.runners)) for host in hosts],
            line=line,
            oldest=line.jobs[0].first_seen if line.jobs else None,
            crew=Crew(crew.runners[:MOST_ROWS], crew.total),
            decisions=decisions.items,
            ended=sources.present.ended(8),
            note=note,
        )

    async def timeline(self, request: Request) -> Response:
        view = await self._sources.timeline.view()
        return self.render(
            request,
            "timeline.html",
            live=False,
            page="timeline",
            lanes=view.lanes[:TABLE_LANES],
            lengths=LENGTHS,
            pools=self._sources.queries.pools(),
            states=[words.tag(name) for name in SHOWN_STATES],
            marks=MARKS,
        )

    async def timeline_data(self, request: Request) -> Response:
        """The lanes that changed after `after` of recorder `life`, in few bytes."""
        query = request.query_params
        view = await self._sources.timeline.view(number(query.get("after", "")), query.get("life", "")[:80])
        return Response(msgspec.json.encode(compact(view)), headers=HEADERS, media_type="application/json")

    async def runner(self, request: Request) -> Response:
        name, sources = request.path_params["id"], self._sources
        story = await tales.told(sources.queries, name)
        if story is None or story.kind != "runner":
            return await self._unknown(request, "runner", name)
        decisions = await sources.queries.decisions(runner=name, limit=200, newest=True)
        view = await sources.timeline.view()
        lane = next((one for one in view.lanes if one.runner == name), None)
        logs, piece = await _first_piece(sources.logs, name)
        return self.render(
            request,
            "runner.html",
            subject=name,
            row=story.runner,
            days=tales.days(story.lines),
            ending=tales.ending(decisions.items, story.runner, story.lines),
            lane=lane,
            strip=charts.strip(lane, view.now) if lane is not None else "",
            logs=logs,
            first_piece=piece,
        )

    async def job(self, request: Request) -> Response:
        name = request.path_params["id"]
        story = await tales.told(self._sources.queries, name)
        if story is None or story.kind != "job":
            return await self._unknown(request, "job", name)
        row = story.job
        runner = row.runner if row is not None and row.ours and row.runner else ""
        logs, piece = await _first_piece(self._sources.logs if runner else None, runner)
        return self.render(
            request,
            "job.html",
            page="jobs",
            subject=name,
            row=row,
            days=tales.days(story.lines),
            log_of=runner,
            logs=logs,
            first_piece=piece,
        )

    async def jobs(self, request: Request) -> Response:
        query = request.query_params
        wanted = query.get("status", "")
        choices = (
            ("", "all"),
            ("active", "not ended"),
            ("queued", "queued"),
            ("waiting", "waiting for approval"),
            ("running", "running"),
            ("done", "done"),
            ("gone", "gone"),
        )
        if wanted not in dict(choices):
            wanted = ""
        after = str(number(query.get("after", "")) or "")
        found = self._sources.queries.jobs(status=wanted, after=after, limit=MOST_ROWS)
        return self.render(
            request,
            "jobs.html",
            live=not after,
            page="jobs",
            jobs=found.items,
            next=found.next,
            after=after,
            choices=choices,
            status_wanted=wanted,
        )

    async def decisions(self, request: Request) -> Response:
        query = request.query_params
        names = {"outcome": OUTCOMES, "verdict": VERDICTS, "rule": RULES, "via": VIAS}
        chosen = {name: query.get(name, "") for name in names}
        chosen = {name: value if value in names[name] else "" for name, value in chosen.items()}
        runner, before = query.get("runner", "")[:100], number(query.get("before", ""))
        outcome = chosen["outcome"]
        only = {name: value for name, value in chosen.items() if name != "outcome"}
        found = await self._sources.queries.decisions(
            after=before, limit=50, runner=runner, outcome=outcome, newest=True, only=only
        )
        kept = {name: value for name, value in {**chosen, "runner": runner}.items() if value}
        return self.render(
            request,
            "decisions.html",
            live=not before,
            page="decisions",
            filters=[(name, chosen[name], names[name]) for name in names],
            runner=runner,
            filtered=bool(kept),
            found=found,
            before=before,
            first_url="/decisions" + (f"?{urlencode(kept)}" if kept else ""),
            next_url=f"/decisions?{urlencode({**kept, 'before': found.next})}",
        )

    async def forge(self, request: Request) -> Response:
        queries = self._sources.queries
        found = forges(queries.status(), queries.pools(), self._sources.figures())
        return self.render(request, "forge.html", page="forge", forges=found)

    async def history(self, request: Request) -> Response:
        view = await self._sources.history.view(request.query_params.get("window", ""))
        return self.render(
            request,
            "history.html",
            page="history",
            view=view,
            windows=WINDOWS,
            charts=charts.of_history(view),
        )

    async def find(self, request: Request) -> Response:
        """To the page of the one that is meant, else a choice."""
        text = request.query_params.get("q", "").strip()[:200]
        queries = self._sources.queries
        if text and queries.runner(text) is not None:
            return RedirectResponse(words.runner_url(text), 303)
        near = await queries.near(text) if text else ()
        if text in near or len(near) == 1:
            only = text if text in near else near[0]
            return RedirectResponse(words.job_url(only) if "/" in only else words.runner_url(only), 303)
        said = (
            f"Several runners and jobs resemble {text!r}."
            if near
            else f"No runner or job resembles {text!r}; give a part of its name or its number."
        )
        return self.render(request, "message.html", live=False, title="Find", text=said, near=near)

    async def _unknown(self, request: Request, what: str, name: str) -> Response:
        near = await self._sources.queries.near(name)
        text = f"There is no {what} {name[:200]!r}, and the journal does not tell of it (any more)."
        return self.render(
            request, "message.html", status=404, live=False, title=f"No such {what}", text=text, near=near
        )


class Cells:
    """A host with its slots one by one: the runner that holds each, None for a free one; no cells where many."""

    def __init__(self, view: HostView, found: list[RunnerView | None]) -> None:
        self.view = view
        self.cells = found


def cells(host: HostView, runners: tuple[RunnerView, ...]) -> list[RunnerView | None]:
    """Return who holds the slots of a host, oldest first, then the free ones."""
    if host.slots > MOST_CELLS:
        return []
    held = [
        one for one in reversed(runners) if one.host == host.name and one.state not in ("gone", "abandoned")
    ]
    return [*held, *([None] * max(0, host.slots - len(held)))]


def note(row: RunnerView) -> str:
    """Say what a person would ask about this runner next."""
    notes = []
    if row.gate:
        notes.append(f"in the gate as {row.gate.rule}: {row.gate.phase}")
    elif row.vetoes:
        notes.append(f"vetoed {row.vetoes}×")
    if row.bound:
        notes.append(f"{row.bound} sign")
    if row.fence:
        notes.append(f"fence {row.fence}")
    notes += [text for text in (row.stuck, row.ending) if text]
    if row.adopted:
        notes.append("adopted")
    return ", ".join(notes)


def number(text: str) -> int:
    """Return a query's whole number, 0 for anything else: a page shows its beginning then."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0


async def _first_piece(logs: Logs | None, runner: str) -> tuple[LogsView | None, str]:
    """Return which logs a runner has and the beginning of the first."""
    if logs is None:
        return None, ""
    try:
        found = await logs.files(runner)
        if not found.files:
            return found, ""
        piece = await logs.read(runner, found.files[0].name, 0, FIRST_PIECE)
    except NoLogs:
        return None, ""
    return found, piece.text
