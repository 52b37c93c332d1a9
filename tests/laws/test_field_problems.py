"""docs/FIELD-PROBLEMS.md keeps its word: sixty numbers, each with tests that exist, or said to be missing."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.laws.source import ROOT

DOCUMENT = ROOT / "docs" / "FIELD-PROBLEMS.md"
LEVELS = {
    "core": "unit/core",
    "simulator": "unit/simulate",
    "adapter": "unit/adapters",
    "shell": "unit/app",
    "web": "unit/web",
    "end to end": "e2e",
}
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)
NAME = re.compile(r"`(test_fp_(\d\d)_\w+)`")
MISSING = re.compile(r"\bNot here yet\b")


@cache
def defined() -> dict[str, list[str]]:
    """Every test of a field problem, by its name: the folders (below `tests`) in which it is defined."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_fp_"):
                found.setdefault(node.name, []).append(file.relative_to(ROOT / "tests").as_posix())
    return found


def faults(text: str, tests: dict[str, list[str]]) -> list[str]:
    """Say what the document promises and does not keep."""
    rows = ROW.findall(text)
    wrong = []
    if [int(row[0]) for row in rows] != list(range(1, 61)):
        wrong.append("the numbers are not 1 to 60, each once and in order")
    for number, title, level, names, holds in rows:
        listed = NAME.findall(names)
        if len(title) < 10 or len(holds) < 10:
            wrong.append(f"{number}: says nothing")
        if not listed and not MISSING.search(holds):
            wrong.append(f"{number}: has neither a test nor is it said to be missing")
        for name, of in listed:
            if int(of) != int(number):
                wrong.append(f"{number}: {name} is of another number")
            if name not in tests:
                wrong.append(f"{number}: {name} does not exist")
        wrong.extend(
            f"{number}: {problem}" for problem in _levels(level, [name for name, _ in listed], tests)
        )
    return wrong


def _levels(level: str, names: list[str], tests: dict[str, list[str]]) -> list[str]:
    """The levels named are exactly those at which the listed tests are."""
    paths = [path for name in names for path in tests.get(name, [])]
    said = [] if level == "–" else level.split(", ")
    unknown = [f"{one!r} is no level" for one in said if one not in LEVELS]
    empty = [f"no listed test is at level {one}" for one in said if not _at(one, paths)]
    unsaid = [f"level {one} is not named" for one in LEVELS if _at(one, paths) and one not in said]
    return unknown + empty + unsaid


def _at(level: str, paths: list[str]) -> bool:
    return any(path.startswith(LEVELS.get(level, "nowhere") + "/") for path in paths)


def test_every_field_problem_has_a_test_or_is_said_to_be_missing() -> None:
    assert faults(DOCUMENT.read_text(encoding="utf-8"), defined()) == []


def row(number: int, names: str = "–", holds: str = "Not here yet: all of it.", level: str = "–") -> str:
    return f"| {number} | a problem that people had | {level} | {names} | {holds} |\n"


WHOLE = [row(number) for number in range(1, 61)]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({7: ""}, "numbers"),
        ({7: row(7) * 2}, "numbers"),
        ({7: row(7, holds="Nobody knows when it comes.")}, "neither"),
        ({7: row(7, "`test_fp_07_imagined`", level="core")}, "does not exist"),
        ({7: row(7, "`test_fp_08_real`", level="core")}, "another number"),
        ({7: row(7, "`test_fp_07_real`", level="web")}, "no listed test is at level web"),
        ({7: row(7, "`test_fp_07_real`")}, "level core is not named"),
        ({7: row(7, "`test_fp_07_real`", level="core, moon")}, "no level"),
        ({7: row(7, holds="Not here")}, "says nothing"),
    ],
)
def test_the_law_sees(change: dict[int, str], complaint: str) -> None:
    tests = {"test_fp_07_real": ["unit/core/test_x.py"], "test_fp_08_real": ["unit/core/test_x.py"]}
    assert faults("".join(WHOLE), tests) == []
    text = "".join(change.get(number, kept) for number, kept in enumerate(WHOLE, start=1))
    assert any(complaint in found for found in faults(text, tests))


def test_tests_are_found_in_every_room() -> None:
    folders = {Path(path).parts[0] for paths in defined().values() for path in paths}
    assert {"unit", "e2e"} <= folders
