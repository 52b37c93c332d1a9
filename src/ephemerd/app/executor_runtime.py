"""Commands that go to the runtimes: start, watch, probe, destroy, list; each answer an event."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ephemerd.app.credentials import Credentials
from ephemerd.app.deadline import within
from ephemerd.app.inbox import Inbox
from ephemerd.core import commands as c
from ephemerd.core import events as e
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.pool import SECOND, Policy, Pool
from ephemerd.domain.verdict import Sign
from ephemerd.ports.errors import Broken, Gone, PortError, RetryLater
from ephemerd.ports.runtime import Runtime, StartOrder
from ephemerd.ports.system import Clock, Meter

logger = logging.getLogger(__name__)

LIST_LIMIT = 30.0
WATCH_LIMIT = 30.0
WATCH_PAUSES = (2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Pauses between attempts to attach again, in seconds; the last one repeats."""
DESTROY_EXTRA = 20.0
"""Seconds beyond the core's own bound on a destroy: a late success still gives the slot back."""
LEAST_DESTROY = 90.0
"""A stop and a kill wait 30 s each (`Runtime.destroy`), however short the policy's bound is."""
STARTS_AT_ONCE = 8
TURN_SHARE = 0.5
"""What part of the provision limit a start may wait for its turn. The rest is for the start itself: one that is begun
with no time left is torn down half done, and where starts are slow each of these makes the next ones later still."""
PROBES_AT_ONCE = 16

T = TypeVar("T")


class Sink:
    """What the runtimes tell without being asked, put into the inbox from whatever thread it comes."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def sign(self, runner: RunnerId, sign: Sign, detail: str) -> None:
        self._tell(e.SignSeen(runner, sign, detail))

    def exited(self, runner: RunnerId, code: int | None, leftovers: int) -> None:
        self._tell(e.EnvironmentExited(runner, code, leftovers))

    def _tell(self, event: e.Event) -> None:
        if threading.get_ident() == self._thread:
            self._inbox.tell(event)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._inbox.tell, event)


class RuntimeCalls:
    """The calls to the runtimes, by pool. An environment ends only here, and only with its permit."""

    def __init__(
        self,
        runtimes: Mapping[str, Runtime],
        pools: tuple[Pool, ...],
        policy: Policy,
        *,
        store: str,
        inbox: Inbox,
        clock: Clock,
        meter: Meter,
        credentials: Credentials,
    ) -> None:
        self._runtimes = dict(runtimes)
        self._hosts = {pool.name: pool.host for pool in pools}
        self._policy = policy
        self._store = store
        self.epoch = ""
        self._inbox = inbox
        self._clock = clock
        self._meter = meter
        self._credentials = credentials
        self._starts = asyncio.Semaphore(STARTS_AT_ONCE)
        self._probes = asyncio.Semaphore(PROBES_AT_ONCE)
        self._starting: set[RunnerId] = set()
        self._watching: set[str] = set()

    async def start(self, command: c.StartRunner) -> None:
        """Start the environment with the credential that registering left here; a second command for a
        runner whose start is under way does nothing."""
        runner, pool = command.runner, command.pool
        if runner in self._starting:
            return
        credential = self._credentials.take(runner)
        if credential is None:
            self._inbox.tell(e.StartFailed(runner, lost_credential()))
            return
        self._starting.add(runner)
        try:
            runtime = self._configured(pool)
            order = StartOrder(runner, pool, self._store, credential)
            limit = max(self._policy.provision_limit / SECOND, 1.0)
            await self._turn(limit * TURN_SHARE)
            try:
                environment = await self._call(runtime.start(order), limit, "start")
            finally:
                self._starts.release()
        except PortError as error:
            self._inbox.tell(e.StartFailed(runner, error.fault()))
        else:
            self._inbox.tell(e.EnvironmentStarted(runner, environment))
        finally:
            self._starting.discard(runner)

    async def _turn(self, seconds: float) -> None:
        """Wait for one of the places of starts under way; raise `Broken` where none becomes free in time."""
        # One that is free is had at once, and needs no timer.
        limit = seconds if self._starts.locked() else None
        try:
            async with asyncio.timeout(limit):
                await self._starts.acquire()
        except TimeoutError:
            raise Broken(
                f"its turn to be started did not come within {seconds:g} s: starts are too many or too slow"
            ) from None

    async def probe(self, command: c.ProbeRunner) -> None:
        """Look inside once, within the probe's deadline."""
        runner, token = command.runner, command.token
        loop = asyncio.get_running_loop()
        try:
            runtime = self._runtime(command.pool, command.environment)
            async with self._probes:
                began = loop.time()
                limit = self._policy.probe_timeout / SECOND
                report = await self._call(runtime.probe(runner, command.environment), limit, "probe")
        except PortError as error:
            self._inbox.tell(e.Probed(runner, token, None, error.fault()))
        else:
            self._meter.observe("probe_duration_seconds", loop.time() - began, probe=runtime.kind)
            self._inbox.tell(e.Probed(runner, token, report))

    async def destroy(self, command: c.Destroy) -> None:
        """End the environment as the permit allows; an expired or foreign permit ends nothing."""
        permit = command.permit
        runner, environment = permit.runner, permit.environment
        try:
            if permit.epoch != self.epoch or self._clock.now() >= permit.expires:
                fault = Fault(Remedy.REFUSED, "the permit is expired or from another process life")
                self._inbox.tell(e.DestroyFailed(runner, environment, fault))
                return
            runtime = self._runtime(command.pool, environment)
            limit = max(self._policy.retiring_limit / SECOND + DESTROY_EXTRA, LEAST_DESTROY)
            await self._call(runtime.destroy(environment, permit), limit, "destroy")
        except PortError as error:
            self._inbox.tell(e.DestroyFailed(runner, environment, error.fault()))
        else:
            self._inbox.tell(e.EnvironmentDestroyed(runner, environment))

    async def watch(self, command: c.WatchRunner) -> None:
        """Attach to an environment, again with growing pauses while it fails: an error is not an exit.
        Only "not there" on two looks is."""
        runner, environment = command.runner, command.environment
        if environment in self._watching:
            return
        self._watching.add(environment)
        missed = 0
        try:
            for pause in _pauses():
                try:
                    runtime = self._runtime(command.pool, environment)
                    watched = runtime.watch(runner, command.pool, environment)
                    await self._call(watched, WATCH_LIMIT, "watch")
                    return
                except Gone:
                    missed += 1
                    if missed >= 2:
                        self._inbox.tell(e.EnvironmentExited(runner, None))
                        return
                except PortError as error:
                    missed = 0
                    logger.warning(
                        "cannot follow an environment; trying again",
                        extra={"fields": {"runner": runner, "error": error.detail, "pause_s": pause}},
                    )
                await asyncio.sleep(pause)
        finally:
            self._watching.discard(environment)

    async def list_environments(self, command: c.ListEnvironments) -> None:
        """List everything of ours on a host, over each of its runtimes once. Where none is known, nobody looked:
        that is no complete listing, for runners outlive their pool's configuration."""
        found: dict[str, e.FoundEnvironment] = {}
        runtimes = self._on(command.host)
        complete = bool(runtimes)
        for runtime in runtimes:
            try:
                listed = await self._call(runtime.list(self._store), LIST_LIMIT, "list")
            except PortError as error:
                complete = False
                logger.warning(
                    "cannot list the environments of a host",
                    extra={"fields": {"host": command.host, "error": error.detail}},
                )
            else:
                found.update((one.environment, one) for one in listed)
        self._inbox.tell(e.EnvironmentsListed(command.host, tuple(found.values()), complete))

    def reconfigure(self, runtimes: Mapping[str, Runtime], pools: tuple[Pool, ...], policy: Policy) -> None:
        """Take a new configuration in. A pool that is not in it stays known, for its runners."""
        self._runtimes.update(runtimes)
        self._hosts.update((pool.name, pool.host) for pool in pools)
        self._policy = policy

    def _on(self, host: str) -> list[Runtime]:
        """The runtimes of a host, each object once, in the order of the pools."""
        return _each_once(
            runtime for pool, runtime in self._runtimes.items() if self._hosts.get(pool) == host
        )

    def _configured(self, pool: str) -> Runtime:
        runtime = self._runtimes.get(pool)
        if runtime is None:
            raise Broken(f"pool {pool!r} is not configured; nothing is started in it")
        return runtime

    def _runtime(self, pool: str, environment: str) -> Runtime:
        """Return the runtime that an environment belongs to. Runners outlive their pool's configuration, and its
        choice of a runtime: the reference says of which kind it is, and where there is only one, that is meant."""
        kind, known = environment.partition(":")[0], _each_once(self._runtimes.values())
        alike = [runtime for runtime in known if runtime.kind == kind]
        runtime = self._runtimes.get(pool)
        if runtime is not None and (runtime in alike or not alike):
            return runtime
        possible = alike or known
        if len(possible) == 1:
            return possible[0]
        raise RetryLater(f"pool {pool!r} is not configured as it was; configure it again to end its runners")

    async def _call(self, call: Coroutine[Any, Any, T], limit: float, what: str) -> T:
        try:
            return await within(limit, call)
        except TimeoutError:
            raise RetryLater(f"{what} did not return within {limit:.0f} s") from None
        except PortError:
            raise
        except Exception as error:
            logger.exception("a call to a runtime failed in an unforeseen way")
            raise RetryLater(f"{type(error).__name__} in the runtime during {what}") from error


def _each_once(runtimes: Iterable[Runtime]) -> list[Runtime]:
    once: list[Runtime] = []
    for runtime in runtimes:
        if all(runtime is not other for other in once):
            once.append(runtime)
    return once


def _pauses() -> Iterator[float]:
    yield from WATCH_PAUSES
    yield from itertools.repeat(WATCH_PAUSES[-1])


def lost_credential() -> Fault:
    """The fault of a start whose credential is gone: fence the registration and make another."""
    return Fault(Remedy.GONE, "the credential is not held any more and cannot be fetched again")
