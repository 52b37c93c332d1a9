"""The machine was suspended: what counts on, what gets its time again, and what is looked at anew."""

from __future__ import annotations

import pytest

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.health import assess
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.runner import RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core.field import Field
from tests.unit.core.world import APP, HOUR, MINUTE, NO_ANSWER, SECOND, World, of, pool, seen

S = RunnerState
NIGHT = 8 * HOUR


def sleep(world: World, ms: int = NIGHT) -> tuple[cm.Command, ...]:
    """Suspend the machine; its waking is told before anything else."""
    world.now += ms
    return world.feed(ev.MachineSlept(ms)).commands


def working(world: World, number: int) -> RunnerId:
    (name,) = world.listening(number)
    world.sign(name, Sign.WORKER)
    world.in_progress(number, name)
    return name


@pytest.mark.parametrize("ms", [20 * SECOND, NIGHT])
def test_everything_is_listed_at_once(ms: int) -> None:
    world = World(lists=False)
    world.wait(SECOND)
    world.feed(ev.JobsListed(world.setup.pools[0].scope, 0))
    world.feed(ev.RegistrationsListed(world.setup.pools[0].scope, ()))
    world.feed(ev.EnvironmentsListed("here", (), complete=True))
    sent = sleep(world, ms)
    assert {type(command) for command in sent} == {cm.ListEnvironments, cm.ListJobs, cm.ListRegistrations}
    assert "the machine slept; everything is looked at anew" in world.notes


def test_a_scope_that_gave_no_answer_before_is_tried_at_once() -> None:
    """The network was away together with the machine."""
    world = World()
    world.lists = False
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    assert of(sleep(world, SECOND), cm.ListJobs) == [cm.ListJobs(APP)]


def test_each_that_runs_is_looked_into_and_what_was_never_told_to_have_started_is_not() -> None:
    world = World()
    runs, heard = world.planned(1, 2)
    for name in (runs, heard):
        world.registered(name)
        world.sign(name, Sign.LISTENING)
    world.started(runs)
    sent = sleep(world, 20 * SECOND)
    assert [command.runner for command in of(sent, cm.ProbeRunner)] == [runs]
    assert (world.runner(runs).seen_after_start, world.runner(heard).seen_after_start) == (False, True)


def test_an_idle_runner_is_not_ended_for_the_time_it_slept_before_it_was_looked_at() -> None:
    world = World(pool(orphan_grace=10 * MINUTE))
    working(world, 1)
    (idle,) = world.listening(2)
    field = Field(world)
    sent = sleep(world)
    assert of(sent, cm.Deregister) == []
    assert of(sent, cm.Destroy) == []
    field.probes[idle] = None
    field.run(9 * MINUTE)
    assert field.at(cm.Destroy) == []
    assert world.runner(idle).state is S.LISTENING


def test_a_busy_one_runs_on_and_a_job_that_ended_meanwhile_is_found_by_the_listing() -> None:
    world = World()
    busy = working(world, 1)
    field = Field(world)
    field.probes[busy] = seen(workers=1)
    sleep(world)
    field.run(20 * MINUTE)
    assert (world.runner(busy).state, field.at(cm.Destroy)) == (S.RUNNING, [])


def test_what_was_under_way_gets_its_time_again() -> None:
    """A boot is not late by a night, and an end is not given up before it had its 70 s awake."""
    world = World(slots=3)
    (boots,) = world.planned(1)
    world.registered(boots)
    (name,) = world.listening(2)
    world.completed(2, name)
    world.exited(name, 0, leftovers=1)
    assert world.runner(name).state is S.RETIRING
    world.wait(30 * SECOND)
    sleep(world)
    world.wait(39 * SECOND)
    assert (world.runner(name).state, world.runner(boots).late) == (S.RETIRING, False)
    world.wait(2 * SECOND)
    assert world.runner(name).state is S.ABANDONED
    world.wait(4 * MINUTE)
    assert world.runner(boots).late


def test_a_gate_run_that_slept_still_takes_its_answer() -> None:
    world = World(pool(surplus_grace=0))
    (name,) = world.listening(1)
    world.completed(1, how="cancelled")
    asked = world.last(cm.ProbeRunner)
    sleep(world)
    world.probed(asked, seen())
    assert world.last(cm.Deregister).intent.runner == name


def test_waking_up_is_no_reason_to_be_stuck() -> None:
    world = World(slots=1)
    world.planned(1)
    sleep(world)
    assert "stuck" not in assess(world.core.state, world.now).status


def test_what_was_gone_before_the_machine_slept_stays_as_it_was() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.exited(name)
    world.destroyed(world.last(cm.Destroy))
    world.registrations.clear()
    before = world.runner(name)
    world.feed(ev.MachineSlept(5 * MINUTE))
    assert world.runner(name) == before
    assert before.state is RunnerState.GONE


def test_a_listing_that_was_out_is_not_asked_for_twice() -> None:
    world = World(lists=False)
    assert of(sleep(world, SECOND), cm.ListEnvironments) == []
