"""Which runs the core knows jobs of, and whether that explains what a list of runs shows; no I/O.

A list shows each run with its status and when something happened to it last. Where a delivery or a listing told of the
run's jobs after that, and one of them is still to be done, reading the jobs again would show nothing new.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from ephemerd.domain.job import ENDED_STATUSES, Job
from ephemerd.domain.pool import MINUTE, SECOND
from ephemerd.ports.forge import RunSeen

MOST = 20_000
"""Runs that are remembered. The one that nothing was heard of for longest goes first, and is read when met again."""
SLACK = 5 * SECOND
"""A run that changed no later than so many ms after the forge's last word on it is explained: for the time that an
answer takes, and since both are told in whole seconds."""
LATE = 2 * MINUTE
"""ms within which a list of runs shows what a delivery told."""


@dataclass(slots=True)
class _Run:
    """When the forge first and last said something of one of its jobs (ms); `open`: those that are not over."""

    first: int
    told: int = 0
    open: set[int] = field(default_factory=set)


class Ledger:
    """The runs of all repositories at one forge, whose names are in lower case. One whose jobs are over, as far as they
    are known, is as good as one that nothing is known of, and is forgotten."""

    def __init__(self, most: int = MOST) -> None:
        self._runs: OrderedDict[tuple[str, int], _Run] = OrderedDict()
        self._open: dict[str, dict[int, _Run]] = {}
        """The same ones by repository."""
        self._most = most

    def __len__(self) -> int:
        return len(self._runs)

    def note(self, job: Job) -> None:
        """Take in a job's row."""
        name = (job.key.repository.lower(), job.run_id)
        run, is_over = self._runs.get(name), job.status in ENDED_STATUSES
        if not job.run_id or (run is None and is_over):
            return
        if run is None:
            run = self._runs[name] = _Run(job.first_seen)
            self._open.setdefault(name[0], {})[job.run_id] = run
        else:
            self._runs.move_to_end(name)
        run.told = max(run.told, job.since, job.confirmed)
        if not is_over:
            run.open.add(job.key.id)
        else:
            run.open.discard(job.key.id)
        if not run.open:
            self._forget(name)
        while len(self._runs) > self._most:
            self._forget(next(iter(self._runs)))

    def explains(self, repository: str, run: RunSeen, now: int) -> bool:
        """Say whether the jobs of a run that is shown at `now` (ms) need not be read: what is known of them is no older
        than the run's last change, and accounts for it. Of a run that is over that is so where none of its jobs is
        believed to be open."""
        known = self._runs.get((repository, run.id))
        if run.over:
            return known is None
        if known is None or run.quiet is None:
            return False
        return now - run.quiet <= known.told + SLACK

    def open(self, repository: str, before: int) -> set[int]:
        """Return the runs of a repository that have jobs which are not over, by what is known; those alone that were
        known before a time (ms)."""
        return {number for number, run in self._open.get(repository, {}).items() if run.first < before}

    def _forget(self, name: tuple[str, int]) -> None:
        repository, number = name
        del self._runs[name]
        runs = self._open[repository]
        del runs[number]
        if not runs:
            del self._open[repository]


class Judge:
    """Compares what an audit shows of one repository with what is known, run by run."""

    def __init__(self, ledger: Ledger, repository: str, now: Callable[[], int]) -> None:
        """`now` is the shell clock (ms). A run that was heard of just before need not be shown yet."""
        self._ledger = ledger
        self._repository = repository.lower()
        self._now = now
        self._expected = ledger.open(self._repository, now() - LATE)
        self._shown: dict[int, int | None] = {}
        self.strange = 0

    def __call__(self, run: RunSeen) -> bool:
        """Say whether a run that is shown is accounted for."""
        now = self._now()
        self._shown[run.id] = None if run.quiet is None else now - run.quiet
        explained = self._ledger.explains(self._repository, run, now)
        self.strange += not explained
        return explained

    @property
    def newest(self) -> int:
        """The highest number that was shown, 0 where none was."""
        return max(self._shown, default=0)

    def reaches(self, newest: int, checked: int) -> bool:
        """Say whether what was shown goes back to the run `newest`, or to before the time `checked` (ms)."""
        oldest = min(self._shown, default=0)
        changed = self._shown.get(oldest)
        return oldest <= newest or (changed is not None and changed <= checked - SLACK)

    def misses(self) -> bool:
        """Say whether a run that is believed to be open was not shown."""
        return not self._expected <= self._shown.keys()
