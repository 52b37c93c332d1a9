"""The shape of the source: rooms say what they own, files and functions stay short."""

from __future__ import annotations

import ast
from collections.abc import Iterable

import pytest

from tests.laws.source import PACKAGE, Module, finding, modules, snippet

FILE_LINES = 600
FUNCTION_LINES = 60

# path::function -> why it is longer. An entry that is no longer needed fails too.
LONG_FUNCTIONS: dict[str, str] = {}


def long_functions(module: Module) -> dict[str, int]:
    """Functions over the bound as `path::qualified.name`, with their length from `def` to the last line."""
    found: dict[str, int] = {}

    def look(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}.{child.name}" if prefix else child.name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (child.end_lineno or child.lineno) - child.lineno + 1
                if length > FUNCTION_LINES:
                    found[f"{module.path}::{name}"] = length
            look(child, name)

    look(module.tree, "")
    return found


def silent_packages(found: Iterable[Module]) -> list[str]:
    """Packages whose `__init__.py` does not say what they own."""
    return [
        finding(module, module.tree, "a package says in its docstring what it owns and what it must not do")
        for module in found
        if module.path.endswith("__init__.py") and not (ast.get_docstring(module.tree) or "").strip()
    ]


def test_every_package_says_what_it_owns():
    assert silent_packages(modules()) == []


def test_every_folder_with_modules_is_a_package():
    folders = {file.parent for file in PACKAGE.rglob("*.py")}
    assert sorted(str(folder) for folder in folders if not (folder / "__init__.py").exists()) == []


def test_no_file_is_too_long():
    assert {module.path: module.lines for module in modules() if module.lines > FILE_LINES} == {}


def test_no_function_is_too_long():
    found = {name: length for module in modules() for name, length in long_functions(module).items()}
    assert {name: length for name, length in found.items() if name not in LONG_FUNCTIONS} == {}
    assert [name for name in LONG_FUNCTIONS if name not in found] == [], "no longer too long: drop the entry"


@pytest.mark.parametrize("head", ["def f():", "async def f():"])
def test_a_long_function_is_found(head):
    body = "\n".join("        x = 1" for _ in range(FUNCTION_LINES))
    assert list(long_functions(snippet(f"class A:\n    {head}\n{body}"))) == ["core/snippet.py::A.f"]


def test_a_function_at_the_bound_passes():
    body = "\n".join("    x = 1" for _ in range(FUNCTION_LINES - 1))
    assert long_functions(snippet(f"def f():\n{body}")) == {}


def test_a_silent_package_is_found():
    assert silent_packages([snippet("x = 1", "web/__init__.py"), snippet('"""."""', "app/__init__.py")]) == [
        "web/__init__.py:1: a package says in its docstring what it owns and what it must not do"
    ]
