"""What could not run is named at the end, and in CI fails the session unless meant for another machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"
MARKERS = "[pytest]\nmarkers =\n  platform: x\n  account: x\n"

MISSING = "import pytest\ndef test_a(): pytest.skip('no docker here')\n"
MISSING_MODULE = "import pytest\npytest.importorskip('no_such_module')\n"
NOT_MISSING = """
import pytest
@pytest.mark.platform('plan9')
def test_elsewhere(): pass
@pytest.mark.account('nobody')
def test_other_account(): pass
@pytest.mark.xfail(reason='known')
def test_expected_failure(): assert 0
def test_fine(): pass
"""


def session(folder: Path, tests: list[str], ci: str | None) -> subprocess.CompletedProcess[str]:
    """A pytest session of its own over these test files, with our conftest."""
    shutil.copy(CONFTEST, folder)
    (folder / "pytest.ini").write_text(MARKERS, encoding="utf-8")
    for number, code in enumerate(tests):
        (folder / f"test_{number}.py").write_text(code, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in {"CI", "PYTEST_ADDOPTS"}}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    if ci is not None:
        environment["CI"] = ci
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("ci", "exit_code"), [("true", 1), ("false", 0), (None, 0)])
def test_what_is_missing_is_said_and_fails_in_ci(tmp_path, ci, exit_code):
    done = session(tmp_path, [MISSING, MISSING_MODULE, NOT_MISSING], ci)
    assert "not run: test_0.py::test_a: no docker here" in done.stdout
    assert "not run: test_1.py: could not import 'no_such_module'" in done.stdout
    assert ("2 could not run here, which in CI is a failure." in done.stdout) == (exit_code == 1)
    assert done.returncode == exit_code


def test_what_is_meant_for_another_machine_is_said_and_never_fails(tmp_path):
    done = session(tmp_path, [NOT_MISSING], "true")
    assert "not run: test_0.py::test_elsewhere: meant for another machine: it needs plan9" in done.stdout
    assert "not run: test_0.py::test_other_account: meant for another machine" in done.stdout
    assert "test_expected_failure" not in done.stdout
    assert done.returncode == 0
