"""The fake runner's folder: its layout, how it starts, and that it needs nothing but the standard library."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from ephemerd.testing.fake_runner.folder import PACKAGE, first_lines, write_folder


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_folder(tmp_path / "runner")


def start(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [folder / "bin" / "Runner.Listener", *arguments],
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_layout_is_that_of_the_runner_application(folder):
    assert (folder / "externals").is_dir()
    for name in ("Runner.Listener", "Runner.Worker"):
        assert os.access(folder / "bin" / name, os.X_OK)


def test_writing_again_replaces_what_was_there(folder):
    stale = folder / "bin" / PACKAGE / "stale.py"
    stale.write_text("")
    write_folder(folder)
    assert not stale.exists()


def test_the_program_imports_the_standard_library_alone():
    found = set()
    for item in resources.files("ephemerd.testing.fake_runner.program").iterdir():
        if item.name.endswith(".py"):
            for node in ast.walk(ast.parse(item.read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.level == 0:
                    found.add((node.module or "").partition(".")[0])
    assert found <= set(sys.stdlib_module_names)


def test_the_compiled_code_stays_valid_in_a_copy_with_other_times(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for file in (copy / "bin" / PACKAGE).glob("*.py"):
        os.utime(file, (1, 1))
        file.write_text("raise SystemExit('compiled code was not used')")
    assert start(copy, "warmup").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        (["run"], {}),
        (["run"], {"ACTIONS_RUNNER_INPUT_JITCONFIG": "@@@"}),
        (["run"], {"ACTIONS_RUNNER_INPUT_JITCONFIG": "bm90IGpzb24="}),
        (["configure"], {}),
    ],
)
def test_a_bad_configuration_is_code_1(folder, arguments, env):
    done = start(folder, *arguments, **env)
    assert done.returncode == 1
    assert done.stderr


def test_an_interpreter_with_blanks_in_its_path_is_started_through_a_shell(tmp_path):
    home = tmp_path / "with a blank"
    home.mkdir()
    link = home / "python"
    link.symlink_to(os.path.realpath(sys.executable))
    folder = write_folder(tmp_path / "runner", str(link))
    assert start(folder, "warmup").returncode == 0


@pytest.mark.parametrize(
    ("python", "plain"),
    [
        ("/usr/bin/python3", True),
        ("/opt/my python/bin/python3", False),
        ("/" + "x" * 200 + "/python3", False),
    ],
)
def test_the_first_line_is_plain_where_it_can_be(python, plain):
    assert first_lines(python).startswith(f"#!{python} " if plain else "#!/bin/sh\n")
