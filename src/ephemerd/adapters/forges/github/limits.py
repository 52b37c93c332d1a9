"""What may be sent under one credential, by what GitHub told and by its published limits; pure, time is given.

Sources: GitHub's page on rate limits of the REST API. Primary: requests an hour, told in each answer. Secondary:
900 points a minute for each endpoint, where a read costs 1 and a write 5; 100 requests at a time (the connection
pool has ten). Who goes on sending while limited can be banned, so that nothing is sent before its time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from ephemerd.adapters.forges.github.wire import Request
from ephemerd.ports.forge import Budget

POINTS = 800
"""Points a minute that we spend on an endpoint; the rest of GitHub's 900 is for clocks that differ."""
MINUTE_S = 60.0
READ_POINTS, WRITE_POINTS = 1, 5
RESERVE = 5
"""One part in so many of the hourly limit is kept for registrations and fences: reads stop there. Listings, which
are asked again and again, stop at twice as much, so that looks at single jobs and runners outlast them."""
LONGEST_PAUSE_S = 1800.0
"""Pauses double while a limit that names no end goes on, up to this."""
_ENDPOINTS, _RESOURCES = 64, 32


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a request is not sent now. `limited`: GitHub said so; else we hold it back ourselves."""

    seconds: float
    limited: bool
    why: str


@dataclass(slots=True)
class _Told:
    budget: Budget
    until: float


@dataclass(slots=True)
class Limits:
    """The limits of one credential. Times are seconds of one monotonic clock."""

    account: str = ""
    _told: dict[str, _Told] = field(default_factory=dict)
    _draws_on: dict[str, str] = field(default_factory=dict)
    _points: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)
    _blocked_until: float = float("-inf")
    _streak: int = 0

    def hold(self, request: Request, now: float) -> Hold | None:
        """Return why a request must wait, None where it may go out."""
        if now < self._blocked_until:
            return Hold(self._blocked_until - now, True, "GitHub's rate limit")
        told = self._told.get(self._draws_on.get(request.endpoint, "core"))
        if told is not None and now < told.until:
            if told.budget.remaining <= 0:
                return Hold(told.until - now, True, "GitHub's hourly limit is used up")
            reserved = request.writes or request.reserved
            kept = told.budget.reserve * (2 if request.conditional else 1)
            if not reserved and told.budget.remaining <= kept:
                what = f"{told.budget.remaining} requests are left until the reset, kept for registrations and fences"
                return Hold(told.until - now, False, what)
        return self._too_fast(request, now)

    def spent(self, request: Request, now: float) -> None:
        """Note that a request goes out."""
        if request.endpoint in self._points or len(self._points) < _ENDPOINTS:
            self._points.setdefault(request.endpoint, deque()).append((now, _cost(request)))

    def told(self, request: Request, budget: Budget, left_s: float, now: float) -> None:
        """Note what an answer's headers say; the limit is refilled in `left_s` seconds."""
        if budget.resource not in self._told and len(self._told) >= _RESOURCES:
            return
        whole = replace(budget, account=self.account, reserve=budget.limit // RESERVE)
        self._told[budget.resource] = _Told(whole, now + left_s)
        self._draws_on[request.endpoint] = budget.resource

    def limited(self, seconds: float, now: float, *, named: bool) -> float:
        """Note that GitHub refused because of a limit; return for how long nothing is sent.

        named   GitHub said until when; else each refusal in a row doubles the pause
        """
        wait = seconds if named else min(seconds * 2.0**self._streak, LONGEST_PAUSE_S)
        if now >= self._blocked_until:  # several refusals of one moment are one
            self._streak = min(self._streak + 1, 10)
        self._blocked_until = max(self._blocked_until, now + wait)
        return self._blocked_until - now

    def answered(self, now: float) -> None:
        """Note an answer that is no limit."""
        if now >= self._blocked_until:
            self._streak = 0

    def budgets(self, now: float) -> list[Budget]:
        """Return what was told last, by resource; after its reset all of a limit is there again."""
        found = (self._told[name] for name in sorted(self._told))
        return [
            one.budget if now < one.until else replace(one.budget, remaining=one.budget.limit)
            for one in found
        ]

    def _too_fast(self, request: Request, now: float) -> Hold | None:
        spent = self._points.get(request.endpoint)
        if spent is None:
            return None
        while spent and spent[0][0] <= now - MINUTE_S:
            spent.popleft()
        over = sum(cost for _, cost in spent) + _cost(request) - POINTS
        for at, cost in spent:
            if over <= 0:
                break
            over -= cost
            wait = at + MINUTE_S - now
            if over <= 0:
                return Hold(wait, False, f"{POINTS} points a minute are spent on {request.endpoint}")
        return None


def _cost(request: Request) -> int:
    return WRITE_POINTS if request.writes else READ_POINTS
