"""What is read: each function is called in the thread of the connection that it is given."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any

from ephemerd.adapters.stores.sqlite.bulk import statements
from ephemerd.core.codec import plain_from
from ephemerd.ports.store import DeliveryId, JournalEntry, Loaded, Plain, Segment, SetAside

NOBODY: tuple[Any, ...] = ("", None, None, None)
"""What is read where the row is missing that says who the store is: a damaged file is looked at, too."""


class BadRow(Exception):
    """What the database holds is no JSON; the message says where."""


def load(connection: sqlite3.Connection) -> Loaded:
    """Read who the store is, its clock and all rows."""
    found = connection.execute("SELECT id, clock_now, clock_boot, clock_monotonic FROM store").fetchone()
    name, now, boot, monotonic = found or NOBODY
    of_kind = "SELECT id, data FROM record WHERE kind = ? ORDER BY id"
    rows: dict[str, dict[str, str]] = {
        kind: dict(connection.execute(of_kind, (kind,)))
        for (kind,) in connection.execute("SELECT DISTINCT kind FROM record ORDER BY kind")
    }
    return Loaded(name, rows, None if now is None else (now, boot, monotonic))


def parsed(text: str, *where: object) -> Any:
    """Return a stored text's value; `BadRow` says where it is from."""
    try:
        return plain_from(text)
    except ValueError as error:
        raise BadRow(f"{' '.join(map(str, where))}: {error}") from None


def _clean(text: str) -> str:
    """Return a text that the database can be asked for: a lone surrogate is in none of its names."""
    return text.encode("utf-8", "replace").decode()


def seen(connection: sqlite3.Connection, deliveries: Iterable[DeliveryId]) -> set[DeliveryId]:
    """Return the delivery ids that are there."""
    asked = [(delivery.forge, delivery.id) for delivery in deliveries]
    ask = (  # a cross join keeps its order: each one that is asked for is looked up by the key
        "SELECT d.forge, d.id FROM (VALUES {}) AS asked"
        " CROSS JOIN delivery AS d ON d.forge = asked.column1 AND d.id = asked.column2"
    )
    return {
        DeliveryId(*found)
        for statement, values in statements(ask, "(?, ?)", asked)
        for found in connection.execute(statement, values)
    }


def deliveries(connection: sqlite3.Connection, after: DeliveryId, most: int) -> list[DeliveryId]:
    """Return the delivery ids that follow one, in their order."""
    ask = "SELECT forge, id FROM delivery WHERE (forge, id) > (?, ?) ORDER BY forge, id LIMIT ?"
    return [DeliveryId(*row) for row in connection.execute(ask, (after.forge, after.id, most))]


def quarantined(connection: sqlite3.Connection) -> int:
    """Count what is in quarantine."""
    count: int = connection.execute("SELECT count(*) FROM quarantine").fetchone()[0]
    return count


def set_aside(connection: sqlite3.Connection, after: int, limit: int) -> list[SetAside]:
    """Read what is in quarantine, oldest first, without the bodies."""
    found = connection.execute(
        "SELECT seq, at, forge, delivery, length(body), error FROM quarantine WHERE seq > ? ORDER BY seq LIMIT ?",
        (after, max(limit, 0)),
    )
    return [SetAside(*row) for row in found]


def decisions(
    connection: sqlite3.Connection, after: int, limit: int, runner: str, outcome: str, newest: bool
) -> list[Plain]:
    """Read decisions; `after` is where the last page ended, in the order that is asked for."""
    where, values = _conditions(
        ("runner = ?", _clean(runner)),
        ("outcome = ?", _clean(outcome)),
        ("id < ?" if newest else "id > ?", after),
    )
    order = "DESC" if newest else "ASC"
    found = connection.execute(
        f"SELECT id, data FROM decision WHERE {where} ORDER BY id {order} LIMIT ?",  # noqa: S608  (our own words)
        (*values, max(limit, 0)),
    )
    return [parsed(data, "decision", number) for number, data in found]


def _conditions(*wanted: tuple[str, Any]) -> tuple[str, list[Any]]:
    """Join the conditions whose value says something."""
    active = [(text, value) for text, value in wanted if value]
    return " AND ".join(["1", *(text for text, _ in active)]), [value for _, value in active]


def journal(connection: sqlite3.Connection, subject: str, after: int, limit: int) -> list[JournalEntry]:
    """Read entries in their order, of one subject where it is named."""
    if subject:
        found = connection.execute(
            "SELECT j.seq, j.segment, j.now, j.event, j.commands FROM subject AS s"
            " JOIN journal_subject AS x ON x.subject = s.id JOIN journal AS j ON j.seq = x.seq"
            " WHERE s.name = ? AND x.seq > ? ORDER BY x.seq LIMIT ?",
            (_clean(subject), after, max(limit, 0)),
        )
    else:
        found = connection.execute(
            "SELECT seq, segment, now, event, commands FROM journal WHERE seq > ? ORDER BY seq LIMIT ?",
            (after, max(limit, 0)),
        )
    return [
        JournalEntry(seq, segment, now, parsed(event, "journal", seq), commands)
        for seq, segment, now, event, commands in found
    ]


def segment(connection: sqlite3.Connection, number: int | None) -> Segment | None:
    """Read a segment's beginning, the newest one's without a number. Number 0, the empty store, is none."""
    found = connection.execute(
        "SELECT number, rules, checkpoint, first_seq FROM segment"
        " WHERE number > 0 AND (:number IS NULL OR number = :number) ORDER BY number DESC LIMIT 1",
        {"number": number},
    ).fetchone()
    if found is None:
        return None
    return Segment(found[0], found[1], parsed(found[2], "segment", found[0]), found[3])


def subjects_like(connection: sqlite3.Connection, text: str, limit: int) -> list[str]:
    """Return names that contain the text, the case of ASCII letters aside, newest first."""
    found = connection.execute(
        "SELECT name FROM subject WHERE instr(lower(name), lower(?)) ORDER BY last DESC, name LIMIT ?",
        (_clean(text), max(limit, 0)),
    )
    return [name for (name,) in found]
