"""The modelled runtime: environments with a listener and a worker, as runner.md describes them."""

from __future__ import annotations

import random
from collections.abc import Callable

from ephemerd.domain.verdict import Files, Listing, ProbeReport, Sign
from ephemerd.testing.simulate.forge import ModelForge, draw
from ephemerd.testing.simulate.heap import VirtualTime
from ephemerd.testing.simulate.truth import Outcome, TrueEnvironment, TrueJob, TrueRegistration
from ephemerd.testing.weather import Weather

FOLLOW = (0, 250)
"""How long (ms) a line in a followed file takes to reach the daemon."""

LOST_AFTER = 600_000
"""GitHub fails a job about ten minutes after the last renewal (github.md 13)."""


class ModelRuntime:
    """All environments of one host. `sign` and `exited` tell the daemon without being asked."""

    def __init__(
        self,
        time: VirtualTime,
        weather: Weather,
        rng: random.Random,
        outcome: Outcome,
        forge: ModelForge,
        sign: Callable[[str, Sign, str], None],
        exited: Callable[[TrueEnvironment], None],
    ) -> None:
        self.time, self.weather, self.rng, self.outcome, self.forge = time, weather, rng, outcome, forge
        self._sign, self._exited = sign, exited
        self.environments: dict[str, TrueEnvironment] = {}
        self._made = 0
        forge.offer = self.offered

    def start(self, name: str, pool: str, registration: TrueRegistration) -> TrueEnvironment:
        """Start an environment; its listener connects after the weather's boot time."""
        self._made += 1
        env = TrueEnvironment(name, pool, registration, f"{name}#{self._made}")
        self.environments[name] = env
        self.outcome.runners += 1
        env.fault = self._draw_fault()
        if env.fault == "exit_without_job":
            self.outcome.broken += 1
            self.time.after(draw(self.weather.boot, self.rng), self._exit, env, 0)
        else:
            self.time.after(draw(self.weather.boot, self.rng), self._boot, env)
        return env

    def _draw_fault(self) -> str:
        roll = self.rng.random()
        for name in ("exit_without_job", "ghost", "hang_after_acknowledge", "wedged_worker"):
            share = float(getattr(self.weather, name))
            if roll < share:
                return name
            roll -= share
        return ""

    def _boot(self, env: TrueEnvironment) -> None:
        if env.alive and not env.stopping:
            env.booted = True
            self._tell(env, Sign.LISTENING)
            self.forge.connect(env.registration)

    def _tell(self, env: TrueEnvironment, sign: Sign) -> None:
        detail = f"{self.time.now}: {sign.value}"
        env.signs.append((sign, detail))
        self.time.after(self.rng.randint(*FOLLOW), self._sign, env.name, sign, detail)

    def offered(self, registration: TrueRegistration, job: TrueJob) -> None:
        """The forge hands a job to a listener."""
        env = self.environments.get(registration.name)
        if env is None or not env.alive or not env.booted or env.stopping:
            self.forge.give_back(job, registration)
            return
        env.offered, env.job = self.time.now, job
        self._tell(env, Sign.OFFERED)
        self.time.after(draw(self.weather.acknowledge, self.rng), self._acknowledged, env, job)

    def _acknowledged(self, env: TrueEnvironment, job: TrueJob) -> None:
        if not env.alive or env.stopping:
            return
        self._tell(env, Sign.ACKNOWLEDGED)
        if env.fault == "hang_after_acknowledge":
            self.outcome.broken += 1
            self.time.after(LOST_AFTER, self._hung, env, job)
        elif env.fault == "ghost":
            self.outcome.broken += 1
            self._tell(env, Sign.SKIPPED)
            env.job = None
            self.forge.forget(env.registration)
            self.forge.give_back(job, env.registration)
        else:
            self.time.after(draw(self.weather.acquire, self.rng), self._acquired, env, job)

    def _hung(self, env: TrueEnvironment, job: TrueJob) -> None:
        """The forge fails a job whose runner went silent after the acknowledgement (runner.md 13)."""
        if env.registration.holds is job:
            env.registration.holds = None
            job.fate = "hung"
            self.forge.finish(job, "failure")
            self.forge.forget(env.registration)

    def _acquired(self, env: TrueEnvironment, job: TrueJob) -> None:
        if not env.alive or env.stopping:
            return
        env.registration.acquired = True
        env.announced = self.time.now
        self._tell(env, Sign.ANNOUNCED)
        self.time.after(draw(self.weather.spawn, self.rng), self._spawned, env, job)

    def _spawned(self, env: TrueEnvironment, job: TrueJob) -> None:
        if not env.alive:
            return
        env.worker = True
        self.outcome.waits.append(self.time.now - job.queued)
        self._tell(env, Sign.WORKER)
        self.time.after(draw(self.weather.report, self.rng), self._reported, env, job)

    def _reported(self, env: TrueEnvironment, job: TrueJob) -> None:
        if not env.alive:
            return
        self.forge.start(job, env.name, env.registration.id)
        if self.rng.random() < self.weather.completed_while_worker_runs:
            self.time.after(job.duration // 2, self.forge.finish, job, "success")
        self.time.after(job.duration, self._over, env, job)

    def _over(self, env: TrueEnvironment, job: TrueJob) -> None:
        if not env.alive:
            return
        job.fate = job.fate or "ran"
        self.forge.finish(job, "success")
        env.registration.holds = None
        env.registration.acquired = False
        self.forge.forget(env.registration)
        if env.fault == "wedged_worker":
            return
        env.worker = False
        env.ended = self.time.now
        self._tell(env, Sign.ENDED)
        self.time.after(draw(self.weather.wind_down, self.rng), self._exit, env, 0)

    def _exit(self, env: TrueEnvironment, code: int) -> None:
        if not env.alive:
            return
        env.alive = env.worker = False
        env.code = code
        env.registration.online = False
        self.forge.idle.pop(env.registration.id, None)
        self.time.after(self.rng.randint(*FOLLOW), self._exited, env)

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

    def destroy(self, env: TrueEnvironment) -> tuple[bool, int]:
        """End an environment; return whether a job was killed by it, and how long it takes (ms).

        A job that was acquired and not over is killed; one that was only assigned is disturbed and queued
        again.
        """
        killed = False
        job = env.registration.holds
        if env.alive and env.worker and env.job is not None and env.job.status != "completed":
            job = env.job
        if env.alive and job is not None and job.status != "completed":
            if env.registration.acquired or env.worker:
                killed = True
                job.fate = "killed"
                self.time.after(LOST_AFTER, self.forge.finish, job, "failure")
                env.registration.holds = None
            else:
                self.outcome.disturbed += 1
                self.forge.give_back(job, env.registration)
        env.stopping = True
        wait = draw(self.weather.stop, self.rng) if env.alive else 0
        if env.alive and self.rng.random() < self.weather.stop_ignored:
            wait += 30_000
        self.time.after(wait, self._gone, env)
        return killed, wait

    def _gone(self, env: TrueEnvironment) -> None:
        env.alive = env.worker = False
        env.removed = True
        env.registration.online = False
        self.forge.idle.pop(env.registration.id, None)
        if self.environments.get(env.name) is env:
            del self.environments[env.name]
