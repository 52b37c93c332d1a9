"""The heuristic behind "never iterate over a set" finds what it should and leaves the rest alone."""

from __future__ import annotations

import pytest

from tests.laws.order import set_attributes, set_iterations
from tests.laws.source import snippet


@pytest.mark.parametrize(
    "code",
    [
        "for x in {1, 2}: pass",
        "for x in set(rows): pass",
        "for x in {r.id for r in rows}: pass",
        "[x for x in frozenset(rows)]",
        "{x: 1 for x in set(rows)}",
        "list(set(rows))",
        "tuple({1, 2})",
        "next(iter(seen | {1}))",
        "f(*set(rows))",
        "[*{1, 2}]",
        "','.join({'a', 'b'})",
        "first, second = {1, 2}",
        "for x in set(a).intersection(b): pass",
        "def f(rows: frozenset[str]):\n    for r in rows: pass",
        "def f(rows: 'set[str]'):\n    return list(rows)",
        "def f():\n    seen = set()\n    return [s for s in seen]",
        "def f():\n    seen: set[int] = g()\n    for s in seen: pass",
        "class A:\n    live: set[int]\n    def f(self):\n        for x in self.live: pass",
        "class A:\n    def __init__(self):\n        self.live: set[int] = set()\n        self.live.pop()",
        "def f(rows: set[str]):\n    return max(rows, key=len)",
        "def f(rows: set[str]):\n    def g():\n        return [r for r in rows]\n    return g()",
        "max((r for r in set(rows)), key=len)",
    ],
)
def test_order_of_a_set_is_found(code):
    assert set_iterations(snippet(code))


@pytest.mark.parametrize(
    "code",
    [
        "for x in sorted({1, 2}): pass",
        "for x in [1, 2]: pass",
        "for x in {1: 2}: pass",
        "x in {1, 2}",
        "len(set(rows))",
        "any(x > 1 for x in set(rows))",
        "{x.id for x in set(rows)}",
        "sorted(x.id for x in set(rows))",
        "max({1, 2})",
        "def f(rows: list[str]):\n    return list(rows)",
        "def f():\n    rows = set()\n    rows = sorted(rows)\n    return list(rows)",
        "frozenset(set(rows) | {1})",
        "stack.pop()",
        "del seen[next(iter(rows))]",
    ],
)
def test_what_is_ordered_or_orderless_passes(code):
    assert set_iterations(snippet(code)) == []


def test_an_attribute_is_known_across_modules_unless_a_class_says_otherwise():
    labels = snippet("class A:\n    labels: frozenset[str]\n    rows: set[str]", "domain/labels.py")
    rows = snippet("class B:\n    def __init__(self):\n        self.rows: list[str] = []", "domain/rows.py")
    use = snippet("for x in job.labels: pass\nfor y in job.rows: pass")
    assert set_iterations(use, set_attributes([labels, rows])) == [
        "core/snippet.py:1: iterates over a set (job.labels); sort it by a persisted key"
    ]
