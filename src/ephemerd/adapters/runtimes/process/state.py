"""What is written beside an environment: the tag, and what its parent tells.

The folder is the daemon's own. A tag or a file that anybody else owns is no tag of ours.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ephemerd.adapters.runtimes.process.identity import Place, ProcessId
from ephemerd.adapters.runtimes.process.processes import Machine

LIMIT = 64 * 1024
VERSION = 1


@dataclass(frozen=True, slots=True)
class Tag:
    """Whose an environment is. `made` is the wall clock in ms, for people."""

    store: str
    runner: str
    pool: str
    made: int


@dataclass(frozen=True, slots=True)
class Started:
    """What the parent wrote before the listener could run."""

    parent: ProcessId | None
    listener: ProcessId | None
    cgroup: Path | None
    boot: str


def read_own(path: Path) -> dict[str, Any] | None:
    """Return a state file's content; None where it is missing, not ours, or no object."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
            return None
        content = json.loads(os.read(descriptor, LIMIT))
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    return content if isinstance(content, dict) else None


def write_tag(place: Place, tag: Tag) -> None:
    """Write the tag, whole or not at all."""
    content = {
        "version": VERSION,
        "store": tag.store,
        "runner": tag.runner,
        "pool": tag.pool,
        "made": tag.made,
    }
    temporary = place.state / ".runner.json.new"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(place.state / "runner.json")


def read_tag(place: Place, runner: str | None = None) -> Tag | None:
    """Return the tag of a folder; None where it bears none of ours, or one of a newer kind.

    runner   whose it must be; the folder's own name where it is not said
    """
    runner = place.folder.name if runner is None else runner
    content = read_own(place.state / "runner.json")
    if content is None or content.get("version") != VERSION or content.get("runner") != runner:
        return None
    store, pool, made = content.get("store"), content.get("pool"), content.get("made")
    if not isinstance(store, str) or not isinstance(pool, str) or not isinstance(made, int):
        return None
    return Tag(store, runner, pool, made)


def resolve(machine: Machine, record: Any) -> ProcessId | None:
    """Return the identity that a parent recorded.

    Where the parent could not read the start time it noted between which times the process was made; what
    bears the pid now is taken for it only if it began between them.
    """
    if not isinstance(record, dict) or not isinstance(record.get("pid"), int):
        return None
    pid, start = record["pid"], record.get("start")
    if isinstance(start, int):
        return ProcessId(pid, start)
    after, before = record.get("after"), record.get("before")
    if not isinstance(after, int) or not isinstance(before, int):
        return None
    found = machine.find(pid)
    if found is not None and after - 1_000_000 <= found.start <= before + 1_000_000:
        return found.id
    return ProcessId(pid, 0)  # gone: an identity that nothing has


def read_parent(machine: Machine, place: Place) -> ProcessId | None:
    """Return the parent as it named itself before it did anything else."""
    content = read_own(place.state / "parent")
    return None if content is None else resolve(machine, content)


def read_started(machine: Machine, place: Place) -> Started | None:
    """Return what was started; None where no listener ever was."""
    content = read_own(place.state / "pid")
    if content is None:
        return None
    cgroup, boot = content.get("cgroup"), content.get("boot")
    return Started(
        resolve(machine, content.get("parent")),
        resolve(machine, content.get("listener")),
        Path(cgroup) if isinstance(cgroup, str) else None,
        boot if isinstance(boot, str) else "",
    )


def read_exit(place: Place) -> int | None:
    """Return the listener's exit code; None where it did not exit or nobody was there to see it."""
    content = read_own(place.state / "exit")
    code = content.get("code") if content is not None else None
    return code if isinstance(code, int) else None
