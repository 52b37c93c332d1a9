"""The small changes that are made to a module, each a syntax tree with one place altered.

What is changed: the edge and the sense of comparisons, operands of `and` and `or`, conditions, `+` and `-`,
`min` and `max`, numbers, texts, truths, fields set by `replace` and its kin, calls made for their effect,
`continue` and `break`. What is not: docstrings, annotations, decorators, assertions, texts of f-strings and
of log lines.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, cast

WINDOW = 44
"""So many characters of a statement are shown around the place that is changed."""

EVOLVING = frozenset({"replace", "change_runner", "change_job", "move_runner", "move_job", "_leave_queue"})
"""Calls that set fields of a row: each field is left out in turn."""

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
RECKONED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}
Parents = dict[ast.AST, ast.AST]


@dataclass(frozen=True)
class Mutant:
    """One change. `name` is stable while its statement is; `function` is None outside of functions.

    function   (qualified name, first line) of the outermost function, as its code object says them
    line       where the change is
    tree       makes the changed module; of a change within a function, the statement of the module around it
    """

    name: str
    module: str
    function: tuple[str, int] | None
    line: int
    tree: Callable[[], ast.Module] = field(repr=False, compare=False)


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """Yield every change of a module's source, in an order that depends on the source alone."""
    tree = ast.parse(source)
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    alone = {statement: ast.Module([statement], []) for statement in tree.body}
    seen: Counter[str] = Counter()
    for node in ast.walk(tree):
        if _skipped(node, parents):
            continue
        for other in _changes(node, parents):
            function, statement = _function(node, parents), _statement(node, parents)
            ast.copy_location(other, node)
            text = _difference(_line(statement), _line(_put(_head(statement), node, other)))
            where = function[0] if function is not None else "(module)"
            name = f"{module}.{where}: {text}"
            seen[name] += 1
            if seen[name] > 1:
                name += f" #{seen[name]}"
            whole = tree if function is None else alone[_statement_of_module(node, parents)]
            yield Mutant(
                name, module, function, getattr(node, "lineno", 1), partial(_put, whole, node, other)
            )


# -- what may be changed ----------------------------------------------------------------------------


def _skipped(node: ast.AST, parents: Parents) -> bool:
    """Say whether a place is none of behaviour: annotations, decorators, docstrings, sentences."""
    here: ast.AST | None = node
    while here is not None:
        parent = parents.get(here)
        if isinstance(here, ast.Assert | ast.Raise | ast.Import | ast.ImportFrom):
            return True
        if isinstance(parent, ast.arg) or (isinstance(parent, ast.AnnAssign) and here is parent.annotation):
            return True
        if isinstance(parent, ast.FunctionDef) and (here is parent.returns or here in parent.decorator_list):
            return True
        if isinstance(parent, ast.ClassDef) and here in (
            *parent.decorator_list,
            *parent.bases,
            *parent.keywords,
        ):
            return True
        if isinstance(here, ast.Assign) and _names_slots(here):
            return True
        here = parent
    return _is_sentence(node, parents)


def _names_slots(node: ast.Assign) -> bool:
    typing = isinstance(node.value, ast.Call) and _called(node.value) in ("TypeVar", "NewType", "namedtuple")
    alias = isinstance(node.value, ast.BinOp | ast.Subscript) and not isinstance(node.value, ast.Constant)
    only_names = alias and all(
        isinstance(part, ast.BinOp | ast.Name | ast.Attribute | ast.Load | ast.BitOr | ast.Subscript)
        for part in ast.walk(node.value)
    )
    target = node.targets[0]
    return typing or only_names or (isinstance(target, ast.Name) and target.id == "__slots__")


def _is_sentence(node: ast.AST, parents: Parents) -> bool:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    parent = parents.get(node)
    if isinstance(parent, ast.Expr | ast.JoinedStr | ast.FormattedValue):
        return True
    return isinstance(parent, ast.Call) and _called(parent) == "note" and node in parent.args[1:2]


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


# -- how it is changed ------------------------------------------------------------------------------


def _changes(node: ast.AST, parents: Parents) -> Iterator[ast.AST]:
    """Yield what a node may be replaced by."""
    if isinstance(node, ast.Compare):
        yield from _compared(node)
    elif isinstance(node, ast.BoolOp):
        for place in range(len(node.values)):
            rest = [value for at, value in enumerate(node.values) if at != place]
            yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in RECKONED:
        if not isinstance(parents.get(node), ast.Subscript):
            yield ast.BinOp(node.left, RECKONED[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.Expr | ast.AugAssign) and not isinstance(
        getattr(node, "value", None), ast.Constant | ast.Yield | ast.YieldFrom
    ):
        yield ast.Pass()
    elif isinstance(node, ast.Yield) and isinstance(parents.get(node), ast.Expr):
        yield ast.Constant(None)
    elif isinstance(node, ast.Continue):
        yield ast.Break()
    elif isinstance(node, ast.Break):
        yield ast.Continue()
    if _is_bare_condition(node, parents):
        yield ast.UnaryOp(ast.Not(), node)  # type: ignore[arg-type]  # a condition is an expression


def _is_bare_condition(node: ast.AST, parents: Parents) -> bool:
    """Say whether a node is a condition that no other change turns round."""
    if isinstance(node, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant | ast.NamedExpr):
        return False
    parent = parents.get(node)
    return isinstance(parent, ast.If | ast.IfExp | ast.While) and node is parent.test


def _compared(node: ast.Compare) -> Iterator[ast.AST]:
    for place, operator in enumerate(node.ops):
        for other in COMPARED[type(operator)]:
            yield ast.Compare(
                node.left, [*node.ops[:place], other(), *node.ops[place + 1 :]], node.comparators
            )


def _constants(node: ast.Constant) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        yield ast.Constant(value * 2 if value >= 1_000 or isinstance(value, float) else value + 1)
    elif isinstance(value, str):
        yield ast.Constant("" if value else "?")


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    name = _called(node)
    if isinstance(node.func, ast.Name) and name in SWAPPED:
        yield ast.Call(ast.Name(SWAPPED[name], ast.Load()), node.args, node.keywords)
    if name in EVOLVING:
        for place in range(len(node.keywords)):
            yield ast.Call(node.func, node.args, node.keywords[:place] + node.keywords[place + 1 :])


# -- where it is, and what it is called -------------------------------------------------------------


def _function(node: ast.AST, parents: Parents) -> tuple[str, int] | None:
    """Return the outermost function around a node, None where it runs when the module is imported."""
    names: list[str] = []
    found: ast.FunctionDef | None = None
    here, child = parents.get(node), node
    while here is not None:
        if isinstance(here, ast.FunctionDef) and child in here.body:
            found, names = here, [here.name]
        elif isinstance(here, ast.ClassDef):
            names.insert(0, here.name)
        child, here = here, parents.get(here)
    if found is None:
        return None
    lines = [found.lineno, *(decorator.lineno for decorator in found.decorator_list)]
    return ".".join(names), min(lines)


def _statement(node: ast.AST, parents: Parents) -> ast.AST:
    here = node
    while not isinstance(here, ast.stmt | ast.match_case):
        here = parents[here]
    return here


def _statement_of_module(node: ast.AST, parents: Parents) -> ast.stmt:
    here = node
    while not isinstance(parents[here], ast.Module):
        here = parents[here]
    return cast(ast.stmt, here)


Node = TypeVar("Node", bound=ast.AST)


def _put(whole: Node, old: ast.AST, new: ast.AST) -> Node:
    """Return the tree with `new` in the place of `old`: only what lies around it is copied."""
    return ast.fix_missing_locations(cast(Node, _swapped(whole, old, new)))


def _swapped(node: ast.AST, old: ast.AST, new: ast.AST) -> ast.AST:
    if node is old:
        return new
    for name, value in ast.iter_fields(node):
        found: object = value
        if isinstance(value, list):
            parts = [_swapped(part, old, new) if isinstance(part, ast.AST) else part for part in value]
            if any(part is not before for part, before in zip(parts, value, strict=True)):
                found = parts
        elif isinstance(value, ast.AST):
            found = _swapped(value, old, new)
        if found is not value:
            copied = copy.copy(node)
            setattr(copied, name, found)
            return copied
    return node


def _head(statement: ast.AST) -> ast.AST:
    """Return a statement without its body, where it has one: the copy costs less."""
    if not isinstance(getattr(statement, "body", None), list):
        return statement
    shallow = copy.copy(statement)
    for name in ("body", "orelse", "handlers", "finalbody"):
        if isinstance(getattr(shallow, name, None), list):
            setattr(shallow, name, [ast.Pass()] if name == "body" else [])
    return shallow


def _line(node: ast.AST) -> str:
    """Return the first line of a statement, its head where it has a body."""
    if isinstance(node, ast.match_case):
        node = ast.Match(ast.Constant(...), [node])
        return ast.unparse(node).splitlines()[1].strip()
    return ast.unparse(node).splitlines()[0].strip()


def _difference(before: str, after: str) -> str:
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return f"{_window(before, start, end)} => {_window(after, start, end)}"


def _window(text: str, start: int, end: int) -> str:
    first, last = max(0, start - WINDOW), min(len(text), len(text) - end + WINDOW)
    return f"{'…' if first else ''}{text[first:last]}{'…' if last < len(text) else ''}"
