"""What people see: tables, plain when not a terminal; JSON; times; nothing that could steer a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of plain texts under titles. `right` are the columns of numbers; the others than `wraps` keep
    their line."""

    titles: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    right: frozenset[int] = frozenset()
    wraps: frozenset[int] = frozenset()
    empty: str = "nothing"


@dataclass(frozen=True, slots=True)
class Facts:
    """Titles with a text each, of which a long one goes on below itself."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Points:
    """Sentences, each with a dash before it."""

    lines: Sequence[str]


Part = str | Table | Facts | Points


@dataclass(frozen=True, slots=True)
class Page:
    """What one look shows, in order."""

    parts: list[Part] = field(default_factory=list)


def clean(text: object) -> str:
    """Return a text with control signs replaced: names come from strangers."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in str(text))


def emit_json(value: Any, *, line: bool = False) -> None:
    """Write JSON to stdout: one line for machines that read lines, indented for a terminal."""
    indent = 2 if sys.stdout.isatty() and not line else None
    print(json.dumps(value, ensure_ascii=False, indent=indent), flush=True)


def emit(page: Page) -> None:
    """Write a page to stdout: with rich on a terminal, else as aligned text."""
    if sys.stdout.isatty():
        from ephemerd.cli import screen

        screen.show(page)
        return
    print(plain_page(page), flush=True)


def plain_page(page: Page) -> str:
    """Return a page as text, nothing cut, and nothing wrapped."""
    return "\n".join(filter(None, map(_plain_part, page.parts)))


def _plain_part(part: Part) -> str:
    if isinstance(part, Table):
        return plain(part)
    if isinstance(part, Facts):
        return "\n".join(f"{title + ':':<12}{text}" for title, text in part.rows)
    return part if isinstance(part, str) else "\n".join(f"  - {line}" for line in part.lines)


def plain(table: Table) -> str:
    """Return a table as aligned text, nothing cut."""
    if not table.rows:
        return table.empty
    rows = [table.titles, *table.rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.titles))]
    return "\n".join(_plain_row(row, widths, table.right) for row in rows)


def _plain_row(row: tuple[str, ...], widths: list[int], right: frozenset[int]) -> str:
    cells = [
        cell.rjust(width) if column in right else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def clock(ms: int | None, *, day: bool = False, fine: bool = False) -> str:
    """Return a moment in local time; `fine` adds milliseconds, `day` the date."""
    if ms is None:
        return "-"
    moment = datetime.fromtimestamp(ms / 1_000).astimezone()
    text = moment.strftime("%Y-%m-%d %H:%M:%S" if day else "%H:%M:%S")
    return f"{text}.{ms % 1_000:03d}" if fine else text


def span(seconds: float | None) -> str:
    """Return a duration in at most two units: `4s`, `3m 20s`, `2h 5m`, `3d 4h`."""
    if seconds is None:
        return "-"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    for big, size, small, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size}{big} {rest}{small}" if rest else f"{whole // size}{big}"
    return f"{whole}s"


def or_dash(value: object, form: Callable[[Any], str] = clean) -> str:
    """Return the value as text, a dash for nothing."""
    return form(value) if value not in (None, "", ()) else "-"


def note(text: str, *, quiet: bool = False) -> None:
    """Write a line of progress to stderr."""
    if not quiet:
        print(text, file=sys.stderr, flush=True)
