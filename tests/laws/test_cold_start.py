"""`--help` is quick: it loads neither server, store nor forge code. And a daemon loads what its configuration needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.laws.source import inside
from tests.unit.configured import folder, load

__all__ = ["folder"]

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


# Nothing of it is in the memory of a daemon whose configuration does not name what needs it.
BESIDE = (
    "aiodocker",
    "aiohttp",
    "cryptography",
    "ephemerd.adapters.runtimes.docker",
    "ephemerd.testing",
    "jwt",
)
BUILD = """
import asyncio
from pathlib import Path
from ephemerd import serving
from ephemerd.config.effective import load_settings
async def build():
    parts = serving.bootstrap.build(load_settings(Path("ephemerd.toml"), {"HOME": "."}))
    await parts.daemon.close()
asyncio.run(build())
"""
APP = ('token_file = "token"', 'app_id = 7\nprivate_key_file = "app.pem"')
CONTAINERS = ('runtime = "process"\nfollow', 'runtime = "docker"\nfollow')


def loaded(body: str, *arguments: str, heavy: tuple[str, ...] = HEAVY) -> tuple[int, list[str]]:
    """Exit code and heavy modules of a fresh interpreter that ran `body` with these arguments."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT.format(body=indent(body, "    ").lstrip()), json.dumps(arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    code, names = json.loads(done.stdout.splitlines()[-1])
    return code, [name for name in names if inside(name, *heavy)]


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


@pytest.mark.parametrize(
    ("change", "needed"),
    [
        ((), set()),
        (APP, {"cryptography", "jwt"}),
        (CONTAINERS, {"aiodocker", "aiohttp", "ephemerd.adapters.runtimes.docker"}),
    ],
)
def test_a_daemon_loads_what_its_configuration_needs(folder, change, needed):
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    Path("app.pem").write_bytes(pem)
    Path("app.pem").chmod(0o600)
    load(folder, *filter(None, [change]))
    code, names = loaded(BUILD, heavy=BESIDE)
    assert code == 0
    assert {package for package in BESIDE if any(inside(name, package) for name in names)} == needed
