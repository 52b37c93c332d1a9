"""`init`: what it writes passes `check`, nothing is overwritten, no secret is shown, the next command comes last."""

from __future__ import annotations

import io
import json
import os
import pty
import pwd
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ephemerd.cli.main import run
from ephemerd.config.effective import examine
from ephemerd.config.findings import errors
from ephemerd.testing.fake_runner.folder import write_folder

TOKEN = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"
ROOT = ["--allow-root"] if os.geteuid() == 0 else []


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """State and sockets below this folder, nobody at a terminal."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "run"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "etc" / "config.toml"


def init(config: Path, *more: str) -> int:
    return run(["init", "--yes", "--config", str(config), "--scope", "acme/app", *ROOT, *more])


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_it_writes_passes_check(config, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{TOKEN}\n"))
    application = write_folder(tmp_path / "application")
    assert init(config, "--token-stdin", "--application", str(application)) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[-1] == f"next: ephemerd doctor --config {config}"
    assert "to do" not in told.err
    secret = config.with_name("webhook").read_text().strip()
    assert len(secret) == 64
    assert config.with_name("token").read_text().strip() == TOKEN
    assert [mode(config.with_name(name)) for name in ("config.toml", "token", "webhook")] == [0o600] * 3
    for shown in (told.out, told.err, config.read_text()):
        assert TOKEN not in shown
        assert secret not in shown
    assert sorted(file.name for file in config.parent.iterdir()) == ["config.toml", "token", "webhook"]
    assert run(["check", "--config", str(config), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["usable"]


@pytest.mark.parametrize("runtime", ["process", "docker"])
def test_each_line_that_is_commented_out_is_a_key(config, runtime):
    assert init(config, "--runtime", runtime, "--url", "https://git.acme.test/api/v3") == 0
    text = config.read_text()
    whole = "\n".join(
        line.removeprefix("# ") if line.startswith("# ") and " = " in line else line
        for line in text.splitlines()
    )
    asked = tomllib.loads(whole)
    assert asked["server"]["webhook_listen"] == "127.0.0.1:8080"
    config.write_text(whole)
    assert [one for one in errors(examine(config, os.environ).findings) if one.code == 3] == []
    assert tomllib.loads(text)["forge"]["github"]["url"] == "https://git.acme.test/api/v3"


def test_the_runner_application_need_not_be_unpacked_by_hand(config, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{TOKEN}\n"))
    assert init(config, "--token-stdin") == 0
    assert "to do" not in capsys.readouterr().err
    assert tomllib.loads(config.read_text())["runner"]["application"] == "download"
    assert run(["check", "--config", str(config)]) == 0
    assert "at hand" not in capsys.readouterr().err


def test_what_is_missing_yet_is_said(config, capsys):
    assert init(config, "--application", str(config.parent / "none")) == 0
    told = capsys.readouterr()
    assert "to do: forge.github.token_file" in told.err
    assert "to do: runner.application" in told.err
    assert told.out.splitlines()[-1].startswith("next: ephemerd doctor")
    assert not config.with_name("token").exists()


def test_nothing_is_overwritten(config, capsys):
    assert init(config) == 0
    before, secret = config.read_text(), config.with_name("webhook").read_text()
    assert init(config, "--runners", "9") == 2
    assert "--force" in capsys.readouterr().err
    assert config.read_text() == before
    assert init(config, "--runners", "9", "--force") == 0
    assert "max_concurrent = 9" in config.read_text()
    assert config.with_name("webhook").read_text() == secret, "the forge has that one"


def test_a_token_that_is_there_is_kept(config, monkeypatch):
    config.parent.mkdir()
    config.with_name("token").write_text("theirs")
    monkeypatch.setattr(sys, "stdin", io.StringIO(TOKEN))
    assert init(config, "--token-stdin") == 2
    assert init(config) == 0
    assert config.with_name("token").read_text() == "theirs"


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (["--runtime", "podman"], 2, "process, docker"),
        (["--scope", "non/sen/se"], 3, "forge.github.scope: "),
        (["--discovery", "scale-set"], 2, "webhook, poll"),
        (["--private-key-file", "app.pem"], 2, "--app-id"),
        (["--app-id", "7", "--token-file", "token"], 2, "both given"),
        (["--label", "a,b"], 3, "pools.linux.labels: "),
        (["--token-stdin"], 4, "no token on standard input"),
    ],
)
def test_a_refusal_leaves_nothing_behind(config, capsys, more, code, words):
    assert init(config, *more) == code
    told = capsys.readouterr()
    assert words in told.err
    assert "  fix: " in told.err
    assert not config.parent.exists() or list(config.parent.iterdir()) == []


def test_a_place_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert init(tmp_path / "file" / "config.toml") == 5
    assert "cannot be written" in capsys.readouterr().err


def test_without_a_terminal_it_says_which_option_is_missing(config, capsys):
    assert run(["init", "--config", str(config)]) == 2
    assert "--scope is not given" in capsys.readouterr().err


@pytest.mark.account("root")
def test_root_has_to_name_the_jobs_account(config, capsys):
    assert run(["init", "--yes", "--config", str(config), "--scope", "acme/app"]) == 2
    assert "--user is not given" in capsys.readouterr().err
    assert init(config, "--user", "ci") == 0
    assert 'user = "ci"' in config.read_text()


Answers = list[tuple[bytes, bytes]]


def asked(config: Path, answers: Answers, *more: str) -> bytes:
    """Run it on a terminal, answer each question in turn, and return what the screen showed."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ephemerd", "init", "--config", str(config), *more]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as ran:
        os.close(theirs)
        shown, answered = bytearray(), 0
        while True:
            try:
                piece = os.read(ours, 65_536)
            except OSError:
                break
            if not piece:
                break
            shown += piece
            # The blank after the colon is written once the terminal is ready for an answer.
            if answers and answers[0][0] in shown[answered:] and shown.endswith(b": "):
                answered = len(shown)
                os.write(ours, answers.pop(0)[1] + b"\n")
        assert ran.wait(60) == 0, shown.decode()
    os.close(ours)
    assert answers == []
    return bytes(shown)


def test_on_a_terminal_it_asks_and_does_not_show_the_token(config):
    answers = [
        (b"Whose jobs", b"acme/app"),
        (b"How to hear", b""),
        (b"Runtime", b""),
        (b"App's ID", b""),
        (b"Token", TOKEN.encode()),
    ]
    shown = asked(config, answers, *ROOT)
    assert TOKEN.encode() not in shown
    assert config.with_name("token").read_text().strip() == TOKEN
    assert 'scope = "repo:acme/app"' in config.read_text()


def test_an_answer_that_cannot_be_right_is_asked_for_again(config):
    account = pwd.getpwuid(os.geteuid() or 65534).pw_name
    as_root = [
        (b"Which account", b"root"),
        (b"Which account", b"no-such-account"),
        (b"Which account", account.encode()),
    ]
    answers = [
        (b"Whose jobs", b"non/sen/se"),
        (b"Whose jobs", b"acme"),
        (b"How to hear", b"shout"),
        (b"How to hear", b"poll"),
        (b"Runtime", b"proces"),
        (b"Runtime", b"process"),
        *(as_root if os.geteuid() == 0 else []),
        (b"App's ID", b"mine"),
        (b"App's ID", b"1234"),
        (b"private key", b""),
    ]
    shown = asked(config, answers)
    assert b"write OWNER/NAME" in shown
    assert b"use one of webhook, poll" in shown
    assert b"use one of process, docker" in shown
    if as_root and os.geteuid() == 0:
        assert b"that is root" in shown
        assert b"useradd --create-home no-such-account" in shown
    forge = tomllib.loads(config.read_text())["forge"]["github"]
    assert (forge["scope"], forge["app_id"]) == ("org:acme", 1234)
    assert forge["private_key_file"] == str(config.with_name("app.pem"))


def test_polling_needs_no_secret_for_webhooks(config, capsys):
    assert init(config, "--discovery", "poll") == 0
    assert tomllib.loads(config.read_text())["forge"]["github"]["discovery"] == "poll"
    assert not config.with_name("webhook").exists()
    told = capsys.readouterr()
    assert "webhook" not in told.out + told.err


def test_an_app_for_an_organization(config, capsys):
    assert (
        init(config, "--scope", "acme", "--app-id", "17", "--private-key-file", str(config.parent / "k.pem"))
        == 0
    )
    forge = tomllib.loads(config.read_text())["forge"]["github"]
    assert (forge["scope"], forge["app_id"], "token_file" in forge) == ("org:acme", 17, False)
    assert forge["private_key_file"] == str(config.parent / "k.pem")
    assert "to do: forge.github.private_key_file" in capsys.readouterr().err
