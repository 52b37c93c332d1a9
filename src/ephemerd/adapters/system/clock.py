"""The shell clock: ms that never go back or jump, so that a clock step ages nothing."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from ephemerd.adapters.kit.boot import boot_id

STEP = 2_000  # ms; below it a wall clock merely drifts or is slewed


_MONOTONIC: int = getattr(
    time, "CLOCK_MONOTONIC_RAW" if sys.platform == "darwin" else "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC
)
_AWAKE: int = getattr(time, "CLOCK_UPTIME_RAW", time.CLOCK_MONOTONIC)


def monotonic_ms() -> int:
    """Return ms of a clock that nobody can set and that counts sleep too.

    Linux: CLOCK_BOOTTIME (CLOCK_MONOTONIC stops in suspend). macOS: CLOCK_MONOTONIC_RAW, which goes on in
    sleep there (clock_gettime(3)).
    """
    return time.clock_gettime_ns(_MONOTONIC) // 1_000_000


def awake_ms() -> int:
    """Return ms of a clock that nobody can set and that stands still in sleep.

    Linux: CLOCK_MONOTONIC. macOS: CLOCK_UPTIME_RAW (clock_gettime(3)).
    """
    return time.clock_gettime_ns(_AWAKE) // 1_000_000


def wall_ms() -> int:
    """Return the wall clock, ms since 1970."""
    return time.time_ns() // 1_000_000


class ShellClock:
    """`ports.system.Clock`. May be read in any thread.

    Goes on from what was persisted: on the same boot by the difference of the monotonic clock, after a
    reboot at the wall clock but never before the last value, at the very first start at the wall clock.
    The arguments are the machine's clocks; they are others only in tests.
    """

    def __init__(
        self,
        *,
        wall: Callable[[], int] = wall_ms,
        monotonic: Callable[[], int] = monotonic_ms,
        awake: Callable[[], int] = awake_ms,
        boot: Callable[[], str] = boot_id,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._awake = awake
        self._lock = threading.Lock()
        self._boot = _name(boot)
        self._base: tuple[int, int] | None = None
        self._last = 0
        self._offset = 0
        self._asleep = 0

    def start(self, last: tuple[int, str, int] | None) -> bool:
        """Begin from `mark()` of the last life; return whether this is still the same boot."""
        monotonic, wall = self._monotonic(), self._wall()
        same = False
        if last is None:
            now = wall
        else:
            ms, boot, then = last
            same = bool(boot) and boot == self._boot
            now = ms + max(0, monotonic - then) if same else max(ms, wall)
        with self._lock:
            self._base = (now, monotonic)
            self._last = now
            self._offset = wall - monotonic
            self._asleep = self._monotonic() - self._awake()
        return same

    def now(self) -> int:
        """Return the current shell time, ms; raise `RuntimeError` before `start`."""
        return self._read()[0]

    def mark(self) -> tuple[int, str, int]:
        """Return what to persist: (now, boot id, monotonic ms)."""
        now, monotonic = self._read()
        return now, self._boot, monotonic

    def stepped(self) -> int:
        """Return by how many ms the wall clock moved against the monotonic one; 0 within 2 s.

        What stays below adds up, so that a slow drift is told in the end; what was told is not told again.
        """
        offset = self._wall() - self._monotonic()
        with self._lock:
            moved = offset - self._offset
            if abs(moved) <= STEP:
                return 0
            self._offset = offset
            return moved

    def slept(self) -> int:
        """Return for how many ms the machine was suspended since the last call that told of it; 0 below 2 s.

        In sleep the one clock goes on and the other stands still. A machine that is itself paused by its host
        knows nothing of it: its wall clock steps when it is set right.
        """
        asleep = self._monotonic() - self._awake()
        with self._lock:
            moved = asleep - self._asleep
            if moved <= STEP:
                return 0
            self._asleep = asleep
            return moved

    def _read(self) -> tuple[int, int]:
        with self._lock:
            if self._base is None:
                raise RuntimeError("the clock was not started")
            monotonic = self._monotonic()
            began, base = self._base
            self._last = max(self._last, began + monotonic - base)
            return self._last, monotonic


def _name(boot: Callable[[], str]) -> str:
    """A machine that cannot name its boot has a new one each time: the wall clock is read then."""
    try:
        return boot()
    except OSError:
        return ""
