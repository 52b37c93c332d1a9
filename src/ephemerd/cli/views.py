"""`status`, `pools`, `hosts`, `runners`, `jobs`, `decisions`: what the daemon knows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Annotated, Any

import typer

from ephemerd.cli import complete, tables
from ephemerd.cli.client import Client, connect
from ephemerd.cli.failure import Exit, Failure
from ephemerd.cli.looks import Look, look
from ephemerd.cli.options import Every, Json, Limit, Socket, Url, Watch
from ephemerd.cli.output import Page

STATES = (
    *("planned", "registering", "starting", "listening", "assigned", "running", "finishing", "retiring"),
    *("stuck", "abandoned", "gone"),
)
JOB_STATUSES = ("active", "queued", "waiting", "running", "done", "gone")
OUTCOMES = ("reaped", "vetoed", "escaped")


def status(
    as_json: Json = False,
    watch: Watch = False,
    every: Every = 2.0,
    socket: Socket = None,
    url: Url = None,
) -> None:
    """Show the daemon's health, and what it does right now."""
    what = Look(lambda client: client.get("status"), tables.status_page)
    look(connect(socket, url), what, as_json=as_json, watch=watch, every=every)


def _list(path: str) -> Callable[[Client], list[dict[str, Any]]]:
    return lambda client: list(client.get(path)["items"])


def pools(
    as_json: Json = False, watch: Watch = False, every: Every = 2.0, socket: Socket = None, url: Url = None
) -> None:
    """List the pools with their runners and the demand that waits for them."""
    what = Look(_list("pools"), tables.pools_page)
    look(connect(socket, url), what, as_json=as_json, watch=watch, every=every)


def hosts(
    as_json: Json = False, watch: Watch = False, every: Every = 2.0, socket: Socket = None, url: Url = None
) -> None:
    """List the hosts with their slots."""
    what = Look(_list("hosts"), tables.hosts_page)
    look(connect(socket, url), what, as_json=as_json, watch=watch, every=every)


def runners(
    pool: Annotated[
        str,
        typer.Option("--pool", metavar="NAME", help="Only of this pool.", autocompletion=complete.pools),
    ] = "",
    state: Annotated[
        str,
        typer.Option(
            "--state",
            metavar="STATE",
            help=f"One of {', '.join(STATES)}.",
            autocompletion=complete.words(*STATES),
        ),
    ] = "",
    limit: Limit = 100,
    as_json: Json = False,
    watch: Watch = False,
    every: Every = 2.0,
    socket: Socket = None,
    url: Url = None,
) -> None:
    """List runners, newest first; gone ones for a while too."""
    _one_of("--state", state, STATES)
    what = Look(
        lambda client: list(client.items("runners", most=limit, pool=pool, state=state)), tables.runners_page
    )
    look(connect(socket, url), what, as_json=as_json, watch=watch, every=every)


def jobs(
    status: Annotated[
        str,
        typer.Option(
            "--status",
            metavar="STATUS",
            help=f"One of {', '.join(JOB_STATUSES)}.",
            autocompletion=complete.words(*JOB_STATUSES),
        ),
    ] = "",
    limit: Limit = 100,
    as_json: Json = False,
    watch: Watch = False,
    every: Every = 2.0,
    socket: Socket = None,
    url: Url = None,
) -> None:
    """List jobs, newest first, and why a waiting one has no runner yet."""
    _one_of("--status", status, JOB_STATUSES)
    what = Look(lambda client: list(client.items("jobs", most=limit, status=status)), tables.jobs_page)
    look(connect(socket, url), what, as_json=as_json, watch=watch, every=every)


def decisions(
    runner: Annotated[
        str,
        typer.Option(
            "--runner", metavar="ID", help="Only about this runner.", autocompletion=complete.any_runners
        ),
    ] = "",
    outcome: Annotated[
        str,
        typer.Option(
            "--outcome",
            metavar="OUTCOME",
            help=f"One of {', '.join(OUTCOMES)}.",
            autocompletion=complete.words(*OUTCOMES),
        ),
    ] = "",
    limit: Limit = 100,
    as_json: Json = False,
    watch: Watch = False,
    every: Every = 2.0,
    socket: Socket = None,
    url: Url = None,
) -> None:
    """List the gate's latest decisions, oldest first: who was nominated, what was seen, what followed."""
    _one_of("--outcome", outcome, OUTCOMES)

    def fetch(client: Client) -> list[dict[str, Any]]:
        found: deque[dict[str, Any]] = deque()
        newest = client.items("decisions", most=limit, runner=runner, outcome=outcome, newest="true")
        for decision in newest:
            found.appendleft(decision)
        return list(found)

    show: Callable[[Any], Page] = tables.decisions_page
    look(connect(socket, url), Look(fetch, show), as_json=as_json, watch=watch, every=every)


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value and value not in allowed:
        raise Failure(Exit.USAGE, f"{option} {value!r} is not known", f"use one of {', '.join(allowed)}")
