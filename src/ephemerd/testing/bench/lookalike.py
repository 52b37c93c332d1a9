"""`python -m ephemerd.testing.bench.lookalike OPTIONS`: the GitHub look-alike as a program, without its delays.

In every weather a forge takes its time; here only what the program under test does is to be measured. OPTIONS is a
JSON object: `token` (a file), and to fill it `repositories`, `runs` of each, `jobs` of each run, `labels`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ephemerd.testing.bench.programs import LABELS, started
from ephemerd.testing.demo.settings import write_secret
from ephemerd.testing.forge_sim.main import ForgeSim, Options, serve_async
from ephemerd.testing.forge_sim.world import JobSpec
from ephemerd.testing.weather import Uniform, Weather

TOKEN = "ghp_" + "0" * 36
"""Known to both sides of a measurement alone."""
LIMIT = 1_000_000
"""Requests an hour that it allows."""
FAST = 1_000.0
"""Divides its durations above 10 s; so the minute in which it counts secondary limits is 60 ms long."""
OWNER = "acme"
NONE = Uniform()
STILL = Weather(
    name="still",
    burst=(1, 1),
    gap=NONE,
    job=NONE,
    webhook_delay=NONE,
    rest_delay=NONE,
    assign=NONE,
    acknowledge=NONE,
    acquire=NONE,
    spawn=NONE,
    report=NONE,
    boot=NONE,
    wind_down=NONE,
    stop=NONE,
    slots=1,
    refuses_from="assignment",
)


def fill(sim: ForgeSim, repositories: int, runs: int, jobs: int) -> None:
    """Queue so many jobs in so many runs of so many repositories, with the one that is there already."""
    spec = JobSpec(labels=LABELS, held=True, prompt=True)
    for number in range(repositories):
        repository = sim.world.add_repository(f"{OWNER}/app-{number:03}" if number else f"{OWNER}/app")
        for _ in range(runs):
            sim.world.queue_run(repository, [spec] * jobs)


@contextmanager
def looking_alike(folder: Path, **fields: int) -> Iterator[str]:
    """Run it as a program; give its URL. Its token's file is `token` in the folder."""
    folder.mkdir()
    write_secret(folder / "token", TOKEN)
    options = json.dumps({"token": str(folder / "token"), **fields})
    arguments = ("ephemerd.testing.bench.lookalike", options)
    with started(folder, 0, *arguments, output=subprocess.PIPE) as program:
        assert program.process.stdout is not None
        line = program.process.stdout.readline()
        if not line:
            raise RuntimeError((folder / "log").read_text("utf-8", "replace"))
        yield json.loads(line)["url"]


async def main(fields: dict[str, Any]) -> None:
    """Serve until SIGTERM."""
    wanted = [int(fields.get(name, 0)) for name in ("repositories", "runs", "jobs")]

    def ready(sim: ForgeSim) -> None:
        fill(sim, *wanted)
        print(json.dumps({"url": sim.url}), flush=True)

    options = Options(
        weather=STILL,
        time_scale=FAST,
        repository=f"{OWNER}/app",
        token_file=Path(fields["token"]),
        rate_limit=LIMIT,
    )
    await serve_async(options, ready=ready)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(json.loads(sys.argv[1])))
