"""The demo with containers: every promise kept, and nothing left on the engine."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from ephemerd.testing.engines.own import may_make_namespaces, why_not
from tests.conftest import ELSEWHERE

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.platform("linux"),
    pytest.mark.account("root"),
    pytest.mark.timeout(400),
]


async def run(*arguments: str) -> tuple[int | None, bytes, str]:
    program = (sys.executable, "-m", "ephemerd", "demo", "--runtime", "docker", "--headless", "--json")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*program, *arguments, stdout=pipe, stderr=pipe)
    out, err = await process.communicate()
    return process.returncode, out, err.decode()


async def test_the_main_job_with_containers_keeps_every_promise():
    if reason := why_not():
        pytest.skip(f"{reason} (make system installs it as root on Debian)")
    if not may_make_namespaces():
        pytest.skip(f"{ELSEWHERE}it needs a root that may make namespaces, as an engine does")
    code, out, err = await run("--jobs", "6", "--burst", "3", "--weather", "bursty", "--seed", "1")
    assert code == 0, err
    report = json.loads(out)
    assert (report["completed"], report["killed"], report["lost"], report["leaked"]) == (6, 0, 0, 0)
    assert report["vetoed_holding_job"] >= 1


async def test_an_engine_that_is_not_there_is_said():
    code, out, err = await run("--engine", "unix:///nowhere.sock")
    assert (code, out) == (5, b"")
    assert "no engine answers at unix:///nowhere.sock" in err
