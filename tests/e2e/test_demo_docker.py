"""The demo with containers: every promise kept, and nothing left on the engine."""

from __future__ import annotations

import asyncio
import json
import signal
import sys

import pytest

from ephemerd.testing.demo.clients import until
from ephemerd.testing.demo.containers import why_no_own_engine
from ephemerd.testing.demo.options import DemoOptions
from ephemerd.testing.demo.settings import BURST_LABELS
from ephemerd.testing.demo.stage import Stage
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


async def test_jobs_at_work_outlive_two_restarts_of_the_engine():
    """SIGTERM and SIGKILL of dockerd, with live restore, under a daemon that drives it: everybody works on."""
    need_engine()
    stage = Stage(DemoOptions(runtime="docker", engine="own", weather="calm", act=False, time_scale=1.0))
    async with stage:
        assert stage.containers is not None
        engine = stage.containers.own
        assert engine is not None
        await stage.forge.admin("/jobs", labels=list(BURST_LABELS), count=4, duration_s=15)
        assert await stage.forge.wait("jobs_started", 120)
        for number in (signal.SIGTERM, signal.SIGKILL):
            await asyncio.to_thread(engine.stop_engine, number)
            await asyncio.to_thread(engine.start_engine)
        assert await stage.forge.wait("jobs_ended", 120)
        jobs = (await stage.forge.state())["jobs"]
        assert [job["conclusion"] for job in jobs] == ["success"] * 4
        assert await stage.forge.wait("no_runners", 120)
        assert await until(lambda: _cleared(stage), 120)
    stage.remove_folder()


async def _cleared(stage: Stage) -> bool:
    await stage.daemon.look()
    return not await asyncio.to_thread(stage.leaks)
