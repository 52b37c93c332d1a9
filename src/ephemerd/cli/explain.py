"""`explain`: the whole story of one runner or job, in order, with the evidence of each decision."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import Annotated, Any

import typer

from ephemerd.cli import complete, output, tables
from ephemerd.cli.client import Client, NotKnown, connect
from ephemerd.cli.options import Json, Socket, Url
from ephemerd.cli.output import clean, clock, span
from ephemerd.cli.subjects import find_story

Plain = dict[str, Any]
DECISION = "Decision"
TIME_WIDTH = 14  # "HH:MM:SS.mmm" and two blanks


def explain(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="RUNNER_OR_JOB",
            help="A runner's id or a part of it, a job's number or its whole id.",
            autocompletion=complete.subjects,
        ),
    ],
    as_json: Json = False,
    socket: Socket = None,
    url: Url = None,
) -> None:
    """Tell what happened to a runner or job: each event, decision and its evidence, in order."""
    client = connect(socket, url)
    story = with_runner(client, find_story(client, subject))
    if as_json:
        output.emit_json(story)
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    print("\n".join(told(story, width)))


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


def told(story: Plain, width: int = 0) -> list[str]:
    """Return the story as lines; wrapped to `width` columns, not at all for 0."""
    lines = [f"{clean(story['kind'])} {clean(story['subject'])}", *_present(story), ""]
    day = ""
    for line in story["lines"]:
        today = clock(line["at"], day=True)[:10]
        if today != day:
            lines.append(today)
            day = today
        lines += _line(line, story["subject"], width)
    if not story["lines"]:
        lines.append("(its events are no longer in the journal)")
    return lines


def _line(line: Plain, subject: str, width: int) -> list[str]:
    text = clean(line["text"])
    if line["subject"] and line["subject"] != subject:
        text = f"[{clean(line['subject'])}] {text}"
    if line["kind"] == DECISION:
        text = f"=> {text}"
    lead = clock(line["at"], fine=True).ljust(TIME_WIDTH)
    shown = _wrap(lead, text, width)
    for evidence in line["evidence"]:
        shown += _wrap(" " * TIME_WIDTH + "   ", f"- {clean(evidence)}", width)
    return shown


def _wrap(lead: str, text: str, width: int) -> list[str]:
    if width < 2 * TIME_WIDTH:
        return [lead + text]
    later = " " * (len(lead) + (2 if text.startswith("- ") else 3 if text.startswith("=> ") else 0))
    return textwrap.wrap(
        text,
        width,
        initial_indent=lead,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [lead]


def _present(story: Plain) -> list[str]:
    """What it is now, in a line or two."""
    if runner := story["runner"]:
        job = f", job {clean(runner['job'])}" if runner["job"] else ""
        intent = f", made for {clean(runner['intent'])}" if runner["intent"] else ""
        return [
            f"now {clean(runner['state'])} for {span(runner['since_s'])}, pool {clean(runner['pool'])}{job}{intent}",
            *([f"note: {note}"] if (note := tables.runner_note(runner)) != "-" else []),
        ]
    if job := story["job"]:
        state = f"{job['status']} ({job['conclusion']})" if job["conclusion"] else job["status"]
        where = f", on {job['runner']}" if job["runner"] else ""
        why = [f"not running yet: {clean(job['why'])}"] if job["why"] else []
        asks = ", ".join(job["labels"]) or "no label"
        return [clean(f"now {state} for {span(job['since_s'])}, asks for {asks}{where}"), *why]
    return ["no longer in the daemon's lists; this is from the journal"]
