"""A small world around one core: a clock, a store of rows, and answers that a test gives as it likes.

Nothing is answered by itself but the listings, and those only while `lists` is true: they show what the
test said is true (`environments`, `waiting`). After every event the state is validated, and the rows that
a store would hold are kept as it would hold them, so that `reborn()` is what a restart would find.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from msgspec.structs import replace

from ephemerd.core import codec
from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.machine import Core
from ephemerd.core.step import Step
from ephemerd.core.validate import validate
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.job import ForgeStatus, Job, JobReport, Told
from ephemerd.domain.pool import Host, Policy, Pool, Setup
from ephemerd.domain.runner import Decision, FenceAnswer, Runner
from ephemerd.domain.verdict import Files, Listing, ProbeReport, Sign
from tests.unit.core.checks import check

APP = Scope("github", "repo:acme/app")
LIB = Scope("github", "repo:acme/lib")
ORG = Scope("github", "org:acme")
LABELS = ("linux", "self-hosted")
GPU = ("gpu", "linux", "self-hosted")
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
START = 1_000_000
NO_ANSWER = Fault(Remedy.RETRY, "no answer within 10 s")

C = TypeVar("C")


def pool(name: str = "small", **changes: Any) -> Pool:
    """Return a pool of the repository acme/app with two labels, on host `here`."""
    plain = Pool(name=name, scope=APP, labels=LABELS, host="here", runtime="process", max_concurrent=100)
    return replace(plain, **changes)


def key(number: int, repository: str = "acme/app") -> JobKey:
    return JobKey("github", repository, number)


def report(number: int, status: ForgeStatus, *, repository: str = "acme/app", **fields: Any) -> JobReport:
    """Return what the forge says of a job; labels are the small pool's unless given."""
    labels = fields.pop("labels", LABELS)
    return JobReport(key(number, repository), status, labels, **fields)


def seen(**changes: Any) -> ProbeReport:
    """Return a probe's report of a quiet listener."""
    idle = ProbeReport(
        listing=Listing.COMPLETE,
        workers=0,
        strangers=0,
        listener_alive=True,
        files=Files.HEALTHY,
        listening=True,
        offered_at=None,
        announced_at=None,
        ended_at=None,
        probe="process",
        detail="",
    )
    return replace(idle, **changes)


class World:
    """One core, and what a test makes of the world around it."""

    def __init__(
        self,
        *pools: Pool,
        slots: int = 4,
        hosts: tuple[Host, ...] | None = None,
        policy: Policy | None = None,
        lists: bool = True,
    ) -> None:
        self.setup = Setup(pools or (pool(),), hosts or (Host("here", slots),), policy or Policy())
        self.core = Core()
        self.now = START
        self.lists = lists
        self.strict = True
        self.sent: list[cm.Command] = []
        self.steps: list[Step] = []
        self.stored: dict[str, dict[str, Any]] = {}
        self.environments: dict[str, ev.FoundEnvironment] = {}
        self.registrations: dict[str, ev.FoundRegistration] = {}
        self.waiting: dict[JobKey, JobReport] = {}
        self._epochs = 0
        self._numbers = 100
        self.boot()

    # -- the clock and the store ---------------------------------------------------------------------

    def boot(self, *, same_boot: bool = True, setup: Setup | None = None) -> Step:
        """Begin a process life."""
        self._epochs += 1
        self.setup = setup or self.setup
        return self.feed(ev.Booted("s1", f"e{self._epochs}", self.setup, same_boot))

    def restart(self, *, down: int = 0, same_boot: bool = True, setup: Setup | None = None) -> Step:
        """Die, stay down for `down` ms, and begin again from what was stored."""
        self.now += down
        self.core = self.reborn()
        return self.boot(same_boot=same_boot, setup=setup)

    def reborn(self) -> Core:
        """Return the core that the stored rows make."""
        rows = {
            kind: {name: codec.decode_row(kind, row) for name, row in found.items()}
            for kind, found in self.stored.items()
        }
        return Core(rows, self.now)

    def feed(self, event: ev.Event) -> Step:
        """Hand one event in at the present time, store its rows, and check the state."""
        step = self.core.handle(event, self.now)
        check(step)
        self.steps.append(step)
        for kind, name, row in step.changed:
            rows = self.stored.setdefault(kind, {})
            if row is None:
                rows.pop(name, None)
            else:
                rows[name] = codec.encode_row(kind, row)
        assert not self.strict or validate(self.core.state) == []
        index = self.core.state.index
        assert (index.dirty_groups, index.dirty_varieties, index.advanced) == ({}, {}, {})
        self.sent.extend(step.commands)
        for command in step.commands:
            self._list(command)
        return step

    def wait(self, ms: int) -> tuple[cm.Command, ...]:
        """Let time pass, waking the core whenever it asked for it; return what it sent meanwhile."""
        first, until = len(self.sent), self.now + ms
        while (wake := self.core.next_wake()) is not None and wake <= until:
            self.now = max(self.now, wake)
            self.feed(ev.Woke())
            again = self.core.next_wake()
            assert again is None or again > self.now, f"woken for {again} at {self.now}, and again"
        self.now = until
        return tuple(command for command in self.sent[first:])

    def _list(self, command: cm.Command) -> None:
        if not self.lists:
            return
        if isinstance(command, cm.ListEnvironments):
            found = tuple(self.environments.values())
            self.feed(ev.EnvironmentsListed(command.host, found, complete=True))
        elif isinstance(command, cm.WatchRunner) and self.runner(command.runner).absent is not None:
            if command.runner not in self.environments:
                self.feed(ev.EnvironmentExited(command.runner, None))
        elif isinstance(command, cm.ListRegistrations):
            self.feed(ev.RegistrationsListed(command.scope, tuple(self.registrations.values())))
        elif isinstance(command, cm.ListJobs):
            for found_job in list(self.waiting.values()):
                if command.scope.serves(found_job.key):
                    self.feed(ev.JobReported(found_job, Told.LISTING))
            self.feed(ev.JobsListed(command.scope, len(self.waiting)))

    # -- what the forge tells ------------------------------------------------------------------------

    def told(self, said: JobReport, told: Told = Told.WEBHOOK) -> Step:
        """The forge says something of a job."""
        if said.status in (ForgeStatus.COMPLETED, ForgeStatus.WAITING):
            self.waiting.pop(said.key, None)
        elif said.status is not ForgeStatus.OTHER:
            self.waiting[said.key] = said
        return self.feed(ev.JobReported(said, told))

    def queued(self, *numbers: int, **fields: Any) -> tuple[cm.Command, ...]:
        """Jobs are queued; return all commands that followed."""
        first = len(self.sent)
        for number in numbers:
            self.told(report(number, ForgeStatus.QUEUED, **fields))
        return tuple(self.sent[first:])

    def in_progress(self, number: int, runner: str | None = None, **fields: Any) -> Step:
        return self.told(report(number, ForgeStatus.IN_PROGRESS, runner_name=runner, **fields))

    def completed(self, number: int, runner: str | None = None, how: str = "success", **fields: Any) -> Step:
        said = report(number, ForgeStatus.COMPLETED, runner_name=runner, conclusion=how, **fields)
        return self.told(said)

    # -- a runner's way ------------------------------------------------------------------------------

    def planned(self, *numbers: int, **fields: Any) -> list[RunnerId]:
        """Queue jobs and return the runners that were planned for them."""
        sent = self.queued(*numbers, **fields)
        return [command.runner for command in of(sent, cm.Register)]

    def registered(self, runner: RunnerId) -> Step:
        self._numbers += 1
        self.registrations[runner] = ev.FoundRegistration(runner, self._numbers, busy=False, online=True)
        return self.feed(ev.Registered(runner, self._numbers))

    def started(self, runner: RunnerId) -> Step:
        row = self.runner(runner)
        found = ev.FoundEnvironment(runner, f"env-{runner}", row.pool, ended=False)
        self.environments[runner] = found
        return self.feed(ev.EnvironmentStarted(runner, found.environment))

    def listening(self, *numbers: int, **fields: Any) -> list[RunnerId]:
        """Queue jobs and bring the runners that are planned for them to `listening`."""
        runners = self.planned(*numbers, **fields)
        for name in runners:
            self.registered(name)
            self.started(name)
            self.sign(name, Sign.LISTENING)
        return runners

    def doubted(self, number: int) -> RunnerId:
        """The one slot becomes free for a job that has waited for longer than its word holds: the forge is asked
        about it. Returns the runner that left."""
        (name,) = self.listening(9)
        self.in_progress(9, name)
        self.queued(number)
        self.wait(61 * SECOND)
        self.exited(name)
        return name

    def sign(self, runner: RunnerId, sign: Sign, detail: str = "") -> Step:
        return self.feed(ev.SignSeen(runner, sign, detail))

    def exited(self, runner: RunnerId, code: int | None = 0, leftovers: int = 0) -> Step:
        """The environment ends by itself; what remains of it is listed as ended."""
        if runner in self.environments:
            self.environments[runner] = replace(self.environments[runner], ended=True, code=code)
        return self.feed(ev.EnvironmentExited(runner, code, leftovers))

    def destroyed(self, command: cm.Destroy) -> Step:
        """An environment is gone, remains and all."""
        self.environments.pop(command.permit.runner, None)
        return self.feed(ev.EnvironmentDestroyed(command.permit.runner, command.permit.environment))

    def deregistered(self, command: cm.Deregister, answer: FenceAnswer = FenceAnswer.ACCEPTED) -> Step:
        intent = command.intent
        if answer is FenceAnswer.ACCEPTED:
            self.registrations.pop(intent.runner, None)
        fault = NO_ANSWER if answer is FenceAnswer.NO_ANSWER else None
        return self.feed(ev.FenceAnswered(intent.runner, intent.registration, command.token, answer, fault))

    def probed(self, command: cm.ProbeRunner, found: ProbeReport | None = None) -> Step:
        return self.feed(ev.Probed(command.runner, command.token, found or seen()))

    def job_answer(self, command: cm.LookUpJob, status: ForgeStatus | None, **fields: Any) -> Step:
        """Answer a question about a job: with a status, or "not found" where it is None."""
        if status is None:
            return self.feed(ev.JobLookedUp(command.job, command.token, missing=True))
        said = JobReport(command.job, status, fields.pop("labels", LABELS), **fields)
        return self.feed(ev.JobLookedUp(command.job, command.token, said))

    def job_fault(self, command: cm.LookUpJob, fault: Fault = NO_ANSWER) -> Step:
        return self.feed(ev.JobLookedUp(command.job, command.token, fault=fault))

    # -- looking -------------------------------------------------------------------------------------

    def job(self, number: int, repository: str = "acme/app") -> Job:
        return self.core.state.jobs[key(number, repository)]

    def runner(self, name: str) -> Runner:
        return self.core.state.runners[RunnerId(name)]

    def knows(self, name: str) -> bool:
        return RunnerId(name) in self.core.state.runners

    @property
    def held(self) -> int:
        return self.core.state.slots_held("here")

    def last(self, kind: type[C]) -> C:
        """Return the latest command of a kind."""
        return of(self.sent, kind)[-1]

    def count(self, kind: type[Any]) -> int:
        return len(of(self.sent, kind))

    def counter(self, name: str) -> int:
        return self.core.state.counters.get(name, 0)

    @property
    def notes(self) -> list[str]:
        return [note.text for step in self.steps for note in step.notes]

    @property
    def decisions(self) -> list[Decision]:
        return [decision for step in self.steps for decision in step.decisions]


def of(commands: Iterable[cm.Command], kind: type[C]) -> list[C]:
    """Return the commands of one kind, in order."""
    return [command for command in commands if isinstance(command, kind)]
