"""Plugin of pytest: tries each change in a forked copy of a process that has everything loaded already.

A change inside a function is tried by giving the function other code, so that the tests need not be collected
anew. One that works when its module is imported is tried in a process forked before the collection. A trial
runs only the tests that reach the changed line and ends at the first that fails: first those that have noticed
most changes of the same function, then the quickest. Which test reaches which line is measured in a process of
its own, for all tests once, and then for the files that changed.

    pytest -p tests.mutation.trial --mutation-plan plan.json tests/unit/core
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
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
SLOW = 1.0
"""A test that takes longer (s) is not used: its place is in the ordinary run."""

MEMORY = 4 << 30
"""Bytes that a trial may take: a change can make a loop that fills the memory."""

NOTICED, SURVIVED = 1, 0
OUTCOME = {NOTICED: "killed", SURVIVED: "survived"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutation-plan", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Trials(json.loads(config.option.mutation_plan.read_text())))


class Trials:
    """Everything that one run tries.

    plan   folder: where `reach.json` and `results.jsonl` are kept; modules: what to change, in this order;
           tried: names of changes that need no new trial; workers: how many trials at a time;
           functions: whether what works at import is left out; seconds: so much time of tests a change, or
           None for all of them; measure: files of tests whose reach is to be measured, None for all of them
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        self.folder, self.workers = Path(plan["folder"]), int(plan["workers"])
        self.modules: list[str] = plan["modules"]
        self.functions_alone = bool(plan["functions"])
        self.seconds: float | None = plan["seconds"]
        self.tried = set(plan["tried"])
        self.measured: list[str] | None = plan["measure"]
        self.running: dict[int, Trial] = {}
        self.forked: Trial | None = None
        self.reach: dict[str, Any] = {}
        self.hits: dict[tuple[str, Any], Counter[str]] = defaultdict(Counter)

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
        if reach.exists():
            self.reach = unpacked(json.loads(reach.read_text()), self.modules or all_modules())
        if self.measured != []:
            return  # this run measures
        assert PACKAGE not in sys.modules, "the package was imported before its changes could be tried"
        for mutant in () if self.functions_alone else self._left(inside=False):
            if self._fork(Trial(mutant, self.tests_for(mutant)), 30):
                sys.meta_path.insert(0, Changed(mutant))
                return
        self._wait(0)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.forked is not None:
            by_name = {item.nodeid: item for item in items}
            items[:] = [by_name[name] for name in self.forked.tests if name in by_name]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            if self.forked is not None:
                os._exit(NOTICED)
            raise session.Failed("the tests cannot be collected")
        if self.forked is not None:
            run(session.items)
        if self.measured != []:
            self._measure(session)
            return True
        live, by_name = functions(), {item.nodeid: item for item in session.items}
        gc.freeze()  # what is there already need not be looked through by every trial
        for mutant in self._left(inside=True):
            trial = Trial(mutant, self.tests_for(mutant))
            code = changed(mutant)
            if self._fork(trial, 5):
                give(mutant, code, live)
                run([by_name[name] for name in trial.tests if name in by_name])
        self._wait(0)
        return True

    def _left(self, *, inside: bool) -> Iterable[Mutant]:
        for module in self.modules:
            for mutant in mutants(module, source_of(module).read_text(encoding="utf-8")):
                if mutant.name not in self.tried and (mutant.function is not None) == inside:
                    yield mutant

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """End a trial at the first failure, before a report of it is made."""
        if (
            self.forked is None
            or call.excinfo is None
            or isinstance(call.excinfo.value, pytest.skip.Exception)
        ):
            return
        self.forked.say(item.nodeid)
        os._exit(NOTICED)

    # -- which tests ---------------------------------------------------------------------------------

    def _measure(self, session: pytest.Session) -> None:
        """Run tests once and keep what each reaches and how long it takes."""
        measured = [str(source_of("x").parent / "*")]
        cover = coverage.Coverage(data_file=None, include=measured, branch=False, config_file=False)
        seconds: dict[str, float] = {}
        failures, too_slow = Failures(session), set()
        slow = self.folder / "slow.json"
        left_out = set(json.loads(slow.read_text())) if slow.exists() else set()
        session.items[:] = [
            item
            for item in session.items
            if item.nodeid not in left_out
            and (self.measured is None or file_of(item.nodeid) in self.measured)
        ]
        cover.start()
        for place, item in enumerate(session.items):
            cover.switch_context(item.nodeid)
            began, failed, told = time.process_time(), failures.count, session.testsfailed
            with ended_after(SLOW) as ended:
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following(session.items, place))
            seconds[item.nodeid] = time.process_time() - began
            if ended:
                too_slow.add(item.nodeid)
                failures.count, session.testsfailed = failed, told
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
        slow.write_text(json.dumps(sorted({*left_out, *too_slow})))
        new = {"seconds": seconds, "lines": lines}
        if self.measured is not None:
            new = merged(self.reach, new, self.measured)
        (self.folder / "reach.json").write_text(json.dumps(packed(new)))

    def tests_for(self, mutant: Mutant) -> dict[str, float]:
        """Return the tests that may notice a change, in the order of a trial, and the seconds that each takes.

        Where the time of a trial is bounded, the tests of the module's own files come before others, and quick
        ones before slow ones. Which tests are run does not depend on what other trials found; their order does.
        Last come the module's own tests that did not reach the change: what is built once and kept was reached by
        the first test alone that wanted it.
        """
        seconds: dict[str, float] = self.reach["seconds"]
        own = f"/test_{mutant.module}"
        if mutant.function is None:
            names = set(seconds)
        else:
            lines = self.reach["lines"][mutant.module]
            names = set(lines.get(str(mutant.line), ())) or self._of_function(mutant)
        unreached = {name for name in seconds if own in name} - names
        quick = [name for name in names | unreached if seconds.get(name, SLOW + 1) <= SLOW]
        quick.sort(key=lambda name: (name in unreached, own not in name, seconds[name], name))
        chosen, left = [], float("inf") if self.seconds is None else self.seconds
        for name in quick:
            if seconds[name] <= left:
                chosen.append(name)
                left -= seconds[name]
        hits = self.hits[mutant.module, mutant.function]
        chosen.sort(key=lambda name: -hits[name])
        return {name: seconds[name] for name in chosen}

    def _of_function(self, mutant: Mutant) -> set[str]:
        """The tests that reach a function: a line in the middle of a statement bears no mark."""
        assert mutant.function is not None
        found: set[str] = set()
        lines = self.reach["lines"][mutant.module]
        for line in range(mutant.function[1], mutant.line + 1):
            found.update(lines.get(str(line), ()))
        return found

    # -- processes -----------------------------------------------------------------------------------

    def _fork(self, trial: Trial, more: int) -> bool:
        """Start a trial; return whether this process is it.

        It may use three times the processor's time of its tests, and `more` seconds.
        """
        self._wait(self.workers - 1)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            self.running[pid] = trial
            return False
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        limit = more + int(3 * sum(trial.tests.values()))
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        self.running, self.forked = {}, trial
        return True

    def _wait(self, most: int) -> None:
        """Wait until at most so many trials run, and write down how the others ended."""
        while len(self.running) > most:
            pid, status, used = os.wait3(0)
            if pid not in self.running:
                continue
            trial = self.running.pop(pid)
            mutant, by = trial.mutant, trial.noticed_by()
            code = os.waitstatus_to_exitcode(status)
            self.hits[mutant.module, mutant.function][by] += 1
            line = {
                "name": mutant.name,
                "module": mutant.module,
                "line": mutant.line,
                "outcome": OUTCOME.get(code, "endless" if code < 0 else "killed"),
                "seconds": round(used.ru_utime + used.ru_stime, 3),
                "by": by,
            }
            with (self.folder / "results.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


class Trial:
    """One change and the tests that it is tried with; the forked process says here which of them failed."""

    def __init__(self, mutant: Mutant, tests: dict[str, float]) -> None:
        self.mutant, self.tests = mutant, tests
        self._shared = mmap.mmap(-1, 4)  # anonymous memory, which a fork shares

    def say(self, test: str) -> None:
        self._shared[:] = (list(self.tests).index(test) + 1).to_bytes(4, "little")

    def noticed_by(self) -> str:
        """Return the test that failed, or nothing where none has."""
        place = int.from_bytes(self._shared[:], "little")
        return list(self.tests)[place - 1] if place else ""


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


def run(items: Sequence[pytest.Item]) -> NoReturn:
    """Run tests; the first that fails ends the process, and the process ends where none does."""
    for place, item in enumerate(items):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following(items, place))
    os._exit(SURVIVED)


def following(items: Sequence[pytest.Item], place: int) -> pytest.Item | None:
    return items[place + 1] if place + 1 < len(items) else None


class TooSlow(BaseException):
    """Ends a test; no `Exception`, so that hypothesis does not take it for a finding."""


@contextmanager
def ended_after(seconds: float) -> Iterator[list[TooSlow]]:
    """End what runs within after so many seconds of the processor; the list says afterwards whether it was."""
    raised: list[TooSlow] = []

    def end(*_: object) -> None:
        raised.append(TooSlow())
        raise raised[-1]

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield raised
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def file_of(test: str) -> str:
    """Return the name of the file that holds a test."""
    return test.partition("::")[0].rpartition("/")[2]


def merged(old: dict[str, Any], new: dict[str, Any], files: Sequence[str]) -> dict[str, Any]:
    """Return what the tests reach, where those of some files were measured anew, or are no more."""
    kept = {name: seconds for name, seconds in old["seconds"].items() if file_of(name) not in files}
    lines = {
        module: {line: [name for name in names if name in kept] for line, names in rows.items()}
        for module, rows in old["lines"].items()
    }
    for module, rows in new["lines"].items():
        for line, names in rows.items():
            lines[module].setdefault(line, []).extend(names)
    return {"seconds": kept | new["seconds"], "lines": lines}


def packed(reach: dict[str, Any]) -> dict[str, Any]:
    """Return what the tests reach with numbers in the place of their names: a test reaches thousands of lines."""
    number = {name: place for place, name in enumerate(reach["seconds"])}
    lines = {
        module: {line: [number[name] for name in names] for line, names in rows.items()}
        for module, rows in reach["lines"].items()
    }
    return {"seconds": reach["seconds"], "lines": lines}


def unpacked(plain: dict[str, Any], modules: Iterable[str]) -> dict[str, Any]:
    """Return what was packed, of these modules."""
    names = list(plain["seconds"])
    lines = {
        module: {
            line: [names[number] for number in numbers] for line, numbers in plain["lines"][module].items()
        }
        for module in modules
    }
    return {"seconds": plain["seconds"], "lines": lines}


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


def changed(mutant: Mutant) -> CodeType:
    """Return the code of the changed function."""
    assert mutant.function is not None
    code = find(compile(mutant.tree(), str(source_of(mutant.module)), "exec"), mutant.function)
    assert code is not None, mutant
    return code


def give(mutant: Mutant, code: CodeType, live: dict[tuple[str, str, int], FunctionType]) -> None:
    """Give the changed function its other code."""
    assert mutant.function is not None
    live[str(source_of(mutant.module)), *mutant.function].__code__ = code


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
