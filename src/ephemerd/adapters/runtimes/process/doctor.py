"""Looks at what this machine offers to the process runtime; what is missing has a stand-in, and is said."""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

from ephemerd.adapters.runtimes.process import cgroup
from ephemerd.ports.views import FindingView

WHERE = "process runtime"
ENVIRONMENT = 5
PROC = Path("/proc")
FILES = ("stat", "cmdline", "environ", "status")
"""What is read of each process."""


def diagnose(platform: str = sys.platform) -> list[FindingView]:
    """Look at processes, exits and control groups. An empty control group is made and removed, nothing else."""
    if platform.startswith("linux"):
        return [_proc(), _pidfd(), _cgroup()]
    if hasattr(select, "kqueue"):
        return [_ok("exits are told by kqueue")]
    return [_problem(f"it does not know {platform}", "use Linux or macOS")]


def _proc() -> FindingView:
    own = PROC / "self"
    try:
        for name in FILES:
            (own / name).read_bytes()
    except OSError as error:
        what = f"{error.filename} cannot be read: {error.strerror}"
        return _problem(what, "mount /proc; without it no runner can be looked into, and none is ended")
    return _ok("processes can be looked into (/proc)")


def _pidfd() -> FindingView:
    try:
        descriptor = os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        return _stand_in()
    try:
        signal.pidfd_send_signal(descriptor, 0)
    except (AttributeError, OSError):
        return _stand_in()
    finally:
        os.close(descriptor)
    return _ok("exits and signals go by pidfd")


def _stand_in() -> FindingView:
    what = "the kernel or a sandbox has no pidfd, so that exits are looked for again and again"
    return FindingView("warning", 0, WHERE, what, "use Linux 5.4 or newer")


def _cgroup() -> FindingView:
    group = cgroup.make(f"doctor-{os.getpid()}")
    if group is None:
        what = "no control group can be made here; a job's processes are then known by session and descent"
        todo = "nothing, if the daemon runs by the unit of 'ephemerd install' (Delegate=yes)"
        return FindingView("warning", 0, WHERE, what, todo)
    cgroup.remove(group)
    return _ok(f"each runner can have a control group of its own (below {group.parent})")


def _ok(what: str) -> FindingView:
    return FindingView("ok", 0, WHERE, what, "")


def _problem(what: str, todo: str) -> FindingView:
    return FindingView("problem", ENVIRONMENT, WHERE, what, todo)
