"""The budget of writes to the forge in virtual time, as `app/budget.py` keeps it in real time."""

from __future__ import annotations

from ephemerd.domain.pool import Policy

SLOW_FOR = 300_000
"""The slower rate holds so many ms after a limit was hit."""

WAIT = 15_000
"""A write waits for its token at most so long (ms); then it is not sent."""


class ModelBucket:
    """Tokens are taken in the order of asking; a token may be promised for later. Times are ms."""

    def __init__(self, policy: Policy) -> None:
        self._burst = float(policy.write_burst)
        self._rate = policy.write_per_second / 1000
        self._slow_rate = policy.write_per_second_limited / 1000
        self._tokens = self._burst
        self._updated = 0
        self._slow_until = -1

    def take(self, now: int) -> int | None:
        """Take a token and return how long the write waits for it, or None where that would be too long."""
        self._refill(now)
        wait = self.wait(now)
        if wait > WAIT:
            return None
        self._tokens -= 1.0
        return wait

    def wait(self, now: int) -> int:
        """Return how long the next write would wait."""
        self._refill(now)
        return max(0, int((1.0 - self._tokens) / self._current(now) + 0.999))

    def slow_down(self, now: int, lasts: int) -> None:
        """A limit was hit that lasts so long: no burst is left, and refilling is slow for a while."""
        self._refill(now)
        self._tokens = min(self._tokens, 0.0)
        self._slow_until = max(self._slow_until, now + lasts + SLOW_FOR)

    def _current(self, now: int) -> float:
        return self._slow_rate if now < self._slow_until else self._rate

    def _refill(self, now: int) -> None:
        self._tokens = min(self._burst, self._tokens + (now - self._updated) * self._current(now))
        self._updated = now
