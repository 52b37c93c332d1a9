"""Bad days of the forge: lost access that looks like "gone", refusals that vouch for nothing, many scopes at once.

Nothing that needs the forge's word happens without it, nothing is forgotten, and health says what to do.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.health import assess
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId, Scope
from ephemerd.domain.job import JobStatus
from ephemerd.domain.pool import Policy
from ephemerd.domain.runner import FenceAnswer, RunnerState
from ephemerd.domain.verdict import Files, Sign
from tests.unit.core.field import Field
from tests.unit.core.world import APP, HOUR, MINUTE, NO_ANSWER, SECOND, World, key, of, pool, seen

S = RunnerState
REFUSED = Fault(Remedy.REFUSED, "400: the proxy does not like it")
FAULTS = {
    "unreachable": NO_ANSWER,
    "401": Fault(Remedy.DENIED, "401: Bad credentials"),
    "403": Fault(Remedy.DENIED, "403: the token may not do this"),
    "404": Fault(Remedy.DENIED, "404: check the scope and the token's access to it"),
    "403 limit": Fault(Remedy.LIMITED, "403: secondary rate limit", 10 * MINUTE),
    "429": Fault(Remedy.LIMITED, "429", 10 * MINUTE),
    "500": Fault(Remedy.RETRY, "500"),
}
WORDS = {
    Remedy.RETRY: ("no answer", "Check the network"),
    Remedy.DENIED: ("refuses our credential", "renew the token"),
    Remedy.LIMITED: ("limits our requests", "wait"),
}
FORGE_CALLS = (
    *(cm.Register, cm.LookUpName, cm.LookUpRunner, cm.LookUpJob, cm.Deregister),
    *(cm.ListJobs, cm.ListRegistrations),
)


def running(world: World, number: int) -> RunnerId:
    (name,) = world.listening(number)
    world.sign(name, Sign.WORKER)
    world.in_progress(number, name)
    return name


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("hours", [0.1, 3])
def test_whatever_the_forge_says_instead_of_an_answer_nothing_goes_and_all_resumes(
    fault: Fault, hours: float
) -> None:
    world = World(pool(surplus_grace=0), slots=20)
    busy = [running(world, number) for number in (1, 2)]
    idle = world.listening(3, 4, 5)
    field = Field(world)
    field.probes = dict.fromkeys(busy, seen(workers=1))
    field.away = fault
    world.feed(ev.JobsListed(APP, 0, fault))
    for number in (3, 4, 5):
        world.completed(number, how="cancelled")
    field.run(int(hours * HOUR), step=15 * SECOND)
    world.queued(6, 7)
    field.run(2 * MINUTE)
    assert field.at(cm.Destroy) == []
    assert {world.runner(name).state for name in busy} == {S.RUNNING}
    assert {world.runner(name).state for name in idle} <= {S.LISTENING, S.ASSIGNED}
    assert {world.job(number).status for number in (6, 7)} == {JobStatus.QUEUED}
    calls = [at for at, command in field.log if isinstance(command, FORGE_CALLS)]
    assert len(calls) <= hours * 60 + 4
    says, todo = WORDS[fault.remedy]
    (reason,) = [text for text in assess(world.core.state, world.now).reasons if str(APP) in text]
    assert says in reason
    assert todo in reason
    field.away = None
    field.run(12 * MINUTE)
    assert all(world.runner(name).state is S.GONE for name in idle)
    assert len(field.at(cm.Register)) >= 2
    assert not any(str(APP) in text for text in assess(world.core.state, world.now).reasons)


def test_not_found_by_a_scope_that_does_not_answer_forgets_no_registration() -> None:
    """A token that lost its access reads as 404 everywhere: what is to be taken back stays so."""
    world = World(lists=False)
    (name,) = world.listening(1)
    world.completed(1, how="cancelled")
    world.exited(name, 1)
    world.now += 2 * MINUTE  # the last normal answer is older than a minute
    world.wait(0)
    world.deregistered(world.last(cm.Deregister), FenceAnswer.NOT_FOUND)
    assert world.runner(name).unregister
    asked = world.count(cm.Deregister)
    world.wait(2 * MINUTE)
    assert world.count(cm.Deregister) > asked
    world.feed(ev.ScopeAnswered(APP))
    world.deregistered(world.last(cm.Deregister), FenceAnswer.NOT_FOUND)
    assert not world.runner(name).unregister


def test_a_leak_that_is_looked_up_in_vain_stays_one_until_the_scope_answers() -> None:
    world = World(lists=False)
    name = RunnerId("eph-s1-e0-9")
    world.feed(ev.RegistrationsListed(APP, (ev.FoundRegistration(name, 77, busy=False, online=False),)))
    world.now += 61 * SECOND
    world.wait(0)
    asked = world.last(cm.LookUpRunner)
    world.now += 30 * SECOND
    world.feed(ev.RunnerLookedUp(name, asked.token, missing=True))
    assert world.runner(name).leak is not None
    world.wait(61 * SECOND)
    world.feed(ev.ScopeAnswered(APP))
    world.feed(ev.RunnerLookedUp(name, world.last(cm.LookUpRunner).token, missing=True))
    assert world.runner(name).leak is None


def test_a_refusal_ends_the_silence_and_vouches_for_nothing() -> None:
    world = World(lists=False)
    world.feed(ev.ScopeAnswered(APP))
    answered = world.core.state.scope(APP).answered
    world.now += 5 * MINUTE
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    world.feed(ev.JobsListed(APP, 0, REFUSED))
    row = world.core.state.scope(APP)
    assert (row.silent, row.answered) == (None, answered)


def test_a_vanished_registration_costs_three_deletions_however_long_spent_has_to_wait() -> None:
    """It was offered a job, so that *spent* waits for a quarter of an hour; each ask before would be in vain."""
    world = World(pool(surplus_grace=0), slots=2)
    (name,) = world.listening(1)
    field = Field(world)
    world.sign(name, Sign.OFFERED)
    field.probes[name] = seen()
    field.flags[name] = {"missing": True}
    field.fences[name] = FenceAnswer.NOT_FOUND
    world.feed(ev.KillOrdered("ann", name, "cleaning up"))
    end = world.now + 30 * MINUTE
    while world.now < end and world.runner(name).state is not S.GONE:
        if world.runner(name).order_given is None and world.runner(name).gate is None:
            world.feed(ev.KillOrdered("ann", name, "cleaning up"))
        world.feed(ev.ScopeAnswered(APP))
        field.run(5 * SECOND)
    assert world.runner(name).state is S.GONE
    assert len(field.at(cm.Deregister, name)) <= 3


def test_a_registration_that_is_found_again_may_be_asked_again() -> None:
    world = World(pool(surplus_grace=0))
    (name,) = world.listening(1)
    field = Field(world)
    field.fences[name] = FenceAnswer.NOT_FOUND
    world.completed(1, how="cancelled")
    while world.runner(name).fence.missing_again is None:
        world.feed(ev.ScopeAnswered(APP))
        field.run(5 * SECOND)
    row = world.core.state.runners[name]
    world.feed(ev.RunnerLookedUp(name, row.token, busy=False, connected=True))
    assert world.runner(name).fence.missing_again is None


def test_scopes_that_fall_silent_together_are_tried_one_after_the_other() -> None:
    scopes = [Scope("github", f"repo:acme/r{number}") for number in range(8)]
    world = World(*(pool(f"p{n}", scope=scope) for n, scope in enumerate(scopes)), lists=False)
    for scope in scopes:
        world.feed(ev.RegistrationsListed(scope, (), NO_ANSWER))
        world.feed(ev.JobsListed(scope, 0, NO_ANSWER))
    field = Field(world)
    field.away = NO_ANSWER
    field.run(10 * MINUTE, step=50)
    tries = [(at, command.scope) for at, command in field.log if isinstance(command, cm.ListRegistrations)]
    moments = [at for at, _ in tries]
    assert len(set(moments)) == len(moments)
    for scope in scopes:
        own = [at for at, tried in tries if tried == scope]
        assert 8 <= len(own) <= 10
        assert min(later - at for at, later in pairwise(own)) >= MINUTE


def test_scopes_that_are_refused_together_are_tried_one_after_the_other() -> None:
    scopes = [Scope("github", f"repo:acme/r{number}") for number in range(4)]
    world = World(*(pool(f"p{n}", scope=scope) for n, scope in enumerate(scopes)), lists=False)
    for scope in scopes:
        world.feed(ev.JobsListed(scope, 0, FAULTS["401"]))
    until = [world.core.state.scope(scope).denied_until for scope in scopes]
    assert len(set(until)) == len(until)
    assert min(until) == world.now + Policy().denied_retry


# -- what the forge says of a job and of a runner -----------------------------------------------------


def test_completed_that_names_nobody_finishes_the_runner_that_is_known_to_have_the_job() -> None:
    world = World()
    name = running(world, 1)
    assert world.completed(1, how="failure").commands == ()
    row = world.runner(name)
    assert (row.state, row.over_via, world.job(1).conclusion) == (S.FINISHING, "event", "failure")
    field = Field(world)
    field.probes[name] = seen(workers=1)
    field.run(30 * MINUTE)
    assert field.at(cm.Destroy) == []  # its worker lives: the gate keeps it
    assert world.runner(name).stuck != ""


def test_completed_that_names_nobody_touches_no_runner_that_has_another_job_since() -> None:
    world = World(slots=2)
    name = running(world, 1)
    world.queued(2)
    world.sign(name, Sign.ENDED)
    world.sign(name, Sign.ANNOUNCED, "another")
    world.in_progress(2, name)
    world.completed(1)
    assert world.runner(name).state is S.RUNNING
    other = World()
    (idle,) = other.listening(1)
    other.completed(1, how="cancelled")
    assert other.runner(idle).state is S.LISTENING


def test_fp_03_a_flag_that_contradicts_a_live_worker_is_counted_and_changes_nothing() -> None:
    world = World()
    name = running(world, 1)
    counted = f"flag_contradictions_total|pool={world.runner(name).pool}"
    told = ev.FoundRegistration(name, world.runner(name).registration or 0, busy=False, online=True)
    world.feed(ev.RegistrationsListed(APP, (told,)))
    assert counted not in world.core.state.counters  # the flag may be late by a minute
    world.now += MINUTE
    before = world.runner(name)
    world.feed(ev.RegistrationsListed(APP, (told,)))
    world.feed(ev.RegistrationsListed(APP, (ev.FoundRegistration(name, told.registration, True, True),)))
    assert world.core.state.counters[counted] == 1
    assert world.runner(name) == before
    world.completed(1, name)
    world.feed(ev.RegistrationsListed(APP, (told,)))
    assert world.core.state.counters[counted] == 1
    assert key(1) in world.core.state.jobs


def test_fp_07_a_runner_that_no_look_can_read_is_said_with_what_a_person_can_do() -> None:
    """Its work folder was removed under it, or its look hangs: kept up to the hard bound, and not in silence."""
    world = World(pool(surplus_grace=0))
    (name,) = world.listening(1)
    field = Field(world)
    field.probes[name] = seen(files=Files.UNREADABLE)
    world.completed(1, how="cancelled")
    field.run(9 * MINUTE)
    assert assess(world.core.state, world.now).status == "ok"
    field.run(2 * MINUTE)
    (reason,) = assess(world.core.state, world.now).reasons
    assert f"Runner {name} could not be looked into for 1" in reason
    assert f"ephemerd kill {name} --even-if-busy" in reason
    assert field.at(cm.Destroy) == []
    field.probes[name] = seen()
    field.run(3 * MINUTE)
    assert world.runner(name).state is S.GONE
    assert assess(world.core.state, world.now).status == "ok"


def test_five_exits_in_a_row_say_what_the_last_code_means() -> None:
    world = World(slots=2)
    field = Field(world)
    world.queued(1)
    while world.core.state.pools["small"].exits < 5:
        name = of(world.sent, cm.Register)[-1].runner
        if world.runner(name).state is S.REGISTERING:
            world.registered(name)
            world.started(name)
            world.sign(name, Sign.LISTENING)
            world.exited(name, 5)
        field.run(30 * SECOND)
    (reason,) = [text for text in assess(world.core.state, world.now).reasons if "in a row" in text]
    assert "code 5: another session with its name was open" in reason
