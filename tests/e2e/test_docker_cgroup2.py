"""Looks at containers by control groups of version 2 alone, also on a machine that mounts version 1.

Another pytest plays a few of the tests with a real engine in a mount namespace of its own, where the one hierarchy of
version 2 lies over whatever the machine has. Limits are not looked at: their controllers may be bound to version 1.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ephemerd.testing.engines.own import may_make_namespaces, why_not
from tests.conftest import ELSEWHERE
from tests.e2e.engine import NEEDED

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.platform("linux"),
    pytest.mark.account("root"),
    pytest.mark.timeout(300),
]

PLACE = "/sys/fs/cgroup"
SCRIPT = f"""
umount --lazy --recursive {PLACE} && mount --types cgroup2 none {PLACE} && test -e {PLACE}/cgroup.procs || exit 77
exec "$@"
"""
PLAYED = (
    "test_a_dead_listener_with_a_live_worker_is_busy",
    "test_both_means_agree_on_a_file_that_is_followed_by_both",
)


def test_containers_are_looked_into_by_version_2_alone():
    if reason := why_not(NEEDED):
        pytest.skip(f"{reason} (make system installs it as root on Debian)")
    if not may_make_namespaces():
        pytest.skip(f"{ELSEWHERE}it needs a root that may make namespaces, as an engine does")
    folder = Path(__file__).resolve().parents[2]
    tests = [f"tests/e2e/test_docker_runtime.py::{name}" for name in PLAYED]
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", SCRIPT, "sh", *pytest_]
    played = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280)
    if played.returncode == 77:
        pytest.skip(f"{ELSEWHERE}the kernel mounts no control groups of version 2 here: {played.stderr}")
    assert played.returncode == 0, played.stdout + played.stderr
    assert f"{len(PLAYED)} passed" in played.stdout
