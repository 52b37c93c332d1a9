"""The budget of writes to one forge: a token bucket that is waited for in order (DOMAIN.md, 4.7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SLOW_FOR = 300.0
"""Seconds that the slower rate holds after a limit was hit: the window in which GitHub's secondary limits
are usually lifted again."""


class OutOfBudget(Exception):
    """No token came within the wait; nothing was sent. `after` seconds are a fair time to come back."""

    def __init__(self, after: float) -> None:
        super().__init__(f"the budget of writes to the forge is used up for {after:.0f} s")
        self.after = after


class Bucket:
    """`burst` writes at once, then `rate` a second; `slow_rate` a second for a while after a limit.

    Waiters are served in the order in which they came. `time` is the loop's clock in seconds.
    """

    def __init__(
        self, burst: int, rate: float, slow_rate: float, time: Callable[[], float] | None = None
    ) -> None:
        self._burst = float(burst)
        self._rate = rate
        self._slow_rate = slow_rate
        self._time = time or (lambda: asyncio.get_running_loop().time())
        self._tokens = float(burst)
        self._updated: float | None = None
        self._slow_until = float("-inf")
        self._turn = asyncio.Lock()

    async def take(self, wait: float) -> None:
        """Take one token, waiting at most `wait` seconds; raises `OutOfBudget` if none came."""
        try:
            async with asyncio.timeout(wait), self._turn:
                short = self._short()
                while short > 0:
                    await asyncio.sleep(short)
                    short = self._short()
                self._tokens -= 1.0
        except TimeoutError:
            raise OutOfBudget(max(1.0, self._short())) from None

    def retune(self, burst: int, rate: float, slow_rate: float) -> None:
        """Go on with other numbers; what is left of the tokens stays, within the new burst."""
        self._refill()
        self._burst, self._rate, self._slow_rate = float(burst), rate, slow_rate
        self._tokens = min(self._tokens, self._burst)

    def slow_down(self, seconds: float = 0.0) -> None:
        """A limit was hit that lasts so many seconds: no burst is left, and refilling is slow for a while."""
        self._refill()
        self._tokens = min(self._tokens, 0.0)
        self._slow_until = max(self._slow_until, self._time() + seconds + SLOW_FOR)

    def _short(self) -> float:
        """Seconds until a whole token is there; 0 when there is one."""
        self._refill()
        missing = 1.0 - self._tokens
        return missing / self._current_rate() if missing > 1e-9 else 0.0

    def _current_rate(self) -> float:
        return self._slow_rate if self._time() < self._slow_until else self._rate

    def _refill(self) -> None:
        now = self._time()
        if self._updated is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._updated) * self._current_rate())
        self._updated = now
