"""`journal export`: a segment of the journal as JSON lines, from the daemon or from a store's file.

The first line is the checkpoint: the version of the rules and the rows that the segment starts from. Each
further line is one entry: when (ms of the shell clock), the event, and the hash of the commands that followed.
`ephemerd replay` reads it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from ephemerd.cli.client import connect
from ephemerd.cli.failure import Exit, Failure
from ephemerd.cli.options import Socket, Url, common
from ephemerd.cli.output import note

Plain = dict[str, Any]
DATABASE = b"SQLite format 3\0"

app = typer.Typer(
    name="journal",
    help="The daemon's journal: every event, and the hash of what it ordered.",
    epilog="Example: ephemerd journal export --out journal.jsonl",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """The daemon's journal: every event, and the hash of what it ordered."""


@app.command(
    "export",
    short_help="Write a segment, for replay.",
    epilog="Example: ephemerd journal export --out journal.jsonl",
)
def export(
    context: typer.Context,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write here; else to stdout.")
    ] = None,
    segment: Annotated[
        int | None, typer.Option("--segment", min=1, help="This segment; else the newest.")
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="FILE", help="Read a store's file instead of asking the daemon."),
    ] = None,
    socket: Socket = None,
    url: Url = None,
) -> int:
    """Write a segment of the journal as JSON lines, for `ephemerd replay`."""
    if store is not None and (socket is not None or url is not None):
        raise Failure(Exit.USAGE, "--store and a daemon are both given", "keep one of them")
    lines = _from_file(store, segment) if store is not None else _from_daemon(socket, url, segment)
    written = write_lines(lines, out)
    if out is not None:
        note(f"{written - 1:,} events written to {out}", quiet=common(context).quiet)
    return Exit.DONE


def _first(number: int, rules: str, first_seq: int, rows: Any, stands_at: int) -> Plain:
    return {
        "kind": "checkpoint",
        "segment": number,
        "rules": rules,
        "first_seq": first_seq,
        "stands_at": stands_at,
        "rows": rows,
    }


def _from_daemon(socket: Path | None, url: str | None, segment: int | None) -> Iterator[Plain]:
    client = connect(socket, url)
    view = client.get(f"segments/{'newest' if segment is None else segment}")
    yield _first(view["number"], view["rules"], view["first_seq"], view["rows"], view.get("stands_at", 0))
    for entry in client.items("journal", most=sys.maxsize, first=view["first_seq"] - 1):
        if entry["segment"] != view["number"]:
            return
        yield {
            "seq": entry["seq"],
            "now": entry["at"],
            "event": entry["event"],
            "commands": entry["commands"],
        }


def _from_file(store: Path, segment: int | None) -> Iterator[Plain]:
    from ephemerd.storing import StartError, journal_of

    try:
        with journal_of(store, segment) as (found, entries):
            begun = found.checkpoint
            yield _first(
                found.number, found.rules, found.first_seq, begun.get("rows", {}), begun.get("at", 0)
            )
            for entry in entries:
                yield {
                    "seq": entry.seq,
                    "now": entry.now,
                    "event": entry.event,
                    "commands": entry.commands,
                }
    except StartError as error:
        raise Failure(error.code, str(error), error.todo) from None


def write_lines(lines: Iterable[Plain], out: Path | None) -> int:
    """Write the lines; a file is made for this user only, and only when there is something to write."""
    waiting = iter(lines)
    first = next(waiting)
    if out is None:
        return _dump(first, waiting, sys.stdout)
    if _is_database(out):
        raise Failure(Exit.USAGE, f"{out} is a database and would be lost", "name another file with --out")
    try:
        file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as target:
            return _dump(first, waiting, target)
    except OSError as error:
        what = f"{out} cannot be written: {error.strerror or error}"
        raise Failure(Exit.ENVIRONMENT, what, "name another file with --out") from None


def _is_database(path: Path) -> bool:
    """Say whether it may be a store: an export never goes over one."""
    if not path.is_file():  # a pipe would wait for ever
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(DATABASE)) == DATABASE
    except OSError:
        return False


def _dump(first: Plain, rest: Iterator[Plain], target: TextIO) -> int:
    target.write(json.dumps(first) + "\n")
    count = 1
    for line in rest:
        target.write(json.dumps(line) + "\n")
        count += 1
    target.flush()
    return count
