"""The narrative of `explain`: every rule and outcome in words, what repeats told once, wrapped below itself."""

from __future__ import annotations

from typing import Any

import pytest

from ephemerd.cli.narrative import RULES, VETOES, Teller, narrate, since
from ephemerd.domain.runner import Rule
from ephemerd.domain.verdict import Via
from ephemerd.ports.views import EvidenceView
from tests.unit.cli import views

RUNNER = "eph-k3v9-x7-7"
LONG_ID = "process:1:act:x32ii1ff:eph-k3v9-x7-7:f684af89-1f8c-4e37-bed1-a72b964f3576"


def story(*lines: dict[str, Any], runner: Any = None, job: Any = None) -> dict[str, Any]:
    return {"subject": RUNNER, "kind": "runner", "lines": list(lines), "runner": runner, "job": job}


def decided(**more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A story's line of a decision, and the decision."""
    decision = views.decision(1, runner=RUNNER, at=views.NOW, **more)
    return {**views.line(0, "Decision", "decided", RUNNER), "seq": 1}, decision


def told(*lines: dict[str, Any], decisions: Any = (), width: int = 0, full: bool = False, **rows: Any) -> str:
    found = narrate(story(*lines, **rows), decisions, Teller(width, full, views.NOW))
    return "\n".join(line.text for line in found)


def test_each_rule_and_means_of_a_veto_has_words():
    assert set(RULES) == {rule.value for rule in Rule}
    assert set(VETOES) == {via.value for via in Via if via is not Via.NONE}


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (
            {"via": "fence", "reason": ""},
            f"NOT DESTROYED: {VETOES['fence']} (busy, by fence)",
        ),
        (
            {"verdict": "unknown", "via": "none", "reason": "no look", "age_s": 60.0, "bound_s": 600.0},
            (
                "NOT DESTROYED: whether it works could not be told (no look), and not knowing is never idle; "
                "that protects it for 10m, of which 1m had passed"
            ),
        ),
        (
            {"verdict": "idle", "via": "fence", "reason": "held: no answer of the forge"},
            "NOT DESTROYED: held: no answer of the forge",
        ),
        (
            {
                "outcome": "reaped",
                "verdict": "idle",
                "reason": "left over",
                "evidence": tuple(
                    EvidenceView("idle", via, views.NOW - 100, "") for via in ("probe", "fence", "probe")
                ),
            },
            "DESTROYED: proven idle by probe, then fence, then probe; left over",
        ),
        (
            {"outcome": "reaped", "verdict": "busy", "reason": "ann: wedged"},
            "DESTROYED: ended on purpose (busy, by probe); ann: wedged",
        ),
        (
            {"outcome": "escaped", "verdict": "unknown", "age_s": 7_200.0, "bound_s": 3_600.0, "reason": ""},
            "ESCAPE, DESTROYED: not proven idle (unknown, by probe), but past its bound: 2h of at most 1h",
        ),
    ],
)
def test_what_a_decision_says(decision, words):
    line, found = decided(**decision)
    assert told(line, decisions=[found]).splitlines()[-1].strip() == f"=> {words}"


def test_the_reason_is_not_said_twice():
    line, found = decided(reason="Runner.Worker, pid 12")
    assert told(line, decisions=[found]).count("pid 12") == 1


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"bound": "hard"}, "It is at work, so nothing may end it."),
        ({"bound": "soft"}, "There are signs of a job, so it is not taken for idle."),
        ({"stuck": "no worker was seen"}, "It is stuck: no worker was seen."),
        ({"gate": views.GATE}, "Rule surplus says that it could go; the gate is settling."),
        ({}, "No rule says that it could go."),
        ({"intent": None}, "It was made in advance."),
        ({"intent": "github/acme/app/1", "job": "github/acme/app/1"}, "and got it."),
        (
            {"state": "gone", "ending": "ended by itself with code 0"},
            "Nobody destroyed it: it ended by itself with code 0.",
        ),
        (
            {"state": "abandoned", "stuck": "would not die"},
            "It would not end and was abandoned: would not die.",
        ),
    ],
)
def test_the_answer_comes_first(row, words):
    first = told(views.line(0, "Registered", "a"), runner=views.runner(7, **row)).split("\n\n")[0]
    assert words in first


def test_why_it_was_destroyed_is_in_the_answer():
    line, found = decided(outcome="reaped", verdict="idle", via="fence", reason="left over", evidence=())
    first = told(line, decisions=[found], runner=views.runner(7, state="gone")).split("\n\n")[0]
    assert "Destroyed under rule surplus: proven idle by fence; left over." in first


def test_a_job_that_runs_or_only_has_a_runner():
    started = views.job(42, started=views.NOW - 1_000, status="running", runner=RUNNER, ours=True, why="")
    assert f"It waited 9s, on {RUNNER}." in told(views.line(0, "JobReported", "a"), job=started)
    assert "It waited 9s." in told(views.line(0, "JobReported", "a"), job={**started, "runner": None})
    waits = views.job(42, runner=RUNNER, why="")
    assert f"Its runner is {RUNNER}." in told(views.line(0, "JobReported", "a"), job=waits)


def test_what_repeats_is_told_once_and_whole_on_request():
    lines = [
        views.line(0, "Registered", "registered"),
        *(views.line(n * 1_000, "RegistrationsListed", f"{n} of ours", "", "online") for n in range(1, 6)),
        views.line(6_000, "RegistrationsListed", "6 of ours", "", "offline"),
        views.line(7_000, "Woke", "a deadline came due"),
    ]
    short = told(*lines)
    assert "1 of ours (and 4 more until" in short
    assert "6 of ours" in short
    assert "deadline" not in short
    whole = told(*lines, full=True)
    assert whole.count(" of ours") == 6
    assert "a deadline came due" in whole


def test_a_decision_is_never_folded_into_another():
    line, found = decided()
    again = {**line, "seq": 2}
    assert told(line, again, decisions=[found, {**found, "id": 2}]).count("NOMINATED") == 2


def test_a_long_pause_is_said():
    text = told(views.line(0, "Registered", "a"), views.line(600_000, "SignSeen", "b"))
    assert "... 10m later" in text


def test_long_ids_only_on_request():
    line = views.line(0, "EnvironmentStarted", f"its environment started ({LONG_ID})")
    assert "its environment started\n" in told(line) + "\n"
    assert LONG_ID in told(line, full=True)


def test_lines_are_wrapped_below_themselves():
    line, found = decided(reason="word " * 40)
    text = told(line, views.line(1, "SignSeen", "word " * 40, "", "word " * 40), decisions=[found], width=80)
    assert [one for one in text.splitlines() if len(one) > 80] == []
    assert all(
        one.startswith(" " * 23) for one in text.splitlines() if "word word word" in one and ":" not in one
    )


def test_names_from_strangers_cannot_steer_the_terminal():
    line, found = decided(reason="\x1b[2J", rule="\x1b[1m")
    evil = views.line(1, "SignSeen", "\x1b[2J", "\x1b[3m", "\x1b[4m")
    row = views.job(1, name="\x1b[5m", why="\x1b[6m")
    assert "\x1b" not in told(line, evil, decisions=[found], job=row, runner=views.runner(1, stuck="\x1b"))


def test_since():
    assert [since(ms) for ms in (0, 449, 59_949, 60_000, 7_500_000, -2_000)] == [
        "0.0s",
        "0.4s",
        "59.9s",
        "1m",
        "2h 5m",
        "0s",
    ]
