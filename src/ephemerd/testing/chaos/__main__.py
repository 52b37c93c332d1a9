"""``python -m ephemerd.testing.chaos``: play it, tell on stderr, print one JSON object on stdout."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from ephemerd.testing.chaos.options import ChaosOptions, ChaosReport
from ephemerd.testing.chaos.play import run_chaos
from ephemerd.testing.demo.narrator import Narrator
from ephemerd.testing.demo.options import CONTAINER_TIME_SCALE, TIME_SCALE, DemoError


def parse(arguments: Sequence[str]) -> ChaosOptions:
    """Read the command line; a wrong one ends the program with code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m ephemerd.testing.chaos",
        description="Kill the daemon again and again while jobs run, and count the outcome by the forge's side.",
    )
    given = ChaosOptions()
    for name, what in (
        ("jobs", "jobs that must all be run"),
        ("kills", "how often the daemon is killed"),
        ("burst", "most jobs queued at once"),
        ("seed", "same seed, same draws"),
        ("commit-kills", "how often a committing store is killed; 0 leaves it out"),
        ("engine-kills", "how often the engine of the containers is ended and started again"),
        ("runners", "live runners that a restart has to adopt; 0 leaves it out"),
    ):
        default = getattr(given, name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{what} (default {default})")
    parser.add_argument("--weather", default=given.weather, help=f"default {given.weather}")
    parser.add_argument(
        "--time-scale",
        type=float,
        help=f"divides durations above 10 s (default {TIME_SCALE:g}, with containers {CONTAINER_TIME_SCALE:g})",
    )
    parser.add_argument(
        "--runtime", choices=("process", "docker"), default=given.runtime, help="what runners live in"
    )
    parser.add_argument("--folder", type=Path, help="keep everything here; else a temporary one")
    read = parser.parse_args(arguments)
    if read.time_scale is None:
        read.time_scale = TIME_SCALE if read.runtime == "process" else CONTAINER_TIME_SCALE
    if read.engine_kills and read.runtime == "process":
        parser.error("--engine-kills needs --runtime docker")
    return ChaosOptions(**vars(read))


async def play(options: ChaosOptions, narrator: Narrator) -> ChaosReport:
    """Play until the end or a signal, which ends everything that was started."""
    playing = asyncio.ensure_future(run_chaos(options, narrator))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, playing.cancel)
    return await playing


def main(arguments: Sequence[str]) -> int:
    """Return 0, 8 where a promise did not hold, 130 after a signal, else the code of what went wrong."""
    options = parse(arguments)
    try:
        report = asyncio.run(play(options, Narrator(to_stderr=True)))
    except DemoError as error:
        print(f"error: {error.what}\n  fix: {error.todo}", file=sys.stderr)
        return error.code
    except asyncio.CancelledError:
        print("interrupted; all that was started was ended", file=sys.stderr)
        return 128 + signal.SIGINT
    print(json.dumps(dataclasses.asdict(report)))
    for line in report.broken_promises:
        print(f"broken promise: {line}", file=sys.stderr)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
