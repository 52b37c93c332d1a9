"""Field problems 36 to 39: a forge that says wait, refuses a credential, or gives no answer.

Numbers are those of docs/FIELD-PROBLEMS.md; times count from the first event of the case.
"""

from __future__ import annotations

from itertools import pairwise

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.health import assess
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import JobStatus
from ephemerd.domain.runner import FenceAnswer, RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core.field import Field
from tests.unit.core.world import APP, MINUTE, NO_ANSWER, SECOND, World, key, of, pool, seen

S = RunnerState
BUSY = seen(workers=1)
FORGE_CALLS = (cm.Register, cm.LookUpName, cm.LookUpRunner, cm.LookUpJob, cm.Deregister, cm.ListJobs)


def calls(field: Field) -> list[int]:
    """When the forge was called (ms), listings of registrations included."""
    kinds = (*FORGE_CALLS, cm.ListRegistrations)
    return [at for at, command in field.log if isinstance(command, kinds)]


def running(world: World, number: int) -> RunnerId:
    (name,) = world.listening(number)
    world.sign(name, Sign.WORKER)
    world.in_progress(number, name)
    return name


def test_fp_36_told_to_wait_at_the_twelfth_registration() -> None:
    """40 jobs; the 12th answer is 403 with `Retry-After: 60`: all calls wait, no job pays for it."""
    world = World(slots=50)
    names = world.planned(*range(1, 41))
    for name in names[:11]:
        world.registered(name)
    limited = Fault(Remedy.LIMITED, "403: secondary rate limit", 60 * SECOND)
    for name in names[11:]:
        world.feed(ev.RegistrationFailed(name, limited))
    field = Field(world)
    field.run(59 * SECOND)
    assert calls(field) == []
    field.run(2 * SECOND)
    assert min(calls(field)) == 60 * SECOND
    made = [world.runner(command.runner).intent for command in of(world.sent, cm.Register)[40:]]
    assert made == [key(number) for number in range(12, 41)]
    assert world.core.state.pools["small"].failures == 0
    assert all(world.job(number).status is JobStatus.QUEUED for number in range(1, 41))


def test_fp_36_deregistration_of_idle_runners_waits_too_and_nothing_goes_without_it() -> None:
    world = World(pool(surplus_grace=0))
    (name,) = world.listening(1)
    world.feed(ev.ScopeAnswered(APP, limited_until=world.now + 60 * SECOND))
    field = Field(world)
    world.completed(1, how="cancelled")
    field.run(59 * SECOND)
    assert (field.at(cm.Deregister), field.at(cm.Destroy)) == ([], [])
    field.run(70 * SECOND)
    assert world.runner(name).state is S.GONE


def test_fp_37_an_hour_of_401_destroys_nothing_and_health_says_so() -> None:
    world = World(pool(surplus_grace=0), slots=8)
    busy = running(world, 1)
    (idle,) = world.listening(2)
    field = Field(world)
    field.probes[busy] = BUSY
    field.away = Fault(Remedy.DENIED, "401: Bad credentials")
    world.feed(ev.JobsListed(APP, 0, field.away))
    world.completed(2, how="cancelled")
    world.queued(3)
    field.run(60 * MINUTE)
    assert field.at(cm.Destroy) == []
    assert (world.runner(busy).state, world.runner(idle).state) == (S.RUNNING, S.LISTENING)
    assert len(calls(field)) <= 8
    health = assess(world.core.state, world.now)
    assert any("refuses our credential" in text and "renew" in text for text in health.reasons)
    field.away = None
    field.run(11 * MINUTE)
    assert not world.core.state.scope(APP).denied
    assert len(field.at(cm.Register)) >= 1


def test_fp_38_forty_minutes_of_502() -> None:
    """Nothing goes without the forge's word, one call a minute tries it, and soon after all is well."""
    world = World(pool(surplus_grace=0), slots=8)
    busy = running(world, 1)
    idle, exits = world.listening(2, 3)
    field = Field(world)
    field.probes[busy] = BUSY
    field.away = NO_ANSWER
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    world.completed(2, how="cancelled")
    world.exited(exits, 1)
    world.queued(4)
    waited_from = world.job(4).first_seen
    field.run(40 * MINUTE)
    assert [command.permit.runner for command in of(world.sent, cm.Destroy)] == [exits]  # its remains
    assert world.runner(idle).state in (S.LISTENING, S.ASSIGNED)
    times = calls(field)
    assert min(later - earlier for earlier, later in pairwise(times)) >= MINUTE
    assert (world.job(4).status, world.job(4).first_seen) == (JobStatus.QUEUED, waited_from)
    world.completed(1, busy)
    world.exited(busy)
    field.away = None
    field.run(MINUTE)
    assert world.last(cm.Register).runner not in (busy, idle, exits)
    field.run(9 * MINUTE)
    known = {row.id for row in world.core.state.runners.values() if row.state is not S.GONE}
    assert set(world.registrations) - {busy} == {name for name in known if world.runner(name).registration}
    assert exits not in world.registrations


def test_fp_38_a_registration_left_by_the_outage_is_taken_back_within_minutes_of_its_end() -> None:
    """However long the outage was: its length slows nothing that comes after it."""
    world = World()
    (name,) = world.listening(1)
    world.completed(1, how="cancelled")
    field = Field(world)
    field.away = NO_ANSWER
    world.exited(name, 1)
    field.run(200 * MINUTE, step=10 * SECOND)
    assert name in world.registrations
    field.away = None
    field.run(2 * MINUTE)
    assert name not in world.registrations


def test_fp_38_and_a_zombie_is_first_asked_again_after_half_a_minute() -> None:
    world = World()
    (name,) = world.listening(1)
    world.completed(1, how="cancelled")
    field = Field(world)
    field.away = NO_ANSWER
    world.exited(name, 1)
    field.run(40 * MINUTE)
    field.away = None
    field.fences[name] = FenceAnswer.REFUSED
    field.run(4 * MINUTE)
    late = [at for at in field.at(cm.Deregister, name) if at > 40 * MINUTE]
    assert late[1] - late[0] == 30 * SECOND


def test_fp_39_one_registration_and_at_most_one_deletion_a_job() -> None:
    """An hour of steady work, deliveries flowing: listings apart, one call of the forge a job."""
    world = World(slots=2)
    field = Field(world)
    for number in range(1, 61):
        (name,) = world.listening(number)
        world.sign(name, Sign.WORKER)
        world.in_progress(number, name)
        world.completed(number, name)
        world.exited(name)
        world.registrations.pop(name)  # the forge removes it itself
        field.run(MINUTE, step=10 * SECOND)
    writes = [command for _, command in field.log if isinstance(command, (cm.Register, cm.Deregister))]
    reads = [command for _, command in field.log if isinstance(command, (cm.LookUpJob, cm.LookUpRunner))]
    assert (len(writes), len(reads)) == (60, 0)
    assert len(field.at(cm.ListJobs)) <= 12
