"""A process life begins: every state is resumed from its row, nothing is destroyed, nothing is forgotten."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.domain.access import Access
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.exits import REFUSED_VERSION
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus
from ephemerd.domain.permit import Warrant
from ephemerd.domain.pool import FenceKind, Host, Policy, Setup
from ephemerd.domain.runner import Rule, RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core import build
from tests.unit.core.world import APP, GPU, HOUR, LIB, MINUTE, SECOND, World, key, of, pool, report, seen

S = RunnerState


def in_state(state: RunnerState) -> tuple[World, RunnerId]:
    """Return a world with one runner in that state, its listings unanswered."""
    world = World(lists=False, slots=2)
    world.feed(ev.EnvironmentsListed("here", (), True))
    world.feed(ev.JobsListed(APP, 0))
    world.feed(ev.RegistrationsListed(APP, ()))
    (name,) = world.planned(1)
    if state is S.REGISTERING:
        return world, name
    world.registered(name)
    world.started(name)
    if state in (S.LISTENING, S.ASSIGNED, S.RUNNING, S.FINISHING, S.RETIRING):
        world.sign(name, Sign.LISTENING)
    if state is S.ASSIGNED:
        world.sign(name, Sign.OFFERED)
    if state in (S.RUNNING, S.FINISHING, S.RETIRING):
        world.in_progress(1, name)
    if state in (S.FINISHING, S.RETIRING):
        world.completed(1, name)
    if state is S.RETIRING:
        world.exited(name, leftovers=1)
    assert world.runner(name).state is state
    return world, name


LIVING = (S.STARTING, S.LISTENING, S.ASSIGNED, S.RUNNING, S.FINISHING)


@pytest.mark.parametrize("state", LIVING)
def test_fp_52_what_runs_is_kept_found_watched_and_probed(state: RunnerState) -> None:
    world, name = in_state(state)
    before = world.runner(name)
    step = world.restart(down=30 * SECOND)
    assert of(step.commands, cm.Destroy) + of(step.commands, cm.Deregister) == []
    row = world.runner(name)
    assert (row.state, row.since, row.adopted, row.seen_after_start) == (state, before.since, True, False)
    assert [command.runner for command in of(step.commands, cm.ProbeRunner)] == [name]
    found = world.feed(ev.EnvironmentsListed("here", (world.environments[name],), True))
    assert of(found.commands, cm.WatchRunner) == [cm.WatchRunner(name, "small", f"env-{name}")]
    world.probed(of(step.commands, cm.ProbeRunner)[0])
    assert world.runner(name).seen_after_start


@pytest.mark.parametrize("probes", [True, False])
def test_it_is_watched_also_when_the_probe_answers_before_the_listing(probes: bool) -> None:
    """Signs and the exit come only from what is watched."""
    world = World(pool(probes=probes))
    (name,) = world.listening(1)
    world.lists = False
    world.restart()
    for command in of(world.steps[-1].commands, cm.ProbeRunner):
        world.probed(command)
    assert world.runner(name).seen_after_start
    found = world.feed(ev.EnvironmentsListed("here", (world.environments[name],), True))
    assert len(of(found.commands, cm.WatchRunner)) == 1


def ended_while_nobody_was_there() -> tuple[World, RunnerId, ev.Event]:
    """A runner was started and not recorded; it did a job and left before the next process life."""
    world = World(lists=False)
    (name,) = world.planned(1)
    world.registered(name)
    world.restart(down=SECOND)
    ended = ev.FoundEnvironment(name, f"env-{name}", "small", ended=True, code=0)
    return world, name, ev.EnvironmentsListed("here", (ended,), True)


def test_what_an_ended_runner_did_is_read_before_its_end_is_acted_on() -> None:
    """Else its job, which still reads as queued, would be given a second runner."""
    world, name, listing = ended_while_nobody_was_there()
    step = world.feed(listing)
    assert of(step.commands, cm.WatchRunner) == [cm.WatchRunner(name, "small", f"env-{name}")]
    assert world.runner(name).state is S.STARTING
    for sign in (Sign.LISTENING, Sign.OFFERED, Sign.ANNOUNCED, Sign.WORKER, Sign.ENDED):
        world.sign(name, sign, "Running job: build" if sign is Sign.ANNOUNCED else "")
    step = world.exited(name)
    assert world.runner(name).state is S.GONE
    assert of(world.feed(listing).commands, cm.Register) == of(step.commands, cm.Register) == []
    assert world.counter("ended_without_a_job_total|pool=small") == 0
    assert world.count(cm.Register) == 1
    world.completed(1, name)
    assert world.count(cm.Register) == 1


def test_an_ended_runner_that_cannot_be_read_ends_by_the_word_of_the_listing() -> None:
    world, name, listing = ended_while_nobody_was_there()
    world.feed(listing)
    world.now += 60 * SECOND - 1
    assert of(world.feed(listing).commands, cm.WatchRunner) == []
    assert world.runner(name).state is S.STARTING
    world.now += 1
    world.feed(listing)
    assert (world.runner(name).state, world.runner(name).exit_code) == (S.GONE, 0)
    assert world.counter("ended_without_a_job_total|pool=small") == 1


def test_an_end_that_an_earlier_life_was_shown_is_read_anew() -> None:
    world, name, listing = ended_while_nobody_was_there()
    world.feed(listing)
    world.restart(down=10 * MINUTE)
    assert len(of(world.feed(listing).commands, cm.WatchRunner)) == 1
    assert world.runner(name).state is S.STARTING


def test_registering_is_looked_up_and_never_posted_again() -> None:
    world, name = in_state(S.REGISTERING)
    step = world.restart(down=SECOND)
    assert of(step.commands, cm.LookUpName) == [cm.LookUpName(name, APP)]
    assert [command.runner for command in of(step.commands, cm.Register)] == []
    step = world.feed(ev.NameLookedUp(name, 71))
    assert of(step.commands, cm.StartRunner) == []
    assert of(step.commands, cm.Deregister)[0].intent.registration == 71
    assert of(step.commands, cm.Register)[0].runner == "eph-s1-e2-2"


def test_planned_is_undone() -> None:
    """A crash between the two halves of one turn cannot be, but an older version may have left one."""
    world, name = in_state(S.REGISTERING)
    world.stored["runner"][name]["state"] = "planned"
    world.restart()
    assert world.runner(name).state is S.GONE
    assert world.held == 1  # a new one, under a new name


def test_leftovers_are_ended_under_a_new_permit_and_nothing_is_replayed() -> None:
    world, name = in_state(S.RETIRING)
    step = world.restart(down=10 * MINUTE)
    assert of(step.commands, cm.Destroy) == []
    assert world.runner(name).state is S.RETIRING
    world.wait(69 * SECOND)
    assert world.runner(name).state is S.RETIRING
    running = replace(world.environments[name], ended=False)
    found = world.feed(ev.EnvironmentsListed("here", (running,), True))
    (destroy,) = [c for c in of(found.commands, cm.Destroy) if c.permit.runner == name]
    assert (destroy.permit.epoch, destroy.permit.warrant) == ("e2", Warrant.ENDED)
    world.destroyed(destroy)
    assert world.runner(name).state is S.GONE


def test_one_that_was_being_destroyed_is_looked_at_again_from_the_beginning() -> None:
    world = World(pool(surplus_grace=0))
    (name,) = world.listening(1)
    world.completed(1, how="cancelled")
    world.probed(world.last(cm.ProbeRunner))
    world.deregistered(world.last(cm.Deregister))
    world.wait(5 * SECOND)
    world.probed(world.last(cm.ProbeRunner))
    assert world.runner(name).state is S.RETIRING
    destroys = world.count(cm.Destroy)
    world.restart(down=10 * MINUTE)
    assert (world.runner(name).state, world.count(cm.Destroy)) == (S.RETIRING, destroys)
    world.probed(world.last(cm.ProbeRunner), seen(workers=1))
    assert world.runner(name).state in (S.STUCK, S.RUNNING)
    assert world.count(cm.Destroy) == destroys


def test_a_gate_run_of_an_earlier_life_is_void_and_its_answers_are_stale() -> None:
    world = World(pool(surplus_grace=0))
    (name,) = world.listening(1)
    world.completed(1, how="cancelled")
    probe = world.last(cm.ProbeRunner)
    world.lists = False
    world.restart(down=SECOND)
    assert world.runner(name).gate is None
    world.probed(probe)
    assert world.runner(name).gate is None
    assert world.count(cm.Deregister) == 0


def test_an_accepted_fence_is_remembered_and_not_asked_again() -> None:
    world = World(pool(surplus_grace=0))
    (name,) = world.listening(1)
    world.completed(1, how="cancelled")
    world.probed(world.last(cm.ProbeRunner))
    world.deregistered(world.last(cm.Deregister))
    assert world.runner(name).fence.accepted is not None
    world.restart(down=SECOND)
    for _ in range(12 * 60):
        for command in of(world.wait(SECOND), cm.ProbeRunner):
            world.probed(command)
        if world.count(cm.Destroy):
            break
    assert world.last(cm.Destroy).permit.warrant is Warrant.IDLE
    assert world.last(cm.Destroy).permit.epoch == "e2"
    assert world.count(cm.Deregister) == 1


def test_rules_that_rest_on_events_rest_after_a_start() -> None:
    world = World(pool(surplus_grace=0))
    (name,) = world.listening(1)
    world.lists = False
    world.restart(down=SECOND)
    world.completed(1, how="cancelled")
    for command in of(world.sent, cm.ProbeRunner):
        world.probed(command)
    assert world.runner(name).gate is None
    world.feed(ev.JobsListed(APP, 0))
    assert world.runner(name).gate is None
    world.feed(ev.EnvironmentsListed("here", (world.environments[name],), True))
    sent = of(world.wait(10 * MINUTE), cm.ProbeRunner)
    assert [command.runner for command in sent][:1] == [name]


def test_one_that_was_kept_for_an_unknown_verdict_is_not_kept_for_ever() -> None:
    """Where there is no fence to be remembered, no other rule would ever have it looked at again."""
    world = World(pool(surplus_grace=0, fence=FenceKind.NONE))
    (name,) = world.listening(1)
    world.completed(1, how="cancelled")
    world.probed(world.last(cm.ProbeRunner))
    world.wait(5 * SECOND)
    world.probed(world.last(cm.ProbeRunner))
    world.restart(down=MINUTE)
    world.feed(ev.Probed(name, world.last(cm.ProbeRunner).token, None, Fault(Remedy.RETRY, "engine away")))
    look = world.last(cm.LookUpRunner)
    world.feed(ev.RunnerLookedUp(name, look.token, busy=False, connected=True))
    assert world.runner(name).state is S.STUCK
    for _ in range(12 * 60):
        for command in of(world.wait(SECOND), cm.ProbeRunner):
            world.probed(command)
    world.destroyed(world.last(cm.Destroy))
    assert world.held == 0


# -- a reboot of the machine ---------------------------------------------------------------------------


@pytest.mark.parametrize("state", [*LIVING, S.RETIRING])
def test_fp_54_a_reboot_ends_what_ran_and_frees_its_slot(state: RunnerState) -> None:
    world, name = in_state(state)
    step = world.restart(down=5 * MINUTE, same_boot=False)
    row = world.runner(name)
    assert row.state is S.GONE
    assert row.ending in ("the machine was restarted", "ended by itself, left processes behind")
    cleaned = [c for c in of(step.commands, cm.Destroy) if c.permit.runner == name]
    assert [c.permit.warrant for c in cleaned] == [Warrant.ENDED]
    taken_back = [c for c in of(step.commands, cm.Deregister) if c.intent.runner == name]
    assert len(taken_back) == (1 if row.hard is None else 0)


def test_a_reboot_ends_what_was_abandoned() -> None:
    world, name = in_state(S.RETIRING)
    world.wait(70 * SECOND)
    assert world.runner(name).state is S.ABANDONED
    world.restart(same_boot=False)
    assert world.runner(name).state is S.GONE
    assert world.core.state.index.abandoned == {}


# -- what was missed -----------------------------------------------------------------------------------


def test_fp_53_jobs_queued_while_it_was_down_get_runners_without_a_delivery() -> None:
    world = World(slots=8)
    for number in (1, 2, 3):
        world.waiting[key(number)] = report(number, ForgeStatus.QUEUED)
    world.restart(down=15 * MINUTE)
    assert world.count(cm.Register) == 3


def test_a_row_whose_time_ran_out_while_nobody_was_there_is_dropped() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.completed(1, name)
    world.registrations.clear()
    world.exited(name)
    world.destroyed(world.last(cm.Destroy))
    world.restart(down=3 * HOUR)
    assert not world.knows(name)


def test_a_registration_to_be_taken_back_is_taken_back_by_the_next_life() -> None:
    world = World()
    (name,) = world.listening(1)
    world.exited(name)
    world.feed(ev.ScopeAnswered(APP))
    step = world.restart(down=3 * HOUR)
    assert name in [command.intent.runner for command in of(step.commands, cm.Deregister)]


def test_remains_are_removed_by_the_next_life() -> None:
    world = World()
    (name,) = world.listening(1)
    world.exited(name)
    step = world.restart(down=3 * HOUR)
    assert name in [command.permit.runner for command in of(step.commands, cm.Destroy)]


def test_questions_of_an_earlier_life_reserve_no_slot() -> None:
    world = World(slots=1)
    world.doubted(1)
    assert world.core.state.index.reserved == {"here": 1}
    world.lists = False
    moved = Setup((pool(host="there"),), (Host("here", 1), Host("there", 1)), Policy())
    world.restart(setup=moved)
    assert world.core.state.index.reserved == {"there": 1}  # asked anew, where the pool is now


# -- the configuration ---------------------------------------------------------------------------------


def test_a_scope_of_no_pool_any_more_is_listed_anew_while_a_runner_of_it_lives() -> None:
    """A listing that a dead process asked for is never answered: rules that wait for one would wait for ever."""
    world = World(pool(), pool("lib", scope=LIB))
    (name,) = world.listening(1, repository="acme/lib")
    world.lists = False
    world.wait(10 * MINUTE)
    assert world.core.state.scope(LIB).jobs_asked is not None
    alone = Setup((pool(),), world.setup.hosts, Policy())
    step = world.restart(down=HOUR, setup=alone)
    assert [one.scope for one in of(step.commands, cm.ListJobs)] == [APP, LIB]
    assert [one.scope for one in of(step.commands, cm.ListRegistrations)] == [APP, LIB]
    slept = world.feed(ev.MachineSlept(HOUR))
    assert world.core.state.scope(LIB).jobs_listed is None
    assert world.core.state.scope(LIB).jobs_due >= world.now, slept
    world.exited(name)
    step = world.restart(setup=alone)
    assert [one.scope for one in of(step.commands, cm.ListJobs)] == [APP]


def test_a_pool_that_is_no_longer_configured_keeps_its_runners_and_makes_none() -> None:
    world = World(pool(), pool("big", labels=GPU))
    (name,) = world.listening(1, labels=GPU)
    world.restart(setup=Setup((pool(),), world.setup.hosts, Policy()))
    assert world.runner(name).state is S.LISTENING
    assert world.planned(2, labels=GPU) == []
    assert not world.core.state.pools["big"].configured


def test_fewer_slots_end_nobody_and_let_nobody_in() -> None:
    world = World(slots=3)
    world.listening(1, 2, 3)
    world.restart(setup=Setup((pool(),), (Host("here", 1),), Policy()))
    assert world.held == 3
    assert world.core.state.slots_free("here") == -2
    assert world.planned(4) == []


def test_new_labels_match_what_waits() -> None:
    world = World()
    assert world.planned(1, labels=GPU) == []
    world.restart(setup=Setup((pool(labels=GPU),), world.setup.hosts, Policy()))
    assert world.count(cm.Register) == 1


def test_backoffs_do_not_outlive_a_start() -> None:
    world = World()
    (name,) = world.planned(1)
    world.feed(ev.RegistrationFailed(name, Fault(Remedy.BROKEN, "the disk is full")))
    assert world.core.state.pools["small"].failures == 1
    world.restart()
    assert world.core.state.pools["small"].failures == 0
    assert world.count(cm.Register) == 2


def test_names_never_repeat_not_even_from_a_restored_store() -> None:
    world = World()
    stored = {kind: dict(rows) for kind, rows in world.stored.items()}
    first = world.planned(1)
    world.stored = stored
    world.restart()
    second = world.planned(2)
    assert not set(first) & set(second)


def test_the_world_is_listed_at_once() -> None:
    world = World(pool(), pool("lib", scope=LIB), lists=False)
    step = world.steps[0]
    assert step.commands == (
        cm.ListEnvironments("here"),
        cm.ListJobs(APP),
        cm.ListRegistrations(APP),
        cm.ListJobs(LIB),
        cm.ListRegistrations(LIB),
    )


def test_a_host_that_is_no_longer_configured_makes_nothing_and_comes_back() -> None:
    world = World()
    both = Setup(
        (pool(), pool("big", labels=GPU, host="there")), (Host("here", 1), Host("there", 1)), Policy()
    )
    world.restart(setup=both)
    world.restart(setup=Setup(both.pools, both.hosts[:1], Policy()))
    assert [name for name, row in world.core.state.hosts.items() if row.configured] == ["here"]
    assert world.planned(1, labels=GPU) == []
    step = world.restart(setup=both)
    assert [name for name, row in world.core.state.hosts.items() if row.configured] == ["here", "there"]
    assert len(of(step.commands, cm.Register)) == 1


def test_without_a_probe_nothing_is_looked_at_after_a_start_and_the_rules_need_no_look() -> None:
    world = World(pool(probes=False))
    (name,) = world.listening(1)
    step = world.restart()
    assert of(step.commands, cm.ProbeRunner) == []
    assert world.runner(name).seen_after_start


def test_one_in_the_gate_is_not_probed_beside_it_after_a_start() -> None:
    """Its environment is found only after an order had opened the gate: one question at a time."""
    world = World(lists=False)
    (name,) = world.planned(1)
    world.registered(name)
    world.restart()
    world.feed(ev.KillOrdered("ann", name, "cleaning up"))
    assert world.count(cm.LookUpRunner) == 1
    found = ev.FoundEnvironment(name, f"env-{name}", "small", ended=False)
    step = world.feed(ev.EnvironmentsListed("here", (found,), True))
    assert of(step.commands, cm.ProbeRunner) == []
    assert not world.runner(name).seen_after_start


def test_a_look_that_was_answered_is_no_open_question() -> None:
    world = World()
    (name,) = world.listening(1)
    world.restart()
    assert world.runner(name).asked == world.now
    world.probed(world.last(cm.ProbeRunner))
    assert world.runner(name).asked is None
    assert world.runner(name).seen_after_start


# -- what a life takes over from the one before --------------------------------------------------------


def idle_spare(world: World) -> RunnerId:
    """A listener without a job, seen by probe and listing in this life, which heard of no job yet."""
    (name,) = world.listening(1)
    world.lists = False
    world.restart(down=SECOND)
    world.completed(1, how="cancelled")
    for command in of(world.sent, cm.ProbeRunner):
        world.probed(command)
    world.feed(ev.EnvironmentsListed("here", (world.environments[name],), True))
    return name


@pytest.mark.parametrize("lists", [True, False])
def test_everything_is_listed_again_whatever_the_earlier_life_had_asked(lists: bool) -> None:
    """Its listings were just answered, or are out and will be answered to nobody."""
    world = World(lists=lists)
    world.wait(SECOND)
    step = world.restart(down=SECOND)
    assert step.commands[:3] == (cm.ListEnvironments("here"), cm.ListJobs(APP), cm.ListRegistrations(APP))


@pytest.mark.parametrize("remedy", [Remedy.RETRY, Remedy.DENIED])
def test_a_scope_that_was_in_trouble_is_tried_by_the_next_life_at_once(remedy: Remedy) -> None:
    world = World()
    world.feed(ev.JobsListed(APP, 0, Fault(remedy, "no")))
    world.lists = False
    assert cm.ListJobs(APP) in world.restart(down=SECOND).commands
    assert (world.core.state.scope(APP).silent, world.core.state.scope(APP).denied_until > world.now) == (
        None,
        remedy is Remedy.DENIED,
    )


def test_a_listing_of_jobs_of_an_earlier_life_ends_no_rest() -> None:
    """What was queued while nobody was there is not known yet: one who listens may be wanted for it."""
    world = World(pool(surplus_grace=0))
    name = idle_spare(world)
    world.wait(20 * MINUTE)
    assert world.runner(name).gate is None
    world.feed(ev.JobsListed(APP, 0))
    world.wait(MINUTE)
    assert world.runner(name).gate is not None


def test_one_that_was_being_looked_up_is_looked_into_at_once() -> None:
    world = World()
    (name,) = world.listening(1)
    world.wait(30 * SECOND)
    assert world.runner(name).asked is not None
    step = world.restart(down=SECOND)
    assert [command.runner for command in of(step.commands, cm.ProbeRunner)] == [name]


def test_a_question_about_a_job_that_nobody_will_answer_is_none() -> None:
    """A slot was reserved until its answer, and the host has none any more."""
    world = World(slots=1)
    world.doubted(1)
    assert (world.job(1).asking, world.job(1).pool) == ("confirm", "small")
    world.lists = False
    world.restart(setup=Setup((pool(),), (Host("here", 0),), Policy()))
    assert (world.job(1).asking, world.job(1).asked, world.job(1).pool) == ("", None, "")
    assert world.core.state.index.reserved == {}


def test_a_registration_that_was_to_be_taken_back_is_so_without_a_pause() -> None:
    world = World()
    (name,) = world.listening(1)
    world.exited(name)
    world.destroyed(world.last(cm.Destroy))
    assert world.runner(name).fence.retry > world.now
    step = world.restart(down=SECOND)
    assert [command.intent.runner for command in of(step.commands, cm.Deregister)] == [name]


def test_remains_whose_removal_was_due_meanwhile_are_removed_at_the_start() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.exited(name)
    assert world.runner(name).cleanup
    step = world.restart(down=10 * MINUTE)
    assert [command.permit.runner for command in of(step.commands, cm.Destroy)] == [name]


def test_whose_job_it_was_is_asked_at_the_start_where_that_was_due_meanwhile() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.WORKER)
    world.exited(name)
    world.destroyed(world.last(cm.Destroy))
    assert world.runner(name).consumes
    world.lists = False
    step = world.restart(down=10 * MINUTE)
    assert [command.job for command in of(step.commands, cm.LookUpJob)] == [key(1)]


def test_a_registration_without_a_runner_is_looked_up_at_the_start_where_that_was_due_meanwhile() -> None:
    world = World()
    stray = ev.FoundRegistration("eph-s1-e0-7", 300, busy=False, online=True)
    world.feed(ev.RegistrationsListed(APP, (stray,)))
    step = world.restart(down=10 * MINUTE)
    assert [command.runner for command in of(step.commands, cm.LookUpRunner)] == [stray.name]


def test_a_row_whose_time_runs_out_at_the_very_start_is_dropped() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.completed(1, name)
    world.registrations.clear()
    world.exited(name)
    world.destroyed(world.last(cm.Destroy))
    world.restart(down=HOUR)
    assert not world.knows(name)


# -- what a reboot ends, and what it does not ----------------------------------------------------------


def test_a_restart_of_the_daemon_alone_ends_nothing_that_was_abandoned() -> None:
    """It still runs, and still stops its host."""
    world = build.World()
    name = world.abandoned()
    world.restart()
    assert world.state(name) == "abandoned"
    assert world.core.state.index.abandoned == {"local": 1}


def test_what_was_abandoned_is_tidied_up_after_a_reboot() -> None:
    world = build.World()
    name = world.abandoned()
    assert not world.row(name).cleanup
    step = world.restart(same_boot=False)
    (destroy,) = of(step.commands, cm.Destroy)
    assert (destroy.permit.runner, destroy.permit.warrant) == (name, Warrant.ENDED)
    assert world.state(name) == "gone"


def test_a_reboot_ends_nothing_twice() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.exited(name)
    before = world.runner(name)
    assert before.cleanup
    world.restart(same_boot=False)
    assert (world.runner(name).state, world.runner(name).ending) == (S.GONE, before.ending)


@pytest.mark.parametrize("heard", [False, True])
def test_a_reboot_does_not_end_what_was_never_told_to_have_started(heard: bool) -> None:
    """Where it was started after all, a listing shows it; else its limit, or two listings, end it."""
    world = World(lists=False)
    (name,) = world.planned(1)
    world.registered(name)
    if heard:
        world.sign(name, Sign.LISTENING)
    before = world.runner(name).state
    world.restart(same_boot=False)
    assert world.runner(name).state is before


# -- the configuration, once more ----------------------------------------------------------------------


def test_a_pool_that_comes_back_is_served_again() -> None:
    world = World(pool(), pool("big", labels=GPU))
    both = world.setup
    world.restart(setup=Setup((pool(),), both.hosts, Policy()))
    world.restart(setup=both)
    assert world.core.state.pools["big"].configured
    assert len(world.planned(1, labels=GPU)) == 1


def test_a_version_that_was_refused_is_tried_by_the_next_life() -> None:
    world = World()
    (name,) = world.listening(1)
    world.exited(name, REFUSED_VERSION)
    assert world.core.state.pools["small"].refused is not None
    step = world.restart(down=SECOND)
    row = world.core.state.pools["small"]
    assert (row.refused, row.exits, row.why) == (None, 0, "")
    assert len(of(step.commands, cm.Register)) == 1


def test_the_rows_alone_give_the_configuration_and_the_next_moment() -> None:
    """A core can be made anew between any two events, before it is told of a configuration."""
    world = World()
    access = (Access("github", repositories=("acme/*",)), Access("a-forge", most=1))
    world.boot(setup=Setup((pool(),), world.setup.hosts, Policy(settle=1), access=access))
    again = world.reborn()
    assert again.state.setup.access == world.core.state.setup.access
    assert again.state.policy.settle == 1
    assert again.next_wake() == world.core.next_wake() == world.now + MINUTE


def test_what_waits_is_judged_by_the_policy_of_the_next_life() -> None:
    world = World(pool(max_concurrent=0))
    world.queued(1)
    closed = Setup((pool(),), world.setup.hosts, Policy(), access=(Access("github", denied=("acme/app",)),))
    step = world.restart(setup=closed)
    assert world.job(1).refused == "repository"
    assert of(step.commands, cm.Register) == []


def test_what_is_counted_by_pool_begins_at_nought() -> None:
    """A rate of what never happened is nought, not missing."""
    counters = World().core.state.counters
    assert counters["dispatches_total|pool=small"] == counters["wasted_dispatches_total|pool=small"] == 0
    rules = {rule.value for rule in Rule if rule is not Rule.ENDED}
    assert {name: value for name, value in counters.items() if name.startswith("nominations_total")} == {
        f"nominations_total|rule={rule}": 0 for rule in rules
    }


def test_the_rules_are_evaluated_every_minute_from_the_start_on() -> None:
    world = World()
    for minute in (1, 2, 3):
        world.wait(MINUTE)
        assert world.core.next_wake() == world.now + MINUTE, minute


def test_a_runner_keeps_the_labels_that_it_was_registered_with() -> None:
    """The forge gives it jobs by those, whatever its pool is said to have by now."""
    world = World()
    (name,) = world.listening(1)
    world.restart(setup=Setup((pool(labels=GPU),), world.setup.hosts, Policy()))
    assert world.runner(name).labels == pool().labels
