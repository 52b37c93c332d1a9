"""The demo: the main job end to end on this machine, with a look-alike forge and no credentials.

It starts two programs as a user would (``forge-sim`` and ``serve``), plays a scripted act and random bursts, and
counts the outcome by the forge's side. It talks to both over HTTP alone and knows neither's inside.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys

from ephemerd.testing.demo.driver import Curtain, play
from ephemerd.testing.demo.narrator import Narrator
from ephemerd.testing.demo.options import DemoError, DemoOptions, DemoReport

__all__ = ["DemoError", "DemoOptions", "DemoReport", "main", "run_demo"]


def run_demo(options: DemoOptions, narrator: Narrator | None = None) -> DemoReport:
    """Play the demo and return its report.

    Raises :class:`DemoError` where it cannot be played, or was interrupted (code 130 or 143). Whatever way it ends,
    the programs and runners that it started are ended.
    """
    return asyncio.run(_run(options, narrator or Narrator(to_stderr=options.as_json)))


async def _run(options: DemoOptions, narrator: Narrator) -> DemoReport:
    curtain = Curtain()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, curtain.fall, number)
    curtain.play = asyncio.create_task(play(options, narrator, curtain))
    try:
        return await curtain.play
    except asyncio.CancelledError:
        if curtain.signal is None:
            raise
        what = f"interrupted by {signal.Signals(curtain.signal).name}"
        raise DemoError(
            what, "nothing: all that the demo had started was ended", 128 + curtain.signal
        ) from None


def main(options: DemoOptions) -> int:
    """Play the demo for a person or a script: narrate, print JSON if asked, return the exit code."""
    try:
        report = run_demo(options)
    except DemoError as error:
        print(f"error: {error.what}\n  fix: {error.todo}", file=sys.stderr)
        return error.code
    if options.as_json:
        print(json.dumps(report.as_json()))
    return report.exit_code
