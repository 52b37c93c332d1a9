"""Replay of exported journals: the same events give the same commands, and whatever differs is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ephemerd.core import codec
from ephemerd.core.machine import RULES, Core
from ephemerd.testing.simulate import front
from ephemerd.testing.simulate.exported import Unreadable, is_exported, replay_exported
from ephemerd.testing.simulate.foils import POLICIES
from ephemerd.testing.simulate.run import Simulation
from ephemerd.testing.weather import load

INCIDENT = Path(__file__).parents[2] / "data" / "incidents" / "control-idle-spare.jsonl"
Plain = dict[str, Any]


@pytest.fixture(scope="module")
def lines() -> list[Plain]:
    """A segment as `journal export` writes it, of a simulated daemon."""
    simulation = Simulation(
        replace(load("bursty"), operator_kill=0.1, cancelled_queued=0.3), 4, 60, whole=True
    )
    simulation.run()
    recorder = simulation.daemon.recorder
    assert recorder is not None
    assert recorder.segment is not None
    entries = [
        {"seq": seq, "now": now, "event": codec.encode_event(event), "commands": commands}
        for seq, (event, now, commands) in enumerate(recorder.segment.entries, 1)
    ]
    return [
        {"kind": "checkpoint", "segment": 1, "rules": RULES, "rows": Core().checkpoint()["rows"]},
        *entries,
    ]


def write(path: Path, lines: list[Plain]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def test_the_same_events_give_the_same_commands(tmp_path, lines):
    file = write(tmp_path / "j.jsonl", lines)
    assert is_exported(file)
    report = replay_exported(file)
    assert report.expectations == [
        ("each event gives the commands that were recorded", True),
        ("the state at the end holds together", True),
    ]
    woken = sum(line["event"]["kind"] == "Woke" for line in lines[1:])
    assert report.events == len(lines) - 1 - woken
    assert report.decisions
    assert (report.problems, report.killed) == ([], [])
    reaped = [decision.runner for decision in report.decisions if decision.outcome == "reaped"]
    assert [runner for _, runner in report.destroyed] == reaped, "remains of natural ends are not counted"


def test_from_a_checkpoint_in_the_middle_too(tmp_path, lines):
    half = len(lines) // 2
    core = Core()
    for line in lines[1:half]:
        core.handle(codec.decode_event(line["event"]), line["now"])
    first = {**lines[0], "segment": 2, "rows": core.checkpoint()["rows"]}
    rest = [{**line, "seq": seq} for seq, line in enumerate(lines[half:], half)]
    report = replay_exported(write(tmp_path / "j.jsonl", [first, *rest]))
    assert [held for _, held in report.expectations] == [True, True]


@pytest.mark.parametrize("change", ["hash", "event", "gap"])
def test_what_differs_is_named(tmp_path, lines, change):
    changed = [dict(line) for line in lines]
    at = next(i for i, line in enumerate(lines) if i > 20 and line["event"]["kind"] == "Registered")
    if change == "hash":
        changed[at]["commands"] = "0" * 32
    elif change == "event":
        changed[at]["event"] = {**lines[at]["event"], "runner": "eph-nobody"}
    else:
        del changed[at]
    report = replay_exported(write(tmp_path / "j.jsonl", changed))
    assert report.expectations[0] == ("each event gives the commands that were recorded", False)
    assert report.problems[0].startswith("entry ")
    assert report.problems[0].endswith("gives other commands")


def test_a_foil_is_shown_and_not_held_to_anything(tmp_path, lines):
    report = replay_exported(write(tmp_path / "j.jsonl", lines), POLICIES["sweep"])
    assert report.expectations == []
    assert report.destroyed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("\n \n", "it is empty"),
        ("no json\n", "line 1: "),
        ("[1]\n", "line 1 is no object"),
        ('{"kind": "journey"}\n', "neither a note"),
    ],
)
def test_what_is_no_journal_is_said_to_be_none(tmp_path, text, said):
    file = tmp_path / "j.jsonl"
    file.write_text(text, "utf-8")
    with pytest.raises(Unreadable, match=said):
        front.replay(file, "gate")


@pytest.mark.parametrize(
    ("first", "entry", "said"),
    [
        ({"rules": "0"}, {}, "version '0'"),
        ({"rows": {"runner": {"x": {"odd": 1}}}}, {}, "line 1: its rows"),
        ({"rows": {"weather": {"x": {}}}}, {}, "line 1: its rows"),
        ({"rows": None}, {}, "line 1: its rows"),
        ({}, {"event": {"kind": "Moved"}}, "line 2: no entry"),
        ({}, {"now": "soon"}, "line 2: no entry"),
        ({}, {"commands": ...}, "line 2: no entry"),
    ],
)
def test_a_broken_line_is_named(tmp_path, lines, first, entry, said):
    line = {key: value for key, value in {**lines[1], **entry}.items() if value is not ...}
    file = write(tmp_path / "j.jsonl", [{**lines[0], **first}, line])
    with pytest.raises(Unreadable, match=said):
        replay_exported(file)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    file = tmp_path / "j.jsonl"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Unreadable, match="no text"):
        is_exported(file)


def test_an_incident_without_its_parts_is_refused(tmp_path):
    file = write(tmp_path / "j.jsonl", [{"kind": "note", "at": "2026-01-01T00:00:00Z", "replay": "demand"}])
    with pytest.raises(Unreadable, match="it lacks something"):
        front.replay(file, "gate")


@pytest.mark.parametrize("policy", ["gate", "sweep"])
def test_the_front_replays_incidents_with_the_keys_of_the_contract(policy):
    told = front.replay(INCIDENT, policy)
    keys = ["file", "policy", "events", "decisions", "destroyed", "killed", "expectations"]
    assert list(told)[: len(keys)] == keys
    assert (told["file"], told["policy"]) == (INCIDENT.name, policy)
    assert all(entry["held"] for entry in told["expectations"])
    assert "ctl_idle" in [one["runner"] for one in told["destroyed"]]
    for decision in told["decisions"]:
        assert list(decision) == ["at", "runner", "outcome", "verdict", "via", "reason"]
    assert json.loads(json.dumps(told)) == told
