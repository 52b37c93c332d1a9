"""Holds for every test: what could not run is said plainly, and in CI a missing environment is a failure.

A skip means that something the test needs is missing here. In CI (`CI=true`) that fails the session, because
a test that never runs guards nothing. Two kinds of skip are about what the machine *is*, and never fail: the
markers `platform("linux", ...)` and `account("root" | "user")`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

# A slow or loaded machine is no reason to fail. In CI hypothesis starts from a profile of its own that draws
# the same examples in every run.
settings.register_profile("ephemerd", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ephemerd")

ROOT = Path(__file__).parents[1]
ENGINE = "docker_engine"
"""The fixture of the one engine, which is started once."""
ELSEWHERE = "meant for another machine: "
MEASURED = ("tests/unit/core/", "tests/unit/domain/")
LONGEST = tuple(
    f"tests/{name}.py"
    for name in (
        "e2e/test_half_done",
        "e2e/test_demo_docker",
        "e2e/test_dashboard",
        "e2e/test_bad_disk",
        "e2e/test_demo",
        "e2e/test_chaos",
        "e2e/test_secrets",
        "e2e/test_operation",
        "e2e/test_application",
        "e2e/test_bad_resources",
        "e2e/test_process_runtime",
        "e2e/test_podman_contract",
        "e2e/test_docker_cgroup2",
        "e2e/test_lost_deliveries",
        "e2e/test_api",
        "e2e/test_bad_forge",
        "e2e/test_field_problems",
        "unit/simulate/test_fifty_thousand",
        "unit/simulate/test_foils_seeds",
        "unit/core/test_machine_hostile",
        "unit/core/test_reconfigure_hostile",
        "unit/core/test_codec",
        "unit/core/test_story",
        "unit/simulate/test_demand",
        "unit/adapters/stores/sqlite/test_machine",
    )
)
"""Files whose tests take longest together, the longest first. None of them should be left for the end."""


@dataclass(eq=False)
class NotRun:
    """Collects what was skipped, and says so at the end."""

    skipped: list[tuple[str, str]] = field(default_factory=list)

    def missing(self) -> list[tuple[str, str]]:
        return [(test, reason) for test, reason in self.skipped if not reason.startswith(ELSEWHERE)]

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            where = report.longrepr
            text = str(where[2]) if isinstance(where, tuple) else str(where)
            self.skipped.append((report.nodeid, text.removeprefix("Skipped: ")))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.note(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if in_ci() and self.missing() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.skipped:
            return
        terminalreporter.section("not run")
        for test, reason in self.skipped:
            terminalreporter.write_line(f"not run: {test}: {reason}")
        if in_ci() and self.missing():
            terminalreporter.write_line(
                f"{len(self.missing())} could not run here, which in CI is a failure.", red=True
            )


def in_ci() -> bool:
    """Whether `CI` is set to something that means yes."""
    return os.environ.get("CI", "").lower() not in {"", "0", "false", "no"}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where tests run side by side, those of a file stay together, and so do all that share one engine."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    def together(nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return ENGINE if shares_the_engine(file) else file

    made = LoadScopeScheduling(config, log)
    made._split_scope = together
    return made


@cache
def shares_the_engine(file: str) -> bool:
    """Whether the tests of a file, named from the project's root, start containers on the one engine."""
    return ENGINE in (ROOT / file).read_text(encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(NotRun(), "ephemerd-not-run")
    config.addinivalue_line(
        "markers", "measured: a test of core or domain that draws no examples (set by itself)"
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what `make coverage` runs. What draws its examples runs elsewhere: to be traced makes it three times as
    slow, and a line that a draw alone reaches is not reached by a test."""
    if item.nodeid.startswith(MEASURED) and not is_hypothesis_test(getattr(item, "obj", None)):
        item.add_marker("measured")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Side by side, the files that take long are begun first, so that no worker is left alone with one."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: begun(item.nodeid.partition("::")[0]))


@cache
def begun(file: str) -> int:
    """At which place a file is begun: those that share the engine, which take longest, then the long ones."""
    if shares_the_engine(file):
        return -1
    return LONGEST.index(file) if file in LONGEST else len(LONGEST)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("platform"):
        if sys.platform not in marker.args:
            pytest.skip(f"{ELSEWHERE}it needs {' or '.join(marker.args)}, this is {sys.platform}")
    account = "root" if os.geteuid() == 0 else "user"
    for marker in item.iter_markers("account"):
        if account not in marker.args:
            pytest.skip(f"{ELSEWHERE}it runs as {marker.args[0]}, this is {account}")
