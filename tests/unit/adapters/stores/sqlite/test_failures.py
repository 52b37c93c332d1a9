"""When the disk is full, slow or broken: `NotStored` means that nothing is there, and work goes on after it."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ephemerd.adapters.stores.sqlite import SqliteStore, database, lane, writing
from ephemerd.ports.errors import Broken, NotStored
from ephemerd.ports.store import Batch, DeliveryId, Keep
from ephemerd.testing.contracts.store import CLOCK, NOW, batch, contents, decision, opened, rows_of, step

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "state.db")
    await store.open()
    yield store
    await store.close()


async def in_writer(store: SqliteStore, work: Callable[[sqlite3.Connection], Any]) -> Any:
    assert store._writer is not None
    return await store._writer.do(lambda: work(store._database.connection), 10)


def large(number: int) -> Batch:
    """A batch of half a megabyte that touches every table."""
    steps = [
        step(number * 100 + n, ("job", f"{number}-{n}", {"text": "x" * 50_000}),
             decisions=(decision(number * 100 + n),), subjects=(f"s{n}",))
        for n in range(10)
    ]  # fmt: skip
    return batch(*steps, deliveries=(DeliveryId("github", f"d{number}"),))


async def test_a_full_disk_stores_nothing_and_later_commits_work(store):
    await store.commit(batch(step(1, ("job", "a", {"n": 1}))), CLOCK)
    before = await contents(store)
    pages = await in_writer(store, lambda sql: sql.execute("PRAGMA page_count").fetchone()[0])
    await in_writer(store, lambda sql: sql.execute(f"PRAGMA max_page_count = {pages + 2}").fetchone())
    for number in (1, 2):
        with pytest.raises(NotStored, match="the disk is full"):
            await store.commit(large(number), (NOW + 1, "boot", 1))
        assert await contents(store) == before
        assert await store.seen(large(number).deliveries) == set()
    await store.commit(batch(step(2, ("job", "a", {"n": 2}))), CLOCK)  # a small one still fits
    await in_writer(store, lambda sql: sql.execute("PRAGMA max_page_count = 1000000").fetchone())
    await store.commit(large(1), CLOCK)
    assert (await rows_of(store))["job"]["a"] == {"n": 2}
    assert len(await store.journal()) == 12


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """No file of this process may grow beyond the size: writing fails as on a full disk (Python ignores the
    signal)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_write_that_the_system_refuses_stores_nothing_and_later_commits_work(store):
    await store.commit(batch(step(1, ("job", "a", {"n": 1}))), CLOCK)
    before = await contents(store)
    with files_limited_to(200_000):
        with pytest.raises(NotStored):
            await store.commit(large(1), CLOCK)
        assert await contents(store) == before
    await store.commit(large(1), CLOCK)
    await store.close()
    await store.open()
    assert len(await store.journal()) == 11
    assert await store.seen(large(1).deliveries) == set(large(1).deliveries)


async def test_the_other_writes_fail_alike(store):
    await in_writer(store, lambda sql: sql.execute("PRAGMA max_page_count = 1").fetchone())
    with pytest.raises(NotStored):
        await store.quarantine(NOW, "github", "d", b"x" * 100_000, "e")
    with pytest.raises(NotStored):
        await store.open_segment("rules", {"text": "x" * 100_000})
    assert await store.quarantined() == 0
    await in_writer(store, lambda sql: sql.execute("PRAGMA max_page_count = 1000000").fetchone())
    assert await store.open_segment("rules", {}) == 1


async def test_a_transaction_left_open_is_taken_back_first(store):
    def leave_open(sql: sqlite3.Connection) -> None:
        sql.execute("BEGIN IMMEDIATE")
        sql.execute("INSERT INTO record VALUES ('job', 'ghost', '{}')")

    await in_writer(store, leave_open)
    await store.commit(batch(step(1, ("job", "a", {"n": 1}))), CLOCK)
    assert await rows_of(store) == {"job": {"a": {"n": 1}}}


async def test_another_program_that_keeps_the_file_locked_is_named(store, monkeypatch):
    await in_writer(store, lambda sql: sql.execute("PRAGMA busy_timeout = 1").fetchone())
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(NotStored, match="another program keeps it locked"):
        await store.commit(batch(step(1)), CLOCK)
    other.execute("ROLLBACK")
    other.close()
    await store.commit(batch(step(1)), CLOCK)


async def test_names_that_are_no_text_are_refused_whole(store):
    with pytest.raises(NotStored, match="surrogates"):
        await store.commit(batch(step(1, ("job", "a", {})), step(2, ("job", "\ud800", {}))), CLOCK)
    assert await rows_of(store) == {}


async def test_texts_inside_rows_may_hold_what_is_no_text(store):
    row = {"detail": "file \udcff", "number": 2**80}
    await store.commit(batch(step(1, ("job", "a", row))), CLOCK)
    assert await rows_of(store) == {"job": {"a": row}}


# Slow.


@asynccontextmanager
async def stalled(store: SqliteStore) -> AsyncIterator[threading.Event]:
    """Keep the writer's thread busy until the event is set, or the block ends."""
    begun, release = threading.Event(), threading.Event()

    def stall() -> None:
        begun.set()
        release.wait(30)

    assert store._writer is not None
    waiting = asyncio.ensure_future(store._writer.do(stall, 60))
    try:
        assert await asyncio.to_thread(begun.wait, 10)
        yield release
    finally:
        release.set()
        await waiting


async def test_a_commit_whose_turn_never_came_is_not_made_later(tmp_path):
    async with opened(lambda: SqliteStore(tmp_path / "state.db", deadline=0.05)) as store:
        assert isinstance(store, SqliteStore)
        async with stalled(store):
            with pytest.raises(NotStored, match=r"no answer within 0\.05 s"):
                await store.commit(batch(step(1, ("job", "a", {}))), CLOCK)
        store._deadline = 10
        assert await rows_of(store) == {}


async def test_queries_are_answered_while_a_write_stalls(store):
    await store.commit(batch(step(1, subjects=("s",)), deliveries=(DeliveryId("github", "1"),)), CLOCK)
    async with stalled(store):
        assert len(await store.journal()) == 1
        assert await store.seen([DeliveryId("github", "1")])
        assert await store.subjects_like("s") == ["s"]


async def test_a_load_comes_after_the_writes_that_were_asked_for(store):
    async with stalled(store) as release:
        commit = asyncio.ensure_future(store.commit(batch(step(1, ("job", "a", {}))), CLOCK))
        load = asyncio.ensure_future(store.load())
        assert await asyncio.wait_for(store.journal(), 10) == []
        release.set()
        assert (await load).rows == {"job": {"a": "{}"}}
        await commit


async def test_a_commit_given_up_while_it_runs_is_taken_back(store, monkeypatch):
    reached, release = threading.Event(), threading.Event()
    write = writing.write

    def slow(*arguments: Any) -> None:
        write(*arguments)
        reached.set()
        release.wait(30)

    monkeypatch.setattr(writing, "write", slow)
    store._deadline = 0.5
    with pytest.raises(NotStored):
        await store.commit(batch(step(1, ("job", "a", {}))), CLOCK)
    assert reached.is_set()
    release.set()
    monkeypatch.undo()
    store._deadline = 10
    assert await rows_of(store) == {}
    await store.commit(batch(step(2)), CLOCK)
    assert [entry.event["number"] for entry in await store.journal()] == [2]


async def test_a_statement_that_takes_too_long_is_interrupted(store, monkeypatch):
    monkeypatch.setattr(writing, "write", lambda sql, *_: sql.execute(ENDLESS).fetchone())
    store._deadline = 0.05
    with pytest.raises(NotStored):
        await store.commit(batch(step(1)), CLOCK)
    monkeypatch.undo()
    store._deadline = 10
    await store.commit(batch(step(2)), CLOCK)


async def test_a_query_that_takes_too_long_is_interrupted(store):
    store._deadline = 0.05
    with pytest.raises(Broken, match=r"no answer within 0\.05 s"):
        await store._read(lambda sql: sql.execute(ENDLESS).fetchone())
    store._deadline = 10
    assert await store.journal() == []


async def test_a_cancelled_caller_leaves_the_commit_to_its_end(store):
    async with stalled(store):
        commit = asyncio.ensure_future(store.commit(batch(step(1, ("job", "a", {}))), CLOCK))
        await asyncio.wait_for(store.journal(), 10)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
    assert await rows_of(store) == {"job": {"a": {}}}


async def test_too_many_that_wait_are_turned_away(store, monkeypatch):
    monkeypatch.setattr(lane, "WAITING_MOST", 0)
    with pytest.raises(NotStored, match="0 calls wait already"):
        await store.commit(batch(step(1)), CLOCK)
    with pytest.raises(Broken, match="0 calls wait already"):
        await store.journal()


async def test_closing_finishes_what_was_begun(tmp_path):
    store = SqliteStore(tmp_path / "state.db")
    await store.open()
    commits = [asyncio.ensure_future(store.commit(batch(step(n)), CLOCK)) for n in range(5)]
    await store.journal()
    await store.close()
    await asyncio.gather(*commits)
    await store.open()
    assert len(await store.journal()) == 5
    await store.close()


async def test_closing_does_not_wait_for_ever(tmp_path):
    store = SqliteStore(tmp_path / "state.db", deadline=0.05)
    await store.open()
    async with stalled(store):
        with pytest.raises(Broken, match=r"not closed within 0\.05 s"):
            await store.close()


async def test_opening_does_not_wait_for_ever(tmp_path, monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(database, "make_file", lambda path: release.wait(30))
    monkeypatch.setattr("ephemerd.adapters.stores.sqlite.store.OPEN_DEADLINE", 0.05)
    store = SqliteStore(tmp_path / "state.db")
    with pytest.raises(Broken, match=r"no answer within 0\.05 s"):
        await store.open()
    release.set()
    await store.close()


# Quarantine.


async def test_the_quarantine_keeps_the_newest_within_its_bounds(store, monkeypatch):
    monkeypatch.setattr(writing, "QUARANTINE_MOST", 3)
    monkeypatch.setattr(writing, "QUARANTINE_BYTES", 1000)

    async def kept() -> list[int]:
        found = await in_writer(
            store, lambda sql: sql.execute("SELECT at FROM quarantine ORDER BY seq").fetchall()
        )
        assert len(found) == await store.quarantined()
        return [at for (at,) in found]

    for at in range(5):
        await store.quarantine(at, "github", "d", b"x", "e")
    assert await kept() == [2, 3, 4]
    await store.quarantine(5, "github", "d", b"x" * 998, "e")
    assert await kept() == [3, 4, 5]
    await store.quarantine(6, "github", "d", b"x" * 998, "e")
    assert await kept() == [6]
    await store.quarantine(7, "github", "d", b"x" * 5000, "e")  # the newest is kept, whatever its size
    assert await kept() == [7]
    found = await in_writer(store, lambda sql: sql.execute("SELECT * FROM quarantine").fetchone())
    assert found[1:] == (7, "github", "d", b"x" * 5000, "e")


async def test_a_disk_that_became_read_only_stores_nothing_and_later_commits_work(store):
    """The database refuses as it does when its file system was remounted."""
    await store.commit(batch(step(1, ("job", "a", {"n": 1}))), CLOCK)
    before = await contents(store)
    await in_writer(store, lambda sql: sql.execute("PRAGMA query_only = ON"))
    with pytest.raises(NotStored, match="cannot be opened for writing"):
        await store.commit(batch(step(2, ("job", "a", {"n": 2}))), CLOCK)
    with pytest.raises(NotStored):
        await store.prune(NOW, Keep())
    assert await contents(store) == before
    await in_writer(store, lambda sql: sql.execute("PRAGMA query_only = OFF"))
    await store.commit(batch(step(2, ("job", "a", {"n": 2}))), CLOCK)
    assert await rows_of(store) == {"job": {"a": {"n": 2}}}


async def test_pruning_on_a_full_disk_forgets_nothing_by_halves(store):
    """Forgetting needs a little room itself: it is tried again when there is some."""
    for day in range(3):
        await store.open_segment("rules", {})
        for number in range(3):
            large = step(day * 3 + number, subjects=(f"s{number}",), now=NOW + day, decisions=())
            await store.commit(batch(large), (NOW + day, "boot", 1))
    before = await contents(store)
    with files_limited_to(4096):
        with pytest.raises(NotStored):
            await store.prune(NOW + 10**12, Keep())
        assert await contents(store) == before
    while (await store.prune(NOW + 10**12, Keep())).more:
        pass
    assert len(await store.journal()) == 3
