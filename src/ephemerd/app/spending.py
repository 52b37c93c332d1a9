"""What listings may ask of a forge: so much in a minute, and of an hour's limit no more than others leave.

Listings yield to everything else. Repositories in which something happens share what is left above twice the
reserve, spread over the time until the reset; idle ones together have a sixtieth of the limit in any hour, and
those that were never read a quarter. What costs nothing (a 304) is bounded by the requests in a minute alone.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from ephemerd.domain.pool import HOUR, MINUTE, SECOND
from ephemerd.ports.forge import Budget

REQUESTS = 700
"""Requests in any minute, of the 900 that GitHub allows an endpoint; how many of these a 304 is free of is unknown."""
LIVELY_REQUESTS = 550
"""Those of them that are for repositories in which something happens, so that the others have their turn."""
LIMIT = 5_000
"""What is taken for the hourly limit until one was told."""
RESERVE = LIMIT // 5
IDLE_SHARE, FIRST_SHARE = 60, 4
"""One part in so many of the limit is for idle repositories, and for those that were never read."""
LEAST_PURSE = 30.0


FULL, HALF = 0.9, 0.5
"""Parts of what lively repositories may save, above which the budget is easy or fair."""
MODEST = 0.5
"""It is easy only where they used no more than this part of their share lately."""
LATELY = 10 * MINUTE


class Ease(Enum):
    """How much of what lively repositories may spend is at hand."""

    EASY = "easy"
    FAIR = "fair"
    TIGHT = "tight"


@dataclass(slots=True)
class Window:
    """What was spent within the last `span` ms, kept in grains of a sixtieth of it."""

    span: int
    _grains: deque[list[int]] = field(default_factory=deque)
    _total: int = 0

    def add(self, now: int, amount: int) -> None:
        """Count something that is spent at `now` (ms)."""
        grain = now // (self.span // 60)
        if self._grains and self._grains[-1][0] == grain:
            self._grains[-1][1] += amount
        else:
            self.total(now)  # nobody else need ask
            self._grains.append([grain, amount])
        self._total += amount

    def total(self, now: int) -> int:
        """Return what counts at `now`."""
        oldest = (now - self.span) // (self.span // 60)
        while self._grains and self._grains[0][0] < oldest:
            self._total -= self._grains.popleft()[1]
        return self._total

    def fits(self, now: int, amount: int, most: int) -> bool:
        """Say whether that much more may be spent; what is larger than `most` by itself may where nothing else was."""
        total = self.total(now)
        return total + amount <= most or total == 0


@dataclass(slots=True)
class Spending:
    """What the listings of one account spend. Times are ms of the shell clock, charges are requests that count."""

    _minute: Window = field(default_factory=lambda: Window(MINUTE))
    _lively: Window = field(default_factory=lambda: Window(MINUTE))
    _lately: Window = field(default_factory=lambda: Window(LATELY))
    _idle: Window = field(default_factory=lambda: Window(HOUR))
    _first: Window = field(default_factory=lambda: Window(HOUR))
    _purse: float = 0.0
    _rate: float = 0.0
    _at: int | None = None
    _limit: int = LIMIT
    _low: bool = False

    def begin(self, now: int, told: Budget | None) -> None:
        """Take in what the forge told last of the limit, before a round of looks."""
        limit, left, wait = LIMIT, LIMIT, HOUR
        reserve = RESERVE
        if told is not None:
            limit, reserve = told.limit, told.reserve
            wait = min(max(told.reset * SECOND - now, MINUTE), HOUR)
            left = told.remaining if told.reset * SECOND > now else limit
        self._limit = limit
        self._rate = max(0, left - 2 * reserve) / wait
        self._low = left <= 2 * reserve
        grown = self._most if self._at is None else self._purse + (now - self._at) * self._rate
        self._purse = min(grown, self._most)
        self._at = now

    @property
    def _most(self) -> float:
        """What lively repositories may save: a minute's worth."""
        return max(LEAST_PURSE, self._rate * MINUTE)

    @property
    def ease(self) -> Ease:
        """How little lively repositories use of what they have: a look reads the less the more that is."""
        modest = self._lately.total(self._at or 0) <= MODEST * self._rate * LATELY
        if modest and self._purse >= FULL * self._most:
            return Ease.EASY
        return Ease.FAIR if self._purse >= HALF * self._most else Ease.TIGHT

    @property
    def low(self) -> bool:
        """Whether nothing at all is to be listed until the reset."""
        return self._low

    def may_look(self, now: int, asks: int, cost: int) -> bool:
        """Say whether a lively repository may be looked at, whose last look took `asks` requests and cost `cost`."""
        if self._low or not self._minute.fits(now, asks, REQUESTS):
            return False
        return self._lively.fits(now, asks, LIVELY_REQUESTS) and (cost == 0 or self._purse > 0)

    def may_look_first(self, now: int, asks: int) -> bool:
        """Say whether a repository that was never read may be looked at."""
        fits = self._first.total(now) + asks <= self._limit // FIRST_SHARE
        return fits and not self._low and self._minute.fits(now, asks, REQUESTS)

    def may_see_idle(self, now: int, asks: int, cost: int) -> bool:
        """Say whether an idle repository may be asked about by so many requests that would cost so much."""
        fits = cost == 0 or self._idle.total(now) + cost <= self._limit // IDLE_SHARE
        return fits and not self._low and self._minute.fits(now, asks, REQUESTS)

    def looked(self, now: int, asked: int, charged: int) -> None:
        """Count a look at a lively repository."""
        self._minute.add(now, asked)
        self._lively.add(now, asked)
        self._lately.add(now, charged)
        self._purse -= charged

    def looked_first(self, now: int, asked: int, charged: int) -> None:
        """Count a first look."""
        self._minute.add(now, asked)
        self._first.add(now, charged)

    def saw_idle(self, now: int, asked: int, charged: int) -> None:
        """Count what was asked about an idle repository."""
        self._minute.add(now, asked)
        self._idle.add(now, charged)


def budget_of(told: tuple[Budget, ...], owner: str) -> Budget | None:
    """Return the limit that an owner's requests count against: its own, else that of the one credential."""
    core = [one for one in told if one.resource == "core"]
    return next((one for one in core if one.account == owner), None) or next(
        (one for one in core if not one.account), None
    )
