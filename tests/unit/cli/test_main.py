"""The program itself: help, usage, exit codes, where options may stand, how errors look."""

from __future__ import annotations

import functools
import os
import shlex
import signal
import subprocess
import sys

import pytest
import typer

import ephemerd
from ephemerd.cli import drain
from ephemerd.cli import main as program_main
from ephemerd.cli.failure import Exit, Failure, complain
from ephemerd.cli.main import ENTRIES, hoist, run
from ephemerd.cli.options import Common, common

NAMES = [name for name, entry in ENTRIES.items() if not isinstance(entry.load(), typer.Typer)]


def test_the_commands_of_the_contract_exist():
    wanted = {"demo", "serve", "check", "status", "pools", "hosts", "runners", "jobs", "decisions", "explain"}
    assert wanted | {"kill", "cordon", "uncordon", "drain", "forge-sim"} <= set(NAMES)


def test_the_exit_codes_are_the_contract():
    assert {code.name: int(code) for code in Exit} == {
        "DONE": 0,
        "UNEXPECTED": 1,
        "USAGE": 2,
        "CONFIGURATION": 3,
        "CREDENTIALS": 4,
        "ENVIRONMENT": 5,
        "UNREACHABLE": 6,
        "REFUSED": 7,
        "BROKEN_PROMISE": 8,
        "STANDSTILL": 9,
        "INTERRUPTED": 130,
        "TERMINATED": 143,
    }


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_every_command_and_an_example(cli, arguments):
    done = cli(*arguments)
    assert done.code == 0
    assert [name for name in NAMES if f"\n  {name} " not in done.out] == []
    assert "Example: ephemerd" in done.out
    assert done.err == ""


@pytest.mark.parametrize("name", NAMES)
def test_each_command_has_help_with_an_example(cli, name):
    done = cli(name, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"Example: ephemerd {name}" in done.out
    assert "..." not in done.out.split("\n\n")[1]


@pytest.mark.parametrize("name", NAMES)
def test_each_example_is_a_command_line_that_is_understood(name, monkeypatch):
    reached = []
    entry = ENTRIES[name]

    @functools.wraps(entry.load())
    def stand_in(*_args, **_named):
        reached.append(name)

    monkeypatch.setattr(f"ephemerd.cli.{entry.place.replace(':', '.')}", stand_in)
    assert run(shlex.split(entry.example)) == 0
    assert reached == [name]


def test_version(cli):
    done = cli("--version")
    assert (done.code, done.out) == (0, f"ephemerd {ephemerd.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["stauts"], "No such command 'stauts'. Did you mean 'status'"),
        (["status", "--jsn"], "No such option: --jsn"),
        (["explain"], "Missing argument 'RUNNER_OR_JOB'"),
        (["jobs", "-n", "0"], "invalid value for '--limit'"),
        (["jobs", "-n", "x"], "integer"),
        (["status", "more"], "unexpected extra argument"),
        (["--log-level", "loud", "status"], "--log-level 'loud' is not known"),
        (["status", "--log-format=xml"], "--log-format 'xml' is not known"),
    ],
)
def test_wrong_usage_is_two_lines_and_code_2(cli, arguments, what):
    done = cli(*arguments)
    assert done.code == 2
    assert done.out == ""
    first, second = done.err.splitlines()
    assert first.startswith("error: ")
    assert what.lower() in first.lower()
    assert second.startswith("  fix: ")


@pytest.mark.parametrize(
    ("given", "hoisted"),
    [
        (["status", "-v"], ["-v", "status"]),
        (["status", "--log-level", "debug", "--json"], ["--log-level", "debug", "status", "--json"]),
        (["status", "--log-format=json"], ["--log-format=json", "status"]),
        (["kill", "x", "--reason", "-v", "-q"], ["-q", "kill", "x", "--reason", "-v"]),
        (["explain", "--", "-v"], ["explain", "--", "-v"]),
        (["status", "--log-level"], ["--log-level", "status"]),
        ([], []),
        (["runners", "--token-file", "t", "--json"], ["--token-file", "t", "runners", "--json"]),
        (["forge-sim", "--token-file", "t", "-v"], ["-v", "forge-sim", "--token-file", "t"]),
        (["init", "--token-file=t"], ["init", "--token-file=t"]),
    ],
)
def test_common_options_may_stand_anywhere(given, hoisted):
    assert hoist(given) == hoisted


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], Common()),
        (["-v"], Common(log_level="debug", level_given=True)),
        (["-q"], Common(quiet=True, log_level="warning", level_given=True)),
        (["--log-level", "error", "-v"], Common(log_level="error", level_given=True)),
        (["--debug", "--log-format", "json"], Common(debug=True, log_format="json")),
    ],
)
def test_what_the_common_options_say(monkeypatch, arguments, expected):
    seen = []

    @functools.wraps(drain.drain)
    def stand_in(context, **_):
        seen.append(common(context))

    monkeypatch.setattr(drain, "drain", stand_in)
    assert run(["drain", *arguments]) == 0
    assert seen == [expected]


def raising(monkeypatch, error: BaseException) -> None:
    def fail(*_args, **_named):
        raise error

    monkeypatch.setattr(program_main, "app", fail)


def test_an_unforeseen_error_is_two_lines_and_code_1(cli, monkeypatch):
    raising(monkeypatch, ZeroDivisionError("division\nby zero"))
    done = cli("status")
    assert done.code == 1
    assert done.err.splitlines() == [
        "error: unexpected: ZeroDivisionError: division by zero",
        "  fix: run it again with --debug, and report what it prints",
    ]


def test_debug_shows_the_traceback(cli, monkeypatch):
    raising(monkeypatch, ZeroDivisionError("x"))
    done = cli("status", "--debug")
    assert done.code == 1
    assert "Traceback" in done.err
    raising(monkeypatch, Failure(6, "nobody", "start it"))
    done = cli("status", "--debug")
    assert done.code == 6
    assert "Traceback" in done.err
    assert "error: nobody" in done.err


def test_an_interrupt_is_code_130(cli, monkeypatch):
    raising(monkeypatch, KeyboardInterrupt())
    assert cli("status").code == 130


def test_a_warning_looks_different(capsys):
    complain("a\nb", "c", word="warning")
    complain("x", "")
    assert capsys.readouterr().err == "warning: a b\n  better: c\nerror: x\n"


def test_the_program_as_a_process(program, folder):
    done = program("status", EPHEMERD_SOCKET=str(folder / "none"))
    assert done.returncode == 6
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_sigterm_is_code_143_and_sigint_130(daemon):
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        with subprocess.Popen(
            [sys.executable, "-m", "ephemerd", "status", "--watch", "--json", "--every", "30"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(os.environ),
            # A shell's background job ignores the interrupt, and so would whatever it starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"{")
            process.send_signal(number)
            assert process.wait(timeout=30) == code
            assert process.stderr is not None
            assert b"Traceback" not in process.stderr.read()
