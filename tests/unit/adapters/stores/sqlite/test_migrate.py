"""Migrations: from nothing to the newest schema, from an older one with its data, and never half of one."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ephemerd.adapters.stores.sqlite import SqliteStore, migrate
from ephemerd.adapters.stores.sqlite.migrate import APPLICATION, Migration, migrations
from ephemerd.ports.errors import Broken, NewerStore
from ephemerd.testing.contracts.store import CLOCK, batch, contents, opened, rows_of, step

FOLDER = Path(migrate.__file__).parent / "migrations"


def schema(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    ask = "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master ORDER BY type, name"
    return [tuple(row) for row in connection.execute(ask)]


def pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def test_every_file_is_a_migration_and_they_are_numbered_without_a_gap():
    files = sorted(file.name for file in FOLDER.glob("*.sql"))
    assert files
    assert [f"{each.number:04}_{each.name}.sql" for each in migrations()] == files
    assert [each.number for each in migrations()] == list(range(1, len(files) + 1))


def test_no_migration_ends_its_own_transaction():
    for each in migrations():
        words = set(re.findall(r"\b[A-Z]+\b", re.sub(r"--.*", "", each.sql).upper()))
        assert words & {"BEGIN", "COMMIT", "ROLLBACK", "END", "SAVEPOINT", "VACUUM", "ATTACH"} == set()


async def test_an_empty_file_gets_the_schema_of_all_files_and_nothing_else(path):
    async with opened(lambda: SqliteStore(path)):
        pass
    with closing(sqlite3.connect(path)) as ours, closing(sqlite3.connect(":memory:")) as sum_:
        for each in migrations():
            sum_.executescript(each.sql)
        assert schema(ours) == schema(sum_)
        assert pragma(ours, "user_version") == len(migrations())
        assert pragma(ours, "application_id") == pragma(sum_, "application_id") == APPLICATION
        applied = ours.execute("SELECT number, name FROM schema_migrations ORDER BY number").fetchall()
        assert applied == [(each.number, each.name) for each in migrations()]


async def test_reopening_migrates_nothing(path):
    async with opened(lambda: SqliteStore(path)):
        pass
    with closing(sqlite3.connect(path)) as connection:
        before = list(connection.iterdump())
    async with opened(lambda: SqliteStore(path)):
        pass
    with closing(sqlite3.connect(path)) as connection:
        assert list(connection.iterdump()) == before


def later(*scripts: str) -> tuple[Migration, ...]:
    known = migrations()
    return known + tuple(
        Migration(len(known) + place, f"later_{place}", sql) for place, sql in enumerate(scripts, 1)
    )


async def test_an_older_store_is_migrated_with_its_data(path, monkeypatch):
    async with opened(lambda: SqliteStore(path)) as store:
        await store.commit(batch(step(1, ("job", "a", {"n": 1}), subjects=("s",))), CLOCK)
        before = await contents(store)
    newer = later("CREATE TABLE extra (n); INSERT INTO extra VALUES (1)", "ALTER TABLE extra ADD COLUMN m")
    monkeypatch.setattr(migrate, "migrations", lambda: newer)
    async with opened(lambda: SqliteStore(path)) as store:
        assert await contents(store) == before
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT n, m FROM extra").fetchall() == [(1, None)]
        assert pragma(connection, "user_version") == len(newer)
    monkeypatch.undo()
    with pytest.raises(NewerStore):
        await SqliteStore(path).open()


async def test_a_migration_that_fails_leaves_nothing_of_itself_and_keeps_what_came_before(path, monkeypatch):
    newer = later("CREATE TABLE good (n)", "CREATE TABLE half (n); INSERT INTO nowhere VALUES (1)")
    monkeypatch.setattr(migrate, "migrations", lambda: newer)
    with pytest.raises(Broken, match="nowhere"):
        await SqliteStore(path).open()
    with closing(sqlite3.connect(path)) as connection:
        names = {name for _, name, _, _ in schema(connection)}
        assert "good" in names
        assert "half" not in names
        assert pragma(connection, "user_version") == len(newer) - 1
    repaired = (*newer[:-1], Migration(len(newer), "repaired", "CREATE TABLE half (n)"))
    monkeypatch.setattr(migrate, "migrations", lambda: repaired)
    async with opened(lambda: SqliteStore(path)) as store:
        assert await rows_of(store) == {}


async def test_the_schema_lets_an_old_segment_go(path):
    """A segment is a range of entries, found by its number."""
    async with opened(lambda: SqliteStore(path)) as store:
        for segment in (1, 2):
            assert await store.open_segment("rules", {}) == segment
            await store.commit(
                batch(step(segment, subjects=("s",)), step(segment + 10, subjects=("s",))), CLOCK
            )
    with closing(sqlite3.connect(path)) as connection, connection:
        first = connection.execute("SELECT first_seq FROM segment WHERE number = 2").fetchone()
        connection.execute("DELETE FROM journal WHERE seq < ?", first)
        connection.execute("DELETE FROM journal_subject WHERE seq < ?", first)
        connection.execute("DELETE FROM segment WHERE number < 2")
    async with opened(lambda: SqliteStore(path)) as store:
        await store.commit(batch(step(3, subjects=("s",))), CLOCK)
        found = [
            (entry.seq, entry.segment, entry.event["number"]) for entry in await store.journal(subject="s")
        ]
        assert found == [(3, 2, 2), (4, 2, 12), (5, 2, 3)]
        assert await store.open_segment("rules", {}) == 3
