"""A fresh core to put questions to: pools, jobs, runners in any state, and the answers of ports.

    world = World(pool(surplus_grace=0))
    name = world.listening()
    step = world.kill(name)
    assert step.commands == (probe_of(name, ...),)

Nothing here decides anything: every helper is one event, or a few in a row, handed to the real core.
"""

from __future__ import annotations

import itertools
from typing import Any

from ephemerd.core import codec
from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.machine import Core
from ephemerd.core.step import Step
from ephemerd.core.validate import validate
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.job import ForgeStatus, JobReport, JobStatus, Told
from ephemerd.domain.pool import Host, Policy, Pool, Setup
from ephemerd.domain.runner import FINAL, FenceAnswer, GatePhase, GateRun, Runner
from ephemerd.domain.verdict import Files, Listing, ProbeReport, Sign
from tests.unit.core.checks import check

SCOPE = Scope("github", "repo:acme/app")
LABELS = ("linux", "self-hosted")
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
START = 1_000_000
RETRY = Fault(Remedy.RETRY, "timed out")


def pool(name: str = "linux", **changes: Any) -> Pool:
    """A pool of `LABELS` on host "local" in `SCOPE`, changed as wanted."""
    fields: dict[str, Any] = {"scope": SCOPE, "labels": LABELS, "host": "local", "runtime": "process"}
    return Pool(name, **(fields | changes))


def report(**changes: Any) -> ProbeReport:
    """What a probe saw: by default a listener that listens, everything read, everything quiet."""
    fields: dict[str, Any] = {
        "listing": Listing.COMPLETE,
        "workers": 0,
        "strangers": 0,
        "listener_alive": True,
        "files": Files.HEALTHY,
        "listening": True,
        "offered_at": None,
        "announced_at": None,
        "ended_at": None,
        "probe": "process",
        "detail": "",
    }
    return ProbeReport(**(fields | changes))


IDLE = report()
BUSY = report(workers=1)
UNKNOWN = report(listing=Listing.PARTIAL)


class World:
    """A booted core at `now` (ms). `step` is the last step, `sent` every command so far.

    Listings, and look-ups outside the gate, are answered at once from the rows where `answers` is true.
    """

    def __init__(
        self, *pools: Pool, slots: int = 4, policy: Policy | None = None, answers: bool = True
    ) -> None:
        self.setup = Setup(pools or (pool(),), (Host("local", slots),), policy or Policy())
        self.core, self.now, self.answers = Core(), START, answers
        self.sent: list[cm.Command] = []
        self.decisions: list[Any] = []
        self.unregistered: set[str] = set()
        self._jobs = itertools.count(101)
        self._registrations = itertools.count(9001)
        self.step = self.boot("e1")

    # time and events

    def handle(self, event: ev.Event) -> Step:
        """Hand the core an event now; everything it wants to know of the lists is answered at once."""
        step = self.step = self.core.handle(event, self.now)
        check(step)
        self.sent.extend(step.commands)
        self.decisions.extend(step.decisions)
        for command in step.commands if self.answers else ():
            self._answer(command)
        self.step = step
        return step

    def boot(self, epoch: str, *, same_boot: bool = True) -> Step:
        """Begin a process life."""
        return self.handle(ev.Booted("abcd1234", epoch, self.setup, same_boot))

    def restart(self, epoch: str = "e2", *, after: int = 0, same_boot: bool = True) -> Step:
        """Load what was committed into a new core `after` ms later, and boot it."""
        self.now += after
        saved = self.core.checkpoint()["rows"]
        rows = {
            kind: {name: codec.decode_row(kind, plain) for name, plain in found.items()}
            for kind, found in saved.items()
        }
        self.core = Core(rows, self.now)
        return self.boot(epoch, same_boot=same_boot)

    def wait(self, ms: int) -> list[cm.Command]:
        """Let time pass, waking whenever the core asked for it; return the commands sent meanwhile."""
        end, before = self.now + ms, len(self.sent)
        while (due := self.core.next_wake()) is not None and due <= end:
            self.now = max(self.now, due)
            self.handle(ev.Woke())
        self.now = end
        return self.sent[before:]

    def tick(self) -> Step:
        """Go to the next moment that the core asked for."""
        due = self.core.next_wake()
        assert due is not None
        self.now = max(self.now, due)
        return self.handle(ev.Woke())

    def _answer(self, command: cm.Command) -> None:
        if isinstance(command, cm.ListEnvironments):
            self.environments()
        elif isinstance(command, cm.ListJobs):
            self.list_jobs(command.scope)
        elif isinstance(command, cm.ListRegistrations):
            self.handle(ev.RegistrationsListed(command.scope, ()))
        elif isinstance(command, cm.LookUpRunner) and not self._in_gate(command.runner):
            there = command.runner not in self.unregistered
            flags: dict[str, Any] = {"busy": False, "connected": True} if there else {"missing": True}
            self.handle(ev.RunnerLookedUp(command.runner, command.token, **flags))

    def _in_gate(self, name: RunnerId) -> bool:
        run = self.row(name).gate
        return run is not None and run.phase is GatePhase.ASKING

    # listings

    def environments(self, *, without: tuple[RunnerId, ...] = ()) -> Step:
        """A complete listing: every environment that a live row knows, but those `without`."""
        found = tuple(
            ev.FoundEnvironment(row.id, row.environment, row.pool, ended=False)
            for row in self.core.state.runners.values()
            if row.environment is not None and row.state not in FINAL and row.id not in without
        )
        return self.handle(ev.EnvironmentsListed("local", found, complete=True))

    def list_jobs(self, scope: Scope = SCOPE) -> Step:
        """The forge lists every job that the rows believe to be open, just as they stand."""
        told = 0
        for job in [job for job in self.core.state.jobs.values() if scope.serves(job.key)]:
            if job.status is JobStatus.QUEUED:
                self.job(job.key, ForgeStatus.QUEUED, job.labels, told=Told.LISTING)
                told += 1
            elif job.status is JobStatus.RUNNING:
                self.job(job.key, ForgeStatus.IN_PROGRESS, job.labels, job.runner, told=Told.LISTING)
                told += 1
        return self.handle(ev.JobsListed(scope, told))

    # jobs

    def job(
        self,
        key: JobKey,
        status: ForgeStatus,
        labels: tuple[str, ...] = LABELS,
        runner: str | None = None,
        conclusion: str | None = None,
        told: Told = Told.WEBHOOK,
    ) -> Step:
        """The forge tells of a job."""
        said = JobReport(key, status, labels, runner_name=runner, conclusion=conclusion)
        return self.handle(ev.JobReported(said, told))

    def key(self) -> JobKey:
        """A job's key that was not used before."""
        return JobKey("github", "acme/app", next(self._jobs))

    def queue(self, labels: tuple[str, ...] = LABELS, key: JobKey | None = None) -> JobKey:
        """A new job is queued."""
        key = key or self.key()
        self.job(key, ForgeStatus.QUEUED, labels)
        return key

    def begins(self, key: JobKey, runner: str | None = None) -> Step:
        """The forge says: in progress."""
        return self.job(key, ForgeStatus.IN_PROGRESS, runner=runner)

    def completes(self, key: JobKey, runner: str | None = None, conclusion: str = "success") -> Step:
        """The forge says: completed."""
        return self.job(key, ForgeStatus.COMPLETED, runner=runner, conclusion=conclusion)

    def discharge(self, name: RunnerId) -> Step:
        """The job that caused a runner is cancelled while queued."""
        return self.completes(self.intent(name), conclusion="cancelled")

    # runners

    def row(self, name: RunnerId) -> Runner:
        return self.core.state.runners[name]

    def gate(self, name: RunnerId) -> GateRun:
        """The runner's pass through the gate; there has to be one."""
        run = self.row(name).gate
        assert run is not None
        return run

    def intent(self, name: RunnerId) -> JobKey:
        """The job whose demand caused the runner."""
        key = self.row(name).intent
        assert key is not None
        return key

    def job_of(self, name: RunnerId) -> JobKey:
        """The job that the forge says it has."""
        key = self.row(name).job
        assert key is not None
        return key

    def state(self, name: RunnerId) -> str:
        return self.row(name).state.value

    def registering(self, labels: tuple[str, ...] = LABELS) -> RunnerId:
        """A job is queued, and a runner is registered for it."""
        before = set(self.core.state.runners)
        self.queue(labels)
        (name,) = [row for row in self.core.state.runners if row not in before]
        return name

    def starting(self, labels: tuple[str, ...] = LABELS, *, environment: bool = True) -> RunnerId:
        """As `registering`, then registered and started."""
        name = self.registering(labels)
        self.handle(ev.Registered(name, next(self._registrations)))
        if environment:
            self.handle(ev.EnvironmentStarted(name, f"env-{name}"))
        return name

    def listening(self, labels: tuple[str, ...] = LABELS) -> RunnerId:
        name = self.starting(labels)
        self.sign(name, Sign.LISTENING)
        return name

    def spare(self) -> RunnerId:
        """A listening runner whose job was cancelled: nothing wants it."""
        name = self.listening()
        self.discharge(name)
        return name

    def assigned(self) -> RunnerId:
        name = self.listening()
        self.sign(name, Sign.OFFERED)
        return name

    def running(self) -> RunnerId:
        """Executing its own job, as the log, the process table and the forge say."""
        name = self.assigned()
        self.sign(name, Sign.ANNOUNCED, "Running job: build")
        self.sign(name, Sign.WORKER)
        self.begins(self.intent(name), name)
        return name

    def finishing(self) -> RunnerId:
        """Its job is over by its own log."""
        name = self.running()
        self.sign(name, Sign.ENDED)
        return name

    def retiring(self) -> RunnerId:
        """An idle spare that passed the gate: its permit is out."""
        name = self.at_gate()
        self.probed(name)
        self.fenced(name)
        self.wait(5 * SECOND)
        self.probed(name)
        return name

    def at_gate(self, name: RunnerId | None = None) -> RunnerId:
        """A spare that was just nominated (surplus), its first probe out."""
        name = name or self.spare()
        self.wait(self.core.state.pool(self.row(name).pool).surplus_grace)
        return name

    def fencing(self) -> RunnerId:
        """A nominated spare, proven idle, whose deregistration is out."""
        name = self.at_gate()
        self.probed(name)
        return name

    def settled(self) -> RunnerId:
        """A nominated spare, fenced and settled, whose second probe is out."""
        name = self.fencing()
        self.fenced(name)
        self.wait(5 * SECOND)
        return name

    def stuck(self) -> RunnerId:
        """A runner that was being destroyed when the daemon died, and that looks busy now."""
        name = self.retiring()
        self.restart()
        self.probed(name, BUSY)
        return name

    def abandoned(self) -> RunnerId:
        """A runner whose environment would not die."""
        name = self.retiring()
        self.wait(70 * SECOND)
        return name

    def gone(self) -> RunnerId:
        """A runner that ended by itself."""
        name = self.finishing()
        self.exits(name)
        return name

    # answers and signs

    def sign(self, name: RunnerId, sign: Sign, detail: str = "") -> Step:
        return self.handle(ev.SignSeen(name, sign, detail))

    def exits(self, name: RunnerId, code: int = 0, leftovers: int = 0) -> Step:
        return self.handle(ev.EnvironmentExited(name, code, leftovers))

    def probed(self, name: RunnerId, seen: ProbeReport | None = IDLE) -> Step:
        """Answer the probe that is out; `None` is a probe that failed."""
        row = self.row(name)
        token = row.gate.token if row.gate is not None else row.token
        return self.handle(ev.Probed(name, token, seen, None if seen else RETRY))

    def flag(self, name: RunnerId, **answer: Any) -> Step:
        """Answer the question for the busy flag."""
        return self.handle(ev.RunnerLookedUp(name, self.gate(name).token, **({"connected": True} | answer)))

    def fenced(
        self, name: RunnerId, answer: FenceAnswer = FenceAnswer.ACCEPTED, fault: Fault | None = None
    ) -> Step:
        """Answer the deregistration that is out."""
        registration = self.row(name).registration
        assert registration is not None
        return self.handle(ev.FenceAnswered(name, registration, self.gate(name).token, answer, fault))

    def vouch(self) -> Step:
        """Another call on the scope is answered normally."""
        return self.handle(ev.ScopeAnswered(SCOPE))

    def silence(self) -> Step:
        """A call on the scope gets no answer."""
        return self.handle(ev.JobsListed(SCOPE, 0, RETRY))

    def kill(self, name: RunnerId, *, force: bool = False) -> Step:
        return self.handle(ev.KillOrdered("ann", name, "cleaning up", force))

    def destroyed(self, name: RunnerId) -> Step:
        return self.handle(ev.EnvironmentDestroyed(name, f"env-{name}"))

    # looks

    def commands(self, kind: type[Any], name: RunnerId | None = None) -> list[Any]:
        """Every command of a kind so far, of one runner where it is named."""
        found = [command for command in self.sent if isinstance(command, kind)]
        return [command for command in found if name is None or subject(command) == name]

    def outcomes(self, name: RunnerId) -> list[tuple[str, str, str, str]]:
        """(rule, outcome, verdict, via) of every decision about a runner."""
        return [(d.rule, d.outcome, d.verdict, d.via) for d in self.decisions if d.runner == name]

    def rules(self, name: RunnerId) -> str | None:
        """By which rule the runner stands in the gate, or None."""
        run = self.row(name).gate
        return run.rule.value if run is not None else None

    def counter(self, key: str) -> int:
        return self.core.state.counters.get(key, 0)

    def sound(self) -> bool:
        """Say whether the state holds together; a failure shows what does not."""
        assert validate(self.core.state) == []
        return True


def subject(command: Any) -> str:
    """The runner that a command is about, "" where it is about none."""
    held = getattr(command, "intent", None) or getattr(command, "permit", None) or command
    return str(getattr(held, "runner", ""))
