"""Which boot of the machine this is: pids, start times and monotonic readings mean nothing across two."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
SYSCTL = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
SYSCTL_TIME = ["/usr/sbin/sysctl", "-n", "kern.boottime"]


def boot_id() -> str:
    """Return what names this boot; raise `OSError` where the system does not say."""
    if sys.platform == "darwin":
        return boot_session()
    return BOOT_ID.read_text(encoding="ascii").strip()


def boot_session(command: list[str] = SYSCTL, time: list[str] = SYSCTL_TIME) -> str:
    """Ask macOS for the name of this boot: its session's, which nothing changes until the next one.

    A system without it is named by the second in which it was booted. That one is moved along when the wall clock is
    set, so that it comes second.
    """
    try:
        return _asked(command)
    except OSError:
        told = _asked(time)
    seconds = re.search(r"\bsec = (\d+)", told)
    if seconds is None:
        raise OSError(f"the boot's name cannot be read: {told[:80]!r} tells no second")
    return f"booted-{seconds[1]}"


def _asked(command: list[str]) -> str:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except subprocess.SubprocessError as error:
        raise OSError(f"the boot's name cannot be read: {error}") from None
    name = answer.stdout.strip()
    if not name:
        raise OSError("the boot's name cannot be read: no such value")
    return name
