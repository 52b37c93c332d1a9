"""Every await that leaves the process has a deadline.

Two rules over the syntax trees. In `app/`, a call of a forge or a runtime is never awaited by itself: it is handed to
what puts a deadline around it. In `app/` and `adapters/`, what waits for something outside (a child process, a
thread, a lock, an event) names its limit, or stands in the list below with the reason why it always ends.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from tests.laws.source import Module, finding, modules, snippet

PORTS = {"ports/forge.py": "Forge", "ports/runtime.py": "Runtime"}
OWN_WAYS = frozenset({"close"})
"""Ports are closed one after the other at the end of a life, under the bound of the stop."""

WAITS = {
    "asyncio.wait": "timeout",
    "asyncio.wait_for": "timeout",
    "subprocess.run": "timeout",
    "subprocess.check_output": "timeout",
    "subprocess.check_call": "timeout",
    "subprocess.call": "timeout",
}
"""Functions that wait, and the argument by which they are limited."""
WAITING = frozenset({"wait", "acquire", "communicate", "join", "result", "get"})
"""Methods that wait for ever where they are awaited without an argument, outside of `asyncio.timeout`."""

ENDS_BY_ITSELF = {
    "app/executor.py: self._idle.wait()": "the commands under way have deadlines of their own",
    "app/daemon.py: self._booted.wait()": "whoever waits for the first commit has a bound, and the stop ends it",
    "app/daemon.py: self._ended.wait()": "after `Executor.close` nothing is left that could hold the end up",
    "adapters/runtimes/docker/stock.py: asyncio.wait((self._task,))": "each call of the engine has its own deadline",
    "adapters/runtimes/docker/tunnel.py: self.process.wait()": "our own child, and it was killed the line before",
    "app/writer.py: asyncio.wait({task})": "a commit has the store's own deadline",
    "app/executor_forge.py: asyncio.wait([out])": "a registration under way has the deadlines of its write",
}


def port_calls(found: tuple[Module, ...]) -> frozenset[str]:
    """The names of the ports' asynchronous methods."""
    names: set[str] = set()
    for module in found:
        wanted = PORTS.get(module.path)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and node.name == wanted:
                names.update(part.name for part in node.body if isinstance(part, ast.AsyncFunctionDef))
    return frozenset(names - OWN_WAYS)


def bare_port_calls(module: Module, names: frozenset[str]) -> list[str]:
    """Awaited calls of a forge or runtime that nothing limits."""
    if module.room != "app":
        return []
    return [
        finding(module, node, f"await {ast.unparse(node.value)}: hand it to `within`, with its limit")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Await)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr in names
        and _receiver(node.value.func).endswith(("forge", "runtime", "runtimes", "port"))
    ]


def _receiver(function: ast.Attribute) -> str:
    called = function.value.func if isinstance(function.value, ast.Call) else function.value
    return ast.unparse(called).rpartition(".")[2].lstrip("_")


def endless_waits(module: Module) -> list[str]:
    """Waits without a limit; each as `path: call`, so that the list above can name it."""
    if module.room not in ("app", "adapters"):
        return []
    limited = {id(part) for block in _under_a_timeout(module.tree) for part in ast.walk(block)}
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and _unlimited_function(node) and id(node) not in limited:
            found.append(f"{module.path}: {ast.unparse(node)}")
        if isinstance(node, ast.Await) and _unlimited_method(node.value) and id(node) not in limited:
            found.append(f"{module.path}: {ast.unparse(node.value)}")
    return found


def _under_a_timeout(tree: ast.Module) -> Iterator[ast.AsyncWith]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncWith):
            heads = [ast.unparse(item.context_expr) for item in node.items]
            if any(head.startswith("asyncio.timeout") for head in heads):
                yield node


def _unlimited_function(call: ast.Call) -> bool:
    limit = WAITS.get(ast.unparse(call.func))
    return limit is not None and all(keyword.arg != limit for keyword in call.keywords)


def _unlimited_method(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in WAITING
        and not value.args
        and not value.keywords
    )


def test_the_ports_are_read():
    assert {"register", "deregister", "runners", "start", "probe", "destroy", "watch"} <= port_calls(
        modules()
    )


def test_no_port_is_awaited_without_a_deadline():
    names = port_calls(modules())
    assert [found for module in modules() for found in bare_port_calls(module, names)] == []


@cache
def endless_in_all() -> frozenset[str]:
    return frozenset(wait for module in modules() for wait in endless_waits(module))


def test_no_wait_is_endless_but_those_that_end_by_themselves():
    found = endless_in_all()
    assert found - set(ENDS_BY_ITSELF) == set(), "limit it, or say in ENDS_BY_ITSELF why it always ends"


def test_the_list_names_nothing_that_is_not_there_any_more():
    found = endless_in_all()
    paths = {module.path for module in modules()}
    assert [wait for wait in ENDS_BY_ITSELF if wait.split(":")[0] in paths and wait not in found] == []


@pytest.mark.parametrize(
    "code",
    [
        "await self.forge.register(s, n, l)",
        "await runtime.probe(r, e)",
        "await self._runtime(pool).watch(r, p, e)",
        "x = await self._forge.runners(scope)",
    ],
)
def test_a_bare_port_call_is_found(code):
    assert bare_port_calls(snippet(f"async def f(self):\n    {code}", "app/x.py"), port_calls(modules()))


@pytest.mark.parametrize(
    "code",
    [
        "await within(3, self.forge.register(s, n, l))",
        "await self._read(scope, lambda: self.forge.runners(scope))",
        "await self._call(runtime.list(store), 3, 'list')",
        "await self._starts.start()",
    ],
)
def test_a_limited_port_call_passes(code):
    assert not bare_port_calls(snippet(f"async def f(self):\n    {code}", "app/x.py"), port_calls(modules()))


@pytest.mark.parametrize(
    "code",
    [
        "await event.wait()",
        "await asyncio.wait(tasks)",
        "await asyncio.wait_for(x, 3, loop=l)",
        "await lock.acquire()",
        "out = await process.communicate()",
        "subprocess.run(command, check=True)",
    ],
)
def test_an_endless_wait_is_found(code):
    assert endless_waits(snippet(f"async def f(self):\n    {code}", "adapters/x.py"))


@pytest.mark.parametrize(
    "code",
    [
        "await handle.wait(3)",
        "await asyncio.wait(tasks, timeout=3)",
        "async with asyncio.timeout(3):\n        await event.wait()",
        "subprocess.run(command, timeout=5)",
    ],
)
def test_a_limited_wait_passes(code):
    assert not endless_waits(snippet(f"async def f(self):\n    {code}", "adapters/x.py"))
