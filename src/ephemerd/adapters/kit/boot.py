"""Which boot of the machine this is: pids, start times and monotonic readings mean nothing across two."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
SYSCTL = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]


def boot_id() -> str:
    """Return what names this boot; raise `OSError` where the system does not say."""
    if sys.platform == "darwin":
        return boot_session()
    return BOOT_ID.read_text(encoding="ascii").strip()


def boot_session(command: list[str] = SYSCTL) -> str:
    """Ask macOS for the name of this boot."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except subprocess.SubprocessError as error:
        raise OSError(f"the boot's name cannot be read: {error}") from None
    name = answer.stdout.strip()
    if not name:
        raise OSError("the boot's name cannot be read: no such value")
    return name
