"""The screen of `top`: lines that fit a terminal of any size, and keys without Enter."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from ephemerd.cli import screen, tables
from ephemerd.cli.client import Client
from ephemerd.cli.failure import Exit
from ephemerd.cli.looks import fetched
from ephemerd.cli.output import Table, clean, clock, span
from ephemerd.cli.top import Seen, Wish, fetch, pools, pressed, queue, runners

KEYS = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
}
ONE_KEY = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z])|.", re.DOTALL)
HINTS = "q ends  up/down scroll  s sort  g gone ones"
LEAST_RUNNERS = 4
"""Lines that the runners get, their title included, before the queue gets more than one."""
BAR = 20


def run(client: Client, seen: Seen, every: float, count: int) -> int:
    """Show until q, Ctrl-C or so many looks; 0 looks go on."""
    terminal, wish, notice, looks = screen.console(), Wish(), "", 1
    with (
        _keys() as keys,
        Live(console=terminal, auto_refresh=False, screen=True, vertical_overflow="crop") as live,
    ):
        while True:
            live.update(Group(*frame(seen, wish, notice, terminal.width, terminal.height)), refresh=True)
            if looks == count:
                return Exit.DONE
            due = time.monotonic() + every
            while (left := due - time.monotonic()) > 0:
                key = keys.wait(left)
                if not key:
                    continue
                changed = pressed(wish, key, len(runners(seen.runners, wish).rows))
                if changed is None:
                    return Exit.DONE
                wish = changed
                live.update(Group(*frame(seen, wish, notice, terminal.width, terminal.height)), refresh=True)
            found, notice = fetched(client, fetch)
            seen = seen if found is None else found
            looks += 1


def frame(seen: Seen, wish: Wish, notice: str, width: int, height: int) -> list[RenderableType]:
    """Return the lines of one picture: at most `height`, each in `width` columns."""
    top = _head(seen, notice, width)[: max(1, height - 1)]
    foot = _line([(HINTS, "dim"), (f"  sorted by {wish.sort}", "dim")], width)
    room = height - len(top) - 1
    live = runners(seen.runners, wish)
    pool_part = pools(seen.pools)
    pool_lines = min(1 + len(pool_part.rows), max(0, room // 4))
    room -= pool_lines
    wanted = 1 + len(live.rows)
    queue_lines = min(1 + len(seen.jobs), max(2, room - wanted, (room - LEAST_RUNNERS) // 2))
    queue_lines = max(0, min(queue_lines, room - LEAST_RUNNERS if room > LEAST_RUNNERS else 0))
    room -= queue_lines
    parts = [
        *top,
        *_cut(pool_part, pool_lines, width),
        *_cut(queue(seen.jobs), queue_lines, width),
        *_cut(live, room, width, wish.first),
    ]
    blank = [Text("")] * (height - 1 - len(parts))
    return [*parts, *blank, foot] if height > 1 else parts


def _head(seen: Seen, notice: str, width: int) -> list[Text]:
    status = seen.status
    word = clean(status["health"]["status"])
    held, slots = status["slots_held"], status["slots"]
    full = round(BAR * min(held, slots) / slots) if slots else 0
    lines = [
        _line(
            [
                (word, screen.STYLES.get(word, "")),
                (f"  {tables.daemon_state(status)}, up {span(status['uptime_s'])}", ""),
                (f"  {clock(status['now'])}", "dim"),
            ],
            width,
        ),
        _line(
            [
                ("slots ", ""),
                ("\N{BLACK SQUARE}" * full, "cyan"),
                ("\N{MIDDLE DOT}" * (BAR - full), "dim"),
                (f" {held}/{slots}  jobs {tables.counts(status['jobs'])}", ""),
            ],
            width,
        ),
    ]
    if notice:
        lines.insert(0, _line([(clean(notice), "bold red")], width))
    reasons = status["health"]["reasons"]
    lines += [_line([(f"- {clean(reason)}", "yellow")], width) for reason in reasons[:3]]
    if len(reasons) > 3:
        lines.append(_line([(f"  and {len(reasons) - 3} more: ephemerd status", "dim")], width))
    return lines


def _line(parts: list[tuple[str, str]], width: int) -> Text:
    line = Text.assemble(*parts, no_wrap=True, overflow="ellipsis")
    line.truncate(width, overflow="ellipsis")
    return line


def _cut(table: Table, lines: int, width: int, first: int = 0) -> list[RenderableType]:
    """Return a table in so many lines, its title included, from row `first`; the last says how many more there are."""
    if lines <= 0:
        return []
    if not table.rows:
        return [Text(table.empty, style="dim")]
    first = max(0, min(first, len(table.rows) - (lines - 1)))
    whole = screen.lines(table, width)
    rest = len(table.rows) - first - (lines - 1)
    if rest > 0 and lines > 2:
        shown = whole[first + 1 : first + lines - 1]
        return [whole[0], *shown, Text(f"  and {rest + 1} more", style="dim")]
    return [whole[0], *whole[first + 1 : first + lines]]


class _Keys:
    """Keys as they are pressed; `wait` returns the name of one, or nothing when the time is over or a signal came."""

    def __init__(self, descriptor: int | None, signalled: int | None = None) -> None:
        self._descriptor = descriptor
        self._signalled = signalled
        self._left: list[str] = []

    def wait(self, seconds: float) -> str:
        if self._left:
            return self._left.pop(0)
        if self._descriptor is None:
            time.sleep(seconds)
            return ""
        watched = [one for one in (self._descriptor, self._signalled) if one is not None]
        ready, _, _ = select.select(watched, [], [], seconds)
        if self._signalled in ready:
            os.read(self._signalled, 1024)
        if self._descriptor not in ready:
            return ""
        raw = os.read(self._descriptor, 1024)
        self._left = named(raw.decode(errors="replace")) if raw else ["q"]  # nothing: the terminal is gone
        return self._left.pop(0)


def named(text: str) -> list[str]:
    """Return the names of the keys that made these signs."""
    return [KEYS.get(one, one) for one in ONE_KEY.findall(text)]


@contextmanager
def _keys() -> Iterator[_Keys]:
    """Read single keys from the terminal on stdin, if there is one, and give it back as it was."""
    if not sys.stdin.isatty():
        yield _Keys(None)
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        with _signals() as signalled:
            yield _Keys(descriptor, signalled)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _signals() -> Iterator[int]:
    """Give a descriptor that can be read once a signal has come. Python serves a signal between two steps of the
    program: one that comes just before `select` goes to sleep would wait until it wakes."""
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    try:
        yield reads
    finally:
        signal.set_wakeup_fd(before)
        os.close(reads)
        os.close(writes)
