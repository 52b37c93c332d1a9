"""Replay of a journal that `ephemerd journal export` wrote: the same events give the same commands.

There is no truth in such a journal: nothing says which job was killed. What is checked is that the core, from the
checkpoint on, gives for each event the commands that were recorded; a foil's are only shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ephemerd.core import codec
from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.machine import RULES
from ephemerd.core.validate import validate
from ephemerd.domain.permit import Permit, Warrant
from ephemerd.testing.simulate.incidents import Report
from ephemerd.testing.simulate.journal import FROM_ROWS
from ephemerd.testing.simulate.scheduler import Factory, Gate

SAME_COMMANDS = "each event gives the commands that were recorded"
SOUND = "the state at the end holds together"


class Unreadable(ValueError):
    """The file is no incident and no exported journal; the message says where."""


def replay_exported(path: Path, policy: Factory = Gate) -> Report:
    """Feed an exported segment to the scheduler. Raises `Unreadable`."""
    lines = _lines(path)
    first = next(lines)
    if first.get("rules") != RULES:
        raise Unreadable(
            f"its rules are version {first.get('rules')!r}, these are {RULES!r}: replay it with the program that "
            "wrote it"
        )
    scheduler, report = policy(), Report(path.name)
    scheduler.reload(_rows(first), int(first.get("stands_at", FROM_ROWS)))
    different = ""
    for number, line in enumerate(lines, 2):
        event, now, recorded = _entry(number, line)
        step = scheduler.handle(event, now)
        report.events += int(not isinstance(event, ev.Woke))
        report.decisions.extend(step.decisions)
        for command in step.commands:
            if isinstance(command, cm.Destroy) and _ends_something(command.permit):
                report.destroyed.append((now, command.permit.runner))
        if policy is Gate and not different and codec.command_hash(step.commands) != recorded:
            different = f"entry {line.get('seq')} ({type(event).__name__}) gives other commands"
    if policy is Gate:
        problems = validate(scheduler.state)
        report.problems += [different] if different else []
        report.problems += problems
        report.expectations = [(SAME_COMMANDS, not different), (SOUND, not problems)]
    return report


def _ends_something(permit: Permit) -> bool:
    """Say whether a permit ends what runs: it neither asks politely, nor tidies up what had ended by itself."""
    return not permit.polite and permit.warrant is not Warrant.ENDED


def is_exported(path: Path) -> bool:
    """Say whether a file begins as an exported journal does. Raises `Unreadable` where it is neither kind."""
    kind = next(_lines(path)).get("kind")
    if kind not in ("checkpoint", "note"):
        raise Unreadable(
            "its first line is neither a note (an incident) nor a checkpoint (an exported journal)"
        )
    return bool(kind == "checkpoint")


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    empty = True
    try:
        with path.open(encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    empty = False
                    yield _line(number, text)
    except UnicodeDecodeError as error:
        raise Unreadable(f"it is no text: {error}") from None
    if empty:
        raise Unreadable("it is empty")


def _line(number: int, text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError as error:
        raise Unreadable(f"line {number}: {error}") from None
    if not isinstance(line, dict):
        raise Unreadable(f"line {number} is no object")
    return line


def _rows(first: dict[str, Any]) -> dict[str, dict[str, Any]]:
    try:
        return {
            kind: {name: codec.decode_row(kind, row) for name, row in found.items()}
            for kind, found in first["rows"].items()
        }
    except (KeyError, AttributeError, ValueError) as error:
        raise Unreadable(f"line 1: its rows cannot be read: {error}") from None


def _entry(number: int, line: dict[str, Any]) -> tuple[ev.Event, int, str]:
    try:
        return codec.decode_event(line["event"]), int(line["now"]), str(line["commands"])
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"line {number}: no entry of a journal: {error}") from None
