"""Is it well? Every reason is a sentence that says what to do."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.health import Health, assess
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import Scope
from ephemerd.domain.job import ForgeStatus
from ephemerd.domain.pool import Host, Policy, Setup
from ephemerd.domain.runner import FenceAnswer, RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core.world import (
    APP,
    DAY,
    GPU,
    HOUR,
    MINUTE,
    NO_ANSWER,
    SECOND,
    World,
    of,
    pool,
    seen,
)

BROKEN = Fault(Remedy.BROKEN, "the disk is full")
PATIENT: dict[str, Any] = {"orphan_grace": HOUR, "surplus_grace": HOUR}


def health(world: World) -> Health:
    return assess(world.core.state, world.now)


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


def test_a_class_that_is_held_is_a_reason_from_two_minutes_on() -> None:
    world = World()
    world.listening(1)
    world.wait(2 * MINUTE - 1)
    assert health(world).status == "ok"
    world.wait(1)
    assert "is matched but not taken: runner eph-s1-e1-1 satisfies it" in health(world).reasons[0]


def test_the_last_free_slot_is_one_that_would_serve() -> None:
    world = World(pool(max_concurrent=0), slots=1)
    world.queued(1)
    world.wait(10 * MINUTE)
    assert health(world).status == "stuck"


def test_fp_58_pools_of_other_hosts_do_not_hide_the_slot_that_would_serve() -> None:
    other = pool("arm", labels=("arm",), host="there")
    world = World(other, pool(), hosts=(Host("here", 1), Host("there", 1)))
    (name,) = world.listening(9)
    world.in_progress(9, name)
    world.sign(name, Sign.WORKER)
    world.queued(1)
    world.completed(9, name)
    busy_for(world, 11 * MINUTE)
    assert "Job github/acme/app/1 has waited" in health(world).reasons[0]


def test_a_scope_that_nobody_uses_any_more_neither_worries_nor_hides_another() -> None:
    unused = Scope("github", "repo:acme/aaa")
    world = World(pool("former", scope=unused), pool(), lists=False)
    world.feed(ev.JobsListed(unused, 0, Fault(Remedy.DENIED, "Bad credentials")))
    world.restart(setup=Setup((pool(),), world.setup.hosts, Policy()))
    assert health(world) == Health("ok", ())
    world.feed(ev.JobsListed(APP, 0, Fault(Remedy.DENIED, "Bad credentials")))
    (reason,) = health(world).reasons
    assert reason.startswith("github/repo:acme/app refuses our credential")


def test_a_limit_is_over_when_its_time_has_come() -> None:
    world = World(lists=False)
    world.feed(ev.ScopeAnswered(APP, limited_until=world.now + 1_500))
    (reason,) = health(world).reasons
    assert "for another 1 s: just wait" in reason
    world.now += 1_500
    assert health(world) == Health("ok", ())


@pytest.mark.parametrize("trouble", [{"failures": 3}, {"missing": "no image"}, {"refused": 5}, {"exits": 9}])
def test_what_befell_a_pool_that_is_configured_no_more_is_nobodys_worry(trouble: dict[str, object]) -> None:
    world = World(pool(), pool("former", labels=GPU))
    row = world.core.state.pools["former"]
    world.core.state.pools["former"] = replace(row, **trouble)
    assert "Pool former" in health(world).reasons[0]
    world.core.state.pools["former"] = replace(row, configured=False, **trouble)
    assert health(world) == Health("ok", ())


def test_each_class_is_judged_by_its_own_oldest_job() -> None:
    """One that is not held, and one that is held but young, hide nothing of the next."""
    world = World(pool("arm", labels=("arm",), **PATIENT), pool(**PATIENT))
    world.listening(2)
    world.wait(100 * SECOND)
    world.listening(1, labels=("arm",))
    world.wait(19 * SECOND)
    assert health(world).status == "ok"
    for ms, held in ((SECOND, False), (15 * SECOND, True)):
        world.wait(ms)
        assert world.core.state.classes["github/acme/app|arm"].held is held
        (reason,) = health(world).reasons
        assert reason.startswith("Job github/acme/app/2 is matched but not taken")
    world.wait(2 * MINUTE)
    assert [reason.partition(" is ")[0] for reason in health(world).reasons] == [
        "Job github/acme/app/1",
        "Job github/acme/app/2",
    ]


def test_the_listener_that_has_waited_the_longest_is_named() -> None:
    world = World(pool(**PATIENT))
    (first, second) = world.planned(1, 2)
    for name in (second, first):
        world.registered(name)
        world.started(name)
        world.sign(name, Sign.LISTENING)
        world.wait(SECOND)
    world.wait(2 * MINUTE)
    (reason,) = health(world).reasons
    assert f"runner {second} satisfies it and listens" in reason


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, True),
        ({"state": RunnerState.GONE}, False),
        ({"state": RunnerState.RUNNING}, False),
        ({"vetoes": 0}, False),
        ({"known": -MINUTE}, False),
        ({"started": 1 - 10 * MINUTE}, False),
        ({"vetoed_until": -2 * MINUTE}, True),
        ({"vetoed_until": -2 * MINUTE - 1}, False),
    ],
)
def test_only_one_that_was_looked_at_lately_and_in_vain_for_long_is_said_to_be_unreadable(
    changes: dict[str, Any], said: bool
) -> None:
    """Times are ms from now. Another runner, made before it, is well."""
    world = World()
    _, name = world.listening(1, 2)
    now = world.now + DAY
    marks = {"vetoes": 1, "vetoed_until": 0, "started": -10 * MINUTE, "created": -HOUR} | changes
    times = {key: now + value for key, value in marks.items() if key != "vetoes" and type(value) is int}
    world.core.state.runners[name] = replace(world.runner(name), **(marks | times))
    reasons = [text for text in assess(world.core.state, now).reasons if "could not be looked into" in text]
    assert [f"Runner {name} could not be looked into for 10 min" in text for text in reasons] == [True] * said


def test_the_latest_progress_counts_whichever_runner_made_it() -> None:
    world = World()
    first, second = world.listening(1, 2)
    now = world.now + DAY
    world.core.state.runners[first] = replace(world.runner(first), hard=now - MINUTE)
    world.core.state.runners[second] = replace(world.runner(second), hard=now - HOUR)
    assert "has waited" not in " ".join(assess(world.core.state, now).reasons)


def test_one_that_was_stuck_until_it_was_gone_is_nobodys_worry() -> None:
    """It never began to listen, and nothing was started that could be destroyed."""
    world = World()
    (name,) = world.listening(1)
    stuck = replace(world.runner(name), stuck="it does not begin to listen")
    world.core.state.runners[name] = stuck
    assert "is stuck (it does not begin" in health(world).reasons[0]
    world.core.state.runners[name] = replace(stuck, state=RunnerState.GONE)
    assert "is stuck" not in " ".join(health(world).reasons)


def test_a_host_takes_no_new_work_from_as_many_abandoned_environments_on_as_the_policy_says() -> None:
    world = World(policy=Policy(abandoned_limit=3))
    abandoned = world.core.state.index.abandoned
    abandoned["here"] = 2
    assert health(world).status == "ok"
    abandoned["here"] = 3
    assert health(world).status == "stuck"
    assert "Host here takes no new work: 3 environments would not die" in health(world).reasons[0]


def test_slots_that_do_not_add_up_are_a_bug_to_report() -> None:
    world = World()
    world.core.state.index.held["here"] = 1
    (reason,) = health(world).reasons
    assert reason.startswith("Slot accounting differs by 1: this is a bug")
