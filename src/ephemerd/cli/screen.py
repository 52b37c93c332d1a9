"""Pages on a terminal, by rich: they fit its width, cells wrap below themselves, and an id is never cut.

Loaded only where there is a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

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


def print_lines(found: Iterable[tuple[str, str]]) -> None:
    """Print lines that fit already, each with its style, to stdout."""
    terminal = console()
    for text, style in found:
        terminal.print(Text(text, style=style), soft_wrap=True)


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


def table(found: Table, width: int) -> RichTable:
    """Return a table for so many columns. Where there is no room titles break at their blanks."""
    if sum(_widths(found)) + GAP * (len(found.titles) - 1) > width:
        found = replace(found, titles=tuple(_broken(found, column) for column in range(len(found.titles))))
    keeps = _keeping(found, width)
    shown = RichTable(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column, title in enumerate(found.titles):
        shown.add_column(
            title,
            justify="right" if column in found.right else "left",
            no_wrap=column in keeps,
            overflow="ellipsis" if column in keeps else "fold",
        )
    for row in found.rows:
        shown.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    return shown


def _broken(found: Table, column: int) -> str:
    """Return a title in lines no wider than its cells, as far as its words allow."""
    words = found.titles[column].split(" ")
    room = max(cell_len(text) for text in (*words, *(row[column] for row in found.rows)))
    lines = [words[0]]
    for word in words[1:]:
        if cell_len(lines[-1]) + 1 + cell_len(word) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines)


def lines(found: Table, width: int) -> list[Text]:
    """Return the title and each row as one line: cells that would wrap are cut, for a view that knows its height."""
    widths = _cut(_widths(found), found.wraps, width)
    title = [Text(cell, style="bold") for cell in found.titles]
    body = [[Text(cell, style=STYLES.get(cell, "")) for cell in row] for row in found.rows]
    return [_line(row, widths, found.right, width) for row in (title, *body)]


def _line(row: list[Text], widths: list[int], right: frozenset[int], width: int) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    for column, cell in enumerate(row):
        cell.truncate(widths[column], overflow="ellipsis")
        line.append(" " * (widths[column] - cell.cell_len) if column in right else "")
        line.append_text(cell)
        line.append(" " * (widths[column] - cell.cell_len) if column not in right else "")
        line.append(" " * GAP)
    line.rstrip()
    line.truncate(width, overflow="ellipsis")
    return line


def _widths(found: Table) -> list[int]:
    texts = [
        [*title.split("\n"), *(row[column] for row in found.rows)]
        for column, title in enumerate(found.titles)
    ]
    return [max(map(cell_len, column)) for column in texts]


def _cut(widths: list[int], wraps: frozenset[int], width: int) -> list[int]:
    """Take from the widest column that may be cut until the sum fits, then from any."""
    found, least = list(widths), LEAST // 2
    over = sum(found) + GAP * (len(found) - 1) - width
    for columns in (wraps, frozenset(range(len(found)))):
        while over > 0 and columns:
            widest = max(columns, key=lambda column: found[column])
            if found[widest] <= least:
                break
            found[widest] -= 1
            over -= 1
    return found


def _keeping(found: Table, width: int) -> frozenset[int]:
    """Return the columns that keep their line: all that are not to wrap, or, where these leave no room, the
    numbers and whatever is short."""
    widths = _widths(found)
    fixed = [column for column in range(len(widths)) if column not in found.wraps]
    wrapping = sum(min(widths[column], LEAST) for column in found.wraps)
    if sum(widths[column] for column in fixed) + wrapping + GAP * (len(widths) - 1) <= width:
        return frozenset(fixed)
    return frozenset(column for column in fixed if column in found.right or widths[column] <= LEAST)
