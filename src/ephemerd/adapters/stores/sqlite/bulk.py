"""Many rows a statement.

Each statement gives the interpreter's lock away and has to get it back, which beside a busy loop takes longer than the
work itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

AT_ONCE = 32
"""Rows of one statement at most: with five values each far below the 999 that any SQLite takes."""


def statements(text: str, row: str, rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[str, list[Any]]]:
    """Yield statements, and their values, that together are about all rows; `{}` in the text stands for rows, each
    written as `row`.

    There is one text for each number of rows, of which a connection keeps as many compiled as it is told to.
    """
    for place in range(0, len(rows), AT_ONCE):
        some = rows[place : place + AT_ONCE]
        yield _written(text, row, len(some)), [value for one in some for value in one]


@lru_cache(maxsize=512)
def _written(text: str, row: str, count: int) -> str:
    return text.format(", ".join([row] * count))
