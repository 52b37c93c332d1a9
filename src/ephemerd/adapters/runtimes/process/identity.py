"""Who a process is: its pid together with its start time; and the reference of an environment."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

RUNNER_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
FORM = "process:1"


@dataclass(frozen=True, slots=True, order=True)
class ProcessId:
    """A process that can be told from a later one with the same pid.

    start   Linux: clock ticks since the boot; macOS: µs since 1970. Only ever compared for equality and
            order with others of the same machine and boot.
    """

    pid: int
    start: int

    def __str__(self) -> str:
        return f"{self.pid}.{self.start}"


@dataclass(frozen=True, slots=True)
class Reference:
    """What an environment is found by after a restart; `str()` is the port's opaque text.

    parent, listener   None where it never came so far
    boot               the boot they belong to; after a reboot none of them can be alive
    """

    runner: str
    pool: str
    store: str
    boot: str
    parent: ProcessId | None
    listener: ProcessId | None

    def __str__(self) -> str:
        parts = (
            quote(self.pool, safe=""),
            quote(self.store, safe=""),
            self.runner,
            quote(self.boot, safe=""),
        )
        return ":".join((FORM, *parts, _text(self.parent), _text(self.listener)))


def parse_reference(text: str) -> Reference | None:
    """Return the reference that `str(reference)` wrote, or None where the text is no such thing."""
    parts = text.split(":")
    if len(parts) != 8 or ":".join(parts[:2]) != FORM or not RUNNER_NAME.fullmatch(parts[4]):
        return None
    try:
        parent, listener = _parse(parts[6]), _parse(parts[7])
    except ValueError:
        return None
    return Reference(parts[4], unquote(parts[2]), unquote(parts[3]), unquote(parts[5]), parent, listener)


def _text(identity: ProcessId | None) -> str:
    return "-" if identity is None else str(identity)


def _parse(text: str) -> ProcessId | None:
    if text == "-":
        return None
    pid, _, start = text.partition(".")
    return ProcessId(int(pid), int(start))


@dataclass(frozen=True, slots=True)
class Place:
    """Where the parts of one environment are.

    folder   the daemon's own; the jobs' user may pass through it and no more
    root     the application's root, the jobs' user's own
    state    tag, pid and exit files, which the jobs' user can neither write nor move
    log      the listener's output; it stays when the folder goes
    kept     the diagnostics that are kept beside it
    """

    folder: Path
    log: Path

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def state(self) -> Path:
        return self.folder / ".ephemerd"

    @property
    def perf(self) -> Path:
        return self.root / "_perf"

    @property
    def diag(self) -> Path:
        return self.root / "_diag"

    @property
    def kept(self) -> Path:
        return self.log.with_suffix(".diag")


def place_of(runner: str, work_dir: Path, logs_dir: Path) -> Place:
    """Return the place of a runner; raise `ValueError` for a name that could leave the folder."""
    if not RUNNER_NAME.fullmatch(runner):
        raise ValueError(f"{runner!r} is no runner name")
    # A runner's parent has a working directory of its own, so that no relative path would mean the same.
    return Place(work_dir.absolute() / runner, logs_dir.absolute() / f"{runner}.log")
