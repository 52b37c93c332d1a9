"""The demo as a user runs it: two programs, real processes, a report; and nothing left, however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

Demo = Callable[..., Any]


@pytest.fixture
async def demo(tmp_path: Path) -> AsyncIterator[Demo]:
    """Start `ephemerd demo` with its folder below the test's; whatever the test leaves is ended."""
    started: list[asyncio.subprocess.Process] = []

    async def begin(*arguments: str, **streams: Any) -> asyncio.subprocess.Process:
        program = (sys.executable, "-m", "ephemerd", "demo", "--folder", str(tmp_path / "demo"))
        process = await asyncio.create_subprocess_exec(
            *program, *arguments, env={**os.environ, "TERM": "xterm"}, **streams
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.returncode is None:
            process.terminate()
            await process.wait()


def left(folder: Path) -> list[str]:
    """Processes that bear the demo's folder in their command line or environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = [*process.cmdline(), *process.environ().values()]
            if process.pid != os.getpid() and any(str(folder) in word for word in words):
                found.append(f"{process.pid} {process.name()}")
    return found


async def test_the_main_job_end_to_end_keeps_every_promise(demo, tmp_path):
    pipe = asyncio.subprocess.PIPE
    options = ("--headless", "--json", "--jobs", "8", "--burst", "4", "--seed", "1", "--weather", "bursty")
    process = await demo(*options, stdout=pipe, stderr=pipe)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    report = json.loads(out)
    expected = {
        "jobs": 8,
        "completed": 8,
        "killed": 0,
        "disturbed": 0,
        "lost": 0,
        "leaked": 0,
        "escaped": 0,
        "wasted": 0,
        "broken_promises": [],
    }
    assert {key: report[key] for key in expected} == expected, err.decode()
    assert report["vetoed_holding_job"] >= 1
    assert report["reaped"] >= 1
    assert re.search("VETO: the verdict is busy, by (probe|log)", err.decode())
    assert left(tmp_path / "demo") == []
    truth = (tmp_path / "demo" / "truth.jsonl").read_text().splitlines()
    assert json.loads(truth[0])["kind"] == "forge_started"
    config = (tmp_path / "demo" / "config.toml").read_text()
    token = (tmp_path / "demo" / "token").read_text().strip()
    assert token not in config + err.decode() + (tmp_path / "demo" / "daemon.log").read_text()


@pytest.mark.timeout(600)
async def test_the_roughest_weather_breaks_no_promise(demo, tmp_path):
    """`hostile` has all that `lossy` and `outage` have, and a forge that is wrong."""
    pipe = asyncio.subprocess.PIPE
    options = ("--headless", "--json", "--jobs", "8", "--burst", "4", "--seed", "3", "--weather", "hostile")
    process = await demo(*options, stdout=pipe, stderr=pipe)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    report = json.loads(out)
    promised = {"killed": 0, "lost": 0, "leaked": 0, "escaped": 0, "broken_promises": []}
    assert {key: report[key] for key in promised} == promised, err.decode()
    assert report["completed"] + report["broken_by_weather"] == report["jobs"] == 8
    assert report["outages"] >= 1
    assert report["time_scale"] == 25
    assert "divided by 25" in err.decode()
    assert left(tmp_path / "demo") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_everything_that_was_started(demo, tmp_path, number):
    process = await demo("--jobs", "4", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(120):
        while b"the daemon made a runner" not in await process.stdout.readline():
            assert process.returncode is None
    process.send_signal(number)
    _, err = await process.communicate()
    assert process.returncode == 128 + number
    assert b"interrupted" in err
    assert left(tmp_path / "demo") == []


async def test_on_a_terminal_it_goes_on_until_the_watcher_leaves(demo, tmp_path):
    master, slave = pty.openpty()
    process = await demo(
        *("--jobs", "2", "--weather", "calm", "--port", "0"), stdout=slave, stderr=slave, stdin=slave
    )
    os.close(slave)
    seen = await asyncio.wait_for(asyncio.to_thread(read_until, master, b"until you press Ctrl-C"), 240)
    assert b"every promise held" in seen
    socket = tmp_path / "demo" / "api.sock"
    asked = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ephemerd", "decisions", "--json", "--socket", str(socket)),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asked.communicate()
    assert asked.returncode == 0
    assert b"vetoed" in out
    process.send_signal(signal.SIGINT)
    await asyncio.wait_for(asyncio.to_thread(read_until, master, b"\0never"), 60)
    assert await process.wait() == 0
    os.close(master)
    assert left(tmp_path / "demo") == []


def read_until(terminal: int, words: bytes) -> bytes:
    """Read a terminal until the words come or it closes."""
    seen = b""
    while words not in seen:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        seen += piece
    return seen


async def test_what_cannot_be_played_is_said_in_two_lines(demo, tmp_path):
    (tmp_path / "demo").write_text("a file where the folder should be")
    pipe = asyncio.subprocess.PIPE
    process = await demo("--headless", stdout=pipe, stderr=pipe)
    _, err = await process.communicate()
    assert process.returncode == 5
    assert [line.strip().partition(":")[0] for line in err.decode().splitlines()] == ["error", "fix"]
