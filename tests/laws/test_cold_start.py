"""`--help` is quick: it loads neither server, store nor forge code."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.laws.source import inside

# Pydantic is not among them: the parser's library checks values with it.
HEAVY = (
    "aiodocker",
    "asyncio",
    "ephemerd.adapters",
    "ephemerd.app",
    "ephemerd.testing",
    "ephemerd.web",
    "httpx2",
    "prometheus_client",
    "rich",
    "sqlite3",
    "starlette",
    "structlog",
    "uvicorn",
)
# Runs in a fresh interpreter: does what the console script does, then tells what was loaded.
REPORT = """
import json, sys
sys.argv = ["ephemerd", *json.loads(sys.argv[1])]
code = 0
try:
    {body}
except SystemExit as exit:
    code = exit.code or 0
print("\\n" + json.dumps([code, sorted(sys.modules)]))
"""


def loaded(body: str, *arguments: str) -> tuple[int, list[str]]:
    """Exit code and heavy modules of a fresh interpreter that ran `body` with these arguments."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT.format(body=body), json.dumps(arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    code, names = json.loads(done.stdout.splitlines()[-1])
    return code, [name for name in names if inside(name, *HEAVY)]


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["status", "--help"], ["serve", "--help"]])
def test_help_loads_nothing_heavy(arguments):
    assert loaded("from ephemerd.cli.main import main; main()", *arguments) == (0, [])


@pytest.mark.parametrize("command", ["status", "runners", "explain", "kill", "cordon", "logs"])
def test_a_client_command_loads_nothing_heavy(command):
    arguments = [command, *(["x"] if command in {"explain", "kill", "logs"} else [])]
    arguments += ["--reason", "x"] if command == "kill" else []
    code, heavy = loaded("from ephemerd.cli.main import main; main()", *arguments, "--socket", "/nowhere")
    assert (code, heavy) == (6, [])


def test_a_heavy_import_is_seen():
    code, heavy = loaded("import sqlite3, ephemerd.web; sys.exit(3)")
    assert code == 3
    assert {"sqlite3", "ephemerd.web"} <= set(heavy)
