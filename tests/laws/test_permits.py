"""Only the gate makes permits, and only the executor spends them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch

import pytest

from tests.laws.source import Module, finding, modules, snippet

GUARDED = frozenset({"Permit", "FenceIntent"})
MAKER = "core/gate.py"
SPENDERS = ("app/executor*.py", "app/executor/*.py", "testing/*")
SPENDING = frozenset({"destroy", "deregister"})
PERMIT_LIKE = re.compile(r"(^|_)(permit|fence_?intent|intent)$", re.IGNORECASE)
HOLDERS = frozenset({"Command", "Destroy", "Deregister", "Step"})
READERS = frozenset({"convert", "Decoder", "decode", "decoder"})
COPIERS = frozenset({"replace", "copy", "deepcopy", "__replace__", "force_setattr", "setattr", "__setattr__"})


def foreign_makers(module: Module) -> list[str]:
    """Uses of `Permit` and `FenceIntent` by which code outside the gate could come by one.

    Outside, the names may stand in imports, annotations, `isinstance` and `match` patterns; every other use
    (a call, an alias, a subclass, `Permit.__new__`, a decoder's argument) could make one, and so could a
    copy.
    """
    if module.path == MAKER:
        return []
    found = []
    harmless = {id(node) for part in _harmless_parts(module.tree) for node in ast.walk(part)}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            found += [
                finding(module, node, f"{alias.name} must keep its name, or this law cannot see it")
                for alias in node.names
                if alias.name.split(".")[-1] in GUARDED and alias.asname not in (None, alias.name)
            ]
        elif id(node) in harmless:
            continue
        elif isinstance(node, ast.Name | ast.Attribute) and _last(node) in GUARDED:
            found.append(finding(module, node, f"only {MAKER} makes a {_last(node)}"))
        elif isinstance(node, ast.Call) and _copies_a_permit(node):
            found.append(finding(module, node, f"only {MAKER} makes one, also from another"))
        elif isinstance(node, ast.Call) and _reads_a_holder(node):
            found.append(finding(module, node, f"only {MAKER} makes one, also inside a command"))
    return found


def _copies_a_permit(call: ast.Call) -> bool:
    """Whatever makes one from another, or another of one, under whatever name its module goes."""
    if _last(call.func) not in COPIERS:
        return False
    own = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return any(PERMIT_LIKE.search(_last(node)) for node in [*call.args[:1], *own])


def _reads_a_holder(call: ast.Call) -> bool:
    """A decoder of what holds a permit would make one."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    names = (part for one in given for part in ast.walk(one) if isinstance(part, ast.Name | ast.Attribute))
    return _last(call.func) in READERS and any(_last(name) in HOLDERS for name in names)


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _harmless_parts(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        match node:
            case ast.arg(annotation=ast.expr() as annotation):
                yield annotation
            case ast.AnnAssign(annotation=annotation):
                yield annotation
            case (
                ast.FunctionDef(returns=ast.expr() as returns)
                | ast.AsyncFunctionDef(returns=ast.expr() as returns)
            ):
                yield returns
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, classes]):
                yield classes
            case ast.MatchClass(cls=cls):
                yield cls
            case _:
                pass


def foreign_spenders(module: Module) -> list[str]:
    """Calls that destroy or deregister outside the executor (and the shipped test tools)."""
    if any(fnmatch(module.path, pattern) for pattern in SPENDERS):
        return []
    return [
        finding(module, node, f"only app/executor*.py calls .{node.attr}()")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr in SPENDING and isinstance(node.ctx, ast.Load)
    ]


def test_only_the_gate_makes_permits():
    assert [found for module in modules() for found in foreign_makers(module)] == []


def test_only_the_executor_destroys_and_deregisters():
    assert [found for module in modules() for found in foreign_spenders(module)] == []


@pytest.mark.parametrize(
    "code",
    [
        "Permit(runner)",
        "permit.FenceIntent(runner=1)",
        "from ephemerd.domain.permit import Permit as P\nP(1)",
        "make = Permit",
        "Permit.__new__(Permit)",
        "object.__new__(permit.Permit)",
        "msgspec.convert(row, type=Permit)",
        "decode(row, FenceIntent)",
        "class Forged(Permit): pass",
        "dataclasses.replace(self.permit, made=0)",
        "replace(command.fence_intent, warrant=w)",
        "copy.replace(permit, made=0)",
        "msgspec.structs.replace(permit, made=0)",
        "structs.replace(self.permit, expires=9)",
        "msgspec.structs.force_setattr(permit, 'expires', 9)",
        "object.__setattr__(command.intent, 'warrant', w)",
        "permit.__replace__(made=0)",
        "msgspec.convert(plain, Step)",
        "msgspec.json.decode(raw, type=Step)",
        "KINDS = {'permit': Permit}",
        "msgspec.convert(plain, Destroy | Woke)",
        "msgspec.json.Decoder(type=commands.Command)",
    ],
)
@pytest.mark.parametrize(
    "path", ["core/reap.py", "app/executor.py", "adapters/stores/sqlite.py", "domain/permit.py"]
)
def test_another_maker_is_found(code, path):
    assert foreign_makers(snippet(code, path))


@pytest.mark.parametrize(
    "code",
    [
        "from ephemerd.domain.permit import Permit",
        "def destroy(self, env: str, permit: Permit) -> Permit | None: ...",
        "class Destroy:\n    permit: Permit",
        "match command:\n    case Permit(runner=r): pass",
        "isinstance(x, (Permit, FenceIntent))",
        "replace(runner, state=s)",
        "name.replace('a', 'b')",
    ],
)
def test_speaking_of_a_permit_passes(code):
    assert foreign_makers(snippet(code)) == []


def test_the_gate_may_make_them():
    assert foreign_makers(snippet("Permit(1)\nreplace(permit, made=2)", MAKER)) == []


@pytest.mark.parametrize(
    "code", ["runtime.destroy(env, p)", "await self.forge.deregister(r, i)", "f = forge.deregister"]
)
@pytest.mark.parametrize(
    "path", ["core/gate.py", "app/recovery.py", "adapters/runtimes/process.py", "web/api.py"]
)
def test_another_spender_is_found(code, path):
    assert foreign_spenders(snippet(f"async def f(self):\n    {code}", path))


@pytest.mark.parametrize("path", ["app/executor.py", "app/executor_calls.py", "testing/memory.py"])
def test_the_executor_may_spend(path):
    assert foreign_spenders(snippet("runtime.destroy(env, p)", path)) == []
