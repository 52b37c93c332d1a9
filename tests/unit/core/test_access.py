"""Jobs that the policy refuses are no demand, however they were heard of; what is not known is asked once a run."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.machine import Core
from ephemerd.core.waiting import why_waiting
from ephemerd.domain.access import Access
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.job import ForgeStatus, JobReport, JobStatus, Origin, Told
from ephemerd.domain.pool import Host, Policy, Setup
from ephemerd.domain.runner import RunnerState
from tests.unit.core.world import APP, LABELS, LIB, MINUTE, ORG, SECOND, World, key, of, pool, report

S = ForgeStatus
OWN = Origin(public=False, fork=False, branch="main", workflow="CI")
FORK = replace(OWN, fork=True, branch="patch-1")


def guarded(*pools: Any, **rules: Any) -> World:
    """Return a world of an organization whose forge has a policy."""
    world = World(*(pools or (pool(scope=ORG),)))
    world.boot(setup=replace(world.setup, access=(Access("github", **rules),)))
    world.sent.clear()
    return world


def why(world: World, number: int, repository: str = "acme/app") -> str:
    return why_waiting(world.core.state, key(number, repository), world.now)


def answer(world: World, origin: Origin | None, **fields: Any) -> None:
    question = world.last(cm.LookUpRun)
    world.feed(ev.RunLookedUp(question.job, question.token, origin, **fields))


def read(world: World, *reports: JobReport) -> None:
    world.feed(ev.JobsRead(ORG, reports))


@pytest.mark.parametrize("by", ["delivery", "listing", "lookup"])
def test_a_refusal_is_the_same_however_the_job_was_heard_of(by: str) -> None:
    world = guarded()
    said = report(1, S.QUEUED, run_id=7, origin=FORK)
    if by == "delivery":
        world.told(said)
    elif by == "listing":
        read(world, said)
    else:
        world.told(said, Told.LOOKUP)
    assert world.count(cm.Register) == world.count(cm.LookUpRun) == 0
    assert (world.job(1).status, world.job(1).refused) == (JobStatus.QUEUED, "fork")
    assert "from a fork; name the repository in forge.github.forks" in why(world, 1)
    assert world.counter("jobs_refused_total|reason=fork") == 1
    assert world.notes.count("a job is not served") == 1
    world.told(said)
    assert world.counter("jobs_refused_total|reason=fork") == 1
    assert world.reborn().checkpoint() == world.core.checkpoint()


def test_a_stranger_in_the_organization_is_stored_refused_and_explained() -> None:
    world = guarded(repositories=("acme/app",))
    world.queued(1, repository="acme/lib", run_id=7)
    assert world.sent == []
    assert world.job(1, "acme/lib").refused == "repository"
    assert "forge.github.repositories does not allow acme/lib" in why(world, 1, "acme/lib")


@pytest.mark.parametrize(
    ("rules", "origin", "words"),
    [
        (
            {},
            replace(OWN, public=True),
            "acme/app is public; name it in forge.github.repositories, without *",
        ),
        ({"branches": ("main",)}, replace(OWN, branch="wip"), "branches does not allow the branch 'wip'"),
        ({"branches": ("patch-1",), "forks": ("*",)}, FORK, "does not allow the branch 'patch-1' of a fork"),
        ({"workflows": ("Nightly",)}, OWN, "workflows does not allow the workflow 'CI'"),
    ],
)
def test_the_reason_names_the_key_to_change(rules: dict[str, Any], origin: Origin, words: str) -> None:
    world = guarded(**rules)
    world.queued(1, run_id=7, origin=origin)
    assert world.sent == []
    assert words in why(world, 1)


def test_what_is_not_known_is_asked_once_a_run_and_then_served() -> None:
    world = guarded()
    world.queued(1, 2, 3, run_id=7, origin=Origin(public=False))
    (question,) = of(world.sent, cm.LookUpRun)
    assert (question.job, question.run, question.scope) == (key(1), 7, ORG)
    assert world.count(cm.Register) == 0
    assert "not served until it is known" in why(world, 2)
    assert why(world, 2).endswith("the forge is asked")
    answer(world, OWN)
    assert world.count(cm.Register) == 3
    assert [world.job(number).ask_again for number in (1, 2, 3)] == [None] * 3
    # a later job of the run is known by the others
    world.queued(4, run_id=7, origin=Origin(public=False))
    assert (world.count(cm.Register), world.count(cm.LookUpRun)) == (4, 1)
    # one of another run, or of the same run in another repository, is not
    world.queued(5, run_id=8)
    world.queued(6, run_id=7, repository="acme/lib")
    assert world.count(cm.LookUpRun) == 3


def test_a_run_from_a_fork_is_refused_with_all_its_jobs() -> None:
    world = guarded()
    world.queued(1, 2, run_id=7)
    answer(world, FORK)
    world.queued(3, run_id=7)
    assert [world.job(number).refused for number in (1, 2, 3)] == ["fork"] * 3
    assert (world.count(cm.LookUpRun), world.count(cm.Register)) == (1, 0)


@pytest.mark.parametrize("ended", [False, True])
def test_a_run_whose_job_runs_or_is_over_is_known(ended: bool) -> None:
    world = guarded()
    world.told(report(1, S.COMPLETED if ended else S.IN_PROGRESS, run_id=7, origin=OWN))
    world.queued(2, run_id=7)
    assert (world.count(cm.LookUpRun), world.count(cm.Register)) == (0, 1)


def test_half_of_what_is_needed_is_not_enough() -> None:
    world = guarded()
    world.told(report(1, S.IN_PROGRESS, run_id=7, origin=Origin(public=False)))
    world.queued(2, run_id=7)
    assert world.count(cm.LookUpRun) == 1


def test_a_fault_leaves_the_job_unserved_and_is_asked_again() -> None:
    world = guarded()
    world.queued(1, run_id=7)
    answer(world, None, fault=Fault(Remedy.REFUSED, "not today"))
    assert "the forge will be asked again" in why(world, 1)
    assert world.count(cm.LookUpRun) == 1
    world.wait(31 * SECOND)
    assert world.count(cm.LookUpRun) == 2
    answer(world, OWN)
    assert world.count(cm.Register) == 1


def test_no_answer_within_its_time_is_asked_again() -> None:
    world = guarded()
    world.queued(1, 2, run_id=7)
    world.wait(MINUTE)
    assert world.count(cm.LookUpRun) == 2
    assert world.count(cm.Register) == 0


def test_a_scope_that_may_not_be_called_is_asked_later() -> None:
    world = guarded()
    world.feed(ev.ScopeAnswered(ORG, limited_until=world.now + MINUTE))
    world.queued(1, run_id=7)
    assert world.count(cm.LookUpRun) == 0
    world.wait(2 * MINUTE)
    assert world.count(cm.LookUpRun) >= 1


def test_an_answer_that_does_not_tell_is_asked_again_later_not_at_once() -> None:
    world = guarded()
    world.queued(1, run_id=7)
    answer(world, Origin(public=False))
    assert world.count(cm.LookUpRun) == 1
    world.wait(31 * SECOND)
    assert world.count(cm.LookUpRun) == 2


def test_a_run_that_is_not_found_leads_to_the_job_itself() -> None:
    world = guarded()
    world.queued(1, run_id=7)
    answer(world, None, missing=True)
    sent = world.wait(31 * SECOND)
    (question,) = of(sent, cm.LookUpJob)
    world.job_answer(question, S.QUEUED, run_id=7)
    assert world.count(cm.LookUpRun) == 2
    answer(world, OWN)
    assert world.count(cm.Register) == 1


def test_a_job_without_a_run_cannot_be_asked_about_and_waits_for_a_listing() -> None:
    world = guarded()
    world.queued(1)
    assert world.sent == []
    assert "did not say which run" in why(world, 1)
    read(world, report(1, S.QUEUED, run_id=7, origin=OWN))
    assert world.count(cm.Register) == 1


def test_a_delivery_may_tell_before_the_answer_comes() -> None:
    world = guarded()
    world.queued(1, run_id=7)
    question = world.last(cm.LookUpRun)
    world.queued(1, run_id=7, origin=OWN)
    assert world.count(cm.Register) == 1
    world.feed(ev.RunLookedUp(question.job, question.token, None, fault=Fault(Remedy.RETRY, "late")))
    assert world.job(1).ask_again is None


def test_the_answer_serves_the_others_where_the_one_that_asked_is_over() -> None:
    world = guarded()
    world.queued(1, 2, run_id=7)
    world.completed(1, run_id=7)
    answer(world, OWN)
    assert [command.runner for command in of(world.sent, cm.Register)] != []
    assert world.job(2).refused == ""


def test_answers_to_other_questions_change_nothing() -> None:
    world = guarded()
    world.queued(1, run_id=7)
    question = world.last(cm.LookUpRun)
    world.feed(ev.RunLookedUp(question.job, question.token + 1, OWN))
    world.feed(ev.RunLookedUp(key(99), 1, OWN))
    assert world.feed(ev.RunLookedUp(key(1, "other/app"), 1, OWN)).changed == ()
    assert world.job(1).refused == "unknown"


def test_a_job_that_no_pool_can_serve_costs_no_question() -> None:
    world = guarded()
    world.queued(1, run_id=7, labels=("ubuntu-latest",))
    world.queued(2, run_id=8, labels=())
    assert world.sent == []
    assert "no pool has the label(s) ubuntu-latest" in why(world, 1)


def test_a_job_that_waits_for_approval_is_judged_when_it_is_queued() -> None:
    world = guarded()
    world.told(report(1, S.WAITING, run_id=7, origin=FORK))
    assert world.job(1).refused == ""
    world.queued(1, run_id=7)
    assert world.job(1).refused == "fork"


def test_a_repository_that_becomes_public_is_served_no_more() -> None:
    world = guarded()
    (name,) = world.planned(1, run_id=7, origin=OWN)
    world.queued(1, run_id=7, origin=replace(OWN, public=True))
    assert world.job(1).refused == "public"
    world.registered(name)
    world.started(name)
    assert world.runner(name).state is RunnerState.STARTING


def test_a_new_policy_judges_what_waits() -> None:
    world = guarded()
    world.queued(1, run_id=7, origin=FORK)
    world.queued(2, run_id=8, origin=replace(OWN, branch="wip"))
    allowed = replace(world.setup, access=(Access("github", forks=("acme/app",)),))
    world.feed(ev.Reconfigured("ann", allowed))
    assert world.job(1).refused == ""
    assert world.count(cm.Register) == 2
    closed = replace(world.setup, access=(Access("github", branches=("main",)),))
    world.feed(ev.Reconfigured("ann", closed))
    assert [world.job(number).refused for number in (1, 2)] == ["branch", "branch"]
    world.feed(ev.Reconfigured("ann", replace(world.setup, access=())))
    assert [world.job(number).refused for number in (1, 2)] == ["", ""]
    assert world.stored["access"] == {}


def test_a_question_that_a_restart_lost_is_asked_again() -> None:
    world = guarded()
    world.queued(1, run_id=7)
    world.restart()
    assert world.count(cm.LookUpRun) == 2


def test_a_listing_that_leaves_a_refused_job_out_has_it_asked_about() -> None:
    world = guarded(pool(), pool("lib", scope=LIB))
    world.queued(1, run_id=7, origin=FORK)
    world.queued(2, run_id=8, origin=FORK, repository="acme/lib")
    world.wait(MINUTE)
    del world.waiting[key(1)]
    world.wait(5 * MINUTE)
    assert [question.job for question in of(world.sent, cm.LookUpJob)] == [key(1)]


def test_a_refused_job_that_the_forge_gives_to_a_runner_is_told() -> None:
    world = guarded()
    (name,) = world.listening(1, run_id=7, origin=OWN)
    world.queued(2, run_id=8, origin=FORK)
    world.in_progress(2, name, run_id=8, origin=FORK)
    assert world.counter("refused_jobs_taken_total|reason=fork") == 1
    assert "the forge gave a runner a job that the policy refuses" in world.notes
    assert world.runner(name).state is RunnerState.RUNNING
    assert world.count(cm.Deregister) == world.count(cm.Destroy) == 0


def test_an_allowed_job_and_one_of_a_forge_without_a_policy_are_taken_in_silence() -> None:
    world = guarded()
    (name,) = world.listening(1, run_id=7, origin=OWN)
    world.in_progress(1, name, run_id=7, origin=OWN)
    assert world.counter("refused_jobs_taken_total|reason=fork") == 0
    plain = World()
    (name,) = plain.listening(1)
    plain.in_progress(1, name, origin=FORK)
    assert "the forge gave a runner a job that the policy refuses" not in plain.notes


def test_a_repository_has_at_most_so_many_runners_and_others_are_served() -> None:
    world = guarded(most=1)
    first = world.planned(1, 2, origin=OWN)
    assert why(world, 2) == "acme/app has as many runners as forge.github.repository_runners allows"
    other = world.planned(3, repository="acme/lib", origin=OWN)
    assert (len(first), len(other)) == (1, 1)
    for name, number, repository in ((first[0], 1, "acme/app"), (other[0], 3, "acme/lib")):
        world.registered(name)
        world.started(name)
        world.in_progress(number, name, repository=repository)
    assert len(of(world.sent, cm.Register)) == 2
    world.completed(1, first[0])
    world.exited(first[0])
    assert len(of(world.sent, cm.Register)) == 3


def test_a_full_repository_displaces_nobody() -> None:
    gpu = pool("gpu", scope=ORG, labels=("gpu", *LABELS))
    world = guarded(pool(scope=ORG, labels=("x",)), gpu, most=1)
    assert world.planned(1, labels=("x",), origin=OWN) != []
    assert world.planned(2, labels=("gpu",), origin=OWN) == []
    assert world.core.state.slots_free("here") == 3


def test_a_core_without_rows_of_access_is_one_without_a_policy() -> None:
    core = Core()
    core.handle(ev.Booted("s1", "e1", Setup((pool(),), (Host("here", 1),), Policy())), 1)
    assert core.checkpoint()["rows"]["access"] == {}


def test_a_repository_is_counted_whatever_the_case_of_its_name() -> None:
    world = guarded(most=1)
    assert len(world.planned(1, repository="acme/app", origin=OWN)) == 1
    assert world.planned(2, repository="Acme/App", origin=OWN) == []


def test_the_policy_of_one_forge_says_nothing_of_another() -> None:
    world = World()
    world.boot(setup=replace(world.setup, access=(Access("gitlab", repositories=("none/such",), most=0),)))
    world.sent.clear()
    assert len(world.planned(1, origin=FORK)) == 1
    assert world.job(1).refused == ""


def test_what_was_told_of_an_origin_is_not_forgotten_by_a_later_word_that_tells_less() -> None:
    world = guarded()
    world.queued(1, run_id=7, origin=OWN)
    world.queued(1, run_id=7, origin=Origin(public=False))
    job = world.job(1)
    assert (job.public, job.fork, job.branch, job.workflow) == (False, False, "main", "CI")
    assert (world.count(cm.LookUpRun), world.job(1).refused) == (0, "")


def test_a_job_that_turns_out_to_be_a_forks_is_told_once() -> None:
    world = guarded()
    world.queued(1, run_id=7)
    answer(world, FORK)
    assert world.counter("jobs_refused_total|reason=fork") == 1
    assert world.notes.count("a job is not served") == 1
    world.queued(1, run_id=7, origin=FORK)
    assert world.counter("jobs_refused_total|reason=fork") == 1


def test_a_job_of_which_nothing_is_known_is_not_told_as_refused() -> None:
    world = guarded()
    world.queued(1, run_id=7)
    assert world.counter("jobs_refused_total|reason=unknown") == 0
    assert "a job is not served" not in world.notes


def test_a_refused_job_of_unknown_origin_that_a_runner_was_given_is_told_by_no_guess() -> None:
    world = guarded()
    (name,) = world.listening(1, run_id=7, origin=OWN)
    world.in_progress(2, name, run_id=8)
    assert "the forge gave a runner a job that the policy refuses" not in world.notes


def test_a_job_without_labels_is_judged_where_a_pool_takes_such() -> None:
    world = guarded(pool(scope=ORG, unlabelled=True))
    world.queued(1, run_id=7, labels=(), origin=FORK)
    assert world.job(1).refused == "fork"


def test_a_pool_that_is_configured_no_more_asks_about_no_job() -> None:
    world = guarded(pool(scope=ORG), pool("gpu", scope=ORG, labels=("gpu", *LABELS)))
    left = replace(world.setup, pools=world.setup.pools[:1])
    world.feed(ev.Reconfigured("ann", left))
    world.queued(1, run_id=7, labels=("gpu",))
    assert world.count(cm.LookUpRun) == 0
    assert world.job(1).refused == ""


def test_an_answer_vouches_for_its_scope_and_a_missing_run_does_not() -> None:
    world = guarded()
    world.wait(5 * SECOND)
    world.queued(1, run_id=7)
    world.now += MINUTE
    answer(world, None, fault=Fault(Remedy.RETRY, "timed out"))
    assert world.core.state.scope(ORG).silent == world.now


def test_a_run_that_is_not_found_does_not_vouch_for_its_scope() -> None:
    """A token that may not see it is told the same."""
    world = guarded()
    world.queued(1, run_id=7)
    before = world.core.state.scope(ORG).answered
    world.now += MINUTE
    answer(world, None, missing=True)
    assert world.core.state.scope(ORG).answered == before


def test_what_is_served_after_all_is_not_told_as_refused() -> None:
    world = guarded()
    world.queued(1, run_id=7, origin=FORK)
    allowed = replace(world.setup, access=(Access("github", forks=("acme/app",)),))
    world.feed(ev.Reconfigured("ann", allowed))
    assert world.job(1).refused == ""
    assert world.notes.count("a job is not served") == 1
    assert [name for name in world.core.state.counters if name.startswith("jobs_refused_total")] == [
        "jobs_refused_total|reason=fork"
    ]


def test_a_run_is_asked_about_for_its_other_jobs_when_the_one_that_asked_is_over() -> None:
    world = guarded()
    world.queued(1, 2, run_id=7)
    question = world.last(cm.LookUpRun)
    world.completed(question.job.id, run_id=7)
    world.feed(ev.RunLookedUp(question.job, question.token, None, fault=Fault(Remedy.REFUSED, "not today")))
    (again,) = of(world.wait(31 * SECOND), cm.LookUpRun)
    assert again.job == key(2)


@pytest.mark.parametrize(
    ("known", "told"),
    [(Origin(fork=False), Origin(public=False)), (Origin(public=False), Origin(fork=False))],
)
def test_what_is_known_of_a_run_is_put_together_from_two_of_its_jobs(known: Origin, told: Origin) -> None:
    world = guarded()
    world.told(report(1, S.IN_PROGRESS, run_id=7, origin=known))
    world.queued(2, run_id=7, origin=told)
    assert (world.count(cm.LookUpRun), world.count(cm.Register)) == (0, 1)


def test_a_job_whose_labels_are_those_of_a_pool_of_another_repository_costs_no_question() -> None:
    world = guarded(pool(), pool("gpu", scope=LIB, labels=("gpu", *LABELS)))
    world.queued(1, run_id=7, labels=("gpu",))
    assert world.sent == []
    assert world.job(1).refused == ""


def test_the_reason_speaks_of_forks_only_where_there_is_one() -> None:
    world = guarded(branches=("main",))
    world.queued(1, run_id=7, origin=replace(OWN, branch="wip"))
    assert why(world, 1) == "refused: forge.github.branches does not allow the branch 'wip'"


def test_a_question_about_an_approval_is_not_forgotten_when_the_job_is_told_anew() -> None:
    """Its answer stands; a delivery that calls the job queued once more may be an old one."""
    world = World(pool(max_concurrent=0))
    world.queued(1)
    world.feed(ev.ScopeAnswered(APP, limited_until=world.now + 20 * SECOND))
    world.told(report(1, S.WAITING))
    world.queued(1)
    assert [question.job for question in of(world.wait(31 * SECOND), cm.LookUpJob)] == [key(1)]
