"""`drain`: it waits, shows for whom, ends with the right code, and never ends a runner itself."""

from __future__ import annotations

import getpass
import io
import json
from typing import Any

import pytest
from rich.console import Console

from ephemerd.cli import drain
from tests.unit.cli import views

ACCEPTED = {"outcome": "accepted", "detail": "drains", "decision": None}


@pytest.fixture(autouse=True)
def draining(daemon, monkeypatch):
    """A daemon that took the order: everything is cordoned."""
    monkeypatch.setattr(drain, "WAIT_EVERY", 0)
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    daemon.on("POST", "drain", (200, ACCEPTED))
    daemon.on("GET", "status", (200, {**views.status(), "draining": True}))
    daemon.lists("pools", [views.pool(cordoned=True)])
    daemon.lists("hosts", [views.host(cordoned=True)])


def leaving(daemon) -> None:
    """Two runners that leave one after the other."""
    left = [
        [views.runner(7), views.runner(8)],
        [views.runner(8)],
        [views.runner(8)],
        [views.runner(7, state="gone")],
    ]
    daemon.on("GET", "runners", lambda *_: (200, {"items": left.pop(0), "next": None}))


@pytest.mark.parametrize("argument", [[], ["linux"], ["local"]])
def test_it_waits_until_nothing_is_left(cli, daemon, argument):
    leaving(daemon)
    done = cli("drain", *argument, "--wait")
    assert (done.code, done.out) == (0, "drained: no runner is left\n")
    assert done.err.splitlines() == [
        "waits for eph-k3v9-x7-7 (listening), eph-k3v9-x7-8 (listening)",
        "waits for eph-k3v9-x7-8 (listening)",
    ]


def test_as_json_it_is_one_object_and_no_progress(cli, daemon):
    leaving(daemon)
    done = cli("drain", "linux", "--wait", "--json")
    assert (done.code, done.err) == (0, "")
    assert {key: done.json[key] for key in ("outcome", "target", "name", "done", "left")} == {
        "outcome": "accepted",
        "target": "pool",
        "name": "linux",
        "done": True,
        "left": [],
    }
    assert done.json["waited_s"] >= 0


def test_on_a_terminal_there_is_a_bar(cli, daemon, monkeypatch):
    shown = io.StringIO()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        "rich.console.Console", lambda **_: Console(file=shown, force_terminal=True, width=100)
    )
    bars: list[Any] = []

    def show(bar, left):
        original(bar, left)
        bars.append(bar._progress.tasks[0])

    original = drain._Bar.show
    monkeypatch.setattr(drain._Bar, "show", show)
    leaving(daemon)
    done = cli("drain", "--wait")
    assert (done.code, done.out, done.err) == (0, "drained: no runner is left\n", "")
    assert (bars[-1].completed, bars[-1].total, bars[-1].description) == (2, 2, "drained")
    assert "2/2" in shown.getvalue()


def test_it_waits_for_its_own_target_only(cli, daemon):
    daemon.lists("runners", [views.runner(7, pool="other", host="far")])
    assert cli("drain", "linux", "--wait").code == 0


def test_one_that_takes_too_long_ends_nothing(cli, daemon):
    done = cli("drain", "--wait", "--timeout", "0s", "-q")
    assert done.code == 7
    assert done.err.splitlines()[0].startswith(
        "error: not drained in time; the drain goes on; still there: eph-k3v9-x7-12 (running)"
    )
    assert [path for method, path, *_ in daemon.requests if method == "POST"] == ["drain"]


def test_too_long_as_json(cli, daemon):
    done = cli("drain", "--wait", "--timeout", "0s", "--json")
    assert done.code == 7
    answer = json.loads(done.out)
    assert (answer["outcome"], answer["done"]) == ("pending", False)
    assert {"id", "pool", "state", "since_s", "job"} == set(answer["left"][0])


def test_a_drain_that_somebody_ends_is_not_waited_for(cli, daemon):
    daemon.on("GET", "status", (200, {**views.status(), "draining": False}))
    done = cli("drain", "--wait")
    assert done.code == 7
    assert "ended by an uncordon" in done.err


def test_a_pool_that_is_configured_no_more_is_waited_for(cli, daemon):
    leaving(daemon)
    daemon.lists("pools", [])
    assert cli("drain", "pool:linux", "--wait").code == 0


def test_a_timeout_that_is_none(cli, daemon):
    done = cli("drain", "--wait", "--timeout", "soon")
    assert (done.code, daemon.requests) == (2, [])
    assert "write e.g. --timeout 30m" in done.err
