"""One look at the daemon, or one after another: fetch, then show for people or for scripts."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ephemerd.cli import output
from ephemerd.cli.client import Client
from ephemerd.cli.failure import Exit, Failure
from ephemerd.cli.output import Page


@dataclass(frozen=True, slots=True)
class Look:
    """What to fetch (plain data, printed as it is by --json) and how it looks for people."""

    fetch: Callable[[Client], Any]
    show: Callable[[Any], Page]


Shows = Callable[[Any, str], None]
"""Takes what was fetched, None where the daemon has not answered yet again, and a notice, mostly empty."""


def look(client: Client, what: Look, *, as_json: bool, watch: bool, every: float) -> None:
    """Print once, or again and again until interrupted.

    The first look must succeed. A daemon that goes away later, as in a restart, is waited for, with a notice; an
    answer that refuses ends it.
    """
    value = what.fetch(client)
    if not watch:
        output.emit_json(value) if as_json else output.emit(what.show(value))
        return
    with _shower(what, as_json=as_json, every=every) as show:
        show(value, "")
        while True:
            time.sleep(every)
            show(*fetched(client, what.fetch))


def fetched(client: Client, fetch: Callable[[Client], Any]) -> tuple[Any, str]:
    """Return what was fetched and no notice, or None and a notice where nobody answers just now."""
    try:
        return fetch(client), ""
    except Failure as failure:
        if failure.code != Exit.UNREACHABLE:
            raise
        return None, f"{failure.what}; waiting for it"


def can_move() -> bool:
    """Say whether stdout is a terminal on which the cursor can be moved."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in {"", "dumb", "unknown"}


@contextmanager
def _shower(what: Look, *, as_json: bool, every: float) -> Iterator[Shows]:
    if as_json:
        yield _Lines(lambda value: output.emit_json(value, line=True))
    elif not can_move():
        yield _Lines(
            lambda value: print(f"{_moment(every)}\n{output.plain_page(what.show(value))}\n", flush=True)
        )
    else:
        with _live(what, every) as show:
            yield show


def _moment(every: float) -> str:
    return f"{output.clock(round(time.time() * 1_000))}, every {every:g} s; Ctrl-C ends"


class _Lines:
    """Text after text; a notice once, on stderr."""

    def __init__(self, write: Callable[[Any], None]) -> None:
        self._write = write
        self._waits = False

    def __call__(self, value: Any, notice: str) -> None:
        if notice and not self._waits:
            output.note(notice)
        elif not notice and self._waits:
            output.note("the daemon answers again")
        self._waits = bool(notice)
        if not notice:
            self._write(value)


@contextmanager
def _live(what: Look, every: float) -> Iterator[Shows]:
    """Show one table that changes in its place, and leave the last one on the screen."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from ephemerd.cli import screen

    terminal = screen.console()
    seen: list[Any] = []
    with Live(console=terminal, auto_refresh=False, vertical_overflow="ellipsis") as live:

        def show(value: Any, notice: str) -> None:
            if not notice:
                seen[:] = [value]
            line = Text(notice, style="bold red") if notice else Text(_moment(every), style="dim")
            live.update(Group(line, screen.render(what.show(seen[0]), terminal.width)), refresh=True)

        yield show
