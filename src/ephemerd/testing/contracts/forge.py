"""What every `ports.forge.Forge` must do. Each check takes a `Stage` and raises AssertionError.

A stage is one real forge (or a look-alike) with an adapter that is connected to it, and the few things that only
the forge's own side can do. Each check wants a stage of its own, whose scope has no registrations and no jobs.
With pytest:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_contract(check, tmp_path):
        async with my_stage(tmp_path) as stage:
            await check(stage)

A forge that does not refuse to let a busy runner go has no fence of this kind: leave `FENCE_CHECKS` out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from msgspec.structs import replace

from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.job import ForgeStatus, JobReport
from ephemerd.domain.labels import normalise
from ephemerd.domain.permit import FenceIntent
from ephemerd.domain.runner import FenceAnswer
from ephemerd.ports.errors import Denied, Gone, NameTaken, PortError, Refused
from ephemerd.ports.forge import Forge, Look, Registration

LABELS = ("self-hosted", "Linux", "contract")
MANY = 103
"""More than one page of GitHub's, the longest that is known."""
TURN_S = 30.0

T = TypeVar("T")


class Stage(Protocol):
    """One forge, prepared for one check."""

    forge: Forge
    scope: Scope
    missing: Scope
    """A scope of the same forge that does not exist, or that the credential may not see."""

    def stranger(self) -> Forge:
        """Return an adapter to the same forge whose credential is wrong; the stage closes it."""
        ...

    def intent(self, scope: Scope, runner: RunnerId, registration: int) -> FenceIntent:
        """Return leave to deregister; outside of tests only the gate gives it."""
        ...

    async def queue(self, labels: tuple[str, ...]) -> JobKey:
        """Make the forge want a job run."""
        ...

    async def occupy(self, runner: RunnerId, given: Registration) -> None:
        """Start the runner's application; return once the forge says that a job is in progress on it.

        The job must not end before `release`.
        """
        ...

    async def release(self, job: JobKey) -> None:
        """Let the job end, however; return once it has ended at the forge."""
        ...


Check = Callable[[Stage], Awaitable[None]]


def name(number: int = 1) -> RunnerId:
    """Return a runner's name as the daemon makes them."""
    return RunnerId(f"eph-contract-boot-{number}")


def holds(condition: bool, what: str) -> None:
    """Raise where the condition does not hold."""
    if not condition:
        raise AssertionError(what)


async def fails(kind: type[PortError], call: Awaitable[object], what: str) -> PortError:
    """Await a call that must raise that remedy."""
    try:
        answer = await call
    except kind as error:
        return error
    except PortError as error:
        raise AssertionError(f"{what}: expected {kind.__name__}, it raised {error!r}") from error
    raise AssertionError(f"{what}: expected {kind.__name__}, it answered {answer!r}")


async def soon(look: Callable[[], Awaitable[T]], good: Callable[[T], bool], what: str) -> T:
    """Look until what is seen is good, `TURN_S` at most."""
    loop = asyncio.get_running_loop()
    until = loop.time() + TURN_S
    while True:
        seen = await look()
        if good(seen):
            return seen
        holds(loop.time() < until, f"{what}, within {TURN_S:.0f} s: {seen}")
        await asyncio.sleep(0.05)


async def a_registration_is_seen_by_id_by_name_and_in_the_list(stage: Stage) -> None:
    given = await stage.forge.register(stage.scope, name(), LABELS)
    holds(given.id > 0 and bool(given.credential), "a registration has an id and a credential")
    by_id = await stage.forge.runner(stage.scope, given.id)
    by_name = await stage.forge.find(stage.scope, name())
    listed = await stage.forge.runners(stage.scope)
    holds([by_id] == listed and by_id == by_name, f"three looks differ: {by_id}, {by_name}, {listed}")
    holds((by_id.id, by_id.name) == (given.id, name()), f"another one was found: {by_id}")
    holds(not by_id.busy, "a fresh registration is not busy")
    holds(not by_id.online and by_id.connected is not True, "a fresh registration never connected")
    holds(
        normalise(by_id.labels) == normalise(LABELS),
        f"the labels are not those that were sent: {by_id.labels}",
    )


async def a_credential_is_in_no_repr(stage: Stage) -> None:
    given = await stage.forge.register(stage.scope, name(), LABELS)
    shown = repr(given) + repr(stage.forge) + repr(stage.forge.take_calls())
    holds(given.credential not in shown, "a repr shows the credential")


async def a_scope_without_registrations_is_empty(stage: Stage) -> None:
    holds(await stage.forge.runners(stage.scope) == [], "the list is empty")
    holds(await stage.forge.find(stage.scope, name()) is None, "nobody is found")
    await fails(Gone, stage.forge.runner(stage.scope, 2**52), "a registration that never was")


async def a_taken_name_says_who_has_it(stage: Stage) -> None:
    given = await stage.forge.register(stage.scope, name(), LABELS)
    error = await fails(NameTaken, stage.forge.register(stage.scope, name(), LABELS), "the same name again")
    holds(
        isinstance(error, NameTaken) and error.registration == given.id,
        f"the holder is {given.id}: {error!r}",
    )
    holds(len(await stage.forge.runners(stage.scope)) == 1, "the first registration stays the only one")


async def a_name_is_found_exactly(stage: Stage) -> None:
    for number in (1, 10, 11):
        await stage.forge.register(stage.scope, name(number), LABELS)
    found = await stage.forge.find(stage.scope, name(1))
    holds(found is not None and found.name == name(1), f"asked for {name(1)}, found {found}")
    holds(await stage.forge.find(stage.scope, RunnerId("eph-contract-boot-")) is None, "a prefix is no name")


async def a_list_is_whole(stage: Stage) -> None:
    for first in range(0, MANY, 10):
        some = range(first, min(first + 10, MANY))
        await asyncio.gather(*(stage.forge.register(stage.scope, name(n), LABELS) for n in some))
    listed = [runner.name for runner in await stage.forge.runners(stage.scope)]
    holds(
        sorted(listed) == sorted(name(number) for number in range(MANY)),
        f"{len(listed)} of {MANY} were listed",
    )
    for number in (0, MANY - 1):
        holds(await stage.forge.find(stage.scope, name(number)) is not None, f"{name(number)} is found")


async def registrations_at_once_are_different(stage: Stage) -> None:
    given = await asyncio.gather(*(stage.forge.register(stage.scope, name(n), LABELS) for n in range(8)))
    holds(len({one.id for one in given}) == 8, "ids are different")
    holds(len({one.credential for one in given}) == 8, "credentials are different")


async def what_is_not_there_is_not_empty(stage: Stage) -> None:
    """A scope that cannot be seen must never read as one without registrations, or everything looks gone."""
    calls: tuple[tuple[str, Callable[[], Awaitable[object]]], ...] = (
        ("a list", lambda: stage.forge.runners(stage.missing)),
        ("a look-up by name", lambda: stage.forge.find(stage.missing, name())),
        ("the jobs", lambda: stage.forge.active_jobs(stage.missing.target)),
        ("a registration", lambda: stage.forge.register(stage.missing, name(), LABELS)),
    )
    for what, call in calls:
        error = await fails(PortError, call(), f"{what} of a scope that is not there")
        holds(not isinstance(error, Gone), f"{what} of a scope that is not there is not gone: {error!r}")
        holds(bool(error.detail), f"{what}: the error says something")


async def a_wrong_credential_is_denied(stage: Stage) -> None:
    given = await stage.forge.register(stage.scope, name(), LABELS)
    job = await stage.queue(LABELS)
    stranger = stage.stranger()
    intent = stage.intent(stage.scope, name(), given.id)
    calls: tuple[tuple[str, Callable[[], Awaitable[object]]], ...] = (
        ("register", lambda: stranger.register(stage.scope, name(2), LABELS)),
        ("deregister", lambda: stranger.deregister(stage.scope, given.id, intent)),
        ("runner", lambda: stranger.runner(stage.scope, given.id)),
        ("find", lambda: stranger.find(stage.scope, name())),
        ("runners", lambda: stranger.runners(stage.scope)),
        ("job", lambda: stranger.job(job)),
        ("active_jobs", lambda: stranger.active_jobs(job.repository)),
    )
    for what, call in calls:
        await fails(Denied, call(), f"{what} with a wrong credential")
    holds([one.id for one in await stage.forge.runners(stage.scope)] == [given.id], "nothing has changed")


async def a_queued_job_is_seen(stage: Stage) -> None:
    key = await stage.queue(LABELS)
    report = await stage.forge.job(key)
    holds(report.key == key and report.status is ForgeStatus.QUEUED, f"the job is queued: {report}")
    holds(normalise(report.labels) == normalise(LABELS), f"its labels are those it asks for: {report.labels}")
    holds(report.runner_name is None and report.runner_id is None, "nobody has it")
    holds(report.conclusion is None, "it has not ended")
    seen = await stage.forge.active_jobs(key.repository)
    (listed,) = seen.reports
    holds(seen.complete and seen.open == 1, f"the list is whole: {seen}")
    quick = await stage.forge.active_jobs(key.repository, Look.QUICK)
    holds(not quick.complete and quick.open == 1, f"a quick look never says that it is whole: {quick}")
    glance = await stage.forge.glance(key.repository)
    holds(glance.busy and glance.newest >= report.run_id, f"a glance shows that something goes on: {glance}")
    holds(replace(listed, origin=report.origin) == report, "the list says the same")
    origin = await stage.forge.origin(key.repository, report.run_id)
    holds(listed.origin == origin, f"list and run say the same of its origin: {listed.origin}, {origin}")
    holds(origin.public is not None and origin.fork is not None, f"whose work it is is told: {origin}")
    await fails(
        Gone, stage.forge.origin(key.repository, report.run_id + 1_000_000), "a run that is not there"
    )


async def a_job_that_is_not_there_is_gone_only_where_its_repository_is(stage: Stage) -> None:
    key = await stage.queue(LABELS)
    await fails(Gone, stage.forge.job(JobKey(key.forge, key.repository, 2**52)), "a job that never was")
    hidden = JobKey(key.forge, stage.missing.target, key.id)
    error = await fails(PortError, stage.forge.job(hidden), "a job of a repository that is not there")
    holds(not isinstance(error, Gone), f"such a job is not gone, it cannot be seen: {error!r}")


async def calls_are_told_once_and_name_no_one(stage: Stage) -> None:
    stage.forge.take_calls()
    given = await stage.forge.register(stage.scope, name(), LABELS)
    await stage.forge.runner(stage.scope, given.id)
    calls = stage.forge.take_calls()
    holds(len(calls) == 2 and stage.forge.take_calls() == [], f"two calls are told once: {calls}")
    for call in calls:
        holds(call.status > 0 and call.seconds >= 0, f"a call is whole: {call}")
        for part in (name(), stage.scope.target, str(given.id)):
            holds(part not in call.endpoint, f"an endpoint is a template: {call.endpoint}")
    for budget in stage.forge.budgets():
        holds(0 <= budget.remaining <= budget.limit and bool(budget.resource), f"a budget is whole: {budget}")


async def what_cannot_be_registered_is_refused(stage: Stage) -> None:
    await fails(Refused, stage.forge.register(stage.scope, name(), ()), "no labels")
    await fails(Refused, stage.forge.register(stage.scope, RunnerId(""), LABELS), "no name")
    holds(await stage.forge.runners(stage.scope) == [], "nothing was registered")


async def an_idle_runner_is_let_go_once(stage: Stage) -> None:
    given = await stage.forge.register(stage.scope, name(), LABELS)
    other = await stage.forge.register(stage.scope, name(2), LABELS)
    intent = stage.intent(stage.scope, name(), given.id)
    answer = await stage.forge.deregister(stage.scope, given.id, intent)
    holds(answer is FenceAnswer.ACCEPTED, f"an idle one is let go: {answer}")
    await fails(Gone, stage.forge.runner(stage.scope, given.id), "a registration that was let go")
    holds(await stage.forge.find(stage.scope, name()) is None, "its name is free")
    holds([one.id for one in await stage.forge.runners(stage.scope)] == [other.id], "the other one stays")
    again = await stage.forge.deregister(stage.scope, given.id, intent)
    holds(again is FenceAnswer.NOT_FOUND, f"the second time there is nothing: {again}")


async def leave_for_one_is_no_leave_for_another(stage: Stage) -> None:
    first = await stage.forge.register(stage.scope, name(1), LABELS)
    second = await stage.forge.register(stage.scope, name(2), LABELS)
    intent = stage.intent(stage.scope, name(1), first.id)
    await fails(Refused, stage.forge.deregister(stage.scope, second.id, intent), "another registration")
    elsewhere = stage.intent(stage.missing, name(1), first.id)
    await fails(Refused, stage.forge.deregister(stage.scope, first.id, elsewhere), "another scope")
    holds(len(await stage.forge.runners(stage.scope)) == 2, "both stay")


async def a_runner_that_holds_a_job_is_not_let_go(stage: Stage) -> None:
    given = await stage.forge.register(stage.scope, name(), LABELS)
    key = await stage.queue(LABELS)
    await stage.occupy(name(), given)
    report = await soon(
        lambda: stage.forge.job(key),
        lambda seen: seen.status is ForgeStatus.IN_PROGRESS,
        "the job is in progress",
    )
    holds(report.runner_name == name(), f"the job names its runner: {report}")
    holds(report.runner_id in (None, given.id), f"the id is the registration's: {report}")
    shown = await stage.forge.runner(stage.scope, given.id)
    holds(shown.connected is not False, f"it has connected: {shown}")
    for _ in range(2):
        answer = await stage.forge.deregister(
            stage.scope, given.id, stage.intent(stage.scope, name(), given.id)
        )
        holds(answer is FenceAnswer.REFUSED, f"a runner that holds a job is not let go: {answer}")
    listed = (await stage.forge.active_jobs(key.repository)).reports
    plain = [replace(one, origin=report.origin) for one in _of(listed, key)]
    holds(plain == [report], f"the job still runs on it: {listed}")
    await stage.release(key)
    ended = await stage.forge.job(key)
    holds(ended.status is ForgeStatus.COMPLETED and bool(ended.conclusion), f"the job has ended: {ended}")


def _of(reports: Sequence[JobReport], key: JobKey) -> list[JobReport]:
    return [report for report in reports if report.key == key]


FENCE_CHECKS: tuple[Check, ...] = (
    an_idle_runner_is_let_go_once,
    leave_for_one_is_no_leave_for_another,
    a_runner_that_holds_a_job_is_not_let_go,
)
CHECKS: tuple[Check, ...] = (
    a_registration_is_seen_by_id_by_name_and_in_the_list,
    a_credential_is_in_no_repr,
    a_scope_without_registrations_is_empty,
    a_taken_name_says_who_has_it,
    a_name_is_found_exactly,
    a_list_is_whole,
    registrations_at_once_are_different,
    what_is_not_there_is_not_empty,
    a_wrong_credential_is_denied,
    a_queued_job_is_seen,
    a_job_that_is_not_there_is_gone_only_where_its_repository_is,
    calls_are_told_once_and_name_no_one,
    what_cannot_be_registered_is_refused,
    *FENCE_CHECKS,
)
