"""`simulate`: options, figures, comparison, progress, and the exit code of a broken promise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ephemerd.cli import lab
from ephemerd.cli.failure import Failure
from ephemerd.cli.lab_simulate import _names, _seeds, progress
from ephemerd.testing.simulate import front

FAST = ("--jobs", "20", "--workers", "1")


def test_one_run_as_json_has_the_keys_of_the_contract(cli):
    done = cli("simulate", *FAST, "--seed", "3", "--weather", "calm", "--json")
    assert done.code == 0
    assert done.out.count("\n") == 1
    assert (done.json["policy"], done.json["weather"], done.json["seed"], done.json["jobs"]) == (
        "gate",
        "calm",
        3,
        20,
    )
    assert (done.json["completed"], done.json["killed"]) == (20, 0)
    again = cli("simulate", *FAST, "--seed", "3", "--weather", "calm", "--json")
    assert done.json["command_hash"] == again.json["command_hash"]


def test_several_seeds_as_json_are_runs_and_a_total(cli):
    done = cli("simulate", *FAST, "--seeds", "2-4", "--json")
    assert [run["seed"] for run in done.json["runs"]] == [2, 3, 4]
    assert done.json["total"]["jobs"] == 60
    assert {run["weather"] for run in done.json["runs"]} == {"bursty"}


def test_for_people_there_is_a_table(cli):
    done = cli("simulate", *FAST)
    lines = done.out.splitlines()
    assert lines[0] == "policy gate, weather bursty, seed 1"
    shown = dict(line.rsplit(maxsplit=1) for line in lines[2:] if "/" not in line)
    assert (shown["jobs"], shown["killed"], shown["slot difference"]) == ("20", "0", "0")
    assert any(line.startswith("wait p50 / p95 / max s") for line in lines)
    several = cli("simulate", *FAST, "--seeds", "1-2", "--weather", "calm,bursty").out.splitlines()[0]
    assert several == "policy gate, weather calm, bursty, 2 seeds from 1 to 2"


def test_policies_side_by_side(cli):
    done = cli("simulate", *FAST, "--compare", "--policy", "gate,intent", "--weather", "bursty")
    lines = done.out.splitlines()
    assert done.code == 0
    assert lines[0].split()[:3] == ["policy", "weather", "jobs"]
    assert [line.split()[0] for line in lines[1:]] == ["gate", "intent"]


def test_the_comparison_as_data_and_as_markdown(cli):
    options = (*FAST, "--compare", "--policy", "gate,sweep", "--weather", "calm")
    done = cli("simulate", *options, "--json")
    assert [row["policy"] for row in done.json["comparison"]] == ["gate", "sweep"]
    assert set(done.json["comparison"][0]) >= {
        "killed_per_100k",
        "disturbed_per_100k",
        "wasted_pct",
        "wait_p50_s",
        "wait_p95_s",
        "api_calls_per_job",
    }
    text = cli("simulate", *FAST, "--markdown", "--policy", "gate,sweep", "--weather", "calm").out
    assert text.startswith("| policy | weather | jobs |")
    assert len(text.splitlines()) == 4


def test_compared_are_all_policies_in_all_weathers_unless_named(cli, monkeypatch):
    asked: dict[str, Any] = {}

    def run(**given: Any) -> Any:
        asked.update(given)
        return {"total": {}}, [], []

    monkeypatch.setattr(front, "run", run)
    cli("simulate", "--compare", "--seeds", "1-3", "--jobs", "7")
    assert asked["policies"] == list(front.policies())
    assert asked["weathers"] == list(front.weathers())
    assert (asked["seeds"], asked["jobs"], asked["workers"]) == ([1, 2, 3], 7, 0)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--policy", "gates"), "--policy 'gates' is not known"),
        (("--weather", "sunny"), "--weather 'sunny' is not known"),
        (("--weather", ","), "--weather names nothing"),
        (("--seeds", "4-2"), "--seeds '4-2' has another form"),
        (("--seeds", "a-b"), "--seeds 'a-b' has another form"),
        (("--seeds", "3"), "--seeds '3' has another form"),
        (("--seeds", "0-100000"), "--seeds 0-100000 are too many"),
        (("--seeds", "1-2", "--seed", "1"), "--seed and --seeds are both given"),
    ],
)
def test_wrong_usage_says_what_is_right(cli, arguments, what):
    done = cli("simulate", *arguments)
    assert done.code == 2
    first, second = done.err.splitlines()
    assert first == f"error: {what}"
    assert second.startswith("  fix: ")


def test_jobs_are_at_least_one(cli):
    assert cli("simulate", "--jobs", "0").code == 2


def test_names_are_listed_once_and_all_means_all():
    known = ("a", "b", "c")
    assert _names("--x", "b, a,b", known) == ["b", "a"]
    assert _names("--x", "all", known) == ["a", "b", "c"]
    with pytest.raises(Failure):
        _names("--x", "d", known)


@pytest.mark.parametrize(
    ("seed", "seeds", "found"), [(None, "", [1]), (9, "", [9]), (None, "5-7", [5, 6, 7])]
)
def test_seeds(seed, seeds, found):
    assert _seeds(seed, seeds) == found


def test_a_broken_promise_is_code_8_with_seed_story_and_command(cli, monkeypatch):
    """The gate cannot be made to fail from here, so a foil stands in its place."""
    from ephemerd.testing.simulate.foils import POLICIES

    monkeypatch.setitem(POLICIES, "gate", POLICIES["sweep"])
    monkeypatch.setattr("ephemerd.testing.simulate.run.Recorder", lambda whole: None)
    done = cli("simulate", "--jobs", "300", "--seed", "1", "--weather", "bursty", "--json", "--workers", "1")
    assert done.code == 8
    assert json.loads(done.out)["killed"] > 0
    lines = done.err.splitlines()
    assert any(line.startswith("broken promise: bursty: killed ") for line in lines)
    assert any(line.startswith("seed 1, weather bursty, ") for line in lines)
    assert any(" s  " in line and "registered at the forge" in line for line in lines)
    reproduce = lines[-1]
    assert reproduce.startswith(
        "reproduce: ephemerd simulate --policy gate --weather bursty --seed 1 --jobs "
    )
    again = cli(*reproduce.removeprefix("reproduce: ephemerd ").split(), "--workers", "1")
    assert again.code == 8


def test_progress_is_plain_lines_where_there_is_no_terminal(capsys):
    with progress(1_000, quiet=False) as bar:
        for done in range(0, 1_001, 10):
            bar(done)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"simulated {100 * tenth:,} of 1,000 jobs" for tenth in range(1, 11)]


def test_progress_can_be_quiet(cli, capsys):
    with progress(10, quiet=True) as bar:
        bar(10)
    assert capsys.readouterr().err == ""
    assert cli("simulate", *FAST, "-q").err == ""
    assert "simulated 20 of 20 jobs" in cli("simulate", *FAST).err


def test_progress_is_a_bar_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress(10, quiet=False) as bar:
        bar(5)
        bar(10)
    assert capsys.readouterr().out == ""


def test_the_door_is_the_lab():
    assert lab.simulator() is front
