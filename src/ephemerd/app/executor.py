"""Turns each command into a port call and its answer into an event.

`executor_forge` and `executor_runtime` hold the calls; together they are the only place that calls
`deregister` and `destroy`. Nothing is decided here: no retry of a call that creates or destroys, no order
beyond "one POST a runner". Credentials live here, in memory, by runner id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, assert_never

from ephemerd.app.budget import Bucket
from ephemerd.app.credentials import Credentials
from ephemerd.app.executor_forge import ForgeCalls
from ephemerd.app.executor_runtime import RuntimeCalls, Sink
from ephemerd.app.inbox import Inbox
from ephemerd.app.trust import Trust
from ephemerd.core import commands as c
from ephemerd.core import events as e
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import Job
from ephemerd.domain.pool import Setup
from ephemerd.domain.runner import FenceAnswer
from ephemerd.ports.forge import Forge
from ephemerd.ports.runtime import Runtime
from ephemerd.ports.system import Clock, Meter

logger = logging.getLogger(__name__)


class Executor:
    """Runs commands as tasks; `submit` never blocks. Answers go to the inbox."""

    def __init__(
        self,
        *,
        forges: Mapping[str, Forge],
        runtimes: Mapping[str, Runtime],
        setup: Setup,
        store: str,
        inbox: Inbox,
        clock: Clock,
        meter: Meter,
    ) -> None:
        self._inbox = inbox
        self._credentials = Credentials()
        policy = setup.policy
        self._forges = {
            name: ForgeCalls(
                forge,
                Bucket(policy.write_burst, policy.write_per_second, policy.write_per_second_limited),
                store=store,
                inbox=inbox,
                clock=clock,
                meter=meter,
                credentials=self._credentials,
                setup=setup,
            )
            for name, forge in forges.items()
        }
        self._runtimes = RuntimeCalls(
            runtimes,
            setup.pools,
            policy,
            store=store,
            inbox=inbox,
            clock=clock,
            meter=meter,
            credentials=self._credentials,
        )
        sink = Sink(inbox)
        attached: list[Runtime] = []
        for runtime in runtimes.values():
            if all(runtime is not other for other in attached):
                runtime.attach(sink)
                attached.append(runtime)
        self._running: set[asyncio.Task[None]] = set()
        self._following: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False
        self._closed = False

    @property
    def running(self) -> int:
        """How many commands have no answer yet (following an environment is not counted)."""
        return len(self._running)

    @property
    def epoch(self) -> str:
        """The life whose permits are honoured."""
        return self._runtimes.epoch

    @epoch.setter
    def epoch(self, epoch: str) -> None:
        self._runtimes.epoch = epoch

    def submit(self, commands: Iterable[c.Command]) -> None:
        """Begin each command. While stopping only starts begin, whose registration is already made; the
        next process life derives the others again from the states."""
        loop = asyncio.get_running_loop()
        for command in commands:
            if self._closed or (self._stopping and not isinstance(command, c.StartRunner)):
                continue
            following = isinstance(command, c.WatchRunner)
            tasks = self._following if following else self._running
            task = loop.create_task(self._run(command), name=type(command).__name__)
            tasks.add(task)
            task.add_done_callback(self._ended)
            if not following:
                self._idle.clear()

    def reconfigure(self, setup: Setup, runtimes: Mapping[str, Runtime]) -> None:
        """Take a new configuration in: `runtimes` by pool, of the same runtimes and forges as before."""
        self._runtimes.reconfigure(runtimes, setup.pools, setup.policy)
        policy = setup.policy
        for forge in self._forges.values():
            forge.pace(policy.write_burst, policy.write_per_second, policy.write_per_second_limited)
            forge.discovery.configure(setup)

    def notice(self, job: Job) -> None:
        """Hear that a job's row changed: listings look at its repository more often."""
        calls = self._forges.get(job.key.forge)
        if calls is not None:
            calls.discovery.notice(job)

    def freed(self, job: Job) -> None:
        """Hear that a runner of ours is done with a job."""
        calls = self._forges.get(job.key.forge)
        if calls is not None:
            calls.discovery.freed(job)

    def trust(self, forge: str) -> Trust | None:
        """What the deliveries of a forge have shown of themselves; None for one that is not there."""
        calls = self._forges.get(forge)
        return None if calls is None else calls.discovery.trust

    def awoke(self) -> None:
        """Hear that the machine slept: what listings knew is old."""
        for calls in self._forges.values():
            calls.discovery.awoke()

    def forget(self, runner: RunnerId) -> None:
        """Drop the credential of a runner that is gone."""
        self._credentials.drop(runner)

    def stop(self) -> None:
        """Begin no further commands; those under way go on."""
        self._stopping = True
        for task in list(self._following):
            task.cancel()

    async def settled(self) -> None:
        """Return when every command under way has been answered."""
        await self._idle.wait()

    async def close(self) -> None:
        """Cancel what is still under way and wait until it is gone; nothing begins any more."""
        self._closed = True
        self.stop()
        tasks = [*self._running, *self._following]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._following.discard(task)
        if not self._running:
            self._idle.set()
            if self._stopping:  # the loop waits for this alone, and else has nothing to do
                self._inbox.nudge()

    async def _run(self, command: c.Command) -> None:
        try:
            await self._call(command)
        except Exception:
            logger.exception("a command failed unforeseen", extra={"fields": {"command": repr(command)}})
            event = unanswered(command, Fault(Remedy.RETRY, "the command failed unforeseen; see the log"))
            if event is not None:
                self._inbox.tell(event)

    def _call(self, command: c.Command) -> Coroutine[Any, Any, None]:
        match command:
            case c.Register():
                return self._forge(command.scope.forge).register(command)
            case c.LookUpName():
                return self._forge(command.scope.forge).look_up_name(command)
            case c.LookUpRunner():
                return self._forge(command.scope.forge).look_up_runner(command)
            case c.LookUpJob():
                return self._forge(command.scope.forge).look_up_job(command)
            case c.LookUpRun():
                return self._forge(command.scope.forge).look_up_run(command)
            case c.Deregister():
                return self._forge(command.intent.scope.forge).deregister(command)
            case c.ListRegistrations():
                return self._forge(command.scope.forge).list_registrations(command)
            case c.ListJobs():
                return self._forge(command.scope.forge).list_jobs(command)
            case c.StartRunner():
                return self._runtimes.start(command)
            case c.ProbeRunner():
                return self._runtimes.probe(command)
            case c.Destroy():
                return self._runtimes.destroy(command)
            case c.WatchRunner():
                return self._runtimes.watch(command)
            case c.ListEnvironments():
                return self._runtimes.list_environments(command)
            case _:
                assert_never(command)

    def _forge(self, name: str) -> ForgeCalls:
        calls = self._forges.get(name)
        if calls is None:
            raise LookupError(f"forge {name!r} is not configured any more")
        return calls


def unanswered(command: c.Command, fault: Fault) -> e.Event | None:
    """Return the answer that tells the core of a command that came to nothing; None where none exists."""
    match command:
        case c.Register():
            return e.RegistrationFailed(command.runner, fault)
        case c.LookUpName():
            return e.NameLookedUp(command.runner, None, fault)
        case c.StartRunner():
            return e.StartFailed(command.runner, fault)
        case c.ProbeRunner():
            return e.Probed(command.runner, command.token, None, fault)
        case c.LookUpRunner():
            return e.RunnerLookedUp(command.runner, command.token, fault=fault)
        case c.LookUpJob():
            return e.JobLookedUp(command.job, command.token, fault=fault)
        case c.LookUpRun():
            return e.RunLookedUp(command.job, command.token, fault=fault)
        case c.Deregister():
            intent = command.intent
            return e.FenceAnswered(
                intent.runner, intent.registration, command.token, FenceAnswer.NO_ANSWER, fault
            )
        case c.Destroy():
            return e.DestroyFailed(command.permit.runner, command.permit.environment, fault)
        case c.ListEnvironments():
            return e.EnvironmentsListed(command.host, (), complete=False)
        case c.ListRegistrations():
            return e.RegistrationsListed(command.scope, (), fault)
        case c.ListJobs():
            return e.JobsListed(command.scope, 0, fault)
        case c.WatchRunner():
            return None
        case _:
            assert_never(command)
