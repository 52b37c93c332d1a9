"""A journal read from the file alone: beside a daemon that holds it, and refused with words where it is none."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ephemerd.adapters.stores.sqlite import SqliteStore, open_journal
from ephemerd.adapters.stores.sqlite.offline import PAGE
from ephemerd.ports.errors import Broken, NewerStore
from ephemerd.ports.store import Store
from ephemerd.testing.contracts.store import CLOCK, batch, opened, step


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def numbers(path: Path, segment: int | None = None) -> list[int]:
    with open_journal(path, segment) as (_, entries):
        return [entry.event["number"] for entry in entries]


async def filled(store: Store, count: int = 3) -> None:
    await store.commit(batch(step(0)), CLOCK)
    await store.open_segment("r1", {"rows": {"job": {}}})
    await store.commit(batch(*(step(number) for number in range(1, count + 1))), CLOCK)
    await store.open_segment("r2", {})
    await store.commit(batch(step(99)), CLOCK)


async def test_segments_and_their_entries_beside_a_daemon_that_holds_the_store(path):
    async with opened(lambda: SqliteStore(path)) as store:
        await filled(store)
        with open_journal(path) as (segment, entries):
            assert (segment.number, segment.rules, segment.checkpoint, segment.first_seq) == (2, "r2", {}, 5)
            assert [entry.event["number"] for entry in entries] == [99]
        with open_journal(path, 1) as (segment, _):
            assert (segment.rules, segment.checkpoint) == ("r1", {"rows": {"job": {}}})
        assert numbers(path, 1) == [1, 2, 3]
        await store.commit(batch(step(100)), CLOCK)
        assert numbers(path) == [99, 100]


async def test_what_is_committed_while_it_is_read_is_not_seen(path):
    async with opened(lambda: SqliteStore(path)) as store:
        await filled(store)
        with open_journal(path) as (_, entries):
            await store.commit(batch(step(100)), CLOCK)
            assert [entry.event["number"] for entry in entries] == [99]


async def test_a_long_segment_is_read_page_by_page(path):
    async with opened(lambda: SqliteStore(path)) as store:
        await filled(store, PAGE + 5)
    assert numbers(path, 1) == list(range(1, PAGE + 6))


async def test_the_file_is_not_changed(path):
    async with opened(lambda: SqliteStore(path)) as store:
        await filled(store)
    before = path.read_bytes()
    assert numbers(path) == [99]
    assert path.read_bytes() == before


async def test_an_unknown_segment_is_said_to_be_none(path):
    async with opened(lambda: SqliteStore(path)) as store:
        with pytest.raises(Broken, match="no segment at all"), open_journal(path):
            pass
        await filled(store)
    with pytest.raises(Broken, match="no segment 7"), open_journal(path, 7):
        pass


def test_no_file_no_database_and_another_programs_are_refused(path):
    with pytest.raises(Broken, match="there is no store"), open_journal(path):
        pass
    path.write_bytes(b"no database at all, but long enough to look like one" * 40)
    with pytest.raises(Broken, match="damaged or no database"), open_journal(path):
        pass
    path.unlink()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE cats (name)")
    with pytest.raises(Broken, match="another program"), open_journal(path):
        pass
    path.unlink()
    path.touch()
    with pytest.raises(Broken, match="another program"), open_journal(path):
        pass


async def test_a_newer_store_is_refused(path):
    async with opened(lambda: SqliteStore(path)) as store:
        await filled(store)
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 999")
    with pytest.raises(NewerStore), open_journal(path):
        pass


async def test_a_damaged_entry_is_named(path):
    async with opened(lambda: SqliteStore(path)) as store:
        await filled(store)
    with closing(sqlite3.connect(path)) as other:
        other.execute("UPDATE journal SET event = '{' WHERE seq = 5")
        other.commit()
    with pytest.raises(Broken, match="journal 5"):
        numbers(path)
