"""`idle`: what a daemon costs that has nothing to do, beside a bare interpreter with the same imports."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from ephemerd.testing.bench.figures import Figure, figure
from ephemerd.testing.demo.options import DemoOptions
from ephemerd.testing.demo.stage import Stage

SECONDS = 60.0
SETTLE = 10.0
"""What comes after a start (first listings) is over by then."""
MOST_MB, MOST_CPU, MOST_WAKES = 90.0, 0.3, 2.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Resident MB, percent of a core, and how often a second it woke."""

    mb: float
    cpu: float
    wakes: float


def idle() -> Sequence[Figure]:
    """A minute of the daemon beside the look-alike, as `serve` runs it, with the baseline beside it; once."""
    daemon, bare, calls = asyncio.run(_minute())
    return [
        figure("idle", "MB", [daemon.mb], baseline=bare.mb, target=MOST_MB),
        figure("idle.cpu", "% of a core", [daemon.cpu], baseline=bare.cpu or None, target=MOST_CPU),
        figure("idle.wakes", "1/s", [daemon.wakes], target=MOST_WAKES),
        figure("idle.calls", "forge calls/h", [calls]),
    ]


async def _minute() -> tuple[Cost, Cost, float]:
    options = DemoOptions(weather="calm", headless=True, time_scale=1.0)
    stage = Stage(options)
    try:
        async with stage:
            script = "import ephemerd.serving, signal; signal.pause()"
            bare = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
            try:
                await asyncio.sleep(SETTLE)
                before = await _calls(stage)
                costs = await asyncio.gather(_cost(stage.daemon_pid), _cost(bare.pid))
                calls = (await _calls(stage) - before) * 3600 / SECONDS
            finally:
                bare.kill()
                await bare.wait()
        return costs[0], costs[1], calls
    finally:
        stage.remove_folder()


async def _cost(pid: int) -> Cost:
    process = psutil.Process(pid)
    began = process.cpu_times(), _woken(process)
    await asyncio.sleep(SECONDS)
    ended = process.cpu_times(), _woken(process)
    used = (ended[0].user + ended[0].system) - (began[0].user + began[0].system)
    return Cost(process.memory_info().rss / 1e6, 100 * used / SECONDS, (ended[1] - began[1]) / SECONDS)


def _woken(process: psutil.Process) -> int:
    """Count how often any of its threads slept and was woken; where threads are not shown, the first one."""
    found = 0
    for file in Path(f"/proc/{process.pid}/task").glob("*/status"):
        with contextlib.suppress(OSError):
            lines = file.read_text("ascii", "replace").splitlines()
            found += next(
                int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches")
            )
    return found or process.num_ctx_switches().voluntary


async def _calls(stage: Stage) -> float:
    """Return how many requests the daemon says it has sent to the forge."""
    text = (await stage.daemon.http.get("/metrics")).text
    lines = [line for line in text.splitlines() if line.startswith("ephemerd_forge_requests_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)
