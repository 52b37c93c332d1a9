"""Deliveries that the store cannot have are not looked up, and every one that it has is found."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerd.adapters.stores.sqlite import SqliteStore, reading
from ephemerd.adapters.stores.sqlite import store as module
from ephemerd.adapters.stores.sqlite.known import Known
from ephemerd.ports.errors import Broken
from ephemerd.ports.store import DeliveryId
from ephemerd.testing.contracts.store import CLOCK, batch


def ids(first: int, count: int) -> list[DeliveryId]:
    return [DeliveryId("github", f"d{number}") for number in range(first, first + count)]


@given(st.lists(st.builds(DeliveryId, st.text(max_size=4), st.text(max_size=8))))
def test_what_was_added_is_always_perhaps_there(added):
    known = Known()
    for delivery in added:
        known.add(delivery)
    known.whole = True
    assert [one for one in added if one not in known] == []


def test_what_was_not_added_is_hardly_ever_perhaps_there():
    known = Known()
    for delivery in ids(0, 20_000):
        known.add(delivery)
    assert DeliveryId("github", "other") in known  # until all are known
    known.whole = True
    assert sum(delivery in known for delivery in ids(20_000, 20_000)) < 20


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[DeliveryId]:
    """What was looked up in the file."""
    found: list[DeliveryId] = []
    look = reading.seen

    def seen(connection: Any, deliveries: Any) -> set[DeliveryId]:
        found.extend(deliveries)
        return look(connection, deliveries)

    monkeypatch.setattr(reading, "seen", seen)
    return found


async def learnt(store: SqliteStore) -> None:
    assert store._learning is not None
    await asyncio.wait_for(asyncio.shield(store._learning), 30)


async def test_new_deliveries_are_not_looked_up_and_old_ones_are_found(tmp_path, asked, monkeypatch):
    monkeypatch.setattr(module, "LEARNT_AT_ONCE", 7)
    first = SqliteStore(tmp_path / "state.db")
    await first.open()
    await first.commit(batch(deliveries=tuple(ids(0, 40))), CLOCK)
    await first.close()
    store = SqliteStore(tmp_path / "state.db")
    await store.open()
    await learnt(store)
    assert await store.seen(ids(40, 100)) == set()
    assert asked == []
    await store.commit(batch(deliveries=tuple(ids(40, 3))), CLOCK)
    assert await store.seen(ids(38, 7)) == set(ids(38, 5))
    assert asked == ids(38, 5)
    await store.close()


async def test_what_is_committed_while_all_is_learnt_anew_is_found_after_it(tmp_path, asked, monkeypatch):
    monkeypatch.setattr(module, "LEARNT_AT_ONCE", 2)
    monkeypatch.setattr(module, "MOST", 10)
    store = SqliteStore(tmp_path / "state.db")
    await store.open()
    await learnt(store)
    for number in range(30):
        commit = asyncio.create_task(store.commit(batch(deliveries=tuple(ids(number, 1))), CLOCK))
        await store.seen(ids(1_000 + number, 1))
        await commit
    await learnt(store)
    assert await store.seen(ids(0, 40)) == set(ids(0, 30))
    assert set(asked) >= set(ids(0, 30))
    assert not set(asked) & set(ids(30, 10))
    await store.close()


async def test_where_they_cannot_be_learnt_the_store_is_asked_about_each(tmp_path, asked, monkeypatch):
    def broken(*_: Any, **__: Any) -> list[DeliveryId]:
        raise Broken("no disk")

    store = SqliteStore(tmp_path / "state.db")
    with monkeypatch.context() as patch:
        patch.setattr(reading, "deliveries", broken)
        await store.open()
        await learnt(store)
    assert await store.seen(ids(0, 1)) == set()
    assert asked == ids(0, 1)
    await learnt(store)  # it was tried again meanwhile
    assert await store.seen(ids(1, 1)) == set()
    assert asked == ids(0, 1)
    await store.close()


async def test_a_store_that_is_not_open_says_so(tmp_path: Path):
    store = SqliteStore(tmp_path / "state.db")
    with pytest.raises(RuntimeError, match="not open"):
        await store.seen(ids(0, 1))
    await store.open()
    await learnt(store)
    await store.close()
    with pytest.raises(RuntimeError, match="not open"):
        await store.seen(ids(0, 1))
