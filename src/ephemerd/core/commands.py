"""Everything that the core can ask the shell to do, in the imperative. Each answer is an event.

Commands carry no secret and no clock. Commands that create are idempotent by runner id; the two that
destroy carry what only the gate makes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.permit import FenceIntent, Permit


@dataclass(frozen=True, slots=True)
class Register:
    """Register a runner under its id as name; answered by `Registered` or `RegistrationFailed`.

    The executor keeps the credential that comes with it, by runner id, until `StartRunner`.
    """

    runner: RunnerId
    scope: Scope
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LookUpName:
    """Ask whether a registration of that name exists; answered by `NameLookedUp`."""

    runner: RunnerId
    scope: Scope


@dataclass(frozen=True, slots=True)
class StartRunner:
    """Start the environment with the credential that `Register` left with the executor; answered by
    `EnvironmentStarted` or `StartFailed` (also where the credential is lost)."""

    runner: RunnerId
    pool: str


@dataclass(frozen=True, slots=True)
class ProbeRunner:
    """Look inside, within the probe's deadline; answered by `Probed`."""

    runner: RunnerId
    pool: str
    environment: str
    token: int


@dataclass(frozen=True, slots=True)
class LookUpRunner:
    """One GET of the registration; answered by `RunnerLookedUp`."""

    runner: RunnerId
    scope: Scope
    registration: int
    token: int


@dataclass(frozen=True, slots=True)
class LookUpJob:
    """One GET of the job; answered by `JobLookedUp`."""

    job: JobKey
    scope: Scope
    token: int


@dataclass(frozen=True, slots=True)
class LookUpRun:
    """One GET of the job's run: whose work is it? Answered by `RunLookedUp`."""

    job: JobKey
    run: int
    scope: Scope
    token: int


@dataclass(frozen=True, slots=True)
class Deregister:
    """Ask the forge to deregister, as the intent allows; answered by `FenceAnswered`."""

    intent: FenceIntent
    token: int


@dataclass(frozen=True, slots=True)
class Destroy:
    """End the environment, as the permit allows; answered by `EnvironmentDestroyed`/`DestroyFailed`."""

    permit: Permit
    pool: str


@dataclass(frozen=True, slots=True)
class WatchRunner:
    """Attach to an environment that already runs (after a start of the daemon): signs and exit."""

    runner: RunnerId
    pool: str
    environment: str


@dataclass(frozen=True, slots=True)
class ListEnvironments:
    """List everything of ours on a host; answered by `EnvironmentsListed`."""

    host: str


@dataclass(frozen=True, slots=True)
class ListRegistrations:
    """List our registrations of a scope; answered by `RegistrationsListed`."""

    scope: Scope


@dataclass(frozen=True, slots=True)
class ListJobs:
    """Read the jobs of queued and running runs; in parts as `JobsRead`, then `JobsListed`."""

    scope: Scope


Command = (
    Register
    | LookUpName
    | StartRunner
    | ProbeRunner
    | LookUpRunner
    | LookUpJob
    | LookUpRun
    | Deregister
    | Destroy
    | WatchRunner
    | ListEnvironments
    | ListRegistrations
    | ListJobs
)
