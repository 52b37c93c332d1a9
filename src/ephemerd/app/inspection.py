"""What the rows of a store say, looked at without a daemon: can each be read, and do they hold together?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ephemerd.core import codec
from ephemerd.core.machine import Core
from ephemerd.core.validate import validate
from ephemerd.ports.store import Loaded

Unreadable = tuple[str, str, str]
"""Kind, id, and why the row cannot be read."""


def unreadable(loaded: Loaded) -> list[Unreadable]:
    """Return the rows that this version cannot read."""
    _, found = _read(loaded)
    return found


def problems(loaded: Loaded) -> list[str]:
    """Return what does not hold together in the state that the readable rows make."""
    rows, broken = _read(loaded)
    found = [*_names(rows), *_belongings(rows)]
    if broken:
        return found  # what refers to a row that is missing here would be a problem of that row
    try:
        return [*found, *validate(Core(rows).state)]
    except Exception as error:
        return [*found, f"no state can be made of the rows: {type(error).__name__}: {error}"]


def _read(loaded: Loaded) -> tuple[dict[str, dict[str, Any]], list[Unreadable]]:
    """Return the rows that can be read, and which cannot."""
    rows: dict[str, dict[str, Any]] = {}
    broken: list[Unreadable] = []
    for kind, texts in loaded.rows.items():
        of_kind = rows[kind] = {}
        for key, text in texts.items():
            try:  # a kind that is not known is told of each of its rows
                of_kind[key] = codec.row_reader(kind)(text)
            except (ValueError, KeyError, TypeError) as error:
                broken.append((kind, key, str(error)))
    return rows, broken


def _names(rows: dict[str, dict[str, Any]]) -> list[str]:
    """A row stands under its own name."""
    own: dict[str, Callable[[Any], str]] = {
        "runner": lambda row: row.id,
        "job": lambda row: str(row.key),
        "pool": lambda row: row.pool.name,
        "host": lambda row: row.name,
        "scope": lambda row: str(row.scope),
    }
    return [
        f"{kind} {key}: the row is of {name(row)}"
        for kind, name in own.items()
        for key, row in rows.get(kind, {}).items()
        if name(row) != key
    ]


def _belongings(rows: dict[str, dict[str, Any]]) -> list[str]:
    """A runner's pool and host are known."""
    return [
        f"runner {key}: its {what} {name!r} is not there"
        for key, row in rows.get("runner", {}).items()
        for what, name in (("pool", row.pool), ("host", row.host))
        if name not in rows.get(what, {})
    ]
