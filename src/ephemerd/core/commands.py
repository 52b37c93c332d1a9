"""Everything that the core can ask the shell to do, in the imperative. Each answer is an event.

Commands carry no secret and no clock. Commands that create are idempotent by runner id; the two that
destroy carry what only the gate makes.
"""

from __future__ import annotations

from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.permit import FenceIntent, Permit
from ephemerd.domain.value import Value


class _Command(Value, frozen=True, tag=True, tag_field="kind"):
    """What all commands have: a name, by which they are told apart as plain data."""


class Register(_Command, frozen=True):
    """Register a runner under its id as name; answered by `Registered` or `RegistrationFailed`.

    The executor keeps the credential that comes with it, by runner id, until `StartRunner`.
    """

    runner: RunnerId
    scope: Scope
    labels: tuple[str, ...]


class LookUpName(_Command, frozen=True):
    """Ask whether a registration of that name exists; answered by `NameLookedUp`."""

    runner: RunnerId
    scope: Scope


class StartRunner(_Command, frozen=True):
    """Start the environment with the credential that `Register` left with the executor; answered by
    `EnvironmentStarted` or `StartFailed` (also where the credential is lost)."""

    runner: RunnerId
    pool: str


class ProbeRunner(_Command, frozen=True):
    """Look inside, within the probe's deadline; answered by `Probed`."""

    runner: RunnerId
    pool: str
    environment: str
    token: int


class LookUpRunner(_Command, frozen=True):
    """One GET of the registration; answered by `RunnerLookedUp`."""

    runner: RunnerId
    scope: Scope
    registration: int
    token: int


class LookUpJob(_Command, frozen=True):
    """One GET of the job; answered by `JobLookedUp`."""

    job: JobKey
    scope: Scope
    token: int


class LookUpRun(_Command, frozen=True):
    """One GET of the job's run: whose work is it? Answered by `RunLookedUp`."""

    job: JobKey
    run: int
    scope: Scope
    token: int


class Deregister(_Command, frozen=True):
    """Ask the forge to deregister, as the intent allows; answered by `FenceAnswered`."""

    intent: FenceIntent
    token: int


class Destroy(_Command, frozen=True):
    """End the environment, as the permit allows; answered by `EnvironmentDestroyed`/`DestroyFailed`."""

    permit: Permit
    pool: str


class WatchRunner(_Command, frozen=True):
    """Attach to an environment that already runs (after a start of the daemon): signs and exit."""

    runner: RunnerId
    pool: str
    environment: str


class ListEnvironments(_Command, frozen=True):
    """List everything of ours on a host; answered by `EnvironmentsListed`."""

    host: str


class ListRegistrations(_Command, frozen=True):
    """List our registrations of a scope; answered by `RegistrationsListed`."""

    scope: Scope


class ListJobs(_Command, frozen=True):
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
