"""Jobs are monotone by id: late, doubled and reordered reports are no-ops; the status counts."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core import jobs, scopes
from ephemerd.core.turn import Turn
from ephemerd.domain.access import Access, Refusal
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus, JobReport, JobStatus, Origin, Told
from ephemerd.domain.pool import Policy
from ephemerd.domain.runner import RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core.world import (
    APP,
    DAY,
    HOUR,
    LABELS,
    LIB,
    MINUTE,
    NO_ANSWER,
    ORG,
    SECOND,
    World,
    key,
    of,
    pool,
    report,
)

S = ForgeStatus
KNOWN = (S.QUEUED, S.WAITING, S.IN_PROGRESS, S.COMPLETED)


def closed() -> World:
    """Return a world whose pool makes no runners, so that only jobs move."""
    return World(pool(max_concurrent=0))


@given(st.lists(st.tuples(st.sampled_from(KNOWN), st.sampled_from(list(Told))), min_size=1, max_size=8))
def test_every_order_of_reports_ends_where_the_furthest_one_is(told: list[tuple[ForgeStatus, Told]]) -> None:
    world = closed()
    for status, by in told:
        world.told(report(1, status), by)
    statuses = {status for status, _ in told}
    job = world.job(1)
    if S.COMPLETED in statuses:
        assert job.status is JobStatus.DONE
        assert job.ended == world.now
    elif S.IN_PROGRESS in statuses:
        assert job.status is JobStatus.RUNNING
        assert job.started == world.now
    else:
        assert job.status in (JobStatus.QUEUED, JobStatus.WAITING)


@pytest.mark.parametrize("order", list(itertools.permutations(KNOWN)))
def test_permutations_with_doubles_give_one_row(order: tuple[ForgeStatus, ...]) -> None:
    world = closed()
    for status in (*order, *order):
        conclusion = "success" if status is S.COMPLETED else None
        world.told(report(1, status, conclusion=conclusion))
    job = world.job(1)
    assert (job.status, job.conclusion, job.ended) == (JobStatus.DONE, "success", world.now)
    assert world.counter("jobs_finished_total|conclusion=success|pool=") == 1


@pytest.mark.parametrize("order", list(itertools.permutations((S.QUEUED, S.IN_PROGRESS, S.COMPLETED))))
def test_permutations_that_name_a_runner_leave_it_in_one_state(order: tuple[ForgeStatus, ...]) -> None:
    world = World()
    (name,) = world.listening(1)
    for status in (*order, *order):
        named = None if status is S.QUEUED else name
        world.told(report(1, status, runner_name=named, conclusion="success"))
    row = world.runner(name)
    assert (row.state, row.job, row.over_via) == (RunnerState.FINISHING, key(1), "event")
    assert (row.hard, row.over, row.consumes) == (world.now, world.now, False)
    assert world.job(1).ours == name


@pytest.mark.parametrize("status", KNOWN)
def test_nothing_leaves_done_and_a_late_report_changes_no_row(status: ForgeStatus) -> None:
    world = closed()
    world.queued(1)
    world.completed(1, how="failure")
    before = world.job(1)
    world.now += 70 * MINUTE
    step = world.told(report(1, status, conclusion="success"))
    assert world.job(1) == before
    assert step.changed == ()
    assert step.commands == ()


def test_fp_29_the_same_news_thrice_is_one_demand() -> None:
    world = World()
    world.queued(1)
    world.queued(1, 1)
    assert world.count(cm.Register) == 1
    assert world.core.state.index.by_status == {"queued": 1}


def test_an_unknown_status_is_no_news() -> None:
    world = closed()
    step = world.told(report(1, S.OTHER))
    assert step.changed == ()
    world.queued(1)
    before = world.job(1)
    world.told(report(1, S.OTHER))
    assert world.job(1) == before


def test_the_status_counts_not_the_action() -> None:
    """GitHub sends action `queued` with status `waiting` for a job behind an approval."""
    world = World()
    world.told(report(1, S.WAITING))
    assert world.job(1).status is JobStatus.WAITING
    assert world.count(cm.Register) == 0
    world.queued(1)
    assert world.job(1).status is JobStatus.QUEUED
    assert world.count(cm.Register) == 1


def test_repositories_compare_without_case() -> None:
    world = closed()
    world.told(report(1, S.QUEUED, repository="Acme/App"))
    world.told(report(1, S.COMPLETED))
    assert world.job(1).status is JobStatus.DONE
    assert len(world.core.state.jobs) == 1


# -- waiting ------------------------------------------------------------------------------------------


def test_waiting_after_queued_asks_now_and_again_after_30_s_when_that_fails() -> None:
    world = closed()
    world.queued(1)
    step = world.told(report(1, S.WAITING))
    assert step.commands == (cm.LookUpJob(key(1), APP, 1),)
    assert world.job(1).status is JobStatus.QUEUED
    world.now += 2 * SECOND
    world.feed(ev.JobLookedUp(key(1), 1, fault=NO_ANSWER))
    world.feed(ev.ScopeAnswered(APP))
    assert of(world.wait(29_999), cm.LookUpJob) == []
    assert of(world.wait(1), cm.LookUpJob) == [cm.LookUpJob(key(1), APP, 2)]


def test_waiting_after_queued_asks_again_when_no_answer_comes_at_all() -> None:
    world = closed()
    world.queued(1)
    world.told(report(1, S.WAITING))
    sent = of(world.wait(45 * SECOND), cm.LookUpJob)
    assert [command.token for command in sent] == [2]


@pytest.mark.parametrize("status", [S.IN_PROGRESS, S.COMPLETED])
def test_a_job_that_leaves_the_queue_does_so_at_that_moment_and_nothing_is_asked_about_it_any_more(
    status: ForgeStatus,
) -> None:
    world = closed()
    world.queued(1)
    world.told(report(1, S.WAITING))
    world.feed(ev.JobLookedUp(key(1), world.last(cm.LookUpJob).token, missing=True))
    assert (world.job(1).missing, world.job(1).ask_again) != (None, None)
    world.now += SECOND
    world.told(report(1, status))
    row = world.job(1)
    assert (row.since, row.asked, row.asking, row.ask_again, row.missing) == (world.now, None, "", None, None)
    assert of(world.wait(10 * MINUTE), cm.LookUpJob) == []


@pytest.mark.parametrize(("answer", "stands"), [(S.QUEUED, "queued"), (S.WAITING, "waiting")])
def test_the_answer_to_the_question_stands(answer: ForgeStatus, stands: str) -> None:
    world = closed()
    world.queued(1)
    world.told(report(1, S.WAITING))
    world.job_answer(world.last(cm.LookUpJob), answer)
    assert world.job(1).status.value == stands
    assert of(world.wait(4 * MINUTE), cm.LookUpJob) == []


def test_waiting_told_while_another_question_is_out_is_asked_about_afterwards() -> None:
    """The answer to the older question may have been on its way before the job began to wait."""
    world = World(slots=1)
    world.listening(1)
    world.queued(2)
    world.wait(2 * MINUTE)
    world.in_progress(1, "somebody-elses")
    world.exited(next(iter(world.core.state.runners)))
    confirm = world.last(cm.LookUpJob)
    assert (confirm.job, world.job(2).asking) == (key(2), "confirm")
    world.told(report(2, S.WAITING))
    world.job_fault(confirm)
    world.feed(ev.ScopeAnswered(APP))
    sent = of(world.wait(30 * SECOND), cm.LookUpJob)
    assert [command.job for command in sent] == [key(2)]
    world.job_answer(sent[0], S.WAITING)
    assert world.job(2).status is JobStatus.WAITING
    assert world.job(2).ask_again is None


def test_a_waiting_job_is_no_demand_and_gives_its_runner_to_the_next() -> None:
    world = World()
    (name,) = world.listening(1)
    world.told(report(1, S.WAITING))
    world.job_answer(world.last(cm.LookUpJob), S.WAITING)
    assert world.runner(name).surplus_since == world.now
    assert of(world.queued(2), cm.Register) == []
    assert world.runner(name).surplus_since is None


def test_a_question_times_out_although_a_backoff_ended_meanwhile() -> None:
    """One moment a job: the end of its backoff must not swallow the fifteen seconds of the question."""
    world = World(slots=1)
    (name,) = world.listening(9)
    world.in_progress(9, name)
    world.queued(1)
    world.wait(61 * SECOND)
    row = world.job(1)
    world.core.state.jobs[key(1)] = replace(row, not_before=world.now + 5 * SECOND)
    world.told(report(1, S.WAITING))
    assert world.job(1).asked == world.now
    world.wait(15 * SECOND)
    assert (world.job(1).asked, world.job(1).ask_again) == (None, world.now + 30 * SECOND)


# -- gone ---------------------------------------------------------------------------------------------


def asked(world: World, number: int) -> cm.LookUpJob:
    """Have the core ask about a job: "waiting" after "queued" makes it."""
    world.told(report(number, S.WAITING))
    return world.last(cm.LookUpJob)


def test_gone_needs_two_direct_not_founds_a_minute_apart() -> None:
    world = closed()
    world.queued(1)
    world.job_answer(asked(world, 1), None)
    assert world.job(1).status is JobStatus.QUEUED
    assert world.job(1).missing == world.now
    sent = of(world.wait(60 * SECOND), cm.LookUpJob)
    assert [command.job for command in sent] == [key(1)]
    assert world.job(1).asking == "gone"
    world.job_answer(sent[0], None)
    assert world.job(1).status is JobStatus.GONE
    assert world.core.state.index.groups == {}


def test_two_not_founds_within_the_minute_are_one() -> None:
    world = closed()
    world.queued(1)
    command = asked(world, 1)
    world.job_answer(command, None)
    world.now += 59_999
    world.job_answer(command, None)
    assert world.job(1).status is JobStatus.QUEUED
    (again,) = of(world.wait(1), cm.LookUpJob)
    world.job_answer(again, None)
    assert world.job(1).status is JobStatus.GONE


def test_an_error_between_two_not_founds_neither_counts_nor_forgets() -> None:
    world = closed()
    world.queued(1)
    world.job_answer(asked(world, 1), None)
    (second,) = of(world.wait(60 * SECOND), cm.LookUpJob)
    world.job_fault(second)
    world.feed(ev.ScopeAnswered(APP))
    assert world.job(1).status is JobStatus.QUEUED
    (third,) = of(world.wait(30 * SECOND), cm.LookUpJob)
    world.job_answer(third, None)
    assert world.job(1).status is JobStatus.GONE


def test_a_found_job_begins_anew_to_be_missed() -> None:
    world = closed()
    world.queued(1)
    world.job_answer(asked(world, 1), None)
    (second,) = of(world.wait(60 * SECOND), cm.LookUpJob)
    world.job_answer(second, S.QUEUED)
    assert world.job(1).missing is None
    world.job_answer(second, None)
    assert world.job(1).status is JobStatus.QUEUED


@pytest.mark.parametrize(
    ("status", "then"),
    [
        (S.QUEUED, JobStatus.QUEUED),
        (S.WAITING, JobStatus.WAITING),
        (S.IN_PROGRESS, JobStatus.RUNNING),
        (S.COMPLETED, JobStatus.DONE),
    ],
)
def test_gone_is_reversible(status: ForgeStatus, then: JobStatus) -> None:
    world = closed()
    world.queued(1)
    command = asked(world, 1)
    world.job_answer(command, None)
    world.now += MINUTE
    world.job_answer(command, None)
    assert world.job(1).status is JobStatus.GONE
    world.told(report(1, status))
    assert world.job(1).status is then
    assert (world.job(1).ended is None) == (then is not JobStatus.DONE)


def test_a_running_job_can_be_gone_too() -> None:
    world = closed()
    world.queued(1)
    command = asked(world, 1)
    world.in_progress(1, "somebody-elses")
    world.job_answer(command, None)
    world.now += MINUTE
    world.job_answer(command, None)
    assert world.job(1).status is JobStatus.GONE


# -- identity, retention ------------------------------------------------------------------------------


def test_fp_51_a_rerun_is_a_new_id_with_fresh_demand() -> None:
    world = World()
    world.queued(1, run_id=7, name="build")
    world.completed(1, how="failure", run_id=7, name="build")
    world.queued(2, run_id=7, name="build", attempt=2)
    assert world.job(1).status is JobStatus.DONE
    assert world.job(2).status is JobStatus.QUEUED
    assert (world.job(2).not_before, world.job(2).attempt) == (0, 2)


def test_finished_jobs_are_kept_for_eight_days_and_then_pruned_by_an_event() -> None:
    world = closed()
    world.queued(1)
    world.completed(1)
    world.wait(8 * DAY - MINUTE)
    assert key(1) in world.core.state.jobs
    world.wait(2 * MINUTE)
    assert key(1) not in world.core.state.jobs
    assert world.stored["job"] == {}


def test_at_most_so_many_finished_jobs_are_kept_the_oldest_going_first() -> None:
    world = World(pool(max_concurrent=0), policy=Policy(finished_most=5))
    for number in range(1, 9):
        world.now += 1
        world.completed(number)
    world.queued(20)
    world.wait(MINUTE)
    assert [job.id for job in world.core.state.jobs] == [4, 5, 6, 7, 8, 20]


def test_the_order_of_pruning_survives_a_restart() -> None:
    world = World(pool(max_concurrent=0), policy=Policy(finished_most=2))
    for number in (5, 3, 9, 1):
        world.now += 1
        world.completed(number)
    world.restart()
    world.wait(MINUTE)
    assert sorted(job.id for job in world.core.state.jobs) == [1, 9]


# -- scopes -------------------------------------------------------------------------------------------


def test_other_scopes_are_ignored_and_counted() -> None:
    world = World()
    step = world.told(report(1, S.QUEUED, repository="other/thing"))
    assert step.commands == ()
    assert world.core.state.jobs == {}
    assert world.counter("reports_ignored_total|reason=scope") == 1


def test_an_organization_serves_its_repositories_alone() -> None:
    world = World(pool(scope=ORG))
    world.queued(1, repository="acme/any")
    world.queued(2, repository="acmes/any")
    assert [job.id for job in world.core.state.jobs] == [1]


# -- binding ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [S.QUEUED, S.WAITING])
def test_fp_32_only_in_progress_and_completed_bind(status: ForgeStatus) -> None:
    world = World()
    (name,) = world.listening(1)
    world.told(report(1, status, runner_name=name))
    assert world.runner(name).hard is None
    assert world.job(1).runner is None


@pytest.mark.parametrize("status", [S.IN_PROGRESS, S.COMPLETED])
def test_fp_32_nobody_is_nobody(status: ForgeStatus) -> None:
    """0, "" and null have become None on the way in; they bind no runner and equal no other nobody."""
    world = World()
    first, second = world.listening(1, 2)
    world.told(report(1, status, runner_name=None, runner_id=None))
    world.told(report(2, status, runner_name=None, runner_id=None))
    assert world.runner(first).hard is None
    assert world.runner(second).hard is None
    assert (world.job(1).ours, world.job(2).ours) == (None, None)


def test_fp_32_a_completed_without_labels_and_runner_shrinks_nothing() -> None:
    world = World()
    first, second = world.listening(1, 2)
    world.told(report(77, S.COMPLETED, labels=(), conclusion="success"))
    assert world.count(cm.Deregister) + world.count(cm.Destroy) + world.count(cm.ProbeRunner) == 0
    assert world.runner(first).surplus_since is None
    assert world.runner(second).surplus_since is None


def test_a_name_that_is_not_ours_discharges_the_job_and_touches_nothing_of_ours() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, "warm-ride")
    row = world.runner(name)
    assert (row.state, row.hard, row.surplus_since) == (RunnerState.LISTENING, None, world.now)
    assert (world.job(1).runner, world.job(1).ours) == ("warm-ride", None)


def test_a_runner_that_was_given_a_refused_job_is_told_once_however_often_the_forge_says_so() -> None:
    world = World(pool(scope=ORG))
    world.boot(setup=replace(world.setup, access=(Access("github", denied=("acme/lib",)),)))
    (name,) = world.listening(1, origin=Origin(public=False, fork=False))
    world.in_progress(2, name, repository="acme/lib")
    world.completed(2, name, repository="acme/lib")
    assert world.counter("refused_jobs_taken_total|reason=repository") == 1


def test_fp_26_a_name_decides_and_an_id_beside_it_does_not() -> None:
    world = World()
    (name,) = world.listening(1)
    registration = world.runner(name).registration
    world.in_progress(1, "somebody-elses", runner_id=registration)
    assert world.runner(name).hard is None


def test_an_id_alone_binds_the_runner_that_has_it_in_a_scope_that_serves_the_job() -> None:
    world = World(pool(), pool("lib", scope=LIB))
    (name,) = world.listening(1)
    registration = world.runner(name).registration
    world.in_progress(2, None, runner_id=registration, repository="acme/lib")
    assert world.runner(name).hard is None
    world.in_progress(1, None, runner_id=registration)
    assert (world.runner(name).state, world.job(1).ours) == (RunnerState.RUNNING, name)


def test_a_name_of_another_forge_is_not_ours() -> None:
    world = World(pool(), pool("tea", scope=type(APP)("tea", "org:acme")))
    (name,) = world.listening(1)
    foreign = JobReport(type(key(1))("tea", "acme/app", 1), S.IN_PROGRESS, LABELS, runner_name=name)
    world.told(foreign)
    assert world.runner(name).hard is None


def test_fp_2_a_completion_concerns_the_runner_it_names() -> None:
    world = World()
    first, second = world.listening(1, 2)
    world.sign(first, Sign.ANNOUNCED, "2")
    world.in_progress(1, second)
    world.completed(1, second)
    assert world.runner(first).state is RunnerState.RUNNING
    assert world.runner(second).state is RunnerState.FINISHING
    assert world.count(cm.Destroy) + world.count(cm.Deregister) == 0


def test_the_end_is_counted_for_the_pool_of_the_runner_that_had_it() -> None:
    world = World()
    (name,) = world.listening(1)
    world.completed(1, name, how="cancelled")
    assert world.counter("jobs_finished_total|conclusion=cancelled|pool=small") == 1


# -- what a listing does not show ---------------------------------------------------------------------


def test_fp_30_a_missed_end_is_asked_for_after_a_listing_that_does_not_show_the_job() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    del world.waiting[key(1)]
    world.now += 1
    sent = of(world.wait(5 * MINUTE), cm.LookUpJob)
    assert [command.job for command in sent] == [key(1)]
    world.job_answer(sent[0], S.COMPLETED, runner_name=name, conclusion="failure")
    assert world.job(1).conclusion == "failure"
    assert world.runner(name).over_via == "read"


def test_a_listing_that_failed_proves_nothing() -> None:
    world = World(lists=False)
    world.feed(ev.JobsListed(APP, 0))
    world.queued(1)
    world.wait(5 * MINUTE)
    world.now += 1
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    assert [command for command in of(world.sent, cm.LookUpJob) if command.job == key(1)] == []


def test_at_most_fifty_unlisted_jobs_are_asked_about_at_once() -> None:
    world = closed()
    for number in range(1, 81):
        world.queued(number)
    world.waiting.clear()
    assert len(of(world.wait(5 * MINUTE + SECOND), cm.LookUpJob)) == 50


def test_fp_28_a_listing_finds_what_deliveries_lost() -> None:
    world = World()
    world.waiting.update({key(n): report(n, S.QUEUED) for n in range(1, 4)})
    sent = of(world.wait(5 * MINUTE), cm.Register)
    assert len(sent) == 3


def test_an_answer_about_a_job_that_was_never_told_makes_no_row_and_counts_as_an_answer() -> None:
    world = World()
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    assert world.core.state.scope(APP).silent is not None
    world.feed(ev.JobLookedUp(key(99), 7, report(99, ForgeStatus.QUEUED)))
    assert world.core.state.jobs == {}
    assert world.core.state.scope(APP).silent is None


@pytest.mark.parametrize("status", [ForgeStatus.COMPLETED, None])
def test_a_not_found_that_comes_late_leaves_an_ended_job_as_it_is(status: ForgeStatus | None) -> None:
    world = World(slots=1)
    world.doubted(1)
    question = world.last(cm.LookUpJob)
    world.completed(1, how="cancelled")
    before = world.job(1)
    world.job_answer(question, None)
    assert world.job(1) == before


def test_a_question_that_no_scope_can_answer_any_more_is_dropped() -> None:
    """Asked again was to be after 30 s, and then the pool's scope was another one."""
    world = World()
    world.listening(1)
    world.told(report(1, ForgeStatus.WAITING))
    world.job_fault(world.last(cm.LookUpJob))
    assert world.job(1).ask_again is not None
    world.restart(setup=replace(world.setup, pools=(pool(scope=LIB),)))
    asked = world.count(cm.LookUpJob)
    world.wait(5 * MINUTE)
    assert world.job(1).ask_again is None
    assert world.count(cm.LookUpJob) == asked


def test_a_report_that_answers_late_leaves_an_ended_job_as_it_is() -> None:
    world = World()
    world.queued(1)
    world.completed(1, None, "cancelled")
    before = world.job(1)
    world.wait(SECOND)
    world.feed(ev.JobLookedUp(key(1), 1, report(1, ForgeStatus.QUEUED)))
    assert world.job(1) == before


# what is kept of a job, and what a report leaves alone


def turn(world: World) -> Turn:
    return Turn(world.core.state, world.now)


def test_a_report_that_changes_nothing_still_concerns_its_job() -> None:
    world = closed()
    world.completed(1)
    assert world.completed(1).subjects == (str(key(1)),)


def test_a_scope_of_which_no_pool_is_configured_any_more_is_ignored() -> None:
    world = closed()
    world.feed(ev.Reconfigured("ann", replace(world.setup, pools=())))
    world.queued(1)
    assert key(1) not in world.core.state.jobs


def test_a_conclusion_that_was_not_told_is_unknown() -> None:
    world = closed()
    world.queued(1)
    for number in (1, 2):  # 2 is heard of for the first time
        world.told(report(number, S.COMPLETED))
    assert world.job(1).conclusion == "unknown"
    assert world.counter("jobs_finished_total|conclusion=unknown|pool=") == 2


@pytest.mark.parametrize("status", [S.QUEUED, S.WAITING])
def test_a_job_that_is_told_of_again_is_confirmed_and_begins_anew_to_be_missed(status: ForgeStatus) -> None:
    world = closed()
    world.told(report(1, status))
    row = replace(world.job(1), missing=world.now)
    world.core.state.jobs[key(1)] = row
    world.now += SECOND
    world.told(report(1, status))
    world.told(report(1, S.QUEUED))
    assert (world.job(1).missing, world.job(1).confirmed) == (None, world.now)


def test_a_job_that_was_let_go_by_an_approval_is_confirmed() -> None:
    world = closed()
    world.told(report(1, S.WAITING))
    world.now += SECOND
    world.queued(1)
    assert (world.job(1).status, world.job(1).confirmed) == (JobStatus.QUEUED, world.now)


def test_waiting_again_is_a_confirmation_and_so_is_the_answer_that_it_waits() -> None:
    world = closed()
    world.told(report(1, S.WAITING))
    world.now += SECOND
    world.told(report(1, S.WAITING))
    assert world.job(1).confirmed == world.now
    world.queued(2)
    world.now += SECOND
    world.told(report(2, S.WAITING), Told.LOOKUP)
    assert (world.job(2).status, world.job(2).confirmed) == (JobStatus.WAITING, world.now)


def test_a_running_job_that_is_found_begins_anew_to_be_missed() -> None:
    world = closed()
    world.queued(1)
    world.in_progress(1)
    row = replace(world.job(1), missing=world.now, asked=world.now, asking="gone", token=7)
    world.core.state.jobs[key(1)] = row
    world.feed(ev.JobLookedUp(key(1), 7, report(1, S.IN_PROGRESS)))
    assert world.job(1).missing is None


def test_a_job_that_begins_needs_no_leave_any_more() -> None:
    world = closed()
    world.queued(1)
    world.core.state.jobs[key(1)] = replace(world.job(1), waived=True)
    world.in_progress(1)
    assert not world.job(1).waived


def test_not_found_is_no_answer_that_vouches_for_another_not_found() -> None:
    world = World(pool(max_concurrent=0), lists=False)
    world.queued(1)
    world.feed(ev.JobLookedUp(key(1), 0, missing=True))
    assert world.core.state.scope(APP).answered is None


# an end that names nobody


def running(world: World) -> RunnerId:
    (name,) = world.listening(1)
    world.in_progress(1, name)
    assert world.runner(name).state is RunnerState.RUNNING
    return name


def test_an_end_that_names_nobody_is_the_end_for_the_runner_that_was_named_before() -> None:
    world = World()
    name = running(world)
    world.completed(1)
    assert world.runner(name).state is RunnerState.FINISHING
    assert world.job(1).runner == name, "the name that was told stays"


@pytest.mark.parametrize("said", [{"runner_name": "somebody-elses"}, {"runner_id": 4711}])
def test_an_end_that_names_somebody_else_is_not(said: dict[str, Any]) -> None:
    world = World()
    name = running(world)
    world.told(report(1, S.COMPLETED, conclusion="success", **said))
    assert world.runner(name).state is RunnerState.RUNNING


def test_an_end_that_names_nobody_comes_when_its_runner_is_long_forgotten() -> None:
    world = World()
    name = running(world)
    turn(world).drop_runner(world.runner(name))
    world.completed(1)
    assert world.job(1).status is JobStatus.DONE


# questions


def test_only_what_a_listing_should_have_shown_is_asked_about_the_longest_unconfirmed_first() -> None:
    world = World(pool(max_concurrent=0), lists=False)
    world.queued(1, 2, 3, 4, 5)
    since = world.now + 10 * SECOND
    rows: dict[int, dict[str, Any]] = {
        1: {"confirmed": since - 1},
        2: {"confirmed": since},
        3: {"since": since},
        4: {"asked": since - 1, "asking": "name"},
        5: {"confirmed": since - 2},
    }
    for number, changes in rows.items():
        world.core.state.jobs[key(number)] = replace(world.job(number), **changes)
    t = turn(world)
    jobs.ask_unlisted(t, APP, since)
    assert [command.job for command in of(t.step().commands, cm.LookUpJob)] == [key(5), key(1)]
    assert world.job(5).asking == "unlisted"


def test_a_listing_says_nothing_of_what_runs_in_another_scope() -> None:
    world = World()
    running(world)
    world.now += 10 * SECOND
    t = turn(world)
    jobs.ask_unlisted(t, LIB, world.now)
    assert of(t.step().commands, cm.LookUpJob) == []
    jobs.ask_unlisted(t, APP, world.now)
    assert [command.job for command in of(t.step().commands, cm.LookUpJob)] == [key(1)]


def test_a_listing_of_some_repositories_says_nothing_of_the_others() -> None:
    world = World(pool(max_concurrent=0, scope=ORG), lists=False)
    world.queued(1)
    world.queued(2, repository="acme/lib")
    world.now += 10 * SECOND
    t = turn(world)
    jobs.ask_unlisted(t, ORG, world.now, ("acme/lib",))
    assert [command.job for command in of(t.step().commands, cm.LookUpJob)] == [key(2, "acme/lib")]


def test_what_a_listing_did_not_show_waits_for_the_next_one_while_the_forge_limits_our_requests() -> None:
    world = World(pool(max_concurrent=0), lists=False)
    world.queued(1, 2)
    world.now += 10 * SECOND
    t = turn(world)
    scopes.limit(t, APP, world.now + MINUTE)
    jobs.ask_unlisted(t, APP, world.now)
    assert of(t.step().commands, cm.LookUpJob) == []
    assert [world.job(number).ask_again for number in (1, 2)] == [None, None]
    world.now += MINUTE
    t = turn(world)
    jobs.ask_unlisted(t, APP, world.now)
    assert len(of(t.step().commands, cm.LookUpJob)) == 2


@pytest.mark.parametrize(("since", "waived"), [(None, True), (HOUR, True), (HOUR - 1, False)])
def test_what_cannot_be_confirmed_is_let_through_once_an_hour(since: int | None, waived: bool) -> None:
    world = closed()
    world.queued(1)
    unconfirmed = None if since is None else world.now - since
    t = turn(world)
    jobs.waive(t, t.change_job(world.job(1), unconfirmed=unconfirmed))
    assert world.job(1).waived is waived
    assert world.job(1).not_before == (0 if waived else world.now + MINUTE)


def test_a_question_that_is_answered_or_times_out_reserves_nothing_any_more() -> None:
    world = closed()
    world.queued(1, 2)
    for number in (1, 2):
        row = replace(world.job(number), asked=world.now, asking="unlisted", pool="small", token=7)
        world.core.state.jobs[key(number)] = row
    world.feed(ev.JobLookedUp(key(1), 7, fault=NO_ANSWER))
    world.now += 15 * SECOND
    jobs.due(turn(world), world.job(2))
    for number in (1, 2):
        row = world.job(number)
        assert (row.asked, row.asking, row.pool) == (None, "", "")


def test_a_job_that_was_missed_within_the_minute_is_asked_about_when_the_minute_is_over() -> None:
    world = closed()
    world.queued(1)
    missed = world.now
    world.feed(ev.JobLookedUp(key(1), 0, missing=True))
    world.now += 20 * SECOND
    world.core.state.jobs[key(1)] = replace(world.job(1), ask_again=None)  # somebody else asked
    world.feed(ev.JobLookedUp(key(1), 0, missing=True))
    assert world.job(1).ask_again == missed + MINUTE


def test_a_question_that_is_repeated_is_one_that_is_repeated_again() -> None:
    world = closed()
    world.queued(1)
    jobs.due(turn(world), replace(world.job(1), ask_again=world.now))
    assert world.job(1).asking == "waiting"


def test_a_refused_job_that_waits_for_an_approval_is_asked_about_itself_and_not_its_run() -> None:
    world = closed()
    world.told(report(1, S.WAITING, run_id=5))
    t = turn(world)
    jobs.due(t, replace(world.job(1), refused=Refusal.UNKNOWN.value, ask_again=world.now))
    assert [command.job for command in of(t.step().commands, cm.LookUpJob)] == [key(1)]


def test_an_answer_about_a_job_that_no_scope_serves_is_no_answer_of_a_scope() -> None:
    world = closed()
    before = dict(world.core.state.scopes)
    stranger = key(1, "else/where")
    world.feed(ev.JobLookedUp(stranger, 0, JobReport(stranger, S.QUEUED, LABELS)))
    assert world.core.state.scopes == before


# who is served anew


def remade(world: World, name: RunnerId) -> int | None:
    jobs.remake(turn(world), world.runner(name))
    found = world.core.state.jobs.get(key(1))
    return found.remade if found is not None else None


def test_only_a_job_that_still_waits_is_served_anew() -> None:
    world = World()
    (name,) = world.listening(1)
    assert remade(world, name) == world.now
    world = World()
    name = running(world)
    assert remade(world, name) is None
    del world.core.state.jobs[key(1)]
    assert remade(world, name) is None


def test_however_many_runners_were_made_for_a_job_in_vain_its_next_try_comes_within_the_hour() -> None:
    """Each of them that expired put it off by another hour."""
    world = World()
    (name,) = world.listening(1)
    every = world.setup.policy.remake_every
    assert [remade(world, name) for _ in range(4)] == [world.now, *[world.now + every] * 3]
    assert world.job(1).not_before == world.now + every


@pytest.mark.parametrize(("age", "kept"), [(8 * DAY - 1, True), (8 * DAY, False)])
def test_a_finished_job_is_forgotten_at_the_end_of_its_time(age: int, kept: bool) -> None:
    world = closed()
    world.completed(1)
    world.now += age
    jobs.prune(turn(world))
    assert (key(1) in world.core.state.jobs) is kept
