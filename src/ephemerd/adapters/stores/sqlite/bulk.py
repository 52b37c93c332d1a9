"""Many rows a statement.

Each statement gives the interpreter's lock away and has to get it back, which beside a busy loop takes longer than the
work itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

AT_ONCE = 64
"""Rows of one statement at most, a power of two: with five values each below the 999 that any SQLite takes."""


def statements(text: str, row: str, rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[str, list[Any]]]:
    """Yield statements, and their values, that together are about all rows; `{}` in the text stands for rows, each
    written as `row`.

    The numbers of their rows are powers of two, so that there are few texts to compile.
    """
    place, left, size = 0, len(rows), AT_ONCE
    while left:
        while size > left:
            size //= 2
        values = [value for one in rows[place : place + size] for value in one]
        yield text.format(", ".join([row] * size)), values
        place, left = place + size, left - size
