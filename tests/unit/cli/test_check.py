"""`check` and the start of `serve`: the effective configuration, every finding, the lowest code."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pytest

from ephemerd.cli.check import flags
from ephemerd.cli.failure import Failure

GOOD = """\
[forge.github]
scope = "repo:acme/app"
token_file = "token"
webhook_secret_file = "hook"
[pools.linux]
labels = ["linux"]
runtime = "process"
[runner]
allow_root = true
application = "application"
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("token", "hook"):
        (tmp_path / name).write_text("hush-hush")
        (tmp_path / name).chmod(0o600)
    listener = tmp_path / "application" / "bin" / "Runner.Listener"
    listener.parent.mkdir(parents=True)
    listener.touch()
    listener.chmod(0o755)
    for name in [name for name in os.environ if name.startswith("EPHEMERD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "run"))
    file = tmp_path / "c.toml"
    file.write_text(GOOD)
    return file


def test_every_value_with_its_origin(cli, config):
    done = cli("check", "--config", str(config), "--set", "policy.settle=2s")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert done.code == 0
    assert lines[0] == f"# from {config}"
    assert "[pools.linux]" in lines
    assert f'runtime = "process" # {config}:7' in lines
    assert "slots = 4 # default (sum of its pools)" in lines
    assert 'settle = "2s" # flag policy.settle' in lines
    assert "# user = unset # default" in lines
    assert done.err.startswith("warning: pools.linux.user: jobs run as the daemon's own account")
    assert done.err.endswith("\nthe configuration can be used\n")


def test_what_is_printed_can_be_read_as_a_configuration(cli, config, tmp_path):
    printed = tmp_path / "printed.toml"
    printed.write_text(cli("check", "--config", str(config)).out)
    again = cli("check", "--config", str(printed), "--json").json
    first = cli("check", "--config", str(config), "--json").json
    assert {row["key"]: row["value"] for row in again["settings"]} == {
        row["key"]: row["value"] for row in first["settings"]
    }


def test_no_secret_is_printed(cli, config, monkeypatch):
    monkeypatch.setenv("EPHEMERD_FORGE__GITHUB__TOKEN", "ghp_from_env")
    for arguments in ([], ["--json"]):
        done = cli("check", "--config", str(config), *arguments)
        assert done.code == 0
        for secret in ("hush-hush", "ghp_from_env"):
            assert secret not in done.out + done.err


def test_as_json(cli, config):
    found = cli("check", "--config", str(config), "--json").json
    assert (found["path"], found["usable"], found["exit_code"]) == (str(config), True, 0)
    assert [finding["level"] for finding in found["findings"]] == ["warning"]
    rows = {row["key"]: row for row in found["settings"]}
    assert rows["pools.linux.labels"] == {
        "key": "pools.linux.labels",
        "value": ["linux"],
        "origin": f"{config}:6",
    }


def test_all_findings_are_printed_and_the_lowest_code_wins(cli, config):
    config.write_text(
        GOOD.replace('"token"', '"gone"').replace('"application"', '"gone"') + "alow_root = 1\n"
    )
    done = cli("check", "--config", str(config))
    assert done.code == 3
    assert done.out == ""
    heads = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(heads) == 3
    assert done.err.count("  fix: ") == 3
    assert "the nearest known key is runner.allow_root" in done.err
    assert str(config.parent / "gone") in done.err
    found = cli("check", "--config", str(config), "--json").json
    assert [finding["code"] for finding in found["findings"]] == [3, 4, 5, 0]
    assert (found["usable"], found["exit_code"], found["settings"]) == (False, 3, [])


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [("allow_root", "alow_root", 3), ('"token"', '"gone"', 4), ('"application"', '"gone"', 5)],
)
@pytest.mark.parametrize("command", ["check", "serve"])
def test_each_class_of_finding_has_its_code(cli, config, command, old, new, code):
    config.write_text(GOOD.replace(old, new))
    done = cli(command, "--config", str(config))
    assert done.code == code
    assert "error: " in done.err


def test_a_machine_that_lacks_something_still_shows_the_values(cli, config):
    config.write_text(GOOD.replace('"application"', '"gone"'))
    assert "[pools.linux]" in cli("check", "--config", str(config)).out


def test_a_warning_does_not_stop(cli, config):
    (config.parent / "token").chmod(0o644)
    done = cli("check", "--config", str(config))
    assert done.code == 0
    assert "\nwarning: forge.github.token_file" in f"\n{done.err}"


def test_no_configuration_at_all(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("EPHEMERD_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    done = cli("check")
    assert done.code == 3
    assert str(tmp_path / "ephemerd" / "config.toml") in done.err


def test_flags():
    assert flags(["a.b = 1", "c=x=y"]) == {"a.b": " 1", "c": "x=y"}
    for text in ("a.b", "=1"):
        with pytest.raises(Failure, match="KEY=VALUE"):
            flags([text])


def test_a_value_given_without_its_key_is_not_repeated(cli, config):
    done = cli("check", "--config", str(config), "--set", "=ghp_secret")
    assert done.code == 2
    assert "ghp_secret" not in done.err


def test_serve_hands_the_effective_configuration_over(cli, config, monkeypatch):
    given = []

    def serve(effective, wishes):
        given.append((effective, wishes))
        return 5

    fake = types.SimpleNamespace(serve=serve, Wishes=types.SimpleNamespace)
    monkeypatch.setitem(sys.modules, "ephemerd.serving", fake)
    monkeypatch.setattr("ephemerd.serving", fake, raising=False)
    done = cli("serve", "-c", str(config), "-v", "--log-format", "json", "--open-api", "127.0.0.1:0")
    assert done.code == 5
    ((effective, wishes),) = given
    assert effective.path == config
    assert (wishes.log_level, wishes.log_format, wishes.open_api) == ("debug", "json", "127.0.0.1:0")
    again = wishes.reread()
    assert (again.path, again.effective.settings) == (config, effective.settings)


def test_serve_leaves_the_level_to_the_configuration(cli, config, monkeypatch):
    given = []
    fake = types.SimpleNamespace(serve=lambda *all: given.append(all), Wishes=types.SimpleNamespace)
    monkeypatch.setitem(sys.modules, "ephemerd.serving", fake)
    monkeypatch.setattr("ephemerd.serving", fake, raising=False)
    cli("serve", "-c", str(config))
    assert given[0][1].log_level == ""


def test_an_open_api_that_is_no_address(cli, config):
    done = cli("serve", "-c", str(config), "--open-api", "8081")
    assert done.code == 2
    assert "127.0.0.1:8081" in done.err
