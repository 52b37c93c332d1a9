"""Reading the package's own source for the laws: modules, what they import, and findings with a place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
PACKAGE = SRC / "ephemerd"


@dataclass(frozen=True)
class Module:
    """One parsed source file. `path` is relative to `src/ephemerd`, with forward slashes."""

    path: str
    tree: ast.Module
    lines: int = 0

    @property
    def room(self) -> str:
        """The first part of the path: `core/gate.py` is in `core`, `bootstrap.py` in `bootstrap`."""
        return self.path.split("/")[0].removesuffix(".py")

    @property
    def name(self) -> str:
        """The dotted name under which it is imported."""
        parts = ["ephemerd", *self.path.removesuffix(".py").split("/")]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def snippet(code: str, path: str = "core/snippet.py") -> Module:
    """A module from a few lines of text, as if it lay at `path`."""
    return Module(path, ast.parse(code), code.count("\n") + 1)


@cache
def modules() -> tuple[Module, ...]:
    """Every source file of the package, in the order of its path."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        path = file.relative_to(PACKAGE).as_posix()
        found.append(Module(path, ast.parse(text, path), text.count("\n")))
    return tuple(found)


def finding(module: Module, node: ast.AST, text: str) -> str:
    """`core/gate.py:12: text`: what a failing law prints."""
    return f"{module.path}:{getattr(node, 'lineno', 1)}: {text}"


def imports(module: Module) -> Iterator[tuple[ast.stmt, str]]:
    """Each imported module as (statement, dotted name); relative ones resolved; also those inside functions.

    `from a.b import c` gives `a.b` alone when `a.b` is outside the package, and `a.b.c` inside it, where `c`
    may be a module that belongs to another room.
    """
    here = module.name.split(".")
    package = here if module.path.endswith("__init__.py") else here[:-1]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                kept = package[: len(package) - node.level + 1]
                base = ".".join([*kept, base]) if base else ".".join(kept)
            if base.split(".")[0] != "ephemerd":
                yield node, base
            else:
                for alias in node.names:
                    yield node, f"{base}.{alias.name}"


def inside(name: str, *packages: str) -> bool:
    """Whether the dotted name is one of the packages or lies below one."""
    return any(name == package or name.startswith(package + ".") for package in packages)
