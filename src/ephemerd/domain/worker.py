"""Does a process identifier name the job worker of the runner application?

The worker exists only while a job executes, the listener for the runner's whole life (runner.md,
section 1). `tests/data/worker_names.json` states the rule row by row.
"""

from __future__ import annotations

WORKER = "runner.worker"
LISTENER = "runner.listener"
WORKER_LIBRARY = "runner.worker.dll"


def base_name(identifier: str) -> str:
    """Return what follows the last slash or backslash, trimmed and lower-cased."""
    return identifier.strip().replace("\\", "/").rpartition("/")[2].lower()


def is_worker(identifier: str) -> bool:
    """Say whether argv[0], a kernel name or an image name is the worker's; never for a command line."""
    return base_name(identifier).removesuffix(".exe") == WORKER


def is_listener(identifier: str) -> bool:
    """Say whether an identifier is the listener's."""
    return base_name(identifier).removesuffix(".exe") == LISTENER


def is_hosted_worker(program: str, arguments: tuple[str, ...]) -> bool:
    """Say whether a `dotnet` process runs the worker's library (a self-built runner)."""
    return base_name(program).removesuffix(".exe") == "dotnet" and any(
        base_name(argument) == WORKER_LIBRARY for argument in arguments
    )
