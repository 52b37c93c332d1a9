"""A day of 10,000 jobs in 40 repositories against the hourly limit of one App, in virtual time."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

import pytest

from ephemerd.adapters.forges.github import runs, wire
from ephemerd.adapters.forges.github.limits import Limits
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.ports.forge import Budget

HOUR = 3600.0
REPOSITORIES = [f"acme/r{number}" for number in range(40)]
JOBS = 10_000
LIMIT, RESERVE = 5_000, 1_000
BUSY = (9 * HOUR, 17 * HOUR)  # listings outside of these hours meet nothing that they could take away
# Share of a day's jobs by hour (UTC): quiet nights, a peak after noon.
SHAPE = [1, 1, 1, 1, 1, 2, 4, 7, 10, 11, 10, 8, 9, 12, 12, 11, 9, 6, 4, 3, 2, 2, 1, 1]


@dataclass
class Day:
    """GitHub's own count of one credential, and what the limits let through."""

    limits: Limits = field(default_factory=Limits)
    used: int = 0
    reset: float = HOUR
    least: int = LIMIT
    held: int = 0
    sent: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})

    def call(self, request: wire.Request, now: float) -> bool:
        """Send one request unless it is held back; every answer is a whole one, as if no ETag ever matched."""
        while now >= self.reset:
            self.used, self.reset = 0, self.reset + HOUR
        if self.limits.hold(request, now) is not None:
            self.held += 1
            return False
        self.limits.spent(request, now)
        assert self.used < LIMIT, "GitHub would have refused it"
        self.used += 1
        self.sent[request.writes] += 1
        left = LIMIT - self.used
        self.least = min(self.least, left)
        told = Budget("core", LIMIT, left, int(self.reset))
        self.limits.told(request, told, self.reset - now + 1.0, now)
        return True


def demands(pace: float) -> list[tuple[float, wire.Request]]:
    """Every request of the day in order: for each job a registration, for one in ten a look and a fence; for each
    repository two listings of runs every `pace` seconds, and one of registrations every five minutes."""
    rng = random.Random("a day")
    scopes = {name: Scope("github", f"repo:{name}") for name in REPOSITORIES}
    wanted: list[tuple[float, int, wire.Request]] = []

    def add(at: float, request: wire.Request) -> None:
        heapq.heappush(wanted, (at, len(wanted), request))

    for number in range(JOBS):
        hour = rng.choices(range(24), SHAPE)[0]
        at, name = (hour + rng.random()) * HOUR, rng.choice(REPOSITORIES)
        add(at, wire.register(scopes[name], RunnerId(f"eph-s-b-{number}"), ("linux",)))
        if rng.random() < 0.1:
            add(at + 120, wire.get_job(JobKey("github", name, number + 1)))
            add(at + 180, wire.delete_runner(scopes[name], number + 1))
    for name in REPOSITORIES:
        at = BUSY[0] + rng.random() * pace
        while at < BUSY[1]:
            for status in runs.ACTIVE:
                add(at, runs.list_runs(name, status))
            at += pace
        at = BUSY[0] + rng.random() * 300
        while at < BUSY[1]:
            add(at, wire.list_runners(scopes[name]))
            at += 300
    return [(at, request) for at, _, request in sorted(wanted, key=lambda one: one[:2])]


@pytest.mark.parametrize("pace", [300.0, 60.0])
def test_a_day_of_an_app_keeps_its_reserve_for_registrations_and_fences(pace):
    """Were none of the listings free and none of them spread, they would stop, and what matters would go on."""
    day, writes = Day(), 0
    for at, request in demands(pace):
        went = day.call(request, at)
        if request.writes:
            writes += 1
            assert went, f"{request.endpoint} was held back at {at:.0f} s"
    assert day.sent[True] == writes >= JOBS
    assert day.held > 0
    assert day.least >= RESERVE
