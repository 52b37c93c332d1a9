"""`drain`: cordon until no runner is left, and with --wait show for whom it still waits."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Protocol

import typer

from ephemerd.cli import output
from ephemerd.cli.client import Client, connect
from ephemerd.cli.failure import Exit, Failure, complain
from ephemerd.cli.operate import TargetName, target_of, tell, who
from ephemerd.cli.options import Json, Reason, Socket, Url, common
from ephemerd.config.units import parse_duration

Plain = dict[str, Any]
WAIT_EVERY = 1.0
NAMED = 3
"""Runners that the bar of progress names."""


def drain(
    context: typer.Context,
    target: TargetName = "",
    reason: Reason = "",
    wait: Annotated[bool, typer.Option("--wait", help="Return only when no runner is left there.")] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="DURATION", help='With --wait: give up after e.g. "30m".')
    ] = "none",
    as_json: Json = False,
    socket: Socket = None,
    url: Url = None,
) -> int:
    """Cordon until no runner is left there. Running jobs are waited for, never ended."""
    client, limit = connect(socket, url), _limit(timeout)
    where = target_of(client, target)
    answer = client.post("drain", {**where, "reason": reason, "who": who()})
    if not wait:
        tell(answer, as_json)
        return Exit.DONE
    began = time.monotonic()
    with _progress(quiet=common(context).quiet or as_json) as progress:
        left, why = _wait(client, where, limit, progress)
    waited = round(time.monotonic() - began, 1)
    if as_json:
        answer = {
            **answer,
            **where,
            "done": not left,
            "waited_s": waited,
            "left": [_who(row) for row in left],
        }
        if left:
            answer |= {"outcome": "pending", "detail": why}
        else:
            answer["detail"] = "drained: no runner is left"
        output.emit_json(answer)
    elif not left:
        print("drained: no runner is left")
    if not left:
        return Exit.DONE
    complain(f"{why}; still there: {_names(left)}", "wait longer, or end a runner by 'ephemerd kill'")
    return Exit.REFUSED


def _limit(timeout: str) -> float | None:
    if timeout == "none":
        return None
    try:
        return parse_duration(timeout) / 1_000
    except ValueError as error:
        raise Failure(Exit.USAGE, f"--timeout {timeout!r}: {error}", "write e.g. --timeout 30m") from None


class Shown(Protocol):
    """Shows how far a drain is."""

    def show(self, left: list[Plain]) -> None:
        """Who is left now."""


def _wait(client: Client, where: Plain, limit: float | None, progress: Shown) -> tuple[list[Plain], str]:
    """Wait until nothing holds a slot there; return who is left, and why the wait ended with somebody there."""
    began = time.monotonic()
    while True:
        left = _holding(client, where)
        progress.show(left)
        if not left:
            return [], ""
        if not _cordoned(client, where):
            return left, "the drain was ended by an uncordon"
        if limit is not None and time.monotonic() - began >= limit:
            return left, "not drained in time; the drain goes on"
        time.sleep(WAIT_EVERY)


def _holding(client: Client, where: Plain) -> list[Plain]:
    live = [row for row in client.items("runners") if row["state"] not in {"gone", "abandoned"}]
    if where["target"] == "all":
        return live
    return [row for row in live if row[where["target"]] == where["name"]]


def _cordoned(client: Client, where: Plain) -> bool:
    if where["target"] == "all":
        return bool(client.get("status")["draining"])
    rows = client.get(f"{where['target']}s")["items"]
    return next((bool(row["cordoned"]) for row in rows if row["name"] == where["name"]), True)


def _who(row: Plain) -> Plain:
    return {key: row[key] for key in ("id", "pool", "state", "since_s", "job")}


def _names(left: list[Plain]) -> str:
    return output.clean(", ".join(f"{row['id']} ({row['state']})" for row in left))


class _Lines:
    """A line on stderr whenever something changed."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._said = ""

    def show(self, left: list[Plain]) -> None:
        names = _names(left)
        if names and names != self._said:
            output.note(f"waits for {names}", quiet=self._quiet)
        self._said = names


class _Bar:
    """A bar on a terminal: how many of those that were there are gone, and whom it waits for."""

    def __init__(self, progress: Any, task: Any) -> None:
        self._progress = progress
        self._task = task
        self._most = 0

    def show(self, left: list[Plain]) -> None:
        self._most = max(self._most, len(left))
        names = _names(left[:NAMED]) + (f" and {len(left) - NAMED} more" if len(left) > NAMED else "")
        text = f"waits for {names}" if left else "drained"
        self._progress.update(
            self._task, total=self._most, completed=self._most - len(left), description=text
        )


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Shown]:
    if quiet or not sys.stderr.isatty():
        yield _Lines(quiet=quiet)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TimeElapsedColumn(),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bar(progress, progress.add_task("", total=None))
