"""`explain`: the whole story of one runner or job, in order, with the evidence of each decision."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Annotated, Any

import typer

from ephemerd.cli import complete, output
from ephemerd.cli.client import Client, NotKnown, connect
from ephemerd.cli.narrative import DECISION, Teller, narrate
from ephemerd.cli.options import Json, Socket, Url
from ephemerd.cli.subjects import find_story

Plain = dict[str, Any]


def explain(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="RUNNER_OR_JOB",
            help="A runner's id or a part of it, a job's number or its whole id.",
            autocompletion=complete.subjects,
        ),
    ],
    full: Annotated[
        bool, typer.Option("--full", help="Every event, also those that repeat, and whole ids.")
    ] = False,
    as_json: Json = False,
    socket: Socket = None,
    url: Url = None,
) -> None:
    """Tell what happened to a runner or job: first the answer, then each event and decision with its evidence.

    Times are those of this machine, and since the beginning of the story.
    """
    client = connect(socket, url)
    story = with_runner(client, find_story(client, subject))
    if as_json:
        output.emit_json(story)
        return
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else 0
    told = narrate(story, decisions(client, story), Teller(width, full, _now(story)))
    if not terminal:
        print("\n".join(line.text for line in told))
        return
    from ephemerd.cli import screen

    screen.print_lines((line.text, line.style) for line in told)


def decisions(client: Client, story: Plain) -> list[Plain]:
    """Return the gate's decisions about the runner that the story is about, or about the job's."""
    ids = {line["subject"] for line in story["lines"] if line["kind"] == DECISION}
    return [one for runner in sorted(ids) for one in client.items("decisions", runner=runner)]


def _now(story: Plain) -> int:
    """Return the daemon's clock, as its rows tell it, else this machine's."""
    row = story["runner"] or story["job"]
    return round(row["since"] + row["since_s"] * 1_000 if row else time.time() * 1_000)


def with_runner(client: Client, story: Plain) -> Plain:
    """Return a job's story with that of our runner which had it, in order; a runner's story as it is.

    Of the runner's lines those about other jobs are left out. A runner that nobody knows any more adds
    nothing.
    """
    job = story["job"]
    if not job or not job["ours"] or not job["runner"]:
        return story
    try:
        runner = client.story(str(job["runner"]))
    except NotKnown:
        return story
    known = {(line["kind"], line["seq"]) for line in story["lines"]}
    added = [
        line
        for line in runner["lines"]
        if line["subject"] in {"", job["runner"], story["subject"]}
        and (line["kind"], line["seq"]) not in known
    ]
    ordered = sorted([*story["lines"], *added], key=_moment)
    return {**story, "lines": ordered}


def _moment(line: Plain) -> tuple[int, bool, int]:
    """In the order of time; a decision after the events of its millisecond, which caused it."""
    return line["at"], line["kind"] == DECISION, line["seq"]
