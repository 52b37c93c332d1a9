"""The parser is the source of the reference: every command has an example, every option says what it does."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from ephemerd.cli.failure import Exit
from ephemerd.cli.main import ENTRIES
from ephemerd.cli.reference import MEANINGS, described, exit_codes, manual, page

EVERY = list(described())
NAMES = [" ".join(one.words) or "(the program)" for one in EVERY]


def test_all_commands_are_described_those_of_groups_too():
    assert {one.words[0] for one in EVERY if one.words} == set(ENTRIES)
    assert {"store backup", "journal export", "images gc", "webhook install"} <= set(NAMES)


@pytest.mark.parametrize("one", EVERY, ids=NAMES)
def test_each_has_help_and_an_example_of_itself(one):
    assert one.about
    assert one.about[0].endswith(".")
    assert one.example.startswith(" ".join(("ephemerd", *one.words)))


@pytest.mark.parametrize("one", EVERY, ids=NAMES)
def test_each_parameter_says_what_it_does(one):
    assert [parameter for parameter in one.parameters if not parameter.about.endswith((".", "…"))] == []


@pytest.mark.parametrize("one", [one for one in EVERY if one.words], ids=NAMES[1:])
def test_the_example_is_in_its_help(cli, one):
    done = cli(*one.words, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"Example: {one.example}" in " ".join(done.out.split())


@pytest.mark.parametrize("one", [one for one in EVERY if one.is_group], ids=lambda one: " ".join(one.words))
def test_no_line_of_a_list_of_commands_is_cut(cli, one):
    lines = cli(*one.words, "--help").out.splitlines()
    assert [line for line in lines if line.endswith("...") and not line.startswith("Usage:")] == []
    assert [line for line in lines if len(line) > 80] == []


@pytest.fixture(scope="module")
def written() -> tuple[str, str]:
    """The page and the manual."""
    return page(), manual().replace("\\-", "-")


@pytest.mark.parametrize("one", EVERY, ids=NAMES)
def test_each_is_on_the_page_and_in_the_manual(one, written):
    text, roff = written
    assert not one.words or f"\n#### `ephemerd {' '.join(one.words)}`\n" in text
    assert all(f"`{name}`" in text for parameter in one.parameters for name in parameter.names)
    assert all(name in roff for parameter in one.parameters for name in parameter.names)


def test_the_usage_names_what_is_needed():
    usages = {" ".join(one.words): one.usage for one in EVERY}
    assert usages["explain"] == "ephemerd explain [OPTIONS] RUNNER_OR_JOB"
    assert usages["cordon"] == "ephemerd cordon [OPTIONS] [POOL|HOST]"
    assert usages["store"] == "ephemerd store COMMAND"


def test_every_exit_code_has_a_meaning():
    assert list(MEANINGS) == list(Exit)
    for code, (means, typically, todo) in MEANINGS.items():
        assert means
        assert bool(typically) == (code is not Exit.DONE)
        assert bool(todo) == (code not in {Exit.DONE, Exit.INTERRUPTED, Exit.TERMINATED})
    assert exit_codes().count("\n") == len(Exit) + 2


@pytest.mark.skipif(shutil.which("man") is None, reason="there is no man")
def test_the_manual_page_is_read_without_a_warning(tmp_path):
    file = tmp_path / "ephemerd.1"
    file.write_text(manual(), encoding="utf-8")
    command = ["man", "--warnings", "-E", "UTF-8", "-l", str(file)]
    env = {"PATH": "/usr/bin:/bin", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "kill [OPTIONS] RUNNER" in done.stdout
