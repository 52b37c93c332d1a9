"""What really is: jobs at the forge, registrations, environments. The monitor judges by these alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from ephemerd.domain.ids import JobKey, Scope
from ephemerd.domain.verdict import Sign


@dataclass(slots=True, eq=False)
class Matrix:
    """Jobs of one run of which only `limit` may be under way at once; `active` are (assigned or later)."""

    limit: int
    active: int = 0

    def full(self) -> bool:
        return self.active >= self.limit


@dataclass(slots=True, eq=False)
class TrueJob:
    """A job at the forge. Times are ms; `status` is queued, waiting, in_progress or completed.

    counted   it is one of the jobs that were asked for, not one of the weather's extra ones
    queued    when it was last let into the queue: at first, or when it was approved
    fate      how it ended: ran, killed, cancelled, foreign, rejected, broken, ordered; "" while it has not
    trick     the forge tells its start and its cancelled end in one batch, and no runner hears of it
    unwanted  a person will ask, during the job, to kill its runner
    assigned, worker   when it was last handed to a runner, and when its worker started
    returned  when it last came back to the queue because its runner was taken away
    waited    ms for which it could have been served and was not, since one of its class was
    """

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
    trick: bool = False
    attempt: int = 1
    matrix: Matrix | None = None
    returned: int | None = None
    waited: int = 0
    unwanted: bool = False
    assigned: int | None = None
    worker: int | None = None


@dataclass(slots=True, eq=False)
class TrueRegistration:
    """A runner as the forge knows it. `holds` is the job assigned to it, from the assignment on.

    lag       how long (ms) after an assignment its busy flag begins to show
    revoked   it was taken away between the assignment and the acquisition
    """

    id: int
    name: str
    scope: Scope
    labels: tuple[str, ...]
    made: int = 0
    online: bool = False
    connected: bool = False
    picked: bool = False
    holds: TrueJob | None = None
    assigned: int = 0
    acquired: bool = False
    lag: int = 0
    revoked: bool = False
    taken_by_mistake: bool = False

    def held(self) -> TrueJob | None:
        """Return the job that the forge believes it holds."""
        job = self.holds
        return job if job is not None and job.status != "completed" else None


@dataclass(slots=True, eq=False)
class TrueEnvironment:
    """An environment with its listener and, while a job runs, its worker.

    offered, announced, ended   when the listener's lines appeared
    left      when it came to its end, by itself or by us
    over      its job's work is done, whether or not the worker leaves
    ordered   a person's order or limit asked its listener to stop
    followed  the life of the daemon that follows its files and waits for its end
    """

    name: str
    pool: str
    registration: TrueRegistration
    reference: str
    made: int = 0
    alive: bool = True
    booted: bool = False
    booted_at: int | None = None
    worker: bool = False
    worker_at: int | None = None
    job: TrueJob | None = None
    offered: int | None = None
    announced: int | None = None
    ended: int | None = None
    over: bool = False
    code: int | None = None
    listed_ended: bool = False
    stopping: bool = False
    ordered: bool = False
    ignores_stop: bool = False
    removed: bool = False
    left: int | None = None
    fault: str = ""
    followed: int = 0
    signs: list[tuple[Sign, str]] = field(default_factory=list)

    def executing(self) -> bool:
        """Say whether a job that it acquired is not over: to end it now is a kill."""
        return self.alive and self.announced is not None and self.job is not None and not self.over

    def holding(self) -> bool:
        """Say whether a job is bound to it: from the assignment to the end of the job's work."""
        if not self.alive:
            return False
        return self.registration.holds is not None or self.executing()


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken promise: its kind, whose story tells of it, when (ms), and one sentence."""

    kind: str
    subject: str
    at: int
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text} (at {self.at} ms, {self.subject or 'the daemon'})"


@dataclass(slots=True)
class Outcome:
    """Counts by the truth, named as everywhere.

    runners   registrations that were made; `used` those that acquired a job
    broken    runners without a job that the weather broke (ghost, hang, exit without a job, an answer that
              was lost on its way, or with the process that waited for it or held it)
    failed    jobs that the weather made fail: their runner hung after the acknowledgement
    waits     ms from queued to the worker's start
    again     ms from a disturbance to the next acquisition of the job
    working, holding   ms for which environments executed a job, and for which they were there at all
    """

    jobs: int = 0
    completed: int = 0
    killed: int = 0
    disturbed: int = 0
    lost: int = 0
    leaked: int = 0
    abandoned: int = 0
    cancelled: int = 0
    foreign: int = 0
    broken: int = 0
    failed: int = 0
    ordered: int = 0
    runners: int = 0
    used: int = 0
    fence_calls_while_held: int = 0
    fences_accepted_while_held: int = 0
    gate_runs: int = 0
    gate_runs_holding_job: int = 0
    waits: list[int] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    working: int = 0
    holding: int = 0
    calls: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """The findings as sentences."""
        return [str(finding) for finding in self.findings]

    @property
    def unused(self) -> int:
        """Runners that never got a job."""
        return self.runners - self.used

    @property
    def wasted(self) -> int:
        """Runners that never got a job, less what the load and the weather explain."""
        return max(0, self.unused - self.cancelled - self.foreign - self.broken)

    def found(self, kind: str, subject: str, at: int, text: str) -> None:
        """Note a broken promise."""
        self.findings.append(Finding(kind, subject, at, text))

    def happened(self, what: str) -> None:
        """Count one of the weather's events, by its key in the weather file."""
        self.seen[what] = self.seen.get(what, 0) + 1
