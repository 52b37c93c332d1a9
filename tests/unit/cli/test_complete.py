"""Completion by the shell: commands, options, names that the daemon knows, and nothing where it does not answer."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ephemerd.cli import complete
from ephemerd.cli.client import connect
from ephemerd.cli.main import run


@pytest.fixture
def completed(capsys, monkeypatch):
    """Complete a line as bash asks for it."""

    def ask(line: str) -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv("_EPHEMERD_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        with pytest.raises(SystemExit) as ended:
            run([])
        assert ended.value.code == 0
        out, err = capsys.readouterr()
        assert err == ""
        return str(out).split()

    return ask


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ephemerd dra", ["drain"]),
        ("ephemerd status --js", ["--json"]),
        ("ephemerd store b", ["backup"]),
        ("ephemerd kill ", ["eph-k3v9-x7-12", "eph-k3v9-x7-7"]),
        ("ephemerd logs ", ["eph-k3v9-x7-12", "eph-k3v9-x7-7", "eph-k3v9-x7-1"]),
        ("ephemerd explain 4", ["43", "42", "40"]),
        ("ephemerd explain github/acme/app/42", ["github/acme/app/42"]),
        ("ephemerd drain l", ["local", "linux"]),
        ("ephemerd runners --pool ", ["linux"]),
        ("ephemerd runners --state st", ["starting", "stuck"]),
        ("ephemerd decisions --outcome v", ["vetoed"]),
    ],
)
def test_what_is_offered(completed, daemon, line, offered):
    assert completed(line) == offered


def test_the_socket_that_was_typed_is_asked(completed, daemon, monkeypatch):
    monkeypatch.setenv("EPHEMERD_SOCKET", "/nowhere")
    assert completed("ephemerd cordon ") == []
    assert completed(f"ephemerd cordon --socket {daemon.socket} ") == ["local", "linux"]


def test_an_odd_answer_offers_nothing(completed, daemon):
    daemon.on("GET", "runners", (200, {"something": "else"}))
    assert completed("ephemerd kill ") == []


def test_a_request_gets_half_a_second(completed, daemon, monkeypatch):
    asked = []

    def connected(*place):
        asked.append(connect(*place))
        return asked[-1]

    monkeypatch.setattr(complete, "connect", connected)
    assert completed("ephemerd runners --pool ") == ["linux"]
    assert [client.deadline for client in asked] == [0.5]


@pytest.mark.parametrize("shell", complete.SHELLS)
def test_the_script_of_a_shell(cli, shell):
    done = cli("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert f"_EPHEMERD_COMPLETE=complete_{shell}" in done.out


def test_a_shell_that_is_not_known(cli):
    done = cli("completion", "tcsh")
    assert (done.code, done.out) == (2, "")
    assert "use one of bash, zsh, fish" in done.err


def test_bash_takes_the_script_and_completes_with_it(cli, daemon, folder):
    program = folder / "ephemerd"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ephemerd "$@"\n')
    program.chmod(0o755)
    lines = [
        cli("completion", "bash").out,
        f'PATH="{folder}:$PATH"',
        "COMP_WORDS=(ephemerd kill eph-k3v9-x7-7); COMP_CWORD=2",
        "_ephemerd_completion ephemerd",
        'printf "%s\\n" "${COMPREPLY[@]}"',
    ]
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("eph-k3v9-x7-7\n", "")
