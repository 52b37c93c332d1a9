"""What has to be asked in many requests: the jobs of a repository, the repositories of an account.

GitHub lists jobs by run and runs by repository. A list of runs with a filter ends after 1,000: one that reaches
that is asked anew by the times at which the runs were created, until each part is shorter. Where a list cannot be
read wholly it is said not to be complete, so that absence from it proves nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ephemerd.adapters.forges.github import faults, runs, wire
from ephemerd.adapters.forges.github.connection import Connection, Tally
from ephemerd.adapters.kit.answer import Answer
from ephemerd.domain.job import ForgeStatus, JobReport
from ephemerd.ports.errors import Gone, PortError, Refused
from ephemerd.ports.forge import Audit, Glance, JobsSeen, Look, RepositoriesSeen, RunSeen

AT_ONCE = 3
"""Runs of one repository whose jobs are read at a time: GitHub asks for few parallel requests."""
MOST_PARTS = 100
"""Parts into which a list that is too long is cut at most."""
MOST_ENDED = 100
"""Runs that ended since the last look whose jobs are read once more."""
_OPEN = frozenset({ForgeStatus.QUEUED, ForgeStatus.IN_PROGRESS})

Page = tuple[wire.Request, Answer]


@dataclass(frozen=True, slots=True)
class _Read:
    """A run as it was when its jobs were read last, and how many of them were queued or ran."""

    run: runs.Run
    open: int


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest runs, and when GitHub sent them (ms), 0 where it does not say."""

    runs: tuple[runs.Run, ...]
    at: int


@dataclass(slots=True)
class _Found:
    """The runs of some statuses. `complete` until a list was seen to be cut, or to shift between two pages."""

    tally: Tally
    runs: dict[int, runs.Run] = field(default_factory=dict)
    complete: bool = True


class Listings:
    """Reads lists over one connection; `name` is the forge's, `timeout_s` the limit of one list with all its pages."""

    def __init__(
        self, connection: Connection, name: str, timeout_s: float, now: Callable[[], float] = time.time
    ) -> None:
        self._connection = connection
        self._name = name
        self._timeout_s = timeout_s
        self._now = now
        self._open: dict[str, dict[int, _Read]] = {}

    async def active_jobs(self, repository: str, look: Look, again: frozenset[int] = frozenset()) -> JobsSeen:
        """Read the jobs of all runs that are not over, and of those that were not at the last look and are now."""
        if look is Look.NEWEST:
            return await self._newest_jobs(repository, again)
        deadline, tally = self.deadline(), Tally()
        found = _Found(tally)
        for status in runs.ACTIVE if look is Look.WHOLE else runs.BUSY:
            await self._runs_of(repository, status, deadline, found)
        before = self._open.get(repository.lower(), {})
        ended = [read.run for number, read in before.items() if number not in found.runs][:MOST_ENDED]
        chosen = list(found.runs.values())
        reports, now_open = await self._read(chosen, ended, deadline, tally, all_told=look is Look.WHOLE)
        self._remember(repository, now_open)
        whole = found.complete and look is Look.WHOLE
        return JobsSeen(tuple(reports), whole, _still_open(now_open), tally.asked, tally.charged)

    async def audit(self, repository: str, explains: Callable[[RunSeen], bool]) -> Audit:
        """Look at the newest runs, and read the jobs of those that `explains` does not account for."""
        deadline, tally = self.deadline(), Tally()
        async with self._newest(repository, runs.AUDITED, deadline, tally) as page:
            if page is None:
                return Audit(changed=False, asked=tally.asked, charged=tally.charged)
            strange = [run for run in page.runs if not explains(_seen(run, page.at))]
            told = await self._jobs_of_all(strange, deadline, tally)
        for run in strange:
            if run.over:
                self._connection.forget(runs.list_jobs(run.repository, run.id))
        reports = tuple(report for some, _ in told for report in some)
        still_open = sum(not run.over for run in page.runs)
        return Audit(True, reports, still_open, len(page.runs) >= runs.AUDITED, tally.asked, tally.charged)

    async def _newest_jobs(self, repository: str, again: frozenset[int]) -> JobsSeen:
        """Read the jobs of those of the newest runs that are new, changed or over since they were read, and of those
        that are to be read `again`."""
        deadline, tally = self.deadline(), Tally()
        before = self._open.get(repository.lower(), {})
        async with self._newest(repository, runs.POLLED, deadline, tally) as page:
            shown = {run.id: run for run in (page.runs if page is not None else ())}
            ended = [run for run in shown.values() if run.over and run.id in before]
            changed = {
                number: run
                for number, run in shown.items()
                if not run.over and not _is_same(run, before.get(number))
            }
            still = {number: read.run for number, read in before.items() if number in again}
            gone = {run.id for run in ended}
            chosen = [run for number, run in (still | changed).items() if number not in gone]
            reports, fresh = await self._read(chosen, ended, deadline, tally)
        now_open = {number: read for number, read in before.items() if number not in gone} | fresh
        self._remember(repository, now_open)
        return JobsSeen(tuple(reports), False, _still_open(now_open), tally.asked, tally.charged)

    @asynccontextmanager
    async def _newest(
        self, repository: str, most: int, deadline: float, tally: Tally
    ) -> AsyncGenerator[_Newest | None, None]:
        """Give the newest runs, None where they are as they were. The question counts as asked only where all that
        follows from its answer went well: else the next one could be answered that nothing has changed since."""
        request = runs.list_newest(repository, most)
        answer = await self._connection.ask(request, deadline, tally)
        if answer.status == 304:
            yield None
            return
        if answer.status != 200:
            raise self._connection.fault(request, answer)
        try:
            yield _Newest(runs.read_runs(request, answer, repository).runs, faults.sent_at(answer.headers))
        except BaseException:
            self._connection.forget(request)
            raise

    async def _read(
        self,
        chosen: list[runs.Run],
        ended: list[runs.Run],
        deadline: float,
        tally: Tally,
        *,
        all_told: bool = False,
    ) -> tuple[list[JobReport], dict[int, _Read]]:
        """Read the jobs of runs that are not over and of some that are; return what changed (or all), and what is
        known now of those that are not over."""
        reports: list[JobReport] = []
        now_open: dict[int, _Read] = {}
        read = await self._jobs_of_all([*chosen, *ended], deadline, tally)
        for place, (run, (told, changed)) in enumerate(zip([*chosen, *ended], read, strict=True)):
            if place < len(chosen):
                now_open[run.id] = _Read(run, sum(report.status in _OPEN for report in told))
            if changed or all_told:
                reports += told
        for run in ended:
            self._connection.forget(runs.list_jobs(run.repository, run.id))
        return reports, now_open

    async def glance(self, repository: str) -> Glance:
        """Look at the newest runs alone."""
        request, tally = runs.list_newest(repository), Tally()
        answer = await self._connection.ask(request, self.deadline(), tally)
        if answer.status == 304:
            return Glance(changed=False, charged=tally.charged)
        if answer.status != 200:
            raise self._connection.fault(request, answer)
        seen = runs.read_runs(request, answer, repository).runs
        newest = max((run.id for run in seen), default=0)
        return Glance(True, newest, any(not run.over for run in seen), tally.charged)

    async def repositories(self, owner: str) -> RepositoriesSeen:
        """List an organization's repositories; as an App those of its installation."""
        first = runs.list_installed(owner) if self._connection.installed else runs.list_owned(owner)
        found, pages, tally = [], 0, Tally()
        async for request, answer in self.pages(first, self.deadline(), tally):
            found += runs.read_repositories(request, answer)
            pages += 1
        return RepositoriesSeen(tuple(found), pages, tally.charged)

    async def pages(
        self, first: wire.Request, deadline: float, tally: Tally | None = None
    ) -> AsyncGenerator[Page, None]:
        """Yield every page. `Refused` rather than a part where the pages find no end."""
        request: wire.Request | None = first
        for _ in range(wire.MAX_PAGES):
            if request is None:
                return
            answer = await self._connection.fetch(request, deadline, tally)
            yield request, answer
            request = wire.next_page(self._connection.base, request, answer.headers)
        if request is not None:
            raise Refused(
                f"{first.about}: GitHub names more than {wire.MAX_PAGES} pages; the list is not complete"
            )

    def deadline(self) -> float:
        """Return when a list that begins now has to be read, by the loop's clock."""
        return asyncio.get_running_loop().time() + self._timeout_s

    async def _runs_of(self, repository: str, status: str, deadline: float, found: _Found) -> None:
        """Add the runs of one status, in as many parts as it takes."""
        whole = runs.all_days(self._now())
        parts: list[runs.Span | None] = [None]
        for _ in range(MOST_PARTS):
            if not parts:
                return
            span = parts.pop()
            if await self._part(runs.list_runs(repository, status, span), repository, deadline, found):
                continue
            halves = (whole if span is None else span).halves()
            if halves is None:
                found.complete = False
            else:
                parts += halves
        found.complete = False

    async def _part(self, first: wire.Request, repository: str, deadline: float, found: _Found) -> bool:
        """Add one list of runs; return whether it is short enough to be all of them."""
        totals: set[int | None] = set()
        numbers: set[int] = set()
        async for request, answer in self.pages(first, deadline, found.tally):
            page = runs.read_runs(request, answer, repository)
            found.runs.update((run.id, run) for run in page.runs)
            numbers.update(run.id for run in page.runs)
            totals.add(page.total)
            if page.total is not None and page.total >= runs.MOST:
                return False
        if len(numbers) >= runs.MOST:
            return False
        if len(totals) > 1 or not totals <= {None, len(numbers)}:
            found.complete = False  # runs came or went between two pages, and one may have slipped through
        return True

    async def _jobs_of_all(
        self, chosen: Iterable[runs.Run], deadline: float, tally: Tally
    ) -> list[tuple[list[JobReport], bool]]:
        """Return the jobs of each run, and whether they changed since they were read last."""
        queue, told = list(chosen), []
        while queue:
            now, queue = queue[:AT_ONCE], queue[AT_ONCE:]
            for answer in await asyncio.gather(*(self._jobs_of(run, deadline, tally) for run in now)):
                if isinstance(answer, PortError):
                    raise answer
                told.append(answer)
        return told

    async def _jobs_of(
        self, run: runs.Run, deadline: float, tally: Tally
    ) -> tuple[list[JobReport], bool] | PortError:
        """Return a run's jobs, none where the run was deleted meanwhile, or the failure."""
        reports: list[JobReport] = []
        own = Tally()
        try:
            async for request, answer in self.pages(runs.list_jobs(run.repository, run.id), deadline, own):
                reports += runs.read_jobs(request, answer, self._name, run)
        except Gone:
            return [], False
        except PortError as error:
            return error
        finally:
            tally.asked += own.asked
            tally.charged += own.charged
        return reports, own.charged > 0

    def _remember(self, repository: str, found: dict[int, _Read]) -> None:
        if found:
            self._open[repository.lower()] = found
        else:
            self._open.pop(repository.lower(), None)


def _still_open(known: dict[int, _Read]) -> int:
    return sum(read.open for read in known.values())


def _is_same(run: runs.Run, read: _Read | None) -> bool:
    return read is not None and read.run.mark == run.mark


def _seen(run: runs.Run, at: int) -> RunSeen:
    return RunSeen(run.id, run.over, max(0, at - run.updated) if at and run.updated else None)
