"""A store that is brought to a newer version: a whole copy comes first, and its words when one goes back."""

from __future__ import annotations

import shutil
import sqlite3
from collections import namedtuple
from contextlib import closing
from pathlib import Path

import pytest

from ephemerd.adapters.stores.sqlite import SqliteStore, copying, migrate
from ephemerd.adapters.stores.sqlite.copying import before_upgrade
from ephemerd.adapters.stores.sqlite.migrate import Migration, migrations
from ephemerd.ports.errors import Broken, NewerStore
from ephemerd.testing.contracts.store import CLOCK, batch, contents, opened, step

KNOWN = migrations()
NEWER = (*KNOWN, Migration(len(KNOWN) + 1, "later", "CREATE TABLE extra (n)"))


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A store of this version with something in it."""
    file = tmp_path / "state.db"
    async with opened(lambda: SqliteStore(file)) as store:
        await store.commit(batch(step(1, ("job", "a", {"n": 1}), subjects=("s",))), CLOCK)
    return file


async def test_a_copy_is_made_before_the_migration_and_holds_everything(path, monkeypatch):
    async with opened(lambda: SqliteStore(path)) as store:
        before = await contents(store)
    kept = before_upgrade(path, len(KNOWN))
    assert not kept.exists(), "opening it again copies nothing"
    monkeypatch.setattr(migrate, "migrations", lambda: NEWER)
    async with opened(lambda: SqliteStore(path)) as store:
        assert await contents(store) == before
    assert kept.name == f"state.db.v{len(KNOWN)}.backup"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.glob(".*")] == []
    monkeypatch.undo()
    with pytest.raises(NewerStore, match=f"newer ephemerd.*{kept.name}"):
        await SqliteStore(path).open()
    async with opened(lambda: SqliteStore(kept)) as store:
        assert await contents(store) == before


async def test_a_new_store_is_not_copied(tmp_path):
    async with opened(lambda: SqliteStore(tmp_path / "new.db")):
        pass
    assert list(tmp_path.glob("*.backup")) == []


async def test_without_room_for_the_copy_nothing_is_migrated(path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(migrate, "migrations", lambda: NEWER)
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _: usage(100, 100, 0))
        with pytest.raises(Broken, match="no room"):
            await SqliteStore(path).open()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == len(KNOWN)
    async with opened(lambda: SqliteStore(path)):
        assert before_upgrade(path, len(KNOWN)).exists()


async def test_a_copy_that_fails_leaves_an_older_one_and_migrates_nothing(path, monkeypatch):
    kept = before_upgrade(path, len(KNOWN))
    kept.write_text("an older copy")
    monkeypatch.setattr(migrate, "migrations", lambda: NEWER)

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(copying, "sync", fails)
        with pytest.raises(Broken, match="Input/output"):
            await SqliteStore(path).open()
    assert kept.read_text() == "an older copy"
    assert [file.name for file in path.parent.glob(".*")] == []
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == len(KNOWN)
