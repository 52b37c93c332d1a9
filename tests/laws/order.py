"""Finds iteration over sets: their order differs between processes, so nothing may come out of it.

A heuristic over names, not a type checker. It knows set displays and comprehensions, `set(...)`,
`frozenset(...)`, set algebra, local names and arguments bound or annotated as sets, attributes that classes
annotate as sets. Feeding a set to something for which order does not matter (`sorted`, `len`, `any`, another
set ...) is no finding.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tests.laws.source import Module, finding

ORDERLESS = frozenset({"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"})
ORDERED = frozenset(
    {"deque", "dict", "enumerate", "filter", "iter", "list", "map", "next", "reversed", "tuple", "zip"}
)
ALGEBRA = frozenset({"union", "intersection", "difference", "symmetric_difference"})
SET_TYPES = frozenset({"set", "frozenset", "AbstractSet", "MutableSet", "Set", "FrozenSet"})
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def set_attributes(modules: Iterable[Module]) -> frozenset[str]:
    """Attributes that some class annotates as a set and no class annotates as anything else."""
    sets: set[str] = set()
    others: set[str] = set()
    for module in modules:
        for node in ast.walk(module.tree):
            fields = (
                [field for field in node.body if isinstance(field, ast.AnnAssign)]
                if isinstance(node, ast.ClassDef)
                else []
            )
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
                fields = [node]
            for field in fields:
                name = (
                    field.target.id
                    if isinstance(field.target, ast.Name)
                    else ast.unparse(field.target).split(".")[-1]
                )
                (sets if _is_set_type(field.annotation) else others).add(name)
    return frozenset(sets - others)


def set_iterations(module: Module, attributes: frozenset[str] | None = None) -> list[str]:
    """Each place where the order of a set could leak into a result."""
    found: list[str] = []
    known = set_attributes([module]) if attributes is None else attributes
    _Scope(module, known, set(), found).read(module.tree)
    return found


def _is_set_type(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return _is_set_type(ast.parse(annotation.value, mode="eval").body)
    return (isinstance(annotation, ast.Name) and annotation.id in SET_TYPES) or (
        isinstance(annotation, ast.Attribute) and annotation.attr in SET_TYPES
    )


class _Scope:
    """One function or the module: the names that hold sets here, and what is found in it."""

    def __init__(self, module: Module, attributes: frozenset[str], names: set[str], found: list[str]) -> None:
        self.module = module
        self.attributes = attributes
        self.names = set(names)
        self.found = found

    def read(self, scope: ast.Module | Function) -> None:
        nodes = list(_own_nodes(scope))
        if not isinstance(scope, ast.Module):
            self._learn_arguments(scope.args)
        for node in nodes:
            self._learn(node)
        orderless = {
            id(argument)
            for node in nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ORDERLESS
            if not (node.func.id in {"max", "min"} and node.keywords)
            for argument in node.args
        }
        for node in nodes:
            if id(node) not in orderless:
                for iterated in _iterated(node):
                    if self.is_set(iterated):
                        text = f"iterates over a set ({ast.unparse(iterated)}); sort it by a persisted key"
                        self.found.append(finding(self.module, node, text))
            if isinstance(node, Function):
                _Scope(self.module, self.attributes, self.names, self.found).read(node)

    def _learn_arguments(self, arguments: ast.arguments) -> None:
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            if _is_set_type(argument.annotation):
                self.names.add(argument.arg)
            else:
                self.names.discard(argument.arg)

    def _learn(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                (self.names.add if self.is_set(value) else self.names.discard)(name)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                (self.names.add if _is_set_type(annotation) else self.names.discard)(name)
            case ast.NamedExpr(target=ast.Name(id=name), value=value) if self.is_set(value):
                self.names.add(name)

    def is_set(self, node: ast.expr) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Call(func=ast.Name(id="set" | "frozenset")):
                return True
            case ast.Call(func=ast.Attribute(attr=attr, value=value)):
                return attr in ALGEBRA or (attr == "copy" and self.is_set(value))
            case ast.BinOp(op=ast.BitOr() | ast.BitAnd() | ast.BitXor() | ast.Sub(), left=left, right=right):
                return self.is_set(left) or self.is_set(right)
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_set(body) or self.is_set(orelse)
            case ast.Name(id=name):
                return name in self.names
            case ast.Attribute(attr=attr):
                return attr in self.attributes
            case _:
                return False


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The scope's nodes in source order; a function inside it is one node, not opened."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, Function):
            yield from _own_nodes(child)


def _iterated(node: ast.AST) -> list[ast.expr]:
    """What the node walks through in an order that can be seen."""
    match node:
        case ast.For(iter=iterated) | ast.AsyncFor(iter=iterated) | ast.YieldFrom(value=iterated):
            return [iterated]
        case ast.ListComp(generators=generators) | ast.DictComp(generators=generators):
            return [generator.iter for generator in generators]
        case ast.GeneratorExp(generators=generators):
            return [generator.iter for generator in generators]
        case ast.Starred(value=value, ctx=ast.Load()):
            return [value]
        case ast.Call(func=ast.Name(id=name), args=args) if name in ORDERED:
            return list(args)
        case ast.Call(func=ast.Name(id="max" | "min"), args=[values], keywords=[_, *_]):
            return [values]  # a tie under the key goes to the first one met
        case ast.Call(func=ast.Attribute(attr="join" | "extend" | "fromkeys"), args=args):
            return list(args)
        case ast.Call(func=ast.Attribute(attr="pop", value=value), args=[]):
            return [value]
        case ast.Assign(targets=[ast.Tuple() | ast.List()], value=value):
            return [value]
        case _:
            return []
