"""Orders of a person from the pages: first a page that says what would happen and asks, then the order itself.

Works without scripts; with them the same answers appear in a dialog. Every form brings the session's CSRF token,
which the door before the app checks.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ephemerd.app.operator import TARGETS, NotTaken, Unknown
from ephemerd.ports.views import OrderView
from ephemerd.web.access import form_of
from ephemerd.web.dashboard.pages import Pages, ViewerOf
from ephemerd.web.dashboard.sources import Sources
from ephemerd.web.dashboard.words import runner_url, short_runner

TEXT = 500

EXPLAINS = {
    "cordon": "Nothing new is planned there, and idle runners are let go. Running jobs are not touched. It lasts until "
    "you uncordon.",
    "uncordon": "Work is planned there again.",
    "drain": "Nothing new is planned there, idle runners are let go, and running jobs are waited for. Nothing takes "
    "jobs there until you uncordon.",
    "kill": "The runner goes through the gate: it is ended only if proven idle. If it executes a job, the answer is a "
    "veto with the evidence, unless you tick “even if busy”.",
}
BUTTONS = {"cordon": "Cordon", "uncordon": "Uncordon", "drain": "Drain", "kill": "Kill"}
MARKS = {"accepted": ("check", "good"), "vetoed": ("shield", "wait"), "pending": ("ring-half", "wait")}


class OrderPages:
    """GET asks, POST orders. Who may not operate is refused before this by `check`."""

    def __init__(self, pages: Pages, sources: Sources, viewer: ViewerOf) -> None:
        self._pages = pages
        self._operator = sources.operator
        self._queries = sources.queries
        self._viewer = viewer

    async def ask(self, request: Request) -> Response:
        """Say what the order would do and ask for a reason."""
        return self._form(request, request.path_params["verb"], dict(request.query_params))

    async def give(self, request: Request) -> Response:
        """Give the order and say what became of it."""
        verb = request.path_params["verb"]
        if verb not in EXPLAINS:
            return self._say(request, 404, "No such order", f"There is no order {verb[:40]!r}.")
        try:
            form = await form_of(request)
        except (ValueError, TimeoutError) as error:
            return self._say(request, 400, "Not understood", f"The form could not be read: {error}.")
        if not form:
            return self._say(request, 415, "Not understood", "An order is sent as a form of this page.")
        viewer = self._viewer(request)
        form = {name: value[:TEXT] for name, value in form.items()}
        if verb == "kill" and not form.get("reason", "").strip():
            return self._form(request, verb, form, error="Say why the runner is to be ended.", status=400)
        if verb != "kill" and not _well_aimed(form):
            return self._say(request, 400, "Not understood", "Name a pool or a host, or everything.")
        return await self._ordered(request, verb, form, viewer.name or "dashboard")

    async def _ordered(self, request: Request, verb: str, form: dict[str, str], who: str) -> Response:
        try:
            view = await self._order(verb, form, who)
        except Unknown as error:
            return self._outcome(request, verb, form, "unknown", f"{error}.", status=404, near=error.near)
        except NotTaken as error:
            return self._outcome(request, verb, form, "not taken", f"{error}.", status=503)
        return self._outcome(request, verb, form, view.outcome, f"{view.detail}.", decision=view.decision)

    def _order(self, verb: str, form: dict[str, str], who: str) -> Awaitable[OrderView]:
        operator, reason = self._operator, form.get("reason", "").strip()
        target, name = form.get("target", "all"), form.get("name", "")
        if verb == "kill":
            return operator.kill(who, form.get("runner", ""), reason, form.get("even_if_busy") == "yes")
        if verb == "uncordon":
            return operator.uncordon(who, target, name)
        if verb == "cordon":
            return operator.cordon(who, target, name, reason)
        return operator.drain(who, target, name, reason)

    def _form(
        self, request: Request, verb: str, given: dict[str, str], *, error: str = "", status: int = 200
    ) -> Response:
        if verb not in EXPLAINS:
            return self._say(request, 404, "No such order", f"There is no order {verb[:40]!r}.")
        if verb != "kill" and not _well_aimed(given):
            return self._say(request, 400, "Not understood", "Name a pool or a host, or everything.")
        return self._show(
            request,
            verb,
            given,
            status=status,
            outcome="",
            explains=EXPLAINS[verb],
            error=error,
            asks_reason=verb != "uncordon",
            reason=given.get("reason", "")[:TEXT],
            even_if_busy=given.get("even_if_busy") == "yes",
        )

    def _outcome(
        self, request: Request, verb: str, form: dict[str, str], outcome: str, detail: str, **more: Any
    ) -> Response:
        mark, tone = MARKS.get(outcome, ("cross", "bad"))
        values = {"decision": None, "near": (), "status": 200, **more}
        return self._show(
            request, verb, form, outcome=outcome, detail=_sentence(detail), mark=mark, tone=tone, **values
        )

    def _show(self, request: Request, verb: str, given: dict[str, str], **values: Any) -> Response:
        runner = given.get("runner", "") if verb == "kill" else ""
        target, name = given.get("target", "all"), given.get("name", "")
        what = (
            f"runner {short_runner(runner)}"
            if runner
            else "everything"
            if target == "all"
            else f"{target} {name}"
        )
        return self._pages.render(
            request,
            "order.html",
            live=False,
            title=f"{BUTTONS[verb]} {what}",
            verb=verb,
            button=BUTTONS[verb],
            runner=runner,
            target=target,
            name=name,
            back=runner_url(runner) if runner else "/",
            **values,
        )

    def _say(self, request: Request, status: int, title: str, text: str) -> Response:
        return self._pages.render(
            request, "message.html", status=status, live=False, title=title, text=text, near=()
        )


def _well_aimed(given: dict[str, str]) -> bool:
    target, name = given.get("target", "all"), given.get("name", "")
    return target in TARGETS and (target == "all") == (not name)


def _sentence(text: str) -> str:
    """Begin with a capital and end with one full stop: messages of the app are half sentences."""
    text = text.rstrip(".") + "."
    return text[:1].upper() + text[1:]
