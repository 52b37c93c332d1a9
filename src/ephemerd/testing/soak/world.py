"""A world of jobs, registrations and environments, and the ports by which a daemon sees it.

Only what is open is kept, so that whatever grows is the daemon's. Times are virtual seconds of the loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from ephemerd.core.events import FoundEnvironment
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.job import ForgeStatus, JobReport, Origin
from ephemerd.domain.permit import FenceIntent, Permit
from ephemerd.domain.runner import FenceAnswer
from ephemerd.domain.verdict import Files, Listing, ProbeReport, Sign
from ephemerd.ports.errors import Broken, Gone, Refused
from ephemerd.ports.forge import (
    Audit,
    Budget,
    CallRecord,
    ForgeRunner,
    Glance,
    JobsSeen,
    Look,
    Registration,
    RepositoriesSeen,
    RunSeen,
)
from ephemerd.ports.runtime import RuntimeSink, StartOrder
from ephemerd.ports.webhooks import Delivery

FORGE = "github"
SCOPE = Scope(FORGE, "repo:acme/app")
LABELS = ("linux", "self-hosted")
EPOCH_MS = 1_800_000_000_000

BOOT, NOTICE, LEAVE = 5.0, 1.0, 2.0
"""Seconds from start to listening, between the steps of taking a job, and from its end to the exit."""
REDELIVER = 60.0

Deliver = Callable[[str, JobReport], Awaitable[bool]]
"""Sends a delivery with its id; says whether it was taken."""


@dataclass(slots=True)
class WorldJob:
    number: int
    status: ForgeStatus = ForgeStatus.QUEUED
    runner: str | None = None
    conclusion: str | None = None

    def report(self) -> JobReport:
        return JobReport(
            JobKey(FORGE, "acme/app", self.number),
            self.status,
            LABELS,
            name="build",
            run_id=self.number,
            runner_name=self.runner,
            conclusion=self.conclusion,
        )


@dataclass(slots=True)
class Environment:
    """An environment that runs, or has ended and waits to be cleaned up."""

    runner: RunnerId
    registration: int
    listening: bool = False
    job: WorldJob | None = None
    announced: int | None = None
    ended: bool = False


@dataclass(slots=True)
class Rates:
    """How often things go wrong, as shares of one."""

    cancelled: float = 0.04
    doubled: float = 0.02
    start_fails: float = 0.005
    leaves_early: float = 0.005


@dataclass
class Outcome:
    """What became of jobs and runners, by the world."""

    jobs: int = 0
    completed: int = 0
    cancelled: int = 0
    killed: int = 0
    destroyed: int = 0


@dataclass
class World:
    """Jobs arrive every `gap` seconds until `jobs` have come; a job runs for `seconds` on average."""

    jobs: int
    gap: float
    seconds: float = 60.0
    seed: int = 1
    rates: Rates = field(default_factory=Rates)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.loop = asyncio.get_running_loop()
        self.outcome = Outcome()
        self.open: dict[int, WorldJob] = {}
        self.registrations: dict[int, RunnerId] = {}
        self.environments: dict[RunnerId, Environment] = {}
        self.deliver: Deliver | None = None
        self.sink: RuntimeSink | None = None
        self.over = asyncio.Event()
        self._numbers = 0
        self._deliveries = 0
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def left(self) -> int:
        """Registrations and environments that are still there."""
        return len(self.registrations) + len(self.environments)

    def begin(self) -> None:
        """Let jobs arrive from now on."""
        self.loop.call_later(self.gap, self._arrive)

    def _arrive(self) -> None:
        self.outcome.jobs += 1
        job = WorldJob(self.outcome.jobs)
        self.open[job.number] = job
        self._tell(job)
        if self.rng.random() < self.rates.cancelled:
            self.loop.call_later(self.rng.uniform(1, 20), self._cancel, job)
        if self.outcome.jobs < self.jobs:
            self.loop.call_later(self.gap, self._arrive)
        self._assign()

    def _cancel(self, job: WorldJob) -> None:
        if job.status is ForgeStatus.QUEUED and job.runner is None:
            self.outcome.cancelled += 1
            self._end(job, "cancelled")

    def _end(self, job: WorldJob, conclusion: str) -> None:
        job.status, job.conclusion = ForgeStatus.COMPLETED, conclusion
        del self.open[job.number]
        self._tell(job)
        if self.outcome.jobs == self.jobs and not self.open:
            self.over.set()

    def _tell(self, job: WorldJob) -> None:
        self._deliveries += 1
        report, name = job.report(), f"d{self._deliveries}"
        for _ in range(2 if self.rng.random() < self.rates.doubled else 1):
            self._begin(name, report)

    def _begin(self, name: str, report: JobReport) -> None:
        task = self.loop.create_task(self._send(name, report))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, name: str, report: JobReport) -> None:
        assert self.deliver is not None
        if not await self.deliver(name, report):
            self.loop.call_later(REDELIVER, self._begin, name, report)

    def _assign(self) -> None:
        """Give each queued job, oldest first, a runner that listens and is still registered."""
        free = [
            one
            for one in self.environments.values()
            if one.listening and one.job is None and not one.ended and one.registration in self.registrations
        ]
        queued = (job for job in self.open.values() if job.runner is None)
        for environment, job in zip(free, queued, strict=False):
            environment.job, job.runner = job, environment.runner
            self.loop.call_later(NOTICE, self._announce, environment)

    def _announce(self, environment: Environment) -> None:
        job = environment.job
        if environment.ended or job is None:
            return
        environment.announced = self.now()
        job.status = ForgeStatus.IN_PROGRESS
        self._sign(environment, Sign.ANNOUNCED, f"job {job.number}")
        self._sign(environment, Sign.WORKER, "worker 1")
        self._tell(job)
        self.loop.call_later(self.rng.uniform(0.2, 1.8) * self.seconds, self._finish, environment)

    def _finish(self, environment: Environment) -> None:
        job = environment.job
        if environment.ended or job is None:
            return
        self._sign(environment, Sign.ENDED, f"job {job.number}")
        self.registrations.pop(environment.registration, None)
        self.outcome.completed += 1
        self._end(job, "success")
        self.loop.call_later(LEAVE, self.exit, environment, 0)

    def exit(self, environment: Environment, code: int) -> None:
        """The environment's processes are gone; its remains stay until they are cleaned up."""
        if environment.ended:
            return
        environment.ended, environment.job = True, None
        if self.sink is not None:
            self.sink.exited(environment.runner, code, 0)

    def start(self, runner: RunnerId, registration: int) -> None:
        environment = self.environments[runner] = Environment(runner, registration)
        self.loop.call_later(BOOT, self._listen, environment)

    def _listen(self, environment: Environment) -> None:
        if environment.ended:
            return
        if self.rng.random() < self.rates.leaves_early:
            self.exit(environment, 1)
            return
        environment.listening = True
        self._sign(environment, Sign.LISTENING, "")
        self._assign()

    def _sign(self, environment: Environment, sign: Sign, detail: str) -> None:
        if self.sink is not None:
            self.sink.sign(environment.runner, sign, detail)

    def now(self) -> int:
        """Shell time, ms."""
        return EPOCH_MS + round(self.loop.time() * 1000)

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers


class WorldClock:
    """The shell clock over virtual time."""

    def __init__(self, world: World) -> None:
        self.now = world.now

    def start(self, last: tuple[int, str, int] | None) -> bool:
        return last is not None

    def mark(self) -> tuple[int, str, int]:
        now = self.now()
        return now, "boot", now

    def stepped(self) -> int:
        return 0

    def slept(self) -> int:
        return 0


class WorldWebhooks:
    """Deliveries come parsed already: the report travels beside the body."""

    name = FORGE

    def __init__(self) -> None:
        self.reports: dict[str, JobReport] = {}

    def receive(self, headers: Mapping[str, str], body: bytes) -> Delivery:
        name = headers["x-delivery"]
        return Delivery(name, "workflow_job", self.reports[name])


class WorldForge:
    """The forge port."""

    name = FORGE

    def __init__(self, world: World) -> None:
        self._world = world
        self._calls: list[CallRecord] = []

    async def register(self, scope: Scope, name: RunnerId, labels: tuple[str, ...]) -> Registration:
        number = self._world.next_number()
        self._world.registrations[number] = name
        self._called("register")
        return Registration(number, str(number))

    async def deregister(self, scope: Scope, registration: int, intent: FenceIntent) -> FenceAnswer:
        self._called("deregister")
        name = self._world.registrations.get(registration)
        if name is None:
            return FenceAnswer.NOT_FOUND
        environment = self._world.environments.get(name)
        if environment is not None and environment.job is not None:
            return FenceAnswer.REFUSED
        del self._world.registrations[registration]
        return FenceAnswer.ACCEPTED

    async def runner(self, scope: Scope, registration: int) -> ForgeRunner:
        self._called("runner")
        if registration not in self._world.registrations:
            raise Gone("no such registration")
        return self._seen(registration)

    async def find(self, scope: Scope, name: RunnerId) -> ForgeRunner | None:
        self._called("runners")
        found = [number for number, owner in self._world.registrations.items() if owner == name]
        return self._seen(found[0]) if found else None

    async def runners(self, scope: Scope) -> list[ForgeRunner]:
        self._called("runners")
        return [self._seen(number) for number in self._world.registrations]

    async def job(self, key: JobKey) -> JobReport:
        self._called("job")
        job = self._world.open.get(key.id)
        if job is None:
            raise Gone("no such job")
        return job.report()

    async def origin(self, repository: str, run: int) -> Origin:
        self._called("run")
        return Origin(public=False, fork=False)

    async def active_jobs(
        self, repository: str, look: Look = Look.WHOLE, again: frozenset[int] = frozenset()
    ) -> JobsSeen:
        self._called("jobs")
        reports = tuple(job.report() for job in self._world.open.values())
        return JobsSeen(reports, look is Look.WHOLE, len(reports), 1, 1)

    async def audit(self, repository: str, explains: Callable[[RunSeen], bool]) -> Audit:
        self._called("jobs")
        strange = [job for job in self._world.open.values() if not explains(RunSeen(job.number, over=False))]
        return Audit(True, tuple(job.report() for job in strange), len(self._world.open), asked=1, charged=1)

    async def glance(self, repository: str) -> Glance:
        self._called("jobs")
        return Glance(True, max(self._world.open, default=0), bool(self._world.open), 1)

    def glance_is_free(self, repository: str) -> bool:
        return False

    def audit_is_free(self, repository: str) -> bool:
        return False

    async def repositories(self, owner: str) -> RepositoriesSeen:
        raise Refused("there is one repository")

    def budgets(self) -> tuple[Budget, ...]:
        return ()

    def take_calls(self) -> list[CallRecord]:
        taken, self._calls = self._calls, []
        return taken

    async def close(self) -> None:
        return None

    def _called(self, endpoint: str) -> None:
        self._calls.append(CallRecord(endpoint, 200, 0.0))

    def _seen(self, number: int) -> ForgeRunner:
        name = self._world.registrations[number]
        environment = self._world.environments.get(name)
        busy = environment is not None and environment.job is not None
        online = environment is not None and environment.listening and not environment.ended
        return ForgeRunner(number, name, online, busy, LABELS, online)


class WorldRuntime:
    """The runtime port."""

    kind = "process"
    probes = True

    def __init__(self, world: World) -> None:
        self._world = world
        self.tidied = 0

    def attach(self, sink: RuntimeSink) -> None:
        self._world.sink = sink

    async def start(self, order: StartOrder) -> str:
        if self._world.rng.random() < self._world.rates.start_fails:
            raise Broken("no space left on device")
        if order.runner not in self._world.environments:
            self._world.start(order.runner, int(order.credential))
        return f"world:{order.runner}"

    async def watch(self, runner: RunnerId, pool: str, environment: str) -> None:
        if runner not in self._world.environments:
            raise Gone("no such environment")

    async def probe(self, runner: RunnerId, environment: str) -> ProbeReport:
        found = self._world.environments.get(runner)
        if found is None:
            raise Gone("no such environment")
        works = found.job is not None and found.announced is not None
        return ProbeReport(
            listing=Listing.COMPLETE,
            workers=int(works),
            strangers=0,
            listener_alive=not found.ended,
            files=Files.HEALTHY,
            listening=found.listening,
            offered_at=None,
            announced_at=found.announced if works else None,
            ended_at=None,
            probe="world",
            detail="1 worker" if works else "no worker",
        )

    async def destroy(self, environment: str, permit: Permit) -> None:
        found = self._world.environments.pop(permit.runner, None)
        if found is None:
            return
        if not found.ended:
            self._world.outcome.destroyed += 1
            self._world.outcome.killed += int(found.job is not None)
            self._world.exit(found, 143)

    async def list(self, store: str) -> list[FoundEnvironment]:
        return [
            FoundEnvironment(
                one.runner, f"world:{one.runner}", "linux", one.ended, 0 if one.ended else None, 0
            )
            for one in self._world.environments.values()
        ]

    async def tidy(self) -> None:
        self.tidied += 1

    async def close(self) -> None:
        self._world.sink = None
