"""What becomes of a command: the models answer it, with the weather's delays, faults and lost answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId, Scope
from ephemerd.domain.job import Origin
from ephemerd.domain.permit import Permit, Warrant
from ephemerd.domain.runner import FenceAnswer
from ephemerd.testing.simulate.budget import WAIT, ModelBucket
from ephemerd.testing.simulate.forge import draw
from ephemerd.testing.simulate.truth import TrueEnvironment

if TYPE_CHECKING:
    from ephemerd.testing.simulate.driver import ModelDaemon

TIMEOUT = 10_000
FRESH_FOR = 30_000
"""An answer of a scope younger than this (ms) vouches for a "not found" on it (`app/scopes.py`)."""

OUTAGE_FAULTS = {
    "503": Remedy.RETRY,
    "timeout": Remedy.RETRY,
    "403-rate-limit": Remedy.LIMITED,
    "429": Remedy.LIMITED,
}
WRITES = ("register", "deregister")
Effect = Callable[[Fault | None], ev.Event]


class Calls:
    """Carries out the commands of one daemon against the models.

    credentials  runner -> registration: what the executor alone holds; a crash loses them
    failing      kind of call -> the fault that every such call gives
    """

    def __init__(self, daemon: ModelDaemon) -> None:
        self.daemon = daemon
        self.time, self.weather, self.rng = daemon.time, daemon.weather, daemon.rng
        self.forge, self.runtime, self.monitor = daemon.forge, daemon.runtime, daemon.monitor
        self.calls = daemon.outcome.calls
        self.bucket = ModelBucket(daemon.setup.policy)
        self.credentials: dict[str, int] = {}
        self.failing: dict[str, Fault] = {}
        self._answered_at: dict[Scope, int] = {}
        self._handlers: dict[type, Callable[..., None]] = {
            cm.Register: self._register,
            cm.StartRunner: self._start,
            cm.ProbeRunner: self._probe,
            cm.Deregister: self._deregister,
            cm.Destroy: self._destroy,
            cm.LookUpName: self._look_up_name,
            cm.LookUpRunner: self._look_up_runner,
            cm.LookUpJob: self._look_up_job,
            cm.LookUpRun: self._look_up_run,
            cm.WatchRunner: self._follow,
            cm.ListEnvironments: self._environments,
            cm.ListRegistrations: self._registrations,
            cm.ListJobs: self._jobs,
        }

    def lost(self) -> None:
        """The process died: what only it held is gone, and with a credential the runner it was for."""
        self.daemon.outcome.broken += len(self.credentials)
        self.credentials.clear()
        self._answered_at.clear()
        self.bucket = ModelBucket(self.daemon.setup.policy)

    def send(self, command: cm.Command) -> None:
        """Carry out one command."""
        self._handlers[type(command)](command)

    def _answer(self, delay: int, make: Callable[[], ev.Event]) -> None:
        """Answer in `delay` ms with what is true then, unless the daemon died meanwhile."""
        self.time.after(delay, self._answered, self.daemon.life, make)

    def _answered(self, life: int, make: Callable[[], ev.Event]) -> None:
        if life == self.daemon.life and self.daemon.up:
            self.daemon.handle(make())

    def _write(self, name: str, scope: Scope, effect: Effect, *, lost: float = 0.0) -> None:
        """A call that changes something: it waits for its token, and is not sent where that takes too long."""
        wait = self.bucket.take(self.time.now)
        if wait is None:
            short = max(1_000, self.bucket.wait(self.time.now) - WAIT)
            fault = Fault(Remedy.LIMITED, "the budget of writes is used up", short)
            self._answer(WAIT, lambda: effect(fault))
        elif wait:
            self.time.after(wait, self._late_write, self.daemon.life, name, scope, effect, lost)
        else:
            self._call(name, scope, effect, lost=lost)

    def _late_write(self, life: int, name: str, scope: Scope, effect: Effect, lost: float) -> None:
        if life == self.daemon.life and self.daemon.up:
            self._call(name, scope, effect, lost=lost)

    def _call(self, name: str, scope: Scope, effect: Effect, *, lost: float = 0.0) -> None:
        """One call of the forge: an outage or a lost answer gives a fault, else the effect takes place."""
        self.calls[name] = self.calls.get(name, 0) + 1
        latency = draw(self.weather.rest_delay, self.rng)
        if name in self.failing:
            self.time.after(latency, self._fails, self.daemon.life, scope, effect, self.failing[name])
        elif self.forge.in_outage():
            self.time.after(*self._outage(latency, scope, effect))
        elif lost and self.rng.random() < lost:
            self.daemon.outcome.happened("jit_answer_lost")
            self.time.after(latency, self._unheard, effect)
            fault = Fault(Remedy.RETRY, "the answer was lost")
            self.time.after(TIMEOUT, self._fails, self.daemon.life, scope, effect, fault)
        else:
            self.time.after(latency, self._effect, self.daemon.life, scope, effect, name in WRITES)

    def _unheard(self, effect: Effect) -> None:
        event = effect(None)
        if isinstance(event, ev.Registered):
            self._lost_answer(event.runner)

    def _lost_answer(self, runner: str) -> None:
        """A runner is registered, and the answer with its credential never came: nothing can start it."""
        self.credentials.pop(runner, None)
        self.daemon.outcome.broken += 1

    def _outage(
        self, latency: int, scope: Scope, effect: Effect
    ) -> tuple[int, Callable[..., None], int, Scope, Effect, Fault]:
        kind = self.forge.outage_kind
        self.daemon.outcome.happened(f"outage {kind}")
        remedy = OUTAGE_FAULTS[kind]
        wait = max(1_000, self.forge.outage_until - self.time.now) if remedy is Remedy.LIMITED else None
        fault = Fault(remedy, f"outage: {kind}", wait)
        delay = TIMEOUT if kind == "timeout" else latency
        return delay, self._fails, self.daemon.life, scope, effect, fault

    def _fails(self, life: int, scope: Scope, effect: Effect, fault: Fault) -> None:
        if life != self.daemon.life or not self.daemon.up:
            return
        self.monitor.answered(scope, fault, self.time.now)
        if fault.remedy is Remedy.LIMITED:
            self.bucket.slow_down(self.time.now, fault.after_ms or 0)
        self.daemon.handle(effect(fault))

    def _effect(self, life: int, scope: Scope, effect: Effect, writes: bool) -> None:
        """The call takes effect at the forge, whether or not the daemon still lives to hear of it."""
        heard = life == self.daemon.life and self.daemon.up
        if not heard and not writes:
            return
        event = effect(None)
        if not heard and isinstance(event, ev.Registered):
            self._lost_answer(event.runner)
        if heard:
            self.monitor.answered(scope, None, self.time.now)
            if not _not_found(event):
                self._answered_at[scope] = self.time.now
                self.daemon.handle(event)
            else:
                self._vouch(scope, event)

    def _vouch(self, scope: Scope, event: ev.Event) -> None:
        """Before a "not found" is told: make sure that the scope itself answers, by one GET at most."""
        answered = self._answered_at.get(scope)
        if answered is not None and self.time.now - answered <= FRESH_FOR:
            self.daemon.handle(ev.ScopeAnswered(scope))
            self.daemon.handle(event)
            return

        def effect(fault: Fault | None) -> ev.Event:
            if fault is None:
                self._answered_at[scope] = self.time.now
            return event

        self._call("find", scope, effect)

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

        self._write("register", command.scope, effect, lost=self.weather.jit_answer_lost)

    def _start(self, command: cm.StartRunner) -> None:
        made = self.forge.registrations.get(self.credentials.pop(command.runner, -1))
        if made is None:
            fault = Fault(Remedy.BROKEN, "the credential is lost")
            self._answer(1, lambda: ev.StartFailed(command.runner, fault))
            return
        env = self.runtime.start(command.runner, command.pool, made)
        env.followed = self.daemon.life
        self._answer(60, lambda: ev.EnvironmentStarted(command.runner, env.reference))

    def _probe(self, command: cm.ProbeRunner) -> None:
        def look() -> ev.Event:
            env = self.runtime.environments.get(command.runner)
            if self.weather.probe_fails and self.rng.random() < self.weather.probe_fails:
                self.daemon.outcome.happened("probe_fails")
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

        self._write("deregister", intent.scope, effect)

    def _destroy(self, command: cm.Destroy) -> None:
        permit = command.permit
        env = self.runtime.environments.get(permit.runner)
        if env is None or env.reference != permit.environment:
            self._answer(5, lambda: ev.EnvironmentDestroyed(permit.runner, permit.environment))
            return
        if permit.polite:
            self._judge(permit, env, self.runtime.stop(env))
            return
        was = self.daemon.outcome.disturbed
        over = not env.holding()
        ended, wait = self.runtime.destroy(env)
        self._judge(permit, env, ended, over=over, disturbed=self.daemon.outcome.disturbed > was)
        if env.fault != "wedged":
            self._answer(wait + 1, lambda: ev.EnvironmentDestroyed(permit.runner, permit.environment))

    def _judge(
        self,
        permit: Permit,
        env: TrueEnvironment,
        ended: bool,
        *,
        over: bool = False,
        disturbed: bool = False,
    ) -> None:
        now = self.time.now
        if permit.warrant is Warrant.ESCAPE:
            self.monitor.escaped(env, over, now)
        if ended:
            self.monitor.job_ended(permit, env, now)
        elif disturbed:
            self.monitor.job_disturbed(permit, env, now)

    def _look_up_name(self, command: cm.LookUpName) -> None:
        def effect(fault: Fault | None) -> ev.Event:
            found = self.forge.by_name.get(command.runner)
            return ev.NameLookedUp(command.runner, found.id if found and fault is None else None, fault)

        self._call("find", command.scope, effect)

    def _look_up_runner(self, command: cm.LookUpRunner) -> None:
        def effect(fault: Fault | None) -> ev.Event:
            if fault is not None:
                return ev.RunnerLookedUp(command.runner, command.token, fault=fault)
            found = self.forge.registrations.get(command.registration)
            if found is None:
                return ev.RunnerLookedUp(command.runner, command.token, missing=True)
            return ev.RunnerLookedUp(
                command.runner, command.token, busy=self.forge.busy(found), connected=found.connected
            )

        self._call("runner", command.scope, effect)

    def _look_up_job(self, command: cm.LookUpJob) -> None:
        def effect(fault: Fault | None) -> ev.Event:
            if fault is not None:
                return ev.JobLookedUp(command.job, command.token, fault=fault)
            job = self.forge.jobs.get(command.job.id)
            if job is None:
                return ev.JobLookedUp(command.job, command.token, missing=True)
            return ev.JobLookedUp(command.job, command.token, self.forge.report(job))

        self._call("job", command.scope, effect)

    def _look_up_run(self, command: cm.LookUpRun) -> None:
        def effect(fault: Fault | None) -> ev.Event:
            if fault is not None:
                return ev.RunLookedUp(command.job, command.token, fault=fault)
            return ev.RunLookedUp(command.job, command.token, Origin(public=False, fork=False))

        self._call("run", command.scope, effect)

    def _follow(self, command: cm.WatchRunner) -> None:
        env = self.runtime.environments.get(command.runner)
        if env is None:
            self._answer(20, lambda: ev.EnvironmentExited(command.runner, None))
            return
        env.followed = self.daemon.life
        for sign, detail in list(env.signs):
            self.time.after(5, self.daemon.signed, env, sign, detail)
        if not env.alive:
            self.time.after(10, self.daemon.exited, env)

    def _environments(self, command: cm.ListEnvironments) -> None:
        def look() -> ev.Event:
            found = tuple(
                ev.FoundEnvironment(
                    RunnerId(env.name), env.reference, env.pool, ended=not env.alive, code=env.code
                )
                for env in self.runtime.environments.values()
            )
            return ev.EnvironmentsListed(command.host, found, complete=True)

        self._answer(20, look)

    def _registrations(self, command: cm.ListRegistrations) -> None:
        def effect(fault: Fault | None) -> ev.Event:
            if fault is not None:
                return ev.RegistrationsListed(command.scope, (), fault)
            found = tuple(
                ev.FoundRegistration(r.name, r.id, self.forge.busy(r), r.online)
                for r in self.forge.registrations.values()
                if r.scope == command.scope and not self._omitted()
            )
            return ev.RegistrationsListed(command.scope, found)

        self._call("runners", command.scope, effect)

    def _omitted(self) -> bool:
        omits = bool(self.weather.list_omits_runner) and self.rng.random() < self.weather.list_omits_runner
        if omits:
            self.daemon.outcome.happened("list_omits_runner")
        return omits

    def _jobs(self, command: cm.ListJobs) -> None:
        def effect(fault: Fault | None) -> ev.Event:
            if fault is not None:
                return ev.JobsListed(command.scope, 0, fault)
            reports = [
                self.forge.report(job) for job in self.forge.open.values() if command.scope.serves(job.key)
            ]
            for part in ev.read_in_parts(command.scope, reports):
                self.daemon.handle(part)
            return ev.JobsListed(command.scope, len(reports))

        self._call("active_jobs", command.scope, effect)


def _not_found(event: ev.Event) -> bool:
    if isinstance(event, ev.RunnerLookedUp):
        return event.missing
    return isinstance(event, ev.FenceAnswered) and event.answer is FenceAnswer.NOT_FOUND
