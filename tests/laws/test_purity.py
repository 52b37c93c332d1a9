"""Purity: what each inner room may import, and that the core can only ever say the same thing twice."""

from __future__ import annotations

import ast
import sys

import pytest

from tests.laws.order import set_attributes, set_iterations
from tests.laws.source import Module, finding, imports, inside, modules, snippet

DOMAIN_MAY = frozenset(
    {
        "__future__",
        "collections",
        "collections.abc",
        "dataclasses",
        "enum",
        "functools",
        "msgspec",
        "msgspec.structs",
        "re",
        "types",
        "typing",
    }
)
CORE_MAY = DOMAIN_MAY | {
    "bisect",
    "hashlib",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
}
APP_MUST_NOT = (
    "aiohttp",
    "ephemerd.config",
    "http.client",
    "http.server",
    "httpcore2",
    "httptools",
    "httpx",
    "httpx2",
    "multiprocessing",
    "prometheus_client",
    "psutil",
    "requests",
    "rich",
    "sqlite3",
    "starlette",
    "subprocess",
    "tomllib",
    "typer",
    "urllib.request",
    "uvicorn",
)
ROOMS_BELOW = {
    "domain": ("ephemerd.domain",),
    "core": ("ephemerd.domain", "ephemerd.core"),
    "ports": ("ephemerd.domain", "ephemerd.core", "ephemerd.ports"),
}
# hash() and id() differ from one process to the next; the others are I/O or run text as code.
IMPURE_CALLS = frozenset(
    {"open", "print", "input", "hash", "id", "exec", "eval", "compile", "__import__", "breakpoint"}
)


def forbidden_imports(module: Module) -> list[str]:
    """Imports that the module's room does not allow."""
    found = []
    for node, name in imports(module):
        if module.room == "app":
            allowed = not inside(name, *APP_MUST_NOT)
        elif inside(name, "ephemerd"):
            allowed = inside(name, *ROOMS_BELOW[module.room])
        elif module.room == "ports":
            allowed = name.split(".")[0] in sys.stdlib_module_names
        else:
            allowed = name in (DOMAIN_MAY if module.room == "domain" else CORE_MAY)
        if not allowed:
            found.append(finding(module, node, f"{module.room} must not import {name}"))
    return found


def impure_calls(module: Module) -> list[str]:
    """Calls of builtins that do I/O, run text, or answer differently in another process."""
    return [
        finding(module, node, f"{module.room} must not call {node.func.id}()")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS
    ]


def of(*rooms: str) -> list[Module]:
    return [module for module in modules() if module.room in rooms]


def test_inner_rooms_import_only_what_they_may():
    assert [
        found for module in of("domain", "core", "ports", "app") for found in forbidden_imports(module)
    ] == []


def test_domain_and_core_call_nothing_impure():
    assert [found for module in of("domain", "core") for found in impure_calls(module)] == []


def test_domain_and_core_never_iterate_over_a_set():
    inner = of("domain", "core")
    attributes = set_attributes(inner)
    assert [found for module in inner for found in set_iterations(module, attributes)] == []


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("domain/x.py", "import json"),
        ("domain/x.py", "from ephemerd.core.events import Woke"),
        ("domain/x.py", "from ..core import events"),
        ("domain/x.py", "import pydantic"),
        ("core/x.py", "import asyncio"),
        ("core/x.py", "def f():\n    from time import monotonic"),
        ("core/x.py", "from os import path"),
        ("core/x.py", "from datetime import datetime"),
        ("core/x.py", "import random, uuid"),
        ("core/x.py", "import collections.abc, logging"),
        ("core/x.py", "from ephemerd import ports"),
        ("core/x.py", "from .. import app"),
        ("core/__init__.py", "from ..ports import forge"),
        ("ports/x.py", "import psutil"),
        ("ports/x.py", "from ephemerd.app import daemon"),
        ("app/x.py", "from http.client import HTTPConnection"),
        ("app/x.py", "import sqlite3"),
        ("app/x.py", "import httpx2"),
        ("app/x.py", "from ephemerd.config import settings"),
        ("app/x.py", "def f():\n    import subprocess"),
    ],
)
def test_a_forbidden_import_is_found(path, code):
    assert forbidden_imports(snippet(code, path))


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("domain/x.py", "from collections.abc import Iterable\nfrom ephemerd.domain.ids import Scope"),
        ("core/x.py", "import heapq\nfrom . import events\nfrom ..domain.ids import Scope"),
        ("ports/x.py", "import os.path\nfrom ephemerd.core.events import Woke"),
        ("app/x.py", "import asyncio\nfrom http import HTTPStatus\nfrom ephemerd.ports.forge import Forge"),
    ],
)
def test_an_allowed_import_passes(path, code):
    assert forbidden_imports(snippet(code, path)) == []


@pytest.mark.parametrize("call", ["open('f')", "print(1)", "hash(x)", "id(x)", "eval('1')"])
def test_an_impure_call_is_found(call):
    assert impure_calls(snippet(f"def f(x):\n    return {call}"))


def test_a_method_or_keyword_of_the_same_name_passes():
    assert impure_calls(snippet("row.open()\nJob(id=3)\nself.hash(x)")) == []
