"""What is provisioned: where, with which labels, in which order, up to which limits, on whose word; spares."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.examine import examine
from ephemerd.core.machine import Core
from ephemerd.core.provisioning import ready
from ephemerd.core.turn import Turn
from ephemerd.core.validate import validate
from ephemerd.domain.access import Access
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus, JobStatus, Told
from ephemerd.domain.pool import Host, Policy, Setup
from ephemerd.domain.runner import RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core.world import (
    APP,
    GPU,
    HOUR,
    LABELS,
    MINUTE,
    ORG,
    SECOND,
    START,
    World,
    key,
    of,
    pool,
    report,
)

S = RunnerState
F = ForgeStatus

X, Y = ("x",), ("y",)


def intents(world: World) -> list[int]:
    """Return the jobs for which runners were made, in order."""
    rows = [world.core.state.runners[command.runner] for command in of(world.sent, cm.Register)]
    return [row.intent.id for row in rows if row.intent is not None]


# -- where -------------------------------------------------------------------------------------------


def test_demand_goes_to_the_most_specific_pool_that_serves_it() -> None:
    world = World(pool("big", labels=GPU), pool("small"))
    (first,) = world.planned(1)
    (second,) = world.planned(2, labels=GPU)
    assert world.runner(first).pool == "small"
    assert world.runner(second).pool == "big"


def test_it_does_so_also_where_a_wider_one_had_demand_before() -> None:
    world = World(pool("big", labels=GPU), pool("small"))
    world.planned(1, labels=GPU)
    (name,) = world.planned(2)
    assert world.runner(name).pool == "small"


def test_a_wider_pool_helps_when_the_specific_one_is_full() -> None:
    world = World(pool("big", labels=GPU), pool("small", max_concurrent=1))
    first, second = world.planned(1, 2)
    assert [world.runner(first).pool, world.runner(second).pool] == ["small", "big"]


def test_fp_46_no_runner_for_a_label_that_no_pool_has() -> None:
    assert World().planned(1, labels=("self-hosted", "linux", "arm64")) == []


# -- with which labels -------------------------------------------------------------------------------


def test_a_runner_is_registered_with_exactly_the_labels_of_its_job() -> None:
    world = World(pool(labels=GPU, exact=True))
    (name,) = world.planned(1, labels=("linux",))
    assert world.last(cm.Register).labels == ("linux",)
    assert world.runner(name).labels == ("linux",)


def test_a_runner_has_all_the_labels_of_its_pool_where_they_need_not_be_exact() -> None:
    world = World(pool(labels=GPU))
    (name,) = world.planned(1, labels=("linux",))
    assert world.last(cm.Register).labels == GPU
    assert world.runner(name).labels == ()


def test_a_job_that_asks_for_all_of_them_makes_an_ordinary_runner() -> None:
    world = World(pool(labels=GPU, exact=True))
    (name,) = world.planned(1, labels=GPU)
    assert world.last(cm.Register).labels == GPU
    assert world.runner(name).labels == ()


def test_a_job_that_asks_for_none_makes_an_ordinary_runner() -> None:
    world = World(pool(labels=GPU, exact=True, unlabelled=True))
    (name,) = world.planned(1, labels=())
    assert world.last(cm.Register).labels == GPU
    assert world.runner(name).labels == ()


def test_spares_have_all_the_labels() -> None:
    world = World(pool(labels=GPU, exact=True, min_idle=1))
    assert world.last(cm.Register).labels == GPU
    (made,) = of(world.queued(1, labels=("linux",)), cm.Register)
    assert made.labels == GPU, "the spare serves it, and the next spare takes its place"


# -- in which order ----------------------------------------------------------------------------------


def test_oldest_first_within_a_class() -> None:
    world = World(slots=1)
    world.queued(5, 3, 4)
    assert intents(world) == [5]
    for job, nxt in ((5, 3), (3, 4)):
        name = world.last(cm.Register).runner
        world.registered(name)
        world.started(name)
        world.in_progress(job, name)
        world.exited(name)
        assert intents(world)[-1] == nxt


def test_fp_48_classes_take_turns_and_none_starves_another() -> None:
    world = World(pool(scope=ORG), slots=4)
    world.queued(*range(1, 11), repository="acme/app")
    world.queued(*range(20, 24), repository="acme/lib")
    for _ in range(4):
        name = of(world.sent, cm.Register)[len(world.core.state.runners) - 4].runner
        row = world.runner(name)
        world.registered(name)
        world.started(name)
        assert row.intent is not None
        world.in_progress(row.intent.id, name, repository=row.intent.repository)
        world.exited(name)
    made = intents(world)
    assert made[:4] == [1, 2, 3, 4]
    assert made[4:8] == [5, 20, 6, 21]


def test_a_new_class_takes_its_turn_behind_those_that_wait() -> None:
    world = World(pool(scope=ORG), slots=1)
    world.queued(1, 2, repository="acme/app")
    world.queued(3, repository="acme/lib")
    for number in (1, 2):
        name = world.last(cm.Register).runner
        world.registered(name)
        world.in_progress(number, name)
        world.exited(name)
    assert intents(world) == [1, 2, 3]


def test_classes_that_waited_together_take_turns_from_the_first_runner_on() -> None:
    world = World(pool(scope=ORG), slots=1)
    world.feed(ev.CordonOrdered("ann", ev.Target.ALL))
    world.queued(1, 2, repository="acme/app")
    world.queued(3, repository="acme/lib")
    world.feed(ev.UncordonOrdered("ann", ev.Target.ALL))
    for _ in range(2):
        name = world.last(cm.Register).runner
        intent = world.runner(name).intent
        assert intent is not None
        world.registered(name)
        world.in_progress(intent.id, name, repository=intent.repository)
        world.exited(name)
    assert intents(world) == [1, 3, 2]


def test_each_job_of_a_long_queue_has_a_runner_of_its_own() -> None:
    """A runner says for which job it was made: people look there for what became of theirs."""
    world = World(slots=40)
    world.strict = False
    world.feed(ev.CordonOrdered("ann", ev.Target.ALL))
    world.queued(*range(1, 41))
    world.feed(ev.UncordonOrdered("ann", ev.Target.ALL))
    assert intents(world) == list(range(1, 41))


def test_of_jobs_that_lost_their_runners_the_oldest_is_served_first() -> None:
    """Two runners were given other jobs than they were made for, and the runner of one of those ended."""
    world = World(slots=4)
    a, b, c, _ = world.listening(1, 2, 3, 4)
    world.in_progress(3, a)
    world.in_progress(4, b)
    world.exited(c)
    assert intents(world)[4:] == [1]


def test_of_classes_of_several_pools_that_wait_for_one_slot_the_older_job_is_served_first() -> None:
    world = World(pool("a", labels=X), pool("b", labels=Y), slots=1)
    (name,) = world.listening(1, labels=X)
    world.queued(2, labels=Y)
    world.queued(3, labels=X)
    world.in_progress(1, name, labels=X)
    world.exited(name)
    assert intents(world) == [1, 2]


def test_a_class_whose_oldest_job_may_not_be_tried_yet_goes_by_the_one_that_may() -> None:
    world = World(pool(scope=ORG), slots=1)
    world.feed(ev.CordonOrdered("ann", ev.Target.ALL))
    for number in (1, 3):
        world.queued(number, repository="acme/app")
        world.queued(number + 1, repository="acme/lib")
    for name in (key(1), key(2, "acme/lib")):
        world.core.state.jobs[name] = replace(world.core.state.jobs[name], not_before=world.now + 1)
    world.feed(ev.UncordonOrdered("ann", ev.Target.ALL))
    assert intents(world) == [3]


def test_a_job_may_be_tried_from_its_moment_on() -> None:
    world = World(slots=1)
    world.feed(ev.CordonOrdered("ann", ev.Target.ALL))
    world.queued(1, 2)
    world.core.state.jobs[key(1)] = replace(world.job(1), not_before=world.now)
    world.feed(ev.UncordonOrdered("ann", ev.Target.ALL))
    assert intents(world) == [1]


def test_fp_48_a_matrix_of_256_on_four_slots() -> None:
    world = World(slots=4)
    world.strict = False  # a recount after each of 1,300 events takes longer than they do
    world.queued(*range(1, 257))
    assert (world.count(cm.Register), world.held) == (4, 4)
    done = 0
    while done < 256:
        name = min(
            (row.id for row in world.core.state.runners.values() if row.state is S.REGISTERING),
            key=lambda found: world.runner(found).order,
        )
        world.registered(name)
        world.started(name)
        intent = world.runner(name).intent
        assert intent is not None
        world.in_progress(intent.id, name)
        world.completed(intent.id, name)
        world.exited(name)
        done += 1
        assert world.held <= 4
    assert intents(world) == list(range(1, 257))
    assert world.held == 0
    assert validate(world.core.state) == []


# -- up to which limits ------------------------------------------------------------------------------


@given(
    slots=st.integers(0, 4),
    most=st.integers(0, 4),
    numbers=st.lists(st.integers(1, 12), min_size=1, max_size=12),
)
def test_slots_and_max_concurrent_are_never_exceeded(slots: int, most: int, numbers: list[int]) -> None:
    world = World(pool(max_concurrent=most), slots=slots)
    made = world.planned(*numbers)
    assert len(made) == min(slots, most, len(set(numbers)))
    assert world.held == len(made)


def test_pools_share_the_slots_of_their_host() -> None:
    world = World(pool("a"), pool("b", labels=GPU, host="there"), hosts=(Host("here", 1), Host("there", 2)))
    assert len(world.planned(1, 2, 3)) == 3
    assert world.core.state.index.held == {"here": 1, "there": 2}


def test_a_repository_has_no_more_runners_than_it_may_have() -> None:
    world = World(slots=4)
    access = (Access("github", repositories=("acme/app",), forks=("*",), most=2),)
    world.feed(ev.Reconfigured("ann", replace(world.setup, access=access)))
    assert len(world.planned(1, 2, 3)) == 2


def test_supply_on_its_way_is_supply() -> None:
    world = World()
    world.planned(1)
    assert world.queued(1) == ()
    world.wait(20 * SECOND)
    assert world.count(cm.Register) == 1


def test_fp_12_after_a_wait_for_the_slot_the_need_is_checked_again() -> None:
    world = World(slots=1)
    (name,) = world.listening(1)
    world.queued(2)
    world.in_progress(2, name)  # it takes the one that waited for a slot
    world.completed(2, name)
    world.in_progress(1, "somebody-elses")
    step = world.exited(name)
    assert of(step.commands, cm.Register) == []


def test_fp_49_cancelled_while_its_runner_boots_and_kept_for_the_next() -> None:
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.completed(1, how="cancelled")
    assert world.planned(2) == []
    assert world.runner(name).surplus_since is None


# -- on whose word -----------------------------------------------------------------------------------


def stale(world: World, *numbers: int) -> cm.LookUpJob:
    """Have jobs wait for the only slot until they want confirming, free it, and return the question."""
    (name,) = world.listening(99)
    world.in_progress(99, name)
    world.queued(*numbers)
    world.wait(61 * SECOND)
    world.exited(name)
    return world.last(cm.LookUpJob)


def test_fp_18_fresh_demand_is_not_asked_about() -> None:
    world = World(slots=1)
    (name,) = world.listening(99)
    world.in_progress(99, name)
    world.queued(1)
    world.wait(60 * SECOND)
    step = world.exited(name)
    assert len(of(step.commands, cm.Register)) == 1
    assert world.count(cm.LookUpJob) == 0


def test_fp_15_old_demand_is_confirmed_before_a_slot_is_spent_on_it() -> None:
    world = World(slots=1)
    question = stale(world, 1)
    assert question.job == key(1)
    assert world.count(cm.Register) == 1
    assert world.core.state.index.reserved == {"here": 1}
    assert world.core.state.slots_free("here") == 0
    step = world.job_answer(question, F.QUEUED)
    assert len(of(step.commands, cm.Register)) == 1
    assert world.core.state.index.reserved == {}


@pytest.mark.parametrize("status", [F.IN_PROGRESS, F.COMPLETED])
def test_only_in_progress_and_completed_are_a_no(status: ForgeStatus) -> None:
    world = World(slots=1)
    step = world.job_answer(stale(world, 1), status, runner_name="somebody-elses", conclusion="success")
    assert step.commands == ()
    assert world.core.state.index.reserved == {}
    assert world.held == 0


def test_waiting_moves_the_state_and_frees_the_slot() -> None:
    world = World(slots=1)
    step = world.job_answer(stale(world, 1), F.WAITING)
    assert step.commands == ()
    assert world.job(1).status is JobStatus.WAITING
    assert world.core.state.index.reserved == {}


@pytest.mark.parametrize("status", [F.OTHER, F.QUEUED])
def test_anything_else_goes_on(status: ForgeStatus) -> None:
    world = World(slots=1)
    step = world.job_answer(stale(world, 1), status)
    assert len(of(step.commands, cm.Register)) == 1


def test_an_error_goes_on_too_once_the_scope_may_be_called() -> None:
    world = World(slots=1)
    world.job_fault(stale(world, 1))
    sent = world.wait(MINUTE)
    assert len(of(sent, cm.Register)) == 1
    assert world.job(1).unconfirmed is not None


def test_a_not_found_goes_on_once_and_is_looked_into() -> None:
    world = World(slots=1)
    step = world.job_answer(stale(world, 1), None)
    assert len(of(step.commands, cm.Register)) == 1
    assert [command.job for command in of(world.wait(MINUTE), cm.LookUpJob)] == [key(1)]


def test_no_answer_goes_on_after_fifteen_seconds() -> None:
    world = World(slots=1)
    stale(world, 1)
    assert of(world.wait(15 * SECOND - 1), cm.Register) == []
    assert world.core.state.index.reserved == {"here": 1}
    assert len(of(world.wait(1), cm.Register)) == 1
    assert world.core.state.index.reserved == {}


def test_a_late_answer_after_that_still_counts() -> None:
    world = World(slots=1)
    question = stale(world, 1)
    world.wait(15 * SECOND)
    world.job_answer(question, F.COMPLETED, conclusion="cancelled")
    assert world.job(1).status is JobStatus.DONE


def test_at_most_one_unconfirmable_try_a_job_and_hour() -> None:
    world = World(slots=1, lists=False)
    stale(world, 1)
    began = world.now
    tries = []
    while world.now - began < 3 * HOUR:
        for command in of(world.wait(SECOND), cm.Register):
            tries.append(world.now)
            world.registered(command.runner)
            world.started(command.runner)
            world.sign(command.runner, Sign.LISTENING)
            world.exited(command.runner)
    assert len(tries) == 3
    assert all(later - earlier >= HOUR for earlier, later in pairwise(tries))


def test_a_reserved_slot_is_nobody_elses() -> None:
    world = World(pool(scope=ORG), slots=1)
    question = stale(world, 1)
    assert of(world.queued(50, repository="acme/lib"), cm.Register) == []
    world.job_answer(question, F.COMPLETED)
    assert world.last(cm.Register).runner in world.core.state.runners
    assert intents(world)[-1] == 50


def test_no_more_questions_than_slots() -> None:
    world = World(slots=1)
    stale(world, *range(1, 20))
    assert world.count(cm.LookUpJob) == 1


def test_hundreds_are_asked_about_in_one_turn() -> None:
    world = World(pool(scope=ORG, max_concurrent=1_000), slots=1_000, lists=False)
    world.strict = False
    world.feed(ev.CordonOrdered("ann", ev.Target.ALL))
    for number in range(1, 221):
        world.queued(number, repository=f"acme/number-{number % 4}")
    world.wait(61 * SECOND)
    step = world.feed(ev.UncordonOrdered("ann", ev.Target.ALL))
    assert sorted(command.job.id for command in of(step.commands, cm.LookUpJob)) == list(range(1, 221))


def test_no_job_is_asked_about_beside_a_runner_on_its_way_to_it() -> None:
    world = World(slots=4, lists=False)
    (name,) = world.planned(1)
    world.registered(name)
    world.started(name)
    world.feed(ev.CordonOrdered("ann", ev.Target.ALL))
    world.queued(2)
    world.wait(61 * SECOND)
    step = world.feed(ev.UncordonOrdered("ann", ev.Target.ALL))
    assert [command.job for command in of(step.commands, cm.LookUpJob)] == [key(2)]
    assert of(step.commands, cm.Register) == []


def test_a_job_that_may_not_be_tried_yet_holds_up_none_behind_it() -> None:
    world = World(slots=1)
    world.feed(ev.CordonOrdered("ann", ev.Target.ALL))
    world.queued(1, 2)
    world.core.state.jobs[key(1)] = replace(world.job(1), not_before=world.now + 1)
    world.feed(ev.UncordonOrdered("ann", ev.Target.ALL))
    assert intents(world) == [2]


def test_a_listing_confirms_as_well_as_a_delivery() -> None:
    world = World(slots=1)
    (name,) = world.listening(99)
    world.in_progress(99, name)
    world.queued(1)
    world.wait(10 * MINUTE)
    world.told(report(1, F.QUEUED), Told.LISTING)
    step = world.exited(name)
    assert len(of(step.commands, cm.Register)) == 1


@pytest.mark.parametrize(
    ("marks", "can"),
    [
        ({"limited_until": 1}, False),
        ({"limited_until": 0}, True),
        ({"denied_until": 1}, False),
        ({"denied_until": 0}, True),
        ({"silent": -MINUTE, "next_try": 1}, False),
        ({"silent": -MINUTE, "next_try": 0}, True),
        ({"next_try": 1}, True),
    ],
)
def test_a_pool_is_ready_from_the_moment_on_at_which_its_forge_may_be_asked(
    marks: dict[str, int], can: bool
) -> None:
    world = World()
    times: dict[str, Any] = {name: world.now + ms for name, ms in marks.items()}
    world.core.state.keep_scope(replace(world.core.state.scope(APP), **times))
    assert ready(Turn(world.core.state, world.now), pool()) is can


@pytest.mark.parametrize(
    ("marks", "can"),
    [
        ({}, True),
        ({"not_before": START + 1}, False),
        ({"not_before": START}, True),
        ({"configured": False}, False),
        ({"cordoned": "ann"}, False),
        ({"missing": "the runner application is not there"}, False),
    ],
)
def test_a_pool_is_ready_as_far_as_it_goes_by_its_own_row(marks: dict[str, Any], can: bool) -> None:
    world = World()
    world.core.state.pools["small"] = replace(world.core.state.pools["small"], **marks)
    assert ready(Turn(world.core.state, START), pool()) is can


@pytest.mark.parametrize("by", ["", "ann"])
def test_a_pool_is_ready_where_nobody_cordoned_its_host(by: str) -> None:
    world = World()
    world.core.state.hosts["here"] = replace(world.core.state.hosts["here"], cordoned=by)
    assert ready(Turn(world.core.state, START), pool()) is (by == "")


@pytest.mark.parametrize(
    ("limit", "there", "can"), [(1, 0, True), (1, 1, False), (2, 1, True), (2, 2, False)]
)
def test_a_host_has_room_while_fewer_than_the_limit_are_abandoned_there(
    limit: int, there: int, can: bool
) -> None:
    world = World(policy=Policy(abandoned_limit=limit))
    world.core.state.index.abandoned = {"here": there} if there else {}
    assert ready(Turn(world.core.state, world.now), pool()) is can


@pytest.mark.parametrize(("refused", "can"), [(START - 1, False), (START, True)])
def test_a_pool_waits_for_the_runner_that_finds_out_whether_it_is_still_refused(
    refused: int, can: bool
) -> None:
    world = World()
    world.planned(1)
    world.core.state.pools["small"] = replace(world.core.state.pools["small"], refused=refused)
    assert ready(Turn(world.core.state, world.now), pool()) is can


# -- swaps and replacements --------------------------------------------------------------------------


def test_fp_14_a_plain_swap_starts_no_third_runner() -> None:
    world = World(slots=4)
    a, b = world.listening(1, 2)
    world.in_progress(1, b)
    world.in_progress(2, a)
    world.completed(1, b)
    world.exited(b)
    world.completed(2, a)
    world.exited(a)
    world.wait(MINUTE)
    assert world.count(cm.Register) == 2


def test_fp_14_swapped_and_stranded_gets_one_replacement_at_once() -> None:
    world = World(slots=4)
    a, b = world.planned(1, 2)
    for name in (a, b):
        world.registered(name)
        world.started(name)
    world.sign(a, Sign.LISTENING)
    world.in_progress(2, a)
    step = world.exited(b, 1)
    assert len(of(step.commands, cm.Register)) == 1
    world.wait(20 * SECOND)
    assert world.count(cm.Register) == 3


def test_fp_13_demand_is_demand_until_seen_otherwise() -> None:
    world = World(slots=1, lists=False)
    question = stale(world, 1)
    world.job_answer(question, F.QUEUED)
    world.wait(3 * HOUR)
    assert world.job(1).status is JobStatus.QUEUED
    assert world.core.state.index.by_status["queued"] == 1


def test_fp_25_two_runners_for_one_job_are_both_in_the_books() -> None:
    world = World(slots=4)
    (a,) = world.listening(1)
    world.sign(a, Sign.OFFERED)
    world.wait(2 * MINUTE)
    for command in of(world.sent, cm.LookUpJob):
        world.job_answer(command, F.QUEUED)
    b = world.last(cm.Register).runner
    assert a != b
    assert world.held == 2
    world.exited(b)
    assert world.runner(a).state is S.ASSIGNED


def test_a_runner_left_in_planned_is_undone_after_30_s() -> None:
    """Nothing rests in `planned` but rows that a crash left: its limit holds even without a start's word."""
    world = World()
    (name,) = world.planned(1)
    row = replace(world.runner(name), state=S.PLANNED)
    core = Core({"runner": {name: row}, "pool": world.core.state.pools, "host": world.core.state.hosts}, 0)
    core.handle(ev.Woke(), START + 30 * SECOND - 1)
    assert core.state.runners[name].state is S.PLANNED
    core.handle(ev.Woke(), START + 30 * SECOND)
    assert core.state.runners[name].state is S.GONE
    assert core.state.runners[name].ending == "planned, and nothing was done about it"


def test_a_look_at_a_runner_that_is_no_more_changes_nothing() -> None:
    t = Turn(World().core.state, START)
    examine(t, RunnerId("eph-s1-e1-99"))
    step = t.step()
    assert (step.commands, step.changed) == ((), ())


# -- spares ------------------------------------------------------------------------------------------


def test_a_spare_leaves_the_slot_to_the_demand_of_another_pool_that_can_use_it() -> None:
    """That pool backs off for half a minute; a spare made meanwhile would take its slot."""
    world = World(pool("arm", labels=("arm",)), pool(min_idle=1), slots=1)
    spare = world.last(cm.Register).runner
    world.feed(ev.CordonOrdered("ann", ev.Target.POOL, "small"))
    world.registered(spare)
    world.started(spare)
    world.exited(spare)
    (name,) = world.planned(1, labels=("arm",))
    world.feed(ev.RegistrationFailed(name, Fault(Remedy.BROKEN, "the disk is full")))
    step = world.feed(ev.UncordonOrdered("ann", ev.Target.POOL, "small"))
    assert of(step.commands, cm.Register) == []
    step = world.feed(ev.CordonOrdered("ann", ev.Target.POOL, "arm"))
    assert [command.labels for command in of(step.commands, cm.Register)] == [LABELS]


def test_a_spare_may_have_a_slot_that_waiting_jobs_cannot_use() -> None:
    """Their pool is full, is cordoned, or is on a host of its own: then they have no claim to it."""
    gpu = pool("gpu", labels=("gpu",), max_concurrent=1)
    world = World(gpu, pool("warm", min_idle=1), slots=3)
    assert world.count(cm.Register) == 1
    (name,) = world.listening(1, labels=("gpu",))
    world.in_progress(1, name, labels=("gpu",))
    assert world.planned(2, labels=("gpu",)) == []
    spare = of(world.sent, cm.Register)[0].runner
    world.registered(spare)
    world.started(spare)
    world.exited(spare)
    assert [command.labels for command in of(world.sent, cm.Register)] == [LABELS, ("gpu",), LABELS]


def test_a_spare_is_made_beside_jobs_whose_pool_is_on_another_host() -> None:
    hosts = (Host("here", 1), Host("there", 0))
    world = World(pool("gpu", labels=("gpu",), host="there"), hosts=hosts)
    assert world.planned(1, labels=("gpu",)) == []
    setup = Setup((*world.setup.pools, pool("warm", min_idle=1)), hosts, world.setup.policy)
    world.feed(ev.Reconfigured("ann", setup))
    assert [command.labels for command in of(world.sent, cm.Register)] == [LABELS]


def test_a_spare_is_made_beside_jobs_that_the_forge_holds_back() -> None:
    arm = pool("arm", labels=("arm",))
    world = World(arm, pool(), slots=4)
    world.listening(1, labels=("arm",))
    world.wait(31 * SECOND)
    assert world.planned(2, labels=("arm",)) == []
    setup = Setup((arm, pool(min_idle=1)), world.setup.hosts, world.setup.policy)
    step = world.feed(ev.Reconfigured("ann", setup))
    assert [command.labels for command in of(step.commands, cm.Register)] == [LABELS]


def test_a_spare_is_made_beside_jobs_whose_pool_is_configured_no_more() -> None:
    world = World(pool("gpu", labels=("gpu",)), slots=1)
    world.feed(ev.CordonOrdered("ann", ev.Target.ALL))
    world.queued(1, labels=("gpu",))
    setup = Setup((pool("warm", min_idle=1),), world.setup.hosts, world.setup.policy)
    world.feed(ev.Reconfigured("ann", setup))
    step = world.feed(ev.UncordonOrdered("ann", ev.Target.ALL))
    assert [command.labels for command in of(step.commands, cm.Register)] == [LABELS]


def test_a_spare_waits_for_demand_of_another_pool_beside_demand_that_has_its_runner() -> None:
    world = World(pool("a", labels=X), pool("b", labels=Y), pool(min_idle=1), slots=2)
    spare = world.last(cm.Register).runner
    world.feed(ev.CordonOrdered("ann", ev.Target.POOL, "small"))
    world.registered(spare)
    world.started(spare)
    world.exited(spare)
    world.planned(1, labels=X)
    (name,) = world.planned(2, labels=Y)
    world.feed(ev.RegistrationFailed(name, Fault(Remedy.BROKEN, "the disk is full")))
    step = world.feed(ev.UncordonOrdered("ann", ev.Target.POOL, "small"))
    assert of(step.commands, cm.Register) == []


def test_the_spares_of_one_pool_are_made_before_those_of_the_next() -> None:
    world = World(pool("b", min_idle=2), pool("a", labels=X, min_idle=2), slots=2)
    assert [world.runner(command.runner).pool for command in of(world.sent, cm.Register)] == ["a", "a"]


def test_a_runner_made_later_is_told_of_where_its_job_is_told_of() -> None:
    """The event that freed the slot is about another job; who follows the waiting one hears of its runner."""
    world = World(slots=1)
    (name,) = world.listening(1)
    world.queued(2)
    world.in_progress(1, name)
    step = world.exited(name)
    assert str(key(2)) in step.subjects
    assert world.counter("dispatches_total|pool=small") == 2
