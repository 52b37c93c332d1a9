"""`top`: health, pools, queue and runners on one screen that changes as they do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from ephemerd.cli import output, tables
from ephemerd.cli.client import Client, Plain, connect
from ephemerd.cli.failure import Exit
from ephemerd.cli.looks import can_move, fetched
from ephemerd.cli.options import Every, Socket, Url
from ephemerd.cli.output import Facts, Page, Points, Table, clean, span

QUEUE = 50
RUNNERS = 500
DEADLINE = 3.0
"""Seconds for one request: a person waits for the next picture."""
SORTS: dict[str, Callable[[Plain], Any]] = {
    "newest": lambda row: 0,  # as the daemon lists them
    "state": lambda row: (tables.STATE_ORDER.get(row["state"], 99), -row["since_s"]),
    "age": lambda row: -row["age_s"],
    "pool": lambda row: (row["pool"], -row["age_s"]),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look brought: views as the API gives them, jobs those that wait."""

    status: Plain
    pools: list[Plain]
    jobs: list[Plain]
    runners: list[Plain]


@dataclass(frozen=True, slots=True)
class Wish:
    """What the person wants to see: how runners are sorted, the first one shown, and whether gone ones are."""

    sort: str = "newest"
    first: int = 0
    gone: bool = False


def top(
    every: Every = 2.0,
    count: Annotated[
        int, typer.Option("--count", metavar="N", min=0, help="End after so many looks; 0 goes on.")
    ] = 0,
    socket: Socket = None,
    url: Url = None,
) -> int:
    """Show health, pools, the queue with its reasons and the runners, live.

    Keys: q ends, up and down scroll the runners, s sorts them anew, g shows gone ones too. Where the cursor cannot be
    moved, page after page is printed.
    """
    client = connect(socket, url)
    client.deadline = DEADLINE
    seen = fetch(client)
    if not can_move():
        return _pages(client, seen, every, count)
    from ephemerd.cli import top_screen

    return top_screen.run(client, seen, every, count)


def fetch(client: Client) -> Seen:
    """Look once."""
    waiting = [
        job for status in ("waiting", "queued") for job in client.items("jobs", most=QUEUE, status=status)
    ]
    waiting.sort(key=lambda job: job["waited_s"], reverse=True)
    return Seen(
        status=client.get("status"),
        pools=list(client.get("pools")["items"]),
        jobs=waiting,
        runners=list(client.items("runners", most=RUNNERS)),
    )


def _pages(client: Client, seen: Seen, every: float, count: int) -> int:
    """Print page after page, each whole."""
    looks, waits = 0, False
    found: Seen | None = seen
    notice = ""
    while True:
        if found is not None:
            print(f"--- {output.clock(round(time.time() * 1_000))}")
            print(output.plain_page(whole(found)), flush=True)
        elif not waits:
            output.note(notice)
        waits = found is None
        looks += 1
        if looks == count:
            return Exit.DONE
        time.sleep(every)
        found, notice = fetched(client, fetch)


def whole(seen: Seen) -> Page:
    """Return everything as one page."""
    shown = [row for row in seen.runners if row["state"] != "gone"]
    parts = [*head(seen.status), tables.pools_page(seen.pools), tables.jobs_page(seen.jobs)]
    parts.append(tables.runners_page(shown))
    flat: list[Any] = []
    for part in parts:
        flat += part.parts if isinstance(part, Page) else [part]
    return Page(flat)


def head(status: Plain) -> list[Any]:
    """Return health and the daemon in a few lines."""
    health = status["health"]
    held = f"{status['slots_held']} of {status['slots']} held"
    return [
        clean(health["status"]),
        Points([clean(reason) for reason in health["reasons"]]),
        Facts(
            [
                ("daemon", f"{tables.daemon_state(status)}, up {span(status['uptime_s'])}"),
                ("slots", held),
                ("jobs", tables.counts(status["jobs"])),
            ]
        ),
    ]


def queue(jobs: list[Plain]) -> Table:
    """Return who waits, the longest first, and why."""
    rows = [
        (
            str(job["number"]),
            clean(job["repository"]),
            clean(job["name"]) or "-",
            span(job["waited_s"]),
            clean(job["why"] or job["status"]),
        )
        for job in jobs
    ]
    titles = ("WAITING", "REPOSITORY", "NAME", "FOR", "WHY")
    return Table(titles, rows, frozenset({3}), frozenset({1, 2, 4}), "nobody waits")


def pools(found: list[Plain]) -> Table:
    """Return the pools in short."""
    rows = [
        (
            clean(pool["name"]),
            f"{pool['held']}/{pool['max_concurrent']}",
            str(pool["queued"]),
            tables.counts({state: n for state, n in pool["runners"].items() if state != "gone"}),
            tables.pool_note(pool).strip(" ()") or "-",
        )
        for pool in found
    ]
    return Table(
        ("POOL", "HELD", "QUEUED", "RUNNERS", "NOTE"), rows, frozenset({1, 2}), frozenset({3, 4}), "no pools"
    )


def runners(found: list[Plain], wish: Wish) -> Table:
    """Return the runners as wished, all of them."""
    rows = [row for row in found if wish.gone or row["state"] != "gone"]
    rows.sort(key=SORTS[wish.sort])
    cells = [
        (
            clean(row["id"]),
            clean(row["pool"]),
            clean(row["state"]),
            span(row["since_s"]),
            span(row["age_s"]),
            tables.job_of(row),
            tables.runner_note(row),
        )
        for row in rows
    ]
    titles = ("RUNNER", "POOL", "STATE", "FOR", "AGE", "JOB", "NOTE")
    return Table(titles, cells, frozenset({3, 4}), frozenset({5, 6}), "no runners")


def pressed(wish: Wish, key: str, total: int) -> Wish | None:
    """Return what a key makes of the wish; None ends it. `total` is how many runners there are."""
    if key in {"q", "Q", "\x1b", "\x03", "\x04"}:
        return None
    if key == "s":
        names = list(SORTS)
        return replace(wish, sort=names[(names.index(wish.sort) + 1) % len(names)], first=0)
    if key == "g":
        return replace(wish, gone=not wish.gone, first=0)
    step = {"down": 1, "j": 1, "up": -1, "k": -1, "page down": 10, " ": 10, "page up": -10}.get(key, 0)
    first = {"home": 0, "end": total - 1}.get(key, wish.first + step)
    return replace(wish, first=max(0, min(first, total - 1)))
