"""The file: how it is made, who may open it, and what is refused with which words. Refusing changes nothing."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from ephemerd.adapters.stores.sqlite import SqliteStore, database
from ephemerd.ports.errors import Broken, NewerStore, StoreHeld
from ephemerd.testing.contracts.store import CLOCK, batch, opened, rows_of, step

HOLDER = """
import asyncio, sys
from pathlib import Path
from ephemerd.adapters.stores.sqlite import SqliteStore

async def hold():
    store = SqliteStore(Path(sys.argv[1]))
    await store.open()
    print("held", flush=True)
    sys.stdin.read()

asyncio.run(hold())
"""


def hold(path: Path) -> subprocess.Popen[bytes]:
    """Start a process that opens the store, says so and keeps it."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


async def made(path: Path, rows: int = 1) -> None:
    """Make a store with some rows, and close it."""
    async with opened(lambda: SqliteStore(path)) as store:
        await store.commit(
            batch(*(step(n, ("job", f"j{n}", {"text": f"{n}" * 300})) for n in range(rows))), CLOCK
        )


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def change(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(sql)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
async def test_what_is_made_is_for_this_user_only(tmp_path, umask):
    old = os.umask(umask)
    try:
        path = tmp_path / "a" / "b" / "state.db"
        async with opened(lambda: SqliteStore(path)) as store:
            await store.commit(batch(step(1)), CLOCK)
            names = {file.name for file in path.parent.iterdir()}
            assert names == {"state.db", "state.db-wal", "state.db-shm", "state.db.lock"}
            assert {mode(file) for file in path.parent.iterdir()} == {0o600}
        assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == 0o700
    finally:
        os.umask(old)


async def test_a_folder_that_exists_keeps_its_mode(tmp_path, path):
    tmp_path.chmod(0o750)
    await made(path)
    assert mode(tmp_path) == 0o750


async def test_closing_leaves_one_file_and_the_lock(path):
    await made(path)
    assert sorted(file.name for file in path.parent.iterdir()) == ["state.db", "state.db.lock"]


async def test_each_store_has_an_id_of_its_own_that_stays(tmp_path):
    ids = []
    for name in ("a", "b", "a"):
        store = SqliteStore(tmp_path / name)
        await store.open()
        ids.append((await store.load()).store)
        await store.close()
    assert ids[0] == ids[2] != ids[1]
    assert all(re.fullmatch(r"[a-z0-9]{8}", each) for each in ids)


async def test_it_is_written_as_durably_as_the_design_says(path):
    store = SqliteStore(path)
    await store.open()

    def pragmas() -> dict[str, object]:
        names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ask = store._database.connection.execute
        return {name: ask(f"PRAGMA {name}").fetchone()[0] for name in names}

    assert store._writer is not None
    found = await store._writer.do(pragmas, 10)
    await store.close()
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5000}


async def test_the_connection_for_queries_cannot_write(path):
    await made(path)
    refused = pytest.raises(sqlite3.OperationalError, match="readonly")
    with closing(database.connect(path, read_only=True)) as connection, refused:
        connection.execute("DELETE FROM record")


async def test_an_empty_file_becomes_a_store(path):
    path.touch()
    await made(path)


async def test_names_with_odd_signs_work(tmp_path):
    await made(tmp_path / "a b?#%41'ä" / "state?mode=ro.db")
    assert (tmp_path / "a b?#%41'ä" / "state?mode=ro.db").stat().st_size > 0


async def test_a_relative_path_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    await made(Path("state.db"))
    assert (tmp_path / "state.db").exists()


# What is refused.


async def refusal(path: Path, kind: type[Exception]) -> str:
    """Open it twice: refused with the same words both times, so nothing stayed held, and nothing was changed."""
    before = path.read_bytes() if path.is_file() else None
    texts = []
    for _ in range(2):
        store = SqliteStore(path)
        with pytest.raises(kind) as caught:
            await store.open()
        texts.append(str(caught.value))
        await store.close()
    assert texts[0] == texts[1]
    assert (path.read_bytes() if path.is_file() else None) == before
    return texts[0]


async def test_a_newer_version_is_refused(path):
    await made(path)
    change(path, "INSERT INTO schema_migrations (number, name) VALUES (7, 'x'); PRAGMA user_version = 7")
    text = await refusal(path, NewerStore)
    assert "its version 7, this program knows" in text
    assert "Install that program again, or go back to a backup" in text


async def test_version_marks_that_contradict_each_other_are_refused(path):
    await made(path)
    change(path, "DELETE FROM schema_migrations")
    assert "contradict" in await refusal(path, Broken)


@pytest.mark.parametrize("content", [b"no database at all\n" * 100, b"\x00" * 5000, b"SQLite format 3\x00"])
async def test_what_is_no_database_is_refused(path, content):
    path.write_bytes(content)
    text = await refusal(path, Broken)
    assert "damaged or no database" in text
    assert "put a backup" in text


async def test_a_file_with_broken_pages_is_refused(path):
    await made(path, rows=400)
    size = path.stat().st_size
    assert size > 100_000
    with path.open("r+b") as file:
        file.seek(size // 2)
        file.write(os.urandom(size // 4))
    assert "sqlite3 state.db .recover" in await refusal(path, Broken)


async def test_a_very_large_file_is_not_read_whole_at_the_start(path, monkeypatch):
    await made(path, rows=400)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(os.urandom(20_000))
    monkeypatch.setattr(database, "CHECKED_MOST", path.stat().st_size - 1)
    store = SqliteStore(path)
    await store.open()
    with pytest.raises(Broken, match="damaged"):
        await store.load()
    await store.close()


async def test_a_file_that_was_cut_off_is_refused(path):
    await made(path, rows=400)
    os.truncate(path, path.stat().st_size // 2)
    assert "damaged" in await refusal(path, Broken)


@pytest.mark.parametrize(
    "sql",
    ["CREATE TABLE notes (text)", "PRAGMA application_id = 5; VACUUM", "PRAGMA user_version = 1; VACUUM"],
)
async def test_the_database_of_another_program_is_refused(path, sql):
    change(path, sql)
    assert "database of another program" in await refusal(path, Broken)


async def test_a_row_that_is_no_json_is_handed_over_as_it_is(path):
    await made(path)
    change(path, """UPDATE record SET data = '{"text": 1'""")
    async with opened(lambda: SqliteStore(path)) as store:
        assert (await store.load()).rows == {"job": {"j0": '{"text": 1'}}


async def test_an_entry_that_is_no_json_is_named(path):
    await made(path)
    change(path, "UPDATE journal SET event = '{'")
    async with opened(lambda: SqliteStore(path)) as store:
        with pytest.raises(Broken, match=r"damaged.*\(journal 1: "):
            await store.journal()


async def test_a_folder_in_place_of_the_file_is_refused(tmp_path):
    assert "Is a directory" in await refusal(tmp_path, Broken)


async def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    text = await refusal(tmp_path / "file" / "sub" / "state.db", Broken)
    assert "choose another place for the store" in text


@pytest.mark.platform("linux")
async def test_a_place_where_nothing_can_be_made_is_refused():
    text = await refusal(Path("/proc/ephemerd/state.db"), Broken)
    assert f"cannot be opened for writing as user {os.geteuid()}" in text


@pytest.mark.account("user")
async def test_a_file_without_leave_is_refused(tmp_path, path):
    await made(path)
    path.chmod(0o400)
    assert "Permission denied" in await refusal(path, Broken)
    path.chmod(0o600)
    tmp_path.chmod(0o500)
    (tmp_path / "state.db.lock").chmod(0o400)
    assert "Permission denied" in await refusal(path, Broken)
    tmp_path.chmod(0o700)


async def test_a_lock_file_that_leads_elsewhere_is_refused(tmp_path, path):
    (tmp_path / "state.db.lock").symlink_to(tmp_path / "elsewhere")
    await refusal(path, Broken)
    assert not (tmp_path / "elsewhere").exists()


# One holder.


async def test_the_same_file_by_another_name_is_held_too(tmp_path, path):
    link = tmp_path / "link.db"
    async with opened(lambda: SqliteStore(path)):
        link.symlink_to(path)
        with pytest.raises(StoreHeld):
            await SqliteStore(link).open()


async def test_opening_twice_is_a_mistake(path):
    async with opened(lambda: SqliteStore(path)) as store:
        with pytest.raises(RuntimeError):
            await store.open()
        await store.commit(batch(step(1)), CLOCK)


async def test_another_process_is_named_by_its_pid_and_its_death_frees_the_store(path):
    holder = hold(path)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreHeld, match=rf"in use by another daemon \(pid {holder.pid}\)"):
            await SqliteStore(path).open()
    finally:
        holder.kill()
        holder.communicate()
    await made(path)


@pytest.mark.parametrize("content", [b"", b"abc", b"\xff\xfe", b"1" * 100])
async def test_a_lock_file_without_a_pid_still_locks(path, content):
    async with opened(lambda: SqliteStore(path)):
        path.with_name("state.db.lock").write_bytes(content)
        with pytest.raises(StoreHeld, match="in use by another daemon"):
            await SqliteStore(path).open()


async def test_a_copy_is_a_store_of_its_own(tmp_path, path):
    await made(path)
    shutil.copy(path, tmp_path / "copy.db")
    async with (
        opened(lambda: SqliteStore(path)) as one,
        opened(lambda: SqliteStore(tmp_path / "copy.db")) as two,
    ):
        assert await rows_of(one) == await rows_of(two)
