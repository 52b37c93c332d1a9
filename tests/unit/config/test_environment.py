"""What the machine lacks: the application, accounts, folders; code 5 for each."""

from __future__ import annotations

import os
import pwd
import sys

import pytest

from ephemerd.config import environment
from ephemerd.config.environment import closed_folder, not_writable
from tests.unit.config.conftest import GOOD

RUNNER = '[runner]\nallow_root = true\napplication = "application"\n'
ME = pwd.getpwuid(os.geteuid()).pw_name


def missing(bench, text: str) -> list[tuple[str, str]]:
    """Key and sentence of everything that this machine lacks."""
    found = [finding for finding in bench.examine(text, environment=True).findings if finding.code]
    assert {int(finding.code) for finding in found} <= {5}
    return [(finding.where.split(" ")[0], finding.what) for finding in found]


def test_a_machine_that_has_everything(bench):
    assert missing(bench, GOOD + RUNNER) == []


def test_the_environment_does_not_make_a_configuration_unusable(bench):
    examined = bench.examine(GOOD + "[runner]\nallow_root = true\napplication = 'gone'\n", environment=True)
    assert examined.effective is not None
    assert [int(finding.code) for finding in examined.findings] == [5, 0]
    assert examined.effective.check_environment() == list(examined.findings)


def test_no_folder_of_the_application(bench):
    (found,) = missing(bench, GOOD + RUNNER.replace('"application"', '"gone"'))
    assert found == ("runner.application", f"there is no folder {bench.folder}/gone")


def test_an_application_that_is_downloaded_need_not_be_there(bench):
    text = GOOD + RUNNER.replace('"application"', '"download"')
    assert missing(bench, text) == []
    effective = bench.load(text + '[runner.download]\nevery = "2h"\nunverified = true\n')
    assert effective.settings.runner.application == "download"
    assert effective.settings.runner.download.every == 2 * 3_600_000
    assert effective.settings.runner.download.unverified
    assert bench.load(text).settings.runner.download.every == 6 * 3_600_000


def test_no_listener_in_it(bench):
    (bench.folder / "application" / "bin" / "Runner.Listener").unlink()
    ((_, what),) = missing(bench, GOOD + RUNNER)
    assert what == f"{bench.folder}/application/bin/Runner.Listener does not exist"


def test_a_listener_that_cannot_be_executed(bench):
    (bench.folder / "application" / "bin" / "Runner.Listener").chmod(0o644)
    ((_, what),) = missing(bench, GOOD + RUNNER)
    assert what.endswith("cannot be executed")


def test_root_without_a_user_for_jobs(bench, monkeypatch):
    text = GOOD + RUNNER.replace("allow_root = true\n", "")
    monkeypatch.setattr(environment, "is_root", lambda: True)
    ((key, what),) = missing(bench, text)
    assert key == "pools.linux.user"
    assert "running as root without a user" in what
    monkeypatch.setattr(environment, "is_root", lambda: False)
    assert missing(bench, text) == []


@pytest.mark.parametrize("line", ["", f"user = '{ME}'\n"])
def test_jobs_as_the_daemon_s_own_account_are_a_warning(bench, line):
    examined = bench.examine(GOOD + line + RUNNER, environment=True)
    assert [(int(finding.code), finding.where.split(" ")[0]) for finding in examined.findings] == [
        (0, "pools.linux.user")
    ]
    assert "could read its secrets" in examined.findings[0].what


def test_an_account_that_does_not_exist(bench):
    ((key, what),) = missing(bench, GOOD + "user = 'nobody-of-that-name'\n" + RUNNER)
    assert (key, what) == ("pools.linux.user", "there is no account 'nobody-of-that-name'")


def test_jobs_as_root_by_name(bench):
    text = GOOD + "user = 'root'\n" + RUNNER
    ((_, what),) = missing(bench, text.replace("allow_root = true\n", ""))
    assert what == "jobs would run as root"


def test_only_root_can_change_the_account(bench, monkeypatch):
    monkeypatch.setattr(environment, "is_root", lambda: False)
    other = next(account.pw_name for account in pwd.getpwall() if account.pw_uid not in {0, os.geteuid()})
    ((_, what),) = missing(bench, GOOD + f"user = '{other}'\n" + RUNNER)
    assert what == f"only root can run jobs as another account ({other})"
    assert missing(bench, GOOD + f"user = '{ME}'\n" + RUNNER) == []


@pytest.mark.account("root")
def test_a_folder_that_the_jobs_account_cannot_enter(bench):
    other = next(account.pw_name for account in pwd.getpwall() if account.pw_uid not in {0, os.geteuid()})
    bench.folder.chmod(0o700)
    found = missing(bench, GOOD + f"user = '{other}'\n" + RUNNER)
    assert {key for key, _ in found} == {"runner.work_dir", "runner.application"}
    assert all(f"the account {other!r} cannot enter" in what for _, what in found)


def test_which_folder_is_closed(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "a").chmod(0o750)
    stat = (tmp_path / "a").stat()
    around = [inner, tmp_path / "a"]
    assert closed_folder(around, stat.st_uid, frozenset()) is None
    assert closed_folder(around, stat.st_uid + 1, frozenset({stat.st_gid})) is None
    assert closed_folder(around, stat.st_uid + 1, frozenset()) == tmp_path / "a"
    assert closed_folder([tmp_path / "gone"], 1, frozenset()) is None


def test_a_certificate_file_that_is_not_there(bench):
    text = GOOD.replace("scope", "ca_file = 'ca.pem'\nscope", 1) + RUNNER
    ((key, what),) = missing(bench, text)
    assert (key, what) == ("forge.github.ca_file", f"the file {bench.folder}/ca.pem cannot be read")


def test_folders_that_can_be_made_or_used(tmp_path):
    assert not_writable(tmp_path) == ""
    assert not_writable(tmp_path / "a" / "b") == ""


def test_a_file_where_a_folder_belongs(bench, tmp_path):
    (tmp_path / "file").touch()
    assert not_writable(tmp_path / "file" / "x") == f"{tmp_path}/file is not a folder"
    found = missing(bench, GOOD + RUNNER + f"[server]\nstore = 'sqlite://{tmp_path}/file/state.db'\n")
    assert found == [("server.store", f"{tmp_path}/file is not a folder")]


def test_a_folder_that_is_not_writable(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert not_writable(tmp_path) == f"{tmp_path} is not writable"
    assert not_writable(tmp_path / "a") == f"{tmp_path} is not writable, so {tmp_path}/a cannot be made"


def test_another_system(bench, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    assert ("configuration", "the process runtime does not know win32") in missing(bench, GOOD + RUNNER)
