"""The demo with containers: every promise kept, and nothing left on the engine."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from ephemerd.testing.demo.containers import why_no_own_engine
from ephemerd.testing.engines.own import may_make_namespaces, why_not
from tests.conftest import ELSEWHERE

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.platform("linux"),
    pytest.mark.account("root"),
    pytest.mark.timeout(400),
]


def need_engine() -> None:
    """These tests start an engine of their own in this machine's network, and touch no other."""
    if reason := why_not():
        pytest.skip(f"{reason} (make system installs it as root on Debian)")
    if reason := why_no_own_engine():
        pytest.skip(f"{ELSEWHERE}{reason}")
    if not may_make_namespaces():
        pytest.skip(f"{ELSEWHERE}it needs a root that may make namespaces, as an engine does")


async def run(*arguments: str) -> tuple[int | None, bytes, str]:
    program = (sys.executable, "-m", "ephemerd", "demo", "--runtime", "docker", "--headless", "--json")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*program, *arguments, stdout=pipe, stderr=pipe)
    out, err = await process.communicate()
    return process.returncode, out, err.decode()


async def test_the_main_job_with_containers_keeps_every_promise():
    need_engine()
    code, out, err = await run(
        "--engine", "own", "--jobs", "6", "--burst", "3", "--weather", "bursty", "--seed", "1"
    )
    assert code == 0, err
    report = json.loads(out)
    assert (report["completed"], report["killed"], report["lost"], report["leaked"]) == (6, 0, 0, 0)
    assert report["vetoed_holding_job"] >= 1


async def test_an_engine_that_is_not_there_is_said():
    code, out, err = await run("--engine", "unix:///nowhere.sock")
    assert (code, out) == (5, b"")
    assert "no engine answers at unix:///nowhere.sock" in err


async def test_jobs_outlive_deaths_of_the_daemon_and_of_the_engine_under_it(tmp_path):
    """SIGTERM and SIGKILL of dockerd, with live restore, while jobs are at work and the daemon is killed besides."""
    need_engine()
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ephemerd.testing.chaos", "--folder", str(tmp_path / "chaos")),
        *("--runtime", "docker", "--jobs", "6", "--kills", "2", "--engine-kills", "2", "--burst", "3"),
        *("--weather", "bursty", "--commit-kills", "0", "--runners", "0"),
        stdout=pipe,
        stderr=pipe,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    report = json.loads(out)
    assert (report["completed"], report["killed"], report["lost"], report["leaked"]) == (6, 0, 0, 0)
    assert (report["restarts"], report["engine_restarts"], report["escaped"]) == (2, 2, 0)
    assert report["engine_restarts_at_work"] >= 1
