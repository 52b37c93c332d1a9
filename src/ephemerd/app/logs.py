"""The logs of runners, piece by piece: whole lines, bounded, and nothing that looks like a secret.

A piece is cut between lines, and never inside a private key, so that what hides secrets sees each as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ephemerd.app.daemon import Daemon
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.runner import FINAL
from ephemerd.ports.errors import Gone, PortError
from ephemerd.ports.runtime import KeepsLogs
from ephemerd.ports.views import LogFileView, LogPieceView, LogsView

LEAST, MOST = 1024, 256 * 1024
"""Bytes of a piece."""
LIMIT = 10.0
"""Seconds that reading a piece may take."""
KEY_BEGINS, KEY_ENDS = b"-----BEGIN", b"-----END"
CUT = "[the rest of a line whose beginning is not shown here]\n"
TOO_LONG = "[a line that is too long to be shown]\n"

T = TypeVar("T")


class NoLogs(Exception):
    """There is no such log (any more), or it cannot be read now; the message says which."""


class Logs:
    """Reads what runners left. `hide` takes secrets out of a text."""

    def __init__(self, daemon: Daemon, hide: Callable[[str], str]) -> None:
        self._daemon = daemon
        self._hide = hide

    async def files(self, runner: str) -> LogsView:
        """List a runner's logs. Raises `NoLogs`."""
        ended = self._ended(runner)
        files = await self._first(lambda runtime: runtime.log_files(RunnerId(runner)), runner)
        return LogsView(runner, ended, tuple(LogFileView(one.name, one.size) for one in files))

    async def read(self, runner: str, name: str, start: int, most: int = MOST) -> LogPieceView:
        """Read whole lines of a log from byte `start` on. Raises `NoLogs`."""
        most = max(LEAST, min(most, MOST))
        ended = self._ended(runner)
        before = 1 if start > 0 else 0  # the byte before tells whether a line begins here
        raw = await self._first(
            lambda runtime: runtime.read_log(RunnerId(runner), name, start - before, most + before), runner
        )
        inside = before and raw[:1] not in (b"\n", b"")
        raw = raw[before:]
        text, used = piece(raw, full=len(raw) >= most, ended=ended, inside=bool(inside))
        end = used == len(raw) < most or (not used and len(raw) < most)
        return LogPieceView(runner, name, start, start + used, self._hide(text), end, ended)

    def _ended(self, runner: str) -> bool:
        row = self._daemon.core.state.runners.get(RunnerId(runner))
        return row is None or row.state in FINAL

    async def _first(self, ask: Callable[[KeepsLogs], Awaitable[T]], runner: str) -> T:
        """Ask each runtime that keeps logs until one has them."""
        asked: list[object] = []
        for runtime in self._daemon.ports.runtimes.values():
            if any(runtime is other for other in asked) or not isinstance(runtime, KeepsLogs):
                continue
            asked.append(runtime)
            try:
                async with asyncio.timeout(LIMIT):
                    return await ask(runtime)
            except Gone:
                continue
            except TimeoutError:
                raise NoLogs(f"the logs of {runner} could not be read within {LIMIT:.0f} s") from None
            except PortError as error:
                raise NoLogs(f"the logs of {runner} could not be read: {error.detail}") from error
        raise NoLogs(f"no such log of {runner} is kept")


def piece(raw: bytes, *, full: bool, ended: bool, inside: bool) -> tuple[str, int]:
    """Return the text to show and how many bytes of `raw` it stands for.

    full     more may follow at once: `raw` is as long as a piece can be
    ended    nothing is added any more, so that the last line counts without its end
    inside   `raw` begins in the middle of a line
    """
    used = len(raw) if ended and not full else raw.rfind(b"\n") + 1
    if not used:
        return (TOO_LONG, len(raw)) if full else ("", 0)
    begins = raw.rfind(KEY_BEGINS, 0, used)
    open_ = begins >= 0 and raw.find(KEY_ENDS, begins, used) < 0
    if open_ and not (ended and not full):
        line = raw.rfind(b"\n", 0, begins) + 1
        if line:
            used = line
        elif not full:
            return "", 0
    shown, mark = raw[:used], ""
    if inside:
        mark, shown = CUT, shown.partition(b"\n")[2]
    ends, begins = shown.find(KEY_ENDS), shown.find(KEY_BEGINS)
    if ends >= 0 and not 0 <= begins < ends:  # it began before this piece: nothing would hide its rest
        mark, shown = CUT, shown[ends:].partition(b"\n")[2]
    return mark + shown.decode("utf-8", "replace"), used
