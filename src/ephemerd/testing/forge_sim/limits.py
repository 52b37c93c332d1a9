"""The rate limits of one credential (github.md, section 7): the primary one, and points for each endpoint."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ephemerd.testing.forge_sim.world import Refused, World

PRIMARY_LIMIT = 5000
"""Requests an hour [doc]; the hour is scaled."""
AT_ONCE = 100
"""Requests under way at the same time, all endpoints together [doc]."""
SECONDARY_POINTS = 900
"""Points a minute for each endpoint; a read costs 1, a write 5 [doc]; the minute is scaled."""

Json = dict[str, Any]


@dataclass(slots=True)
class Limits:
    """The primary and the secondary rate limit of one token."""

    world: World
    limit: int = PRIMARY_LIMIT
    used: int = 0
    reset_at: float = 0.0
    points: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)
    under_way: int = 0
    most_under_way: int = 0

    def enter(self) -> None:
        """A request comes in; refused where too many are under way. `leave` ends it in any case."""
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        if self.under_way > AT_ONCE:
            raise Limited("You have exceeded a secondary rate limit.", retry_after=None)

    def leave(self) -> None:
        """A request has been answered."""
        self.under_way -= 1

    def spend(self, method: str, endpoint: str) -> None:
        """Count one call, or refuse it with 403 as GitHub does."""
        now = time.time()
        self._roll(now)
        cost = 1 if method in ("GET", "HEAD", "OPTIONS") else 5
        minute = self.world.seconds(60.0)
        window = self.points.setdefault(endpoint, deque())
        while window and window[0][0] < now - minute:
            window.popleft()
        if sum(points for _, points in window) + cost > SECONDARY_POINTS:
            raise Limited("You have exceeded a secondary rate limit.", retry_after=math.ceil(minute))
        if self.used >= self.limit:
            raise Limited("API rate limit exceeded.", retry_after=None)
        window.append((now, cost))
        self.used += 1

    def give_back(self) -> None:
        """An answer 304 is not charged to the primary limit [doc]."""
        self.used -= 1

    def _roll(self, now: float) -> None:
        if now >= self.reset_at:
            self.used = 0
            self.reset_at = now + self.world.seconds(3600.0)

    def resource(self) -> Json:
        """The limit as ``GET /rate_limit`` shows it."""
        self._roll(time.time())
        return {
            "limit": self.limit,
            "used": self.used,
            "remaining": max(0, self.limit - self.used),
            "reset": math.ceil(self.reset_at),
            "resource": "core",
        }

    def headers(self) -> dict[str, str]:
        """The ``x-ratelimit-*`` headers."""
        return {f"x-ratelimit-{key}": str(value) for key, value in self.resource().items()}


class Limited(Refused):
    """A rate limit was hit."""

    def __init__(self, message: str, *, retry_after: int | None, status: int = 403) -> None:
        super().__init__(status, message)
        self.retry_after = retry_after
