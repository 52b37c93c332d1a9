"""Is it well, and why does this job wait? Every reason is a sentence that says what to do."""

from __future__ import annotations

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.health import Health, assess
from ephemerd.core.waiting import why_waiting
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.job import ForgeStatus
from ephemerd.domain.pool import Host, Policy, Setup
from ephemerd.domain.runner import FenceAnswer
from ephemerd.domain.verdict import Sign
from tests.unit.core.world import (
    APP,
    GPU,
    HOUR,
    LIB,
    MINUTE,
    NO_ANSWER,
    SECOND,
    World,
    key,
    of,
    pool,
    report,
    seen,
)

BROKEN = Fault(Remedy.BROKEN, "the disk is full")


def health(world: World) -> Health:
    return assess(world.core.state, world.now)


def why(world: World, number: int = 1) -> str:
    return why_waiting(world.core.state, key(number), world.now)


def test_a_quiet_daemon_is_ok_without_a_reason() -> None:
    world = World()
    world.listening(1)
    assert health(world) == Health("ok", ())


# -- stuck ---------------------------------------------------------------------------------------------


def busy_for(world: World, ms: int) -> None:
    """Let time pass while every probe of a worker says busy, and every job is confirmed as waiting."""
    until = world.now + ms
    while world.now < until:
        for command in world.wait(SECOND):
            if isinstance(command, cm.ProbeRunner):
                world.probed(command, seen(workers=1))
            elif isinstance(command, cm.LookUpJob):
                world.job_answer(command, ForgeStatus.QUEUED)


def test_demand_that_a_free_slot_would_serve_and_nothing_moves_is_stuck() -> None:
    world = World(pool(max_concurrent=0))
    world.queued(1)
    world.wait(10 * MINUTE - 1)
    assert health(world).status == "ok"
    world.wait(1)
    found = health(world)
    assert found.status == "stuck"
    (reason,) = found.reasons
    assert reason == (
        "Job github/acme/app/1 has waited 10 min while a slot could serve it and nothing moved: "
        "run `ephemerd explain 1`."
    )


def test_a_slot_held_by_a_runner_that_runs_a_job_is_no_reason() -> None:
    world = World(slots=1)
    (name,) = world.listening(9)
    world.in_progress(9, name)
    world.queued(1)
    busy_for(world, 20 * MINUTE)
    assert health(world).status == "ok"


def test_fp_58_a_slot_held_by_one_that_is_not_verified_busy_is() -> None:
    world = World(slots=1)
    (name,) = world.listening(9)
    world.sign(name, Sign.WORKER)
    world.in_progress(9, name)
    world.queued(1)
    world.completed(9, name)
    busy_for(world, 11 * MINUTE)
    found = health(world)
    assert found.status == "stuck"
    assert any("worker lives on" in reason for reason in found.reasons)


def test_progress_anywhere_is_progress() -> None:
    world = World(slots=1)
    (name,) = world.listening(9)
    world.queued(1)
    world.wait(9 * MINUTE)
    world.in_progress(9, name)
    world.wait(9 * MINUTE)
    world.completed(9, name)
    world.wait(9 * MINUTE)
    assert "has waited" not in " ".join(health(world).reasons)


def test_a_start_counts_as_progress_so_that_nothing_is_stuck_at_once() -> None:
    world = World(pool(max_concurrent=0))
    world.queued(1)
    world.restart(down=3 * 60 * MINUTE)
    assert health(world).status == "ok"


# -- degraded ------------------------------------------------------------------------------------------


def test_scopes_say_what_is_wrong_with_them() -> None:
    world = World(lists=False)
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    world.wait(30 * SECOND)
    (reason,) = health(world).reasons
    assert reason.startswith(
        "github/repo:acme/app has given no answer for 30 s (no answer within 10 s): nothing"
    )
    world.feed(ev.ScopeAnswered(APP, limited_until=world.now + 90 * SECOND))
    world.feed(ev.ScopeAnswered(APP))
    (reason,) = health(world).reasons
    assert reason.endswith("limits our requests for another 90 s: just wait.")
    world.wait(2 * MINUTE)
    world.feed(ev.JobsListed(APP, 0, Fault(Remedy.DENIED, "Bad credentials")))
    (reason,) = health(world).reasons
    assert "refuses our credential (Bad credentials): renew" in reason


def test_a_pool_that_cannot_make_runners_says_the_last_fault() -> None:
    world = World()
    (name,) = world.planned(1)
    world.feed(ev.RegistrationFailed(name, BROKEN))
    found = health(world)
    assert found.status == "degraded"
    assert "the disk is full" in found.reasons[0]


def test_runners_that_end_without_a_job_are_a_reason_from_the_fifth_on() -> None:
    world = World(policy=Policy(backoff=(1,)))
    world.queued(1)
    for turn in range(1, 6):
        name = world.last(cm.Register).runner
        world.registered(name)
        world.started(name)
        world.sign(name, Sign.LISTENING)
        world.exited(name, 0)
        assert (health(world).status == "degraded") == (turn == 5)
        world.wait(2)
    assert "5 runners in a row ended without a job" in health(world).reasons[0]


def test_fp_46_a_label_that_no_pool_has_is_named() -> None:
    world = World()
    world.queued(1, labels=("self-hosted", "linux", "gpu"))
    (reason,) = health(world).reasons
    assert reason == (
        "Job github/acme/app/1 is not served: no pool has the label(s) gpu. "
        "Add the label to a pool, or a pool for it."
    )


def test_fp_47_hosted_labels_are_nobodys_worry() -> None:
    world = World()
    world.queued(1, labels=("ubuntu-latest",))
    assert health(world).status == "ok"


def test_fp_16_a_hung_listener_is_named() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ACKNOWLEDGED)
    world.wait(2 * MINUTE)
    assert any(name in reason and "nothing followed" in reason for reason in health(world).reasons)


# -- why does it wait ----------------------------------------------------------------------------------


def test_a_job_that_does_not_wait_has_no_reason() -> None:
    world = World()
    assert why(world) == ""
    world.queued(1)
    world.in_progress(1, "somebody-elses")
    assert why(world) == ""


def test_approval_and_a_runner_on_its_way() -> None:
    world = World()
    world.told(report(1, ForgeStatus.WAITING))
    assert why(world) == "the forge holds it for an approval or a wait timer"
    world.queued(1)
    assert why(world).startswith("a runner for it is on its way")


def test_no_pool_and_no_labels() -> None:
    world = World()
    world.queued(1, labels=GPU)
    assert why(world) == "no pool has the label(s) gpu"
    world.queued(2, labels=())
    assert why(world, 2) == "it asks for no labels, and no pool has `unlabelled = true`"


def test_a_question_that_is_out() -> None:
    world = World(slots=1)
    (name,) = world.listening(9)
    world.in_progress(9, name)
    world.queued(1)
    assert why(world) == "host here has no free slot"
    world.wait(61 * SECOND)
    world.exited(name)
    assert why(world) == "the forge is asked whether it still waits; a slot is reserved"


def test_a_backoff_says_how_long_and_after_what() -> None:
    world = World()
    (name,) = world.planned(1)
    world.feed(ev.RegistrationFailed(name, BROKEN))
    assert why(world).startswith("pool small waits ")
    assert why(world).endswith("after: the disk is full")


def test_a_cordon_says_by_whom() -> None:
    world = World()
    world.feed(ev.CordonOrdered("ann", ev.Target.HOST, "here", "disk swap"))
    world.queued(1)
    assert why(world) == "pool small is cordoned by ann: disk swap"


def test_troubles_of_the_scope() -> None:
    world = World()
    world.feed(ev.ScopeAnswered(APP, limited_until=world.now + 30 * SECOND))
    world.queued(1)
    assert why(world) == "the forge limits our requests for another 30 s"
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    assert why(world) == "the forge gives no answer"
    world.feed(ev.JobsListed(APP, 0, Fault(Remedy.DENIED, "Bad credentials")))
    assert why(world) == "the forge refuses our credential: Bad credentials"


def test_limits_of_the_pool_and_of_the_host() -> None:
    world = World(pool(max_concurrent=1), slots=2)
    world.queued(1, 2)
    assert why(world, 2) == "pool small is at its max_concurrent (1)"
    world = World()
    for number in (1, 2):
        (name,) = world.listening(number)
        world.in_progress(number, name)
        world.exited(name, leftovers=1)
        world.feed(ev.DestroyFailed(name, f"env-{name}", BROKEN))
    world.queued(3)
    assert why(world, 3) == "host here has too many abandoned environments"


def test_a_pool_that_is_not_configured_any_more_is_said_to_be() -> None:
    world = World(pool(), pool("big", labels=GPU))
    world.restart(setup=Setup((pool(),), world.setup.hosts, Policy()))
    world.queued(1, labels=GPU)
    assert why(world) == "pool big is not configured any more"


def test_a_refusal_is_counted_and_the_runner_kept() -> None:
    world = World(pool(surplus_grace=0))
    world.listening(1)
    world.completed(1, how="cancelled")
    world.probed(world.last(cm.ProbeRunner))
    world.deregistered(world.last(cm.Deregister), FenceAnswer.REFUSED)
    assert world.counter("fence_refusals_total") == 1
    assert of(world.sent, cm.Destroy) == []


# -- where nothing is wrong, nothing is said -----------------------------------------------------------


def test_one_abandoned_environment_is_below_the_limit() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.exited(name, leftovers=1)
    world.feed(ev.DestroyFailed(name, f"env-{name}", BROKEN))
    assert health(world) == Health("ok", ())


def test_demand_that_no_pool_serves_is_never_stuck() -> None:
    world = World()
    world.queued(1, labels=("self-hosted", "gpu"))
    world.wait(20 * MINUTE)
    assert health(world).status == "degraded"


def test_young_demand_is_not_stuck_although_nothing_moved_for_long() -> None:
    world = World(pool(max_concurrent=0))
    world.wait(20 * MINUTE)
    world.queued(1)
    assert health(world) == Health("ok", ())


def test_a_slot_of_another_host_would_not_serve_it() -> None:
    """Its own host is full of jobs; on the other one a spare listens."""
    other = pool("arm", labels=("arm",), host="there", orphan_grace=HOUR, surplus_grace=HOUR)
    world = World(pool(), other, hosts=(Host("here", 1), Host("there", 1)))
    (busy,) = world.listening(8)
    world.in_progress(8, busy)
    world.listening(9, labels=("arm",))
    world.completed(9, how="cancelled")
    world.queued(1)
    busy_for(world, 20 * MINUTE)
    assert health(world) == Health("ok", ())
    world.completed(8, busy)
    world.exited(busy)
    world.feed(ev.CordonOrdered("ann", ev.Target.POOL, "small"))
    busy_for(world, 11 * MINUTE)
    assert "Job github/acme/app/1 has waited" in health(world).reasons[0]


def test_a_class_of_which_another_job_is_asked_about_has_its_turn() -> None:
    world = World(slots=3)
    names = world.listening(7, 8, 9)
    for number, name in zip((7, 8, 9), names, strict=True):
        world.in_progress(number, name)
    world.queued(1)
    world.wait(61 * SECOND)
    for name in names:
        world.exited(name)
    assert world.last(cm.LookUpJob).job == key(1)
    world.queued(2)
    assert why(world, 2) == "a runner for it is about to be planned"


def test_a_class_that_is_held_is_a_reason_from_two_minutes_on() -> None:
    world = World()
    world.listening(1)
    world.wait(2 * MINUTE - 1)
    assert health(world).status == "ok"
    world.wait(1)
    assert "is matched but not taken: runner eph-s1-e1-1 satisfies it" in health(world).reasons[0]


def test_a_job_that_nobody_knows_has_no_reason() -> None:
    assert why(World(), 99) == ""


def test_an_arrival_in_a_repository_that_no_pool_serves_any_more() -> None:
    world = World()
    world.queued(1)
    world.restart(setup=Setup((pool(scope=LIB),), world.setup.hosts, Policy()))
    assert why(world) == "no pool serves its repository"


def test_the_nearest_pool_names_the_labels_that_are_missing() -> None:
    world = World(pool("far", labels=("arm",)), pool(), pool("off", labels=("linux", "self-hosted", "x64")))
    world.queued(1, labels=("self-hosted", "linux", "x64", "gpu"))
    assert why(world) == "no pool has the label(s) gpu"


def test_a_class_that_is_held_says_so() -> None:
    world = World()
    world.listening(1)
    world.wait(30 * SECOND)
    world.queued(2)
    assert why(world, 2) == "the forge seems to hold back: a listening runner of its class has not been taken"
