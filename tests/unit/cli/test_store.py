"""`store check|backup|export|quarantine` on real files and, for the quarantine, against a daemon."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ephemerd.adapters.stores.sqlite import SqliteStore, migrate
from ephemerd.core import codec
from ephemerd.core.machine import RULES
from ephemerd.domain.ids import JobKey
from ephemerd.domain.job import Job, JobStatus
from ephemerd.ports.store import Batch, DeliveryId, StepRecord
from ephemerd.testing.contracts.store import CLOCK, NOW

JOB = Job(JobKey("github", "acme/app", 7), ("linux",), 1, JobStatus.DONE, NOW, NOW, NOW, ended=NOW)


async def _fill(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.open_segment(RULES, {"rows": {}})
    row = codec.encode_row("job", JOB)
    step = StepRecord(
        NOW, {"kind": "Woke"}, "0" * 32, (("job", str(JOB.key), row),), ({"id": 1, "at": NOW},), ()
    )
    await store.commit(Batch((DeliveryId("github", "d1"),), (step,)), CLOCK)
    await store.quarantine(NOW, "github", "d2", b'{"payload": "raw"}', "ValueError: odd")
    await store.close()


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "state.db"
    asyncio.run(_fill(found))
    return found


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for sql in statements:
            connection.execute(sql)


def test_a_sound_store(cli, path):
    done = cli("store", "check", "--store", str(path))
    assert done.code == 0
    assert "sound" in done.out
    assert done.err == ""
    done = cli("store", "check", "--store", str(path), "--json")
    found = json.loads(done.out)
    assert (found["verdict"], found["problems"]) == ("sound", [])
    assert found["rows"] == {"job": 1}
    assert (found["records"]["journal"], found["records"]["quarantine"]) == (1, 1)


def damaged_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 3 + 60] = b"\xff" * 60
    path.write_bytes(data)


DAMAGE: dict[str, tuple[Any, str]] = {
    "page": (damaged_page, "pages: "),
    "no json": ("UPDATE record SET data = '{\"key'", "row job github/acme/app/7: cannot be read: no JSON"),
    "no row": ("""UPDATE record SET data = '{"key": 1}'""", "row job github/acme/app/7: cannot be read"),
    "nested": (
        f"UPDATE record SET data = '{'[' * 3_000}{']' * 3_000}'",
        "job github/acme/app/7: cannot be read",
    ),
    "kind": ("""UPDATE record SET kind = 'jobb'""", "no row is of kind 'jobb'"),
    "name": ("UPDATE record SET id = 'github/acme/app/8'", "the row is of github/acme/app/7"),
    "number": ("UPDATE store SET next_seq = 1", "there is one with the number 1"),
    "segment": ("UPDATE journal SET segment = 0", "journal 1: says segment 0"),
    "open segment": ("UPDATE store SET segment = 5", "5 is open, and the newest is 1"),
    "index": ("DROP INDEX delivery_seen", "schema: index delivery_seen is missing"),
    "table": ("CREATE TABLE extra (n)", "schema: table extra is not ours"),
    "column": ("ALTER TABLE decision ADD COLUMN n", "schema: table decision is not as version"),
    "reference": ("INSERT INTO journal_subject (subject, seq) VALUES (99, 1)", "refers to a subject"),
    "event": ("UPDATE journal SET event = '{'", "journal 1: is no JSON"),
    "quarantine": ("UPDATE store SET next_aside = 1", "quarantine: the next number is given already"),
    "itself": ("DELETE FROM store", "the row that says who it is is missing"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_named_with_code_5_and_a_way_out(cli, path, what):
    damage, expected = DAMAGE[what]
    if callable(damage):
        damage(path)
    else:
        change(path, damage)
    done = cli("store", "check", "--store", str(path))
    assert done.code == 5
    assert "damaged" in done.out
    assert expected in done.err
    assert "fix: stop the daemon; --set-aside" in done.err


def test_a_state_that_does_not_hold_together_is_named(cli, path):
    row = json.dumps({**codec.encode_row("job", JOB), "ended": None})
    change(path, f"UPDATE record SET data = '{row}'")
    done = cli("store", "check", "--store", str(path))
    assert (done.code, "done without a time" in done.err) == (5, True)


def test_rows_that_cannot_be_read_are_put_aside_and_the_store_is_sound_again(cli, path):
    change(path, "UPDATE record SET data = '{\"key'")
    done = cli("store", "check", "--store", str(path), "--set-aside")
    assert done.code == 0
    assert "1 row(s) were put into quarantine" in done.out
    listed = json.loads(cli("store", "quarantine", "--store", str(path), "--json").out)
    assert [one["delivery"] for one in listed] == ["d2", "row job github/acme/app/7"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT body FROM quarantine WHERE seq = 2").fetchone() == (b'{"key',)


def test_nothing_is_put_aside_while_a_daemon_has_the_store(cli, path):
    change(path, "UPDATE record SET data = '{\"key'")

    async def held() -> None:
        store = SqliteStore(path)
        await store.open()
        done = await asyncio.to_thread(cli, "store", "check", "--store", str(path), "--set-aside")
        await store.close()
        assert done.code == 5
        assert "in use by another daemon" in done.err

    asyncio.run(held())


@pytest.mark.parametrize("command", ["check", "export", "quarantine"])
def test_what_is_no_store_is_refused(cli, tmp_path, command):
    file = tmp_path / "other.db"
    assert cli("store", command, "--store", str(file)).code == 5
    file.write_text("no database at all, but long enough to be taken for one by its size" * 40)
    done = cli("store", command, "--store", str(file))
    assert (done.code, "no database" in done.err) == (5, True)


def test_a_store_of_the_first_version_is_checked_as_it_is(cli, tmp_path):
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate.apply(connection, 0, migrate.migrations()[:1])
        connection.execute("INSERT INTO store (only, id) VALUES (1, 'abcdefgh')")
    found = json.loads(cli("store", "check", "--store", str(path), "--json").out)
    assert (found["verdict"], found["version"], found["problems"]) == ("sound", 1, [])


def test_a_backup_beside_a_daemon_holds_what_was_committed(cli, path, tmp_path):
    target = tmp_path / "copy.db"

    async def live() -> None:
        store = SqliteStore(path)
        await store.open()
        step = StepRecord(NOW, {"kind": "Woke"}, "1" * 32, (), (), ())
        await store.commit(Batch((), (step,)), CLOCK)
        done = await asyncio.to_thread(cli, "store", "backup", str(target), "--store", str(path))
        assert done.code == 0
        await store.commit(Batch((), (step,)), CLOCK)
        await store.close()

    asyncio.run(live())
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(file.name for file in tmp_path.glob("*copy*")) == ["copy.db"]
    found = json.loads(cli("store", "check", "--store", str(target), "--json").out)
    assert (found["verdict"], found["records"]["journal"]) == ("sound", 2)

    async def restored() -> list[str]:
        store = SqliteStore(target)
        await store.open()
        rows = sorted((await store.load()).rows["job"])
        await store.close()
        return rows

    assert asyncio.run(restored()) == ["github/acme/app/7"]


def test_a_backup_is_written_where_the_caller_stands(cli, path, monkeypatch):
    monkeypatch.chdir(path.parent)
    done = cli("store", "backup", "copy.db", "--store", "state.db")
    assert done.code == 0, done.err
    assert cli("store", "check", "--store", "copy.db").code == 0


def test_an_older_backup_is_replaced_only_when_asked(cli, path, tmp_path):
    target = tmp_path / "copy.db"
    target.write_text("older")
    done = cli("store", "backup", str(target), "--store", str(path))
    assert (done.code, "--force" in done.err, target.read_text()) == (5, True, "older")
    assert cli("store", "backup", str(target), "--store", str(path), "--force").code == 0
    assert target.stat().st_size > 4096


def test_a_backup_onto_the_store_itself_is_refused(cli, path):
    before = path.read_bytes()
    done = cli("store", "backup", str(path), "--store", str(path), "--force")
    assert (done.code, "the store itself" in done.err) == (5, True)
    assert path.read_bytes() == before


def test_a_backup_that_cannot_be_written_leaves_nothing(cli, path, tmp_path):
    done = cli("store", "backup", str(tmp_path / "none" / "copy.db"), "--store", str(path))
    assert done.code == 5
    assert not (tmp_path / "none").exists()


def test_a_damaged_store_gives_no_backup_that_looks_good(cli, path, tmp_path):
    damaged_page(path)
    target = tmp_path / "copy.db"
    done = cli("store", "backup", str(target), "--store", str(path))
    assert (done.code, target.exists()) == (5, False)
    assert list(tmp_path.glob(".copy*")) == []


@pytest.mark.parametrize("command", ["store", "journal"])
def test_an_export_never_goes_over_a_store(cli, path, command):
    before = path.read_bytes()
    done = cli(command, "export", "--store", str(path), "--out", str(path))
    assert (done.code, "is a database" in done.err) == (2, True)
    assert path.read_bytes() == before


def test_everything_is_exported_but_bodies(cli, path, tmp_path):
    out = tmp_path / "store.jsonl"
    done = cli("store", "export", "--store", str(path), "--out", str(out))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert (done.code, stat.S_IMODE(out.stat().st_mode)) == (0, 0o600)
    assert [line["kind"] for line in lines] == [
        "store", "row", "delivery", "segment", "segment", "entry", "decision", "quarantine",
    ]  # fmt: skip
    assert codec.decode_row("job", lines[1]["row"]) == JOB
    assert lines[5]["event"] == {"kind": "Woke"}
    assert "raw" not in out.read_text()


def test_a_row_that_is_no_json_is_named_by_an_export(cli, path):
    change(path, "UPDATE record SET data = '{\"key'")
    out = path.parent / "export"
    for done in (cli("store", "export", "--store", str(path), *to) for to in ([], ["--out", str(out)])):
        assert (done.code, done.out, "(row job github/acme/app/7: " in done.err) == (5, "", True)
    assert not out.exists(), "no half of an export"


def test_the_store_is_found_by_the_configuration(cli, path, tmp_path, monkeypatch):
    config = tmp_path / "ephemerd.toml"
    config.write_text(
        f'[forge.github]\nscope = "repo:acme/app"\ntoken_file = "token"\nwebhook_secret_file = "token"\n'
        f'[pools.linux]\nlabels = ["linux"]\nruntime = "process"\n[server]\nstore = "sqlite://{path}"\n'
    )
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o600)
    assert cli("store", "check", "--config", str(config)).code == 0
    done = cli("store", "check", "--config", str(tmp_path / "none.toml"))
    assert done.code == 3
    assert "--store" in done.err


def test_the_quarantine_of_a_running_daemon(cli, daemon):
    entry = {"seq": 4, "at": NOW, "forge": "github", "delivery": "d1", "size": 12, "error": "odd\x1b[1m"}
    daemon.lists("quarantine", [entry])
    daemon.on("POST", "quarantine/clear", (200, {"outcome": "accepted", "detail": "1 event(s)"}))
    done = cli("store", "quarantine")
    assert (done.code, "d1" in done.out, "\x1b" in done.out) == (0, True, False)
    assert not [one for one in daemon.requests if one[0] == "POST"]
    done = cli("store", "quarantine", "--clear", "--json")
    assert json.loads(done.out) == [entry]
    (order,) = [one for one in daemon.requests if one[0] == "POST"]
    assert order[3] == {"upto": 4}


def test_the_quarantine_of_a_file_is_cleared(cli, path):
    assert cli("store", "quarantine", "--store", str(path), "--clear").code == 0
    assert "nothing is in quarantine" in cli("store", "quarantine", "--store", str(path)).out
    assert cli("store", "quarantine", "--store", str(path), "--socket", "/x").code == 2
