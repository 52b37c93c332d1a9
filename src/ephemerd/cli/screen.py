"""Pages on a terminal, by rich: they fit its width, cells wrap below themselves, and an id is never cut.

Loaded only where there is a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from ephemerd.cli.output import Facts, Page, Part, Points, Table

STYLES = {
    "ok": "bold green",
    "degraded": "bold yellow",
    "stuck": "bold red",
    "abandoned": "bold red",
    "running": "cyan",
    "busy": "cyan",
    "retiring": "yellow",
    "vetoed": "yellow",
    "escaped": "bold red",
    "reaped": "green",
    "queued": "yellow",
    "failure": "red",
    "success": "green",
}
GAP = 2
LEAST = 12
"""Columns that a cell which wraps should have at least, before one that keeps its line has to fold."""


def console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Return a console that takes texts as they are."""
    return Console(highlight=False, markup=False, emoji=False, stderr=stderr, width=width)


def show(page: Page) -> None:
    """Print a page to stdout."""
    terminal = console()
    terminal.print(render(page, terminal.width))


def render(page: Page, width: int) -> Group:
    """Return a page for so many columns."""
    return Group(*(_part(part, width) for part in page.parts))


def _part(part: Part, width: int) -> RenderableType:
    if isinstance(part, Table):
        return table(part, width) if part.rows else Text(part.empty)
    if isinstance(part, Facts):
        return _facts((f"{title}:", text) for title, text in part.rows)
    if isinstance(part, Points):
        return Padding(_facts(("-", line) for line in part.lines), (0, 0, 0, 2))
    return Text(part, style=STYLES.get(part, ""))


def _facts(rows: Iterable[tuple[str, str]]) -> RichTable:
    shown = RichTable.grid(padding=(0, 1))
    shown.add_column(no_wrap=True)
    shown.add_column(overflow="fold")
    for title, text in rows:
        shown.add_row(Text(title), Text(text))
    return shown


def table(found: Table, width: int, *, one_line: bool = False) -> RichTable:
    """Return a table for so many columns. `one_line` cuts cells instead of wrapping them: for a view that has to
    know its height."""
    keeps = _keeping(found, width)
    shown = RichTable(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column, title in enumerate(found.titles):
        keep = one_line or column in keeps
        shown.add_column(
            title,
            justify="right" if column in found.right else "left",
            no_wrap=keep,
            overflow="ellipsis" if keep else "fold",
        )
    for row in found.rows:
        shown.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    return shown


def _keeping(found: Table, width: int) -> frozenset[int]:
    """Return the columns that keep their line: all that are not to wrap, or, where these leave no room, the
    numbers and whatever is short."""
    widths = [
        max(cell_len(row[column]) for row in (found.titles, *found.rows))
        for column in range(len(found.titles))
    ]
    fixed = [column for column in range(len(widths)) if column not in found.wraps]
    wrapping = sum(min(widths[column], LEAST) for column in found.wraps)
    if sum(widths[column] for column in fixed) + wrapping + GAP * (len(widths) - 1) <= width:
        return frozenset(fixed)
    return frozenset(column for column in fixed if column in found.right or widths[column] <= LEAST)
