"""Field problems 52 to 60: restarts, slots, wedged environments, and what operators do.

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
from ephemerd.domain.runner import FINAL, FenceAnswer, RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core import build
from tests.unit.core.field import Field
from tests.unit.core.world import HOUR, MINUTE, SECOND, World, key, of, report, seen

S = RunnerState
BUSY = seen(workers=1)
BROKEN = Fault(Remedy.BROKEN, "no space left on device")
ALL = ev.Target.ALL


def running(world: World, number: int) -> RunnerId:
    (name,) = world.listening(number)
    world.sign(name, Sign.ANNOUNCED, "build")
    world.sign(name, Sign.WORKER)
    world.in_progress(number, name)
    return name


def test_fp_52_a_busy_runner_is_found_again_and_neither_signalled_nor_deregistered() -> None:
    world = World()
    name = running(world, 1)
    field = Field(world)
    field.probes[name] = BUSY
    world.restart(down=5 * MINUTE)
    field.run(HOUR, step=10 * SECOND)
    assert (world.runner(name).state, world.runner(name).adopted, world.held) == (S.RUNNING, True, 1)
    assert len(field.at(cm.WatchRunner, name)) == 1
    assert (field.at(cm.Destroy), field.at(cm.Deregister)) == ([], [])


def test_fp_53_three_of_four_jobs_that_were_queued_while_it_was_down() -> None:
    """Down for 15 min; four jobs, one cancelled again: three runners at once, and no delivery needed."""
    world = World()
    for number in (1, 2, 4):
        world.waiting[key(number)] = report(number, ForgeStatus.QUEUED)
    world.restart(down=15 * MINUTE)
    assert [world.runner(command.runner).intent for command in of(world.sent, cm.Register)] == [
        key(1),
        key(2),
        key(4),
    ]


def test_fp_53_a_delivery_during_the_catch_up_is_merged() -> None:
    world = World(lists=False)
    world.restart(down=15 * MINUTE)
    world.queued(1)
    world.told(report(1, ForgeStatus.QUEUED))
    world.feed(ev.JobsListed(world.setup.pools[0].scope, 1))
    assert world.count(cm.Register) == 1


def test_fp_54_the_host_was_restarted_in_the_middle_of_a_job() -> None:
    """The row ends at once as lost with the machine, the slot is free, the forge is asked about the job."""
    world = World(slots=1)
    name = running(world, 1)
    world.environments.clear()
    field = Field(world)
    field.fences[name] = FenceAnswer.REFUSED
    field.flags[name] = {"busy": True}
    world.restart(down=2 * MINUTE, same_boot=False)
    assert (world.runner(name).state, world.runner(name).ending) == (S.GONE, "the machine was restarted")
    assert world.held == 0
    field.run(10 * MINUTE)
    world.waiting.pop(key(1), None)
    field.jobs = {1: ForgeStatus.COMPLETED}
    field.fences.clear()
    field.flags.clear()
    field.run(30 * MINUTE)
    assert world.job(1).status is JobStatus.DONE
    assert name not in world.registrations


STATES = (
    "registering",
    "starting",
    "listening",
    "assigned",
    "running",
    "finishing",
    "retiring",
    "stuck",
    "abandoned",
    "gone",
)


@pytest.mark.parametrize("state", STATES)
def test_fp_55_every_state_takes_any_late_message_without_raising(state: str) -> None:
    """An impossible event is dropped, in each state and again after a restart; the state stays sound."""
    world = build.World()
    name = getattr(world, state)()
    for _ in range(2):
        events: list[ev.Event] = [
            ev.Registered(name, 1),
            ev.RegistrationFailed(name, build.RETRY),
            ev.NameLookedUp(name, None, build.RETRY),
            ev.EnvironmentStarted(name, f"env-{name}"),
            ev.StartFailed(name, BROKEN),
            ev.EnvironmentDestroyed(name, "another"),
            ev.DestroyFailed(name, "another", BROKEN),
            ev.FenceAnswered(name, 1, 10**6, FenceAnswer.NOT_FOUND),
            ev.Probed(name, 10**6, build.BUSY),
            ev.RunnerLookedUp(name, 10**6, missing=True),
            *(ev.SignSeen(name, sign) for sign in Sign),
            ev.EnvironmentExited(name, 0),
            ev.EnvironmentExited(name, 0),
        ]
        for event in events:
            world.handle(event)
        assert world.sound()
        world.restart()
    assert world.row(name).state in FINAL


@pytest.mark.parametrize("state", STATES[:-1])
def test_fp_55_every_state_ends_when_nothing_is_there_any_more(state: str) -> None:
    """No environment on two listings a minute apart nor on a look at itself, and no registration of that name."""
    world = build.World()
    name = getattr(world, state)()
    assert world.state(name) == state
    world.answers = False
    world.wait(SECOND)
    for _ in range(2):
        world.handle(ev.EnvironmentsListed("local", (), complete=True))
        world.wait(MINUTE)
    if state == "registering":
        world.handle(ev.NameLookedUp(name, None))
    else:
        world.handle(ev.EnvironmentExited(name, None))
    assert world.row(name).state in FINAL
    world.handle(ev.EnvironmentsListed("local", (), complete=True))
    assert world.state(name) == "gone"
    assert world.sound()


def test_fp_55_rows_whose_environment_and_registration_are_gone_hold_no_slot() -> None:
    world = World(slots=2)
    names = world.listening(1, 2)
    world.environments.clear()
    world.registrations.clear()
    field = Field(world)
    world.restart(down=HOUR)
    field.run(2 * MINUTE)
    assert {world.runner(name).state for name in names} == {S.GONE}
    live = [row for row in world.core.state.runners.values() if row.state not in FINAL]
    assert world.held == len(live) == 2  # both for the two jobs, which still wait


def test_fp_56_a_wedged_boot_gives_its_slot_back_although_it_ignores_the_stop() -> None:
    """5 min to listen, 70 s to die: the waiting job has its runner after 6 min 15 s, not after 28 h."""
    world = World(slots=1)
    (name,) = world.planned(1)
    world.registered(name)
    world.started(name)
    field = Field(world)
    field.dies = False
    field.probes[name] = seen(listening=False)
    field.run(7 * MINUTE)
    assert (world.runner(name).state, world.core.state.index.abandoned) == (S.ABANDONED, {"here": 1})
    (again,) = field.at(cm.Register)
    assert again <= 5 * MINUTE + 6 * SECOND + 70 * SECOND
    assert world.held == 1


def test_fp_56_a_waiting_job_without_progress_is_not_ok() -> None:
    """The slot is held by a runner that nobody verified as busy: stuck after ten minutes, with its job."""
    world = World(slots=1)
    (name,) = world.planned(1)
    world.registered(name)
    world.started(name)
    field = Field(world)
    field.probes[name] = None
    field.run(10 * MINUTE + SECOND)
    health = assess(world.core.state, world.now)
    assert health.status == "stuck"
    assert f"Job {key(1)} has waited 10 min" in health.reasons[0]


def test_fp_57_created_and_never_connected_ends_after_five_minutes() -> None:
    world = World(slots=1)
    (name,) = world.planned(1)
    world.registered(name)
    world.started(name)
    field = Field(world)
    field.probes[name] = seen(listening=False)
    field.run(5 * MINUTE - SECOND)
    assert field.at(cm.ProbeRunner) == []
    field.run(10 * SECOND)
    assert (world.runner(name).state, field.at(cm.Destroy, name)[0]) == (S.GONE, 5 * MINUTE + 5 * SECOND)
    fresh = world.last(cm.Register).runner
    assert fresh != name


def test_fp_57_a_terminal_error_frees_the_slot_at_once() -> None:
    world = World(slots=1)
    (name,) = world.planned(1)
    world.registered(name)
    world.feed(ev.StartFailed(name, BROKEN))
    assert world.held == 0
    assert "no space left on device" in why_waiting(world.core.state, key(1), world.now)


def test_fp_57_what_was_cancelled_goes_without_a_fresh_attempt() -> None:
    world = World(slots=1)
    (name,) = world.planned(1)
    world.registered(name)
    world.started(name)
    world.completed(1, how="cancelled")
    field = Field(world)
    field.probes[name] = seen(listening=False)
    field.run(6 * MINUTE)
    assert (world.runner(name).state, field.at(cm.Register), world.held) == (S.GONE, [], 0)


def test_fp_58_a_worker_that_hangs_after_its_job_is_shown_and_kept() -> None:
    """Completed at t+0, wedged from t+10 min, for hours; a person ends it by name, which is on record."""
    world = World(slots=1)
    name = running(world, 1)
    field = Field(world)
    field.probes[name] = BUSY
    world.completed(1, name)
    field.run(9 * MINUTE)
    assert world.runner(name).stuck == ""
    field.run(61 * SECOND)
    assert "worker lives on" in world.runner(name).stuck
    field.run(6 * HOUR - 11 * MINUTE, step=MINUTE)
    assert field.at(cm.Destroy) == []
    assert any(name in text for text in assess(world.core.state, world.now).reasons)
    world.feed(ev.KillOrdered("ann", name, "hangs", even_if_busy=True))
    field.run(SECOND)
    last = world.decisions[-1]
    assert (last.rule, last.outcome, last.verdict, last.reason) == (
        "operator",
        "reaped",
        "busy",
        "ann asked: hangs",
    )
    assert len(last.evidence) >= 3


def test_fp_59_remains_of_living_runners_are_never_ordered_removed() -> None:
    """Provisioning included: a removal is ordered for what has ended, and for nothing else."""
    world = World(slots=4)
    (booting,) = world.planned(1)
    world.registered(booting)
    world.started(booting)
    (ended,) = world.listening(2)
    busy = running(world, 3)
    field = Field(world)
    field.probes[busy] = BUSY
    world.exited(ended, 0)
    field.run(4 * MINUTE)
    assert {command.permit.runner for command in of(world.sent, cm.Destroy)} == {ended}


def test_fp_59_no_space_makes_new_runners_wait_and_leaves_running_ones_alone() -> None:
    world = World(slots=4)
    busy = running(world, 1)
    field = Field(world)
    field.probes[busy] = BUSY
    (name,) = world.planned(2)
    world.registered(name)
    world.feed(ev.StartFailed(name, BROKEN))
    field.run(20 * SECOND)
    assert (len(field.at(cm.Register)), world.runner(busy).state) == (1, S.RUNNING)
    assert any("no space left on device" in text for text in assess(world.core.state, world.now).reasons)


def test_fp_60_a_cordon_stops_a_dispatch_that_was_already_waiting() -> None:
    """(a) the slot is reserved and the forge asked; cordon at t+0; the answer comes, and nothing follows."""
    world = World(slots=1)
    busy = running(world, 1)
    world.queued(2)
    world.wait(61 * SECOND)
    world.exited(busy)
    question = world.last(cm.LookUpJob)
    world.feed(ev.CordonOrdered("ann", ALL, reason="upgrade"))
    world.job_answer(question, ForgeStatus.QUEUED)
    world.wait(82 * SECOND)
    assert world.count(cm.Register) == 1
    assert why_waiting(world.core.state, key(2), world.now) == "pool small is cordoned by ann: upgrade"


def test_fp_60_a_drain_waits_for_what_boots_and_ends_idle_runners_at_once() -> None:
    """(b) a runner that boots counts; (c) idle ones are deregistered, one that is refused is waited for."""
    world = World(slots=4)
    (idle,) = world.listening(1)
    (taken,) = world.listening(2)
    (booting,) = world.planned(3)
    world.registered(booting)
    world.started(booting)
    field = Field(world)
    field.fences[taken] = FenceAnswer.REFUSED
    field.probes[booting] = None
    world.feed(ev.DrainOrdered("ann", ALL, reason="upgrade"))
    field.run(20 * SECOND)
    states = [world.runner(name).state for name in (idle, taken, booting)]
    assert states == [S.GONE, S.ASSIGNED, S.STARTING]
    assert (world.held, field.at(cm.Register)) == (2, [])
    world.in_progress(2, taken)
    field.probes[taken] = BUSY
    field.run(4 * HOUR, step=MINUTE)
    assert world.runner(taken).state is S.RUNNING  # no time limit kills it
    assert taken not in {command.permit.runner for command in of(world.sent, cm.Destroy)}


def test_fp_60_a_cordon_has_an_owner_and_an_end() -> None:
    """(d) it says whose it is for as long as it lasts, over a restart too."""
    world = World()
    world.feed(ev.CordonOrdered("ann", ALL, reason="upgrade"))
    world.restart()
    world.queued(1)
    assert "cordoned by ann: upgrade" in why_waiting(world.core.state, key(1), world.now)
    world.feed(ev.UncordonOrdered("bob", ALL))
    assert world.count(cm.Register) == 1
