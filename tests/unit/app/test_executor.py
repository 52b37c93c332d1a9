"""The executor: each command one port call, each answer an event; nothing is repeated blindly."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from msgspec.structs import replace

from ephemerd.app import deadline, executor_forge
from ephemerd.app.executor import Executor, unanswered
from ephemerd.app.inbox import Inbox
from ephemerd.core import commands as c
from ephemerd.core import events as e
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus, Origin
from ephemerd.domain.permit import FenceIntent, Permit, Warrant
from ephemerd.domain.pool import Policy
from ephemerd.domain.runner import FenceAnswer
from ephemerd.domain.verdict import Sign, Verdict
from ephemerd.ports.errors import Broken, Denied, Gone, Limited, NameTaken, NotSent, Refused, RetryLater
from ephemerd.ports.forge import ForgeRunner, JobsSeen
from tests.unit.app.fakes import (
    SCOPE,
    STORE,
    T0,
    FakeClock,
    FakeForge,
    FakeMeter,
    FakeRuntime,
    key,
    report,
    setup,
    until,
)

R = RunnerId(f"eph-{STORE}-abcd-1")
EPOCH = "abcd"


class Bench:
    """An executor with fakes around it."""

    def __init__(self, policy: Policy | None = None, forge: FakeForge | None = None) -> None:
        self.inbox = Inbox()
        self.clock = FakeClock()
        self.meter = FakeMeter()
        self.forge = forge or FakeForge()
        self.runtime = FakeRuntime()
        self.executor = Executor(
            forges={"github": self.forge},
            runtimes={"linux": self.runtime},
            setup=setup(policy),
            store=STORE,
            inbox=self.inbox,
            clock=self.clock,
            meter=self.meter,
        )
        self.executor.epoch = EPOCH

    async def run(self, *commands: c.Command) -> list[Any]:
        """Run the commands to their answers and return everything that was told, in order."""
        self.executor.submit(commands)
        await asyncio.wait_for(self.executor.settled(), 5)
        return self.told()

    def told(self) -> list[Any]:
        return [item.event for item in self.inbox.take(1000)]

    async def answers(self, *commands: c.Command) -> list[Any]:
        """As `run`, without what was told of scopes."""
        return [event for event in await self.run(*commands) if not isinstance(event, e.ScopeAnswered)]


@pytest.fixture
async def bench():
    made = Bench()
    yield made
    await made.executor.close()


def register(runner: RunnerId = R) -> c.Register:
    return c.Register(runner, SCOPE, ("linux",))


def intent(runner: RunnerId = R, registration: int = 101) -> FenceIntent:
    return FenceIntent(runner, SCOPE, registration, Warrant.IDLE, "surplus", T0, ())


def permit(**more) -> Permit:
    made = Permit(
        R, "env-1", Warrant.IDLE, "surplus", Verdict.IDLE, T0, T0 + 10_000, EPOCH, "accepted", (T0, T0), ()
    )
    return replace(made, **more)


async def test_registering_and_starting_hands_the_credential_over_once(bench):
    assert await bench.answers(register()) == [e.Registered(R, 101)]
    assert await bench.answers(c.StartRunner(R, "linux")) == [e.EnvironmentStarted(R, f"env-{R}")]
    (order,) = bench.runtime.orders
    assert (order.runner, order.pool, order.store, order.credential) == (R, "linux", STORE, f"secret-of-{R}")
    (failed,) = await bench.answers(c.StartRunner(R, "linux"))
    assert isinstance(failed, e.StartFailed)
    assert failed.fault.remedy is Remedy.GONE
    assert len(bench.runtime.orders) == 1


async def test_no_event_and_no_repr_holds_the_credential(bench):
    told = await bench.run(register())
    assert "secret" not in repr(told) + repr(vars(bench.executor)) + repr(vars(bench.executor._credentials))


async def test_a_second_register_sends_no_second_post(bench):
    bench.forge.hold["register"] = asyncio.Event()
    bench.executor.submit([register(), register()])
    await until(lambda: bench.forge.named("register"))
    bench.forge.hold["register"].set()
    await bench.executor.settled()
    assert len(bench.forge.named("register")) == 1
    bench.told()
    assert await bench.answers(register()) == [e.Registered(R, 101)]
    assert len(bench.forge.named("register")) == 1


async def test_a_name_that_is_taken_comes_with_its_registration(bench):
    bench.forge.answers["register"] = NameTaken("taken", 77)
    (failed,) = await bench.answers(register())
    assert failed == e.RegistrationFailed(R, Fault(Remedy.REFUSED, "taken"), 77)


async def test_a_look_up_of_the_name_waits_for_the_post_that_is_out(bench):
    bench.forge.hold["register"] = asyncio.Event()
    bench.executor.submit([register(), c.LookUpName(R, SCOPE)])
    await until(lambda: bench.forge.named("register"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not bench.forge.named("find")
    bench.forge.hold["register"].set()
    await bench.executor.settled()
    told = [event for event in bench.told() if not isinstance(event, e.ScopeAnswered)]
    assert told == [e.Registered(R, 101), e.NameLookedUp(R, None)]


async def test_the_name_looked_up_gives_the_registration(bench):
    bench.forge.answers["find"] = ForgeRunner(55, R, False, False, (), None)
    assert await bench.answers(c.LookUpName(R, SCOPE)) == [e.NameLookedUp(R, 55)]


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (RetryLater("timeout"), Remedy.RETRY),
        (Refused("422"), Remedy.REFUSED),
        (Denied("401"), Remedy.DENIED),
        (Broken("x"), Remedy.BROKEN),
        (ValueError("a bug"), Remedy.RETRY),
    ],
)
async def test_every_failed_call_is_answered_by_its_remedy(bench, error, remedy):
    for call in ("register", "find", "runner", "job", "origin", "runners", "active_jobs", "deregister"):
        bench.forge.answers[call] = error
    told = await bench.answers(
        register(),
        c.LookUpName(R, SCOPE),
        c.LookUpRunner(R, SCOPE, 1, 7),
        c.LookUpJob(key(), SCOPE, 8),
        c.LookUpRun(key(), 7, SCOPE, 8),
        c.ListRegistrations(SCOPE),
        c.ListJobs(SCOPE),
        c.Deregister(intent(), 9),
    )
    assert {type(event) for event in told} == {
        e.RegistrationFailed,
        e.NameLookedUp,
        e.RunnerLookedUp,
        e.JobLookedUp,
        e.RunLookedUp,
        e.RegistrationsListed,
        e.JobsListed,
        e.FenceAnswered,
    }
    assert {event.fault.remedy for event in told} == {remedy}
    (fenced,) = [event for event in told if isinstance(event, e.FenceAnswered)]
    assert fenced.answer is FenceAnswer.NO_ANSWER
    assert fenced.token == 9


async def test_whose_work_a_run_is(bench):
    (told,) = await bench.answers(c.LookUpRun(key(), 7, SCOPE, 3))
    assert told == e.RunLookedUp(key(), 3, missing=True)
    bench.forge.answers["origin"] = Origin(public=False, fork=True)
    (told,) = await bench.answers(c.LookUpRun(key(), 7, SCOPE, 4))
    assert told == e.RunLookedUp(key(), 4, Origin(public=False, fork=True))


async def test_a_limit_is_told_after_its_answer_with_its_end(bench):
    bench.forge.answers["job"] = Limited("slow down", after_ms=90_000)
    told = await bench.run(c.LookUpJob(key(), SCOPE, 3))
    assert [type(event) for event in told] == [e.JobLookedUp, e.ScopeAnswered]
    assert told[1] == e.ScopeAnswered(SCOPE, limited_until=T0 + 90_000)


async def test_a_limit_without_an_end_holds_a_minute(bench):
    bench.forge.answers["job"] = Limited("slow down")
    told = await bench.run(c.LookUpJob(key(), SCOPE, 3))
    assert told[1] == e.ScopeAnswered(SCOPE, limited_until=T0 + 60_000)


async def test_an_answer_is_told_once_in_thirty_seconds(bench):
    first = await bench.run(c.LookUpName(R, SCOPE))
    assert first == [e.ScopeAnswered(SCOPE), e.NameLookedUp(R, None)]
    bench.clock.ms += 20_000
    assert await bench.run(c.LookUpName(R, SCOPE)) == [e.NameLookedUp(R, None)]
    bench.clock.ms += 20_000
    assert (await bench.run(c.LookUpName(R, SCOPE)))[0] == e.ScopeAnswered(SCOPE)


async def test_after_a_fault_the_next_answer_is_told_soon(bench):
    await bench.run(c.LookUpName(R, SCOPE))
    bench.clock.ms += 5_000
    bench.forge.answers["find"] = RetryLater("503")
    await bench.run(c.LookUpName(R, SCOPE))
    del bench.forge.answers["find"]
    assert (await bench.run(c.LookUpName(R, SCOPE)))[0] == e.ScopeAnswered(SCOPE)


async def test_a_missing_runner_is_vouched_for_by_one_get_of_the_scope(bench):
    bench.forge.answers["runner"] = Gone("404")
    told = await bench.run(c.LookUpRunner(R, SCOPE, 1, 7))
    assert told == [e.ScopeAnswered(SCOPE), e.RunnerLookedUp(R, 7, missing=True)]
    assert len(bench.forge.named("find")) == 1
    bench.clock.ms += 5_000
    told = await bench.run(c.LookUpRunner(R, SCOPE, 1, 8))
    assert told == [e.ScopeAnswered(SCOPE), e.RunnerLookedUp(R, 8, missing=True)]
    assert len(bench.forge.named("find")) == 1, "the last answer is fresh enough"


@pytest.mark.parametrize(
    "error", [Denied("404: check the scope"), RetryLater("502"), Limited("429", after_ms=9)]
)
async def test_where_nothing_vouches_for_not_found_it_is_told_as_what_is_wrong_with_the_scope(bench, error):
    """A token that lost its access gets 404 for everything: nothing of it may read as "gone"."""
    bench.forge.answers["runner"] = Gone("404")
    bench.forge.answers["deregister"] = FenceAnswer.NOT_FOUND
    bench.forge.answers["find"] = error
    assert await bench.answers(c.LookUpRunner(R, SCOPE, 1, 7)) == [
        e.RunnerLookedUp(R, 7, fault=error.fault())
    ]
    unanswered_fence = e.FenceAnswered(R, 101, 4, FenceAnswer.NO_ANSWER, error.fault())
    assert await bench.answers(c.Deregister(intent(), 4)) == [unanswered_fence]


async def test_an_answer_about_jobs_does_not_vouch_for_a_missing_runner(bench):
    """A token can keep its access to jobs and lose that to runners."""
    bench.forge.answers["job"] = report(1)
    bench.forge.answers["runner"] = Gone("404")
    bench.forge.answers["find"] = Denied("404")
    await bench.run(c.LookUpJob(key(), SCOPE, 1), c.ListJobs(SCOPE))
    (told,) = await bench.answers(c.LookUpRunner(R, SCOPE, 1, 7))
    assert (told.missing, told.fault.remedy) == (False, Remedy.DENIED)


class Deaf(FakeForge):
    """A forge whose calls go on when they are cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()

    async def runner(self, scope, registration):
        while not self.over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.over.wait()
        raise RetryLater("too late")


async def test_a_port_call_that_never_returns_holds_nothing_up(monkeypatch):
    """Not even one that swallows its cancellation: its answer is "none", and its place is free again."""
    monkeypatch.setattr(executor_forge, "CALL_LIMIT", 0.01)
    monkeypatch.setattr(executor_forge, "AT_ONCE", 1)
    monkeypatch.setattr(deadline, "A_MOMENT", 0.01)
    deaf = Deaf()
    bench = Bench(forge=deaf)
    for token in (1, 2):
        (told,) = await bench.answers(c.LookUpRunner(R, SCOPE, 1, token))
        assert told.fault.remedy is Remedy.RETRY
        assert "within" in told.fault.detail
    assert deadline.left_behind() == 2
    deaf.over.set()
    await until(lambda: deadline.left_behind() == 0)
    await bench.executor.close()


async def test_a_fence_not_found_is_vouched_for(bench):
    bench.forge.answers["deregister"] = FenceAnswer.NOT_FOUND
    told = await bench.run(c.Deregister(intent(), 4))
    assert told == [e.ScopeAnswered(SCOPE), e.FenceAnswered(R, 101, 4, FenceAnswer.NOT_FOUND)]


@pytest.mark.parametrize("answer", [FenceAnswer.ACCEPTED, FenceAnswer.REFUSED])
async def test_a_fence_is_sent_once_and_its_answer_told(bench, answer):
    bench.forge.answers["deregister"] = answer
    assert await bench.answers(c.Deregister(intent(), 4)) == [e.FenceAnswered(R, 101, 4, answer)]
    assert len(bench.forge.named("deregister")) == 1


async def test_a_refused_fence_does_not_vouch_for_the_scope(bench):
    bench.forge.answers["deregister"] = FenceAnswer.REFUSED
    assert not [x for x in await bench.run(c.Deregister(intent(), 4)) if isinstance(x, e.ScopeAnswered)]


async def test_an_accepted_fence_drops_the_credential(bench):
    await bench.run(register())
    await bench.run(c.Deregister(intent(), 4))
    (failed,) = await bench.answers(c.StartRunner(R, "linux"))
    assert isinstance(failed, e.StartFailed)


async def test_a_missing_job_is_told_as_missing(bench):
    told = await bench.run(c.LookUpJob(key(), SCOPE, 3))
    assert told == [e.ScopeAnswered(SCOPE), e.JobLookedUp(key(), 3, missing=True)]


async def test_a_found_job_is_told_as_it_is(bench):
    bench.forge.answers["job"] = report(1, ForgeStatus.IN_PROGRESS)
    (told,) = await bench.answers(c.LookUpJob(key(), SCOPE, 3))
    assert told == e.JobLookedUp(key(), 3, report=report(1, ForgeStatus.IN_PROGRESS))


async def test_jobs_are_listed_in_short_parts_then_the_end(bench):
    reports = [report(number) for number in range(1, e.READ_AT_ONCE + 3)]
    bench.forge.answers["active_jobs"] = JobsSeen(tuple(reports), complete=True, open=len(reports))
    told = await bench.answers(c.ListJobs(SCOPE))
    assert told == [
        e.JobsRead(SCOPE, tuple(reports[: e.READ_AT_ONCE])),
        e.JobsRead(SCOPE, tuple(reports[e.READ_AT_ONCE :])),
        e.JobsListed(SCOPE, len(reports), lively=True),
    ]


async def test_a_read_that_was_held_back_does_not_keep_the_scope_from_writing(bench, monkeypatch):
    monkeypatch.setattr("ephemerd.app.executor_forge.READ_PAUSE", 0.01)
    bench.forge.answers["runners"] = NotSent(
        "500 requests are left, kept for registrations", after_ms=3_000_000
    )
    told = await bench.answers(c.ListRegistrations(SCOPE))
    assert told == [
        e.RegistrationsListed(
            SCOPE, (), Fault(Remedy.LIMITED, "500 requests are left, kept for registrations", 1)
        )
    ]
    (made,) = await bench.answers(register())
    assert isinstance(made, e.Registered)


async def test_only_our_own_registrations_are_listed(bench):
    foreign = [
        ForgeRunner(1, "eph-other-abcd-1", True, False, (), True),
        ForgeRunner(2, "box", True, True, (), True),
    ]
    bench.forge.answers["runners"] = [ForgeRunner(3, R, True, True, (), True), *foreign]
    (told,) = await bench.answers(c.ListRegistrations(SCOPE))
    assert told == e.RegistrationsListed(SCOPE, (e.FoundRegistration(R, 3, True, True),))


async def test_writes_pass_the_bucket_and_are_not_sent_when_it_is_empty(monkeypatch):
    monkeypatch.setattr("ephemerd.app.executor_forge.BUDGET_WAIT", 0.01)
    bench = Bench(Policy(write_burst=2, write_per_second=0.001))
    runners = [RunnerId(f"eph-{STORE}-abcd-{number}") for number in range(3)]
    told = await bench.answers(*(register(runner) for runner in runners))
    assert len(bench.forge.named("register")) == 2
    (failed,) = [event for event in told if isinstance(event, e.RegistrationFailed)]
    assert failed.fault.remedy is Remedy.LIMITED
    assert (failed.fault.after_ms or 0) >= 1000
    assert await bench.answers(c.LookUpName(R, SCOPE)) == [e.NameLookedUp(R, None)], "reads need no token"


async def test_a_call_without_an_answer_ends_at_its_deadline(monkeypatch, bench):
    monkeypatch.setattr("ephemerd.app.executor_forge.CALL_LIMIT", 0.01)
    bench.forge.hold["runner"] = asyncio.Event()
    (told,) = await bench.answers(c.LookUpRunner(R, SCOPE, 1, 7))
    assert told.fault.remedy is Remedy.RETRY
    assert "no answer" in told.fault.detail


async def test_requests_are_measured(bench):
    await bench.run(c.LookUpName(R, SCOPE))
    assert bench.meter.total("forge_requests_total", endpoint="find", status="200", forge="github") == 1
    assert (
        "forge_request_duration_seconds",
        0.01,
        {"forge": "github", "endpoint": "find"},
    ) in bench.meter.seen


async def test_a_probe_is_answered_by_what_was_seen(bench):
    (told,) = await bench.answers(c.ProbeRunner(R, "linux", "env-1", 5))
    assert told.token == 5
    assert told.report.workers == 0
    assert [name for name, *_ in bench.meter.seen] == ["probe_duration_seconds"]


async def test_a_probe_ends_at_its_deadline():
    bench = Bench(Policy(probe_timeout=10))
    bench.runtime.hold["probe"] = asyncio.Event()
    (told,) = await bench.answers(c.ProbeRunner(R, "linux", "env-1", 5))
    assert (told.report, told.fault.remedy) == (None, Remedy.RETRY)


async def test_destroy_needs_a_living_permit_of_this_life(bench):
    for bad in (permit(expires=T0), permit(epoch="zzzz")):
        (told,) = await bench.answers(c.Destroy(bad, "linux"))
        assert isinstance(told, e.DestroyFailed)
        assert told.fault.remedy is Remedy.REFUSED
    assert not bench.runtime.named("destroy")
    assert await bench.answers(c.Destroy(permit(), "linux")) == [e.EnvironmentDestroyed(R, "env-1")]
    assert bench.runtime.named("destroy") == [("destroy", "env-1", permit())]


async def test_an_environment_that_will_not_die_is_told(bench):
    bench.runtime.answers["destroy"] = Broken("it would not die")
    (told,) = await bench.answers(c.Destroy(permit(), "linux"))
    assert told == e.DestroyFailed(R, "env-1", Fault(Remedy.BROKEN, "it would not die"))


async def test_runners_outlive_their_pools_configuration(bench):
    assert await bench.answers(c.Destroy(permit(), "mac")) == [e.EnvironmentDestroyed(R, "env-1")]
    await bench.run(register())
    (failed,) = await bench.answers(c.StartRunner(R, "mac"))
    assert failed.fault.remedy is Remedy.BROKEN
    assert not bench.runtime.orders


async def test_a_pool_that_changed_its_runtime_leaves_its_runners_to_the_one_they_live_in(bench):
    """Else what runs could not be looked at, followed or ended any more."""
    containers, processes = FakeRuntime(), FakeRuntime()
    containers.kind, processes.kind = "docker", "process"
    bench.executor._runtimes._runtimes = {"linux": containers, "mac": processes}
    lived = permit(environment="process:1:x")
    for pool in ("linux", "removed"):
        assert await bench.answers(c.Destroy(lived, pool)) == [e.EnvironmentDestroyed(R, "process:1:x")]
        await bench.answers(c.ProbeRunner(R, pool, "process:1:x", 5))
    assert (len(processes.named("destroy")), len(processes.named("probe")), containers.calls) == (2, 2, [])
    await bench.answers(c.ProbeRunner(R, "mac", "docker:1:x", 5))
    assert len(containers.named("probe")) == 1


async def test_of_two_runtimes_none_is_guessed(bench):
    bench.executor._runtimes._runtimes["other"] = FakeRuntime()
    (told,) = await bench.answers(c.Destroy(permit(), "mac"))
    assert told.fault.remedy is Remedy.RETRY
    assert "mac" in told.fault.detail


async def test_a_forge_that_is_not_configured_any_more_is_answered(bench):
    (told,) = await bench.answers(c.ListJobs(replace(SCOPE, forge="gone")))
    assert told.fault.remedy is Remedy.RETRY


async def test_environments_are_listed_over_each_runtime_once(bench):
    found = e.FoundEnvironment(R, "env-1", "linux", ended=False)
    bench.runtime.listed = [found]
    assert await bench.answers(c.ListEnvironments("local")) == [e.EnvironmentsListed("local", (found,), True)]
    assert len(bench.runtime.named("list")) == 1
    bench.runtime.answers["list"] = RetryLater("engine away")
    assert await bench.answers(c.ListEnvironments("local")) == [e.EnvironmentsListed("local", (), False)]


async def test_watching_tries_again_and_an_error_is_no_exit(monkeypatch, bench):
    monkeypatch.setattr("ephemerd.app.executor_runtime.WATCH_PAUSES", (0.0,))
    outcomes = iter([RetryLater("reset"), Gone("?"), RetryLater("reset"), Gone("?"), None])
    bench.runtime.answers["watch"] = lambda *_: next(outcomes)
    bench.executor.submit([c.WatchRunner(R, "linux", "env-1")])
    await until(lambda: len(bench.runtime.named("watch")) == 5)
    assert bench.told() == []


async def test_not_there_on_two_looks_in_a_row_is_an_exit(monkeypatch, bench):
    monkeypatch.setattr("ephemerd.app.executor_runtime.WATCH_PAUSES", (0.0,))
    bench.runtime.answers["watch"] = Gone("no such process")
    bench.executor.submit([c.WatchRunner(R, "linux", "env-1")])
    await until(lambda: len(bench.inbox))
    assert bench.told() == [e.EnvironmentExited(R, None)]


async def test_signs_and_exits_come_in_from_any_thread(bench):
    bench.runtime.tell(R, Sign.LISTENING)
    await asyncio.to_thread(bench.runtime.exit, R, 3)
    await until(lambda: len(bench.inbox) == 2)
    assert bench.told() == [e.SignSeen(R, Sign.LISTENING), e.EnvironmentExited(R, 3, 0)]


async def test_a_runtime_of_two_pools_is_attached_once():
    runtime = FakeRuntime()
    Executor(
        forges={},
        runtimes={"a": runtime, "b": runtime},
        setup=setup(),
        store=STORE,
        inbox=Inbox(),
        clock=FakeClock(),
        meter=FakeMeter(),
    )
    assert runtime.attached == 1


async def test_while_stopping_only_a_start_begins(bench):
    await bench.run(register())
    bench.executor.stop()
    assert await bench.run(c.ListJobs(SCOPE), c.ProbeRunner(R, "linux", "env", 1)) == []
    assert await bench.answers(c.StartRunner(R, "linux")) == [e.EnvironmentStarted(R, f"env-{R}")]


async def test_close_cancels_what_is_under_way(bench):
    bench.forge.hold["active_jobs"] = asyncio.Event()
    bench.executor.submit([c.ListJobs(SCOPE)])
    await until(lambda: bench.forge.named("active_jobs"))
    assert bench.executor.running == 1
    await bench.executor.close()
    assert bench.executor.running == 0


@pytest.mark.parametrize(
    "command",
    [
        register(),
        c.LookUpName(R, SCOPE),
        c.StartRunner(R, "linux"),
        c.ProbeRunner(R, "linux", "e", 1),
        c.LookUpRunner(R, SCOPE, 1, 1),
        c.LookUpJob(key(), SCOPE, 1),
        c.LookUpRun(key(), 7, SCOPE, 1),
        c.Deregister(intent(), 1),
        c.Destroy(permit(), "linux"),
        c.ListEnvironments("local"),
        c.ListRegistrations(SCOPE),
        c.ListJobs(SCOPE),
    ],
    ids=lambda command: type(command).__name__,
)
def test_every_command_has_an_answer_for_when_it_came_to_nothing(command):
    assert unanswered(command, Fault(Remedy.RETRY, "x")) is not None


def test_watching_has_no_answer():
    assert unanswered(c.WatchRunner(R, "linux", "e"), Fault(Remedy.RETRY, "x")) is None
