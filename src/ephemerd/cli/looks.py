"""One look at the daemon, or one after another: fetch, then print for people or for scripts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ephemerd.cli import output
from ephemerd.cli.client import Client
from ephemerd.cli.output import Page


@dataclass(frozen=True, slots=True)
class Look:
    """What to fetch (plain data, printed as it is by --json) and how it looks for people."""

    fetch: Callable[[Client], Any]
    show: Callable[[Any], Page]


def look(client: Client, what: Look, *, as_json: bool, watch: bool, every: float) -> None:
    """Print once, or until interrupted. A daemon that goes away ends it with code 6."""
    while True:
        value = what.fetch(client)
        if as_json:
            output.emit_json(value, line=watch)
        else:
            if watch and sys.stdout.isatty():
                output.clear_screen()
            output.emit(what.show(value))
        if not watch:
            return
        time.sleep(every)
