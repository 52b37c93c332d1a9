"""Liveness of one run, from the truth (DOMAIN.md section 8): what must happen in the end, and by when.

I2  a queued job that a pool can serve is started within boot + one reconcile interval + backoff once a slot
    is free; time in which the forge is out, holds the job back, or the daemon is down does not count. While
    jobs of its class (repository and labels) are being started, the free slots are theirs, and it is in line
I4  what was made is gone 5 min after the last deadline that can end it
"""

from __future__ import annotations

from ephemerd.core.waiting import why_waiting
from ephemerd.domain.pool import MINUTE, SECOND, Pool, Setup
from ephemerd.domain.runner import RunnerState
from ephemerd.testing.simulate.driver import ModelDaemon
from ephemerd.testing.simulate.truth import Outcome, TrueEnvironment, TrueJob, TrueRegistration
from ephemerd.testing.weather import LogNormal, Spread, Weather

LOOK_EVERY = 30 * SECOND
SLACK = MINUTE
"""Beside the named terms: a scope's next try, and the pause between two looks."""
LEFT_FOR = 5 * MINUTE


def longest(spread: Spread) -> int:
    """Return an upper end of a duration in ms (of a log-normal one, four times its 95 % quantile)."""
    return int(1000 * (4 * spread.p95 if isinstance(spread, LogNormal) else spread.hi))


def start_limit(weather: Weather, setup: Setup) -> int:
    """Return within how long (ms) a job must start once a slot is free."""
    policy = setup.policy
    limit = longest(weather.boot) + longest(weather.rest_delay) + policy.reconcile_every + SLACK
    fails = (
        weather.exit_without_job
        or weather.jit_answer_lost
        or weather.ghost
        or weather.hang_after_acknowledge
        or weather.outage_every is not None
        or weather.daemon_crash
    )
    return limit + (int(max(policy.backoff) * (1 + policy.jitter)) if fails else 0)


class Liveness:
    """Looks every half minute of virtual time while jobs wait."""

    def __init__(self, daemon: ModelDaemon, outcome: Outcome, weather: Weather, setup: Setup) -> None:
        self.daemon, self.outcome, self.setup = daemon, outcome, setup
        self.limit = start_limit(weather, setup)
        self.lost: dict[int, TrueJob] = {}
        self._looking = False
        self._slots = {host.name: host.slots for host in setup.hosts}

    def queued(self) -> None:
        """A job was queued: look, unless that is under way."""
        if not self._looking:
            self._looking = True
            self.daemon.time.after(LOOK_EVERY, self._look)

    def _look(self) -> None:
        forge = self.daemon.forge
        if not forge.open:
            self._looking = False
            return
        if forge.queued and self.daemon.up and not forge.in_outage():
            self._charge()
        self.daemon.time.after(LOOK_EVERY, self._look)

    def _charge(self) -> None:
        """Charge the time since the last look to every job that could have been served in it."""
        free = self._free()
        forge, now = self.daemon.forge, self.daemon.time.now
        room: dict[tuple[str, tuple[str, ...]], bool] = {}
        for job in forge.queued.values():
            if forge.held_back(job) or job.key.id in self.lost:
                continue
            fit = (job.key.repository, job.labels)
            if now - forge.served.get(fit, 0) <= LOOK_EVERY:
                job.waited = 0
                continue
            if fit not in room:
                room[fit] = any(free[pool.host] > 0 for pool in self._pools(job))
            if room[fit]:
                job.waited += LOOK_EVERY
                if job.waited > self.limit:
                    self._lose(job)

    def _pools(self, job: TrueJob) -> list[Pool]:
        return [
            pool
            for pool in self.setup.pools
            if pool.scope.serves(job.key) and job.labels and set(job.labels) <= set(pool.labels)
        ]

    def _free(self) -> dict[str, int]:
        """Count the slots in which no environment is."""
        free = dict(self._slots)
        hosts = {pool.name: pool.host for pool in self.setup.pools}
        abandoned = self._abandoned()
        for env in self.daemon.runtime.environments.values():
            if env.name not in abandoned:
                free[hosts[env.pool]] -= 1
        return free

    def _abandoned(self) -> dict[str, None]:
        runners = self.daemon.core.state.runners.values()
        return {row.id: None for row in runners if row.state is RunnerState.ABANDONED}

    def _lose(self, job: TrueJob) -> None:
        self.lost[job.key.id] = job
        now = self.daemon.time.now
        why = why_waiting(self.daemon.core.state, job.key, now) or "the daemon does not know that it waits"
        text = f"{job.key} waited {job.waited // 1000} s for a runner although a slot was free; {why}"
        self.outcome.found("lost", str(job.key), now, text)

    def finish(self) -> None:
        """At the end: jobs that never ran are lost too, and what is left is leaked or abandoned."""
        for job in self.daemon.forge.open.values():
            if job.key.id not in self.lost:
                self.lost[job.key.id] = job
                now = self.daemon.time.now
                self.outcome.found("lost", str(job.key), now, f"{job.key} never ran: {job.status}")
        self.outcome.lost = len(self.lost)
        abandoned = self._abandoned()
        for env in self.daemon.runtime.environments.values():
            if env.name in abandoned:
                self.outcome.abandoned += 1
            else:
                self._leak(env.name, "environment")
        for registration in self.daemon.forge.registrations.values():
            self._leak(registration.name, "registration")

    def _leak(self, name: str, what: str) -> None:
        self.outcome.leaked += 1
        self.outcome.found("leaked", name, self.daemon.time.now, f"the {what} of {name} is left")

    def all_due(self, quiet_since: int, outage: int) -> bool:
        """Say whether everything that is left should be gone by now.

        quiet_since  when the last job ended; outage  ms of outage since then
        """
        now, daemon = self.daemon.time.now, self.daemon
        base = max(quiet_since, daemon.booted)
        bounds = [self._environment_bound(env, base) for env in daemon.runtime.environments.values()]
        bounds += [self._registration_bound(found, base) for found in daemon.forge.registrations.values()]
        return now > max(bounds, default=0) + outage + LEFT_FOR

    def _environment_bound(self, env: TrueEnvironment, base: int) -> int:
        policy = self.setup.policy
        if env.alive and env.worker and env.over:
            return (env.announced or base) + policy.job_bound + policy.bound_extra
        pool = next(pool for pool in self.setup.pools if pool.name == env.pool)
        bound = max(base, env.booted_at or env.made) + max(pool.orphan_grace, policy.provision_limit)
        if env.offered is not None:
            bound = max(bound, max(env.offered, base) + policy.soft_sign_life + 2 * policy.look_again)
        return bound

    def _registration_bound(self, found: TrueRegistration, base: int) -> int:
        policy = self.setup.policy
        grace = max(pool.orphan_grace for pool in self.setup.pools)
        listed_twice = 2 * policy.reconcile_every + policy.look_again
        return max(base, found.made) + grace + listed_twice
