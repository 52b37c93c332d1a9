"""The forge, in the words of the domain: register, look, fence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.job import JobReport, Origin
from ephemerd.domain.permit import FenceIntent
from ephemerd.domain.runner import FenceAnswer


@dataclass(frozen=True, slots=True)
class Registration:
    """What registering gave: the forge's id and the credential, which no repr shows."""

    id: int
    credential: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ForgeRunner:
    """A registration as the forge shows it. `connected` is false only where it says so (version null)."""

    id: int
    name: str
    online: bool
    busy: bool
    labels: tuple[str, ...]
    connected: bool | None


@dataclass(frozen=True, slots=True)
class Budget:
    """A rate limit as last told: `reset` in seconds since the epoch.

    account   whose limit it is where a forge has several (an App's installations), else ""
    reserve   at so many remaining, requests that only read wait for the reset
    """

    resource: str
    limit: int
    remaining: int
    reset: int
    account: str = ""
    reserve: int = 0


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One request that was made: `endpoint` is a template, never a full path; duration in seconds."""

    endpoint: str
    status: int
    seconds: float


class Look(Enum):
    """How much of a repository's jobs is read.

    NEWEST  those of the newest runs that show themselves changed since the last look
    QUICK   those of all queued and running runs, of which only what changed since the last look is told
    WHOLE   those of every run that is not over, all told: then it can be complete
    """

    NEWEST = "newest"
    QUICK = "quick"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class RepositorySeen:
    """A repository as a list shows it: `OWNER/NAME` in the forge's spelling, and its number, which a new name leaves.

    public    whether everybody can see it; None where it is not told
    dormant   archived or disabled: nothing is queued there any more
    pushed    when somebody pushed last, as the forge writes it: only to see that it changed
    """

    name: str
    id: int
    public: bool | None = None
    dormant: bool = False
    pushed: str = ""


@dataclass(frozen=True, slots=True)
class RepositoriesSeen:
    """The repositories of an account that the credential sees, all of them; `pages` is what the list takes."""

    found: tuple[RepositorySeen, ...]
    pages: int = 1
    charged: int = 0


@dataclass(frozen=True, slots=True)
class JobsSeen:
    """What one look at a repository's jobs showed.

    reports   the jobs of runs that are not over, ended ones of these runs included, and of runs that were not over
              at the last look and are now
    complete  whether every job that is queued or runs there is among them: else absence says nothing at all
    open      how many are queued or run, whether told again or not
    asked, charged  requests, and those of them that count against the hourly limit
    """

    reports: tuple[JobReport, ...]
    complete: bool
    open: int = 0
    asked: int = 0
    charged: int = 0


@dataclass(frozen=True, slots=True)
class Glance:
    """What a repository's newest runs showed, by one request.

    changed   whether they differ from the last glance at all, as far as is known; else the rest says nothing
    newest    the highest number of a run, 0 where there is none; busy: whether one of them is not over
    """

    changed: bool
    newest: int = 0
    busy: bool = False
    charged: int = 0


@dataclass(frozen=True, slots=True)
class RunSeen:
    """A run as a list shows it. `over`: nothing of it can be queued or run any more; `quiet`: for how long (ms) nothing
    has happened to it, by the forge's own clock alone, None where that was not told."""

    id: int
    over: bool
    quiet: int | None = None


@dataclass(frozen=True, slots=True)
class Audit:
    """What a repository's newest runs showed beside what is known of them.

    changed  whether they differ from the last audit at all, as far as is known; else the rest says nothing
    reports  the jobs of those runs that nothing accounted for
    open     how many of the runs are not over; more: whether there are older runs that were not shown
    asked, charged  requests, and those of them that count against the hourly limit
    """

    changed: bool
    reports: tuple[JobReport, ...] = ()
    open: int = 0
    more: bool = False
    asked: int = 0
    charged: int = 0


class Forge(Protocol):
    """One configured forge. Every call has a deadline of its own and raises only `PortError`s.

    Calls that only read may be repeated by the adapter; `register` and `deregister` are sent once.
    """

    name: str

    async def register(self, scope: Scope, name: RunnerId, labels: tuple[str, ...]) -> Registration:
        """Register a runner for one job. A taken name raises `NameTaken` after one look-up."""
        ...

    async def deregister(self, scope: Scope, registration: int, intent: FenceIntent) -> FenceAnswer:
        """Fence: ACCEPTED, REFUSED (a job is held) or NOT_FOUND; everything else raises."""
        ...

    async def runner(self, scope: Scope, registration: int) -> ForgeRunner:
        """Get one registration; `Gone` where there is none."""
        ...

    async def find(self, scope: Scope, name: RunnerId) -> ForgeRunner | None:
        """Find a registration by its exact name; None where there is none."""
        ...

    async def runners(self, scope: Scope) -> list[ForgeRunner]:
        """List all registrations of the scope, all pages."""
        ...

    async def job(self, key: JobKey) -> JobReport:
        """Get one job; `Gone` only where the repository itself answers and the job is not there."""
        ...

    async def origin(self, repository: str, run: int) -> Origin:
        """Get whose work a run is: every field is told, by one call. `Gone` where the run is not found."""
        ...

    async def active_jobs(
        self, repository: str, look: Look = Look.WHOLE, again: frozenset[int] = frozenset()
    ) -> JobsSeen:
        """Read the jobs of a repository's runs that are not over, all pages; `Unseen` where it is not to be seen.

        again   runs whose jobs are read although they may not show themselves changed
        """
        ...

    async def audit(self, repository: str, explains: Callable[[RunSeen], bool]) -> Audit:
        """Look at the newest runs, and read the jobs of each that `explains` does not account for; it is asked about
        every run that is shown, newest first, where anything changed."""
        ...

    async def glance(self, repository: str) -> Glance:
        """Look at the newest runs alone: whether anything happens there."""
        ...

    def glance_is_free(self, repository: str) -> bool:
        """Say whether a glance costs nothing of the hourly limit where nothing has changed."""
        ...

    def audit_is_free(self, repository: str) -> bool:
        """Say the same of an audit."""
        ...

    async def repositories(self, owner: str) -> RepositoriesSeen:
        """List the repositories of an organization; `Refused` where the forge has no such list."""
        ...

    def budgets(self) -> tuple[Budget, ...]:
        """Return the rate limits as last told."""
        ...

    def take_calls(self) -> list[CallRecord]:
        """Return and forget the requests made since the last call of this, for metrics."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
