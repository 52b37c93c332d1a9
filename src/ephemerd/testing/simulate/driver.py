"""Where the shell stands: a scheduler, fed in virtual time, its commands answered by the models.

The scheduler is the real core or a foil. The driver commits what each turn changed (as rows, through the codec where `save_and_load` asks for it), can die
between any two turns, and starts again from what was committed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ephemerd.core import codec
from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.step import Step
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import JobReport, Told
from ephemerd.domain.permit import Permit, Warrant
from ephemerd.domain.pool import Setup
from ephemerd.domain.runner import FenceAnswer
from ephemerd.domain.verdict import Sign
from ephemerd.testing.simulate.forge import ModelForge, draw
from ephemerd.testing.simulate.heap import VirtualTime
from ephemerd.testing.simulate.runtime import ModelRuntime
from ephemerd.testing.simulate.scheduler import Factory, Gate, Scheduler
from ephemerd.testing.simulate.truth import Outcome, TrueEnvironment
from ephemerd.testing.weather import Weather

STORE = "sim00000"
TIMEOUT = 10_000
OUTAGE_FAULTS = {
    "503": Remedy.RETRY,
    "timeout": Remedy.RETRY,
    "403-rate-limit": Remedy.LIMITED,
    "429": Remedy.LIMITED,
}
Watcher = Callable[[ev.Event, Step, int], None]


class ModelDaemon:
    """One daemon over the models. `life` counts its process lives; answers to an earlier one are lost."""

    def __init__(
        self,
        time: VirtualTime,
        weather: Weather,
        rng: random.Random,
        outcome: Outcome,
        setup: Setup,
        *,
        watch: Watcher | None = None,
        save_and_load: bool = False,
        policy: Factory = Gate,
    ) -> None:
        self.time, self.weather, self.rng, self.outcome, self.setup = time, weather, rng, outcome, setup
        self.forge = ModelForge(time, weather, rng, outcome, self.delivered)
        self.runtime = ModelRuntime(time, weather, rng, outcome, self.forge, self.signed, self.exited)
        self.core: Scheduler = policy()
        self.up = False
        self.life = 0
        self.crashes = 0
        self.handled = 0
        self.credentials: dict[str, int] = {}
        self.stored: dict[str, dict[str, Any]] = {}
        self.hash_parts: list[str] = []
        self._watch = watch
        self._save_and_load = save_and_load
        self._woken_for: int | None = None

    def boot(self) -> None:
        """Begin a process life."""
        self.life += 1
        self.up = True
        self.credentials.clear()
        self._woken_for = None
        epoch = f"{self.rng.getrandbits(20):04x}"[:4]
        self.handle(ev.Booted(STORE, epoch, self.setup))

    def crash(self) -> None:
        """Die; start again some seconds later from what was committed."""
        self.up = False
        self.crashes += 1
        self._reload()
        self.time.after(self.rng.randint(1_000, 30_000), self.boot)

    def _reload(self) -> None:
        rows = self.stored
        if self._save_and_load:
            rows = {
                kind: {name: codec.decode_row(kind, plain) for name, plain in found.items()}
                for kind, found in self.stored.items()
            }
        self.core.reload(rows, self.time.now)

    def handle(self, event: ev.Event) -> Step | None:
        """Feed one event, commit, and send the commands out; None while the daemon is down."""
        if not self.up:
            return None
        now = self.time.now
        step = self.core.handle(event, now)
        if not isinstance(event, ev.Woke):
            self.handled += 1
        self._commit(step)
        if self._watch is not None:
            self._watch(event, step, now)
        if self.weather.daemon_crash and self.rng.random() < self.weather.daemon_crash:
            self.crash()
            return step
        for command in step.commands:
            self._send(command)
        if self._save_and_load:
            self._reload()
        self._sleep()
        return step

    def _commit(self, step: Step) -> None:
        keep = self._save_and_load or bool(self.weather.daemon_crash)
        if not keep:
            return
        for kind, name, row in step.changed:
            rows = self.stored.setdefault(kind, {})
            if row is None:
                rows.pop(name, None)
            else:  # rows are immutable: what was committed stays as it was without a copy
                rows[name] = codec.encode_row(kind, row) if self._save_and_load else row

    def _sleep(self) -> None:
        wake = self.core.next_wake()
        if wake is not None and (self._woken_for is None or wake < self._woken_for):
            self._woken_for = wake
            self.time.at(wake, self._wake, self.life, wake)

    def _wake(self, life: int, wake: int) -> None:
        if life == self.life and self.up and self._woken_for == wake:
            self._woken_for = None
            due = self.core.next_wake()
            if due is not None and due <= self.time.now:
                self.handle(ev.Woke())
            else:
                self._sleep()

    def delivered(self, report: JobReport) -> None:
        """A webhook arrives; while the daemon is down it fails and is lost."""
        self.handle(ev.JobReported(report, Told.WEBHOOK))

    def signed(self, name: str, sign: Sign, detail: str) -> None:
        """A followed file told something."""
        self.handle(ev.SignSeen(RunnerId(name), sign, detail))

    def exited(self, env: TrueEnvironment) -> None:
        """An environment ended by itself."""
        if env.removed or env.listed_ended or not self.up:
            return
        env.listed_ended = True
        self.handle(ev.EnvironmentExited(RunnerId(env.name), env.code, 0))

    def _answer(self, delay: int, make: Callable[[], ev.Event]) -> None:
        """Answer in `delay` ms with what is true then, unless the daemon died meanwhile."""
        self.time.after(delay, self._answered, self.life, make)

    def _answered(self, life: int, make: Callable[[], ev.Event]) -> None:
        if life == self.life and self.up:
            self.handle(make())

    def _call(self, name: str, effect: Callable[[Fault | None], ev.Event], *, lost: float = 0.0) -> None:
        """One call of the forge: an outage or a lost answer gives a fault, else the effect takes place."""
        self.outcome.calls[name] = self.outcome.calls.get(name, 0) + 1
        latency = draw(self.weather.rest_delay, self.rng)
        if self.forge.in_outage():
            remedy = OUTAGE_FAULTS[self.forge.outage_kind]
            slow = TIMEOUT if self.forge.outage_kind == "timeout" else latency
            wait = max(1_000, self.forge.outage_until - self.time.now) if remedy is Remedy.LIMITED else None
            fault = Fault(remedy, f"outage: {self.forge.outage_kind}", wait)
            self._answer(slow, lambda: effect(fault))
        elif lost and self.rng.random() < lost:
            self.time.after(latency, self._unheard, effect)
            self._answer(TIMEOUT, lambda: effect(Fault(Remedy.RETRY, "the answer was lost")))
        else:
            self.time.after(latency, self._effect, self.life, effect)

    def _unheard(self, effect: Callable[[Fault | None], ev.Event]) -> None:
        effect(None)

    def _effect(self, life: int, effect: Callable[[Fault | None], ev.Event]) -> None:
        event = effect(None)
        if life == self.life and self.up:
            self.handle(event)

    def _send(self, command: cm.Command) -> None:
        match command:
            case cm.Register():
                self._register(command)
            case cm.StartRunner():
                self._start(command)
            case cm.ProbeRunner():
                self._probe(command)
            case cm.Deregister():
                self._deregister(command)
            case cm.Destroy():
                self._destroy(command.permit)
            case cm.LookUpName():
                self._call("find", lambda fault: self._found(command, fault))
            case cm.LookUpRunner():
                self._call("runner", lambda fault: self._runner(command, fault))
            case cm.LookUpJob():
                self._call("job", lambda fault: self._job(command, fault))
            case cm.WatchRunner():
                self._follow(command)
            case cm.ListEnvironments():
                self._answer(20, lambda: self._environments(command.host))
            case cm.ListRegistrations():
                self._call("runners", lambda fault: self._registrations(command, fault))
            case cm.ListJobs():
                self._call("active_jobs", lambda fault: self._jobs(command, fault))

    def _register(self, command: cm.Register) -> None:
        def effect(fault: Fault | None) -> ev.Event:
            if fault is not None:
                return ev.RegistrationFailed(command.runner, fault)
            made = self.forge.register(command.scope, command.runner, command.labels)
            if made is None:
                taken = self.forge.by_name[command.runner].id
                return ev.RegistrationFailed(command.runner, Fault(Remedy.REFUSED, "name taken"), taken)
            self.credentials[command.runner] = made.id
            return ev.Registered(command.runner, made.id)

        self._call("register", effect, lost=self.weather.jit_answer_lost)

    def _start(self, command: cm.StartRunner) -> None:
        made = self.forge.registrations.get(self.credentials.pop(command.runner, -1))
        if made is None:
            fault = Fault(Remedy.BROKEN, "the credential is lost")
            self._answer(1, lambda: ev.StartFailed(command.runner, fault))
            return
        env = self.runtime.start(command.runner, command.pool, made)
        self._answer(60, lambda: ev.EnvironmentStarted(command.runner, env.reference))

    def _probe(self, command: cm.ProbeRunner) -> None:
        def look() -> ev.Event:
            env = self.runtime.environments.get(command.runner)
            if self.weather.probe_fails and self.rng.random() < self.weather.probe_fails:
                return ev.Probed(command.runner, command.token, None, Fault(Remedy.RETRY, "probe failed"))
            if env is None or env.reference != command.environment:
                return ev.Probed(
                    command.runner, command.token, None, Fault(Remedy.GONE, "no such environment")
                )
            return ev.Probed(command.runner, command.token, self.runtime.probe(env))

        self._answer(self.rng.randint(3, 20), look)

    def _deregister(self, command: cm.Deregister) -> None:
        intent = command.intent

        def effect(fault: Fault | None) -> ev.Event:
            if fault is not None:
                return ev.FenceAnswered(
                    intent.runner, intent.registration, command.token, FenceAnswer.NO_ANSWER, fault
                )
            answer = FenceAnswer(self.forge.deregister(intent.registration))
            return ev.FenceAnswered(intent.runner, intent.registration, command.token, answer)

        self._call("deregister", effect)

    def _destroy(self, permit: Permit) -> None:
        env = self.runtime.environments.get(permit.runner)
        if env is None or env.reference != permit.environment:
            self._answer(5, lambda: ev.EnvironmentDestroyed(permit.runner, permit.environment))
            return
        if permit.polite:
            return
        killed, wait = self.runtime.destroy(env)
        if killed and permit.warrant not in (Warrant.OVERDUE, Warrant.FORCED, Warrant.ESCAPE):
            self.outcome.killed += 1
            self.outcome.problems.append(f"killed {env.name} at {self.time.now} by {permit.rule}")
        self._answer(wait + 1, lambda: ev.EnvironmentDestroyed(permit.runner, permit.environment))

    def _found(self, command: cm.LookUpName, fault: Fault | None) -> ev.Event:
        found = self.forge.by_name.get(command.runner)
        return ev.NameLookedUp(command.runner, found.id if found and fault is None else None, fault)

    def _runner(self, command: cm.LookUpRunner, fault: Fault | None) -> ev.Event:
        if fault is not None:
            return ev.RunnerLookedUp(command.runner, command.token, fault=fault)
        found = self.forge.registrations.get(command.registration)
        if found is None:
            self.handle(ev.ScopeAnswered(command.scope))
            return ev.RunnerLookedUp(command.runner, command.token, missing=True)
        busy = found.holds is not None
        if self.weather.busy_flag_wrong and self.rng.random() < self.weather.busy_flag_wrong:
            busy = not busy
        return ev.RunnerLookedUp(command.runner, command.token, busy=busy, connected=found.connected)

    def _job(self, command: cm.LookUpJob, fault: Fault | None) -> ev.Event:
        if fault is not None:
            return ev.JobLookedUp(command.job, command.token, fault=fault)
        job = self.forge.jobs.get(command.job.id)
        if job is None:
            return ev.JobLookedUp(command.job, command.token, missing=True)
        return ev.JobLookedUp(command.job, command.token, self.forge.report(job))

    def _follow(self, command: cm.WatchRunner) -> None:
        env = self.runtime.environments.get(command.runner)
        if env is None:
            return
        for sign, detail in list(env.signs):
            self.time.after(5, self.signed, env.name, sign, detail)
        if not env.alive:
            self.time.after(10, self.exited, env)

    def _environments(self, host: str) -> ev.Event:
        found = tuple(
            ev.FoundEnvironment(
                RunnerId(env.name), env.reference, env.pool, ended=not env.alive, code=env.code
            )
            for env in self.runtime.environments.values()
        )
        return ev.EnvironmentsListed(host, found, complete=True)

    def _registrations(self, command: cm.ListRegistrations, fault: Fault | None) -> ev.Event:
        if fault is not None:
            return ev.RegistrationsListed(command.scope, (), fault)
        found = tuple(
            ev.FoundRegistration(r.name, r.id, r.holds is not None, r.online)
            for r in self.forge.registrations.values()
            if r.scope == command.scope
            and not (self.weather.list_omits_runner and self.rng.random() < self.weather.list_omits_runner)
        )
        return ev.RegistrationsListed(command.scope, found)

    def _jobs(self, command: cm.ListJobs, fault: Fault | None) -> ev.Event:
        if fault is not None:
            return ev.JobsListed(command.scope, 0, fault)
        told = 0
        for job in list(self.forge.open.values()):
            if command.scope.serves(job.key):
                self.handle(ev.JobReported(self.forge.report(job), Told.LISTING))
                told += 1
        return ev.JobsListed(command.scope, told)
