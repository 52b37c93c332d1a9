"""The modelled runtime: environments with a listener and a worker, as runner.md describes them."""

from __future__ import annotations

import random
from collections.abc import Callable

from ephemerd.domain.verdict import Files, Listing, ProbeReport, Sign
from ephemerd.testing.simulate.forge import ModelForge, draw
from ephemerd.testing.simulate.heap import VirtualTime
from ephemerd.testing.simulate.truth import Outcome, TrueEnvironment, TrueJob, TrueRegistration
from ephemerd.testing.weather import Weather

FOLLOW = 250
"""How long (ms) at most a line in a followed file takes to reach the daemon."""

LOST_AFTER = 600_000
"""GitHub fails a job about ten minutes after the last renewal (github.md 13)."""

STOP_LIMIT = 30_000
"""A listener that is asked to stop leaves after so many ms at most (runner.md 9); then it is killed."""

FAULTS = ("exit_without_job", "ghost", "hang_after_acknowledge", "wedged_worker")


class ModelRuntime:
    """All environments of one host. `sign` and `exited` tell the daemon without being asked."""

    def __init__(
        self,
        time: VirtualTime,
        weather: Weather,
        rng: random.Random,
        outcome: Outcome,
        forge: ModelForge,
        sign: Callable[[TrueEnvironment, Sign, str], None],
        exited: Callable[[TrueEnvironment], None],
    ) -> None:
        self.time, self.weather, self.rng, self.outcome, self.forge = time, weather, rng, outcome, forge
        self._sign, self._exited = sign, exited
        self.environments: dict[str, TrueEnvironment] = {}
        self.acquired: Callable[[TrueJob, str], None] = lambda _job, _runner: None
        self._made = 0
        forge.offer = self.offered

    def start(self, name: str, pool: str, registration: TrueRegistration) -> TrueEnvironment:
        """Start an environment; its listener connects after the weather's boot time."""
        self._made += 1
        env = TrueEnvironment(name, pool, registration, f"{name}#{self._made}", self.time.now)
        self.environments[name] = env
        env.fault = self._draw_fault()
        env.ignores_stop = self.rng.random() < self.weather.stop_ignored
        if env.fault == "exit_without_job":
            self._breaks(env)
            self.time.after(draw(self.weather.boot, self.rng), self._exit, env, 0)
        else:
            self.time.after(draw(self.weather.boot, self.rng), self._boot, env)
        return env

    def _draw_fault(self) -> str:
        roll = self.rng.random()
        for name in FAULTS:
            share = float(getattr(self.weather, name))
            if roll < share:
                return name
            roll -= share
        return ""

    def _breaks(self, env: TrueEnvironment) -> None:
        """The weather breaks a runner before it had a job."""
        self.outcome.happened(env.fault)
        self.outcome.broken += 1

    def _boot(self, env: TrueEnvironment) -> None:
        if env.alive and not env.stopping:
            env.booted, env.booted_at = True, self.time.now
            self._tell(env, Sign.LISTENING)
            self.forge.connect(env.registration)

    def _tell(self, env: TrueEnvironment, sign: Sign) -> None:
        detail = f"{self.time.now}: {sign.value}"
        env.signs.append((sign, detail))
        self.time.after(int(self.rng.random() * FOLLOW), self._sign, env, sign, detail)

    def offered(self, registration: TrueRegistration, job: TrueJob) -> None:
        """The forge hands a job to a listener."""
        env = self.environments.get(registration.name)
        if env is None or not env.alive or not env.booted or env.stopping:
            if env is None or env.stopping:
                self.forge.disturbed(job, registration, delay=60_000)
            else:
                self.forge.give_back(job, registration)
            return
        env.offered, env.job = self.time.now, job
        self._tell(env, Sign.OFFERED)
        self.time.after(draw(self.weather.acknowledge, self.rng), self._acknowledged, env, job)

    def _acknowledged(self, env: TrueEnvironment, job: TrueJob) -> None:
        if not env.alive or env.stopping:
            return
        self._tell(env, Sign.ACKNOWLEDGED)
        if env.registration.revoked:
            self._skip(env)
        elif env.fault == "hang_after_acknowledge":
            self._breaks(env)
            self.time.after(LOST_AFTER, self._hung, env, job)
        elif env.fault == "ghost":
            self._breaks(env)
            self._skip(env)
            self.forge.forget(env.registration)
            self.forge.give_back(job, env.registration)
        else:
            self.time.after(draw(self.weather.acquire, self.rng), self._acquired, env, job)

    def _skip(self, env: TrueEnvironment) -> None:
        """The acquisition is answered 404: the listener polls on, on a registration that is gone."""
        self._tell(env, Sign.SKIPPED)
        env.job = None

    def _hung(self, env: TrueEnvironment, job: TrueJob) -> None:
        """The forge fails a job whose runner went silent after the acknowledgement (runner.md 13)."""
        if env.registration.holds is job:
            env.registration.holds = None
            job.fate = "broken"
            self.outcome.failed += 1
            self.forge.finish(job, "failure")
            self.forge.forget(env.registration)

    def _acquired(self, env: TrueEnvironment, job: TrueJob) -> None:
        if not env.alive or env.stopping:
            return
        if env.registration.revoked:
            self._skip(env)
            return
        env.registration.acquired = True
        env.announced = self.time.now
        self.outcome.used += 1
        self.acquired(job, env.name)
        if job.returned is not None:
            self.outcome.again.append(self.time.now - job.returned)
            job.returned = None
        self._tell(env, Sign.ANNOUNCED)
        self.time.after(draw(self.weather.spawn, self.rng), self._spawned, env, job)

    def _spawned(self, env: TrueEnvironment, job: TrueJob) -> None:
        if not env.alive:
            return
        env.worker, env.worker_at = True, self.time.now
        job.worker = self.time.now
        self.outcome.waits.append(self.time.now - job.queued)
        self._tell(env, Sign.WORKER)
        self.time.after(draw(self.weather.report, self.rng), self._reported, env, job)

    def _reported(self, env: TrueEnvironment, job: TrueJob) -> None:
        if not env.alive:
            return
        self.forge.start(job, env.name, env.registration.id)
        if self.rng.random() < self.weather.completed_while_worker_runs:
            self.time.after(job.duration // 2, self._told_early, env, job)
        self.time.after(job.duration, self._over, env, job)

    def _told_early(self, env: TrueEnvironment, job: TrueJob) -> None:
        """The forge calls the job completed while its worker still runs (actions/runner#4492)."""
        if env.executing():
            self.outcome.happened("completed_while_worker_runs")
            self.forge.finish(job, "success")

    def _over(self, env: TrueEnvironment, job: TrueJob) -> None:
        if not env.executing():
            return
        env.over = True
        job.fate = job.fate or "ran"
        self.outcome.working += self.time.now - (env.worker_at or self.time.now)
        self.forge.finish(job, "success")
        self._released(env)
        if env.fault == "wedged_worker":
            self.outcome.happened("wedged_worker")
            return
        env.worker = False
        env.ended = self.time.now
        self._tell(env, Sign.ENDED)
        self.time.after(draw(self.weather.wind_down, self.rng), self._exit, env, 0)

    def _released(self, env: TrueEnvironment) -> None:
        """The one job is over: the ephemeral registration goes with it."""
        env.registration.holds = None
        env.registration.acquired = False
        self.forge.forget(env.registration)

    def _exit(self, env: TrueEnvironment, code: int) -> None:
        if not env.alive:
            return
        env.alive = env.worker = False
        env.code = code
        self.forge.disconnect(env.registration)
        self._left(env)
        self.time.after(int(self.rng.random() * FOLLOW), self._exited, env)

    def _left(self, env: TrueEnvironment) -> None:
        env.left = self.time.now
        self.outcome.holding += self.time.now - env.made

    def probe(self, env: TrueEnvironment) -> ProbeReport:
        """Look inside."""
        return ProbeReport(
            listing=Listing.COMPLETE if env.alive else Listing.EMPTY,
            workers=int(env.worker),
            strangers=0,
            listener_alive=env.alive,
            files=Files.HEALTHY,
            listening=env.booted,
            offered_at=env.offered,
            announced_at=env.announced,
            ended_at=env.ended,
            probe="model",
            detail="",
        )

    def stop(self, env: TrueEnvironment) -> bool:
        """Ask a listener to stop and do nothing else; return whether a job ends by it.

        There is no graceful stop: a listener that holds a job cancels it (runner.md 9).
        """
        if not env.alive or env.ignores_stop:
            if env.alive:
                self.outcome.happened("stop_ignored")
            return False
        ended = self._interrupt(env)
        env.stopping = env.ordered = True
        self.time.after(min(draw(self.weather.stop, self.rng), STOP_LIMIT), self._exit, env, 0)
        return ended

    def destroy(self, env: TrueEnvironment) -> tuple[bool, int]:
        """End an environment; return whether a job was ended by it, and how long it takes (ms).

        A job that was acquired and not over fails; one that was only assigned is disturbed and queued again.
        """
        ended = self._interrupt(env)
        env.stopping = True
        wait = draw(self.weather.stop, self.rng) if env.alive else 0
        if env.alive and env.ignores_stop:
            self.outcome.happened("stop_ignored")
            wait += STOP_LIMIT
        self.time.after(wait, self._gone, env)
        return ended, wait

    def _interrupt(self, env: TrueEnvironment) -> bool:
        """What becomes of a job when its runner is stopped or killed."""
        job = env.job
        if env.executing() and job is not None:
            env.over = True
            if job.status == "completed" or job.fate == "killed":
                self._released(env)
            else:
                self.time.after(LOST_AFTER, self._lapsed, env, job)
            return True
        held = env.registration.holds
        if env.alive and held is not None:
            if env.fault == "hang_after_acknowledge" and held is job:
                self.forge.give_back(held, env.registration)
            else:
                self.forge.disturbed(held, env.registration, delay=60_000)
        return False

    def _lapsed(self, env: TrueEnvironment, job: TrueJob) -> None:
        """Nobody renews the job's lease any more: the forge fails it, and lets go of the registration."""
        self.forge.finish(job, "failure")
        self._released(env)

    def _gone(self, env: TrueEnvironment) -> None:
        if env.alive:
            self._left(env)
        env.alive = env.worker = False
        env.removed = True
        self.forge.disconnect(env.registration)
        if self.environments.get(env.name) is env:
            del self.environments[env.name]
