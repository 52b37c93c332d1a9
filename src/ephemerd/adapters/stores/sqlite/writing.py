"""What is written: each function is called in the writer's thread, inside one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ephemerd.adapters.stores.sqlite.bulk import statements
from ephemerd.adapters.stores.sqlite.wire import to_text
from ephemerd.core.codec import Body
from ephemerd.ports.store import Batch

DAY = 24 * 60 * 60 * 1000
# A forge delivers again for 3 days, on Enterprise Server for 7.
DELIVERIES_KEPT = 8 * DAY
QUARANTINE_MOST = 1000
QUARANTINE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch as the statements take it, made before the transaction begins."""

    now: int
    deliveries: list[tuple[str, str, int]]
    upserts: list[tuple[str, str, str]]
    deletes: list[tuple[str, str]]
    journal: list[tuple[int, str, str]]
    subjects: list[tuple[str, ...]]
    decisions: list[tuple[int, str, str, str]]


def prepare(batch: Batch, now: int) -> Prepared:
    """Turn a batch into texts. Of a row that several steps changed only the last state is written."""
    now = max([now, *(step.now for step in batch.steps)])
    final: dict[tuple[str, str], Body | None] = {}
    for step in batch.steps:
        for kind, name, plain in step.changed:
            final[kind, name] = plain
    return Prepared(
        now=now,
        deliveries=[(delivery.forge, delivery.id, now) for delivery in batch.deliveries],
        upserts=[(*key, to_text(plain)) for key, plain in final.items() if plain is not None],
        deletes=[key for key, plain in final.items() if plain is None],
        journal=[(step.now, to_text(step.event), step.commands) for step in batch.steps],
        subjects=[step.subjects for step in batch.steps],
        decisions=[
            (plain["id"], plain.get("runner", ""), plain.get("outcome", ""), to_text(plain))
            for step in batch.steps
            for plain in step.decisions
        ],
    )


def write(connection: sqlite3.Connection, ready: Prepared, clock: tuple[int, str, int]) -> int:
    """Write a prepared batch; return the number of the newest journal entry."""
    segment, first = connection.execute("SELECT segment, next_seq FROM store").fetchone()
    many = partial(_many, connection)
    many("INSERT OR IGNORE INTO delivery (forge, id, seen) VALUES {}", "(?, ?, ?)", ready.deliveries)
    many(
        "INSERT INTO record (kind, id, data) VALUES {}"
        " ON CONFLICT (kind, id) DO UPDATE SET data = excluded.data",
        "(?, ?, ?)",
        ready.upserts,
    )
    connection.executemany("DELETE FROM record WHERE kind = ? AND id = ?", ready.deletes)
    many(
        "INSERT INTO journal (seq, segment, now, event, commands) VALUES {}",
        "(?, ?, ?, ?, ?)",
        [(first + offset, segment, *entry) for offset, entry in enumerate(ready.journal)],
    )
    _write_subjects(connection, ready.subjects, first)
    many("INSERT INTO decision (id, runner, outcome, data) VALUES {}", "(?, ?, ?, ?)", ready.decisions)
    connection.execute("DELETE FROM delivery WHERE seen < ?", (ready.now - DELIVERIES_KEPT,))
    connection.execute(
        "UPDATE store SET next_seq = ?, clock_now = ?, clock_boot = ?, clock_monotonic = ?",
        (first + len(ready.journal), *clock),
    )
    newest: int = first + len(ready.journal) - 1
    return newest


def _write_subjects(connection: sqlite3.Connection, subjects: list[tuple[str, ...]], first: int) -> None:
    pairs = [(first + offset, name) for offset, names in enumerate(subjects) for name in dict.fromkeys(names)]
    newest = {name: seq for seq, name in pairs}  # pairs come in the order of the entries
    _many(
        connection,
        "INSERT INTO subject (name, last) VALUES {} ON CONFLICT (name) DO UPDATE SET last = excluded.last",
        "(?, ?)",
        list(newest.items()),
    )
    _many(
        connection,
        "INSERT INTO journal_subject (seq, subject) VALUES {}",
        "(?, (SELECT id FROM subject WHERE name = ?))",
        pairs,
    )


def _many(connection: sqlite3.Connection, text: str, row: str, rows: Sequence[tuple[Any, ...]]) -> None:
    for statement, values in statements(text, row, rows):
        connection.execute(statement, values)


def open_segment(connection: sqlite3.Connection, rules: str, checkpoint: str) -> int:
    """Begin the next segment of the journal."""
    number: int = connection.execute("SELECT max(number) + 1 FROM segment").fetchone()[0]
    connection.execute(
        "INSERT INTO segment (number, rules, checkpoint, first_seq) SELECT ?, ?, ?, next_seq FROM store",
        (number, rules, checkpoint),
    )
    connection.execute("UPDATE store SET segment = ?", (number,))
    return number


def quarantine(
    connection: sqlite3.Connection, now: int, forge: str, delivery: str, body: bytes, error: str
) -> None:
    """Keep one body, and of the older ones as many as the bounds allow."""
    connection.execute(
        "INSERT INTO quarantine (seq, at, forge, delivery, body, error)"
        " SELECT next_aside, ?, ?, ?, ?, ? FROM store",
        (now, forge, delivery, body, error),
    )
    connection.execute("UPDATE store SET next_aside = next_aside + 1")
    total = 0
    kept = connection.execute("SELECT seq, length(body) FROM quarantine ORDER BY seq DESC").fetchall()
    for place, (seq, size) in enumerate(kept):
        total += size
        if place and (place >= QUARANTINE_MOST or total > QUARANTINE_BYTES):
            connection.execute("DELETE FROM quarantine WHERE seq <= ?", (seq,))
            return
