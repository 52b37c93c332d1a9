"""Forgetting history in a file: piece by piece, through a crash in the middle, until the file is small again."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from ephemerd.adapters.stores.sqlite import SqliteStore, database, pruning
from ephemerd.ports.store import DeliveryId, Keep, Store
from ephemerd.testing.contracts.store import DAY, NOW, batch, made_at, opened, step, tidied

YOUNG = Keep(age=DAY, segment_age=900 * DAY)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.db"


async def filled(store: Store, segments: int, entries: int, text: str = "") -> None:
    """A segment a day with so many entries, each with a decision and a subject of its own."""
    for day in range(segments):
        await store.open_segment("rules", {})
        now = NOW + day * DAY
        steps = [
            step(
                day * entries + n,
                ("meta", "text", {"text": text}),
                decisions=({**made_at(day * entries + n + 1, now), "text": text},),
                subjects=(f"s{day}-{n}",),
                now=now,
            )
            for n in range(entries)
        ]
        await store.commit(batch(*steps), (now, "boot", now))


def rows(path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        found: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return found


async def test_one_call_deletes_a_bounded_piece(path, monkeypatch):
    monkeypatch.setattr(pruning, "AT_ONCE", 10)
    async with opened(lambda: SqliteStore(path)) as store:
        await filled(store, 3, 25)
        now = NOW + 10 * DAY
        pieces = []
        while True:
            done = await store.prune(now, YOUNG)
            pieces.append((done.segments, done.entries, done.decisions))
            if not done.more:
                break
        assert max(max(piece) for piece in pieces) == 10
        assert sum(piece[1] for piece in pieces) == 50
        assert sum(piece[2] for piece in pieces) == 50
    assert rows(path, "journal") == rows(path, "decision") == 25
    assert rows(path, "subject") == rows(path, "journal_subject") == 25


async def test_a_death_between_two_pieces_leaves_no_remains(path, monkeypatch):
    monkeypatch.setattr(pruning, "AT_ONCE", 10)
    async with opened(lambda: SqliteStore(path)) as store:
        await filled(store, 2, 25)
        await store.prune(NOW + 10 * DAY, YOUNG)  # an empty segment 0
        done = await store.prune(NOW + 10 * DAY, YOUNG)
        assert done.segments == 1
        await store.prune(NOW + 10 * DAY, YOUNG)
        assert await store.segment(1) is None
        assert (await store.journal(limit=1))[0].seq == 11
    async with opened(lambda: SqliteStore(path)) as store:
        await tidied(store, NOW + 10 * DAY, YOUNG)
        assert (await store.journal(limit=1))[0].seq == 26
    assert rows(path, "journal_subject") == 25


async def test_the_file_becomes_small_again(path):
    async with opened(lambda: SqliteStore(path)) as store:
        await filled(store, 4, 100, "x" * 20_000)
        large = path.stat().st_size
        assert large > 4_000_000
        await tidied(store, NOW + 10 * DAY, YOUNG)
        assert (await store.size()).reusable <= (pruning.SLACK_PAGES + 1) * 4096
    assert path.stat().st_size < large / 2


async def test_space_is_given_back_some_pages_at_a_time(path, monkeypatch):
    monkeypatch.setattr(pruning, "PAGES_AT_ONCE", 50)
    async with opened(lambda: SqliteStore(path)) as store:
        await filled(store, 2, 100, "x" * 20_000)
        await tidied(store, NOW + 10 * DAY, YOUNG)
        free = (await store.size()).reusable // 4096
    assert free <= pruning.SLACK_PAGES


async def test_a_file_of_an_older_version_learns_to_shrink(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (n)")
        connection.execute("DROP TABLE t")
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (0,)
    async with opened(lambda: SqliteStore(path)) as store:
        await filled(store, 1, 3)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    assert rows(path, "journal") == 3


async def test_a_large_older_file_is_left_as_it_is(path, monkeypatch):
    monkeypatch.setattr(database, "CONVERTED_MOST", 0)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (n)")
        connection.execute("DROP TABLE t")
    async with opened(lambda: SqliteStore(path)) as store:
        await filled(store, 2, 3)
        await tidied(store, NOW + 10 * DAY, YOUNG)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (0,)


async def test_delivery_ids_outlive_all_history(path):
    """Three days is how long a forge delivers again; ids are kept for eight, whatever the journal's bounds."""
    delivery = DeliveryId("github", "d1")
    async with opened(lambda: SqliteStore(path)) as store:
        await store.open_segment("rules", {})
        await store.commit(batch(step(1), deliveries=(delivery,)), (NOW, "boot", 0))
        await store.open_segment("rules", {})
        await store.commit(batch(step(2, now=NOW + 8 * DAY)), (NOW + 8 * DAY, "boot", 0))
        await tidied(store, NOW + 8 * DAY, Keep(age=1, size=0))
        assert await store.seen([delivery]) == {delivery}
        assert [entry.event["number"] for entry in await store.journal()] == [2]
