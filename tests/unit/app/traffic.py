"""An organization's repositories, runs and jobs in virtual time, and what listing them costs by GitHub's rules.

A model of what the listings meet, not of the wire: which list changes when, and therefore which question a 304
answers. Assumptions, each on the dear side: whatever happens to a job changes every list that shows its run; the jobs
of a run that runs change by themselves (11 of 18 polls at 10 s, field reports); an App's token changes every 50
minutes, and every question is then charged once; the limit is 5,000 however many repositories there are.

That a run shows when something happened to one of its jobs is likely and nowhere promised. A `shy` organization's runs
show it only where their status changes: cheaper to list, and slower to be seen through.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from ephemerd.app.discovery import Discovery
from ephemerd.app.inbox import Inbox
from ephemerd.app.roster import LIVELY_FOR
from ephemerd.core import events as e
from ephemerd.domain.ids import JobKey, Scope
from ephemerd.domain.job import ForgeStatus, Job, JobReport, JobStatus
from ephemerd.domain.pool import HOUR, MINUTE, SECOND, Policy
from ephemerd.ports.forge import (
    Audit,
    Budget,
    Glance,
    JobsSeen,
    Look,
    RepositoriesSeen,
    RepositorySeen,
    RunSeen,
)
from tests.unit.app.fakes import FakeClock, FakeForge, setup

T = TypeVar("T")
ORG = Scope("github", "org:acme")
SHAPE = [1, 1, 1, 1, 1, 2, 4, 7, 10, 11, 10, 8, 9, 12, 12, 11, 9, 6, 4, 3, 2, 2, 1, 1]
"""Share of a day's jobs by hour (UTC): quiet nights, a peak after noon."""
TOKEN_LIFE = 50 * MINUTE
STEP = 10_600
"""ms: what changes at this pace has changed at 11 of 18 looks that are 10 s apart."""
RESERVE = 5
START = 15 * SECOND
"""From a runner's registration to its job's start, ms."""
REQUEST = 60
"""ms that one request takes; three repositories are read at a time."""
PAGE = 100
"""Runs that an audit is shown at most."""


@dataclass(slots=True)
class Run:
    """A run and its jobs, by state. `after`: durations of jobs that are queued when the first wave is over."""

    id: int
    repository: str
    queued: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    after: list[int] = field(default_factory=list)
    version: int = 0
    mark: int = 0
    updated: int = 0

    def status(self) -> str:
        if self.running or (self.ended and (self.queued or self.after)):
            return "in_progress"
        return "queued" if self.queued else "completed"


@dataclass(slots=True)
class Work:
    """A job. `told`: its row as deliveries or listings make it."""

    run: Run
    queued: int
    duration: int
    lively: bool
    seen: int | None = None
    told: Job | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of it. Charges are requests that count; `least` is what was left of the limit at the worst moment.

    waits   ms from being queued to being seen (or to the end), of jobs where something had happened lately
    hours   what the listings were charged, hour by hour
    """

    jobs: int
    seen: int
    waits: list[int]
    idle_waits: list[int]
    registrations: int
    listing: int
    hours: list[int]
    least: int
    limit: int
    asked: int

    def p95(self) -> float:
        """Seconds within which 95 of 100 jobs of active repositories were seen."""
        return self.within(95)

    def within(self, share: int) -> float:
        """Seconds within which so many of 100 jobs of active repositories were seen."""
        waits = sorted(self.waits)
        return waits[min(len(waits) - 1, len(waits) * share // 100)] / SECOND if waits else 0.0


class Organization(FakeForge):
    """The model, as the forge that the discovery asks."""

    def __init__(
        self, repositories: int, clock: FakeClock, *, limit: int = 5_000, app: bool = True, shy: bool = False
    ) -> None:
        super().__init__()
        self.clock = clock
        self.shy = shy
        self.freed: Callable[[Job], None] = lambda job: None
        """Is told of each job of which our runner is done, as its own files say."""
        self.limit = limit
        self.life = TOKEN_LIFE if app else 10**15
        self.names = [f"acme/r{number:03}" for number in range(repositories)]
        self.pushed = dict.fromkeys(self.names, 0)
        self.touched = dict.fromkeys(self.names, -(10**15))
        self.runs: dict[str, dict[int, Run]] = {name: {} for name in self.names}
        self.newest = dict.fromkeys(self.names, 0)
        self.recent: dict[str, deque[Run]] = {name: deque(maxlen=PAGE) for name in self.names}
        self.jobs: dict[int, Work] = {}
        self.events: list[tuple[int, JobStatus]] = []
        self.versions: dict[str, int] = {}
        self.kept: dict[str, tuple[int, int]] = {}
        self.read: dict[int, int] = {}
        self.shown: dict[str, set[int]] = {name: set() for name in self.names}
        self.used = 0
        self.reset = clock.ms + HOUR
        self.least = limit
        self.listing = self.registrations = self.asked = 0
        self.hours: list[int] = []
        self.agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._rng = random.Random("organization")

    # -- what happens there ----------------------------------------------------------------------------------

    def at(self, moment: int, happens: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self.agenda, (moment, self._number, happens))

    def advance(self) -> None:
        """Let everything happen that is due."""
        while self.agenda and self.agenda[0][0] <= self.clock.ms:
            heapq.heappop(self.agenda)[2]()

    def queue_run(self, name: str, durations: list[int], after: list[int], *, pushed: bool = True) -> None:
        now = self.clock.ms
        lively = now - self.touched[name] < LIVELY_FOR
        self._number += 1
        run = Run(self._number, name, after=after)
        self.runs[name][run.id] = run
        self.recent[name].append(run)
        self.newest[name] = run.id
        if pushed:
            self.pushed[name] = now
        for duration in durations:
            self._queue(run, duration, lively=lively)

    def _queue(self, run: Run, duration: int, *, lively: bool) -> None:
        self._number += 1
        self.jobs[self._number] = Work(run, self.clock.ms, duration, lively)
        self._changed(run, run.queued, self._number, JobStatus.QUEUED)

    def _changed(self, run: Run, into: set[int], number: int, told: JobStatus) -> None:
        """A job of a run changed its state: so did every list that shows the run, or showed it."""
        before = run.status()
        self.events.append((number, told))
        for states in (run.queued, run.running, run.ended):
            states.discard(number)
        into.add(number)
        run.version += 1
        self.touched[run.repository] = self.clock.ms
        if self.shy and run.status() == before and run.mark:
            return
        run.mark, run.updated = run.mark + 1, self.clock.ms // SECOND * SECOND
        for status in {before, run.status(), "newest"}:
            url = f"{run.repository}/{status}"
            self.versions[url] = self.versions.get(url, 0) + 1

    def see(self, number: int) -> None:
        """The daemon hears of a queued job: it registers a runner, which takes it after a while."""
        job = self.jobs[number]
        if job.seen is not None:
            return
        job.seen = self.clock.ms
        self.registrations += 1
        self._charge(1)
        if self._rng.random() < 0.1:
            self.at(self.clock.ms + 2 * MINUTE, lambda: self._charge(2))  # a look and a fence
        self.at(self.clock.ms + START, lambda: self._start(number))

    def _start(self, number: int) -> None:
        job = self.jobs[number]
        self._changed(job.run, job.run.running, number, JobStatus.RUNNING)
        self.at(self.clock.ms + job.duration, lambda: self._end(number))

    def _end(self, number: int) -> None:
        run, told = self.jobs[number].run, self.jobs[number].told
        self._changed(run, run.ended, number, JobStatus.DONE)
        if told is not None:
            self.freed(told)
        if not run.queued and not run.running:
            if not run.after:
                del self.runs[run.repository][run.id]
            for duration in run.after:
                self._queue(run, duration, lively=True)
            run.after = []

    # -- what asking costs -----------------------------------------------------------------------------------

    def _charge(self, requests: int) -> None:
        while self.clock.ms >= self.reset:
            self.used, self.reset = 0, self.reset + HOUR
        self.used += requests
        self.least = min(self.least, self.limit - self.used)

    def _ask(self, url: str, version: int) -> int:
        """Ask once; return 1 where that was charged."""
        self.asked += 1
        kept = (self.clock.ms // self.life, version)
        if self.kept.get(url) == kept:
            return 0
        self.kept[url] = kept
        self._charge(1)
        self.listing += 1
        return 1

    def _jobs_version(self, run: Run) -> int:
        return run.version * 10**12 + (self.clock.ms // STEP if run.running else 0)

    # -- the port --------------------------------------------------------------------------------------------

    def budgets(self) -> tuple[Budget, ...]:
        self._charge(0)
        left = self.limit - self.used
        return (Budget("core", self.limit, left, self.reset // SECOND, "acme", self.limit // RESERVE),)

    async def repositories(self, owner: str) -> RepositoriesSeen:
        pages = -(-len(self.names) // 100)
        charged = 0
        for page in range(pages):
            some = self.names[page * 100 : page * 100 + 100]
            charged += self._ask(f"repositories/{page}", sum(self.pushed[name] for name in some))
        found = tuple(
            RepositorySeen(name, number + 1, public=False, pushed=str(self.pushed[name]))
            for number, name in enumerate(self.names)
        )
        return RepositoriesSeen(found, pages, charged)

    async def glance(self, repository: str) -> Glance:
        url = f"{repository}/newest"
        charged = self._ask(url, self.versions.get(url, 0))
        busy = any(run.status() != "completed" for run in self.runs[repository].values())
        return Glance(bool(charged), self.newest[repository], busy, charged)

    def glance_is_free(self, repository: str) -> bool:
        return self._is_free(f"{repository}/newest")

    def audit_is_free(self, repository: str) -> bool:
        return self._is_free(f"{repository}/newest 100")

    def _is_free(self, url: str) -> bool:
        kept = self.kept.get(url)
        return kept is not None and kept[0] == self.clock.ms // self.life

    async def active_jobs(
        self, repository: str, look: Look = Look.WHOLE, again: frozenset[int] = frozenset()
    ) -> JobsSeen:
        if look is Look.NEWEST:
            lists = [(f"{repository}/newest 30", self.versions.get(f"{repository}/newest", 0))]
        else:
            statuses = ("queued", "in_progress", "waiting", "pending")[: 4 if look is Look.WHOLE else 2]
            lists = [(url, self.versions.get(url, 0)) for url in (f"{repository}/{one}" for one in statuses)]
        asked, charged = len(lists), sum(self._ask(url, version) for url, version in lists)
        now_open = self.runs[repository]
        unchanged = look is Look.NEWEST and not charged
        ended = self.shown[repository] - now_open.keys() if not unchanged else set()
        reports: list[JobReport] = []
        count = 0
        for run in list(now_open.values()):
            same = unchanged or (look is Look.NEWEST and self.read.get(run.id) == run.mark)
            if same and run.id not in again:
                count += len(run.queued) + len(run.running)
                continue
            self.read[run.id] = run.mark
            changed = self._ask(f"run/{run.id}", self._jobs_version(run))
            asked, charged = asked + 1, charged + changed
            count += len(run.queued) + len(run.running)
            if changed or look is Look.WHOLE:
                reports += [self._report(run, number, ForgeStatus.QUEUED) for number in run.queued]
                reports += [self._report(run, number, ForgeStatus.IN_PROGRESS) for number in run.running]
        for number in ended:
            asked, charged = asked + 1, charged + self._ask(f"run/{number}", -1)
            self.kept.pop(f"run/{number}", None)
        if not unchanged:
            self.shown[repository] = set(now_open)
        self._take_time(asked)
        return JobsSeen(tuple(reports), look is Look.WHOLE, count, asked, charged)

    async def audit(self, repository: str, explains: Callable[[RunSeen], bool]) -> Audit:
        charged = self._ask(f"{repository}/newest 100", self.versions.get(f"{repository}/newest", 0))
        if not charged:
            self._take_time(1)
            return Audit(False, asked=1)
        page = list(reversed(self.recent[repository]))
        seen = {
            run.id: RunSeen(run.id, run.status() == "completed", self.clock.ms - run.updated) for run in page
        }
        strange = [run for run in page if not explains(seen[run.id])]
        for run in strange:
            charged += self._ask(f"run/{run.id}", self._jobs_version(run))
        reports = [
            self._report(run, number, status)
            for run in strange
            for status, numbers in ((ForgeStatus.QUEUED, run.queued), (ForgeStatus.IN_PROGRESS, run.running))
            for number in numbers
        ]
        still_open = sum(not one.over for one in seen.values())
        self._take_time(1 + len(strange))
        more = len(page) == PAGE
        return Audit(True, tuple(reports), still_open, more, 1 + len(strange), charged)

    async def failed_deliveries(self) -> None:
        """The question whether a delivery failed: none did."""
        self._ask("deliveries", 0)

    def _take_time(self, requests: int) -> None:
        self.clock.ms += REQUEST * requests // 3
        self.advance()

    @staticmethod
    def _report(run: Run, number: int, status: ForgeStatus) -> JobReport:
        return JobReport(JobKey("github", run.repository, number), status, ("linux",), run_id=run.id)


class Day:
    """A discovery over the model, at the pace of the core: by listings alone, or with deliveries beside them."""

    def __init__(
        self,
        repositories: int,
        *,
        polled: bool,
        app: bool = True,
        shy: bool = False,
        vouched: bool = True,
        start: int = 1_796_083_200_000,
    ) -> None:
        """`start` is a midnight, ms. `vouched`: the forge's list of deliveries can be read."""
        self.vouched = vouched and not polled
        self.lost: Callable[[int], bool] = lambda number: False
        self.clock = FakeClock(start)
        self.start = start
        self.polled = polled
        self.forge = Organization(repositories, self.clock, app=app, shy=shy)
        self.inbox = Inbox()
        self.policy = Policy()
        pools = tuple(replace(pool, scope=ORG, observed=not polled) for pool in setup().pools)
        self.discovery = Discovery(
            self.forge, self._read, self.inbox, self.clock, replace(setup(), pools=pools)
        )
        self.forge.freed = self.discovery.freed
        self.due = start
        self.caught_up = start
        self.quiet = 0

    async def _read(self, scope: Scope, call: Callable[[], Coroutine[Any, Any, T]], limit: float) -> T:
        return await call()

    def fill(self, jobs: int, *, first: int = 0, last: int = 24, seed: int = 1) -> None:
        """Queue so many jobs over a day's hours `first` … `last`, a few repositories having most of them."""
        rng = random.Random(f"{seed}:day")
        forge, left = self.forge, jobs
        weights = [1 / (place + 3) for place in range(len(forge.names))]
        hours = range(first, last)
        while left > 0:
            wave, after = rng.randint(1, 3), rng.choice((0, 0, 1, 2))
            durations = [round(rng.expovariate(1 / 240) * SECOND) + 20 * SECOND for _ in range(wave + after)]
            hour = rng.choices(hours, [SHAPE[hour] for hour in hours])[0]
            moment = self.start + round((hour - first + rng.random()) * HOUR)
            (name,) = rng.choices(forge.names, weights)
            pushed = rng.random() < 0.7
            happens = partial(forge.queue_run, name, durations[:wave], durations[wave:], pushed=pushed)
            forge.at(moment, happens)
            left -= wave + after

    async def run(self, hours: float) -> Figures:
        """Go on for so many hours."""
        forge, end = self.forge, self.start + round(hours * HOUR)
        hour, charged = self.start + HOUR, forge.listing
        while True:
            following = min(self.due, forge.agenda[0][0] if forge.agenda else end)
            if self.vouched:
                following = min(following, self.caught_up)
            if following >= end:
                break
            self.clock.ms = max(self.clock.ms, following)
            if self.clock.ms >= hour:
                forge.hours.append(forge.listing - charged)
                hour, charged = hour + HOUR, forge.listing
            forge.advance()
            if not self.polled:
                self._deliver()
            if self.vouched and self.clock.ms >= self.caught_up:
                began, self.caught_up = self.clock.ms, self.clock.ms + self.policy.reconcile_every
                await forge.failed_deliveries()
                self.discovery.trust.read_back((ORG,), began, whole=True)
            if self.clock.ms >= self.due:
                await self._round()
        forge.hours.append(forge.listing - charged)
        return self._figures()

    def _deliver(self) -> None:
        """Deliveries come at once; those that `lost` names were never made."""
        events, self.forge.events = self.forge.events, []
        for number, status in events:
            if self.lost(number):
                continue
            self.discovery.trust.heard(
                JobKey("github", self.forge.jobs[number].run.repository, number), self.clock.ms
            )
            self._told(number, status)

    def _told(self, number: int, status: JobStatus) -> bool:
        """The core takes in what is said of a job; return whether it is news."""
        work, now = self.forge.jobs[number], self.clock.ms
        news = work.told is None
        if work.told is None:
            key = JobKey("github", work.run.repository, number)
            work.told = Job(key, ("linux",), 0, status, now, now, now, run_id=work.run.id)
        elif work.told.status is not JobStatus.DONE:
            since = work.told.since if work.told.status is status else now
            work.told = replace(work.told, status=status, since=since, confirmed=now)
        if status is JobStatus.QUEUED:
            self.forge.see(number)
        self.discovery.notice(work.told)
        return news

    async def _round(self) -> None:
        asked = self.clock.ms
        error = await self.discovery.list_jobs(ORG)
        assert error is None, error
        for item in self.inbox.take(10_000):
            if isinstance(item.event, e.JobsRead):
                for report in item.event.reports:
                    status = JobStatus.QUEUED if report.status is ForgeStatus.QUEUED else JobStatus.RUNNING
                    if self._told(report.key.id, status):
                        self.discovery.trust.untold(report.key, self.clock.ms)
            elif isinstance(item.event, e.JobsListed):
                self._next(asked, item.event)

    def _next(self, asked: int, listed: e.JobsListed) -> None:
        """When the core lists again (`core.scopes.until_next` and `heard`)."""
        pause = self.policy.reconcile_every
        if self.polled:
            self.quiet = 0 if listed.jobs or listed.lively else self.quiet + 1
            pause = min(self.policy.poll_every << min(self.quiet, 16), self.policy.poll_idle)
        self.due = max(asked + pause, self.clock.ms + 1)

    def _wait(self, job: Work) -> int:
        """How long it took until a job was seen; of one that was not, how long it has waited by now."""
        return (self.clock.ms if job.seen is None else job.seen) - job.queued

    def _figures(self) -> Figures:
        forge = self.forge
        seen = [job for job in forge.jobs.values() if job.seen is not None]
        return Figures(
            jobs=len(forge.jobs),
            seen=len(seen),
            waits=[self._wait(job) for job in forge.jobs.values() if job.lively],
            idle_waits=[self._wait(job) for job in forge.jobs.values() if not job.lively],
            registrations=forge.registrations,
            listing=forge.listing,
            hours=forge.hours,
            least=forge.least,
            limit=forge.limit,
            asked=forge.asked,
        )


def played(day: Day, hours: float) -> Figures:
    """Run it outside of any loop."""
    return asyncio.run(day.run(hours))
