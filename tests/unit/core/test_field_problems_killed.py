"""Field problems 1 to 11: ways in which others killed a runner in the middle of its job.

Numbers are those of docs/FIELD-PROBLEMS.md; times count from the first event of the case.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus, JobStatus
from ephemerd.domain.permit import Warrant
from ephemerd.domain.runner import FenceAnswer, RunnerState
from ephemerd.domain.verdict import Listing, Sign
from tests.unit.core.field import Field
from tests.unit.core.world import HOUR, MINUTE, SECOND, World, of, pool, seen

S = RunnerState
BUSY = seen(workers=1)
UNREAD = seen(listing=Listing.FAILED)


def untouched(world: World, *names: RunnerId) -> bool:
    """Say whether no permit was made for these runners, and none was deregistered."""
    ends = {command.permit.runner for command in of(world.sent, cm.Destroy)}
    accepted = {name for name in names if world.runner(name).fence.accepted is not None}
    return not ends & set(names) and not accepted


def running(world: World, number: int) -> RunnerId:
    (name,) = world.listening(number)
    world.sign(name, Sign.ANNOUNCED, "build")
    world.sign(name, Sign.WORKER)
    world.in_progress(number, name)
    return name


def spare(world: World, number: int) -> RunnerId:
    """A listening runner whose job was cancelled: nothing wants it."""
    return spares(world, number)[0]


def spares(world: World, *numbers: int) -> list[RunnerId]:
    names = world.listening(*numbers)
    for number in numbers:
        world.completed(number, how="cancelled")
    return names


@pytest.mark.parametrize("means", ["probe", "fence"])
def test_fp_01_a_siblings_start_makes_a_busy_runner_look_surplus(means: str) -> None:
    """At t+15.4 s rA is nominated while it runs B; the probe, or else the forge, speaks for it."""
    world = World(pool(surplus_grace=0), slots=4)
    ra, rb, rc = world.listening(1, 2, 3)
    world.wait(9 * SECOND)
    world.in_progress(1, rb)
    world.in_progress(3, rc)
    world.wait(6_400)
    field = Field(world)
    field.probes[ra] = BUSY if means == "probe" else seen()
    field.fences[ra] = FenceAnswer.REFUSED
    world.completed(3, rc)
    world.in_progress(2)  # B runs, and nobody says where
    field.run(2_300, step=100)
    (veto,) = [decision for decision in world.decisions if decision.runner == ra]
    assert (veto.outcome, veto.verdict, veto.via, veto.rule) == ("vetoed", "busy", means, "surplus")
    assert untouched(world, ra, rb)
    world.in_progress(2, ra)  # t+17.7 s
    assert world.runner(ra).state is S.RUNNING


def test_fp_01_while_its_job_is_only_queued_it_is_not_even_nominated() -> None:
    world = World(pool(surplus_grace=0), slots=4)
    ra, rb, rc = world.listening(1, 2, 3)
    world.wait(9 * SECOND)
    world.in_progress(1, rb)
    world.in_progress(3, rc)
    world.wait(6_400)
    world.completed(3, rc)
    assert world.count(cm.ProbeRunner) == 0
    assert untouched(world, ra, rb)


def test_fp_02_the_end_of_job_a_leaves_the_runner_that_was_made_for_a_and_runs_b() -> None:
    world = World()
    (name,) = world.listening(1)
    world.queued(2)
    world.wait(10 * SECOND)
    world.sign(name, Sign.ANNOUNCED, "B")
    world.sign(name, Sign.WORKER)
    world.in_progress(1, "somebody-elses")
    world.wait(45 * SECOND)
    step = world.completed(1, "somebody-elses")
    assert step.commands == ()
    assert (world.runner(name).state, world.runner(name).over) == (S.RUNNING, None)
    field = Field(world)
    field.probes[name] = BUSY
    field.run(11 * MINUTE)
    assert untouched(world, name)


def test_fp_03_three_of_five_not_busy_flags_are_wrong() -> None:
    """The flag says "not busy" at t+12 s for five; three have a worker, and those stay."""
    world = World(slots=8)
    names = spares(world, 1, 2, 3, 4, 5)
    field = Field(world)
    for name in names[:3]:
        field.probes[name] = BUSY
        field.flags[name] = {"busy": False}
    field.run(MINUTE)
    assert untouched(world, *names[:3])
    assert {command.permit.runner for command in of(world.sent, cm.Destroy)} == set(names[3:])


def test_fp_03_where_the_probe_says_nothing_a_false_flag_is_never_sufficient() -> None:
    world = World()
    name = spare(world, 1)
    field = Field(world)
    field.probes[name] = UNREAD
    field.flags[name] = {"busy": False}
    field.run(HOUR)
    assert field.at(cm.LookUpRunner, name)
    assert untouched(world, name)


def test_fp_04_completed_while_the_worker_still_streams() -> None:
    """The forge says completed at t+0; output flows for 7 min 24 s more; then it leaves by itself."""
    world = World()
    name = running(world, 1)
    field = Field(world)
    field.probes[name] = BUSY
    world.completed(1, name, how="failure")
    field.run(444 * SECOND)
    assert world.runner(name).state is S.FINISHING
    assert untouched(world, name)
    world.sign(name, Sign.ENDED)
    world.exited(name)
    assert (world.runner(name).state, world.held) == (S.GONE, 0)


def test_fp_05_in_progress_never_comes_and_the_job_runs_for_half_an_hour() -> None:
    world = World()
    (name,) = world.listening(1)
    field = Field(world)
    field.probes[name] = BUSY
    field.jobs[1] = ForgeStatus.IN_PROGRESS
    world.wait(8 * SECOND)
    world.sign(name, Sign.ANNOUNCED, "build")
    world.sign(name, Sign.WORKER)
    field.run(30 * MINUTE)
    assert untouched(world, name)
    assert (world.runner(name).state, world.held) == (S.RUNNING, 1)
    assert world.job(1).status is JobStatus.RUNNING
    assert len(field.at(cm.LookUpJob)) == 1


def test_fp_05_a_vetoed_runner_is_left_alone_for_ever_longer() -> None:
    """The same with no sign but the probe's: nominated past grace, and not looked at again for a while."""
    world = World()
    name = spare(world, 1)
    field = Field(world)
    field.probes[name] = UNREAD
    field.run(30 * MINUTE)
    asked = field.at(cm.ProbeRunner, name)
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert len(asked) > 20
    assert min(pauses) >= 2 * SECOND
    assert min(pauses[6:]) >= MINUTE
    assert untouched(world, name)


def test_fp_06_not_removed_five_seconds_after_it_became_ready() -> None:
    """Created at t+0, ready at t+7 min 47 s, listening 5 s later; its job still waits."""
    world = World(pool(surplus_grace=0))
    (name,) = world.planned(1)
    world.registered(name)
    world.started(name)
    field = Field(world)
    field.probes[name] = UNREAD  # it boots; nothing can be read of it yet
    field.run(467 * SECOND)
    world.wait(5 * SECOND)
    world.sign(name, Sign.LISTENING)
    field.probes[name] = seen()
    field.run(5 * SECOND)
    assert world.runner(name).state is S.LISTENING
    field.run(10 * MINUTE - 6 * SECOND)
    assert (world.runner(name).state, untouched(world, name)) == (S.LISTENING, True)


def test_fp_07_offline_in_the_list_is_not_dead() -> None:
    """(a) starting and offline for 40 s; (c), (d) busy and offline, for 4 min and for hours."""
    world = World()
    (starting,) = world.planned(1)
    world.registered(starting)
    world.started(starting)
    busy = running(world, 2)
    for name in (starting, busy):
        found = world.registrations[name]
        world.registrations[name] = ev.FoundRegistration(found.name, found.registration, name == busy, False)
    field = Field(world)
    field.probes[busy] = BUSY
    field.run(40 * SECOND)
    assert world.runner(starting).state is S.STARTING
    world.sign(starting, Sign.LISTENING)
    world.in_progress(1, starting)
    field.probes[starting] = BUSY
    field.run(4 * HOUR, step=MINUTE)
    assert world.count(cm.ListRegistrations) > 40
    assert untouched(world, starting, busy)


def test_fp_07_looks_that_time_out_keep_the_runner() -> None:
    """(b) the build saturates the host: no probe answers while the forge calls the job completed."""
    world = World()
    name = running(world, 1)
    world.completed(1, name)
    field = Field(world)
    field.probes[name] = None
    field.run(20 * MINUTE)
    assert len(field.at(cm.ProbeRunner, name)) > 3
    assert untouched(world, name)


def test_fp_08_one_look_that_does_not_see_the_environment_is_no_end() -> None:
    world = World()
    name = running(world, 1)
    kept = world.environments.pop(name)
    world.feed(ev.EnvironmentsListed("here", (), complete=True))
    world.wait(59 * SECOND)
    assert world.runner(name).state is S.RUNNING
    world.environments[name] = kept
    world.wait(MINUTE)
    assert (world.runner(name).state, world.runner(name).absent) == (S.RUNNING, None)
    world.environments.clear()
    world.feed(ev.EnvironmentsListed("here", (), complete=True))
    assert world.runner(name).state is S.RUNNING
    world.wait(MINUTE)
    assert world.runner(name).state is S.GONE


def test_fp_08_a_list_that_was_not_read_whole_misses_nobody() -> None:
    world = World()
    name = running(world, 1)
    for _ in range(5):
        world.feed(ev.EnvironmentsListed("here", (), complete=False))
        world.now += MINUTE
    assert (world.runner(name).state, world.runner(name).absent) == (S.RUNNING, None)


def test_fp_09_the_job_timeout_counts_from_the_start_of_the_job() -> None:
    """Limit 2 h; idle for 1 h 50 min, then a job of 25 min."""
    world = World(pool(job_timeout=2 * HOUR, orphan_grace=3 * HOUR))
    (name,) = world.listening(1)
    field = Field(world)
    field.run(110 * MINUTE)
    world.sign(name, Sign.WORKER)
    world.in_progress(1, name)
    field.probes[name] = BUSY
    field.run(25 * MINUTE)
    assert field.at(cm.Destroy) == []
    field.run(95 * MINUTE - SECOND)
    assert field.at(cm.Destroy) == []
    field.run(SECOND)
    (asked,) = of(world.sent, cm.Destroy)
    assert (asked.permit.polite, asked.permit.warrant) == (True, Warrant.OVERDUE)


def test_fp_10_a_name_that_begins_like_another_is_another() -> None:
    """`...-1` is ended and listed; `...-11` builds, and no answer about the one touches the other."""
    world = World(slots=20)
    names = world.listening(*range(1, 12))
    first, eleventh = names[0], names[10]
    assert eleventh.startswith(first)
    for number, name in enumerate(names[1:], start=2):
        world.sign(name, Sign.WORKER)
        world.in_progress(number, name)
    world.completed(1, how="cancelled")
    field = Field(world)
    field.run(MINUTE)
    assert [command.permit.environment for command in of(world.sent, cm.Destroy)] == [f"env-{first}"]
    assert world.runner(eleventh).state is S.RUNNING


def test_fp_11_each_of_a_batch_stands_alone() -> None:
    """204, 204, 422, 500, 204: only the three that were accepted go."""
    world = World(slots=8)
    names = spares(world, 1, 2, 3, 4, 5)
    field = Field(world)
    field.fences[names[2]] = FenceAnswer.REFUSED
    field.fences[names[3]] = FenceAnswer.NO_ANSWER
    field.run(MINUTE)
    ended = {command.permit.runner for command in of(world.sent, cm.Destroy)}
    assert ended == {names[0], names[1], names[4]}
    assert world.runner(names[2]).state is S.ASSIGNED
    assert world.runner(names[2]).fence.refused is not None


def test_fp_11_refused_for_an_hour_is_asked_seldom() -> None:
    world = World()
    name = spare(world, 1)
    field = Field(world)
    field.fences[name] = FenceAnswer.REFUSED
    field.run(HOUR)
    asked = field.at(cm.Deregister, name)
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert len(asked) >= 2
    assert min(pauses) >= MINUTE
    assert untouched(world, name)
