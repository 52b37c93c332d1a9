"""Writes the fake runner's folder, laid out as the unpacked runner application is.

``bin/Runner.Listener`` and ``bin/Runner.Worker`` are scripts that name the interpreter which wrote them; their
code lies compiled beside them, so that a start costs little. The folder can be copied, linked or moved, and used
as a read-only template for many runners: a runner's root is the parent of the ``bin`` it was started from.
"""

from __future__ import annotations

import os
import py_compile
import shlex
import shutil
import sys
from importlib import resources
from pathlib import Path

PACKAGE = "fake_runner_program"
SHEBANG_LIMIT = 120
"""Older kernels cut the first line of a script after 127 bytes."""
FLAGS = "-IS"
"""Isolated, without site-packages: nothing from outside is read at the start."""

_BODY = """\
import os, sys
sys.path.insert(0, os.path.dirname(os.path.realpath(sys.argv[0])))
from {package}.{module} import main
main()
"""


def write_folder(folder: Path, interpreter: str | None = None, *, version: str = "") -> Path:
    """Write the fake runner into ``folder`` (made if missing, files of an earlier one replaced); return it.

    ``interpreter`` defaults to the running one, with links resolved so that no virtual environment is needed;
    ``version`` is what it says it is, if not its usual one.
    """
    python = interpreter or os.path.realpath(sys.executable)
    program = folder / "bin" / PACKAGE
    if program.exists():
        shutil.rmtree(program)
    program.mkdir(parents=True)
    for item in resources.files("ephemerd.testing.fake_runner.program").iterdir():
        if item.name.endswith(".py"):
            _install(program / item.name, item.read_text("utf-8"))
    if version:
        _install(program / "version.py", f"VERSION = {version!r}\n")
    for name, module in (("Runner.Listener", "listener"), ("Runner.Worker", "worker")):
        script = folder / "bin" / name
        script.unlink(missing_ok=True)
        body = _BODY.format(package=PACKAGE, module=module)
        script.write_text(first_lines(python) + body, encoding="utf-8")
        script.chmod(0o755)
    node = folder / "externals" / "node20" / "bin"
    node.mkdir(parents=True, exist_ok=True)
    (node / "README").write_text("The fake runner has no need of node.\n", encoding="utf-8")
    return folder


def _install(target: Path, source: str) -> None:
    """Write a module and its compiled form, which stays valid when the folder is copied with new file times."""
    target.write_text(source, encoding="utf-8")
    py_compile.compile(
        str(target), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )


def first_lines(python: str) -> str:
    """The beginning of a script that starts ``python``.

    A plain ``#!`` line makes the kernel show the script's name as the process name from the first instant on.
    Where the path cannot stand in such a line (blanks, too long) a shell starts the interpreter, and the
    program names itself a moment later.
    """
    line = f"#!{python} {FLAGS}\n"
    if len(line.encode()) <= SHEBANG_LIMIT and not any(sign.isspace() for sign in python):
        return line
    return f"#!/bin/sh\n'''exec' {shlex.quote(python)} {FLAGS} \"$0\" \"$@\"\n' '''\n"
