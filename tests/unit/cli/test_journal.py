"""`journal export`: from the daemon page by page, from a store's file, and what `replay` makes of it."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from ephemerd.adapters.stores.sqlite import SqliteStore
from ephemerd.core import codec
from ephemerd.core.machine import RULES, Core
from ephemerd.ports.store import Batch, StepRecord
from ephemerd.testing.simulate.run import Simulation
from tests.unit.simulate.build import calm

Plain = dict[str, Any]
FIRST = {"number": 3, "rules": RULES, "first_seq": 11, "rows": {"job": {}}}


def entry(seq: int, segment: int) -> Plain:
    return {
        "seq": seq,
        "segment": segment,
        "at": 1_000 + seq,
        "event": {"kind": "Woke"},
        "commands": f"{seq:032x}",
    }


@pytest.fixture
def served(daemon):
    """A daemon with the end of segment 2, all of 3 and the beginning of 4."""
    entries = [entry(seq, 2 if seq < 11 else 3 if seq < 2_500 else 4) for seq in range(1, 2_600)]
    daemon.lists("journal", entries)
    daemon.on("GET", "segments/newest", (200, FIRST))
    daemon.on("GET", "segments/3", (200, FIRST))
    return daemon


def lines_of(text: str) -> list[Plain]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_segment_is_read_from_the_daemon_page_by_page(cli, served):
    done = cli("journal", "export")
    first, *rest = lines_of(done.out)
    assert done.code == 0
    assert first == {
        "kind": "checkpoint",
        "segment": 3,
        "stands_at": 0,
        **{k: v for k, v in FIRST.items() if k != "number"},
    }
    assert [line["seq"] for line in rest] == list(range(11, 2_500))
    assert rest[0] == {"seq": 11, "now": 1_011, "event": {"kind": "Woke"}, "commands": f"{11:032x}"}
    asked = [query for _, path, query, _ in served.requests if path == "journal"]
    assert [query["after"] for query in asked] == ["10", "1010", "2010"]


def test_a_segment_can_be_named_and_written_to_a_file(cli, served, tmp_path):
    file = tmp_path / "journal.jsonl"
    done = cli("journal", "export", "--segment", "3", "--out", str(file))
    assert (done.code, done.out) == (0, "")
    assert done.err == f"2,489 events written to {file}\n"
    assert len(file.read_text("utf-8").splitlines()) == 2_490
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_unknown_segment_is_wrong_usage(cli, served):
    done = cli("journal", "export", "--segment", "9")
    assert done.code == 2


def test_no_daemon_is_code_6(cli, folder, tmp_path):
    out = tmp_path / "x.jsonl"
    done = cli("journal", "export", "--socket", str(folder / "no.sock"), "--out", str(out))
    assert done.code == 6
    assert not out.exists()


def test_store_and_daemon_are_not_both_asked(cli, tmp_path):
    done = cli("journal", "export", "--store", str(tmp_path / "s.db"), "--socket", "/nowhere")
    assert (done.code, done.err.splitlines()[0]) == (2, "error: --store and a daemon are both given")


def test_a_file_that_cannot_be_written_is_code_5(cli, served, tmp_path):
    done = cli("journal", "export", "--out", str(tmp_path / "none" / "j.jsonl"))
    assert done.code == 5
    assert "cannot be written" in done.err


@pytest.mark.parametrize("arguments", [("journal", "--help"), ("journal",), ("journal", "export", "--help")])
def test_help_shows_an_example(cli, arguments):
    done = cli(*arguments)
    assert done.code in (0, 2)
    assert "Example: ephemerd journal export" in done.out + done.err


def stored(path: Path, *, crooked: bool = False) -> int:
    """Keep a simulated daemon's journal in a real store; return how many events it holds."""
    simulation = Simulation(calm(operator_kill=1.0), 2, 5, whole=True)
    simulation.run()
    recorder = simulation.daemon.recorder
    assert recorder is not None
    assert recorder.segment is not None
    steps = tuple(
        StepRecord(now, codec.encode_event(event), "0" * 32 if crooked else commands, (), (), ())
        for event, now, commands in recorder.segment.entries
    )

    async def keep() -> None:
        store = SqliteStore(path)
        await store.open()
        await store.open_segment(RULES, Core().checkpoint())
        await store.commit(Batch((), steps), (1, "boot", 1))
        await store.close()

    asyncio.run(keep())
    return len(steps)


def test_a_stores_file_is_exported_and_replayed(cli, tmp_path):
    store, file = tmp_path / "state.db", tmp_path / "j.jsonl"
    count = stored(store)
    done = cli("journal", "export", "--store", str(store), "--out", str(file))
    assert (done.code, done.err) == (0, f"{count:,} events written to {file}\n")
    told = cli("replay", str(file), "--json")
    assert told.code == 0
    assert [one["held"] for one in told.json["expectations"]] == [True, True]
    assert told.json["decisions"]


def test_a_journal_that_does_not_give_the_same_commands_is_code_8(cli, tmp_path):
    store, file = tmp_path / "state.db", tmp_path / "j.jsonl"
    stored(store, crooked=True)
    cli("journal", "export", "--store", str(store), "--out", str(file))
    told = cli("replay", str(file), "--json")
    assert told.code == 8
    assert told.json["problems"] == ["entry 1 (Booted) gives other commands"]


def test_a_store_that_is_not_there_is_code_5(cli, tmp_path):
    done = cli("journal", "export", "--store", str(tmp_path / "none.db"))
    assert done.code == 5
    assert done.err.startswith(f"error: there is no store {tmp_path}/none.db")
