"""The commands that show: tables for people, JSON for scripts, one line a look with --watch --json."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ephemerd.cli import output
from ephemerd.cli.output import Table, clock, plain, span
from ephemerd.cli.views import JOB_STATUSES, STATES
from ephemerd.domain.job import JobStatus
from ephemerd.domain.runner import RunnerState
from ephemerd.ports.views import ApplicationView, HealthView, RateView, RecoveryView, StorageView
from tests.unit.cli import views


def test_status(cli, daemon):
    done = cli("status")
    assert done.code == 0
    assert done.err == ""
    assert done.out.splitlines() == [
        "ok",
        "daemon:     ephemerd 0.1.0, pid 4711, serving",
        f"up:         1h 2m (since {clock(views.NOW - 3_725_000, day=True)})",
        "slots:      2 of 4 held",
        "runners:    1 listening, 1 running",
        "jobs:       2 queued, 1 running, 40 done",
        "inbox:      0 waiting, 0.002 s behind",
        "reconciled: github/repo:acme/app: 1m 5s ago",
        f"rate limit: github core: 4900 of 5000 calls left, back at {clock(views.NOW + 60_000)}",
    ]


def test_status_says_whose_limit_it_is_and_when_the_reserve_is_reached(cli, daemon):
    low = RateView("github", "core", 5000, 480, views.NOW + 60_000, "acme", 500)
    ghes = RateView("ghes", "core", 15, 9, views.NOW)
    daemon.on("GET", "status", (200, views.status(rates=(low, ghes))))
    kept = "the last 500 are kept for registrations and fences"
    assert cli("status").out.splitlines()[-2:] == [
        f"rate limit: github acme core: 480 of 5000 calls left, back at {clock(views.NOW + 60_000)}; {kept}",
        f"rate limit: ghes core: 9 of 15 calls left, back at {clock(views.NOW)}",
    ]


def test_status_says_how_failed_deliveries_are_fetched(cli, daemon):
    recoveries = (
        RecoveryView("github/app", "github", views.NOW - 125_000, 7),
        RecoveryView("ghes/repo:acme/app", "ghes", None, 0),
        RecoveryView("ghes/org:acme", "ghes", None, 0, problem="it needs organization_hooks=read"),
    )
    daemon.on("GET", "status", (200, views.status(recoveries=recoveries)))
    lines = [line for line in cli("status").out.splitlines() if line.startswith("deliveries:")]
    assert lines == [
        "deliveries: github/app: 7 fetched that had failed, looked 2m 5s ago",
        "deliveries: ghes/repo:acme/app: 0 fetched that had failed, not looked yet",
        "deliveries: ghes/org:acme: failed ones are not fetched: it needs organization_hooks=read",
    ]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"ready": False}, "starting"),
        ({"draining": True}, "draining"),
        ({"stopping": True}, "stopping"),
        ({"cordoned": ("pool linux",)}, "serving, cordoned: pool linux"),
        ({"slot_accounting_difference": 1}, "ACCOUNTING DIFFERENCE 1"),
        ({"needs_restart": ("server.store",)}, "restart:    needed for server.store"),
        ({"storage": StorageView(12 * 1024**2, 0, 3 * 1024**3, None)}, "12 MiB, 3.0 GiB free on its disk"),
        ({"storage": StorageView(12 * 1024**2, 0, None, None)}, "store:      12 MiB\n"),
        ({"quarantined": 2}, "2 events that could not be handled"),
        ({"reconciled": {"github/repo:acme/app": 0}}, "github/repo:acme/app: not yet"),
        ({"health": HealthView("stuck", ("free a slot",))}, "stuck\n  - free a slot"),
        ({"jobs": {"queued": 0}}, "jobs:       none"),
    ],
)
def test_status_says_what_needs_attention(cli, daemon, more, words):
    daemon.on("GET", "status", (200, views.status(**more)))
    assert words in cli("status").out


def test_status_as_json_is_the_view_itself(cli, daemon):
    assert cli("status", "--json").json == views.status()


def test_pools(cli, daemon):
    lines = cli("pools").out.splitlines()
    assert lines[0].split() == ["POOL", "HOST", "HELD", "QUEUED", "RUNNERS", "LABELS"]
    assert "2/4" in lines[1]
    assert "1 running, 1 listening" in lines[1]
    assert lines[1].endswith("linux, self-hosted, x64")
    assert cli("pools", "--json").json == [views.pool()]


def test_a_cordoned_pool_without_runners(cli, daemon):
    daemon.lists("pools", [views.pool(cordoned=True, held=0)])
    line = cli("pools").out.splitlines()[1]
    assert line.endswith("(cordoned)")
    assert "  -  " in line


def application(**more: Any) -> ApplicationView:
    fields: dict[str, Any] = {
        "scope": "github/org:acme",
        "pools": ("linux",),
        "version": "2.336.0",
        "folder": "/versions/2.336.0",
        "verified": True,
        "age_s": 3 * 86_400.0,
        "listed": "2.336.0",
        "checked": views.NOW - 60_000,
    }
    return ApplicationView(**{**fields, **more})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "github/org:acme: 2.336.0, 3d old; the forge was asked 1m ago"),
        ({"verified": False}, "2.336.0, 3d old, unverified;"),
        ({"refused_from": views.NOW}, "old, refused from "),
        ({"problem": "no answer"}, "2.336.0, 3d old; not renewed: no answer"),
        (
            {"version": "", "age_s": None, "verified": None, "fetched": 1024**2, "fetching": 5 * 1024**2},
            "none yet; fetching 2.336.0: 1 MiB of 5 MiB",
        ),
        ({"listed": "2.337.0", "fetched": 1024**2, "fetching": 0}, "3d old; fetching 2.337.0: 1 MiB\n"),
        ({"version": "", "age_s": None, "verified": None, "checked": None}, "github/org:acme: none yet\n"),
    ],
)
def test_status_shows_the_runner_application(cli, daemon, more, said):
    daemon.on("GET", "status", (200, views.status(applications=(application(**more),))))
    out = cli("status").out
    assert said in out.replace("\n              ", " ")


def test_hosts_show_the_runner_application_where_it_is_downloaded(cli, daemon):
    daemon.lists("hosts", [views.host(applications=("2.336.0", "2.337.0")), views.host(name="far")])
    lines = cli("hosts").out.splitlines()
    assert lines[0].split()[-1] == "RUNNER"
    assert lines[1].endswith("2.336.0, 2.337.0")
    assert lines[2].split()[-1] == "-"


def test_hosts(cli, daemon):
    assert cli("hosts").out.splitlines()[1].split() == ["local", "4", "2", "2", "0", "no"]
    assert cli("hosts", "--json").json == [views.host()]


def test_runners(cli, daemon):
    lines = cli("runners").out.splitlines()
    assert lines[1].split()[:5] == ["eph-k3v9-x7-12", "linux", "running", "5s", "app/42"]
    assert lines[1].endswith("vetoed 2x, hard sign")
    assert "for app/41" in lines[2]
    assert lines[2].endswith("in the gate as surplus: settling, fence accepted")
    assert lines[3].endswith("job done")
    assert cli("runners", "--json").json == views.RUNNERS


def test_runners_are_chosen_by_the_daemon(cli, daemon):
    cli("runners", "--pool", "linux", "--state", "running", "-n", "5")
    assert daemon.requests[-1][2] == {"pool": "linux", "state": "running", "limit": "5"}


def test_a_runner_that_needs_attention(cli, daemon):
    daemon.lists("runners", [views.runner(3, intent=None, stuck="no worker was seen", adopted=True)])
    line = cli("runners").out.splitlines()[1]
    assert line.endswith("no worker was seen, adopted")


def test_jobs(cli, daemon):
    lines = cli("jobs").out.splitlines()
    assert lines[1].split()[:4] == ["43", "acme/app", "queued", "9s"]
    assert lines[1].endswith("no slot is free")
    assert lines[2].endswith("eph-k3v9-x7-12")
    assert lines[3].split()[2] == "failure"
    assert cli("jobs", "--status", "queued", "--json").json == views.JOBS
    assert daemon.requests[-1][2]["status"] == "queued"


def test_decisions_are_the_latest_in_their_order(cli, daemon):
    lines = cli("decisions").out.splitlines()
    assert [line.split()[3] for line in lines[1:]] == ["vetoed", "vetoed", "reaped"]
    assert "busy/probe" in lines[1]
    assert [one["id"] for one in cli("decisions", "--json", "-n", "2").json] == [2, 3]
    assert daemon.requests[-1][2] == {"newest": "true", "limit": "2"}


@pytest.mark.parametrize("command", ["pools", "hosts", "runners", "jobs", "decisions"])
def test_nothing_to_show(cli, daemon, command):
    daemon.lists(command, [])
    done = cli(command)
    assert (done.code, done.out) == (0, f"no {command}\n")
    assert cli(command, "--json").json == []


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["jobs", "--status", "lost"], "queued"),
        (["decisions", "--outcome", "x"], "vetoed"),
        (["runners", "--state", "x"], "listening"),
    ],
)
def test_a_word_that_is_not_known(cli, daemon, arguments, word):
    done = cli(*arguments)
    assert done.code == 2
    assert word in done.err
    assert daemon.requests == []


def test_the_states_are_the_domain_s():
    assert set(STATES) == {state.value for state in RunnerState}
    assert set(JOB_STATUSES) == {"active", *(status.value for status in JobStatus)}


def test_long_lists_are_read_page_by_page(cli, daemon):
    daemon.lists("jobs", [views.job(number) for number in range(2_500)])
    assert len(cli("jobs", "--json", "-n", "2300").json) == 2_300
    assert [(query.get("after", ""), query["limit"]) for _, _, query, _ in daemon.requests] == [
        ("", "1000"),
        ("1000", "1000"),
        ("2000", "300"),
    ]


@pytest.fixture
def looks(daemon, monkeypatch):
    """What happens before each further look: the first three find the daemon, then it restarts."""
    pauses: list[float] = []

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            daemon.on("GET", "status", (503, {"detail": "the daemon stops"}))
        if len(pauses) == 5:
            daemon.on("GET", "status", (200, views.status(pid=4712)))
        if len(pauses) == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr("ephemerd.cli.looks.time.sleep", sleep)
    return pauses


def test_watching_prints_one_json_line_a_look_and_survives_a_restart(cli, looks):
    done = cli("status", "--watch", "--json", "--every", "0.5")
    assert looks == [0.5] * 6
    assert [json.loads(line)["pid"] for line in done.out.splitlines()] == [4711, 4711, 4711, 4712]
    assert done.err.splitlines() == ["the daemon stops; waiting for it", "the daemon answers again"]
    assert done.code == 130


def test_watching_without_a_terminal_prints_page_after_page(cli, looks):
    done = cli("status", "--watch")
    assert [line.split(",")[1] for line in done.out.splitlines() if "daemon:" in line] == [
        *[" pid 4711"] * 3,
        " pid 4712",
    ]
    assert done.out.count(", every 2 s; Ctrl-C ends") == 4


def test_a_refusal_ends_watching(cli, daemon, monkeypatch):
    refuse = (401, {"detail": "the token is not known"})
    monkeypatch.setattr("ephemerd.cli.looks.time.sleep", lambda _: daemon.on("GET", "status", refuse))
    done = cli("status", "--watch", "--json")
    assert (done.code, len(done.out.splitlines())) == (4, 1)
    assert "the token is not known" in done.err


def test_the_first_look_must_succeed(cli, folder):
    assert cli("status", "--watch", "--socket", str(folder / "none")).code == 6


def test_watching_ends_by_an_interrupt(cli, daemon, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("ephemerd.cli.looks.time.sleep", interrupt)
    assert cli("runners", "--watch").code == 130


def test_names_from_strangers_cannot_steer_the_terminal(cli, daemon):
    daemon.lists("jobs", [views.job(1, name="\x1b[2Jgone\n")])
    out = cli("jobs").out
    assert "\x1b" not in out
    assert "\N{REPLACEMENT CHARACTER}[2Jgone\N{REPLACEMENT CHARACTER}" in out


def test_a_table_is_aligned_and_cuts_nothing():
    table = Table(("A", "N"), [("x" * 100, "1"), ("y", "23")], frozenset({1}))
    assert plain(table).splitlines() == ["A" + " " * 99 + "   N", "x" * 100 + "   1", "y" + " " * 99 + "  23"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0s"),
        (59.6, "1m"),
        (61, "1m 1s"),
        (3_600, "1h"),
        (7_265, "2h 1m"),
        (90_000, "1d 1h"),
        (-3, "0s"),
    ],
)
def test_spans(seconds, text):
    assert span(seconds) == text


def test_moments_in_local_time(monkeypatch):
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        assert clock(0) == "00:00:00"
        assert clock(1_234, fine=True) == "00:00:01.234"
        assert clock(86_400_000, day=True) == "1970-01-02 00:00:00"
        assert clock(None) == "-"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_progress_can_be_silenced(capsys):
    output.note("a", quiet=True)
    output.note("b")
    assert capsys.readouterr() == ("", "b\n")


def test_a_pool_that_was_removed_is_marked(cli, daemon):
    daemon.lists("pools", [views.pool(configured=False)])
    assert "(removed, drains)" in cli("pools").out


def test_who_cordoned_and_for_how_long(cli, daemon):
    cordon = {"cordoned": True, "cordoned_by": "ann: new disk", "cordoned_s": 7300.0}
    daemon.lists("pools", [views.pool(**cordon)])
    daemon.lists("hosts", [views.host(**cordon)])
    assert "(cordoned for 2h 1m by ann: new disk)" in cli("pools").out
    assert "for 2h 1m by ann: new disk" in cli("hosts").out
