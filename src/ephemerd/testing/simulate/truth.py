"""What really is: jobs at the forge, registrations, environments. The monitor judges by these alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from ephemerd.domain.ids import JobKey, Scope
from ephemerd.domain.verdict import Sign


@dataclass(slots=True, eq=False)
class TrueJob:
    """A job at the forge. Times are ms; `status` is queued, waiting, in_progress or completed."""

    key: JobKey
    labels: tuple[str, ...]
    duration: int
    queued: int
    counted: bool = True
    status: str = "queued"
    held_by: str | None = None
    runner: str | None = None
    registration: int | None = None
    conclusion: str | None = None
    started: int | None = None
    ended: int | None = None
    fate: str = ""
    offers: int = 0


@dataclass(slots=True, eq=False)
class TrueRegistration:
    """A runner as the forge knows it. `holds` is the job assigned to it, from the assignment on."""

    id: int
    name: str
    scope: Scope
    labels: tuple[str, ...]
    online: bool = False
    connected: bool = False
    picked: bool = False
    holds: TrueJob | None = None
    acquired: bool = False


@dataclass(slots=True, eq=False)
class TrueEnvironment:
    """An environment with its listener and, while a job runs, its worker."""

    name: str
    pool: str
    registration: TrueRegistration
    reference: str
    alive: bool = True
    booted: bool = False
    worker: bool = False
    job: TrueJob | None = None
    offered: int | None = None
    announced: int | None = None
    ended: int | None = None
    code: int | None = None
    listed_ended: bool = False
    stopping: bool = False
    removed: bool = False
    fault: str = ""
    signs: list[tuple[Sign, str]] = field(default_factory=list)

    def holding(self) -> bool:
        """Say whether a job is bound to it, from the assignment to the worker's end."""
        return self.alive and (self.registration.holds is not None or self.worker)


@dataclass(slots=True)
class Outcome:
    """Counts by the truth, named as everywhere."""

    jobs: int = 0
    completed: int = 0
    killed: int = 0
    disturbed: int = 0
    lost: int = 0
    leaked: int = 0
    cancelled: int = 0
    foreign: int = 0
    broken: int = 0
    runners: int = 0
    unused: int = 0
    fence_calls_while_held: int = 0
    gate_runs_holding_job: int = 0
    waits: list[int] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def wasted(self) -> int:
        """Runners that never got a job, less what the load and the weather explain."""
        return max(0, self.unused - self.cancelled - self.foreign - self.broken)
