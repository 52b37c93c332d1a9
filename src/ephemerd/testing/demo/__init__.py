"""The demo: the main job end to end on this machine, with a look-alike forge and no credentials.

It starts two programs as a user would (``forge-sim`` and ``serve``), plays a scripted act and random bursts, and
counts the outcome by the forge's side. It talks to both over HTTP alone and knows neither's inside.
"""

from __future__ import annotations

import asyncio
import json
import sys

from ephemerd.testing.demo.driver import play, summarise
from ephemerd.testing.demo.narrator import Narrator
from ephemerd.testing.demo.options import DemoError, DemoOptions, DemoReport

__all__ = ["DemoError", "DemoOptions", "DemoReport", "main", "run_demo"]


def run_demo(options: DemoOptions, narrator: Narrator | None = None) -> DemoReport:
    """Play the demo and return its report; raises :class:`DemoError` where it cannot be played."""
    return asyncio.run(play(options, narrator or Narrator(to_stderr=options.as_json)))


def main(options: DemoOptions) -> int:
    """Play the demo for a person or a script: narrate, summarise, print JSON if asked; return the exit code."""
    narrator = Narrator(to_stderr=options.as_json)
    try:
        report = run_demo(options, narrator)
    except DemoError as error:
        print(f"error: {error.what}\n  fix: {error.todo}", file=sys.stderr)
        return error.code
    summarise(report, narrator)
    if options.as_json:
        print(json.dumps(report.as_json()))
    return report.exit_code
