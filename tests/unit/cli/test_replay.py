"""`replay`: what is printed of an incident, under which policy, and when the exit code is 8."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

INCIDENTS = Path(__file__).parents[2] / "data" / "incidents"
BURST = INCIDENTS / "2026-08-12-same-label-burst.jsonl"
KILL = INCIDENTS / "2026-07-10-intent-keyed-kill.jsonl"
ADOPTED = sorted(path for path in INCIDENTS.glob("*.jsonl") if '"replay": "adopt"' in path.read_text("utf-8"))


@pytest.mark.parametrize("path", ADOPTED, ids=lambda path: path.stem)
def test_the_gate_holds_what_each_incident_expects(cli, path):
    done = cli("replay", str(path), "--json")
    assert done.code == 0
    assert done.json["killed"] == []
    assert all(entry["held"] for entry in done.json["expectations"])


@pytest.mark.parametrize(
    ("path", "policy", "runner", "job"),
    [(KILL, "intent", "kind_cope", 86444761252), (BURST, "sweep", "warm_ride", 94297174551)],
    ids=["2026-07-10 under intent", "2026-08-12 under sweep"],
)
def test_the_recorded_kill_reappears_under_the_design_of_its_time(cli, path, policy, runner, job):
    done = cli("replay", str(path), "--policy", policy, "--json")
    assert done.code == 0, "nothing is promised for foils"
    assert [(one["runner"], one["job"]) for one in done.json["killed"]] == [(runner, job)]
    assert not all(entry["held"] for entry in done.json["expectations"])
    assert (done.json["policy"], done.json["file"]) == (policy, path.name)


def test_for_people_decisions_ends_and_expectations(cli):
    done = cli("replay", str(BURST))
    lines = done.out.splitlines()
    assert lines[0].startswith(f"{BURST.name}, policy gate: ")
    assert any("slim_hopper" in line and "reaped" in line for line in lines)
    assert any(line.startswith("destroyed at ") and line.endswith(": slim_hopper") for line in lines)
    assert not any(line.startswith("killed") for line in lines)
    assert sum(line.startswith("held") for line in lines) == 5
    assert not any(line.startswith("NOT held") for line in lines)
    assert "killed at " in cli("replay", str(BURST), "--policy", "sweep").out


def test_an_expectation_that_does_not_hold_is_code_8(cli, tmp_path):
    note, *lines = BURST.read_text("utf-8").splitlines()
    changed = json.loads(note)
    for entry in changed["expect"]:
        if entry["check"] == "gone_by":
            entry["at"] = "2026-08-12T23:39:40.000Z"
    file = tmp_path / "changed.jsonl"
    file.write_text("\n".join([json.dumps(changed), *lines]), "utf-8")
    done = cli("replay", str(file))
    assert done.code == 8
    assert sum(line.startswith("NOT held") for line in done.out.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("none.jsonl", None, "there is no file"),
        ("empty.jsonl", "", "it is empty"),
        ("odd.jsonl", '{"kind": "odd"}\n', "neither a note"),
    ],
)
def test_what_cannot_be_read_is_wrong_usage(cli, tmp_path, name, text, what):
    file = tmp_path / name
    if text is not None:
        file.write_text(text, "utf-8")
    done = cli("replay", str(file))
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert what in done.err


def test_an_unknown_policy_is_wrong_usage(cli):
    done = cli("replay", str(BURST), "--policy", "nobody")
    assert (done.code, done.err.splitlines()[0]) == (2, "error: --policy 'nobody' is not known")
