"""Which small changes are made, what they are called, and that each gives another program."""

from __future__ import annotations

import ast

import pytest

from tests.mutation.mutants import mutants
from tests.mutation.trial import find, source_of


def changes(*lines: str) -> list[str]:
    """The names of the changes to a function of these lines, without their place."""
    source = "def f(a, b):\n" + "".join(f"    {line}\n" for line in lines)
    return [one.name.removeprefix("m.f: ") for one in mutants("m", source)]


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("return a < b", ["return a <= b", "return a >= b"]),
        ("return a is None", ["return a is not None"]),
        ("return a and b", ["return b", "return a"]),
        ("return not a", ["return a"]),
        ("return a - b", ["return a + b"]),
        ("return min(a, b)", ["return max(a, b)"]),
        ("return True", ["return False"]),
        ("return 1", ["return 2"]),
        ("return 60000", ["return 120000"]),
        ("return 'x'", ["return ''"]),
        ("return ''", ["return '?'"]),
        ("return a if b else 1.5", ["return a if not b else 1.5", "return a if b else 3.0"]),
        ("a.b(b)", ["pass"]),
        ("a += b", ["pass"]),
        ("yield a", ["None"]),
        ("return t.replace(a, b=a, c=b)", ["return t.replace(a, c=b)", "return t.replace(a, b=a)"]),
    ],
)
def test_each_kind_of_change(line: str, after: list[str]) -> None:
    assert changes(line) == [f"{ast.unparse(ast.parse(line))} => {other}" for other in after]


def test_a_head_is_named_without_its_body() -> None:
    assert changes("if a:", "    pass") == ["if a: => if not a:"]
    assert changes("for c in a:", "    continue") == ["continue => break"]


@pytest.mark.parametrize(
    "line",
    [
        "'''A sentence.'''",
        "x: dict[str, 'int']",
        "assert a < b, 'why'",
        "raise ValueError('why')",
        "return f'{a} text'",
        "import a.b",
        "return a",
    ],
)
def test_what_is_no_behaviour_is_left_alone(line: str) -> None:
    assert changes(line) == []


def test_the_sentence_of_a_log_line_is_left_alone_and_its_level_is_not() -> None:
    assert changes("t.note('info', 'a sentence')") == [
        "t.note('info', 'a sentence') => pass",
        "t.note('info', 'a sentence') => t.note('', 'a sentence')",
    ]


def test_decorators_and_names_of_types_are_left_alone() -> None:
    source = "@d(slots=True)\nclass A:\n    __slots__ = ('a',)\nT = TypeVar('T')\nU = A | B\n"
    assert list(mutants("m", source)) == []


def test_like_changes_are_told_apart_by_number() -> None:
    assert changes("if a:", "    return 1", "return 1") == [
        "if a: => if not a:",
        "return 1 => return 2",
        "return 1 => return 2 #2",
    ]


def test_a_long_statement_is_shown_around_the_change_alone() -> None:
    (name,) = changes(f"x = [{', '.join(['a'] * 60)}, not b]")
    around = (", a" * 20 + ", ")[-44:]
    assert name == f"…{around}not b] => …{around}b]"


def test_what_runs_at_import_has_no_function_and_a_method_has_its_class() -> None:
    source = "LIMIT = 5\n\nclass A:\n    size: int = 3\n\n    @property\n    def f(self):\n        return 1\n"
    found = {one.name: one.function for one in mutants("m", source)}
    assert found == {
        "m.(module): LIMIT = 5 => LIMIT = 6": None,
        "m.(module): size: int = 3 => size: int = 4": None,
        "m.A.f: return 1 => return 2": ("A.f", 6),
    }


@pytest.mark.parametrize("module", ["decision", "matching", "judge"])
def test_every_change_of_a_module_has_a_name_of_its_own_and_gives_another_program(module: str) -> None:
    source = source_of(module).read_text(encoding="utf-8")
    found = list(mutants(module, source))
    assert len(found) > 30
    assert len({one.name for one in found}) == len(found)
    statements = {ast.unparse(statement) for statement in ast.parse(source).body}
    for one in found:
        body = one.tree().body
        assert len([part for part in body if ast.unparse(part) not in statements]) == 1
        if one.function is not None:
            assert len(body) == 1, "what is around a function costs each trial time"
            assert find(compile(one.tree(), "m.py", "exec"), one.function) is not None
