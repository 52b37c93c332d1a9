"""Plugin of pytest: tries each change in a forked copy of a process that has everything loaded already.

A change inside a function is tried by giving the function other code, so that the tests need not be collected
anew. One that works when its module is imported is tried in a process forked before the collection. A trial
runs only the tests that reach the changed line, the quickest first, and ends at the first that fails.
Which test reaches which line is measured once, in a process of its own.

    pytest -p tests.mutation.trial --mutation-plan plan.json tests/unit/core
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NoReturn

import coverage
import pytest
from hypothesis import Phase, settings

from tests.mutation.mutants import Mutant, mutants

PACKAGE = "ephemerd.core"
SLOW = 4.0
"""A test that takes longer (s) is not used: its place is in the ordinary run."""

NOTICED, SURVIVED, UNCLEAR = 1, 0, 3
OUTCOME = {NOTICED: "killed", SURVIVED: "survived", UNCLEAR: "unclear"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutation-plan", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Trials(json.loads(config.option.mutation_plan.read_text())))


class Trials:
    """Everything that one run tries.

    plan   folder: where `reach.json` and `results.jsonl` are kept; modules: what to change, in this order;
           tried: names of changes that need no new trial; workers: how many trials at a time;
           functions: whether what works at import is left out; seconds: how long a trial may take, or None
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        self.folder, self.workers = Path(plan["folder"]), int(plan["workers"])
        self.modules: list[str] = plan["modules"]
        self.functions_alone = bool(plan["functions"])
        self.seconds: float | None = plan["seconds"]
        self.tried = set(plan["tried"])
        self.running: dict[int, tuple[Mutant, float]] = {}
        self.forked: Mutant | None = None
        self.reach: dict[str, Any] = {}

    # -- the course of a run -------------------------------------------------------------------------

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Try what works at import time in copies of a process that has not imported the package yet."""
        settings.register_profile(
            "mutation",
            parent=settings.get_profile("ephemerd"),
            max_examples=10,
            database=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
        )
        settings.load_profile("mutation")
        reach = self.folder / "reach.json"
        if not reach.exists():
            return  # this run measures
        self.reach = json.loads(reach.read_text())
        assert PACKAGE not in sys.modules, "the package was imported before its changes could be tried"
        for mutant in () if self.functions_alone else self._left(inside=False):
            if self._fork(mutant, limit=30 + 3 * sum(self.reach["seconds"].values())):
                sys.meta_path.insert(0, Changed(mutant))
                return
        self._wait(0)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.forked is not None:
            items[:] = self._chosen(items, self.forked)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            if self.forked is not None:
                os._exit(NOTICED)
            raise session.Failed("the tests cannot be collected")
        if self.forked is not None:
            run(session.items, self.seconds)
        if not self.reach:
            self._measure(session)
            return True
        live = functions()
        gc.freeze()  # what is there already need not be looked through by every trial
        for mutant in self._left(inside=True):
            chosen = self._chosen(session.items, mutant)
            limit = 10 + 3 * sum(self.reach["seconds"][item.nodeid] for item in chosen)
            if self._fork(mutant, limit):
                give(mutant, live)
                run(chosen, self.seconds)
        self._wait(0)
        return True

    def _left(self, *, inside: bool) -> Iterable[Mutant]:
        for module in self.modules:
            for mutant in mutants(module, source_of(module).read_text(encoding="utf-8")):
                if mutant.name not in self.tried and (mutant.function is not None) == inside:
                    yield mutant

    # -- which tests ---------------------------------------------------------------------------------

    def _measure(self, session: pytest.Session) -> None:
        """Run every test once and keep what it reaches and how long it takes."""
        measured = [str(source_of("x").parent / "*")]
        cover = coverage.Coverage(data_file=None, include=measured, branch=False, config_file=False)
        seconds: dict[str, float] = {}
        failures = Failures(session)
        slow = self.folder / "slow.json"
        left_out = set(json.loads(slow.read_text())) if slow.exists() else set()
        session.items[:] = [item for item in session.items if item.nodeid not in left_out]
        cover.start()
        for place, item in enumerate(session.items):
            cover.switch_context(item.nodeid)
            began = time.process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following(session.items, place))
            seconds[item.nodeid] = time.process_time() - began
        cover.stop()
        if failures.count:
            raise session.Failed(f"{failures.count} tests fail before anything is changed")
        data = cover.get_data()
        lines = {
            module: {
                str(line): [name for name in names if name]
                for line, names in data.contexts_by_lineno(str(source_of(module))).items()
            }
            for module in all_modules()
        }
        slow.write_text(json.dumps(sorted({*left_out, *(name for name, s in seconds.items() if s > SLOW)})))
        (self.folder / "reach.json").write_text(json.dumps({"seconds": seconds, "lines": lines}))

    def _chosen(self, items: Sequence[pytest.Item], mutant: Mutant) -> list[pytest.Item]:
        """Return the tests that can notice a change: those of the module's own file first."""
        seconds: dict[str, float] = self.reach["seconds"]
        own = f"test_{mutant.module}"
        if mutant.function is None:
            names = set(seconds)
        else:
            lines = self.reach["lines"][mutant.module]
            names = set(lines.get(str(mutant.line), ())) or self._of_function(mutant)
        chosen = [
            item for item in items if item.nodeid in names and seconds.get(item.nodeid, SLOW + 1) <= SLOW
        ]
        return sorted(chosen, key=lambda item: (own not in item.nodeid, seconds[item.nodeid], item.nodeid))

    def _of_function(self, mutant: Mutant) -> set[str]:
        """The tests that reach a function: a line in the middle of a statement bears no mark."""
        assert mutant.function is not None
        found: set[str] = set()
        lines = self.reach["lines"][mutant.module]
        for line in range(mutant.function[1], mutant.line + 1):
            found.update(lines.get(str(line), ()))
        return found

    # -- processes -----------------------------------------------------------------------------------

    def _fork(self, mutant: Mutant, limit: float) -> bool:
        """Start a trial that may use `limit` seconds of a processor; return whether this is the trial."""
        self._wait(self.workers - 1)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            self.running[pid] = (mutant, time.monotonic())
            return False
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2))
        self.running, self.forked = {}, mutant
        return True

    def _wait(self, most: int) -> None:
        """Wait until at most so many trials run, and write down how the others ended."""
        while len(self.running) > most:
            pid, status = os.wait()
            if pid not in self.running:
                continue
            mutant, began = self.running.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            line = {
                "name": mutant.name,
                "module": mutant.module,
                "line": mutant.line,
                "outcome": OUTCOME.get(code, "endless" if code < 0 else "killed"),
                "seconds": round(time.monotonic() - began, 2),
            }
            with (self.folder / "results.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


class Changed(MetaPathFinder, Loader):
    """Imports one module as a mutant has it."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != f"{PACKAGE}.{self.mutant.module}":
            return None
        return spec_from_loader(fullname, self, origin=str(source_of(self.mutant.module)))

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.mutant.tree(), str(source_of(self.mutant.module)), "exec"), module.__dict__)


class Failures:
    """Counts the tests that fail."""

    def __init__(self, session: pytest.Session) -> None:
        self.count = 0
        session.config.pluginmanager.register(self)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.count += report.failed


def run(items: Sequence[pytest.Item], seconds: float | None) -> NoReturn:
    """Run tests until one fails or the time of the processor is used up; end the process so as to say which."""
    failures = Failures(items[0].session) if items else None
    for place, item in enumerate(items):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following(items, place))
        if failures is not None and failures.count:
            os._exit(NOTICED)
        if seconds is not None and time.process_time() > seconds:
            os._exit(UNCLEAR)
    os._exit(SURVIVED)


def following(items: Sequence[pytest.Item], place: int) -> pytest.Item | None:
    return items[place + 1] if place + 1 < len(items) else None


def all_modules() -> list[str]:
    """Every module of the core, by name."""
    return sorted(file.stem for file in source_of("x").parent.glob("*.py") if file.stem != "__init__")


def source_of(module: str) -> Path:
    """Return where a module of the core lies: beside the tests of the copied tree."""
    return Path(__file__).resolve().parents[2] / "src" / PACKAGE.replace(".", "/") / f"{module}.py"


def functions() -> dict[tuple[str, str, int], FunctionType]:
    """Return every function of the core that lives, by file, qualified name and first line."""
    home = str(source_of("x").parent)
    found = (thing for thing in gc.get_objects() if isinstance(thing, FunctionType))
    return {
        (one.__code__.co_filename, one.__code__.co_qualname, one.__code__.co_firstlineno): one
        for one in found
        if one.__code__.co_filename.startswith(home)
    }


def give(mutant: Mutant, live: dict[tuple[str, str, int], FunctionType]) -> None:
    """Give the changed function its other code; a change that does not compile is noticed as such."""
    assert mutant.function is not None
    file = str(source_of(mutant.module))
    code = find(compile(mutant.tree(), file, "exec"), mutant.function)
    assert code is not None, mutant
    live[file, *mutant.function].__code__ = code


def find(code: CodeType, function: tuple[str, int]) -> CodeType | None:
    """Find the code of a function by its qualified name and first line."""
    for part in code.co_consts:
        if isinstance(part, CodeType):
            if (part.co_qualname, part.co_firstlineno) == function:
                return part
            inner = find(part, function)
            if inner is not None:
                return inner
    return None
