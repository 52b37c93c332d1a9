"""Does a store's file hold together? Read-only, beside a daemon too; nothing is repaired here."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ephemerd.adapters.stores.sqlite import migrate, pruning, reading
from ephemerd.adapters.stores.sqlite.offline import opened
from ephemerd.ports.store import Loaded, Plain, StoreSize

NUMBERED_QUARANTINE = 2
"""The version from which the store keeps the next number of its quarantine."""
MOST = 20
"""Problems of one kind that are named."""
TABLES = ("record", "delivery", "segment", "journal", "subject", "decision", "quarantine")


@dataclass(frozen=True, slots=True)
class Survey:
    """What a file holds, and what is wrong with it.

    counts    rows by table
    """

    version: int
    size: StoreSize
    counts: dict[str, int]
    loaded: Loaded
    problems: tuple[str, ...]


def survey(path: Path) -> Survey:
    """Check pages, schema, numbering and texts. Raises `Broken` or `NewerStore` where it cannot be opened at all,
    or its pages are so damaged that nothing can be said."""
    with opened(path) as connection:
        version = migrate.check(connection, path, migrate.migrations())
        damage = [*_pages(connection)]
        if damage:
            return Survey(version, pruning.size(connection, path), {}, Loaded("", {}, None), tuple(damage))
        loaded = reading.load(connection)
        problems = [
            *_schema(connection, version),
            *_references(connection),
            *_numbers(connection, version),
            *_texts(connection),
        ]
        counts = {table: _number(connection, f"SELECT count(*) FROM {table}") for table in TABLES}  # noqa: S608
        size = pruning.size(connection, path)
        return Survey(version, size, counts, loaded, tuple(problems))


def _number(connection: sqlite3.Connection, query: str) -> int:
    found: int = connection.execute(query).fetchone()[0]
    return found


def _pages(connection: sqlite3.Connection) -> Iterator[str]:
    try:
        for (line,) in connection.execute(f"PRAGMA integrity_check({MOST})"):
            if line != "ok":
                yield f"pages: {' '.join(line.split())}"
    except sqlite3.DatabaseError as error:
        yield f"pages: {error}"


def _schema(connection: sqlite3.Connection, version: int) -> Iterator[str]:
    """Compare with what the migrations make."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        migrate.apply(fresh, 0, migrate.migrations()[:version])
        wanted, found = _definitions(fresh), _definitions(connection)
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            yield f"schema: {name} is missing"
        elif name not in wanted:
            yield f"schema: {name} is not ours"
        elif wanted[name] != found[name]:
            yield f"schema: {name} is not as version {version} makes it"


def _definitions(connection: sqlite3.Connection) -> dict[str, str]:
    query = "SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
    return dict(connection.execute(query).fetchall())


def _references(connection: sqlite3.Connection) -> Iterator[str]:
    for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check").fetchmany(MOST):
        yield f"{table}: row {row} refers to a {parent} that is not there"


def _numbers(connection: sqlite3.Connection, version: int) -> Iterator[str]:
    """Numbers go on where they should: nothing is written twice, each entry is in its segment's range."""
    row = connection.execute("SELECT segment, next_seq FROM store").fetchone()
    if row is None:
        yield "store: the row that says who it is is missing"
        return
    current, following = row
    last = _number(connection, "SELECT coalesce(max(seq), 0) FROM journal")
    if last >= following:
        yield f"journal: the next entry would be {following}, and there is one with the number {last}"
    given = "SELECT count(*) FROM quarantine, store WHERE quarantine.seq >= next_aside"
    if version >= NUMBERED_QUARANTINE and _number(connection, given):
        yield "quarantine: the next number is given already"
    newest = _number(connection, "SELECT coalesce(max(number), -1) FROM segment")
    if newest != current:
        yield f"segment: {current} is open, and the newest is {newest}"
    before = 0
    for number, first in connection.execute("SELECT number, first_seq FROM segment ORDER BY number"):
        if first < before or first > following:
            yield f"segment {number}: begins at {first}, out of order"
        before = first
    for seq, segment in connection.execute(
        "SELECT seq, segment FROM journal AS j WHERE seq >= (SELECT min(first_seq) FROM segment) AND segment !="
        " (SELECT max(number) FROM segment WHERE first_seq <= j.seq) LIMIT ?",
        (MOST,),
    ):
        yield f"journal {seq}: says segment {segment}, and lies in another"


def _texts(connection: sqlite3.Connection) -> Iterator[str]:
    """Find texts that are no JSON."""
    for table, key, column in (
        ("journal", "seq", "event"),
        ("decision", "id", "data"),
        ("segment", "number", "checkpoint"),
    ):
        query = f"SELECT {key} FROM {table} WHERE NOT json_valid({column}) ORDER BY {key} LIMIT {MOST}"  # noqa: S608
        for (number,) in connection.execute(query):
            yield f"{table} {number}: is no JSON"


def lines(path: Path) -> Iterator[Plain]:
    """Yield everything in a store as plain objects, each with its `kind`; bodies in quarantine and the rows that
    segments begin with are left out. Raises as `survey` does."""
    with opened(path) as connection:
        version = migrate.check(connection, path, migrate.migrations())
        loaded = reading.load(connection)
        clock = loaded.clock[0] if loaded.clock is not None else None
        rows = [  # read before the first line is written: where one cannot be, there is no half of an export
            {"kind": "row", "of": kind, "id": key, "row": reading.parsed(row, "row", kind, key)}
            for kind, of_kind in loaded.rows.items()
            for key, row in of_kind.items()
        ]
        yield {"kind": "store", "store": loaded.store, "version": version, "clock": clock}
        yield from rows
        for name, query in _LISTS:
            cursor = connection.execute(query)
            columns = [column[0] for column in cursor.description]
            for found in cursor:
                entry = dict(zip(columns, found, strict=True))
                for column in ("event", "decision"):
                    if column in entry:
                        entry[column] = reading.parsed(entry[column], name, found[0])
                yield {"kind": name, **entry}


_LISTS = (
    ("delivery", "SELECT forge, id, seen FROM delivery ORDER BY seen, forge, id"),
    ("segment", "SELECT number, rules, first_seq FROM segment ORDER BY number"),
    ("entry", "SELECT seq, segment, now, event, commands FROM journal ORDER BY seq"),
    ("decision", "SELECT id, data AS decision FROM decision ORDER BY id"),
    (
        "quarantine",
        "SELECT seq, at, forge, delivery, length(body) AS size, error FROM quarantine ORDER BY seq",
    ),
)
