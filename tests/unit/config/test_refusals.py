"""Every refusal names the key and its line, says what is wrong and what to do; all of them come at once."""

from __future__ import annotations

import pytest

from ephemerd.config.effective import examine, load_settings
from ephemerd.config.findings import Code, ConfigError, Finding, exit_code
from tests.unit.config.conftest import GOOD


@pytest.mark.parametrize(
    ("line", "key", "nearest"),
    [
        ("max_concurent = 4", "pools.linux.max_concurent", "pools.linux.max_concurrent"),
        ("Labels = []", "pools.linux.Labels", "pools.linux.labels"),
        ("max-concurrent = 4", "pools.linux.max-concurrent", "pools.linux.max_concurrent"),
        ("settle = 4", "pools.linux.settle", "policy.settle"),
        ("[policy]\nsetle = 4", "policy.setle", "policy.settle"),
        ("[policy]\nbackoff = ['1s']", "policy.backoff", "runner.claim_retry.backoff"),
        ("[policy]\norphan_sweep = false", "policy.orphan_sweep", "policy."),
        ("[runner.orphan_sweep]\nenable = true", "runner.orphan_sweep.enable", "runner.orphan_sweep.enabled"),
        ("[servers]\nstore = ''", "servers", "server"),
        ("[pool.x]\nuser = 'ci'", "pool", "pools"),
        ("[server]\nwebhook_port = 1", "server.webhook_port", "server.webhook_listen"),
    ],
)
def test_an_unknown_key_names_the_nearest_known_one(bench, line, key, nearest):
    finding = bench.only(GOOD + line + "\n")
    assert finding.code == 3
    assert finding.what == "unknown key"
    assert nearest in finding.todo
    number = len((GOOD + line).splitlines()) - (1 if "." not in key else 0)
    assert finding.where == f"{key} ({bench.file}:{number})"


def test_an_unknown_key_never_shows_its_value(bench):
    finding = bench.only(GOOD + "[server]\ntokn = 'ghp_mistyped'\n")
    assert "ghp_mistyped" not in str(finding)


@pytest.mark.parametrize(
    ("line", "key", "what"),
    [
        ("max_concurrent = 0", "pools.linux.max_concurrent", "must be greater than or equal to 1; it is 0"),
        ("max_concurrent = 'two'", "pools.linux.max_concurrent", "must be a valid integer"),
        ("unlabelled = 'perhaps'", "pools.linux.unlabelled", "must be a valid boolean"),
        ("orphan_grace = 'ten'", "pools.linux.orphan_grace", "must be a duration"),
        ("job_timeout = -1", "pools.linux.job_timeout", "not below zero"),
        ("host = 'a b'", "pools.linux.host", "letters, digits"),
        ("follow = 'some'", "pools.linux.follow", "must be 'all' or 'listening'; it is 'some'"),
        ("[policy]\nsettle = true", "policy.settle", "must be a duration"),
        ("[policy]\nprobe_timeout = 0", "policy.probe_timeout", "longer than zero"),
        ("[policy]\nunknown_bound = 'never'", "policy.unknown_bound", "'auto', 'grace' or 'hard'"),
        ("[policy]\nwrite_per_second = 0", "policy.write_per_second", "greater than 0"),
        ("[runner.claim_retry]\njitter = 1.5", "runner.claim_retry.jitter", "less than 1"),
        ("[runner.claim_retry]\nbackoff = []", "runner.claim_retry.backoff", "at least 1 item"),
        ("[runner.claim_retry]\nbackoff = '1s'", "runner.claim_retry.backoff", "must be a list"),
        ("[runner]\nextra_env = { A = 1 }", "runner.extra_env", "must be a text in quotes"),
        ("[server]\nwebhook_listen = 8080", "server.webhook_listen", "must be a text in quotes"),
        ("[server]\nwebhook_listen = '8080'", "server.webhook_listen", "HOST:PORT"),
        ("[server]\nmetrics_listen = 'off'", "server.metrics_listen", "HOST:PORT"),
        ("[server]\nstore = 'postgres://db'", "server.store", "other stores come later"),
    ],
)
def test_a_value_of_the_wrong_form(bench, line, key, what):
    finding = bench.only(GOOD + line + "\n")
    assert finding.code == 3
    assert finding.where.startswith(key)
    assert f"({bench.file}:" in finding.where
    assert what in finding.what
    assert finding.todo


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('"repo:acme/app"', '"acme/app"', '"repo:OWNER/NAME"'),
        ('"repo:acme/app"', "[]", "at least one scope"),
        ('"repo:acme/app"', '["repo:acme/app", "repo:ACME/app"]', "names a scope twice"),
        ('["self-hosted", "Linux", "x64"]', "[]", "at least one label"),
        ('["self-hosted", "Linux", "x64"]', '[" ", ""]', "at least one label"),
        ('["self-hosted", "Linux", "x64"]', '["a\\u001fb"]', "holds a label that cannot be used"),
        ('["self-hosted", "Linux", "x64"]', '["a,b"]', "holds a label that cannot be used"),
        ('["self-hosted", "Linux", "x64"]', '"linux"', "must be a list"),
        ('"process"', '"vm"', "must be 'process' or 'docker'; it is 'vm'"),
        ('"process"', "7", "must be 'process' or 'docker'; it is 7"),
        ("[pools.linux]", "[pools.'my pool']", "letters, digits"),
    ],
)
def test_a_required_value_of_the_wrong_form(bench, old, new, what):
    finding = bench.only(GOOD.replace(old, new))
    assert finding.code == 3
    assert what in finding.what


@pytest.mark.parametrize(
    ("line", "key", "kind"),
    [
        ('scope = "repo:acme/app"\n', "forge.github", "scope is required"),
        ('labels = ["self-hosted", "Linux", "x64"]\n', "pools.linux", "labels is required"),
        ('runtime = "process"\n', "pools.linux", "runtime is required"),
    ],
)
def test_a_required_key_that_is_missing_is_named_with_its_table(bench, line, key, kind):
    finding = bench.only(GOOD.replace(line, ""))
    assert kind in finding.what
    assert finding.where.startswith(f"{key} ({bench.file}:")
    assert finding.todo.startswith(f"set {key}.")


@pytest.mark.parametrize("text", ["forge = 1", "pools = ['a']", "policy = 'none'", "[forge]\ngithub = 3"])
def test_a_value_where_a_table_belongs(bench, text):
    found = bench.findings(text + "\n")
    assert "must be a table" in {finding.what for finding in found}


@pytest.mark.parametrize("secret", ["ghp_abcdef", "github_pat_abc", "-----BEGIN KEY-----"])
def test_a_refused_value_that_looks_like_a_secret_is_not_shown(bench, secret):
    finding = bench.only(GOOD.replace("repo:acme/app", secret))
    assert secret not in str(finding)
    assert "looks like a secret" in finding.what


BAD = """\
[forge.github]
scope = 5
token_file = "nowhere"
webhook_secret_file = "hook"
[pools.linux]
labels = []
runtime = "vm"
max_concurent = 4
forge = "gitlab"
host = "mars"
user = "nobody-of-that-name"
[pools.mac]
[policy]
setle = "5s"
[runner]
application = "nowhere"
"""


def test_everything_that_is_wrong_is_found_at_once_and_the_lowest_code_wins(bench):
    examined = bench.examine(BAD, environment=True)
    codes = [(int(finding.code), finding.where.split(" ")[0]) for finding in examined.findings]
    expected = {
        (3, "forge.github.scope"),
        (3, "pools.linux.labels"),
        (3, "pools.linux.runtime"),
        (3, "pools.linux.max_concurent"),
        (3, "pools.linux.forge"),
        (3, "pools.linux.host"),
        (3, "pools.mac"),
        (3, "policy.setle"),
        (4, "forge.github.token_file"),
        (5, "runner.application"),
        (5, "pools.linux.user"),
    }
    assert expected <= set(codes)
    assert [code for code, _ in codes] == sorted(code for code, _ in codes)
    assert exit_code(examined.findings) == 3
    assert examined.effective is None


def test_what_was_refused_is_refused_once(bench):
    found = bench.findings(BAD)
    assert len(found) == len(set(found))
    assert sum("labels" in finding.where for finding in found) == 1


def test_load_raises_with_all_findings(bench):
    with pytest.raises(ConfigError) as caught:
        load_settings(bench.write(BAD), bench.env)
    assert caught.value.code == 3
    assert len(caught.value.findings) > 8
    assert "policy.setle" in str(caught.value)


def test_the_lowest_code_among_errors_wins_and_warnings_do_not_count():
    def of(code: Code) -> Finding:
        return Finding(code, "x", "y", "z")

    assert exit_code([]) == 0
    assert exit_code([of(Code.WARNING)]) == 0
    assert exit_code([of(Code.WARNING), of(Code.ENVIRONMENT)]) == 5
    assert exit_code([of(Code.ENVIRONMENT), of(Code.CREDENTIALS)]) == 4
    assert exit_code([of(Code.CREDENTIALS), of(Code.CONFIGURATION)]) == 3


def test_a_file_that_cannot_be_read_is_all_that_is_said_of_it(tmp_path):
    """What it holds is not known, so nothing is missing."""
    (tmp_path / "config.toml").write_text("[forge.github\n")
    findings = examine(tmp_path / "config.toml", {"HOME": str(tmp_path)}).findings
    assert [finding.what.split(":")[0] for finding in findings] == ["is not valid TOML"]
