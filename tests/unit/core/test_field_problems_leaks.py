"""Field problems 21 to 27 and 41 to 44: what is left behind, and ends that mislead.

Numbers are those of docs/FIELD-PROBLEMS.md; times count from the first event of the case.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.health import assess
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId, runner_name
from ephemerd.domain.job import ForgeStatus, JobStatus
from ephemerd.domain.runner import FenceAnswer, RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core.field import Field
from tests.unit.core.world import DAY, HOUR, MINUTE, SECOND, World, of, pool, seen

S = RunnerState
BUSY = seen(workers=1)


def running(world: World, number: int) -> RunnerId:
    (name,) = world.listening(number)
    world.sign(name, Sign.ANNOUNCED, "build")
    world.sign(name, Sign.WORKER)
    world.in_progress(number, name)
    return name


def test_fp_21_first_the_registration_then_the_process() -> None:
    world = World(pool(surplus_grace=0))
    (name,) = world.listening(1)
    field = Field(world)
    world.completed(1, how="cancelled")
    field.run(10 * SECOND)
    (fence,), (end,) = field.at(cm.Deregister, name), field.at(cm.Destroy, name)
    assert fence + 5 * SECOND == end
    assert name not in world.registrations


def test_fp_21_a_failed_deregistration_is_kept_and_retried_after_the_environment_is_gone() -> None:
    world = World()
    (name,) = world.listening(1)
    field = Field(world)
    field.fences[name] = FenceAnswer.NO_ANSWER
    world.exited(name)
    field.run(20 * MINUTE)
    assert world.runner(name).unregister
    field.fences.clear()
    field.run(20 * MINUTE)
    assert not world.runner(name).unregister
    assert name not in world.registrations


def test_fp_21_ten_thousand_is_said_and_not_retried_every_few_seconds() -> None:
    world = World()
    full = Fault(Remedy.REFUSED, "422: Runner group 1 has reached max limit of 10000 runners")
    field = Field(world)
    world.queued(1)
    for _ in range(60):
        name = world.last(cm.Register).runner
        if world.runner(name).state is S.REGISTERING:
            world.feed(ev.RegistrationFailed(name, full))
        field.run(30 * SECOND)
    assert 4 <= len(field.at(cm.Register)) <= 8
    assert world.job(1).status is JobStatus.QUEUED
    assert any("max limit of 10000" in text for text in assess(world.core.state, world.now).reasons)


def test_fp_22_a_listener_whose_registration_was_collected() -> None:
    """From the first look on it is no supply; after the second, a minute later, it goes."""
    world = World(pool(orphan_grace=2 * HOUR), slots=2)
    (name,) = world.listening(1)
    field = Field(world)
    field.flags[name] = {"missing": True}
    field.fences[name] = FenceAnswer.NOT_FOUND
    field.run(31 * SECOND)
    assert name not in world.core.state.index.supply["small"]
    assert field.at(cm.Register) == [30 * SECOND]
    field.run(10 * MINUTE)
    assert world.runner(name).state is S.GONE
    assert "registration is gone" in world.runner(name).ending


@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_fp_23_a_configuration_is_used_once(code: int) -> None:
    """Whatever its end, no environment is started again: another name, another registration."""
    world = World()
    (name,) = world.listening(1)
    world.exited(name, code)
    world.wait(HOUR)
    assert [command.runner for command in of(world.sent, cm.StartRunner)] == [name]
    assert [command.runner for command in of(world.sent, cm.Register)].count(name) == 1
    assert world.last(cm.Register).runner != name


def test_fp_23_what_became_of_the_job_of_a_lost_environment_is_asked() -> None:
    world = World()
    name = running(world, 1)
    world.environments.clear()
    del world.waiting[next(iter(world.waiting))]
    field = Field(world)
    field.jobs = {1: ForgeStatus.COMPLETED}
    field.run(12 * MINUTE)
    assert world.runner(name).state is S.GONE
    assert world.job(1).status is JobStatus.DONE


def test_fp_24_the_registration_of_a_dead_runner_is_refused_for_fifteen_minutes() -> None:
    """Slot and environment are free at once, health is not affected, and the zombie goes in the end."""
    world = World(slots=1)
    name = running(world, 1)
    field = Field(world)
    field.fences[name] = FenceAnswer.REFUSED
    field.flags[name] = {"busy": True}
    world.exited(name, 137)
    assert (world.runner(name).state, world.held) == (S.GONE, 0)
    field.run(15 * MINUTE)
    assert assess(world.core.state, world.now).status == "ok"
    world.completed(1, name, how="failure")
    field.flags.clear()
    field.fences.clear()
    field.run(40 * MINUTE)
    assert name not in world.registrations
    assert world.planned(2) != [name]


def test_fp_24_a_zombie_that_is_refused_all_day_is_asked_ever_more_seldom() -> None:
    world = World()
    (name,) = world.listening(1)
    field = Field(world)
    field.fences[name] = FenceAnswer.REFUSED
    world.exited(name)
    world.completed(1, how="cancelled")
    field.run(DAY, step=MINUTE)
    asked = field.at(cm.Deregister, name)
    assert 10 < len(asked) < 40
    assert asked[-1] - asked[-2] >= 50 * MINUTE


def test_fp_25_two_runners_for_one_job_are_both_accounted_for() -> None:
    """The first one's exit removes nothing of the second, which is one too many and no more."""
    world = World(slots=4)
    first = running(world, 1)
    world.completed(1, first)  # told too early, and A is queued again under its old id: dropped
    world.queued(1)
    (second,) = world.listening(2)
    world.in_progress(2, first)  # the forge names the first one for the second's job too
    field = Field(world)
    world.exited(first)
    assert (world.runner(first).state, world.runner(second).state) == (S.GONE, S.LISTENING)
    assert (world.held, world.runner(second).environment) == (1, f"env-{second}")
    field.run(5 * MINUTE)
    assert [command.permit.runner for command in of(world.sent, cm.Destroy)] == [first, second]
    assert (world.held, len(world.environments)) == (0, 0)


def test_fp_25_a_job_in_provisioning_is_in_the_books_from_claim_to_listening() -> None:
    world = World(slots=4)
    world.queued(1)
    world.wait(20 * SECOND)
    name = world.last(cm.Register).runner
    for number in (1, 1, 1):
        assert world.queued(number) == ()
    world.registered(name)
    world.wait(4 * MINUTE)
    assert world.queued(1) == ()
    assert (world.held, world.count(cm.Register)) == (1, 1)


def test_fp_26_names_are_never_used_again() -> None:
    world = World(slots=4)
    names: list[str] = []
    for life in range(3):
        for number in range(4):
            (name,) = world.listening(10 * life + number + 1)
            names.append(name)
            world.in_progress(10 * life + number + 1, name)
            world.completed(10 * life + number + 1, name)
            world.exited(name)
        world.restart(down=HOUR)
    assert len(set(names)) == 12
    assert all(
        len(name) <= 64 and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for name in names
    )
    assert len(runner_name("z" * 8, "z" * 4, 10**9)) <= 64


def test_fp_26_a_late_completed_for_an_older_runner_touches_no_newer_one() -> None:
    world = World()
    old = running(world, 1)
    world.exited(old)
    world.wait(40 * MINUTE)
    (new,) = world.listening(2)
    before = world.runner(new)
    assert world.completed(1, old).commands == ()
    assert world.runner(new).state is before.state


def unknown(world: World, name: str = "eph-s1-zz-1") -> RunnerId:
    world.environments[name] = ev.FoundEnvironment(RunnerId(name), f"env-{name}", "small", ended=False)
    world.feed(ev.EnvironmentsListed("here", tuple(world.environments.values()), complete=True))
    return RunnerId(name)


def test_fp_27_an_unknown_idle_environment_goes_after_two_looks_a_minute_apart() -> None:
    world = World()
    field = Field(world)
    name = unknown(world)
    assert world.runner(name).adopted
    field.run(59 * SECOND)
    assert field.at(cm.Destroy) == []
    field.run(20 * MINUTE)
    assert [command.permit.rule for command in of(world.sent, cm.Destroy)] == ["leaked"]
    assert world.runner(name).state is S.GONE
    assert world.counter("nominations_total|rule=leaked") == 1


def test_fp_27_an_unknown_environment_with_a_worker_is_adopted() -> None:
    world = World()
    field = Field(world)
    name = unknown(world)
    field.probes[name] = BUSY
    field.run(HOUR)
    assert (world.runner(name).state, world.held, field.at(cm.Destroy)) == (S.RUNNING, 1, [])


@pytest.mark.parametrize("code", [3, 4])
def test_fp_41_an_update_instead_of_work_is_no_end_of_a_job(code: int) -> None:
    world = World()
    (name,) = world.listening(1)
    field = Field(world)
    world.exited(name, code)
    field.settle()
    assert (world.runner(name).exit_code, world.job(1).status) == (code, JobStatus.QUEUED)
    assert (field.at(cm.Register), name in world.registrations) == ([0], False)
    assert world.counter("ended_without_a_job_total|pool=small") == 1


def test_fp_40_a_refused_version_is_alarmed_at_once_and_tried_again_slowly() -> None:
    """Exit 7, again and again: running runners are left alone, demand stays, one alarm is given."""
    world = World(slots=4)
    busy = running(world, 99)
    field = Field(world)
    field.probes[busy] = BUSY
    world.queued(1)
    end = world.now + 3 * HOUR
    while world.now < end:
        name = world.last(cm.Register).runner
        if world.runner(name).state is S.REGISTERING:
            world.registered(name)
            world.started(name)
            world.exited(name, 7)
        field.run(10 * SECOND, step=10 * SECOND)
    made = field.at(cm.Register)
    assert 15 <= len(made) <= 19
    assert min(b - a for a, b in pairwise(made)) >= 10 * MINUTE
    assert (world.job(1).status, world.runner(busy).state) == (JobStatus.QUEUED, S.RUNNING)
    assert sum("refuses the version" in note for note in world.notes) == 1
    assert any("refuses the version" in text for text in assess(world.core.state, world.now).reasons)


def test_fp_42_exit_5_is_no_job_and_a_new_registration_follows() -> None:
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.started(name)
    field = Field(world)
    field.probes[name] = seen(listening=False)
    field.run(240 * SECOND)
    assert world.runner(name).state is S.STARTING
    world.exited(name, 5)
    field.settle()
    assert (world.runner(name).exit_code, world.runner(name).hard) == (5, None)
    assert field.at(cm.Register) == [240 * SECOND]
    assert world.last(cm.Register).runner != name


def test_fp_43_exit_0_although_the_worker_never_read_its_job() -> None:
    """Announced at t+0, exit 0 at t+30 s; the forge calls the job queued, bound to the dead runner, and
    refuses the deregistration for 11 min. It is asked about, and no more runners are thrown at it."""
    world = World(slots=4)
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED, "build")
    world.wait(30 * SECOND)
    field = Field(world)
    field.fences[name] = FenceAnswer.REFUSED
    field.flags[name] = {"busy": True}
    field.jobs = {1: ForgeStatus.IN_PROGRESS}
    world.exited(name, 0)
    assert world.held == 0
    field.run(11 * MINUTE)
    assert field.at(cm.Register) == []
    assert len(field.at(cm.LookUpJob)) >= 1
    assert world.job(1).status is JobStatus.RUNNING
    assert world.runner(name).exit_code == 0


def test_fp_44_the_kernel_kills_the_worker() -> None:
    """Exit 137: torn down at once, with the code, and the record shows that it was none of ours."""
    world = World(slots=1)
    name = running(world, 1)
    field = Field(world)
    world.exited(name, 137, leftovers=2)
    field.settle()
    assert (world.runner(name).state, world.runner(name).exit_code, world.held) == (S.GONE, 137, 0)
    (permit,) = [command.permit for command in of(world.sent, cm.Destroy)]
    assert permit.warrant.value == "ended"
    assert [decision for decision in world.decisions if decision.runner == name] == []
    assert world.runner(name).ending.startswith("ended by itself")
    world.completed(1, name, how="failure")
