"""Orders: what is sent, what comes back, and that a veto is never overridden without a word."""

from __future__ import annotations

import getpass
import sys

import pytest
import typer

from ephemerd.cli import operate
from tests.unit.cli import views

RUNNER = "eph-k3v9-x7-7"
KILL = f"runners/{RUNNER}/kill"
VETO = {"outcome": "vetoed", "detail": "a worker runs", "decision": views.decision(1)}
GONE = {"outcome": "accepted", "detail": "the runner is being ended", "decision": None}


@pytest.fixture(autouse=True)
def somebody(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")


def test_kill(cli, daemon):
    daemon.on("POST", KILL, (200, GONE))
    done = cli("kill", RUNNER, "--reason", "wedged")
    assert (done.code, done.out) == (0, f"{RUNNER}: the runner is being ended\n")
    assert daemon.requests[-1] == (
        "POST",
        KILL,
        {},
        {"reason": "wedged", "even_if_busy": False, "who": "ann"},
    )


def test_a_veto_is_code_7_and_without_a_terminal_nobody_is_asked(cli, daemon):
    daemon.on("POST", KILL, (409, VETO))
    done = cli("kill", RUNNER, "--reason", "wedged")
    assert (done.code, done.out) == (7, "")
    assert done.err.splitlines() == [
        f"error: {RUNNER} was not ended: a worker runs",
        f"  fix: see 'ephemerd explain {RUNNER}'; --even-if-busy ends it although its job would fail",
    ]
    assert [method for method, *_ in daemon.requests].count("POST") == 1


def test_a_veto_as_json_is_still_code_7(cli, daemon):
    daemon.on("POST", KILL, (409, VETO))
    done = cli("kill", RUNNER, "--reason", "wedged", "--json")
    assert done.code == 7
    assert done.json == VETO


def test_even_if_busy_is_said_to_the_daemon(cli, daemon):
    daemon.on("POST", KILL, (200, GONE))
    assert cli("kill", RUNNER, "--reason", "wedged", "--even-if-busy", "--json").json == GONE
    assert daemon.requests[-1][3]["even_if_busy"] is True


@pytest.mark.parametrize(("said", "code", "asked"), [(True, 0, [False, True]), (False, 7, [False])])
def test_on_a_terminal_a_person_decides(cli, daemon, monkeypatch, said, code, asked):
    daemon.on("POST", KILL, lambda _, body: (200, GONE) if body["even_if_busy"] else (409, VETO))
    monkeypatch.setattr(operate, "_sure", lambda *_: said)
    assert cli("kill", RUNNER, "--reason", "wedged").code == code
    assert [body["even_if_busy"] for method, _, _, body in daemon.requests if method == "POST"] == asked


def test_the_question_needs_a_terminal(monkeypatch):
    class Terminal:
        def __init__(self, is_one=True):
            self.isatty = lambda: is_one

    monkeypatch.setattr(typer, "confirm", lambda text, **_: "Its job would fail" in text)
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert operate._sure(RUNNER, VETO) is True
    monkeypatch.setattr(sys, "stdin", Terminal(False))
    assert operate._sure(RUNNER, VETO) is False


def test_an_order_that_is_not_decided_yet(cli, daemon):
    daemon.on("POST", KILL, (202, {"outcome": "pending", "detail": "the gate has not decided yet"}))
    done = cli("kill", RUNNER, "--reason", "x")
    assert (done.code, done.out) == (0, f"{RUNNER}: the gate has not decided yet\n")


def test_the_end_of_the_id_is_enough(cli, daemon):
    daemon.on("POST", KILL, (200, GONE))
    assert cli("kill", "x7-7", "--reason", "x").code == 0


def test_a_gone_runner_cannot_be_killed(cli, daemon):
    done = cli("kill", "eph-k3v9-x7-1", "--reason", "x")
    assert done.code == 2
    assert "there is no live runner 'eph-k3v9-x7-1'" in done.err
    assert "did you mean" in done.err


def test_a_reason_is_required(cli, daemon):
    assert cli("kill", RUNNER).code == 2
    done = cli("kill", RUNNER, "--reason", " ")
    assert (done.code, daemon.requests) == (2, [])


@pytest.mark.parametrize(
    ("argument", "target", "name"),
    [
        ("linux", "pool", "linux"),
        ("local", "host", "local"),
        ("pool:linux", "pool", "linux"),
        ("host:local", "host", "local"),
        (None, "all", ""),
    ],
)
@pytest.mark.parametrize("order", ["cordon", "uncordon", "drain"])
def test_whom_an_order_is_for(cli, daemon, order, argument, target, name):
    daemon.on("POST", order, (200, {"outcome": "accepted", "detail": "done so"}))
    done = cli(order, *([argument] if argument else []))
    assert (done.code, done.out) == (0, "done so\n")
    body = daemon.requests[-1][3]
    assert (body["target"], body["name"], body["who"]) == (target, name, "ann")
    assert ("reason" in body) == (order != "uncordon")


def test_a_reason_is_kept(cli, daemon):
    daemon.on("POST", "cordon", (200, {"outcome": "accepted", "detail": "x"}))
    assert cli("cordon", "linux", "--reason", "-v", "--json").json["detail"] == "x"
    assert daemon.requests[-1][3]["reason"] == "-v"


def test_a_name_that_is_none(cli, daemon):
    done = cli("cordon", "windows")
    assert done.code == 2
    assert "there are: linux, local" in done.err


def test_a_name_that_is_both(cli, daemon):
    daemon.lists("hosts", [views.host(name="linux")])
    done = cli("cordon", "linux")
    assert done.code == 2
    assert "write pool:linux or host:linux" in done.err


def test_an_unknown_pool_is_refused_by_the_daemon(cli, daemon):
    daemon.on("POST", "cordon", (404, {"detail": "there is no pool 'win'", "near": ["linux"]}))
    done = cli("cordon", "pool:win")
    assert done.code == 2
    assert "did you mean linux?" in done.err


CHANGE = {"key": "pools.linux.max_concurrent", "before": "4", "after": "9", "applied": True, "note": ""}
WAITS = {"key": "server.store", "before": "a", "after": "b", "applied": False, "note": "it began there"}
WRONG = {"level": "error", "code": 4, "where": "token (c.toml:3)", "what": "cannot be read", "todo": "chmod"}


def test_reload_tells_what_changed(cli, daemon):
    answer = {"outcome": "applied", "detail": "1 change applied", "changes": [CHANGE, WAITS], "findings": []}
    daemon.on("POST", "reload", (200, answer))
    done = cli("reload")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "pools.linux.max_concurrent: 4 -> 9",
        "server.store: a -> b  (needs a restart: it began there)",
        "1 change applied",
    ]
    assert daemon.requests[-1][3] == {"who": "ann"}
    assert cli("reload", "--json").json == answer


def test_a_refused_reload_has_the_code_of_what_is_wrong(cli, daemon):
    answer = {"outcome": "refused", "detail": "no", "changes": [], "findings": [WRONG]}
    daemon.on("POST", "reload", (409, answer))
    done = cli("reload")
    assert (done.code, done.out) == (4, "")
    assert done.err.splitlines() == ["error: token (c.toml:3): cannot be read", "  fix: chmod"]
    assert cli("reload", "--json").json["outcome"] == "refused"


def test_an_account_without_a_name(monkeypatch):
    def nameless():
        raise KeyError("uid")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert operate.who() == "unknown account"
