"""Field problems 28 to 35 and 45 to 51: what the forge tells, labels, bursts, cancelling and re-running.

Numbers are those of docs/FIELD-PROBLEMS.md; times count from the first event of the case.
"""

from __future__ import annotations

import pytest

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.waiting import why_waiting
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus, JobStatus, Told
from ephemerd.domain.runner import RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core import build
from tests.unit.core.field import Field
from tests.unit.core.world import (
    APP,
    GPU,
    HOUR,
    LABELS,
    MINUTE,
    ORG,
    SECOND,
    World,
    key,
    of,
    pool,
    report,
    seen,
)

S = RunnerState
BUSY = seen(workers=1)


def running(world: World, number: int) -> RunnerId:
    (name,) = world.listening(number)
    world.sign(name, Sign.ANNOUNCED, "build")
    world.sign(name, Sign.WORKER)
    world.in_progress(number, name)
    return name


def test_fp_28_twenty_minutes_without_ingress() -> None:
    """Six `queued`, two `in_progress` and three `completed` are lost: one listing later all is known."""
    world = World(slots=20)
    two = world.listening(1, 2)
    three = [running(world, number) for number in (3, 4, 5)]
    field = Field(world)
    for name in two:
        field.probes[name] = BUSY
        world.sign(name, Sign.ANNOUNCED, "build")
        world.sign(name, Sign.WORKER)
    for number, name in enumerate(three, start=3):
        world.waiting.pop(key(number))
        world.exited(name)
    for number in (1, 2):
        world.waiting[key(number)] = report(number, ForgeStatus.IN_PROGRESS, runner_name=two[number - 1])
    for number in range(11, 17):
        world.waiting[key(number)] = report(number, ForgeStatus.QUEUED)
    field.jobs.update(dict.fromkeys((1, 2), ForgeStatus.IN_PROGRESS))
    field.jobs.update(dict.fromkeys((3, 4, 5), ForgeStatus.COMPLETED))
    field.run(20 * MINUTE)
    made = {world.runner(command.runner).intent for command in of(world.sent, cm.Register)}
    assert made >= {key(number) for number in range(11, 17)}
    assert [world.runner(name).state for name in two] == [S.RUNNING, S.RUNNING]
    assert [world.runner(name).job for name in two] == [key(1), key(2)]
    assert all(world.job(number).status is JobStatus.DONE for number in (3, 4, 5))


def test_fp_29_a_third_copy_of_queued_seventy_minutes_later() -> None:
    world = World()
    name = running(world, 1)
    world.queued(1)
    world.completed(1, name)
    world.exited(name)
    world.now += 70 * MINUTE
    assert world.queued(1) == ()
    assert (world.job(1).status, world.count(cm.Register)) == (JobStatus.DONE, 1)


def test_fp_30_the_end_of_the_process_tree_settles_all_but_the_forges_word() -> None:
    """Exit 0 at t+0 and no `completed`: slot and environment at once, the job by asking later."""
    world = World(slots=1)
    name = running(world, 1)
    field = Field(world)
    world.sign(name, Sign.ENDED)
    world.exited(name, 0)
    field.settle()
    assert (world.runner(name).state, world.held, world.job(1).status) == (S.GONE, 0, JobStatus.RUNNING)
    assert (world.runner(name).over_via, world.runner(name).exit_code) == ("log", 0)
    field.run(10 * MINUTE)
    world.waiting.clear()
    field.jobs = {1: ForgeStatus.COMPLETED}
    field.run(20 * MINUTE)
    assert world.job(1).status is JobStatus.DONE


def test_fp_31_unknown_words_never_raise_and_change_nothing() -> None:
    world = World()
    before = world.queued(1)
    step = world.told(report(1, ForgeStatus.OTHER))
    assert (len(of(before, cm.Register)), step.commands) == (1, ())
    assert world.told(report(2, ForgeStatus.QUEUED, repository="other/thing")).commands == ()
    assert world.completed(1, how="a conclusion of the future").commands == ()
    assert world.job(1).conclusion == "a conclusion of the future"


@pytest.mark.parametrize("status", [ForgeStatus.IN_PROGRESS, ForgeStatus.COMPLETED])
def test_fp_32_nobody_is_never_the_same_nobody(status: ForgeStatus) -> None:
    """Three jobs of nobody, and a check run with empty labels: no runner is bound, no pool shrinks."""
    world = World(slots=8)
    names = world.listening(1, 2, 3)
    for number in (71, 72, 73):
        world.told(report(number, status, labels=(), runner_name=None, runner_id=None))
    world.told(report(74, ForgeStatus.QUEUED, labels=("windows",), runner_name=names[0]))
    world.wait(20 * SECOND)
    rows = [world.runner(name) for name in names]
    assert [(row.state, row.hard, row.surplus_since) for row in rows] == [(S.LISTENING, None, None)] * 3
    assert world.count(cm.ProbeRunner) + world.count(cm.Deregister) == 0


def test_fp_34_where_starts_are_not_observed_silence_means_nothing() -> None:
    """Polling, waiting jobs only: past grace every running runner is probed before anything else."""
    world = World(pool(observed=False), slots=4, lists=False)
    names = world.listening(1, 2)
    field = Field(world)
    for name in names:
        field.probes[name] = BUSY
        world.sign(name, Sign.ANNOUNCED, "build")
    field.jobs = dict.fromkeys((1, 2), ForgeStatus.IN_PROGRESS)
    field.run(HOUR)
    assert [world.runner(name).state for name in names] == [S.RUNNING, S.RUNNING]
    assert field.at(cm.Destroy) == []
    world.exited(names[0])
    field.run(MINUTE)
    assert field.at(cm.Register) == []  # an exit is no stranded job


def test_fp_34_and_no_rule_that_rests_on_it_nominates_before_a_poll_has_read_the_running_jobs() -> None:
    world = World(pool(observed=False, surplus_grace=0), lists=False)
    (name,) = world.listening(1)
    world.completed(1, how="cancelled")
    field = Field(world)
    field.run(30 * MINUTE)
    assert field.at(cm.ProbeRunner, name) == []
    world.feed(ev.JobsListed(APP, 0))
    field.run(10 * MINUTE)
    assert world.runner(name).state is S.GONE


def test_fp_35_two_daemons_with_the_same_labels() -> None:
    """A foreign start takes the demand away; our spare goes when proven idle, and no foreign one ever."""
    world = World(pool(surplus_grace=0))
    foreign = "eph-s2-e1-1"
    world.registrations[foreign] = ev.FoundRegistration(foreign, 77, busy=True, online=True)
    (name,) = world.listening(1)
    field = Field(world)
    field.probes[name] = BUSY  # the hook told the other node alone that it runs something else
    world.in_progress(1, foreign)
    field.run(20 * MINUTE)
    assert world.runner(name).state is S.RUNNING
    assert field.at(cm.Destroy) == []


@pytest.mark.parametrize(
    "labels",
    [("Self-Hosted", "LINUX"), ("linux", "self-hosted"), ("self-hosted", "self-hosted", "Linux", " ")],
)
def test_fp_45_case_order_doubles_and_blanks(labels: tuple[str, ...]) -> None:
    world = World(slots=8)
    world.queued(1)
    world.queued(2, labels=labels)
    assert len(world.core.state.index.groups) == 1
    assert [command.labels for command in of(world.sent, cm.Register)] == [LABELS, LABELS]


def test_fp_46_a_label_that_no_runner_of_ours_has() -> None:
    world = World()
    field = Field(world)
    assert world.planned(1, labels=GPU) == []
    assert world.planned(2, labels=("windows", "linux")) == []
    field.run(HOUR, step=MINUTE)
    assert field.at(cm.Register) == []
    assert why_waiting(world.core.state, key(1), world.now) == "no pool has the label(s) gpu"
    assert why_waiting(world.core.state, key(2), world.now) == "no pool has the label(s) windows"


def test_fp_47_no_labels_or_somebody_elses() -> None:
    world = World(slots=8)
    assert world.planned(1, labels=()) == []
    assert world.planned(2, labels=("ubuntu-latest",)) == []
    owner = World(pool("hosted", labels=("ubuntu-latest",)), pool("any", unlabelled=True), slots=8)
    assert [owner.runner(name).pool for name in owner.planned(1, labels=("ubuntu-latest",))] == ["hosted"]
    assert [owner.runner(name).pool for name in owner.planned(2, labels=())] == ["any"]


def test_fp_47_a_completion_with_an_empty_list_shrinks_no_pool() -> None:
    world = World(pool(surplus_grace=0))
    (name,) = world.listening(1)
    field = Field(world)
    world.completed(77, labels=())
    field.run(20 * SECOND)
    assert (world.runner(name).surplus_since, field.at(cm.ProbeRunner)) == (None, [])


def test_fp_48_256_jobs_four_slots_in_order_and_without_a_gap() -> None:
    world = build.World(slots=4)
    jobs = [world.queue() for _ in range(256)]
    for number, job in enumerate(jobs):
        (name,) = world.core.state.index.intents[job]
        world.handle(ev.Registered(name, 9_000 + number))
        world.handle(ev.EnvironmentStarted(name, f"env-{name}"))
        world.begins(job, name)
        step = world.exits(name)
        made = [world.row(command.runner).intent for command in of(step.commands, cm.Register)]
        assert made == jobs[number + 4 : number + 5]  # the step that frees the slot starts the next one
        world.completes(job, name)
    assert world.core.state.slots_held("local") == 0
    assert world.sound()


def test_fp_48_no_class_starves_another() -> None:
    world = World(pool(scope=ORG), slots=1)
    world.queued(*range(1, 51), repository="acme/app")
    world.queued(99, repository="acme/lib")
    for _ in range(2):
        name = world.last(cm.Register).runner
        intent = world.runner(name).intent
        assert intent is not None
        world.registered(name)
        world.started(name)
        world.in_progress(intent.id, name, repository=intent.repository)
        world.exited(name)
    intents = [row.intent for row in world.core.state.runners.values()]
    assert key(99, "acme/lib") in intents


def test_fp_49_cancelled_while_its_runner_boots_and_wanted_again_two_seconds_later() -> None:
    world = World(pool(surplus_grace=30 * SECOND))
    (name,) = world.planned(1)
    world.registered(name)
    world.started(name)
    field = Field(world)
    world.completed(1, how="cancelled")
    field.run(2 * SECOND)
    assert world.queued(2) == ()
    world.sign(name, Sign.LISTENING)
    field.run(MINUTE)
    assert world.runner(name).state is S.LISTENING
    world.in_progress(2, name)
    assert world.runner(name).state is S.RUNNING


def test_fp_49_without_another_it_goes_long_before_the_grace() -> None:
    world = World(slots=20)
    names = world.listening(*range(1, 21))
    field = Field(world)
    for number in range(1, 21):
        world.completed(number, how="cancelled")
    field.run(2 * MINUTE)
    assert {world.runner(name).state for name in names} == {S.GONE}


def test_fp_49_a_job_that_waits_for_its_slot_is_dropped_at_once() -> None:
    world = World(slots=1)
    name = running(world, 1)
    world.queued(2)
    world.completed(2, how="cancelled")
    world.completed(1, name)
    assert of(world.exited(name).commands, cm.Register) == []


def test_fp_50_a_job_that_ignores_its_cancellation() -> None:
    """Cancelled at t+0, completed at t+5 min by the forge, and the worker lives on: shown, not ended."""
    world = World(pool(orphan_grace=10 * MINUTE))
    name = running(world, 1)
    field = Field(world)
    field.probes[name] = BUSY
    field.run(5 * MINUTE)
    world.completed(1, name, how="cancelled")
    field.run(11 * MINUTE)
    assert "worker lives on" in world.runner(name).stuck
    field.run(5 * HOUR, step=MINUTE)
    assert field.at(cm.Destroy) == []
    world.feed(ev.KillOrdered("ann", name, "wedged", even_if_busy=True))
    field.settle()
    world.wait(SECOND)
    field.settle()
    (ended,) = of(world.sent, cm.Destroy)
    assert ended.permit.warrant.value == "forced"


def test_fp_51_attempt_two_is_fresh_demand_under_new_ids() -> None:
    world = World()
    name = None
    for number in (1, 2):
        name = running(world, number)
        world.completed(number, name, how="failure" if number == 1 else "success", run_id=7, name="build")
        world.exited(name)
    (fresh,) = world.planned(3, run_id=7, name="build", attempt=2)
    assert fresh != name
    assert (world.job(1).status, world.job(2).status) == (JobStatus.DONE, JobStatus.DONE)
    assert (world.job(3).not_before, world.job(3).attempt) == (0, 2)
    assert world.told(report(2, ForgeStatus.QUEUED), Told.LISTING).commands == ()
