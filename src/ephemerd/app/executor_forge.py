"""Commands that go to one forge: each a call with a deadline, each answer an event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ephemerd.app.budget import Bucket, OutOfBudget
from ephemerd.app.credentials import Credentials
from ephemerd.app.deadline import within
from ephemerd.app.discovery import Discovery
from ephemerd.app.inbox import Inbox
from ephemerd.app.scopes import ScopeBook
from ephemerd.core import commands as c
from ephemerd.core import events as e
from ephemerd.domain.ids import RunnerId, Scope, is_ours
from ephemerd.domain.pool import Setup
from ephemerd.domain.runner import FenceAnswer
from ephemerd.ports.errors import Gone, Limited, NameTaken, NotSent, PortError, Refused, RetryLater, Unseen
from ephemerd.ports.forge import Forge, Registration
from ephemerd.ports.system import Clock, Meter

logger = logging.getLogger(__name__)

CALL_LIMIT = 40.0
LISTING_LIMIT = 180.0
"""Outer nets in seconds, above the deadlines that the adapter keeps itself; a listing has many pages."""
BUDGET_WAIT = 15.0
"""Seconds that a write waits for its token: with one call it stays below the 60 s of `registering`."""
READ_PAUSE = 15.0
"""Seconds that a read rests which was held back for the sake of writes, before the core hears of it and may ask again:
the scope itself is not limited, so that the core would else ask at once."""
AT_ONCE = 8
"""Calls to one forge at the same time; GitHub's secondary limit is 100, shared with everything else."""

T = TypeVar("T")


class ForgeCalls:
    """The calls to one forge. Writes pass the token bucket in order; every call passes `AT_ONCE`."""

    def __init__(
        self,
        forge: Forge,
        bucket: Bucket,
        *,
        store: str,
        inbox: Inbox,
        clock: Clock,
        meter: Meter,
        credentials: Credentials,
        setup: Setup,
    ) -> None:
        self.forge = forge
        self._bucket = bucket
        self._store = store
        self._inbox = inbox
        self._clock = clock
        self._meter = meter
        self._credentials = credentials
        self._scopes = ScopeBook()
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._registering: dict[RunnerId, asyncio.Future[None]] = {}
        self.discovery = Discovery(forge, self._look, inbox, clock, setup, answers=self._answers)

    def pace(self, burst: int, rate: float, slow_rate: float) -> None:
        """Spend the budget of writes by other numbers from now on."""
        self._bucket.retune(burst, rate, slow_rate)

    async def register(self, command: c.Register) -> None:
        """Send the POST once; a second command for a runner whose call is out or done sends none."""
        runner = command.runner
        if runner in self._registering:
            return
        held = self._credentials.registration(runner)
        if held is not None:
            self._inbox.tell(e.Registered(runner, held))
            return
        over = self._registering[runner] = asyncio.get_running_loop().create_future()
        try:
            await self._register(command)
        finally:
            del self._registering[runner]
            over.set_result(None)

    async def _register(self, command: c.Register) -> None:
        runner, scope = command.runner, command.scope
        try:
            registration: Registration = await self._write(
                scope, lambda: self.forge.register(scope, runner, command.labels)
            )
        except NameTaken as error:
            self._inbox.tell(e.RegistrationFailed(runner, error.fault(), error.registration))
        except PortError as error:
            self._failed(scope, e.RegistrationFailed(runner, error.fault()), error)
        else:
            self._credentials.keep(runner, registration)
            self._inbox.tell(e.Registered(runner, registration.id))

    async def look_up_name(self, command: c.LookUpName) -> None:
        """Find a registration by name, after a POST under that name that is still out has ended."""
        runner, scope = command.runner, command.scope
        if (out := self._registering.get(runner)) is not None:
            await asyncio.wait([out])
        try:
            found = await self._read(scope, lambda: self.forge.find(scope, runner))
        except PortError as error:
            self._failed(scope, e.NameLookedUp(runner, None, error.fault()), error)
        else:
            self._inbox.tell(e.NameLookedUp(runner, found.id if found else None))

    async def look_up_runner(self, command: c.LookUpRunner) -> None:
        """Get one registration; "not found" is told after what vouches for it, and where nothing does, what
        is wrong with the scope."""
        runner, scope, token = command.runner, command.scope, command.token
        try:
            seen = await self._read(scope, lambda: self.forge.runner(scope, command.registration))
        except Gone:
            doubt = await self._vouch(scope, runner)
            if doubt is None:
                self._inbox.tell(e.RunnerLookedUp(runner, token, missing=True))
            else:
                self._failed(scope, e.RunnerLookedUp(runner, token, fault=doubt.fault()), doubt)
        except PortError as error:
            self._failed(scope, e.RunnerLookedUp(runner, token, fault=error.fault()), error)
        else:
            self._inbox.tell(e.RunnerLookedUp(runner, token, busy=seen.busy, connected=seen.connected))

    async def look_up_job(self, command: c.LookUpJob) -> None:
        """Get one job; the adapter says `Gone` only where the repository itself answered."""
        job, scope, token = command.job, command.scope, command.token
        try:
            report = await self._read(scope, lambda: self.forge.job(job), vouches=False)
        except Gone:
            self._answered(scope, vouches=False)
            self._inbox.tell(e.JobLookedUp(job, token, missing=True))
        except Unseen as error:
            await self._unseen(command, error)
        except PortError as error:
            self._failed(scope, e.JobLookedUp(job, token, fault=error.fault()), error)
        else:
            self._inbox.tell(e.JobLookedUp(job, token, report=report))

    async def _unseen(self, command: c.LookUpJob, error: Unseen) -> None:
        """A job's repository cannot be seen. Where that is the scope itself the credential is at fault; one of
        several is gone where its owner's list has it no more, and else it stays open what became of the job."""
        job, scope, token = command.job, command.scope, command.token
        if scope.kind == "repo":
            self._failed(scope, e.JobLookedUp(job, token, fault=error.fault()), error)
        elif await self.discovery.is_gone(scope, job.repository):
            self._inbox.tell(e.JobLookedUp(job, token, missing=True))
        else:
            self._inbox.tell(e.JobLookedUp(job, token, fault=Refused(error.detail).fault()))

    async def look_up_run(self, command: c.LookUpRun) -> None:
        """Get the run of a job: whose work it is."""
        job, scope, token = command.job, command.scope, command.token
        try:
            origin = await self._read(
                scope, lambda: self.forge.origin(job.repository, command.run), vouches=False
            )
        except Gone:
            self._inbox.tell(e.RunLookedUp(job, token, missing=True))
        except PortError as error:
            self._failed(scope, e.RunLookedUp(job, token, fault=error.fault()), error)
        else:
            self._inbox.tell(e.RunLookedUp(job, token, origin))

    async def deregister(self, command: c.Deregister) -> None:
        """Fence as the intent allows, once; whatever is not a clear answer is NO_ANSWER with its fault."""
        intent, token = command.intent, command.token
        scope, runner, registration = intent.scope, intent.runner, intent.registration
        try:
            answer = await self._write(
                scope, lambda: self.forge.deregister(scope, registration, intent), (FenceAnswer.ACCEPTED,)
            )
            doubt = await self._vouch(scope, runner) if answer is FenceAnswer.NOT_FOUND else None
        except PortError as error:
            answer, doubt = FenceAnswer.NO_ANSWER, error
        if doubt is not None:
            told = e.FenceAnswered(runner, registration, token, FenceAnswer.NO_ANSWER, doubt.fault())
            self._failed(scope, told, doubt)
            return
        if answer is not FenceAnswer.REFUSED:
            self._credentials.drop(runner)
        self._inbox.tell(e.FenceAnswered(runner, registration, token, answer))

    async def list_registrations(self, command: c.ListRegistrations) -> None:
        """List the registrations whose names bear our store's id."""
        scope = command.scope
        try:
            listed = await self._read(scope, lambda: self.forge.runners(scope), LISTING_LIMIT)
        except PortError as error:
            self._failed(scope, e.RegistrationsListed(scope, (), error.fault()), error)
            return
        found = tuple(
            e.FoundRegistration(runner.name, runner.id, runner.busy, runner.online)
            for runner in listed
            if is_ours(runner.name, self._store)
        )
        self._inbox.tell(e.RegistrationsListed(scope, found))

    async def list_jobs(self, command: c.ListJobs) -> None:
        """Read the jobs of a scope's repositories, as far as they are due."""
        scope = command.scope
        error = await self.discovery.list_jobs(scope)
        if error is not None:
            self._failed(scope, e.JobsListed(scope, 0, error.fault()), error)

    def _answers(self, scope: Scope) -> bool:
        return self._scopes.answers(scope, self._clock.now())

    def _look(
        self, scope: Scope, call: Callable[[], Coroutine[Any, Any, T]], limit: float
    ) -> Coroutine[Any, Any, T]:
        return self._read(scope, call, limit, vouches=False)

    async def _write(
        self, scope: Scope, call: Callable[[], Coroutine[Any, Any, T]], good: tuple[object, ...] | None = None
    ) -> T:
        try:
            await self._bucket.take(BUDGET_WAIT)
        except OutOfBudget as error:
            raise NotSent(str(error), after_ms=round(error.after * 1000)) from None
        return await self._call(scope, call, CALL_LIMIT, good)

    async def _read(
        self,
        scope: Scope,
        call: Callable[[], Coroutine[Any, Any, T]],
        limit: float | None = None,
        *,
        vouches: bool = True,
    ) -> T:
        try:
            return await self._call(
                scope, call, CALL_LIMIT if limit is None else limit, None, vouches=vouches
            )
        except NotSent as error:
            held = error
        await asyncio.sleep(min((held.after_ms or 0) / 1000, READ_PAUSE))
        raise NotSent(held.detail, after_ms=1)  # registrations and fences need not wait as reads do

    async def _call(
        self,
        scope: Scope,
        call: Callable[[], Coroutine[Any, Any, T]],
        limit: float,
        good: tuple[object, ...] | None,
        *,
        vouches: bool = True,
    ) -> T:
        """Make one call within its deadline; an answer (one of `good`, if given) speaks for the scope."""
        async with self._at_once:
            try:
                answer = await within(limit, call())
            except TimeoutError:
                raise RetryLater(f"{self.forge.name} gave no answer within {limit:.0f} s") from None
            except PortError:
                raise
            except Exception as error:
                logger.exception("a call to the forge failed in an unforeseen way")
                raise RetryLater(f"{type(error).__name__} in the adapter of {self.forge.name}") from error
            finally:
                self._measure()
        if good is None or answer in good:
            self._answered(scope, vouches=vouches)
        return answer

    async def _vouch(self, scope: Scope, runner: RunnerId) -> PortError | None:
        """Before a "not found" is told: make sure that the scope itself answers, by one cheap GET at most.

        Where it does not, return why: then "not found" is a lost permission or an outage in disguise.
        """
        if not self._scopes.fresh(scope, self._clock.now()):
            try:
                await self._read(scope, lambda: self.forge.find(scope, runner))
            except PortError as error:
                return error
        event = self._scopes.vouch(scope, self._clock.now())
        if event is not None:
            self._inbox.tell(event)
        return None

    def _answered(self, scope: Scope, *, vouches: bool = True) -> None:
        event = self._scopes.answered(scope, self._clock.now(), vouches=vouches)
        if event is not None:
            self._inbox.tell(event)

    def _failed(self, scope: Scope, answer: e.Event, error: PortError) -> None:
        """Tell the failing answer, and after it the limit where that was the cause."""
        self._inbox.tell(answer)
        self._note_fault(scope, error)

    def _note_fault(self, scope: Scope, error: PortError) -> None:
        if isinstance(error, NotSent):
            return
        if isinstance(error, Limited):
            event = self._scopes.limited(scope, self._clock.now(), error.after_ms)
            self._bucket.slow_down((error.after_ms or 0) / 1000)
            self._inbox.tell(event)
        elif not isinstance(error, Refused | Gone):
            self._scopes.faulted(scope)

    def _measure(self) -> None:
        for call in self.forge.take_calls():
            status = str(call.status)
            self._meter.count(
                "forge_requests_total", forge=self.forge.name, endpoint=call.endpoint, status=status
            )
            self._meter.observe(
                "forge_request_duration_seconds", call.seconds, forge=self.forge.name, endpoint=call.endpoint
            )
