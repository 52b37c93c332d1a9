"""What the earlier designs share, by `intent`, which adds the least: dispatch, slots, retries, reconcile."""

from __future__ import annotations

from typing import Any

import pytest

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.job import JobReport, Told
from ephemerd.domain.pool import HOUR, MINUTE
from ephemerd.domain.runner import FenceAnswer, RunnerState
from ephemerd.domain.verdict import Sign
from ephemerd.testing.simulate.foils.intent import Intent
from ephemerd.testing.simulate.foils.lives import MOST_ATTEMPTS
from tests.unit.simulate.world import DONE, LABELS, QUEUED, RUNNING, SCOPE, World, key

SILENT = Fault(Remedy.RETRY, "no answer")


@pytest.fixture
def world() -> World:
    return World(Intent())


def exited(world: World, name: str) -> None:
    world.tell(ev.EnvironmentExited(world.row(name).id, 0))


def test_at_the_start_it_lists_jobs_and_environments(world):
    assert world.only(cm.ListJobs).scope == SCOPE
    assert world.only(cm.ListEnvironments).host == "host"


def test_each_queued_job_gets_a_runner_of_its_own(world):
    first, second = world.dispatched(1), world.dispatched(2)
    assert [world.row(name).intent for name in (first, second)] == [key(1), key(2)]


def test_a_job_that_is_told_twice_has_one_runner(world):
    world.dispatched(1)
    world.job(1, QUEUED)
    world.job(1, QUEUED, told=Told.LISTING)
    assert world.all(cm.Register) == []


@pytest.mark.parametrize("labels", [("windows",), ()])
def test_a_job_that_no_pool_serves_has_none(world, labels):
    report = JobReport(key(1), QUEUED, labels)
    assert world.tell(ev.JobReported(report, Told.WEBHOOK)) == ()


def test_what_is_registered_is_started_with_the_pools_labels(world):
    world.job(1, QUEUED)
    asked = world.only(cm.Register)
    assert asked.labels == LABELS
    world.registered(asked.runner)
    assert world.only(cm.StartRunner) == cm.StartRunner(asked.runner, "linux")


def test_a_dispatch_waits_for_a_slot_and_the_oldest_goes_first():
    world = World(Intent(), slots=1)
    first = world.dispatched(1)
    world.job(2, QUEUED)
    world.job(3, QUEUED)
    assert world.all(cm.Register) == []
    world.job(1, RUNNING, first)
    exited(world, first)
    assert world.row(world.only(cm.Register).runner).intent == key(2)


def test_a_runner_that_ends_while_its_job_was_never_seen_running_is_followed_by_another(world):
    name = world.dispatched(1)
    exited(world, name)
    assert world.row(world.only(cm.Register).runner).intent == key(1)


def test_one_that_ends_after_its_job_was_seen_running_is_not(world):
    name = world.dispatched(1)
    world.job(1, RUNNING, "somebody-elses")
    exited(world, name)
    assert world.all(cm.Register) == []


def test_a_job_has_so_many_runners_and_the_reconcile_begins_anew(world):
    name = world.dispatched(1)
    made = 1
    while True:
        exited(world, name)
        if not world.all(cm.Register):
            break
        made, name = made + 1, world.up(world.only(cm.Register).runner)
    assert made == MOST_ATTEMPTS
    assert [type(command) for command in world.wait(30 * 60)].count(cm.ListJobs) == 1
    world.job(1, QUEUED, told=Told.LISTING)
    assert world.only(cm.Register)


def test_a_runner_that_exited_has_its_remains_removed_and_its_registration(world):
    name = world.dispatched(1)
    exited(world, name)
    assert world.only(cm.Destroy).permit.runner == name
    assert world.only(cm.Deregister).intent.runner == name
    world.answer(FenceAnswer.NOT_FOUND)
    assert world.knows(name)
    world.tell(ev.EnvironmentDestroyed(name, f"env-{name}"))
    assert not world.knows(name)


def test_a_failed_claim_is_looked_up_and_tried_again_with_growing_pauses(world):
    world.job(1, QUEUED)
    pauses, before = [], world.now
    for _ in range(3):
        name = world.only(cm.Register).runner
        world.tell(ev.RegistrationFailed(name, SILENT))
        assert world.only(cm.LookUpName).runner == name
        world.tell(ev.NameLookedUp(name, None))
        assert not world.knows(name)
        while not world.all(cm.Register):
            world.now = world.scheduler.next_wake()
            world.tell(ev.Woke())
        pauses.append(world.now - before)
        before = world.now
    assert pauses == sorted(pauses)
    assert 24_000 <= pauses[0] <= 36_000


def test_a_rate_limit_is_waited_for(world):
    world.job(1, QUEUED)
    fault = Fault(Remedy.LIMITED, "limit", 20 * MINUTE)
    world.tell(ev.RegistrationFailed(world.only(cm.Register).runner, fault))
    assert not [command for command in world.wait(19 * 60) if isinstance(command, cm.Register)]
    assert [command for command in world.wait(2 * 60) if isinstance(command, cm.Register)]


def test_a_claim_retry_is_dropped_when_the_job_is_seen_running(world):
    world.job(1, QUEUED)
    world.tell(ev.RegistrationFailed(world.only(cm.Register).runner, SILENT))
    world.job(1, RUNNING, "somebody-elses")
    assert not [command for command in world.wait(3600) if isinstance(command, cm.Register)]


def test_a_registration_whose_answer_was_lost_is_removed(world):
    world.job(1, QUEUED)
    name = world.only(cm.Register).runner
    world.tell(ev.RegistrationFailed(name, SILENT))
    world.tell(ev.NameLookedUp(name, 77))
    assert world.only(cm.Deregister).intent.registration == 77
    world.answer(FenceAnswer.ACCEPTED)
    assert not world.knows(name)


def test_a_look_up_without_an_answer_is_repeated_at_the_reconcile(world):
    world.job(1, QUEUED)
    name = world.only(cm.Register).runner
    world.tell(ev.RegistrationFailed(name, SILENT))
    world.tell(ev.NameLookedUp(name, None, SILENT))
    asked = [command for command in world.wait(30 * 60) if isinstance(command, cm.LookUpName)]
    assert [command.runner for command in asked] == [name]


def test_what_did_not_start_gives_its_slot_back():
    world = World(Intent(), slots=1)
    world.job(1, QUEUED)
    name = world.only(cm.Register).runner
    world.registered(name)
    world.tell(ev.StartFailed(name, Fault(Remedy.BROKEN, "no disk")))
    assert world.only(cm.Deregister).intent.runner == name
    assert world.only(cm.Register).runner != name


@pytest.mark.parametrize(("timeout", "seconds"), [(None, 2 * 3600), (10 * MINUTE, 600)])
def test_job_timeout_counts_from_the_dispatch(timeout, seconds):
    """Idle time counts too (field problem 9)."""
    world = World(Intent(), job_timeout=timeout)
    name = world.dispatched(1)
    assert not [command for command in world.wait(seconds - 1) if isinstance(command, cm.Destroy)]
    (ended,) = [command for command in world.wait(2) if isinstance(command, cm.Destroy)]
    assert ended.permit.runner == name


def test_deregistration_comes_after_the_destruction_and_is_repeated_at_the_reconcile(world):
    name = world.dispatched(1)
    world.job(1, DONE)
    assert world.all(cm.Deregister) == []
    world.destroyed()
    world.answer(FenceAnswer.REFUSED)
    assert world.row(name).state is RunnerState.GONE
    again = [command for command in world.wait(30 * 60) if isinstance(command, cm.Deregister)]
    assert [command.intent.runner for command in again] == [name]


def test_a_destruction_that_failed_is_repeated(world):
    name = world.dispatched(1)
    world.job(1, DONE)
    world.tell(ev.DestroyFailed(name, f"env-{name}", SILENT))
    assert world.only(cm.Destroy).permit.runner == name


def test_nothing_leaves_done(world):
    world.job(1, DONE)
    world.job(1, QUEUED)
    world.job(1, RUNNING, "somebody-elses")
    assert world.all(cm.Register) == []


def test_the_end_of_a_job_is_forgotten_after_two_hours_and_ten_minutes(world):
    """What is told again after that looks new (field problem 15)."""
    world.job(1, DONE)
    world.wait(2 * 3600)
    world.job(1, QUEUED)
    assert world.all(cm.Register) == []
    world.wait(12 * 60)
    world.job(1, QUEUED)
    assert world.all(cm.Register) != []


def test_orders_of_a_person_and_signs_mean_nothing(world):
    name = world.dispatched(1)
    assert world.tell(ev.KillOrdered("operator", name, "cleaning up")) == ()
    assert world.tell(ev.CordonOrdered("operator", ev.Target.ALL)) == ()
    assert world.tell(ev.SignSeen(name, Sign.ANNOUNCED)) == ()
    assert world.tell(ev.SweepOrdered()) == ()


class TestRestart:
    """A crash: the rows survive, the memory does not."""

    def again(self, world: World) -> None:
        state = world.scheduler.state
        rows: dict[str, dict[str, Any]] = {
            "runner": {str(name): row for name, row in state.runners.items()},
            "job": {str(name): job for name, job in state.jobs.items()},
            "pool": dict(state.pools),
            "host": dict(state.hosts),
            "meta": dict(state.meta),
            "policy": {"policy": state.policy},
        }
        world.now += 5_000
        world.scheduler.reload(rows, world.now)
        world.tell(ev.Booted("store", "e2", world.setup))

    def test_what_runs_is_attached_to_again(self, world):
        name = world.dispatched(1)
        self.again(world)
        assert world.only(cm.WatchRunner).runner == name

    def test_what_waited_for_a_slot_is_found_by_the_reconcile(self):
        world = World(Intent(), slots=1)
        first = world.dispatched(1)
        world.job(2, QUEUED)
        self.again(world)
        world.job(2, QUEUED, told=Told.LISTING)
        exited(world, first)
        assert key(2) in [row.intent for row in world.scheduler.state.runners.values()]

    def test_a_registration_on_its_way_is_looked_up_and_undone(self, world):
        world.job(1, QUEUED)
        name = world.only(cm.Register).runner
        self.again(world)
        assert world.only(cm.LookUpName).runner == name
        world.tell(ev.NameLookedUp(name, 5))
        assert world.only(cm.Deregister).intent.registration == 5
        assert world.only(cm.Register).runner != name

    def test_an_environment_that_was_started_unheard_is_taken_over(self, world):
        world.job(1, QUEUED)
        name = world.only(cm.Register).runner
        world.registered(name)
        self.again(world)
        found = ev.FoundEnvironment(name, "env-x", "linux", ended=False)
        world.tell(ev.EnvironmentsListed("host", (found,), complete=True))
        assert world.row(name).environment == "env-x"
        assert world.only(cm.WatchRunner).environment == "env-x"

    def test_an_environment_that_is_not_there_has_ended(self, world):
        name = world.dispatched(1)
        self.again(world)
        world.tell(ev.EnvironmentsListed("host", (), complete=False))
        assert world.row(name).state is RunnerState.LISTENING
        world.tell(ev.EnvironmentsListed("host", (), complete=True))
        assert world.row(name).state is RunnerState.GONE

    def test_what_was_on_its_way_out_goes_on(self, world):
        name = world.dispatched(1)
        world.job(1, DONE)
        self.again(world)
        assert world.only(cm.Destroy).permit.runner == name

    def test_the_timeout_still_counts_from_the_dispatch(self, world):
        world.dispatched(1)
        world.wait(HOUR / 1000)
        self.again(world)
        assert not [c for c in world.wait(3500) if isinstance(c, cm.Destroy)]
        assert [c for c in world.wait(200) if isinstance(c, cm.Destroy)]
