"""The forge, in the words of the domain: register, look, fence."""

from __future__ import annotations

from dataclasses import dataclass, field
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

    async def active_jobs(self, scope: Scope) -> list[JobReport]:
        """Read the jobs of all queued and running runs of the scope, all pages."""
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
