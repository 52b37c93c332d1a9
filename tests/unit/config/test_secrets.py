"""Secrets: where they may come from, what is said when one is missing, and that none is ever shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ephemerd.config.effective import load_settings
from ephemerd.config.show import HIDDEN
from tests.unit.config.conftest import GOOD

TOKEN_LINE = 'token_file = "token"\n'
HOOK_LINE = 'webhook_secret_file = "hook"\n'


def test_a_file_is_read_without_its_line_end(bench):
    effective = bench.load()
    assert effective.token("github").get_secret_value() == "ghp_secret"
    assert effective.webhook_secret("github").get_secret_value() == "hush"
    assert str(effective.origins["forge.github.token"]) == f"file {bench.folder}/token"


def test_a_missing_file_is_code_4_with_its_path(bench):
    (bench.folder / "token").unlink()
    finding = bench.only(GOOD)
    assert finding.code == 4
    assert f"the file {bench.folder}/token does not exist" == finding.what
    assert str(bench.folder / "token") in finding.todo


def test_an_unreadable_file_is_code_4_with_its_path(bench, monkeypatch):
    honest = Path.open

    def refuse(self, *args, **more):
        if self.name == "token":
            raise PermissionError(13, "Permission denied")
        return honest(self, *args, **more)

    monkeypatch.setattr(Path, "open", refuse)
    finding = bench.only(GOOD)
    assert finding.code == 4
    assert finding.what == f"the file {bench.folder}/token cannot be read: Permission denied"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"two words", "is not one token"),
        (b"ghp_\xc3\xa4", "is not one token"),
        (b"line\nline", "is not one token"),
        (b"\xff\xfe", "is not text"),
        (b"x" * 70_000, "is too large for a secret"),
    ],
)
def test_a_file_that_holds_no_token(bench, content, what):
    (bench.folder / "token").write_bytes(content)
    finding = bench.only(GOOD)
    assert finding.code == 4
    assert what in finding.what


def test_a_folder_is_no_secret(bench):
    finding = bench.only(GOOD.replace('"token"', '"application"'))
    assert finding.code == 4
    assert "cannot be read" in finding.what


def test_a_secret_with_spaces_signs_webhooks(bench):
    (bench.folder / "hook").write_text("correct horse\n")
    assert bench.load().webhook_secret("github").get_secret_value() == "correct horse"


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True), (0o604, True)])
def test_a_file_that_every_account_can_read_is_a_warning(bench, mode, warned):
    (bench.folder / "token").chmod(mode)
    findings = bench.load().findings
    assert [finding.code for finding in findings] == ([0] if warned else [])
    if warned:
        assert findings[0].todo == f"chmod 600 {bench.folder}/token"


@pytest.mark.parametrize(
    ("line", "key"), [(TOKEN_LINE, "forge.github.token"), (HOOK_LINE, "forge.github.webhook_secret")]
)
def test_no_secret_no_start(bench, line, key):
    finding = bench.only(GOOD.replace(line, ""))
    assert finding.code == 4
    assert finding.where == key
    assert f"{key}_file" in finding.todo
    assert "EPHEMERD_FORGE__GITHUB__" in finding.todo


def test_an_empty_secret_is_none(bench):
    bench.env["EPHEMERD_FORGE__GITHUB__TOKEN"] = ""
    finding = bench.only(GOOD.replace(TOKEN_LINE, ""))
    assert (finding.code, finding.where) == (
        4,
        "forge.github.token (environment EPHEMERD_FORGE__GITHUB__TOKEN)",
    )


def test_a_credential_of_the_service_manager(bench):
    folder = bench.folder / "credentials"
    folder.mkdir()
    (folder / "gh").write_text("ghp_unit")
    (folder / "gh").chmod(0o444)
    bench.env["CREDENTIALS_DIRECTORY"] = str(folder)
    for line in ('token_file = "credential:gh"\n', 'token = "credential:gh"\n'):
        effective = bench.load(GOOD.replace(TOKEN_LINE, line))
        assert effective.token("github").get_secret_value() == "ghp_unit"
        assert effective.findings == ()


@pytest.mark.parametrize(
    ("value", "directory", "what"),
    [
        ("credential:gh", False, "$CREDENTIALS_DIRECTORY is not set"),
        ("credential:gh", True, "does not exist"),
        ("credential:../token", True, "is not the name of a credential"),
        ("credential:", True, "is not the name of a credential"),
    ],
)
def test_a_credential_that_is_not_there(bench, value, directory, what):
    if directory:
        bench.env["CREDENTIALS_DIRECTORY"] = str(bench.folder / "application")
    finding = bench.only(GOOD.replace('"token"', f'"{value}"'))
    assert finding.code == 4
    assert what in finding.what


def test_a_variable_named_in_the_file(bench):
    text = GOOD.replace(TOKEN_LINE, 'token = "env:GH_TOKEN"\n')
    finding = bench.only(text)
    assert (finding.code, finding.what) == (4, "the variable GH_TOKEN is not set")
    bench.env["GH_TOKEN"] = "ghp_named"
    effective = bench.load(text)
    assert effective.token("github").get_secret_value() == "ghp_named"


def test_a_secret_in_the_file_itself_is_refused(bench):
    finding = bench.only(GOOD.replace(TOKEN_LINE, 'token = "ghp_plain"\n'))
    assert finding.code == 3
    assert "must not stand in the configuration" in finding.what
    assert "ghp_plain" not in str(finding)


def test_a_secret_in_place_of_its_path_is_refused_and_not_shown(bench):
    finding = bench.only(GOOD.replace('"token"', '"ghp_plain"'))
    assert finding.code == 3
    assert "not the path of a file" in finding.what
    assert "ghp_plain" not in str(finding)


def test_two_ways_in_one_file_are_refused(bench):
    finding = bench.only(GOOD.replace(TOKEN_LINE, TOKEN_LINE + 'token = "credential:gh"\n'))
    assert finding.code == 3
    assert "both given" in finding.what


def test_the_environment_goes_over_the_file(bench):
    bench.env["EPHEMERD_FORGE__GITHUB__TOKEN"] = "ghp_env"
    (bench.folder / "token").unlink()
    effective = bench.load()
    assert effective.token("github").get_secret_value() == "ghp_env"


def test_a_file_named_by_the_environment_goes_over_the_one_of_the_file(bench):
    other = bench.folder / "other"
    other.write_text("ghp_other")
    other.chmod(0o600)
    bench.env["EPHEMERD_FORGE__GITHUB__TOKEN_FILE"] = str(other)
    assert bench.load().token("github").get_secret_value() == "ghp_other"


def test_an_unset_secret_is_a_key_error(bench):
    with pytest.raises(KeyError):
        bench.load().token("gitlab")


def test_no_secret_is_in_anything_that_is_shown(bench):
    bench.env["EPHEMERD_FORGE__GITHUB__TOKEN"] = "ghp_env"
    effective = load_settings(bench.write(), bench.env)
    shown = [
        repr(effective),
        str(effective.settings),
        repr(effective.vault),
        repr(effective.token("github")),
        str(effective.rows()),
        json.dumps(effective.settings.model_dump(mode="json")),
    ]
    for text in shown:
        assert "ghp_env" not in text
        assert "hush" not in text
    rows = {key: value for key, value, _ in effective.rows()}
    assert rows["forge.github.token"] == rows["forge.github.webhook_secret"] == HIDDEN
