"""Core and domain stay covered branch by branch: the measure is part of the whole run and cannot be softened."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.laws.source import PACKAGE, ROOT

LEFT_OUT = ["if TYPE_CHECKING:", "@overload", "assert_never\\(", "^\\s*\\.\\.\\.$"]
"""What is no behaviour. A longer list would hide some."""


def prerequisites(makefile: str, target: str) -> set[str]:
    """Everything that a target of a Makefile has made before it, through all its prerequisites."""
    found: set[str] = set()
    line = [target]
    while line:
        match = re.search(rf"^{re.escape(line.pop())}:([^=\n]*)$", makefile, re.MULTILINE)
        for name in match[1].split() if match else ():
            if name not in found:
                found.add(name)
                line.append(name)
    return found


def softened(source: str) -> list[str]:
    """Lines of a source that ask not to be measured."""
    return [line for line in source.splitlines() if re.search(r"#\s*pragma:", line)]


def test_the_whole_run_measures():
    assert "coverage" in prerequisites((ROOT / "Makefile").read_text(encoding="utf-8"), "test")


def test_a_run_without_the_measure_is_found():
    assert prerequisites("test: a b\na: c\nc: test\n", "test") == {"a", "b", "c", "test"}


def test_less_than_every_branch_fails():
    script = (ROOT / "scripts" / "coverage.sh").read_text(encoding="utf-8")
    assert "set -e" in script
    for part in ("--cov-branch", "--fail-under=100", "src/ephemerd/core/*", "src/ephemerd/domain/*"):
        assert part in script
    assert "tests/unit/core tests/unit/domain\n" in script, "only their own tests count"


def test_nothing_is_left_out_of_the_measure():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["coverage"]
    assert settings["report"]["exclude_also"] == LEFT_OUT
    assert "omit" not in settings["run"]
    found = {
        file.name: softened(file.read_text(encoding="utf-8"))
        for room in ("core", "domain")
        for file in (PACKAGE / room).glob("*.py")
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize("line", ["x = 1  # pragma: no cover", "if x:  #pragma: no branch"])
def test_a_softened_line_is_found(line):
    assert softened(f"y = 2\n{line}\n") == [line]
