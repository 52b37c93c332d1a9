"""`explain` finds whom one means and tells the story in order, with the evidence."""

from __future__ import annotations

import pytest

from ephemerd.cli.narrative import Teller, narrate
from ephemerd.cli.output import clock
from ephemerd.cli.subjects import unique
from ephemerd.ports.views import EvidenceView
from tests.unit.cli import views

RUNNER = "eph-k3v9-x7-7"
JOB = "github/acme/app/42"
SAYS = "which says: nobody needs it any more"
FOUND = "a look inside found it at work (busy, by probe): a worker runs."
EVIDENCE = (EvidenceView("busy", "probe", views.NOW - 5_500, "Runner.Worker, pid 12"),)
LINES = [
    views.line(0, "Registered", "registered at the forge, registration 7", RUNNER),
    views.line(1_500, "JobReported", "a delivery said that the job is queued", JOB),
    {
        **views.line(
            2_500,
            "Decision",
            "nominated as surplus (nomination 1): vetoed, so it stays (busy, by probe)",
            RUNNER,
            "then, probe said busy: Runner.Worker, pid 12",
            "its age for this verdict was 5 s, the bound 6 h 30 min",
        ),
        "seq": 2,
    },
]


@pytest.fixture
def stories(daemon):
    daemon.story(RUNNER, LINES, runner=views.runner(7, job=JOB, vetoes=1))
    daemon.story("eph-k3v9-x7-70", [])
    daemon.story(JOB, LINES[1:2], job=views.job(42))
    daemon.lists("decisions", [views.decision(2, at=views.NOW + 2_500, evidence=EVIDENCE)])
    return daemon


def test_the_story_of_a_runner(cli, stories):
    done = cli("explain", RUNNER)
    assert done.code == 0
    began = clock(views.NOW, day=True)
    assert done.out.splitlines() == [
        f"Runner {RUNNER}",
        f"  It is listening since {clock(views.NOW - 5_000, day=True)}, 5s ago. Pool linux, host local.",
        f"  It was made for job github/acme/app/41; the forge gave it job {JOB}.",
        f"  Once a rule said that it could go, and it stayed: {FOUND}",
        "  No rule says that it could go (vetoed 1x).",
        "",
        f"{began[:10]}, 0s ago",
        f"{clock(views.NOW, fine=True)}  +0.0s    registered at the forge, registration 7",
        f"{clock(views.NOW + 1_500, fine=True)}  +1.5s    its job: a delivery said that the job is queued",
        f"{clock(views.NOW + 2_500, fine=True)}  +2.5s    NOMINATED by rule surplus, number 2, {SAYS}",
        f"{' ' * 25}- probe said busy, 8.0s before: Runner.Worker, pid 12",
        f"{' ' * 25}=> NOT DESTROYED: {FOUND[:-1]}",
    ]


def test_a_decision_that_is_not_kept_any_more_is_told_by_its_line(cli, stories):
    stories.lists("decisions", [])
    out = cli("explain", RUNNER).out
    assert f"+2.5s    {LINES[2]['text']}" in out
    assert "  - its age for this verdict was 5 s" in out


def test_the_story_of_a_job(cli, stories):
    out = cli("explain", JOB).out.splitlines()
    assert out[:3] == [
        f"Job {JOB}",
        f"  The job 'build' is queued since {clock(views.NOW - 9_000, day=True)}, 9s ago. It asks for linux, x64.",
        "  It has waited 9s: no slot is free.",
    ]
    assert out[-1].endswith("  a delivery said that the job is queued")


def test_a_finished_job(cli, stories):
    times = {"started": views.NOW - 8_000, "ended": views.NOW - 3_000, "waited_s": 1.0}
    row = views.job(42, status="done", conclusion="success", runner="box-3", why="", labels=(), **times)
    stories.story(JOB, [], job=row)
    out = cli("explain", JOB).out
    assert "is done (success) since" in out
    assert "It asks for no label." in out
    assert "It waited 1s and ran 5s, on box-3, which is not ours." in out


def test_the_story_of_a_job_holds_what_its_runner_did(cli, stories):
    stories.story(JOB, LINES[1:2], job=views.job(42, runner=RUNNER, ours=True, why=""))
    other = views.line(2_000, "JobReported", "a delivery said that the job is queued", "github/acme/app/43")
    stories.story(RUNNER, [*LINES[:2], other, LINES[2]], runner=views.runner(7))
    found = cli("explain", JOB, "--json").json["lines"]
    assert found == LINES
    shown = cli("explain", JOB).out
    assert "its runner: registered at the forge" in shown
    assert "its runner: NOMINATED by rule surplus" in shown
    assert "app/43" not in shown


def test_a_job_whose_runner_is_forgotten_or_foreign(cli, stories):
    for row in (
        views.job(42, runner="eph-k3v9-x7-3", ours=True),
        views.job(42, runner=RUNNER, ours=False),
        views.job(42, runner=None, ours=True),
    ):
        stories.story(JOB, LINES[1:2], job=row)
        assert cli("explain", JOB, "--json").json["lines"] == LINES[1:2]


def test_a_decision_follows_the_event_of_its_millisecond(cli, stories):
    event = views.line(5, "Probed", "the probe looked inside", RUNNER)
    decision = {**views.line(5, "Decision", "vetoed", RUNNER), "seq": 1}
    stories.story(JOB, [], job=views.job(42, runner=RUNNER, ours=True))
    stories.story(RUNNER, [decision, event])
    assert cli("explain", JOB, "--json").json["lines"] == [event, decision]


def test_what_the_daemon_has_forgotten_is_told_from_the_journal(cli, stories):
    stories.story("eph-k3v9-x7-5", LINES[:1])
    assert "no longer in the daemon's lists" in cli("explain", "eph-k3v9-x7-5").out


def test_a_row_whose_events_are_gone(cli, stories):
    assert "(its events are no longer in the journal)" in cli("explain", "eph-k3v9-x7-70").out


def test_json_is_the_story_itself(cli, stories):
    found = cli("explain", RUNNER, "--json").json
    assert found["subject"] == RUNNER
    assert found["lines"] == LINES


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("x7-70", "eph-k3v9-x7-70"),
        ("x7-7", RUNNER),
        ("42", JOB),
        ("acme/app/42", JOB),
        ("app/42", JOB),
    ],
)
def test_a_part_is_enough_where_it_is_clear(cli, stories, text, subject):
    done = cli("explain", text)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0].endswith(f" {subject}")


def test_a_number_finds_a_job_that_is_only_in_the_journal(cli, stories):
    stories.story("github/acme/app/9981", LINES[1:2])
    assert cli("explain", "9981").out.startswith("Job github/acme/app/9981\n")


def test_a_number_is_a_job_s_before_it_is_part_of_a_runner(cli, stories):
    stories.lists("jobs", [views.job(7), views.job(70)])
    stories.story("github/acme/app/7", [])
    assert cli("explain", "7").out.startswith("Job github/acme/app/7\n")


def test_several_are_listed(cli, stories):
    done = cli("explain", "k3v9")
    assert done.code == 2
    assert done.out == ""
    assert "'k3v9' is part of" in done.err
    assert RUNNER in done.err


def test_the_same_number_in_two_repositories_is_not_guessed(cli, stories):
    stories.lists("jobs", [views.job(42), {**views.job(42), "id": "github/acme/lib/42"}])
    done = cli("explain", "42")
    assert done.code == 2
    assert "github/acme/app/42, github/acme/lib/42" in done.err


def test_nothing_of_that_name(cli, stories):
    done = cli("explain", "nonsense")
    assert done.code == 2
    assert done.err.splitlines()[0] == "error: nothing is known of 'nonsense'"
    assert done.err.splitlines()[1].startswith("  fix: ")


def test_near_matches_come_from_the_daemon(cli, stories):
    stories.on("GET", "runners/eph-k3v9-x7-99/story", (404, {"detail": "no", "near": [RUNNER, JOB]}))
    done = cli("explain", "eph-k3v9-x7-99")
    assert done.code == 2
    assert f"did you mean {RUNNER}, {JOB}?" in done.err


def test_a_subject_with_odd_signs_is_asked_for_as_it_is(cli, stories):
    assert cli("explain", "a b?c=d#e").code == 2
    assert stories.requests[0][1] == "runners/a b?c=d#e/story"


def test_the_date_is_said_when_it_changes():
    story = {
        "kind": "runner",
        "subject": RUNNER,
        "runner": None,
        "job": None,
        "lines": [
            views.line(0, "SignSeen", "a"),
            views.line(1, "SignSeen", "b"),
            views.line(86_400_000, "SignSeen", "c"),
        ],
    }
    dates = [line.text[:10] for line in narrate(story, [], Teller()) if line.text[4:5] == "-"]
    assert dates == [clock(views.NOW, day=True)[:10], clock(views.NOW + 86_400_000, day=True)[:10]]


def test_unique():
    assert unique("x", []) is None
    assert unique("", ["a"]) is None
    assert unique("a", ["b"]) is None
    assert unique("a", ["xa", "xa"]) == "xa"
    assert unique("1", ["eph-1", "eph-12"]) == "eph-1"
    assert unique("/1", ["f/r/1", "f/r/12"]) == "f/r/1"
