"""Signs of a job: hard ones latch until the runner is gone, soft ones for a quarter of an hour."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.turn import Turn
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus, Told
from ephemerd.domain.pool import Policy
from ephemerd.domain.runner import FenceAnswer, RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core import build
from tests.unit.core.build import RETRY
from tests.unit.core.world import HOUR, MINUTE, SECOND, World, key, of, report, seen

S = RunnerState


@pytest.mark.parametrize("sign", [Sign.OFFERED, Sign.ACKNOWLEDGED])
def test_a_soft_sign_assigns_and_takes_the_runner_out_of_supply(sign: Sign) -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, sign)
    row = world.runner(name)
    assert (row.state, row.soft, row.soft_last, row.hard) == (S.ASSIGNED, world.now, world.now, None)
    assert row.signs == 1
    assert world.core.state.index.supply["small"] == {}


@pytest.mark.parametrize("sign", [Sign.ANNOUNCED, Sign.WORKER])
@pytest.mark.parametrize("before", [None, Sign.LISTENING, Sign.OFFERED])
def test_a_hard_sign_skips_states_forward(sign: Sign, before: Sign | None) -> None:
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.started(name)
    if before is not None:
        world.sign(name, before)
    world.sign(name, sign)
    assert world.runner(name).state is S.RUNNING
    assert world.runner(name).hard == world.now


def test_signs_are_latched_and_each_raises_the_generation() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.OFFERED)
    first = world.now
    world.now += SECOND
    world.sign(name, Sign.ACKNOWLEDGED)
    world.now += SECOND
    world.sign(name, Sign.ANNOUNCED, "build")
    hard = world.now
    world.now += SECOND
    world.sign(name, Sign.WORKER)
    row = world.runner(name)
    assert (row.soft, row.soft_last) == (first, first + SECOND)
    assert (row.hard, row.hard_last, row.worker) == (hard, world.now, world.now)
    assert row.signs == 4


def test_a_soft_sign_after_a_hard_one_changes_no_state() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED)
    world.sign(name, Sign.OFFERED)
    assert world.runner(name).state is S.RUNNING


def test_a_soft_sign_lapses_after_a_quarter_of_an_hour() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.OFFERED)
    world.wait(15 * MINUTE - 1)
    assert world.runner(name).state is S.ASSIGNED
    world.wait(1)
    row = world.runner(name)
    assert (row.state, row.since, row.consumes, row.stuck) == (S.LISTENING, world.now, False, "")


def test_a_later_soft_sign_prolongs_it() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.OFFERED)
    world.wait(10 * MINUTE)
    world.sign(name, Sign.OFFERED)
    world.wait(14 * MINUTE)
    assert world.runner(name).state is S.ASSIGNED
    world.wait(MINUTE)
    assert world.runner(name).state is S.LISTENING


def test_a_soft_sign_before_listening_lapses_into_a_state_that_can_expire() -> None:
    """A runner whose `listening` line was never heard would else be no rule's: it would hold its slot for ever."""
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.started(name)
    world.sign(name, Sign.OFFERED)
    world.wait(15 * MINUTE)
    row = world.runner(name)
    assert (row.state, row.listening) == (S.LISTENING, world.now)
    (command,) = of(world.wait(MINUTE), cm.LookUpRunner)
    world.feed(ev.RunnerLookedUp(name, command.token, busy=False, connected=True))
    world.wait(9 * MINUTE)
    assert world.runner(name).nominations > 0


def test_a_runner_that_hung_is_looked_up_again_after_its_sign_lapsed_and_spent_when_missing() -> None:
    """Simulator, hostile, seed 1: it had been looked up before the offer, was supply again after the lapse,
    and kept its whole class back although its registration was long gone."""
    world = World()
    (name,) = world.listening(1)
    (command,) = of(world.wait(MINUTE), cm.LookUpRunner)
    world.feed(ev.RunnerLookedUp(name, command.token, busy=False, connected=True))
    world.sign(name, Sign.ACKNOWLEDGED)
    stuck, *_ = of(world.wait(2 * MINUTE), cm.LookUpRunner)
    world.feed(ev.RunnerLookedUp(name, stuck.token, busy=False, connected=True))
    world.wait(13 * MINUTE)
    assert world.runner(name).state is S.LISTENING
    for _ in range(4):
        for command in of(world.wait(MINUTE), cm.LookUpRunner):
            world.feed(ev.ScopeAnswered(command.scope))
            world.feed(ev.RunnerLookedUp(name, command.token, missing=True))
    assert world.core.state.counters["nominations_total|rule=spent"] > 0


def test_the_first_announcement_after_its_worker_was_seen_is_that_workers() -> None:
    """Simulator, hostile, seed 1: told late, after the end of the job, it made a finished runner run for ever."""
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.WORKER)
    world.in_progress(1, name)
    world.completed(1, name)
    assert world.runner(name).state is S.FINISHING
    world.sign(name, Sign.ANNOUNCED, "12:00:00Z: Running job: build")
    row = world.runner(name)
    assert (row.state, row.announced) == (S.FINISHING, "12:00:00Z: Running job: build")
    assert row.over is not None


def test_an_announcement_after_an_end_without_a_worker_is_another_job() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.completed(1, name, "cancelled")
    assert world.runner(name).state is S.FINISHING
    world.sign(name, Sign.ANNOUNCED, "12:00:00Z: Running job: test")
    assert (world.runner(name).state, world.runner(name).over) == (S.RUNNING, None)


def test_a_start_that_is_told_after_its_end_does_not_take_the_runner_from_its_job() -> None:
    """Simulator, hostile, seed 21: a job was started and cancelled in one batch, the runner took another, and
    the start of the first came last; when the other one ended, nobody knew that the runner was done."""
    world = World()
    (name,) = world.listening(1, 2)[:1]
    world.completed(1, name, "cancelled")
    world.in_progress(2, name)
    world.in_progress(1, name)
    assert (world.runner(name).state, world.runner(name).job) == (S.RUNNING, key(2))
    world.completed(2, name)
    assert (world.runner(name).state, world.runner(name).job) == (S.FINISHING, key(2))


def test_assigned_is_shown_as_stuck_after_two_minutes_and_looked_up_once() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ACKNOWLEDGED)
    assert of(world.wait(2 * MINUTE - 1), cm.LookUpRunner) == []
    sent = of(world.wait(1), cm.LookUpRunner)
    assert [command.runner for command in sent] == [name]
    assert "nothing followed" in world.runner(name).stuck
    world.feed(ev.RunnerLookedUp(name, sent[0].token, busy=False, connected=True))
    assert of(world.wait(4 * MINUTE), cm.LookUpRunner) == []


def test_running_without_a_worker_is_shown_as_stuck_until_one_is_seen() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED)
    world.wait(15 * MINUTE - 1)
    assert world.runner(name).stuck == ""
    world.wait(1)
    assert "no worker" in world.runner(name).stuck
    world.sign(name, Sign.WORKER)
    assert world.runner(name).stuck == ""


def test_running_is_no_longer_stuck_once_its_job_has_a_name() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED)
    world.wait(15 * MINUTE)
    world.in_progress(1, name)
    assert world.runner(name).stuck == ""


def test_ended_by_the_log_moves_to_finishing_and_destroys_nothing() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED, "build")
    step = world.sign(name, Sign.ENDED)
    row = world.runner(name)
    assert (row.state, row.over, row.over_via) == (S.FINISHING, world.now, "log")
    assert step.commands == ()


def test_the_forges_word_that_it_is_over_replaces_the_logs() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.sign(name, Sign.ENDED)
    first = world.now
    world.now += SECOND
    world.completed(1, name)
    row = world.runner(name)
    assert (row.over, row.over_via) == (first, "event")
    world.now += SECOND
    world.sign(name, Sign.ENDED)
    assert world.runner(name).over_via == "event"


def test_finishing_returns_to_running_on_another_announcement_only() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED, "build")
    world.sign(name, Sign.ENDED)
    world.sign(name, Sign.ANNOUNCED, "build")
    assert world.runner(name).state is S.FINISHING
    world.sign(name, Sign.WORKER)
    assert world.runner(name).state is S.FINISHING
    world.sign(name, Sign.ANNOUNCED, "test")
    row = world.runner(name)
    assert (row.state, row.over, row.over_via) == (S.RUNNING, None, "")


def test_finishing_returns_to_running_when_the_forge_names_it_for_another_job() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.completed(1, name)
    world.in_progress(2, name)
    row = world.runner(name)
    assert (row.state, row.over, row.job) == (S.RUNNING, None, key(2))


def test_a_late_in_progress_of_the_job_that_is_over_is_no_other_job() -> None:
    world = World()
    (name,) = world.listening(1)
    world.completed(1, name)
    world.in_progress(1, name)
    assert world.runner(name).state is S.FINISHING


def test_the_name_that_comes_after_the_log_told_the_end_is_no_other_job() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED, "build")
    world.sign(name, Sign.ENDED)
    world.in_progress(1, name)
    row = world.runner(name)
    assert (row.state, row.job) == (S.FINISHING, key(1))


def test_the_end_of_a_job_that_the_runner_had_before_changes_neither_name_nor_state() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.in_progress(2, name)
    world.completed(1, name)
    row = world.runner(name)
    assert (row.state, row.job, row.over) == (S.RUNNING, key(2), None)


def test_announcements_told_anew_after_a_restart_are_no_other_job() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED, "build (1)")
    world.sign(name, Sign.ENDED)
    over = world.runner(name).over
    world.restart()
    world.sign(name, Sign.LISTENING)
    world.sign(name, Sign.ANNOUNCED, "build (1)")
    world.sign(name, Sign.ENDED)
    row = world.runner(name)
    assert (row.state, row.over) == (S.FINISHING, over)


def test_fp_4_completion_while_the_worker_streams_destroys_nothing() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED)
    world.sign(name, Sign.WORKER)
    world.in_progress(1, name)
    world.completed(1, name)
    assert world.runner(name).state is S.FINISHING
    for command in of(world.wait(60 * SECOND), cm.ProbeRunner):
        world.probed(command, seen(workers=1))
    assert world.count(cm.Destroy) + world.count(cm.Deregister) == 0
    assert world.decisions[-1].outcome == "vetoed"


def test_fp_58_a_worker_that_outlives_its_job_is_shown_as_wedged() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.WORKER)
    world.completed(1, name)
    for _ in range(12):
        for command in of(world.wait(MINUTE), cm.ProbeRunner)[-1:]:
            world.probed(command, seen(workers=1))
    assert "worker lives on" in world.runner(name).stuck
    assert world.count(cm.Destroy) == 0


def test_signs_of_unknown_and_of_gone_runners_are_dropped() -> None:
    world = World()
    (name,) = world.listening(1)
    world.exited(name)
    before = world.runner(name)
    for sign in Sign:
        assert world.sign(name, sign).changed == ()
        assert world.sign(RunnerId("eph-s1-e1-999"), sign).changed == ()
    assert world.runner(name) == before


@pytest.mark.parametrize("sign", [sign for sign in Sign if sign is not Sign.SKIPPED])
def test_a_sign_before_there_can_be_an_environment_binds_nothing(sign: Sign) -> None:
    """No environment exists before the registration was answered: whatever tells so means another."""
    world = World()
    (name,) = world.planned(1)
    world.sign(name, sign, "build")
    row = world.runner(name)
    assert (row.state, row.hard, row.soft, row.over) == (S.REGISTERING, None, None, None)
    world.registered(name)
    assert world.runner(name).state is S.STARTING


@pytest.mark.parametrize("status", [ForgeStatus.IN_PROGRESS, ForgeStatus.COMPLETED])
def test_the_forge_naming_a_runner_that_is_still_registering_binds_nothing(status: ForgeStatus) -> None:
    world = World()
    (name,) = world.planned(1)
    world.told(report(1, status, runner_name=name))
    row = world.runner(name)
    assert (row.state, row.hard, row.over) == (S.REGISTERING, None, None)
    world.registered(name)
    assert world.runner(name).state is S.STARTING


def test_a_skipped_offer_is_noted_and_is_no_sign() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.SKIPPED)
    assert world.runner(name).signs == 0
    assert "the listener skipped a job that it was offered" in world.notes


def test_a_busy_flag_outside_the_gate_is_a_soft_sign() -> None:
    world = World()
    (name,) = world.listening(1)
    (command,) = of(world.wait(30 * SECOND), cm.LookUpRunner)
    world.feed(ev.RunnerLookedUp(name, command.token, busy=True, connected=True))
    assert world.runner(name).state is S.ASSIGNED


def test_the_first_sign_of_listening_counts_and_ends_the_pools_failures() -> None:
    world = World()
    (name,) = world.listening(1)
    first = world.runner(name).listening
    world.now += SECOND
    world.sign(name, Sign.LISTENING)
    assert world.runner(name).listening == first


def test_fp_17_a_late_listener_is_shown_as_late_no_more_but_stays_out_of_supply() -> None:
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.started(name)
    world.wait(5 * MINUTE)
    assert world.runner(name).late
    world.job_answer(world.last(cm.LookUpJob), ForgeStatus.QUEUED)
    assert world.count(cm.Register) == 2
    world.sign(name, Sign.LISTENING)
    row = world.runner(name)
    assert (row.state, row.late, row.stuck) == (S.LISTENING, True, "")
    assert name not in world.core.state.index.supply["small"]
    world.in_progress(1, name)
    assert world.runner(name).state is S.RUNNING


@pytest.mark.parametrize("sign", [Sign.OFFERED, Sign.ANNOUNCED])
def test_another_runner_is_not_made_for_the_job_that_one_was_offered(sign: Sign) -> None:
    """The job still reads as queued until the forge names the runner."""
    world = World()
    (name,) = world.listening(1)
    world.sign(name, sign)
    assert world.runner(name).consumes
    assert of(world.wait(30 * SECOND), cm.Register) == []


def test_one_that_has_a_named_job_stands_for_no_other() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.sign(name, Sign.OFFERED)
    world.sign(name, Sign.ANNOUNCED)
    assert not world.runner(name).consumes
    assert len(world.planned(2)) == 1


def test_only_its_own_files_make_a_runner_one_that_hangs() -> None:
    """A busy flag can be the forge's mistake: when it lapses, the runner is supply again."""
    world = World()
    (name,) = world.listening(1)
    (command,) = of(world.wait(30 * SECOND), cm.LookUpRunner)
    world.feed(ev.RunnerLookedUp(name, command.token, busy=True, connected=True))
    assert not world.runner(name).offered
    world.sign(name, Sign.OFFERED)
    assert world.runner(name).offered
    (command,) = of(world.wait(2 * MINUTE), cm.LookUpRunner)
    world.feed(ev.RunnerLookedUp(name, command.token, busy=True, connected=True))
    assert world.runner(name).offered, "what its files told stays told"


def test_the_first_listener_after_failures_ends_them_and_their_reason() -> None:
    world = World()
    failed, listens = world.planned(1, 2)
    for name in (failed, listens):
        world.registered(name)
    world.feed(ev.StartFailed(failed, Fault(Remedy.BROKEN, "the disk is full")))
    assert world.core.state.pools["small"].why == "the disk is full"
    world.sign(listens, Sign.LISTENING)
    row = world.core.state.pools["small"]
    assert (row.failures, row.why) == (0, "")


def test_a_job_ends_the_pause_after_exits_but_not_the_one_after_failures() -> None:
    world = World(slots=4)
    works, fails, leaves, leaves_too = world.planned(1, 2, 3, 4)
    for name in (works, leaves, leaves_too):
        world.registered(name)
        world.started(name)
    world.registered(fails)
    for name in (leaves, leaves_too):
        world.exited(name)
    pause = world.core.state.pools["small"].not_before
    assert pause > world.now
    world.feed(ev.StartFailed(fails, Fault(Remedy.BROKEN, "the disk is full")))
    until = world.core.state.pools["small"].not_before
    world.sign(works, Sign.WORKER)
    row = world.core.state.pools["small"]
    assert (row.exits, row.failures, row.not_before) == (0, 1, until)


def test_a_job_ends_the_pause_that_exits_without_one_made() -> None:
    world = World(slots=3)
    works, leaves, leaves_too = world.planned(1, 2, 3)
    for name in (works, leaves, leaves_too):
        world.registered(name)
        world.started(name)
    for name in (leaves, leaves_too):
        world.exited(name)
    assert world.core.state.pools["small"].not_before > world.now
    made = world.count(cm.Register)
    world.sign(works, Sign.WORKER)
    assert world.core.state.pools["small"].not_before == 0
    assert world.count(cm.Register) == made + 1


def test_a_look_at_a_job_tells_that_it_is_over_by_a_read() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.told(report(1, ForgeStatus.COMPLETED, runner_name=name), Told.LOOKUP)
    assert (world.runner(name).state, world.runner(name).over_via) == (S.FINISHING, "read")


def test_a_job_that_is_over_when_the_runner_is_first_named_was_a_job_all_the_same() -> None:
    """Every start of it was missed: the runner is bound, its job has its name, and nothing is made for it."""
    world = World()
    (name,) = world.listening(1)
    world.completed(1, name)
    row = world.runner(name)
    assert (row.state, row.job, row.hard, row.over) == (S.FINISHING, key(1), world.now, world.now)
    world.exited(name)
    assert world.counter("ended_without_a_job_total|pool=small") == 0


def test_a_job_that_its_runner_was_offered_in_vain_leaves_nothing_behind_when_the_sign_lapses() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ACKNOWLEDGED)
    world.wait(3 * MINUTE)
    assert "nothing followed" in world.runner(name).stuck
    world.wait(12 * MINUTE)
    row = world.runner(name)
    assert (row.state, row.stuck, row.consumes, row.untaken) == (S.LISTENING, "", False, None)
    assert name not in world.core.state.index.supply["small"], "it hangs: its job needs another one"


# -- what a sign counts for ----------------------------------------------------------------------------


def held_back() -> tuple[World, RunnerId]:
    """Two listen and are not taken, and more jobs wait: their class gets one further runner for each one taken."""
    world = World(slots=8)
    first, _ = world.listening(1, 2)
    world.wait(30 * SECOND)
    assert world.planned(3, 4, 5, 6) == []
    return world, first


def made(world: World, name: RunnerId, *signs: Sign) -> int:
    """Return how many runners are made while a runner shows these signs."""
    before = world.count(cm.Register)
    for at, sign in enumerate(signs):
        world.now += 1
        world.sign(name, sign, f"line {at}")
    return world.count(cm.Register) - before


@pytest.mark.parametrize(
    "signs",
    [
        (Sign.OFFERED,),
        (Sign.OFFERED, Sign.ACKNOWLEDGED, Sign.ANNOUNCED, Sign.WORKER),
        (Sign.ANNOUNCED, Sign.WORKER),
        (Sign.WORKER, Sign.OFFERED),
    ],
)
def test_a_runner_is_taken_once_whatever_signs_tell_of_it(signs: tuple[Sign, ...]) -> None:
    """Each runner that is taken lets a class that is held back have more: one counted twice would have too many."""
    world, name = held_back()
    assert made(world, name, *signs) == 1


@pytest.mark.parametrize("again", [Sign.OFFERED, Sign.ANNOUNCED])
def test_later_signs_do_not_change_for_how_much_demand_a_runner_stands(again: Sign) -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED, "build")
    world.sign(name, again, "build")
    assert world.runner(name).consumes, "its job has no name yet"
    world.sign(name, Sign.WORKER)
    (question,) = of(world.wait(MINUTE), cm.LookUpJob)
    world.job_answer(question, ForgeStatus.QUEUED)
    assert not world.runner(name).consumes, "the job that waits is another one"
    world.sign(name, again, "build")
    assert not world.runner(name).consumes


def test_what_was_shown_as_stuck_is_so_no_more_when_its_job_shows_itself() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.OFFERED)
    world.wait(3 * MINUTE)
    assert world.runner(name).stuck
    world.sign(name, Sign.ANNOUNCED, "build")
    assert (world.runner(name).state, world.runner(name).stuck) == (S.RUNNING, "")


def test_a_later_sign_hides_nothing_of_what_is_shown_as_stuck() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.completed(1, name)
    world.wait(10 * MINUTE)
    assert "worker lives on" in world.runner(name).stuck
    world.sign(name, Sign.WORKER)
    assert "worker lives on" in world.runner(name).stuck


@pytest.mark.parametrize("sign", [Sign.LISTENING, Sign.SKIPPED])
def test_what_is_told_of_a_runner_belongs_to_its_story_although_nothing_changes(sign: Sign) -> None:
    world = World()
    (name,) = world.listening(1)
    step = world.sign(name, sign)
    assert (step.changed, step.subjects) == ((), (name,))


# -- states that a sign does not end -------------------------------------------------------------------


STRAY = RunnerId("eph-s1-e0-7")


def stray() -> World:
    """An environment that the store does not know was found, and is held on to."""
    world = World()
    world.environments[STRAY] = ev.FoundEnvironment(STRAY, "env-stray", "small", ended=False)
    world.feed(ev.EnvironmentsListed("here", (world.environments[STRAY],), complete=True))
    return world


def test_an_environment_that_was_found_listens_when_its_listener_says_so() -> None:
    world = stray()
    world.sign(STRAY, Sign.LISTENING)
    assert (world.runner(STRAY).state, world.runner(STRAY).stuck) == (S.LISTENING, "")


def test_one_that_was_found_at_work_works_on_although_it_is_told_that_it_listened_once() -> None:
    """The whole log is read when a process life begins, its first lines too."""
    world = stray()
    world.sign(STRAY, Sign.WORKER)
    world.sign(STRAY, Sign.LISTENING)
    assert world.runner(STRAY).state is S.RUNNING


def test_one_that_was_kept_after_a_permit_had_lapsed_stays_visible_although_it_listens() -> None:
    """A second look kept it from being destroyed; that its listener is there does not clear that."""
    world = build.World()
    name = world.stuck()
    world.sign(name, Sign.LISTENING)
    assert (world.state(name), world.row(name).stuck != "") == ("stuck", True)


def test_a_job_that_shows_itself_while_its_runner_is_destroyed_is_written_down() -> None:
    """The permit is out; what is seen now raises the generation, and no state is left."""
    world = build.World()
    name = world.finishing()
    world.wait(MINUTE)
    world.probed(name)
    world.fenced(name)
    world.wait(5 * SECOND)
    world.probed(name)
    assert world.state(name) == "retiring"
    signs = world.row(name).signs
    world.sign(name, Sign.ANNOUNCED, "Running job: another")
    row = world.row(name)
    assert (row.state, row.signs, row.hard_last) == (S.RETIRING, signs + 1, world.now)


# -- what the forge names, more than once or late ------------------------------------------------------


def test_the_same_start_told_again_is_no_sign() -> None:
    """Each listing tells it anew; were it a sign, none who passes the gate would ever come through."""
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    before = world.runner(name)
    world.now += MINUTE
    world.told(report(1, ForgeStatus.IN_PROGRESS, runner_name=name), Told.LISTING)
    assert world.runner(name) == before


def test_a_start_that_is_told_after_an_end_that_named_nobody_tells_whose_job_it_was() -> None:
    world = World()
    (name,) = world.listening(1)
    world.completed(1)
    world.in_progress(1, name)
    row = world.runner(name)
    assert (row.job, row.hard) == (key(1), world.now)


def test_a_delivery_does_not_weaken_what_was_read_of_an_end() -> None:
    """What was read proves that the job is over; a delivery may tell of one that the runner had before."""
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.told(report(1, ForgeStatus.COMPLETED, runner_name=name), Told.LOOKUP)
    world.completed(1, name)
    assert world.runner(name).over_via == "read"


# -- a soft sign that lapses ---------------------------------------------------------------------------


def refused() -> tuple[build.World, RunnerId]:
    """A listener for whose job nobody else came was to go, and the forge refused to deregister it."""
    world = build.World()
    name = world.listening()
    world.kill(name)
    world.probed(name)
    world.fenced(name, FenceAnswer.REFUSED)
    assert world.state(name) == "assigned"
    return world, name


def test_a_refusal_that_lapses_makes_the_runner_supply_again() -> None:
    world, name = refused()
    world.wait(15 * MINUTE)
    assert world.state(name) == "listening"
    assert name in world.core.state.index.supply["linux"]


def test_a_later_request_to_deregister_that_got_no_answer_does_not_lapse() -> None:
    """It may have gone through: the forge may give the runner nothing any more."""
    world, name = refused()
    world.wait(2 * MINUTE)
    world.kill(name)
    world.probed(name)
    world.fenced(name, FenceAnswer.NO_ANSWER, RETRY)
    sent = world.row(name).fence.sent
    world.wait(13 * MINUTE)
    assert (world.state(name), world.row(name).fence.sent) == ("listening", sent)
    assert name not in world.core.state.index.supply["linux"]


def test_one_whose_soft_sign_lapsed_stands_for_no_demand() -> None:
    world = World(policy=Policy(nameless_soft=HOUR))
    (name,) = world.listening(1)
    world.sign(name, Sign.OFFERED)
    world.wait(15 * MINUTE - 1)
    assert world.runner(name).consumes
    world.wait(1)
    assert (world.runner(name).state, world.runner(name).consumes) == (S.LISTENING, False)


def test_the_minute_in_which_a_job_reads_as_waiting_counts_from_the_exit_where_no_worker_was_seen() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED, "build")
    world.wait(5 * MINUTE)
    assert of(world.exited(name).commands, cm.LookUpJob) == []
    assert of(world.wait(MINUTE - 1), cm.LookUpJob) == []
    assert [command.job for command in of(world.wait(1), cm.LookUpJob)] == [key(1)]


def test_the_time_in_which_an_announced_job_reads_as_waiting_counts_from_its_sign_and_not_from_its_end() -> (
    None
):
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED, "build")
    world.wait(MINUTE)
    world.sign(name, Sign.ENDED)
    assert (world.runner(name).state, world.runner(name).consumes) == (S.FINISHING, True)
    assert of(world.wait(14 * MINUTE - 1), cm.LookUpJob) == []
    assert [command.job for command in of(world.wait(1), cm.LookUpJob)] == [key(1)]


def test_a_minute_after_its_worker_was_seen_a_job_that_waits_is_another_one() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED, "build")
    world.wait(5 * MINUTE)
    world.sign(name, Sign.WORKER)
    assert of(world.wait(MINUTE - 1), cm.LookUpJob) == []
    assert [command.job for command in of(world.wait(1), cm.LookUpJob)] == [key(1)]


def test_a_runner_is_in_its_state_since_the_sign_that_brought_it_there() -> None:
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.started(name)
    for sign, state in (
        (Sign.LISTENING, S.LISTENING),
        (Sign.OFFERED, S.ASSIGNED),
        (Sign.ANNOUNCED, S.RUNNING),
        (Sign.ENDED, S.FINISHING),
    ):
        world.now += SECOND
        world.sign(name, sign)
        assert (world.runner(name).state, world.runner(name).since) == (state, world.now)
    for sign in (Sign.ACKNOWLEDGED, Sign.ANNOUNCED, Sign.ENDED):  # of one that finishes they change no state
        began, world.now = world.runner(name).since, world.now + SECOND
        world.sign(name, sign)
        assert (world.runner(name).state, world.runner(name).since) == (S.FINISHING, began)


@pytest.mark.parametrize("first", [Sign.OFFERED, Sign.WORKER])
def test_when_it_listened_first_is_written_down_also_of_one_that_has_a_job(first: Sign) -> None:
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.started(name)
    world.sign(name, first)
    state = world.runner(name).state
    world.now += SECOND
    world.sign(name, Sign.LISTENING)
    listened = world.now
    world.now += SECOND
    world.sign(name, Sign.LISTENING)
    assert (world.runner(name).state, world.runner(name).listening) == (state, listened)


def test_one_that_was_found_and_holds_a_job_listens_no_more_whatever_its_log_tells() -> None:
    """It would be supply with a job; the first lines of its log are read again when a process life begins."""
    world = stray()
    t = Turn(world.core.state, world.now)
    t.put_runner(replace(world.runner(STRAY), hard=world.now, hard_last=world.now, job=key(9)))
    world.now += SECOND
    world.sign(STRAY, Sign.LISTENING)
    row = world.runner(STRAY)
    assert (row.state, row.listening) == (S.STUCK, world.now)
    assert world.core.state.index.supply.get("small", {}) == {}


def test_one_that_was_found_and_is_offered_a_job_keeps_it_although_its_log_tells_that_it_listens() -> None:
    world = stray()
    world.sign(STRAY, Sign.OFFERED)
    world.now += SECOND
    world.sign(STRAY, Sign.LISTENING)
    assert (world.runner(STRAY).state, world.runner(STRAY).listening) == (S.ASSIGNED, world.now)


def test_one_that_is_kept_without_a_sign_of_a_job_is_no_supply_again_because_it_listens() -> None:
    world = stray()
    t = Turn(world.core.state, world.now)
    t.put_runner(replace(world.runner(STRAY), leak=None))
    world.sign(STRAY, Sign.LISTENING)
    assert (world.runner(STRAY).state, world.runner(STRAY).hard) == (S.STUCK, None)
