"""Everything that can happen to the core, in the past tense. Answers of ports are events too.

Every event is a frozen value of plain domain data, so that it can be journalled and replayed. Times
inside events are ms of the shell clock. `token` repeats the number of the question that an answer
belongs to; answers to older questions are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ephemerd.domain.errors import Fault
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.job import JobReport, Origin, Told
from ephemerd.domain.pool import Setup
from ephemerd.domain.runner import FenceAnswer
from ephemerd.domain.value import Value, Word
from ephemerd.domain.verdict import ProbeReport, Sign

READ_AT_ONCE = 100
"""At most so many reports of a listing in one event: a turn stays short, and few are journalled."""


class _Event(Value, frozen=True, tag=True, tag_field="kind"):
    """What all events have: a name, by which they are told apart as plain data."""


class Booted(_Event, frozen=True):
    """A process life began. `epoch` is random, drawn by the shell; `store` the store's own id.

    `same_boot` is false when the machine was rebooted since the last life, so that no process can have
    survived. `held` names the pools whose runner application is not there, and why.
    """

    store: str
    epoch: str
    setup: Setup
    same_boot: bool = True
    held: tuple[tuple[str, str], ...] = ()


class Reconfigured(_Event, frozen=True):
    """The configuration was read anew within a process life; what it leaves out goes on until it is empty.
    `held` as in `Booted`."""

    who: str
    setup: Setup
    held: tuple[tuple[str, str], ...] = ()


class Woke(_Event, frozen=True):
    """The time that `next_wake()` named has come."""


class ClockStepped(_Event, frozen=True):
    """The wall clock moved by `by_ms` against the monotonic one; nothing ages by it."""

    by_ms: int


class MachineSlept(_Event, frozen=True):
    """The machine was suspended for `by_ms`: the shell clock went on, nothing ran, and nobody heard anything."""

    by_ms: int


class JobReported(_Event, frozen=True):
    """The forge said something of a job, by delivery (a listing comes as `JobsRead`)."""

    report: JobReport
    told: Told


class JobLookedUp(_Event, frozen=True):
    """Answer to `LookUpJob`: a report, or `missing` (the repository itself answers), or a fault."""

    job: JobKey
    token: int
    report: JobReport | None = None
    missing: bool = False
    fault: Fault | None = None


class RunLookedUp(_Event, frozen=True):
    """Answer to `LookUpRun`: whose work the job's run is, `missing` (the run is not found), or a fault."""

    job: JobKey
    token: int
    origin: Origin | None = None
    missing: bool = False
    fault: Fault | None = None


class Registered(_Event, frozen=True):
    runner: RunnerId
    registration: int


class RegistrationFailed(_Event, frozen=True):
    """`taken` is the id of the registration that already bears the name, where the forge says so."""

    runner: RunnerId
    fault: Fault
    taken: int | None = None


class NameLookedUp(_Event, frozen=True):
    """Answer to `LookUpName`: the registration's id, None where there is none, or a fault."""

    runner: RunnerId
    registration: int | None
    fault: Fault | None = None


class EnvironmentStarted(_Event, frozen=True):
    runner: RunnerId
    environment: str


class StartFailed(_Event, frozen=True):
    """The environment does not exist (anything half made was removed by the runtime)."""

    runner: RunnerId
    fault: Fault


class SignSeen(_Event, frozen=True):
    """A followed log, performance file or process table told something without being asked."""

    runner: RunnerId
    sign: Sign
    detail: str = ""


class EnvironmentExited(_Event, frozen=True):
    """Listener and worker are both proven gone. `leftovers`: processes of the job that still run."""

    runner: RunnerId
    code: int | None
    leftovers: int = 0


class Probed(_Event, frozen=True):
    """Answer to `ProbeRunner`: what was seen, or a fault (engine gone, deadline passed)."""

    runner: RunnerId
    token: int
    report: ProbeReport | None
    fault: Fault | None = None


class RunnerLookedUp(_Event, frozen=True):
    """Answer to `LookUpRunner`: the registration as the forge sees it, `missing`, or a fault.

    `connected` is false only where the forge says that the runner never connected (version null).
    """

    runner: RunnerId
    token: int
    busy: bool | None = None
    connected: bool | None = None
    missing: bool = False
    fault: Fault | None = None


class FenceAnswered(_Event, frozen=True):
    """Answer to `Deregister`. NO_ANSWER carries the fault."""

    runner: RunnerId
    registration: int
    token: int
    answer: FenceAnswer
    fault: Fault | None = None


class EnvironmentDestroyed(_Event, frozen=True):
    """Answer to `Destroy`: nothing of the environment runs any more."""

    runner: RunnerId
    environment: str


class DestroyFailed(_Event, frozen=True):
    """Answer to `Destroy`: the environment is (or may be) still there."""

    runner: RunnerId
    environment: str
    fault: Fault


class FoundEnvironment(Value, frozen=True):
    """One environment that bears our tag: which runner it is and whether it has ended."""

    runner: RunnerId
    environment: str
    pool: str
    ended: bool
    code: int | None = None
    leftovers: int = 0


class EnvironmentsListed(_Event, frozen=True):
    """Everything of ours on one host; `complete` is false where the list could not be read whole."""

    host: str
    found: tuple[FoundEnvironment, ...]
    complete: bool


class FoundRegistration(Value, frozen=True):
    name: str
    registration: int
    busy: bool
    online: bool


class RegistrationsListed(_Event, frozen=True):
    """The registrations of one scope whose names bear our store's id. Absence proves nothing."""

    scope: Scope
    found: tuple[FoundRegistration, ...]
    fault: Fault | None = None


class JobsRead(_Event, frozen=True):
    """A part of a listing of a scope's queued and running jobs: at most `READ_AT_ONCE` reports."""

    scope: Scope
    reports: tuple[JobReport, ...]


class JobsListed(_Event, frozen=True):
    """The jobs of queued and running runs of one scope were read; all came in `JobsRead` before this.

    repositories  those that were read wholly, in lower case; None: all of the scope. What is not among them says
                  nothing of its jobs
    as_of         where some were read alone: since when (ms) whatever is open in the scope was read anew, after
                  all of it was read once since this process life began; None: that cannot be said
    lively        something happened there lately, so that the next listing is not to be put off
    """

    scope: Scope
    jobs: int
    fault: Fault | None = None
    repositories: tuple[str, ...] | None = None
    as_of: int | None = None
    lively: bool = False


class ScopeAnswered(_Event, frozen=True):
    """A call on the scope answered normally, or its rate limit was hit until `limited_until`."""

    scope: Scope
    limited_until: int | None = None


def read_in_parts(scope: Scope, reports: Sequence[JobReport]) -> Iterator[JobsRead]:
    """Cut a listing into the events that carry it."""
    for start in range(0, len(reports), READ_AT_ONCE):
        yield JobsRead(scope, tuple(reports[start : start + READ_AT_ONCE]))


class ApplicationTold(_Event, frozen=True):
    """What a pool's runners are made from was looked at. `missing` says why none can be started; empty: they can,
    and by another runner application than the one that the forge refused, if it refused one."""

    pool: str
    missing: str = ""


class Target(Word):
    ALL = "all"
    POOL = "pool"
    HOST = "host"


class CordonOrdered(_Event, frozen=True):
    who: str
    target: Target
    name: str = ""
    reason: str = ""


class UncordonOrdered(_Event, frozen=True):
    who: str
    target: Target
    name: str = ""


class DrainOrdered(_Event, frozen=True):
    who: str
    target: Target
    name: str = ""
    reason: str = ""


class KillOrdered(_Event, frozen=True):
    who: str
    runner: RunnerId
    reason: str
    even_if_busy: bool = False


class SweepOrdered(_Event, frozen=True):
    """Evaluate all nomination rules now (as after a completed job)."""


Event = (
    Booted
    | Reconfigured
    | Woke
    | ClockStepped
    | MachineSlept
    | JobReported
    | JobLookedUp
    | RunLookedUp
    | Registered
    | RegistrationFailed
    | NameLookedUp
    | EnvironmentStarted
    | StartFailed
    | SignSeen
    | EnvironmentExited
    | Probed
    | RunnerLookedUp
    | FenceAnswered
    | EnvironmentDestroyed
    | DestroyFailed
    | EnvironmentsListed
    | RegistrationsListed
    | JobsRead
    | JobsListed
    | ScopeAnswered
    | ApplicationTold
    | CordonOrdered
    | UncordonOrdered
    | DrainOrdered
    | KillOrdered
    | SweepOrdered
)
