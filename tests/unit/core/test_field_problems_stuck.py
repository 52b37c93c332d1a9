"""Field problems 12 to 20: jobs that waited although somebody could have run them, and idle runners.

Numbers are those of docs/FIELD-PROBLEMS.md; times count from the first event of the case.
"""

from __future__ import annotations

import pytest

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.health import assess
from ephemerd.core.waiting import why_waiting
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus, JobStatus
from ephemerd.domain.runner import FenceAnswer, RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core.field import Field
from tests.unit.core.world import DAY, GPU, HOUR, MINUTE, SECOND, World, key, of, pool, seen

S = RunnerState
BUSY = seen(workers=1)
BROKEN = Fault(Remedy.BROKEN, "no space left on device")


def began(world: World, name: RunnerId, number: int) -> None:
    """The runner takes the job, as its log, the process table and the forge say."""
    world.sign(name, Sign.ANNOUNCED, str(number))
    world.sign(name, Sign.WORKER)
    world.in_progress(number, name)


def ended(world: World, name: RunnerId, number: int, leftovers: int = 0) -> None:
    world.completed(number, name)
    world.exited(name, 0, leftovers)


def started(world: World) -> RunnerId:
    """Bring the latest runner that is registering to `listening`."""
    name = world.last(cm.Register).runner
    world.registered(name)
    world.started(name)
    world.sign(name, Sign.LISTENING)
    return name


def test_fp_12_the_freed_slot_goes_to_no_job_that_somebody_took_meanwhile() -> None:
    """A waits for the only slot; the runner that is up takes it; nothing is registered for A afterwards."""
    world = World(pool(orphan_grace=90 * MINUTE), slots=1)
    (name,) = world.listening(1)
    world.queued(2)
    began(world, name, 2)
    world.in_progress(1, "somebody-elses")
    ended(world, name, 2)
    world.wait(2 * HOUR)
    assert world.count(cm.Register) == 1


def test_fp_12_an_idle_runner_leaves_the_only_slot_to_other_demand() -> None:
    """Grace is 90 min; a job of another class waits a minute or so, not an hour and a half."""
    world = World(pool(orphan_grace=90 * MINUTE), pool("gpu", labels=GPU), slots=1)
    (name,) = world.listening(1)
    world.queued(2, labels=GPU)
    world.completed(1, how="cancelled")
    field = Field(world)
    field.run(2 * MINUTE)
    assert world.runner(name).state is S.GONE
    (at,) = field.at(cm.Register)
    assert at <= 70 * SECOND


def test_fp_13_a_job_that_waits_for_fourteen_minutes_keeps_the_runner_that_could_take_it() -> None:
    """C has waited 14 min for the slot; the runner made for A listens when A ends elsewhere: C's now."""
    world = World(pool(surplus_grace=0), slots=1)
    (busy,) = world.listening(99)
    began(world, busy, 99)
    world.queued(1, 3)
    field = Field(world)
    field.probes[busy] = BUSY
    field.run(14 * MINUTE)
    ended(world, busy, 99)
    field.run(SECOND)
    name = started(world)
    assert world.runner(name).intent == key(1)
    world.completed(1, how="cancelled")
    field.run(5 * MINUTE)
    assert (world.runner(name).state, world.runner(name).surplus_since) == (S.LISTENING, None)
    assert world.job(3).status is JobStatus.QUEUED
    assert len(field.at(cm.Register)) == 1


def test_fp_14_a_plain_swap_starts_no_third_runner() -> None:
    world = World(slots=4)
    a, b = world.listening(1, 2)
    began(world, b, 1)
    began(world, a, 2)
    field = Field(world)
    field.probes = {a: BUSY, b: BUSY}
    field.run(15 * MINUTE)
    assert world.count(cm.Register) == 2


def test_fp_14_swapped_with_a_sibling_that_never_boots_gets_one_replacement_in_seconds() -> None:
    world = World(slots=4)
    a, b = world.planned(1, 2)
    for name in (a, b):
        world.registered(name)
    world.started(a)
    world.sign(a, Sign.LISTENING)
    began(world, a, 2)
    field = Field(world)
    field.probes[a] = BUSY
    world.feed(ev.StartFailed(b, BROKEN))
    field.run(36 * SECOND)
    assert len(field.at(cm.Register)) == 1


def test_fp_15_days_later_nothing_boots_for_jobs_that_have_ended() -> None:
    """Ten jobs wait three days for a slot and end unheard of; the freed slot costs questions alone."""
    world = World(slots=1, lists=False)
    (busy,) = world.listening(99)
    began(world, busy, 99)
    world.queued(*range(1, 11))
    field = Field(world)
    field.probes[busy] = BUSY
    field.jobs = dict.fromkeys(range(1, 11), ForgeStatus.COMPLETED)
    world.now += 3 * DAY
    ended(world, busy, 99)
    field.run(10 * MINUTE)
    assert field.at(cm.Register) == []
    assert len(field.at(cm.LookUpJob)) == 10
    assert all(world.job(number).status is JobStatus.DONE for number in range(1, 11))


def test_fp_15_if_the_forge_cannot_be_asked_one_runner_too_many_is_better() -> None:
    world = World(slots=1, lists=False)
    (busy,) = world.listening(99)
    began(world, busy, 99)
    world.queued(1)
    world.now += 3 * DAY
    ended(world, busy, 99)
    world.wait(16 * SECOND)
    assert world.last(cm.Register).runner != busy


def test_fp_15_the_end_of_a_job_is_remembered_for_eight_days() -> None:
    world = World(slots=1)
    world.completed(1)
    world.wait(7 * DAY)
    assert world.queued(1) == ()


def hung(world: World) -> RunnerId:
    """A runner that acknowledged an assignment and then says nothing more."""
    (name,) = world.listening(1)
    world.sign(name, Sign.OFFERED)
    world.sign(name, Sign.ACKNOWLEDGED)
    return name


def test_fp_16_a_hung_listener_is_shown_as_stuck_and_replaced_after_two_minutes() -> None:
    world = World(slots=2)
    name = hung(world)
    field = Field(world)
    field.run(2 * MINUTE + SECOND)
    assert "acknowledged" in world.runner(name).stuck
    assert name not in world.core.state.index.supply["small"]
    assert field.at(cm.Register) == [2 * MINUTE]
    assert any(f"Runner {name} is stuck" in text for text in assess(world.core.state, world.now).reasons)


@pytest.mark.parametrize("gone", [True, False])
def test_fp_16_it_goes_when_its_registration_is_gone_or_its_fence_accepted(gone: bool) -> None:
    """The forge fails the job after ten minutes; the slot comes back, and only by way of the forge."""
    world = World(slots=2)
    name = hung(world)
    field = Field(world)
    if gone:
        field.flags[name] = {"missing": True}
    field.run(10 * MINUTE)
    assert world.runner(name).state is S.ASSIGNED
    world.completed(1, how="failure")
    field.run(30 * MINUTE)
    assert world.runner(name).state is S.GONE
    (permit,) = [command.permit for command in of(world.sent, cm.Destroy) if command.permit.runner == name]
    assert permit.fence == "accepted"


def test_fp_16_a_hung_listener_is_no_supply_after_its_sign_has_lapsed() -> None:
    """Still registered, not busy at the forge: the next job of its class gets a runner of its own at once."""
    world = World(slots=2)
    name = hung(world)
    field = Field(world)
    field.run(10 * MINUTE)
    world.completed(1, how="failure")
    field.run(5 * MINUTE + 2 * SECOND)
    world.queued(2)
    registered = of(world.sent, cm.Register)
    field.run(10 * SECOND)
    assert len(registered) >= 1
    assert len([row for row in world.core.state.runners.values() if row.intent is not None]) >= 2
    assert name not in world.core.state.index.supply.get("small", {})
    field.run(MINUTE)
    assert world.runner(name).state is S.GONE


def test_fp_17_a_boot_of_nine_minutes_is_supply_for_five() -> None:
    """Created at t+0, up at t+9 min 58 s; the replacement comes at t+5 min, and the slow one is used."""
    world = World(slots=2)
    (slow,) = world.planned(1)
    world.registered(slow)
    world.started(slow)
    field = Field(world)
    field.probes[slow] = seen(listening=False, listener_alive=False)
    field.fences[slow] = FenceAnswer.NO_ANSWER
    field.run(5 * MINUTE)
    assert field.at(cm.Register) == [5 * MINUTE]
    field.run(298 * SECOND)
    world.sign(slow, Sign.LISTENING)
    world.queued(2)
    began(world, slow, 2)
    assert world.runner(slow).state is S.RUNNING


def test_fp_18_a_fresh_job_is_not_asked_about() -> None:
    """Within a second of `queued` the forge's read side says otherwise; nobody asks it."""
    world = World(lists=False)
    field = Field(world)
    field.jobs = {1: ForgeStatus.COMPLETED}
    world.queued(1)
    field.run(SECOND)
    assert (field.at(cm.Register), field.at(cm.LookUpJob)) == ([0], [])


@pytest.mark.parametrize("word", [ForgeStatus.QUEUED, ForgeStatus.OTHER, None])
def test_fp_18_anything_but_running_or_completed_means_go_on(word: ForgeStatus | None) -> None:
    world = World(slots=1, lists=False)
    (busy,) = world.listening(99)
    began(world, busy, 99)
    world.queued(1)
    world.now += 5 * MINUTE
    field = Field(world)
    field.jobs = {1: word}
    ended(world, busy, 99)
    field.run(SECOND)
    assert len(field.at(cm.Register)) == 1


def test_fp_19_no_failure_eats_the_tries_of_another() -> None:
    """Registering fails at 0, 0.5, 1.5, 3.5 and 8.5 min: no job is dropped, and there is a sixth try."""
    world = World(slots=2)
    field = Field(world)
    world.queued(1)
    tries = 0
    while tries < 6:
        name = world.last(cm.Register).runner
        if world.runner(name).state is S.REGISTERING:
            tries += 1
            world.feed(ev.RegistrationFailed(name, BROKEN))
        field.run(10 * SECOND)
        assert world.now - field.began < HOUR
    row = world.core.state.pools["small"]
    assert (row.failures, row.exits, world.job(1).status) == (6, 0, JobStatus.QUEUED)
    assert "no space left on device" in why_waiting(world.core.state, key(1), world.now)
    while world.runner(world.last(cm.Register).runner).state is not S.REGISTERING:
        field.run(10 * SECOND)
    name = started(world)
    assert world.core.state.pools["small"].failures == 0
    world.exited(name, 1)
    assert (world.core.state.pools["small"].failures, world.core.state.pools["small"].exits) == (0, 1)


def test_fp_19_a_job_that_keeps_its_runners_idle_is_served_anew_once_an_hour() -> None:
    """A superseded run got a fresh VM every ten minutes for hours; here it is one an hour."""
    world = World(slots=4)
    field = Field(world)
    world.queued(1)
    end = world.now + 4 * HOUR
    while world.now < end:
        name = world.last(cm.Register).runner
        if world.runner(name).state is S.REGISTERING:
            started(world)
        field.run(MINUTE, step=10 * SECOND)
    assert len(field.at(cm.Register)) <= 5


def test_fp_20_a_scope_that_refuses_silently_is_said_and_gets_no_further_runners() -> None:
    """Both listeners stay idle while their jobs wait: said after two minutes, and no third runner is made."""
    world = World(slots=4)
    field = Field(world)
    first, _ = world.listening(1, 2)
    field.run(3 * MINUTE)
    world.queued(3, 4)
    field.run(MINUTE)
    assert world.count(cm.Register) == 2
    (reason,) = [text for text in assess(world.core.state, world.now).reasons if "not taken" in text]
    assert f"Job {key(1)} is matched but not taken: runner {first} satisfies it" in reason
    assert "hold" in why_waiting(world.core.state, key(3), world.now)
