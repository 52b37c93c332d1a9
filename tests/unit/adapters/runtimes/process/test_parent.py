"""The parent's script starts with little: what it would import besides costs more than all that it does."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ephemerd.adapters.runtimes.process.nursery import PARENT

DEAR = {"os", "signal", "enum", "ctypes", "json", "typing", "pathlib"}
LOADED = "import sys; sys.path.insert(0, sys.argv[1]); import parent; print(*sys.modules)"
OWNED = """
import sys; sys.path.insert(0, sys.argv[1]); import parent
parent.orphanage()()
print(*sys.modules)
import ctypes
found = ctypes.c_int(0)
ctypes.CDLL(None).prctl(37, ctypes.byref(found), 0, 0, 0)
print(found.value)
"""

JOINED = "import sys; sys.path.insert(0, sys.argv[1]); import parent; print(parent.join({}))"

CLONED = "import sys, posix; sys.path.insert(0, sys.argv[1]); import parent; print(parent.cloner()(posix.open({}, 0)))"


def isolated(script: str) -> list[str]:
    """Run a script as the parent is run; its lines."""
    command = [sys.executable, "-I", "-S", "-c", script, str(PARENT.parent)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()


def test_it_imports_nothing_dear():
    assert DEAR.isdisjoint(isolated(LOADED)[0].split())


@pytest.mark.platform("linux")
def test_it_owns_its_orphans_without_anything_dear():
    modules, owns = isolated(OWNED)
    assert DEAR.isdisjoint(modules.split())
    assert owns == "1"


@pytest.mark.parametrize(
    ("files", "written"),
    [(("tasks", "cgroup.procs"), "tasks"), (("cgroup.procs",), "cgroup.procs"), ((), None)],
)
def test_it_joins_a_control_group_of_either_version(tmp_path, files, written):
    for name in files:
        (tmp_path / name).touch()
    assert isolated(JOINED.format(repr(str(tmp_path)))) == [str(written is not None)]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        name: "0" if name == written else "" for name in files
    }


def test_what_cannot_be_forked_into_is_said(tmp_path):
    """Control groups of version 1, and systems without such a call; then it is forked and moves."""
    assert isolated(CLONED.format(repr(str(tmp_path)))) == ["-1"]
