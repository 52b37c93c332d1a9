"""default < file < environment < flags, and the origin of every value."""

from __future__ import annotations

from pathlib import Path

import pytest

from ephemerd.config.effective import examine, load_settings
from ephemerd.config.findings import ConfigError
from tests.unit.config.conftest import GOOD


def test_every_key_has_an_origin_and_a_row(bench):
    effective = bench.load()
    keys = [key for key, _, _ in effective.rows()]
    assert keys == list(effective.origins)
    assert len(keys) == len(set(keys)) > 60
    assert {"forge.github.scope", "pools.linux.labels", "hosts.local.slots", "policy.settle"} <= set(keys)


def test_each_layer_goes_over_the_one_below(bench):
    text = GOOD + "max_concurrent = 2\n"
    assert bench.load().settings.pools["linux"].max_concurrent == 4
    assert bench.load(text).settings.pools["linux"].max_concurrent == 2
    bench.env["EPHEMERD_POOLS__LINUX__MAX_CONCURRENT"] = "3"
    assert bench.load(text).settings.pools["linux"].max_concurrent == 3
    assert bench.load(text, pools__linux__max_concurrent="5").settings.pools["linux"].max_concurrent == 5


def test_the_origin_names_the_exact_place(bench):
    bench.env["EPHEMERD_POLICY__SETTLE"] = "2s"
    effective = bench.load(GOOD, policy__exit_grace="5s")
    origins = {key: str(origin) for key, origin in effective.origins.items()}
    assert origins["pools.linux.runtime"] == f"{bench.file}:8"
    assert origins["policy.settle"] == "environment EPHEMERD_POLICY__SETTLE"
    assert origins["policy.exit_grace"] == "flag policy.exit_grace"
    assert origins["policy.confirm_after"] == "default"
    assert origins["hosts.local.slots"] == "default (sum of its pools)"
    assert origins["pools.linux.forge"] == "default (the only forge)"
    assert effective.settings.policy.settle == 2_000
    assert effective.settings.policy.exit_grace == 5_000


def test_a_pool_name_with_a_hyphen_is_reached_from_the_environment(bench):
    bench.env["EPHEMERD_POOLS__GPU_X64__LABELS"] = "gpu, x64"
    text = GOOD.replace("[pools.linux]", "[pools.GPU-x64]")
    assert bench.load(text).settings.pools["GPU-x64"].labels == ("gpu", "x64")


def test_a_configuration_from_the_environment_alone(bench):
    bench.env |= {
        "EPHEMERD_FORGE__GITHUB__SCOPE": "repo:acme/app",
        "EPHEMERD_FORGE__GITHUB__TOKEN": "ghp_env",
        "EPHEMERD_FORGE__GITHUB__WEBHOOK_SECRET": "hush",
        "EPHEMERD_POOLS__LINUX__LABELS": '["self-hosted", "linux"]',
        "EPHEMERD_POOLS__LINUX__RUNTIME": "process",
        "EPHEMERD_RUNNER__CLAIM_RETRY__BACKOFF": "1s, 2s",
        "EPHEMERD_RUNNER__ALLOW_ROOT": "true",
        "EPHEMERD_RUNNER__EXTRA_ENV__Http_Proxy": "http://proxy:3128",
        "EPHEMERD_SOCKET": "/ignored",
        "EPHEMERD_": "ignored",
    }
    effective = load_settings(bench.write(""), bench.env)
    settings = effective.settings
    assert settings.forge["github"].scope == ("repo:acme/app",)
    assert settings.pools["linux"].labels == ("self-hosted", "linux")
    assert settings.runner.claim_retry.backoff == (1_000, 2_000)
    assert settings.runner.allow_root is True
    assert settings.runner.extra_env == {"Http_Proxy": "http://proxy:3128"}
    assert effective.token("github").get_secret_value() == "ghp_env"
    assert str(effective.origins["runner.extra_env"]).startswith("environment EPHEMERD_RUNNER__EXTRA_ENV__")


@pytest.mark.parametrize(
    ("name", "key", "todo"),
    [
        ("EPHEMERD_POOLS__LINUX__MAX_CONCURENT", "pools.linux.max_concurent", "pools.linux.max_concurrent"),
        ("EPHEMERD_POLCY__SETTLE", "polcy.settle", "policy"),
        ("EPHEMERD_RUNNER__ORPHAN_SWEEP", "runner.orphan_sweep", "name one of its keys"),
        ("EPHEMERD_POOLS__LINUX", "pools.linux", "name one of its keys"),
    ],
)
def test_a_variable_that_names_no_key_is_an_error(bench, name, key, todo):
    bench.env[name] = "1"
    (finding,) = bench.findings(GOOD)
    assert finding.where == f"{key} (environment {name})"
    assert todo in finding.todo
    assert finding.code == 3


@pytest.mark.parametrize(
    ("flag", "todo"),
    [
        ("policy.setle", "policy.settle"),
        ("policy", "name one of its keys"),
        ("pools.linux", "name one of its keys"),
        ("nonsense", "nearest known key"),
    ],
)
def test_a_flag_that_names_no_key_is_an_error(bench, flag, todo):
    (finding,) = examine(bench.write(), bench.env, {flag: "1"}, environment=False).findings
    assert finding.where.endswith(f"(flag {flag})")
    assert todo in finding.todo


def test_a_secret_is_refused_on_the_command_line(bench):
    found = bench.findings(GOOD, forge__github__token="ghp_flag")
    assert [finding.where for finding in found] == ["forge.github.token"]
    assert "command line" in found[0].what
    assert "ghp_flag" not in str(found)


def test_relative_paths_are_meant_from_their_file_and_others_from_here(bench, monkeypatch, tmp_path):
    here = tmp_path / "elsewhere"
    here.mkdir()
    monkeypatch.chdir(here)
    text = GOOD + '[runner]\nwork_dir = "work"\napplication = "~/application"\n'
    effective = bench.load(text, server__api_socket="api.sock")
    assert effective.settings.runner.work_dir == bench.folder / "work"
    assert effective.settings.runner.application == str(bench.folder / "application")
    assert effective.settings.server.api_socket == here / "api.sock"
    assert effective.settings.forge["github"].token_file == bench.folder / "token"


def test_default_paths_are_those_of_the_service_manager(bench):
    settings = bench.load().settings
    assert settings.server.store == f"sqlite://{bench.folder}/state/state.db"
    assert settings.server.api_socket == bench.folder / "run" / "api.sock"
    assert settings.runner.work_dir == bench.folder / "state" / "runners"


def test_the_named_file_is_read_the_variable_next_then_the_usual_places(bench):
    usual = bench.folder / "config" / "ephemerd" / "config.toml"
    usual.parent.mkdir(parents=True)
    usual.write_text(
        GOOD.replace('"token"', f'"{bench.folder}/token"').replace('"hook"', f'"{bench.folder}/hook"')
    )
    assert load_settings(None, bench.env).path == usual
    bench.env["EPHEMERD_CONFIG"] = str(bench.write())
    assert load_settings(None, bench.env).path == bench.file
    other = bench.folder / "other.toml"
    other.write_text(GOOD)
    assert load_settings(other, bench.env).path == other


def test_a_named_file_that_is_missing_is_an_error_and_no_other_is_read(bench):
    bench.env["EPHEMERD_CONFIG"] = str(bench.folder / "gone.toml")
    with pytest.raises(ConfigError) as caught:
        load_settings(None, bench.env)
    assert caught.value.code == 3
    assert str(bench.folder / "gone.toml") in caught.value.findings[0].where


def test_no_file_at_all_says_where_it_looked(bench):
    (finding,) = examine(None, bench.env).findings
    assert str(bench.folder / "config" / "ephemerd" / "config.toml") in finding.what
    assert "--config" in finding.todo


def test_an_empty_file_lacks_a_forge_and_a_pool(bench):
    assert [finding.what for finding in bench.findings("")] == [
        "there is no [forge.NAME], so no job would be heard of",
        "there is no [pools.NAME], so no job would be served",
    ]


def test_the_current_folder_is_read_by_an_ordinary_user_only(bench, monkeypatch):
    from ephemerd.config import paths

    bench.write()
    monkeypatch.chdir(bench.folder)
    monkeypatch.setattr(paths, "SYSTEM_CONFIG", Path("/nonexistent/config.toml"))
    monkeypatch.setattr(paths, "is_root", lambda: False)
    assert load_settings(None, bench.env).path == Path("ephemerd.toml")
    monkeypatch.setattr(paths, "is_root", lambda: True)
    with pytest.raises(ConfigError, match="no configuration file was found"):
        load_settings(None, bench.env)
