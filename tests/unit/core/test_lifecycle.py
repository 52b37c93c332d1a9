"""A runner's way from planned to gone: no POST twice, no slot twice, every end tidied up."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core import gate
from ephemerd.core.health import assess
from ephemerd.core.turn import Turn
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.exits import REFUSED_VERSION
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus, JobReport
from ephemerd.domain.permit import Warrant
from ephemerd.domain.pool import FenceKind
from ephemerd.domain.runner import FenceAnswer, GatePhase, RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core import build
from tests.unit.core.world import APP, HOUR, LABELS, MINUTE, NO_ANSWER, SECOND, World, key, of, pool, seen

S = RunnerState
BROKEN = Fault(Remedy.BROKEN, "the disk is full")


def test_the_way_of_a_runner_that_does_its_job() -> None:
    world = World()
    step = world.told(queued_report(1))
    (register,) = step.commands
    assert register == cm.Register(RunnerId("eph-s1-e1-1"), APP, LABELS)
    name = register.runner
    assert world.runner(name).state is S.REGISTERING
    assert world.feed(ev.Registered(name, 7)).commands == (cm.StartRunner(name, "small"),)
    assert world.started(name).commands == ()
    assert world.sign(name, Sign.LISTENING).commands == ()
    assert world.sign(name, Sign.ANNOUNCED, "build").commands == ()
    assert world.sign(name, Sign.WORKER).commands == ()
    assert world.in_progress(1, name).commands == ()
    assert world.sign(name, Sign.ENDED).commands == ()
    assert world.completed(1, name).commands == ()
    (destroy,) = world.exited(name).commands
    assert isinstance(destroy, cm.Destroy)
    assert (destroy.permit.warrant, destroy.permit.environment) == (Warrant.ENDED, f"env-{name}")
    assert (destroy.permit.fence, destroy.permit.proofs) == ("none", (world.now, world.now))
    assert world.held == 0
    world.destroyed(destroy)
    row = world.runner(name)
    assert (row.state, row.cleanup, row.unregister) == (S.GONE, False, False)
    world.wait(HOUR)
    assert not world.knows(name)


def queued_report(number: int) -> JobReport:
    return JobReport(key(number), ForgeStatus.QUEUED, LABELS)


def test_a_slot_is_held_from_planned_until_gone_and_released_once() -> None:
    world = World(slots=2)
    (name,) = world.planned(1)
    assert world.held == 1
    world.registered(name)
    world.started(name)
    assert world.held == 1
    world.exited(name)
    held = world.held
    world.exited(name)
    world.feed(ev.EnvironmentDestroyed(name, f"env-{name}"))
    world.feed(ev.EnvironmentDestroyed(name, f"env-{name}"))
    world.feed(ev.StartFailed(name, BROKEN))
    world.feed(ev.RegistrationFailed(name, BROKEN))
    assert world.held == held == 1  # the replacement's


# -- registering ---------------------------------------------------------------------------------------


def test_fp_36_a_lost_answer_is_looked_up_by_name_and_never_posted_twice() -> None:
    world = World()
    (name,) = world.planned(1)
    step = world.feed(ev.RegistrationFailed(name, NO_ANSWER))
    assert step.commands == ()  # the scope is silent: one call a minute
    sent = world.wait(MINUTE)
    assert [command.runner for command in of(sent, cm.LookUpName)] == [name]
    assert of(sent, cm.Register) == []
    world.feed(ev.NameLookedUp(name, 55))
    assert world.runner(name).state is S.GONE
    fresh = world.last(cm.Register)
    assert fresh.runner == "eph-s1-e1-2"
    assert [command.runner for command in of(world.sent, cm.Register)].count(name) == 1
    (back,) = of(world.sent, cm.Deregister)
    assert (back.intent.registration, back.intent.warrant) == (55, Warrant.ENDED)


def test_registering_that_is_not_answered_is_looked_up_after_a_minute() -> None:
    world = World()
    (name,) = world.planned(1)
    assert of(world.wait(MINUTE - 1), cm.LookUpName) == []
    assert of(world.wait(1), cm.LookUpName) == [cm.LookUpName(name, APP)]
    assert of(world.wait(89 * SECOND), cm.LookUpName) == []
    assert of(world.wait(SECOND), cm.LookUpName) == [cm.LookUpName(name, APP)]


def test_a_name_that_does_not_exist_ends_the_runner_and_another_name_is_tried() -> None:
    world = World()
    (name,) = world.planned(1)
    world.wait(MINUTE)
    step = world.feed(ev.NameLookedUp(name, None))
    assert world.runner(name).state is S.GONE
    assert world.runner(name).unregister is False
    assert [command.runner for command in of(step.commands, cm.Register)] == ["eph-s1-e1-2"]
    assert of(step.commands, cm.StartRunner) == []


def test_a_taken_name_is_taken_back_and_another_one_is_tried() -> None:
    world = World()
    (name,) = world.planned(1)
    step = world.feed(ev.RegistrationFailed(name, Fault(Remedy.REFUSED, "Already exists"), taken=41))
    assert world.runner(name).state is S.GONE
    (fresh,) = of(step.commands, cm.Register)
    (back,) = of(step.commands, cm.Deregister)
    assert fresh.runner != name
    assert back.intent.registration == 41


def test_a_late_registration_is_taken_back_and_starts_nothing() -> None:
    world = World()
    (name,) = world.planned(1)
    world.wait(MINUTE)
    world.feed(ev.NameLookedUp(name, None))
    step = world.feed(ev.Registered(name, 77))
    assert of(step.commands, cm.StartRunner) == []
    assert [command.intent.registration for command in of(step.commands, cm.Deregister)] == [77]
    world.deregistered(of(step.commands, cm.Deregister)[0])
    assert world.runner(name).unregister is False


@pytest.mark.parametrize("sign", [None, Sign.LISTENING, Sign.ANNOUNCED])
def test_a_registration_told_twice_starts_nothing_twice_and_takes_nothing_back(sign: Sign | None) -> None:
    world = World()
    (name,) = world.planned(1)
    world.feed(ev.Registered(name, 77))
    world.started(name)
    if sign is not None:
        world.sign(name, sign)
    before = world.runner(name)
    assert world.feed(ev.Registered(name, 77)).commands == ()
    assert world.runner(name) == before


def test_a_refused_registration_backs_the_pool_off_and_keeps_the_demand() -> None:
    world = World()
    (name,) = world.planned(1)
    fault = Fault(Remedy.REFUSED, "Runner group 1 has reached max limit of 10000 runners")
    assert world.feed(ev.RegistrationFailed(name, fault)).commands == ()
    row = world.core.state.pools["small"]
    assert (row.failures, row.why) == (1, fault.detail)
    assert 24 * SECOND <= row.not_before - world.now <= 36 * SECOND
    assert of(world.wait(36 * SECOND), cm.Register)[0].runner != name


def until_registering(world: World) -> None:
    """Let time pass, confirming the job when asked, until the latest runner is registering."""
    for _ in range(13 * 60):
        name = world.last(cm.Register).runner
        if world.runner(name).state is S.REGISTERING:
            return
        for command in of(world.wait(SECOND), cm.LookUpJob):
            world.job_answer(command, ForgeStatus.QUEUED)
    raise AssertionError("no runner was made")


def test_the_backoff_grows_and_ends_with_the_first_listener() -> None:
    world = World()
    pauses = []
    world.queued(1)
    for _ in range(6):
        name = world.last(cm.Register).runner
        world.feed(ev.RegistrationFailed(name, BROKEN))
        pauses.append(world.core.state.pools["small"].not_before - world.now)
        until_registering(world)
    for pause, step in zip(pauses, (30, 60, 120, 300, 600, 600), strict=True):
        assert 0.8 * step * SECOND <= pause <= 1.2 * step * SECOND
    name = world.last(cm.Register).runner
    world.registered(name)
    world.started(name)
    world.sign(name, Sign.LISTENING)
    assert world.core.state.pools["small"].failures == 0


@pytest.mark.parametrize("remedy", [Remedy.LIMITED, Remedy.DENIED])
def test_a_limit_or_a_refused_credential_is_no_failure_of_the_pool(remedy: Remedy) -> None:
    world = World()
    (name,) = world.planned(1)
    assert world.feed(ev.RegistrationFailed(name, Fault(remedy, "no", 30 * SECOND))).commands == ()
    assert world.core.state.pools["small"].failures == 0
    assert world.runner(name).state is S.GONE


def test_answers_about_unknown_runners_are_dropped() -> None:
    world = World()
    nobody = RunnerId("eph-s1-e1-404")
    for event in (
        ev.Registered(nobody, 1),
        ev.RegistrationFailed(nobody, NO_ANSWER),
        ev.NameLookedUp(nobody, 1),
        ev.EnvironmentStarted(nobody, "env"),
        ev.StartFailed(nobody, BROKEN),
        ev.EnvironmentExited(nobody, 0, 3),
        ev.Probed(nobody, 1, None, NO_ANSWER),
        ev.RunnerLookedUp(nobody, 1, missing=True),
        ev.FenceAnswered(nobody, 1, 1, FenceAnswer.ACCEPTED),
        ev.EnvironmentDestroyed(nobody, "env"),
        ev.DestroyFailed(nobody, "env", BROKEN),
    ):
        step = world.feed(event)
        assert (step.commands, step.changed) == ((), ())


# -- starting ------------------------------------------------------------------------------------------


def test_a_start_that_failed_gives_the_registration_back_and_backs_off() -> None:
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    step = world.feed(ev.StartFailed(name, BROKEN))
    assert (world.runner(name).state, world.held) == (S.GONE, 0)
    assert [command.intent.runner for command in of(step.commands, cm.Deregister)] == [name]
    assert of(step.commands, cm.Register) == []
    assert world.core.state.pools["small"].failures == 1
    assert len(of(world.wait(36 * SECOND), cm.Register)) == 1


def test_a_second_report_of_a_failed_start_is_no_second_failure() -> None:
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.feed(ev.StartFailed(name, BROKEN))
    world.feed(ev.StartFailed(name, BROKEN))
    assert world.core.state.pools["small"].failures == 1


def test_a_failed_start_of_what_was_heard_is_no_failure_and_its_environment_is_found() -> None:
    """The call returned too late, with an error; the listener listens and may be given a job."""
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.sign(name, Sign.LISTENING)
    assert world.feed(ev.StartFailed(name, NO_ANSWER)).commands == ()
    assert world.runner(name).state is S.LISTENING
    world.environments[name] = ev.FoundEnvironment(name, "env-late", "small", ended=False)
    world.wait(SECOND)
    assert world.runner(name).environment == "env-late"


def test_a_failed_start_on_a_host_that_is_configured_no_more_has_nobody_wait_for_a_listing_of_it() -> None:
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.sign(name, Sign.LISTENING)
    world.feed(ev.Reconfigured("ann", replace(world.setup, pools=(), hosts=())))
    world.feed(ev.StartFailed(name, NO_ANSWER))
    assert ("host", "here") not in world.core.state.agenda.moments()
    assert world.reborn().state.agenda.moments() == world.core.state.agenda.moments()


def test_a_runner_whose_environment_is_shown_by_no_listing_is_lost() -> None:
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.sign(name, Sign.LISTENING)
    world.feed(ev.StartFailed(name, NO_ANSWER))
    world.wait(62 * SECOND)
    assert (world.runner(name).state, world.runner(name).ending) == (S.GONE, "its environment was lost")


def test_an_environment_is_never_started_twice() -> None:
    """A JIT configuration is used once; an environment that exited is never started again."""
    world = World()
    (name,) = world.listening(1)
    world.exited(name)
    world.wait(10 * MINUTE)
    started = [command.runner for command in of(world.sent, cm.StartRunner)]
    assert started.count(name) == 1


# -- natural exit --------------------------------------------------------------------------------------


def test_fp_23_an_exit_without_a_sign_is_replaced_at_once_under_a_new_name() -> None:
    world = World()
    (name,) = world.listening(1)
    step = world.exited(name, 0)
    (fresh,) = of(step.commands, cm.Register)
    assert fresh.runner != name
    assert world.runner(name).ending == "ended by itself with code 0"
    assert world.counter("ended_without_a_job_total|pool=small") == 1


def test_the_next_replacements_come_by_backoff_and_an_alarm_after_five() -> None:
    world = World()
    world.queued(1)
    waits = []
    for _ in range(5):
        name = world.last(cm.Register).runner
        world.registered(name)
        world.started(name)
        world.sign(name, Sign.LISTENING)
        world.exited(name, 0)
        waits.append(max(0, world.core.state.pools["small"].not_before - world.now))
        until_registering(world)
    assert waits[0] == 0
    for wait, step in zip(waits[1:], (30, 60, 120, 300), strict=True):
        assert 0.8 * step * SECOND <= wait <= 1.2 * step * SECOND
    assert sum("again and again" in note for note in world.notes) == 1


def test_a_hard_sign_ends_the_row_of_exits() -> None:
    world = World()
    (name,) = world.listening(1)
    world.exited(name)
    name = world.last(cm.Register).runner
    world.registered(name)
    world.started(name)
    world.sign(name, Sign.ANNOUNCED)
    assert world.core.state.pools["small"].exits == 0


def test_an_exit_after_a_hard_sign_is_no_exit_without_a_job_and_keeps_the_registration() -> None:
    """The forge removes the registration of a runner that had its job; a zombie is the listing's affair."""
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED)
    step = world.exited(name, 137)
    assert of(step.commands, cm.Deregister) == []
    assert world.counter("ended_without_a_job_total|pool=small") == 0
    assert (world.runner(name).exit_code, world.held) == (137, 0)


def test_fp_21_an_exit_without_a_job_takes_the_registration_back_and_tries_until_it_is() -> None:
    world = World()
    (name,) = world.listening(1)
    step = world.exited(name)
    (command,) = of(step.commands, cm.Deregister)
    pauses = []
    for _ in range(3):
        world.deregistered(command, FenceAnswer.REFUSED)
        before = world.now
        while not (again := of(world.wait(SECOND), cm.Deregister)):
            assert world.now - before < 20 * MINUTE
        command = again[0]
        pauses.append(world.now - before)
    assert pauses == sorted(pauses)
    world.deregistered(command)
    assert world.runner(name).unregister is False
    assert of(world.wait(HOUR), cm.Deregister) == []


def test_leftovers_are_ended_under_a_permit_of_their_own_and_hold_the_slot_meanwhile() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED)
    step = world.exited(name, 0, leftovers=2)
    (destroy,) = of(step.commands, cm.Destroy)
    assert (destroy.permit.warrant, destroy.permit.environment) == (Warrant.ENDED, f"env-{name}")
    assert (world.runner(name).state, world.held) == (S.RETIRING, 1)
    world.destroyed(destroy)
    assert (world.runner(name).state, world.held) == (S.GONE, 0)
    assert of(world.wait(10 * MINUTE), cm.Destroy) == [], "nothing is left to be removed"


def test_a_permit_for_leftovers_that_lapsed_unused_is_given_again() -> None:
    """The exit is proven: nothing is to be looked at, and no other state is to be waited in."""
    world = World()
    (name,) = world.listening(1)
    (destroy,) = of(world.exited(name, 0, leftovers=2).commands, cm.Destroy)
    world.now += 11 * SECOND
    lapsed = Fault(Remedy.REFUSED, "the permit is expired or from another process life")
    step = world.feed(ev.DestroyFailed(name, destroy.permit.environment, lapsed))
    (again,) = of(step.commands, cm.Destroy)
    assert again.permit.made == world.now
    step = world.feed(ev.DestroyFailed(name, destroy.permit.environment, lapsed))
    assert of(step.commands, cm.Destroy) == []  # refused at once: not because it came too late
    assert world.runner(name).state is S.ABANDONED


def test_leftovers_told_before_the_start_was_answered_are_ended_when_it_is() -> None:
    """The exit can overtake the answer to the start, which alone says what the environment is called."""
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    step = world.exited(name, 1, leftovers=2)
    assert of(step.commands, cm.Destroy) == []
    step = world.started(name)
    (destroy,) = of(step.commands, cm.Destroy)
    assert (destroy.permit.warrant, destroy.permit.environment) == (Warrant.ENDED, f"env-{name}")


def test_an_environment_whose_reference_was_never_told_is_not_cleaned_up() -> None:
    world = World()
    (name,) = world.planned(1)
    t = Turn(world.core.state, world.now)
    gate.clean_up(t, world.runner(name))
    step = t.step()
    assert (step.commands, step.changed) == ((), ())


def test_an_exit_that_overtakes_the_answer_to_the_start_is_tidied_and_forgotten() -> None:
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.exited(name, 1)
    world.started(name)
    (destroy,) = [c for c in of(world.sent, cm.Destroy) if c.permit.runner == name]
    world.destroyed(destroy)
    for command in of(world.sent, cm.Deregister):
        world.deregistered(command)
    world.wait(HOUR + MINUTE)
    assert not world.knows(name)


def test_an_exit_of_which_no_environment_was_ever_told_is_forgotten_too() -> None:
    world = World(pool(fence=FenceKind.NONE))
    (name,) = world.planned(1)
    world.registered(name)
    world.registrations.clear()
    world.exited(name, 1)
    world.wait(HOUR + MINUTE)
    assert not world.knows(name)


def test_remains_are_removed_although_the_registration_is_still_refused() -> None:
    world = World()
    (name,) = world.listening(1)
    step = world.exited(name)
    (destroy,) = of(step.commands, cm.Destroy)
    world.feed(ev.DestroyFailed(name, destroy.permit.environment, BROKEN))
    world.deregistered(of(step.commands, cm.Deregister)[0], FenceAnswer.REFUSED)
    again = [c for c in of(world.wait(61 * SECOND), cm.Destroy) if c.permit.runner == name]
    assert len(again) == 1


def test_an_exit_told_while_retiring_ends_it() -> None:
    world = World()
    (name,) = world.listening(1)
    world.exited(name, 0, leftovers=1)
    world.exited(name, 0)
    assert (world.runner(name).state, world.runner(name).cleanup) == (S.GONE, True)


def test_an_exit_with_leftovers_while_retiring_frees_no_slot_before_they_are_gone() -> None:
    """The listener leaves at the stop, and the follower tells so while its job's processes still run."""
    world = World(pool(surplus_grace=0), slots=1)
    (name,) = world.listening(1)
    world.completed(1, how="cancelled")
    world.probed(world.last(cm.ProbeRunner), seen())
    world.deregistered(world.last(cm.Deregister))
    world.wait(5 * SECOND)
    world.probed(world.last(cm.ProbeRunner), seen())
    destroy = world.last(cm.Destroy)
    assert world.exited(name, 0, leftovers=2).commands == ()
    assert (world.runner(name).state, world.held, world.runner(name).exit_code) == (S.RETIRING, 1, 0)
    assert world.exited(name, 0, leftovers=1).commands == ()
    world.destroyed(destroy)
    assert (world.runner(name).state, world.held) == (S.GONE, 0)


def test_leftovers_that_would_not_die_are_abandoned_although_the_listener_left() -> None:
    world = World(slots=1)
    name, destroy = retiring(world, 1)
    world.exited(name, 0, leftovers=1)
    world.feed(ev.DestroyFailed(name, destroy.permit.environment, BROKEN))
    assert (world.runner(name).state, world.held) == (S.ABANDONED, 0)
    again = world.exited(name, 0, leftovers=1)
    assert [command.permit.warrant for command in of(again.commands, cm.Destroy)] == [Warrant.ENDED]
    assert world.runner(name).state is S.ABANDONED
    world.destroyed(of(again.commands, cm.Destroy)[0])
    assert world.runner(name).state is S.GONE


# -- abandoned -----------------------------------------------------------------------------------------


def retiring(world: World, number: int) -> tuple[RunnerId, cm.Destroy]:
    """Have a runner be destroyed: its job is over and it left processes behind."""
    (name,) = world.listening(number)
    world.in_progress(number, name)
    world.completed(number, name)
    step = world.exited(name, 0, leftovers=1)
    return name, of(step.commands, cm.Destroy)[0]


def test_what_does_not_die_in_70_s_is_abandoned_and_its_slot_given_back() -> None:
    world = World(slots=1)
    name, _ = retiring(world, 1)
    world.wait(70 * SECOND - 1)
    assert (world.runner(name).state, world.held) == (S.RETIRING, 1)
    world.wait(1)
    row = world.runner(name)
    assert (row.state, world.held) == (S.ABANDONED, 0)
    assert world.core.state.index.abandoned == {"here": 1}
    assert world.counter("abandoned_total|host=here") == 1
    assert len(world.planned(2)) == 1


def test_a_runtime_that_says_so_abandons_at_once() -> None:
    world = World()
    name, destroy = retiring(world, 1)
    world.feed(ev.DestroyFailed(name, destroy.permit.environment, BROKEN))
    assert world.runner(name).state is S.ABANDONED
    assert "the disk is full" in world.runner(name).stuck
    assert "an environment would not die and is abandoned" in world.notes


def test_fp_56_two_abandoned_stop_the_host_and_health_says_what_to_do() -> None:
    world = World(slots=4)
    for number in (1, 2):
        name, destroy = retiring(world, number)
        world.feed(ev.DestroyFailed(name, destroy.permit.environment, BROKEN))
    assert world.planned(3) == []
    health = assess(world.core.state, world.now)
    assert health.status == "stuck"
    assert "2 environments would not die" in health.reasons[0]


def test_a_late_end_of_an_abandoned_environment_is_gone_and_counted_once() -> None:
    world = World(slots=1)
    name, destroy = retiring(world, 1)
    world.wait(70 * SECOND)
    assert world.runner(name).state is S.ABANDONED
    world.queued(2)
    held = world.held
    world.destroyed(destroy)
    world.destroyed(destroy)
    assert (world.runner(name).state, world.held) == (S.GONE, held)
    assert world.core.state.index.abandoned == {}
    assert world.counter("abandoned_total|host=here") == 1


def test_work_resumes_by_itself_when_a_person_ended_what_was_abandoned() -> None:
    """The environment is removed by hand: two complete listings, a minute apart, do not show it."""
    world = World(slots=4)
    for number in (1, 2):
        name, destroy = retiring(world, number)
        world.feed(ev.DestroyFailed(name, destroy.permit.environment, BROKEN))
    assert world.planned(3) == []
    world.environments.clear()
    world.wait(7 * MINUTE)
    assert world.core.state.index.abandoned == {}
    assert world.count(cm.Register) == 3


def test_an_answer_about_another_environment_of_the_runner_is_not_meant() -> None:
    world = World()
    name, _ = retiring(world, 1)
    world.feed(ev.EnvironmentDestroyed(name, "another"))
    world.feed(ev.DestroyFailed(name, "another", BROKEN))
    assert world.runner(name).state is S.RETIRING


def test_a_polite_stop_that_is_answered_is_no_end() -> None:
    """The listener was asked to stop and did as it likes: only its exit ends the runner."""
    world = World(pool(job_timeout=20 * MINUTE))
    (name,) = world.listening(1)
    world.in_progress(1, name)
    for command in of(world.wait(20 * MINUTE), cm.ProbeRunner):
        world.probed(command, seen(workers=1))
    stop = world.last(cm.Destroy)
    assert stop.permit.polite
    before = world.runner(name)
    assert world.feed(ev.EnvironmentDestroyed(name, stop.permit.environment)).changed == ()
    assert world.runner(name) == before


def test_a_failure_told_after_it_was_abandoned_changes_nothing() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.exited(name, leftovers=1)
    failed = ev.DestroyFailed(name, f"env-{name}", Fault(Remedy.BROKEN, "it would not die"))
    world.feed(failed)
    assert world.runner(name).state is S.ABANDONED
    assert world.feed(failed).changed == ()
    assert world.counter("abandoned_total|host=here") == 1


def test_a_busy_flag_says_nothing_new_of_a_runner_with_a_hard_sign() -> None:
    """It was looked up while it listened; when the answer comes, its job runs."""
    world = World()
    (name,) = world.listening(1)
    world.wait(30 * SECOND)
    question = world.last(cm.LookUpRunner)
    world.in_progress(1, name)
    before = world.runner(name)
    world.feed(ev.RunnerLookedUp(name, question.token, busy=True, connected=True))
    after = world.runner(name)
    assert (after.signs, after.soft_last, after.state) == (before.signs, before.soft_last, S.RUNNING)


def test_the_exit_of_an_abandoned_one_is_written_down_though_processes_live_on() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.exited(name, leftovers=1)
    world.feed(ev.DestroyFailed(name, f"env-{name}", Fault(Remedy.BROKEN, "it would not die")))
    step = world.exited(name, code=7, leftovers=2)
    (command,) = of(step.commands, cm.Destroy)
    assert command.permit.warrant is Warrant.ENDED
    assert (world.runner(name).state, world.runner(name).exit_code) == (S.ABANDONED, 7)


# -- what is told late, or twice -----------------------------------------------------------------------


def test_a_failed_start_that_is_told_after_the_end_has_nobody_listed() -> None:
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.feed(ev.StartFailed(name, BROKEN))
    assert world.feed(ev.StartFailed(name, BROKEN)).changed == ()


def test_a_failed_start_of_one_whose_environment_is_known_changes_nothing() -> None:
    world = World()
    (name,) = world.listening(1)
    assert world.feed(ev.StartFailed(name, NO_ANSWER)).changed == ()


def test_the_host_of_a_start_that_returned_too_late_is_listed_at_once() -> None:
    """Until its environment is found, nobody could end what was started."""
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.sign(name, Sign.LISTENING)
    world.feed(ev.StartFailed(name, NO_ANSWER))
    assert of(world.wait(1), cm.ListEnvironments) == [cm.ListEnvironments("here")]


def test_an_exit_is_what_its_code_says_although_a_listing_had_missed_it() -> None:
    """Who follows it knows better than a listing that raced with its end."""
    world = World()
    (name,) = world.listening(1)
    world.lists = False
    world.now += SECOND
    world.feed(ev.EnvironmentsListed("here", (), complete=True))
    assert world.runner(name).absent is not None
    world.exited(name, 3)
    row = world.runner(name)
    assert (row.ending, row.exit_code, row.cleanup) == ("ended by itself with code 3", 3, True)
    assert world.counter("ended_without_a_job_total|pool=small") == 1


def test_leftovers_of_what_a_listing_had_missed_are_ended_all_the_same() -> None:
    world = World()
    (name,) = world.listening(1)
    world.lists = False
    world.now += SECOND
    world.feed(ev.EnvironmentsListed("here", (), complete=True))
    assert world.runner(name).absent is not None
    (destroy,) = of(world.exited(name, None, leftovers=1).commands, cm.Destroy)
    assert destroy.permit.environment == f"env-{name}"
    assert (world.runner(name).state, world.runner(name).cleanup) == (S.RETIRING, True)
    assert "an environment is gone without a word" not in world.notes


def test_one_without_a_word_that_no_listing_missed_is_tidied_up() -> None:
    """Its exit code is not known; that it is gone with its remains is not said thereby."""
    world = World()
    (name,) = world.listening(1)
    (destroy,) = of(world.exited(name, None).commands, cm.Destroy)
    assert destroy.permit.environment == f"env-{name}"
    assert world.runner(name).ending == "ended by itself with code None"


# -- who left without a job ----------------------------------------------------------------------------


def ended_without_a_job(world: World) -> int:
    return world.counter("ended_without_a_job_total|pool=small")


def test_an_exit_after_an_accepted_deregistration_is_no_exit_without_a_job() -> None:
    """We took its registration: that it leaves is what was to be."""
    world = World(pool(surplus_grace=0))
    (name,) = world.listening(1)
    world.completed(1, how="cancelled")
    world.probed(world.last(cm.ProbeRunner))
    world.deregistered(world.last(cm.Deregister))
    world.exited(name)
    assert (ended_without_a_job(world), world.core.state.pools["small"].exits) == (0, 0)
    assert world.count(cm.Deregister) == 1, "nothing is left to be taken back"


def test_an_exit_of_what_is_being_destroyed_is_no_exit_without_a_job() -> None:
    world = World(pool(surplus_grace=0, fence=FenceKind.NONE))
    (name,) = world.listening(1)
    world.completed(1, how="cancelled")
    world.probed(world.last(cm.ProbeRunner))
    world.wait(5 * SECOND)
    world.probed(world.last(cm.ProbeRunner))
    assert world.runner(name).state is S.RETIRING
    world.exited(name, 137)
    assert (ended_without_a_job(world), world.core.state.pools["small"].exits) == (0, 0)


def test_an_exit_of_what_the_store_did_not_know_is_no_exit_without_a_job() -> None:
    """Nobody knows whether it had one: the pool is not slowed down for it."""
    world = World()
    stray = RunnerId("eph-s1-e0-7")
    found = ev.FoundEnvironment(stray, "env-stray", "small", ended=False)
    world.feed(ev.EnvironmentsListed("here", (found,), complete=True))
    world.exited(stray, 0)
    assert world.runner(stray).state is S.GONE
    assert (ended_without_a_job(world), world.core.state.pools["small"].exits) == (0, 0)


def test_a_pool_that_backs_off_from_failed_starts_does_so_to_the_end() -> None:
    """An exit without a job in between, whose replacement would come at once, does not shorten it."""
    world = World(slots=3)
    listens, fails = world.planned(1, 2)
    world.registered(listens)
    world.started(listens)
    world.sign(listens, Sign.OFFERED)
    world.registered(fails)
    world.feed(ev.StartFailed(fails, BROKEN))
    until = world.core.state.pools["small"].not_before
    assert until > world.now
    assert of(world.exited(listens).commands, cm.Register) == []
    assert world.core.state.pools["small"].not_before == until


def test_why_a_pool_waits_and_how_its_runner_left_can_be_read() -> None:
    world = World()
    (name,) = world.listening(1)
    world.exited(name, 1)
    row = world.core.state.pools["small"]
    assert row.why == "ended without a job"
    assert "1" in row.left
    assert "runner ended without a job" in world.notes


def test_failed_starts_are_counted_by_pool() -> None:
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.feed(ev.StartFailed(name, BROKEN))
    assert world.counter("start_failures_total|pool=small") == 1
    assert "a runner could not be made" in world.notes


def test_what_was_begun_before_a_failure_and_fails_too_is_no_second_one_in_a_row() -> None:
    """Ten starts that one hiccup ends are one reason to pause, not ten."""
    world = World(slots=4)
    tried = world.planned(1, 2, 3, 4)
    for name in tried:
        world.registered(name)
    world.feed(ev.StartFailed(tried[0], BROKEN))
    until = world.core.state.pools["small"].not_before
    world.feed(ev.StartFailed(tried[1], Fault(Remedy.BROKEN, "another")))
    row = world.core.state.pools["small"]
    assert (row.failures, row.not_before, row.why) == (1, until, "another")
    assert world.counter("start_failures_total|pool=small") == 2
    world.wait(36 * SECOND)
    world.feed(ev.StartFailed(tried[2], BROKEN))
    assert world.core.state.pools["small"].failures == 1, "however late it fails"
    world.feed(ev.RegistrationFailed(world.last(cm.Register).runner, BROKEN))
    row = world.core.state.pools["small"]
    assert row.failures == 2, "this one was begun after it"
    assert 48 * SECOND <= row.not_before - world.now <= 72 * SECOND


def test_a_start_that_fails_after_a_listener_came_is_the_first_failure_again() -> None:
    world = World(slots=4)
    tried = world.planned(1, 2, 3)
    for name in tried:
        world.registered(name)
    world.feed(ev.StartFailed(tried[0], BROKEN))
    world.started(tried[1])
    world.sign(tried[1], Sign.LISTENING)
    world.feed(ev.StartFailed(tried[2], BROKEN))
    assert world.core.state.pools["small"].failures == 1


def test_runners_that_ended_without_a_job_are_counted_as_wasted_and_others_are_not() -> None:
    world = World()
    busy, idle = world.listening(1, 2)
    world.in_progress(1, busy)
    world.completed(1, busy)
    world.exited(busy)
    assert world.counter("wasted_dispatches_total|pool=small") == 0
    world.exited(idle)
    assert world.counter("wasted_dispatches_total|pool=small") == 1


# -- what is gone --------------------------------------------------------------------------------------


def test_one_that_is_gone_is_shown_as_stuck_no_more() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED)
    world.wait(15 * MINUTE)
    assert world.runner(name).stuck
    world.exited(name)
    assert (world.runner(name).state, world.runner(name).stuck) == (S.GONE, "")


def test_one_that_left_over_is_not_left_over_when_it_is_gone() -> None:
    world = World()
    (name,) = world.listening(1)
    world.completed(1, how="cancelled")
    assert world.runner(name).surplus_since is not None
    world.exited(name)
    assert world.runner(name).surplus_since is None


def test_one_that_ended_with_an_offer_alone_stands_for_no_demand() -> None:
    """It never had a worker: the job that it was offered needs another runner at once."""
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.OFFERED)
    assert world.runner(name).consumes
    step = world.exited(name)
    assert not world.runner(name).consumes
    assert len(of(step.commands, cm.Register)) == 1


def test_one_that_ended_with_a_job_without_a_name_stands_for_it_until_that_is_known() -> None:
    """The job still reads as queued: another runner for it would be one too many."""
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.WORKER)
    step = world.exited(name)
    assert world.runner(name).consumes
    assert of(step.commands, cm.Register) == []


def test_remains_that_could_not_be_removed_are_tried_again_after_a_minute() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    (destroy,) = of(world.exited(name).commands, cm.Destroy)
    world.wait(30 * SECOND)
    world.feed(ev.DestroyFailed(name, destroy.permit.environment, BROKEN))
    assert of(world.wait(59 * SECOND), cm.Destroy) == []
    assert len(of(world.wait(SECOND), cm.Destroy)) == 1


def test_a_listener_that_could_not_be_asked_to_stop_is_told_and_runs_on() -> None:
    world = World(pool(job_timeout=20 * MINUTE))
    (name,) = world.listening(1)
    world.in_progress(1, name)
    for command in of(world.wait(20 * MINUTE), cm.ProbeRunner):
        world.probed(command, seen(workers=1))
    stop = world.last(cm.Destroy)
    assert stop.permit.polite
    step = world.feed(ev.DestroyFailed(name, stop.permit.environment, BROKEN))
    assert [note.text for note in step.notes] == ["the listener could not be asked to stop"]
    assert world.runner(name).state is S.RUNNING


def test_what_is_abandoned_stands_for_no_demand() -> None:
    world = World(pool(surplus_grace=0), slots=3)
    (name,) = world.listening(1)
    world.sign(name, Sign.WORKER)
    (destroy,) = of(world.exited(name, 0, leftovers=1).commands, cm.Destroy)
    world.feed(ev.DestroyFailed(name, destroy.permit.environment, BROKEN))
    assert world.runner(name).state is S.ABANDONED
    assert not world.runner(name).consumes


# -- a registration that is looked up ------------------------------------------------------------------


def looked_up(world: World) -> tuple[RunnerId, cm.LookUpRunner]:
    """One listens for a while and is looked up."""
    (name,) = world.listening(1)
    (command,) = of(world.wait(MINUTE), cm.LookUpRunner)
    assert command.runner == name
    return name, command


def test_a_look_up_without_an_answer_is_repeated_after_a_minute() -> None:
    world = World()
    name, command = looked_up(world)
    world.feed(ev.RunnerLookedUp(name, command.token, fault=Fault(Remedy.REFUSED, "not today")))
    assert world.runner(name).vetoed_until == world.now + MINUTE
    assert of(world.wait(MINUTE - 1), cm.LookUpRunner) == []
    assert len(of(world.wait(1), cm.LookUpRunner)) == 1


def test_a_registration_that_is_there_again_was_not_lost() -> None:
    world = World()
    name, command = looked_up(world)
    world.feed(ev.ScopeAnswered(APP))
    world.feed(ev.RunnerLookedUp(name, command.token, missing=True))
    assert world.runner(name).lost == world.now
    again = of(world.wait(MINUTE), cm.LookUpRunner)[-1]
    world.feed(ev.RunnerLookedUp(name, again.token, busy=False, connected=True))
    row = world.runner(name)
    assert (row.lost, row.lost_again, row.untaken) == (None, None, world.now)
    assert name in world.core.state.index.supply["small"]


def test_not_found_by_a_scope_that_does_not_answer_says_nothing() -> None:
    world = World()
    name, command = looked_up(world)
    world.now += 2 * MINUTE
    world.lists = False
    world.feed(ev.RunnerLookedUp(name, command.token, missing=True))
    row = world.runner(name)
    assert (row.lost, row.vetoed_until) == (None, world.now + MINUTE)
    assert name in world.core.state.index.supply["small"]


def test_an_answer_to_an_older_look_up_changes_nothing() -> None:
    world = World()
    name, command = looked_up(world)
    before = world.runner(name)
    world.feed(ev.RunnerLookedUp(name, command.token + 1, busy=True, connected=True))
    assert world.runner(name) == before


# -- what an exit leaves to be done --------------------------------------------------------------------


def missed(world: World) -> None:
    """A complete listing shows nothing of what runs here."""
    world.now += SECOND
    world.feed(ev.EnvironmentsListed("here", (), complete=True))


def test_what_is_gone_without_a_word_is_said_to_be() -> None:
    world = World(lists=False)
    (name,) = world.listening(1)
    missed(world)
    world.exited(name, None)
    assert "an environment is gone without a word" in world.notes
    assert world.count(cm.Destroy) == 0, "there is nothing to be removed"


def test_remains_that_were_to_be_removed_are_so_although_no_listing_shows_them() -> None:
    """Its leftovers were being ended; that a listing misses it takes neither its story nor its folder away."""
    world = World(lists=False)
    (name,) = world.listening(1)
    world.exited(name, 0, leftovers=1)
    before = world.runner(name).ending
    missed(world)
    (destroy,) = of(world.exited(name, None).commands, cm.Destroy)
    assert destroy.permit.environment == f"env-{name}"
    row = world.runner(name)
    assert (row.state, row.cleanup, row.ending) == (S.GONE, True, before)
    assert "processes behind" in before


def test_an_exit_with_leftovers_is_no_loss_when_its_end_is_told_without_a_code() -> None:
    """A listing had missed it; the exit was proven since, so that nothing of it is lost without a word."""
    world = World(lists=False)
    (name,) = world.listening(1)
    missed(world)
    world.exited(name, None, leftovers=1)
    assert world.runner(name).absent is None
    world.exited(name, None)
    assert "an environment is gone without a word" not in world.notes


def test_remains_are_removed_at_the_exit_although_the_runner_was_to_be_left_alone_for_a_while() -> None:
    """A veto keeps rules away from a runner for up to a minute; there is nobody to be left alone any more."""
    world = build.World()
    name = world.running()
    world.kill(name)
    world.probed(name, build.BUSY)
    assert world.row(name).vetoed_until > world.now
    (destroy,) = of(world.exits(name).commands, cm.Destroy)
    assert destroy.permit.warrant is Warrant.ENDED


def test_leftovers_told_twice_are_ended_under_one_permit() -> None:
    world = World()
    (name,) = world.listening(1)
    assert len(of(world.exited(name, 0, leftovers=2).commands, cm.Destroy)) == 1
    assert world.exited(name, 0, leftovers=1).commands == ()
    assert world.runner(name).state is S.RETIRING


def test_leftovers_of_one_that_is_looked_at_once_more_are_ended_at_once() -> None:
    """Its permit had lapsed, and the second look at it was out: the exit proves more than that could."""
    world = build.World()
    name = world.retiring()
    world.handle(ev.DestroyFailed(name, f"env-{name}", Fault(Remedy.REFUSED, "the permit has expired")))
    assert world.gate(name).phase is GatePhase.REPROBING
    (destroy,) = of(world.exits(name, 0, leftovers=1).commands, cm.Destroy)
    assert (destroy.permit.warrant, world.row(name).gate) == (Warrant.ENDED, None)


def test_leftovers_of_one_that_was_just_nominated_end_its_pass_through_the_gate() -> None:
    """The answer to its probe comes too late to matter, and its slot is given back within the limit."""
    world = build.World()
    name = world.at_gate()
    token = world.gate(name).token
    world.exits(name, 0, leftovers=1)
    assert (world.state(name), world.row(name).gate) == ("retiring", None)
    world.handle(ev.Probed(name, token, build.IDLE))
    world.wait(70 * SECOND)
    assert world.state(name) == "abandoned"


def test_by_which_rule_one_is_destroyed_can_be_read_after_its_listener_left() -> None:
    world = build.World()
    name = world.retiring()
    world.exits(name, 0, leftovers=1)
    assert (world.state(name), world.rules(name)) == ("retiring", "surplus")


# -- registrations that are left -----------------------------------------------------------------------


def forced(fence: FenceAnswer = FenceAnswer.NO_ANSWER) -> tuple[build.World, RunnerId]:
    """A person had a listener ended by force, and the forge did not say whether it was deregistered."""
    world = build.World()
    name = world.listening()
    world.kill(name, force=True)
    world.probed(name)
    world.fenced(name, fence, NO_ANSWER if fence is FenceAnswer.NO_ANSWER else None)
    world.wait(1)
    world.probed(name)
    assert world.state(name) == "retiring"
    return world, name


def taken_back(world: build.World, name: RunnerId) -> list[cm.Deregister]:
    """Return the requests of the next minutes, of which the first is the one of the gate."""
    world.vouch()
    world.wait(2 * MINUTE)
    return world.commands(cm.Deregister, name)[1:]


def test_a_registration_of_which_nothing_was_heard_is_taken_back_when_its_runner_is_destroyed() -> None:
    world, name = forced()
    world.destroyed(name)
    assert taken_back(world, name)


def test_a_registration_of_which_nothing_was_heard_is_taken_back_when_its_runner_is_abandoned() -> None:
    world, name = forced()
    world.handle(ev.DestroyFailed(name, f"env-{name}", BROKEN))
    assert world.state(name) == "abandoned"
    assert taken_back(world, name)


def test_a_registration_that_was_not_found_twice_is_not_asked_for_again() -> None:
    world, name = missed_twice()
    asked = len(world.commands(cm.Deregister, name))
    world.exits(name)
    world.wait(2 * MINUTE)
    assert len(world.commands(cm.Deregister, name)) == asked


def test_an_answer_to_a_registration_shows_that_the_forge_is_there() -> None:
    world = World()
    (name,) = world.planned(1)
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    assert world.core.state.scope(APP).silent is not None
    world.registered(name)
    assert world.core.state.scope(APP).silent is None


def test_an_age_counts_from_the_registration_and_not_from_the_plan() -> None:
    world = World()
    (name,) = world.planned(1)
    world.now += 20 * SECOND
    world.registered(name)
    assert world.runner(name).started == world.now


# -- a host that is listed out of turn -----------------------------------------------------------------


def test_a_listing_that_is_never_answered_is_asked_for_again_although_a_start_returned_too_late() -> None:
    world = World(lists=False)
    (name,) = world.planned(1)
    world.registered(name)
    world.sign(name, Sign.LISTENING)
    assert world.core.state.hosts["here"].asked is not None
    world.feed(ev.StartFailed(name, NO_ANSWER))
    assert len(of(world.wait(5 * MINUTE), cm.ListEnvironments)) == 1


# -- what cannot be ended ------------------------------------------------------------------------------


def test_remains_that_could_not_be_removed_are_not_tried_again_in_the_same_breath() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    (destroy,) = of(world.exited(name, None).commands, cm.Destroy)
    step = world.feed(ev.DestroyFailed(name, destroy.permit.environment, BROKEN))
    assert of(step.commands, cm.Destroy) == []


@pytest.mark.parametrize(("after", "again"), [(10 * SECOND - 1, False), (10 * SECOND, True)])
def test_a_permit_for_leftovers_is_given_again_only_when_it_had_lapsed(after: int, again: bool) -> None:
    world = World()
    (name,) = world.listening(1)
    (destroy,) = of(world.exited(name, 0, leftovers=2).commands, cm.Destroy)
    world.now += after
    lapsed = Fault(Remedy.REFUSED, "the permit is expired or from another process life")
    sent = of(world.feed(ev.DestroyFailed(name, destroy.permit.environment, lapsed)).commands, cm.Destroy)
    assert (len(sent), world.runner(name).state) == ((1, S.RETIRING) if again else (0, S.ABANDONED))
    assert ["lapsed" in command.permit.evidence[0].detail for command in sent] == [True] * len(sent)


def test_leftovers_that_would_not_die_are_abandoned_however_late_that_is_told() -> None:
    world = World()
    (name,) = world.listening(1)
    (destroy,) = of(world.exited(name, 0, leftovers=2).commands, cm.Destroy)
    world.now += 30 * SECOND
    step = world.feed(ev.DestroyFailed(name, destroy.permit.environment, BROKEN))
    assert (of(step.commands, cm.Destroy), world.runner(name).state) == ([], S.ABANDONED)


def test_an_environment_that_would_not_die_under_its_permit_is_abandoned_at_once() -> None:
    world = build.World()
    name = world.retiring()
    world.handle(ev.DestroyFailed(name, f"env-{name}", BROKEN))
    assert (world.state(name), world.row(name).gate) == ("abandoned", None)


def test_how_one_was_ended_is_told_although_it_was_abandoned_first() -> None:
    world = build.World()
    name = world.retiring()
    before = world.row(name).ending
    assert before.startswith("surplus: ")
    world.wait(70 * SECOND)
    world.destroyed(name)
    assert (world.state(name), world.row(name).ending) == ("gone", before)


# -- answers to look-ups -------------------------------------------------------------------------------


def test_one_whose_registration_is_not_known_is_not_looked_up() -> None:
    world = World()
    stray = RunnerId("eph-s1-e0-7")
    world.environments[stray] = ev.FoundEnvironment(stray, "env-stray", "small", ended=False)
    world.feed(ev.EnvironmentsListed("here", (world.environments[stray],), complete=True))
    world.probed(world.last(cm.ProbeRunner))
    world.sign(stray, Sign.LISTENING)
    world.queued(1)
    world.wait(50 * SECOND)
    assert (world.runner(stray).state, world.runner(stray).registration) == (S.LISTENING, None)
    assert of(world.sent, cm.LookUpRunner) == []


def test_nobody_is_looked_up_while_the_forge_limits_our_requests() -> None:
    world = World()
    world.listening(1)
    world.feed(ev.ScopeAnswered(APP, limited_until=world.now + 5 * MINUTE))
    assert of(world.wait(5 * MINUTE - 1), cm.LookUpRunner) == []
    assert len(of(world.wait(1), cm.LookUpRunner)) == 1


def unprobed(**changes: Any) -> build.World:
    return build.World(build.pool(probes=False, **changes), answers=False)


def test_an_older_look_up_that_is_answered_at_last_is_no_busy_flag() -> None:
    """The gate asks for itself; what was asked before is older than its question."""
    world = unprobed(surplus_grace=MINUTE)
    name = world.listening()
    world.list_jobs()
    world.wait(30 * SECOND)
    (older,) = world.commands(cm.LookUpRunner, name)
    world.discharge(name)
    world.wait(MINUTE)
    assert world.gate(name).phase is GatePhase.ASKING
    world.handle(ev.RunnerLookedUp(name, older.token, busy=False, connected=True))
    assert world.gate(name).phase is GatePhase.ASKING
    assert world.row(name).untaken == world.now


def test_a_busy_flag_that_is_told_twice_is_one_answer() -> None:
    """A forge that has no fence: the settling begins at the first answer, and not anew at the second."""
    world = unprobed(fence=FenceKind.NONE)
    name = world.spare()
    world.list_jobs()
    world.wait(10 * MINUTE)
    question = world.commands(cm.LookUpRunner, name)[-1]
    assert world.gate(name).phase is GatePhase.ASKING
    answer = ev.RunnerLookedUp(name, question.token, busy=False, connected=True)
    world.handle(answer)
    before = world.gate(name)
    assert before.phase is GatePhase.SETTLING
    world.now += SECOND
    world.handle(answer)
    assert world.gate(name) == before


def test_a_registration_that_is_gone_need_not_be_taken_back() -> None:
    """It was looked up while it listened, and ended while the forge limited our requests."""
    world = World()
    name, question = looked_up(world)
    world.feed(ev.ScopeAnswered(APP, limited_until=world.now + MINUTE))
    world.exited(name)
    assert world.runner(name).unregister
    world.feed(ev.ScopeAnswered(APP))
    world.feed(ev.RunnerLookedUp(name, question.token, missing=True))
    assert not world.runner(name).unregister
    assert [c for c in of(world.wait(5 * MINUTE), cm.Deregister) if c.intent.runner == name] == []


def test_a_registration_that_was_found_between_two_misses_is_not_missed_twice() -> None:
    """Two misses in a row let a runner go without its fence; one that is there meanwhile is not gone."""
    world = build.World(answers=False)
    name = world.listening()
    world.environments()
    world.wait(30 * SECOND)
    (question,) = world.commands(cm.LookUpRunner, name)
    not_found(world, name)
    assert world.row(name).fence.missing == world.now
    world.handle(ev.RunnerLookedUp(name, question.token, busy=False, connected=True))
    world.wait(2 * MINUTE)
    not_found(world, name)
    fence = world.row(name).fence
    assert (fence.missing, fence.missing_again) == (world.now, None)


def not_found(world: build.World, name: RunnerId) -> None:
    """A person wants a runner ended, and the forge does not find what it is to deregister."""
    world.kill(name)
    world.probed(name)
    world.vouch()
    world.fenced(name, FenceAnswer.NOT_FOUND)


def missed_twice() -> tuple[build.World, RunnerId]:
    """A listener whose registration two requests to deregister, a minute apart, did not find."""
    world = build.World(answers=False)
    name = world.listening()
    world.environments()
    for _ in range(2):
        not_found(world, name)
        world.wait(MINUTE + SECOND)
    assert world.row(name).fence.missing_again is not None
    return world, name


def test_a_registration_that_was_missed_twice_and_is_found_again_counts_from_the_beginning() -> None:
    world, name = missed_twice()
    world.probed(name, build.BUSY)
    world.wait(2 * MINUTE)
    question = world.commands(cm.LookUpRunner, name)[-1]
    world.handle(ev.RunnerLookedUp(name, question.token, busy=False, connected=True))
    assert (world.row(name).fence.missing, world.row(name).fence.missing_again) == (None, None)


def test_one_that_was_lost_and_is_found_again_is_not_spent() -> None:
    """It was not found twice; a job was offered to it all the same, and the look that followed found it."""
    world = build.World(answers=False)
    name = world.listening()
    world.environments()
    for _ in range(2):
        world.vouch()
        world.wait(MINUTE)
        question = world.commands(cm.LookUpRunner, name)[-1]
        world.vouch()
        world.handle(ev.RunnerLookedUp(name, question.token, missing=True))
    assert world.row(name).lost_again == world.now
    assert world.rules(name) == "spent"
    world.sign(name, Sign.OFFERED)
    world.probed(name, build.report(offered_at=world.now))
    world.wait(2 * MINUTE)
    question = world.commands(cm.LookUpRunner, name)[-1]
    world.handle(ev.RunnerLookedUp(name, question.token, busy=False, connected=True))
    assert (world.row(name).lost, world.row(name).lost_again) == (None, None)
    world.wait(14 * MINUTE)
    assert world.state(name) == "listening"
    assert world.counter("nominations_total|rule=spent") == 1


def test_a_registration_that_leaked_is_counted_when_it_is_given_up() -> None:
    world = World()
    stray = ev.FoundRegistration("eph-s1-e0-7", 300, busy=False, online=True)
    world.feed(ev.RegistrationsListed(APP, (stray,)))
    (question,) = of(world.wait(MINUTE), cm.LookUpRunner)
    world.feed(ev.RunnerLookedUp(question.runner, question.token, busy=False, connected=False))
    assert world.counter("nominations_total|rule=leaked") == 1


# -- a pool that rests ---------------------------------------------------------------------------------


def test_a_runner_that_left_for_its_version_ended_without_a_job() -> None:
    world = World()
    first, second = world.listening(1, 2)
    world.exited(first, REFUSED_VERSION)
    assert ended_without_a_job(world) == 1
    assert str(REFUSED_VERSION) in world.core.state.pools["small"].left
    said = [note for note in world.notes if "refuses the version" in note]
    assert len(said) == 1
    world.exited(second, REFUSED_VERSION)
    assert ended_without_a_job(world) == 2
    assert [note for note in world.notes if "refuses the version" in note] == said, "it is said once"


def test_an_application_that_is_there_again_ends_the_count_of_failures() -> None:
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.feed(ev.StartFailed(name, BROKEN))
    world.feed(ev.ApplicationTold("small", missing="it is being fetched"))
    world.feed(ev.ApplicationTold("small"))
    assert world.core.state.pools["small"].failures == 0
    assert "the runner application of a pool is there" in world.notes


def test_a_core_made_from_the_rows_wakes_when_a_pool_may_try_again() -> None:
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.deregistered(of(world.feed(ev.StartFailed(name, BROKEN)).commands, cm.Deregister)[0])
    until = world.core.state.pools["small"].not_before
    assert world.core.next_wake() == until
    assert world.reborn().next_wake() == until


def test_a_miss_that_is_told_twice_is_one_miss() -> None:
    """Two that are a minute apart let a runner go; a doubled answer is none of them."""
    world = World(lists=False)
    name, question = looked_up(world)
    miss = ev.RunnerLookedUp(name, question.token, missing=True)
    world.feed(ev.ScopeAnswered(APP))
    world.feed(miss)
    assert world.runner(name).lost == world.now
    world.now += MINUTE - 1
    world.feed(ev.ScopeAnswered(APP))
    world.feed(miss)
    assert world.runner(name).lost_again is None


@pytest.mark.parametrize(("busy", "doubts"), [(False, 1), (True, 0), (None, 0)])
def test_a_flag_that_contradicts_a_worker_that_was_seen_is_counted(busy: bool | None, doubts: int) -> None:
    """It was looked up while it listened; when the answer comes, its worker works since more than a minute."""
    world = World()
    name, question = looked_up(world)
    world.sign(name, Sign.WORKER)
    world.wait(MINUTE)
    world.feed(ev.RunnerLookedUp(name, question.token, busy=busy, connected=True))
    assert world.counter("flag_contradictions_total|pool=small") == doubts
