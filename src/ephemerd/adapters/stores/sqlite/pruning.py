"""What is forgotten: history past its time or size, in pieces that hold the writer up for moments only.

Each function is called in the writer's thread. A segment goes first, in one small transaction; entries below
the oldest segment belong to nothing then and follow piece by piece, also after a crash in between. Rows,
delivery ids and the open segment are never touched.
"""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

from ephemerd.ports.store import Keep, Pruned, StoreSize

AT_ONCE = 5000
"""Rows of one table that one call deletes at most."""
PAGES_AT_ONCE = 2048
SLACK_PAGES = 256
"""Free pages that stay, so that a quiet store does not shrink and grow again all the time."""


def prune(connection: sqlite3.Connection, now: int, keep: Keep) -> Pruned:
    """Do one piece. Runs inside a transaction."""
    cutoff = now - keep.age
    floor = _floor(connection)
    entries = _delete(connection, "journal", "seq", f"seq < {floor}")
    if entries:
        return Pruned(entries=entries, more=True)
    if _drop_oldest(connection, cutoff, keep.size):
        return Pruned(segments=1, more=True)
    subjects = _delete(connection, "subject", "id", f"last < {floor}")
    decisions = _decisions(connection, _oldest(connection, floor))
    quarantined = _delete(connection, "quarantine", "seq", f"at < {cutoff}")
    opened = _open_next(connection, now, keep)
    more = AT_ONCE in (subjects, decisions, quarantined)
    return Pruned(decisions=decisions, quarantined=quarantined, opened=opened, more=more)


def vacuum(connection: sqlite3.Connection) -> bool:
    """Give free pages back to the system, some at a time; say whether there are more. Not in a transaction."""
    if _free(connection) <= SLACK_PAGES:
        return False
    before = _free(connection)
    connection.execute(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})").fetchall()
    left = _free(connection)
    return SLACK_PAGES < left < before


def size(connection: sqlite3.Connection, path: Path) -> StoreSize:
    """Measure the file with its log, and what the disk has left."""
    page = _number(connection, "PRAGMA page_size")
    total = sum(file.stat().st_size for file in (path, Path(f"{path}-wal")) if file.exists())
    oldest = connection.execute("SELECT now FROM journal ORDER BY seq LIMIT 1").fetchone()
    try:
        free: int | None = shutil.disk_usage(path.parent).free
    except OSError:
        free = None
    return StoreSize(total, page * _free(connection), free, oldest[0] if oldest else None)


def _number(connection: sqlite3.Connection, query: str) -> int:
    found: int = connection.execute(query).fetchone()[0]
    return found


def _free(connection: sqlite3.Connection) -> int:
    return _number(connection, "PRAGMA freelist_count")


def _floor(connection: sqlite3.Connection) -> int:
    """The first entry that belongs to a segment."""
    return _number(connection, "SELECT first_seq FROM segment ORDER BY number LIMIT 1")


def _oldest(connection: sqlite3.Connection, floor: int) -> int:
    """When the oldest entry of a segment was made; 0 where there is none."""
    found = connection.execute(
        "SELECT now FROM journal WHERE seq >= ? ORDER BY seq LIMIT 1", (floor,)
    ).fetchone()
    return found[0] if found else 0


def _delete(connection: sqlite3.Connection, table: str, key: str, where: str) -> int:
    """Delete up to `AT_ONCE` rows, the oldest first; return how many. All texts are this file's own."""
    return connection.execute(
        f"DELETE FROM {table} WHERE {key} IN"  # noqa: S608
        f" (SELECT {key} FROM {table} WHERE {where} ORDER BY {key} LIMIT {AT_ONCE})"
    ).rowcount


def _drop_oldest(connection: sqlite3.Connection, cutoff: int, most: int) -> bool:
    """Drop the oldest closed segment where it is empty, past its time, or the store is too large."""
    segments = connection.execute("SELECT number, first_seq FROM segment ORDER BY number LIMIT 2").fetchall()
    if len(segments) < 2:
        return False
    (number, first), (_, following) = segments
    last = connection.execute(
        "SELECT max(now) FROM (SELECT now FROM journal WHERE seq >= ? AND seq < ? ORDER BY seq DESC LIMIT 1)",
        (first, following),
    ).fetchone()[0]
    if last is not None and last >= cutoff and _used(connection) <= most:
        return False
    connection.execute("DELETE FROM segment WHERE number = ?", (number,))
    return True


def _used(connection: sqlite3.Connection) -> int:
    pages = _number(connection, "PRAGMA page_count") - _free(connection)
    return pages * _number(connection, "PRAGMA page_size")


def _decisions(connection: sqlite3.Connection, cutoff: int) -> int:
    """Delete decisions whose journal entries are forgotten: ids rise with the time, so they are the first ones."""
    last = None
    for number, at in connection.execute(
        f"SELECT id, json_extract(data, '$.at') FROM decision ORDER BY id LIMIT {AT_ONCE}"  # noqa: S608
    ):
        if at is None or at >= cutoff:
            break
        last = number
    if last is None:
        return 0
    return connection.execute("DELETE FROM decision WHERE id <= ?", (last,)).rowcount


def _open_next(connection: sqlite3.Connection, now: int, keep: Keep) -> int:
    """Open the next segment, from the rows as they stand, where the open one is long enough; else 0.

    Its checkpoint is made of the stored texts, so that a large state costs no parsing.
    """
    number, first = connection.execute(
        "SELECT number, first_seq FROM segment ORDER BY number DESC LIMIT 1"
    ).fetchone()
    following, clock = connection.execute("SELECT next_seq, clock_now FROM store").fetchone()
    entries = following - first
    rows = _number(connection, "SELECT count(*) FROM record")
    began = connection.execute("SELECT now FROM journal WHERE seq = ?", (first,)).fetchone()
    if number == 0 or began is None or entries < max(keep.least_entries, rows):
        return 0
    if now - began[0] < keep.segment_age and entries < keep.segment_entries:
        return 0
    rules = connection.execute("SELECT rules FROM segment WHERE number = ?", (number,)).fetchone()[0]
    last = connection.execute("SELECT now FROM journal WHERE seq = ?", (following - 1,)).fetchone()
    at = (last[0] if last else clock) - 1
    connection.execute(
        "INSERT INTO segment (number, rules, checkpoint, first_seq) VALUES (?, ?, ?, ?)",
        (number + 1, rules, checkpoint(connection, rules, at), following),
    )
    connection.execute("UPDATE store SET segment = ?", (number + 1,))
    opened: int = number + 1
    return opened


def checkpoint(connection: sqlite3.Connection, rules: str, at: int) -> str:
    """Return all rows as the text of a segment's beginning. `at` (ms) is when a core stands up from them."""
    kinds = connection.execute(
        "SELECT kind, group_concat(json_quote(id) || ':' || data)"
        " FROM record GROUP BY kind ORDER BY kind"  # in the order of the table's key, so that nothing is sorted
    ).fetchall()
    (quoted,) = connection.execute("SELECT json_quote(?)", (rules,)).fetchone()
    tables = ",".join(f'"{kind}":{{{texts}}}' for kind, texts in kinds)
    return f'{{"rules":{quoted},"at":{at},"rows":{{{tables}}}}}'
