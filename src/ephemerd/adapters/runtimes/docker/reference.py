"""The reference of a container: whose it is, on which engine, under which full id."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

RUNNER_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
FORM = "docker:1"


@dataclass(frozen=True, slots=True)
class Reference:
    """What a container is found by after a restart; `str()` is the port's opaque text.

    engine      what the engine calls itself, so that its absence on another engine proves nothing
    container   the full id, which is never given twice
    """

    runner: str
    pool: str
    store: str
    engine: str
    container: str

    def __str__(self) -> str:
        parts = (
            quote(self.pool, safe=""),
            quote(self.store, safe=""),
            self.runner,
            quote(self.engine, safe=""),
        )
        return ":".join((FORM, *parts, self.container))


def parse_reference(text: str) -> Reference | None:
    """Return the reference that `str(reference)` wrote, or None where the text is no such thing."""
    parts = text.split(":")
    if len(parts) != 7 or ":".join(parts[:2]) != FORM:
        return None
    if not RUNNER_NAME.fullmatch(parts[4]) or not CONTAINER_ID.fullmatch(parts[6]):
        return None
    return Reference(parts[4], unquote(parts[2]), unquote(parts[3]), unquote(parts[5]), parts[6])


@dataclass(frozen=True, slots=True)
class Place:
    """Where this machine keeps what it knows of a container's files.

    log      the listener's output; it stays when the container goes
    kept     the diagnostics that are kept beside it
    """

    folder: Path
    log: Path

    @property
    def perf(self) -> Path:
        return self.folder / "perf"

    @property
    def diag(self) -> Path:
        return self.folder / "diag"

    @property
    def kept(self) -> Path:
        return self.log.with_suffix(".diag")


def place_of(runner: str, files_dir: Path, logs_dir: Path) -> Place:
    """Return the place of a runner; raise `ValueError` for a name that could leave the folder."""
    if not RUNNER_NAME.fullmatch(runner):
        raise ValueError(f"{runner!r} is no runner name")
    return Place(files_dir.absolute() / runner, logs_dir.absolute() / f"{runner}.log")


def bridge_prefix(store: str) -> str:
    """Return what the names of all bridges of a store begin with: our packet filter knows them by it."""
    return f"eph{hashlib.sha256(store.encode()).hexdigest()[:4]}"


def bridge_name(store: str, runner: str) -> str:
    """Return the name of a runner's bridge on the engine's machine, 15 characters at most."""
    return bridge_prefix(store) + hashlib.sha256(runner.encode()).hexdigest()[:8]
