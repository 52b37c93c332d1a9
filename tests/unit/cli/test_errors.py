"""Every class of failure is one line what and one line what to do, whatever command meets it."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

import ephemerd.cli
from ephemerd.cli.failure import Exit
from tests.unit.cli import views

SOURCES = sorted(Path(ephemerd.cli.__file__).parent.glob("*.py"))
CONFIG = """
[forge.github]
scope = "repo:acme/app"
token_file = "{folder}/token"
discovery = "poll"
[pools.linux]
labels = ["x"]
runtime = "process"
[runner]
allow_root = true
application = "{folder}/application"
work_dir = "{folder}/runners"
[server]
store = "sqlite:///{folder}/state.db"
api_socket = "{folder}/own.sock"
"""


def two_lines(done, code: Exit) -> None:
    assert done.code == code, done.err
    assert done.out == ""
    what, todo = done.err.splitlines()
    assert what.startswith("error: ")
    assert len(what) > len("error: ") + 3
    assert todo.startswith("  fix: ")
    assert len(todo) > len("  fix: ") + 3
    assert "Traceback" not in done.err


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.stem)
def test_each_failure_in_the_source_says_what_to_do(file):
    calls = [
        node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)
    ]
    failures = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Failure"]
    for call in failures:
        assert len(call.args) == 3, f"{file.name}:{call.lineno}"
        todo = call.args[2]
        assert not (isinstance(todo, ast.Constant) and not todo.value), f"{file.name}:{call.lineno}"


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, {"detail": "limit must be a whole number"}, Exit.USAGE),
        (401, {"detail": "the token is not known"}, Exit.CREDENTIALS),
        (403, {"detail": "this token may only read"}, Exit.CREDENTIALS),
        (404, {"detail": "there is no runner 'x'", "near": ["y"]}, Exit.USAGE),
        (404, {"detail": "there is no runner 'x'"}, Exit.USAGE),
        (409, {"detail": "not now"}, Exit.REFUSED),
        (429, {"detail": "too many"}, Exit.CREDENTIALS),
        (500, {"detail": "something went wrong"}, Exit.UNEXPECTED),
        (500, b"<html>", Exit.UNREACHABLE),
        (502, {}, Exit.UNEXPECTED),
        (503, {"detail": "the daemon stops"}, Exit.UNREACHABLE),
        (200, b"not json", Exit.UNREACHABLE),
    ],
)
@pytest.mark.parametrize("command", ["status", "runners", "pools"])
def test_whatever_the_daemon_answers(cli, daemon, command, status, body, code):
    daemon.on("GET", command, (status, body))
    two_lines(cli(command), code)


@pytest.mark.parametrize(
    "command",
    [
        *("status", "pools", "hosts", "runners", "jobs", "decisions", "top", "reload", "cordon", "uncordon"),
        *("drain", "explain x", "logs x", "kill x --reason y", "journal export"),
    ],
)
def test_nobody_answers(cli, folder, command):
    two_lines(cli(*command.split(), "--socket", str(folder / "none")), Exit.UNREACHABLE)


def test_an_address_that_is_none(cli):
    two_lines(cli("status", "--url", "nonsense"), Exit.USAGE)
    two_lines(cli("status", "--url", "http://x", "--socket", "/y"), Exit.USAGE)


def test_a_veto(cli, daemon):
    answer = {"outcome": "vetoed", "detail": "a worker runs", "decision": views.decision(1)}
    daemon.on("POST", "runners/eph-k3v9-x7-12/kill", (409, answer))
    two_lines(cli("kill", "eph-k3v9-x7-12", "--reason", "x"), Exit.REFUSED)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("[pools.linux]\nlabel = 1", Exit.CONFIGURATION),
        ("= broken", Exit.CONFIGURATION),
        ("", Exit.CREDENTIALS),
    ],
)
@pytest.mark.parametrize("command", ["serve", "check"])
def test_a_configuration_or_secret_that_is_wrong(cli, folder, command, change, code):
    file = folder / "config.toml"
    file.write_text(change or CONFIG.format(folder=folder))
    done = cli(command, "--config", str(file))
    assert done.code == code
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    fixes = [line for line in done.err.splitlines() if line.startswith("  fix: ")]
    assert len(errors) == len(fixes) >= 1


def test_a_machine_that_lacks_something(cli, folder):
    file, token = folder / "config.toml", folder / "token"
    file.write_text(CONFIG.format(folder=folder))
    token.write_text("hush")
    os.chmod(token, 0o600)  # noqa: PTH101
    done = cli("check", "--config", str(file))
    assert done.code == Exit.ENVIRONMENT
    assert "hush" not in done.out + done.err
    assert "  fix: " in done.err


@pytest.mark.parametrize(
    "command",
    ["store check --store {0}/none.db", "journal export --store {0}/none.db", "replay {0}/none.jsonl"],
)
def test_a_file_that_is_not_there(cli, folder, command):
    done = cli(*command.format(folder).split())
    assert done.code in {Exit.USAGE, Exit.ENVIRONMENT, Exit.CONFIGURATION}
    assert done.err.splitlines()[-1].startswith("  fix: ")
