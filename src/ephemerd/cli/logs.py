"""`logs`: what a runner's listener prints and its diagnostics, while it lives and afterwards."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any
from urllib.parse import quote

import typer

from ephemerd.cli import complete, output
from ephemerd.cli.client import Client, NotKnown, connect
from ephemerd.cli.failure import Exit, Failure
from ephemerd.cli.options import Json, Socket, Url
from ephemerd.cli.subjects import unique

Plain = dict[str, Any]
LOOK_EVERY = 1.0
TAIL = 256 * 1024
"""Bytes at the end of a log in which the last lines are looked for."""


def logs(
    runner: Annotated[
        str,
        typer.Argument(
            metavar="RUNNER", help="Its id, or the end of it.", autocompletion=complete.any_runners
        ),
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the runner has ended.")] = False,
    file: Annotated[
        str, typer.Option("--file", metavar="NAME", help="One log, by its name; default: output.")
    ] = "output",
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Diagnostics too, each under its name.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="Only the last so many lines; 0 is all.")
    ] = 0,
    as_json: Json = False,
    socket: Socket = None,
    url: Url = None,
) -> int:
    """Show what a runner's listener printed; secrets are hidden. Works also after the runner is gone."""
    client = connect(socket, url)
    if follow and (everything or as_json):
        raise Failure(Exit.USAGE, "--follow shows one log as it grows", "leave --all and --json out")
    found = _find(client, runner)
    names = [str(one["name"]) for one in found["files"]]
    if not everything and file not in names:
        raise Failure(
            Exit.USAGE,
            f"{found['runner']} has no log {file!r}",
            f"there are: {', '.join(names)}" if names else "its logs are not kept any more",
        )
    if as_json:
        wanted = names if everything else [file]
        texts = [{"name": name, "text": _text(client, found, name, lines)} for name in wanted]
        output.emit_json({"runner": found["runner"], "ended": found["ended"], "logs": texts})
    elif everything:
        for name in names:
            print(f"==> {output.clean(name)} <==")
            _write(_text(client, found, name, lines))
    elif follow:
        _follow(client, found, file, lines)
    else:
        _write(_text(client, found, file, lines))
    return Exit.DONE


def _find(client: Client, text: str) -> Plain:
    """Return the logs of the runner that is meant, also of one that the daemon has forgotten but for its logs."""
    try:
        found: Plain = client.get(f"runners/{quote(text)}/logs")
        return found
    except NotKnown as unknown:
        ids = [str(row["id"]) for row in client.items("runners")]
        name = unique(text, [one for one in ids if one.endswith(f"-{text}")])
        if name is None or name == text:
            raise NotKnown(unknown.what, [one for one in ids if text in one][:10]) from None
    again: Plain = client.get(f"runners/{quote(name)}/logs")
    return again


def _start(found: Plain, name: str, lines: int) -> int:
    size = next(int(one["size"]) for one in found["files"] if one["name"] == name)
    return max(0, size - TAIL) if lines else 0


def _text(client: Client, found: Plain, name: str, lines: int) -> str:
    """Return a log as it is now, or its last lines."""
    parts, start = [], _start(found, name, lines)
    while True:
        piece = _piece(client, found["runner"], name, start)
        parts.append(str(piece["text"]))
        if piece["end"] or piece["next"] == start:
            return _last("".join(parts), lines)
        start = piece["next"]


def _last(text: str, lines: int) -> str:
    return "".join(text.splitlines(keepends=True)[-lines:]) if lines else text


def _follow(client: Client, found: Plain, name: str, lines: int) -> None:
    start, first = _start(found, name, lines), bool(lines)
    while True:
        piece = _piece(client, found["runner"], name, start)
        text, start = str(piece["text"]), piece["next"]
        _write(_last(text, lines) if first else text)
        first = False
        if not piece["end"]:
            continue
        if piece["ended"]:
            return
        time.sleep(LOOK_EVERY)


def _piece(client: Client, runner: str, name: str, start: int) -> Plain:
    found: Plain = client.get(f"runners/{quote(runner)}/logs/{quote(name)}", start=start)
    return found


def _write(text: str) -> None:
    """Write lines that a job may have printed: nothing in them steers the terminal."""
    for line in text.splitlines(keepends=True):
        body = line.rstrip("\r\n")
        sys.stdout.write(output.clean(body.replace("\t", "    ")) + ("\n" if body != line else ""))
    sys.stdout.flush()
