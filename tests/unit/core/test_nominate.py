"""The nomination rules, each when it must and when it must not; and their rest after a start."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ephemerd.core import codec
from ephemerd.core import events as ev
from ephemerd.core.commands import Deregister, LookUpRunner, ProbeRunner
from ephemerd.core.machine import Core
from ephemerd.core.nominate import nominee, still
from ephemerd.core.rows import ClassRow
from ephemerd.core.turn import Turn
from ephemerd.domain.access import Access
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import JobKey, RunnerId
from ephemerd.domain.job import ForgeStatus, JobReport
from ephemerd.domain.pool import FenceKind, Host, Policy, Pool, Setup
from ephemerd.domain.runner import Fence, FenceAnswer, GatePhase, GateRun, Order, Rule, RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core.build import (
    BUSY,
    DAY,
    HOUR,
    IDLE,
    LABELS,
    MINUTE,
    SCOPE,
    SECOND,
    START,
    UNKNOWN,
    World,
    pool,
)

LATE = pool(surplus_grace=DAY)
"""A pool whose spares are not surplus, so that another rule can be seen."""


def reason(world, name):
    run = world.row(name).gate
    assert run is not None
    return run.reason


# expired


def test_expired_after_the_grace():
    world = World(LATE)
    world.wait(7 * SECOND)  # so that no sweep falls on the very moment
    name = world.spare()
    world.wait(10 * MINUTE - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert world.rules(name) == "expired"
    assert "10 min" in reason(world, name)


def test_expired_counts_from_when_it_began_to_listen():
    world = World(LATE)
    name = world.starting()
    world.wait(3 * MINUTE)
    world.sign(name, Sign.LISTENING)
    world.discharge(name)
    world.wait(10 * MINUTE - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert world.rules(name) == "expired"


def test_expired_counts_anew_after_a_busy_flag_that_lapsed():
    world = World(LATE, answers=False)
    name = world.listening()
    (command,) = [c for c in world.wait(30 * SECOND) if isinstance(c, LookUpRunner)]
    world.handle(ev.RunnerLookedUp(name, command.token, busy=True, connected=True))
    world.discharge(name)
    world.wait(15 * MINUTE)
    assert world.state(name) == "listening"
    world.wait(10 * MINUTE - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert world.rules(name) == "expired"


def test_a_hung_runner_is_no_supply_after_its_sign_lapsed_and_expires_without_a_second_grace():
    """fp 16: offered, and nothing followed; the next job of its class is not left to it."""
    world = World(LATE)
    name = world.assigned()
    world.discharge(name)
    world.wait(15 * MINUTE)
    assert world.state(name) == "listening"
    assert name not in world.core.state.index.supply.get(world.row(name).pool, {})
    world.wait(MINUTE)
    assert world.core.state.counters["nominations_total|rule=expired"] == 1


def test_matched_runner_expires_only_after_its_registration_was_looked_up():
    world = World(answers=False)
    name = world.listening()
    world.handle(ev.JobsListed(SCOPE, 0))
    world.wait(11 * MINUTE)
    (question,) = world.commands(LookUpRunner, name)[:1]
    assert world.rules(name) is None
    world.handle(ev.RunnerLookedUp(name, world.row(name).token, busy=False, connected=True))
    assert question.registration == 9001
    assert world.rules(name) == "expired"


def test_matched_runner_that_was_looked_up_expires():
    world = World()
    name = world.listening()
    world.wait(30 * SECOND)
    assert world.row(name).untaken == world.now
    world.wait(10 * MINUTE - 30 * SECOND)
    assert world.rules(name) == "expired"


@pytest.mark.parametrize("make", ["starting", "assigned", "running", "registering"])
def test_only_a_listening_runner_expires(make):
    world = World(LATE, policy=Policy(provision_limit=DAY, soft_sign_life=DAY))
    name = getattr(world, make)()
    world.wait(50 * SECOND if make == "registering" else HOUR)
    assert world.rules(name) is None


# surplus


def test_surplus_after_its_grace():
    world = World()
    name = world.spare()
    world.wait(30 * SECOND - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert world.rules(name) == "surplus"


def test_surplus_at_once_where_the_grace_is_nought():
    world = World(pool(surplus_grace=0))
    assert world.rules(world.spare()) == "surplus"


def test_surplus_not_while_its_own_job_still_waits():
    """Left over because another runner listens for longer, but its job is demand."""
    world = World(pool(surplus_grace=0, max_concurrent=2), slots=2)
    first, second = world.listening(), world.listening()
    world.completes(world.intent(first), conclusion="cancelled")
    assert world.row(second).surplus_since is not None
    assert world.rules(second) is None
    assert world.rules(first) is None


@pytest.mark.parametrize("end", ["started", "done", "waiting"])
def test_discharged_by_whatever_ends_the_demand(end):
    world = World(pool(surplus_grace=0))
    name = world.listening()
    intent = world.intent(name)
    if end == "started":
        world.begins(intent, "somebody-elses")
    elif end == "done":
        world.completes(intent, "somebody-elses")
    else:
        _waits(world, intent)
    assert world.rules(name) == "surplus"


def _waits(world, key):
    world.job(key, ForgeStatus.WAITING)
    token = world.core.state.jobs[key].token
    world.handle(ev.JobLookedUp(key, token, JobReport(key, ForgeStatus.WAITING, LABELS)))


def test_most_advanced_spares_are_kept():
    world = World(pool(surplus_grace=0))
    first, second = world.listening(), world.starting()
    world.wait(SECOND)
    world.sign(second, Sign.LISTENING)
    world.begins(world.intent(first), "somebody-elses")
    world.begins(world.intent(second), "somebody-elses")
    assert world.rules(first) == "surplus"
    assert world.rules(second) == "surplus"
    other = World(pool(surplus_grace=0))
    first, second = other.listening(), other.starting()
    other.wait(SECOND)
    other.sign(second, Sign.LISTENING)
    other.begins(other.intent(second), "somebody-elses")
    assert (other.rules(first), other.rules(second)) == (None, "surplus")


def test_surplus_grace_counts_from_the_matching_that_leaves_it_over():
    world = World()
    name = world.spare()
    world.wait(20 * SECOND)
    job = world.queue()
    world.wait(20 * SECOND)
    assert world.rules(name) is None
    world.completes(job, conclusion="cancelled")
    world.wait(30 * SECOND - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert world.rules(name) == "surplus"


def test_bound_runner_is_no_surplus():
    world = World(pool(surplus_grace=0))
    name = world.assigned()
    world.discharge(name)
    assert world.rules(name) is None


# spares that a person asked for


def warm(**changes):
    """Two idle listeners of a pool that keeps one spare; the first is the older one."""
    world = World(pool(**changes))
    first, second = world.listening(), world.listening()
    world.discharge(first)
    world.discharge(second)
    keep_spares(world, **changes)
    return world, first, second


def keep_spares(world: World, **changes) -> None:
    """From now on the pool keeps spares; there are as many already, so none is made."""
    world.setup = Setup((pool(**({"min_idle": 1} | changes)),), (Host("local", 4),), Policy())
    world.handle(ev.Reconfigured("ann", world.setup))


def test_spare_of_min_idle_is_no_surplus():
    world, first, second = warm()
    world.wait(30 * SECOND)
    assert (world.rules(first), world.rules(second)) == (None, "surplus")


def test_spare_of_min_idle_expires_at_its_greatest_age_only():
    world, first, second = warm(surplus_grace=DAY)
    world.wait(10 * MINUTE)
    assert (world.rules(first), world.rules(second)) == (None, "expired")
    world.exits(second)
    world.wait(6 * HOUR - 10 * MINUTE - 1)
    assert world.rules(first) is None
    world.wait(1)
    assert world.rules(first) == "expired"


def test_without_min_idle_no_spare_is_kept():
    world = World()
    first, second = world.listening(), world.listening()
    world.discharge(first)
    world.discharge(second)
    world.wait(30 * SECOND)
    assert (world.rules(first), world.rules(second)) == ("surplus", "surplus")


# displaced


def rivals(**changes):
    """A world with one slot, where a listening runner of one pool holds it and another class waits."""
    world = World(pool(surplus_grace=DAY, **changes), pool("arm", labels=("arm",)), slots=1)
    name = world.listening()
    return world, name


def test_displaced_after_listening_for_a_minute():
    world, name = rivals()
    world.queue(("arm",))
    world.wait(MINUTE - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert world.rules(name) == "displaced"


def test_a_core_from_rows_alone_knows_at_once_who_waits_for_a_slot():
    """Else the first answer that it takes in would find that the rule holds no longer."""
    world, name = rivals()
    world.queue(("arm",))
    world.wait(MINUTE)
    rows = {
        kind: {key: codec.decode_row(kind, row) for key, row in found.items()}
        for kind, found in world.core.checkpoint()["rows"].items()
    }
    core = Core(rows, world.now)
    row = core.state.runners[name]
    assert row.gate is not None
    assert still(Turn(core.state, world.now), row, row.gate.rule)


def test_displaced_by_the_next_sweep_where_it_has_listened_for_long():
    world, name = rivals()
    world.wait(2 * MINUTE + 1)
    world.queue(("arm",))
    world.wait(MINUTE)
    assert world.rules(name) == "displaced"


def test_displaced_at_once_by_a_job_that_comes_when_it_has_listened_for_long():
    world = World(pool(surplus_grace=DAY), pool("arm", labels=("arm",)), slots=2)
    name = world.listening()
    busy = world.listening(("arm",))
    world.sign(busy, Sign.ANNOUNCED, "Running job: build")
    world.wait(2 * MINUTE + 1)
    assert world.rules(name) is None
    world.queue(("arm",))
    assert world.rules(name) == "displaced"


def test_not_displaced_by_demand_that_it_can_serve():
    world, name = rivals()
    world.queue()
    world.wait(5 * MINUTE)
    assert world.rules(name) is None


def test_not_displaced_by_jobs_that_came_just_now_and_that_it_can_serve():
    """One of the two waits for a slot, and nobody holds it back yet."""
    world, name = rivals()
    world.discharge(name)
    world.now += 2 * MINUTE
    world.queue()
    world.queue()
    assert asked(world, name) is None


def test_not_displaced_by_demand_whose_pool_waits_beside_a_free_slot():
    """Its next try has a backoff: another slot would not help it."""
    world = World(pool(surplus_grace=DAY), pool("arm", labels=("arm",)), slots=2)
    name = world.listening()
    world.wait(2 * MINUTE)
    arm = world.registering(("arm",))
    world.handle(ev.RegistrationFailed(arm, Fault(Remedy.REFUSED, "422")))
    world.handle(ev.SweepOrdered())
    assert world.core.state.slots_free("local") == 1
    assert world.rules(name) is None


def test_not_displaced_while_a_slot_is_free():
    world = World(pool(surplus_grace=DAY), pool("arm", labels=("arm",)), slots=2)
    name = world.listening()
    world.queue(("arm",))
    world.wait(5 * MINUTE)
    assert world.rules(name) is None


@pytest.mark.parametrize("why", ["elsewhere", "full", "cordoned"])
def test_not_displaced_where_its_slot_would_not_help(why):
    changes: dict[str, dict[str, Any]] = {"elsewhere": {"host": "other"}, "full": {"max_concurrent": 0}}
    other = changes.get(why, {})
    world = World(pool(surplus_grace=DAY), pool("arm", labels=("arm",), **other), slots=1)
    name = world.listening()
    if why == "cordoned":
        world.handle(ev.CordonOrdered("ann", ev.Target.POOL, "arm"))
    world.queue(("arm",))
    world.wait(5 * MINUTE)
    assert world.rules(name) is None


def test_one_unit_of_demand_displaces_one_runner():
    world = World(pool(surplus_grace=DAY), pool("arm", labels=("arm",)), slots=2)
    names = [world.listening(), world.listening()]
    world.wait(2 * MINUTE)
    world.queue(("arm",))
    world.handle(ev.SweepOrdered())
    assert [world.rules(name) for name in names].count("displaced") == 1
    world.queue(("arm",))
    world.handle(ev.SweepOrdered())
    assert [world.rules(name) for name in names].count("displaced") == 2


def test_a_retiring_runner_already_gives_way():
    world = World(pool(surplus_grace=0), pool("arm", labels=("arm",)), slots=2)
    first, second = world.listening(), world.listening()
    world.begins(world.intent(second), "somebody-elses")
    world.probed(second)
    world.fenced(second)
    world.wait(5 * SECOND)
    world.probed(second)
    assert world.state(second) == "retiring"
    world.now += MINUTE
    world.queue(("arm",))
    world.handle(ev.SweepOrdered())
    assert world.rules(first) is None
    world.queue(("arm",))
    world.handle(ev.SweepOrdered())
    assert world.rules(first) == "displaced"


@pytest.mark.parametrize("make", ["assigned", "running"])
def test_bound_runner_is_not_displaced(make):
    world = World(pool(), pool("arm", labels=("arm",)), slots=1)
    name = getattr(world, make)()
    world.queue(("arm",))
    world.wait(5 * MINUTE)
    assert world.rules(name) is None


# unborn


def test_unborn_after_the_provision_limit_and_no_supply_from_then_on():
    world = World()
    name = world.starting()
    world.wait(5 * MINUTE - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert world.rules(name) == "unborn"
    assert world.row(name).late
    assert name not in world.core.state.index.supply["linux"]
    (group,) = world.core.state.index.groups.values()
    assert group.unmatched == 1


def test_late_comer_that_listens_at_last_is_unborn_no_more():
    world = World(LATE)
    name = world.starting()
    world.wait(5 * MINUTE)
    world.probed(name, BUSY)
    world.now += MINUTE
    world.sign(name, Sign.ANNOUNCED)
    assert (world.state(name), world.rules(name)) == ("running", None)
    other = World(LATE)
    name = other.starting()
    other.wait(5 * MINUTE)
    other.sign(name, Sign.LISTENING)
    other.probed(name, UNKNOWN)
    other.flag(name, busy=False)
    other.wait(2 * SECOND)
    assert (other.state(name), other.rules(name)) == ("listening", None)


def test_not_unborn_once_it_listens():
    world = World()
    name = world.starting()
    world.wait(5 * MINUTE - 1)
    world.sign(name, Sign.LISTENING)
    world.wait(1)
    assert world.rules(name) is None


# finished


def test_finished_after_the_exit_grace():
    world = World()
    name = world.finishing()
    world.wait(MINUTE - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert world.rules(name) == "finished"
    assert "by log" in reason(world, name)


def test_finished_by_the_forge():
    world = World()
    name = world.running()
    world.completes(world.job_of(name), name)
    assert world.commands(Deregister, name) == []
    world.wait(MINUTE)
    assert world.rules(name) == "finished"


def test_completed_of_another_runner_touches_nothing_of_ours():
    """The recorded kill of 2026-07-10: the intent job ends elsewhere, and its runner executes another."""
    world = World()
    first, second = world.running(), world.listening()
    job = world.intent(second)
    world.begins(job, first)
    world.completes(world.intent(first), "somebody-elses")
    world.wait(9 * MINUTE)
    assert (world.state(first), world.rules(first)) == ("running", None)


def test_running_job_that_is_not_over_is_not_finished():
    world = World()
    name = world.running()
    world.wait(4 * HOUR)
    assert world.rules(name) is None


# spent


def test_spent_with_our_own_accepted_fence():
    world = World()
    name = world.settled()
    world.probed(name, None)
    world.wait(2 * SECOND)
    assert world.rules(name) == "spent"
    assert "accepted" in reason(world, name)


def lost(world, name, times=2):
    """Look-ups outside the gate miss the registration, a minute apart."""
    world.wait(30 * SECOND)
    for _ in range(times):
        world.vouch()
        world.handle(ev.RunnerLookedUp(name, world.row(name).token, missing=True))
        world.wait(MINUTE)


def test_spent_where_the_registration_was_missed_twice():
    world = World(answers=False)
    name = world.listening()
    lost(world, name)
    assert world.row(name).lost_again is not None
    assert world.rules(name) == "spent"


def test_not_spent_where_it_was_missed_once():
    world = World(answers=False)
    name = world.listening()
    lost(world, name, times=1)
    assert world.rules(name) is None
    assert name not in world.core.state.index.supply["linux"]


def test_missed_twice_within_a_minute_is_once():
    world = World(answers=False)
    name = world.listening()
    world.wait(30 * SECOND)
    for _ in range(2):
        world.vouch()
        world.handle(ev.RunnerLookedUp(name, world.row(name).token, missing=True))
        world.wait(29 * SECOND)
    assert world.row(name).lost_again is None


def test_not_spent_with_a_soft_sign_younger_than_a_quarter_of_an_hour():
    world = World()
    name = world.settled()
    world.probed(name, None)
    world.sign(name, Sign.OFFERED)
    offered = world.now
    world.wait(15 * MINUTE - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert (world.rules(name), world.now - offered) == ("spent", 15 * MINUTE)


def test_not_spent_with_a_hard_sign():
    world = World()
    name = world.settled()
    world.sign(name, Sign.ANNOUNCED)
    world.probed(name)
    world.wait(5 * HOUR)
    assert world.rules(name) is None


def test_finished_job_after_an_accepted_fence_has_its_exit_grace():
    world = World()
    name = world.settled()
    world.sign(name, Sign.ANNOUNCED)
    world.probed(name)
    world.wait(MINUTE)
    world.sign(name, Sign.ENDED)
    world.wait(MINUTE - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert world.rules(name) == "spent"


# leaked


def stray(world):
    """An environment with our tag of which the store knows nothing."""
    found = ev.FoundEnvironment(RunnerId("eph-abcd1234-e0-9"), "env-stray", "linux", ended=False)
    world.handle(ev.EnvironmentsListed("local", (found,), complete=True))
    return found.runner, ev.EnvironmentsListed("local", (found,), complete=True)


def past_the_rest(world):
    """A world that has booted, listed and waited for longer than grace."""
    world.wait(11 * MINUTE)
    return world


def test_leaked_when_seen_twice_a_minute_apart():
    world = past_the_rest(World(answers=False))
    world.handle(ev.JobsListed(SCOPE, 0))
    name, listing = stray(world)
    world.probed(name, IDLE)
    world.now += MINUTE - 1
    world.handle(listing)
    assert world.rules(name) is None
    world.now += 1
    world.handle(listing)
    assert world.rules(name) == "leaked"
    world.probed(name, IDLE)
    world.wait(5 * SECOND)
    world.probed(name, IDLE)
    assert world.outcomes(name) == [("leaked", "reaped", "idle", "probe")]
    assert world.commands(Deregister) == [], "no registration of it is known"


def test_leaked_that_is_busy_is_adopted_and_holds_a_slot():
    world = past_the_rest(World(answers=False))
    world.handle(ev.JobsListed(SCOPE, 0))
    name, listing = stray(world)
    world.probed(name, BUSY)
    world.now += 2 * MINUTE
    world.handle(listing)
    assert (world.state(name), world.rules(name)) == ("running", None)
    assert world.core.state.slots_held("local") == 1


# operator, cordoned


def test_operator_comes_before_every_other_rule():
    world = World()
    name = world.spare()
    world.kill(name)
    assert world.rules(name) == "operator"
    assert reason(world, name) == "ann asked: cleaning up"


def test_forced_order_stands_before_spent_and_another_one_behind():
    for force, rule in ((True, "operator"), (False, "spent")):
        world = World()
        name = world.settled()
        world.probed(name, None)
        world.kill(name, force=force)
        assert world.rules(name) == rule


@pytest.mark.parametrize("make", ["registering", "retiring", "gone", "abandoned"])
def test_what_has_no_end_to_give_is_not_nominated(make):
    world = World()
    name = getattr(world, make)()
    before = world.row(name).nominations
    world.core.state.runners[name] = replace(
        world.row(name), order_given=Order("ann", "", even_if_busy=True, at=1)
    )
    world.handle(ev.SweepOrdered())
    assert world.row(name).nominations == before


@pytest.mark.parametrize("target", [ev.Target.ALL, ev.Target.POOL, ev.Target.HOST])
def test_cordoned_nominates_every_unbound_runner_that_listens(target):
    world = World(LATE)
    idle, young, busy = world.listening(), world.starting(), world.running()
    name = {ev.Target.ALL: "", ev.Target.POOL: "linux", ev.Target.HOST: "local"}[target]
    world.handle(ev.CordonOrdered("ann", target, name))
    assert [world.rules(runner) for runner in (idle, young, busy)] == ["cordoned", None, None]
    world.sign(young, Sign.LISTENING)
    assert world.rules(young) == "cordoned"


def test_cordon_of_another_pool_nominates_nothing_here():
    world = World(LATE, pool("arm", labels=("arm",)))
    name = world.listening()
    world.handle(ev.CordonOrdered("ann", ev.Target.POOL, "arm"))
    assert world.rules(name) is None


# the sweep


def test_without_the_orphan_sweep_only_what_is_over_goes():
    world = World(pool(surplus_grace=0), policy=Policy(orphan_sweep=False))
    name = world.spare()
    world.wait(2 * HOUR)
    assert world.rules(name) is None
    world.handle(ev.DrainOrdered("ann", ev.Target.ALL))
    assert world.rules(name) == "cordoned", "a drain has to end"
    other = World(policy=Policy(orphan_sweep=False))
    name = other.finishing()
    other.wait(MINUTE)
    assert other.rules(name) == "finished"


def test_what_was_found_and_is_not_ours_goes_by_the_sweep_alone_and_rests_after_a_start():
    for sweeps in (True, False):
        world = World(policy=Policy(orphan_sweep=sweeps))
        world.wait(HOUR)
        name = world.spare()
        row = replace(
            world.row(name), state=RunnerState.STUCK, leak=world.now - HOUR, leak_again=world.now - MINUTE
        )
        t = Turn(world.core.state, world.now)
        assert nominee(t, replace(row, adopted=True, seen_after_start=False)) is None, (
            "not looked at in this process life"
        )
        found = nominee(t, row)
        assert (found[0] if found else None) == (Rule.LEAKED if sweeps else None)


def test_rules_are_evaluated_every_minute():
    world = World()
    world.wait(MINUTE)
    before = world.core.state.meta["sweep"]
    world.wait(MINUTE)
    assert world.core.state.meta["sweep"] - before == MINUTE


# rest after a start


def restarted(make="spare", **changes):
    world = World(pool(**({"surplus_grace": 0} | changes)), answers=False)
    name = world.listening()
    if make == "spare":
        world.core.state.runners[name] = replace(world.row(name), vetoed_until=world.now + DAY)
        world.discharge(name)
        world.core.state.runners[name] = replace(world.row(name), vetoed_until=0)
    world.restart(after=SECOND)
    return world, name


def test_surplus_rests_until_probed_listed_and_grace_has_passed():
    world, name = restarted()
    world.environments()
    booted = world.now
    world.probed(name)
    world.wait(20 * MINUTE)
    assert world.rules(name) is None, "no listing of the jobs yet"
    world.handle(ev.JobsListed(SCOPE, 0))
    assert world.rules(name) in ("expired", "surplus")
    assert world.now - booted >= 10 * MINUTE


@pytest.mark.parametrize("missing", ["probe", "listing", "grace"])
def test_each_of_the_three_is_needed(missing):
    world, name = restarted()
    world.environments()
    if missing != "probe":
        world.probed(name)
    if missing != "listing":
        world.handle(ev.JobsListed(SCOPE, 0))
    world.now += 10 * MINUTE - (1 if missing == "grace" else 0)
    if missing == "probe":
        world.core.state.runners[name] = replace(world.row(name), asked=world.now)
    world.handle(ev.SweepOrdered())
    assert world.rules(name) is None


def test_grace_after_a_start_is_inclusive():
    world, name = restarted()
    world.environments()
    world.probed(name)
    world.handle(ev.JobsListed(SCOPE, 0))
    world.wait(10 * MINUTE - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert world.rules(name) in ("expired", "surplus")


def test_a_runner_of_this_life_does_not_rest():
    world = World(pool(), pool("arm", labels=("arm",), surplus_grace=0), answers=False)
    world.listening()
    world.restart(after=SECOND)
    name = world.listening(("arm",))
    world.discharge(name)
    assert world.rules(name) == "surplus"


@pytest.mark.parametrize("rule", ["finished", "operator", "cordoned", "unborn"])
def test_what_rests_on_no_missed_event_does_not_wait(rule):
    world = World(LATE)
    name = world.finishing() if rule == "finished" else world.starting()
    if rule in ("operator", "cordoned"):
        world.sign(name, Sign.LISTENING)
    world.restart(after=SECOND)
    world.probed(name)
    if rule == "operator":
        world.kill(name)
    elif rule == "cordoned":
        world.handle(ev.DrainOrdered("ann", ev.Target.ALL))
    else:
        world.wait(MINUTE if rule == "finished" else 5 * MINUTE)
    assert world.rules(name) == rule


def test_polling_scope_rests_until_a_poll_has_read_its_running_jobs():
    world = World(pool(surplus_grace=0, observed=False), answers=False)
    name = world.listening()
    world.discharge(name)
    world.wait(11 * MINUTE)
    assert world.rules(name) is None
    world.handle(ev.JobsListed(SCOPE, 0))
    assert world.rules(name) in ("expired", "surplus")


# one nomination at a time


def test_nominated_runner_is_not_nominated_again():
    world = World()
    name = world.at_gate()
    world.handle(ev.SweepOrdered())
    assert world.row(name).nominations == 1
    assert len(world.commands(ProbeRunner, name)) == 1


def test_every_rule_has_its_counter_from_the_start():
    world = World()
    for rule in Rule:
        if rule is not Rule.ENDED:
            assert world.core.state.counters[f"nominations_total|rule={rule.value}"] == 0


def test_first_rule_that_holds_is_named():
    """A surplus runner of a cordoned pool whose job was refused once: the gate asks one rule only."""
    world = World(pool(surplus_grace=0))
    name = world.spare()
    world.probed(name)
    world.fenced(name, FenceAnswer.NO_ANSWER)
    world.handle(ev.CordonOrdered("ann", ev.Target.ALL))
    world.wait(2 * SECOND)
    assert world.rules(name) == "surplus"


def test_one_whose_fence_was_sent_is_no_spare_that_is_kept():
    """It is no supply any more, so another one takes its place among the pool's spares."""
    world = World()
    name = world.spare()
    keep_spares(world)
    world.wait(MINUTE)
    assert world.rules(name) is None
    world.handle(ev.CordonOrdered("ann", ev.Target.ALL))
    world.probed(name)
    world.fenced(name, FenceAnswer.NO_ANSWER, Fault(Remedy.RETRY, "timed out"))
    world.handle(ev.UncordonOrdered("ann", ev.Target.ALL))
    world.vouch()
    world.wait(MINUTE)
    assert world.rules(name) == "surplus"


@pytest.mark.parametrize("make", ["gone", "abandoned", "registering", "retiring"])
def test_no_rule_nominates_what_has_no_end_to_give(make):
    world = World()
    name = getattr(world, make)()
    row = replace(world.row(name), order_given=Order("ann", "cleaning up", even_if_busy=True, at=1))
    assert nominee(Turn(world.core.state, world.now), row) is None


# rules asked directly, each beside its edge


def asked(world: World, name: RunnerId, **changes: Any) -> Rule | None:
    """Which rule nominates the runner as it stands, or with some fields changed."""
    found = nominee(Turn(world.core.state, world.now), replace(world.row(name), **changes))
    return found[0] if found is not None else None


def unswept(*pools: Pool, **settings: Any) -> World:
    """A world without sweeps: what is found, is found at the moment that was set for it."""
    policy = Policy(nominate_every=10 * DAY, reconcile_every=10 * DAY, **settings)
    return World(*pools, policy=policy, slots=1)


def test_overdue_from_its_jobs_timeout_on_and_again_when_the_listener_did_not_stop():
    world = unswept(pool(job_timeout=2 * HOUR), overdue_grace=7 * MINUTE)
    name = world.running()
    world.wait(2 * HOUR - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert world.rules(name) == "overdue"
    world.probed(name, BUSY)
    assert world.row(name).stopping == world.now
    world.wait(7 * MINUTE - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert world.rules(name) == "overdue"


def test_a_job_that_is_over_is_not_overdue_however_long_it_ran():
    world = World(pool(job_timeout=MINUTE))
    name = world.finishing()
    world.now += 59 * SECOND
    assert asked(world, name, hard=world.now - HOUR) is None
    assert asked(world, name, hard=world.now - HOUR, state=RunnerState.RUNNING) is Rule.OVERDUE


def test_one_that_was_not_looked_into_since_the_start_rests_however_long_it_is():
    """An environment that is not known yet cannot be looked into, and no question is out that would stop it."""
    world = World(LATE)
    name = world.spare()
    world.now += DAY
    assert asked(world, name, adopted=True, seen_after_start=True) is Rule.EXPIRED
    assert asked(world, name, adopted=True, seen_after_start=False) is None


def test_spent_by_the_fence_alone_where_it_was_missed_twice():
    world = World()
    name = world.listening()
    missed = replace(world.row(name).fence, missing_again=world.now)
    assert asked(world, name, fence=missed) is Rule.SPENT


@pytest.mark.parametrize(
    ("changes", "rule"),
    [({}, Rule.EXPIRED), ({"leak": START}, None), ({"hard": START}, None)],
    ids=["kept", "leaked", "bound"],
)
def test_one_that_a_second_look_kept_expires_after_the_grace_unless_something_speaks_for_it(changes, rule):
    world = World()
    name = world.stuck()
    quiet = {"hard": None, "soft_last": None, "over": None, "leak": None, "fence": Fence(), "adopted": False}
    kept = quiet | changes
    since = world.row(name).since
    world.now = since + 10 * MINUTE - 1
    assert asked(world, name, **kept) is None
    world.now += 1
    assert asked(world, name, **kept) is rule


@pytest.mark.parametrize(("grace", "rule"), [(10 * SECOND, Rule.EXPIRED), (30 * SECOND, None)])
def test_a_matched_runner_is_looked_up_before_it_expires_where_the_grace_leaves_time_for_it(grace, rule):
    world = World(pool(orphan_grace=grace), answers=False)
    name = world.listening()
    world.now += grace
    assert asked(world, name) is rule
    assert asked(world, name, lost=world.now) is Rule.EXPIRED, "a look-up that missed it is one"


def test_two_spares_are_kept_where_two_are_wanted_and_a_matched_runner_is_none_of_them():
    world = World()
    names = [world.listening() for _ in range(4)]
    keep_spares(world, min_idle=2)
    for name in names[1:]:
        world.discharge(name)
    world.wait(30 * SECOND)
    assert [world.rules(name) for name in names] == [None, None, None, "surplus"]


def test_the_reason_of_a_displacement_is_said():
    world, name = rivals()
    world.queue(("arm",))
    world.wait(MINUTE)
    assert "waits for its slot" in reason(world, name)


def test_displaced_at_its_moment_without_a_sweep_and_a_minute_after_a_sign_lapsed():
    pools = pool(surplus_grace=DAY, orphan_grace=DAY), pool("arm", labels=("arm",))
    world = unswept(*pools)
    name = world.listening()
    world.queue(("arm",))
    world.wait(MINUTE - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert world.rules(name) == "displaced"
    world = unswept(*pools)
    name = world.listening()
    world.queue(("arm",))
    world.core.state.runners[name] = replace(world.row(name), token=77)
    world.handle(ev.RunnerLookedUp(name, 77, busy=True, connected=True))
    world.wait(16 * MINUTE - 1)
    assert (world.state(name), world.rules(name)) == ("listening", None)
    world.wait(1)
    assert world.rules(name) == "displaced"


def test_a_pool_that_is_configured_no_more_displaces_nobody():
    world, name = rivals()
    world.queue(("arm",))
    world.now += 2 * MINUTE
    assert asked(world, name) is Rule.DISPLACED
    pools = world.core.state.pools
    pools["arm"] = replace(pools["arm"], configured=False)
    assert asked(world, name) is None


def test_one_unit_that_two_pools_could_serve_displaces_one_runner():
    world = World(pool(surplus_grace=DAY), pool("a", labels=("arm",)), pool("b", labels=("arm",)), slots=2)
    names = [world.listening(), world.listening()]
    world.wait(2 * MINUTE)
    world.queue(("arm",))
    world.handle(ev.SweepOrdered())
    assert [world.rules(name) for name in names].count("displaced") == 1


@pytest.mark.parametrize(
    ("rule", "state", "gives_way"),
    [
        (Rule.DISPLACED, "listening", True),
        (Rule.FINISHED, "listening", False),
        (Rule.FINISHED, "retiring", True),
    ],
)
def test_whoever_leaves_for_certain_gives_way(rule, state, gives_way):
    """One unit of demand waits. One that the gate only looks at for another reason may well stay."""
    world = World(
        pool("aside", labels=("aside",), host="other"),
        pool(surplus_grace=DAY),
        pool("arm", labels=("arm",)),
        slots=2,
    )
    first, second = world.listening(), world.listening()
    world.now += 2 * MINUTE
    world.queue(("arm",))
    assert asked(world, first) is Rule.DISPLACED
    run = GateRun(1, rule, "", GatePhase.PROBING, world.now, 0, 0, world.now + MINUTE)
    row = replace(world.row(second), gate=run, state=RunnerState(state))
    world.core.state.runners[second] = row
    assert asked(world, first) is (None if gives_way else Rule.DISPLACED)


def test_a_listener_on_a_host_that_is_configured_no_more_goes():
    world = World()
    name = world.listening()
    assert asked(world, name) is None
    hosts = world.core.state.hosts
    hosts["local"] = replace(hosts["local"], configured=False)
    assert asked(world, name) is Rule.CORDONED


def test_each_rule_of_a_listener_is_found_at_its_moment_without_a_sweep():
    world = unswept(pool(surplus_grace=DAY, orphan_grace=HOUR))
    name = world.spare()
    world.wait(HOUR - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert world.rules(name) == "expired"


def test_a_hung_runner_expires_at_its_moment_counted_from_when_it_began_to_listen():
    world = unswept(pool(surplus_grace=DAY, orphan_grace=HOUR))
    name = world.assigned()
    world.discharge(name)
    world.wait(HOUR - 1)
    assert (world.state(name), world.rules(name)) == ("listening", None)
    world.wait(1)
    assert world.rules(name) == "expired"


def test_a_spare_that_is_kept_expires_at_its_greatest_age_without_a_sweep():
    world = unswept(pool(min_idle=1, surplus_grace=0), max_idle_age=2 * DAY)
    (name,) = world.core.state.runners
    world.handle(ev.Registered(name, 1))
    world.handle(ev.EnvironmentStarted(name, f"env-{name}"))
    world.sign(name, Sign.LISTENING)
    world.wait(2 * DAY - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert world.rules(name) == "expired"


def test_a_runner_whose_job_is_over_is_nominated_at_its_moment_without_a_sweep():
    world = unswept(exit_grace=42 * SECOND)
    name = world.finishing()
    world.wait(42 * SECOND - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert world.rules(name) == "finished"


def test_what_rested_after_a_start_is_found_at_its_moment_without_a_sweep():
    world = unswept(pool(surplus_grace=0))
    name = world.listening()
    world.restart(after=SECOND)
    world.probed(name)
    world.discharge(name)
    world.wait(10 * MINUTE - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert world.rules(name) in ("expired", "surplus")


def test_one_that_a_second_look_kept_is_found_at_its_moment_without_a_sweep():
    world = unswept(pool(fence=FenceKind.NONE))
    name = world.at_gate()
    world.probed(name)
    world.wait(5 * SECOND)
    world.probed(name)
    assert world.state(name) == "retiring"
    world.handle(ev.DestroyFailed(name, f"env-{name}", Fault(Remedy.REFUSED, "the permit had lapsed")))
    world.probed(name, UNKNOWN)
    assert (world.state(name), world.row(name).hard) == ("stuck", None)
    world.wait(10 * MINUTE - 1)
    assert world.rules(name) is None
    world.wait(1)
    assert world.rules(name) == "expired"


def test_a_spare_whose_own_job_another_runner_is_named_for_is_surplus_at_once():
    """Nothing changes in the matching, which had left it over before: the other one stood for its job."""
    world = World(policy=Policy(nominate_every=10 * DAY, reconcile_every=10 * DAY))
    spare, other = world.listening(), world.listening()
    world.discharge(other)
    world.sign(other, Sign.ANNOUNCED, "Running job: build")
    world.wait(MINUTE)
    assert world.row(spare).surplus_since is not None
    assert world.rules(spare) is None, "its own job still waits"
    world.begins(world.intent(spare), other)
    assert world.rules(spare) == "surplus"


# runners of one pool with other labels than its own


EXACT = ("gpu", "linux", "self-hosted")


def refused_for_now(world: World, labels: tuple[str, ...]) -> None:
    """A job is queued, and a runner for it cannot be registered: the next try has a backoff."""
    world.handle(ev.RegistrationFailed(world.registering(labels), Fault(Remedy.REFUSED, "422")))


def test_one_of_a_full_pool_gives_way_to_demand_of_its_pool_and_not_to_that_of_another_beside_a_free_slot():
    pools = pool(exact=True, labels=EXACT, max_concurrent=1, surplus_grace=DAY), pool("arm", labels=("arm",))
    world = World(*pools, slots=2)
    name = world.listening(("linux",))
    refused_for_now(world, ("arm",))
    world.now += 2 * MINUTE
    assert world.core.state.slots_free("local") == 1
    assert asked(world, name) is None
    world.queue(("gpu",))
    assert asked(world, name) is Rule.DISPLACED


def test_one_whose_pool_has_room_beside_a_free_slot_gives_way_to_nobody():
    world = World(pool(exact=True, labels=EXACT, max_concurrent=2, surplus_grace=DAY), slots=2)
    name = world.listening(("linux",))
    refused_for_now(world, ("gpu",))
    world.now += 2 * MINUTE
    assert world.core.state.slots_free("local") == 1
    assert asked(world, name) is None


def test_a_class_that_a_pool_elsewhere_serves_too_waits_for_the_slot_all_the_same():
    world = World(
        pool(surplus_grace=DAY),
        pool("aa", labels=("arm",), host="other"),
        pool("arm", labels=("arm",)),
        slots=1,
    )
    name = world.listening()
    world.queue(("arm",))
    world.now += 2 * MINUTE
    assert asked(world, name) is Rule.DISPLACED


# which of two rules is named


def test_one_that_is_late_and_spent_is_spent():
    world = World()
    name = world.starting()
    assert asked(world, name, late=True) is Rule.UNBORN
    assert asked(world, name, late=True, fence=Fence(accepted=world.now)) is Rule.SPENT


def test_one_that_was_late_and_listens_now_is_not_unborn():
    world = World()
    name = world.listening()
    assert asked(world, name, late=True) is None


def test_a_leaked_one_that_listens_is_leaked():
    world = World()
    name = world.listening()
    assert asked(world, name, leak=START, leak_again=START) is Rule.LEAKED


def test_one_that_runs_again_although_its_job_is_over_and_that_the_forge_let_go_is_spent():
    """After a restart a sign can be told anew to one that was being destroyed."""
    world = World()
    name = world.running()
    ended = {"over": world.now - HOUR, "soft_last": None}
    assert asked(world, name, **ended, fence=Fence(accepted=world.now)) is Rule.SPENT
    assert asked(world, name, **ended) is None


def test_a_leaked_one_with_a_sign_of_a_job_is_not_leaked():
    world = World()
    name = world.stuck()
    seen_twice = {"leak": START, "leak_again": START, "adopted": False, "fence": Fence()}
    assert asked(world, name, **seen_twice, hard=None, soft_last=None) is Rule.LEAKED
    assert asked(world, name, **seen_twice, hard=START, soft_last=None) is None


@pytest.mark.parametrize("rule", [Rule.SURPLUS, Rule.DISPLACED])
def test_one_that_was_offered_a_job_meanwhile_is_neither_left_over_nor_in_the_way(rule):
    world, name = rivals()
    world.queue(("arm",))
    world.discharge(name)
    world.now += DAY
    turn, row = Turn(world.core.state, world.now), world.row(name)
    assert still(turn, row, rule)
    assert not still(turn, replace(row, state=RunnerState.ASSIGNED), rule)


@pytest.mark.parametrize("state", ["STARTING", "LISTENING", "ASSIGNED", "FINISHING", "STUCK"])
def test_one_that_the_store_does_not_know_is_leaked_whatever_it_does_but_work(state):
    world = World()
    name = world.stuck()
    quiet = {"hard": None, "soft_last": None, "listening": None, "fence": Fence(), "adopted": False}
    row = {"state": RunnerState[state], "since": world.now, "leak": 1, **quiet}
    assert asked(world, name, leak_again=None, **row) is None
    assert asked(world, name, leak_again=2, **row) is Rule.LEAKED


def test_one_that_was_never_heard_to_listen_has_not_listened_for_nothing():
    world = World()
    name = world.listening()
    world.discharge(name)
    assert asked(world, name, untaken=1, since=world.now - DAY, listening=world.now - DAY) is Rule.EXPIRED
    assert asked(world, name, untaken=1, since=world.now - DAY, listening=None) is None


def test_why_a_late_one_and_one_that_was_kept_are_nominated_is_said():
    world = World()
    turn = Turn(world.core.state, world.now)
    late = nominee(turn, replace(world.row(world.starting()), late=True))
    assert late == (Rule.UNBORN, "it did not listen within the provision limit")
    world = World()
    row = replace(world.row(world.stuck()), hard=None, soft_last=None, fence=Fence(), adopted=False)
    kept = nominee(Turn(world.core.state, row.since + 10 * MINUTE), row)
    assert kept is not None
    assert kept[1].startswith("kept after a permit had lapsed")


# demand that waits for something else than a slot


def blocked() -> tuple[World, RunnerId, JobKey]:
    """A listener of two minutes that holds the only slot, and a job of another pool that waits for it."""
    world, name = rivals()
    job = world.queue(("arm",))
    world.now += 2 * MINUTE
    assert asked(world, name) is Rule.DISPLACED
    return world, name, job


def test_a_class_that_is_held_back_displaces_nobody():
    world, name, _ = blocked()
    (held,) = [group.name for group in world.core.state.index.groups.values() if group.unmatched]
    turn = Turn(world.core.state, world.now)
    turn.put_class(held, ClassRow(held=True))
    assert asked(world, name) is None
    turn.put_class(held, ClassRow(held=True, credits=1))
    assert asked(world, name) is Rule.DISPLACED


def test_a_job_displaces_nobody_before_its_next_try():
    world, name, job = blocked()
    jobs, soon = world.core.state.jobs, world.now + 5 * MINUTE
    jobs[job] = replace(jobs[job], not_before=soon)
    assert asked(world, name) is None
    world.now = soon
    assert asked(world, name) is Rule.DISPLACED
    world.now = soon - 1
    world.queue(("arm",))
    assert asked(world, name) is Rule.DISPLACED, "the second job of the class need not wait"


def test_a_pool_that_can_make_no_runner_yet_displaces_nobody():
    world, name, _ = blocked()
    pools = world.core.state.pools
    usual = pools["arm"]
    for changes in ({"not_before": world.now + 1}, {"missing": "not installed"}, {"cordoned": "ann"}):
        pools["arm"] = replace(usual, **changes)
        assert asked(world, name) is None
    pools["arm"] = replace(usual, not_before=world.now)
    assert asked(world, name) is Rule.DISPLACED


@pytest.mark.parametrize(
    ("own", "rule"),
    [
        (JobKey("github", "acme/lib", 1), None),
        (JobKey("gitlab", "acme/app", 1), None),
        (None, None),
        (JobKey("github", "Acme/App", 1), Rule.DISPLACED),
    ],
    ids=["another's", "elsewhere", "nobody's", "its own"],
)
def test_a_repository_that_has_all_its_runners_displaces_its_own_alone(own, rule):
    world, name, _ = blocked()
    state = world.core.state
    usual = state.setup
    state.setup = replace(usual, access=(Access("github", most=1),))
    assert asked(world, name, intent=own) is rule
    state.setup = replace(usual, access=(Access("github", most=2),))
    assert asked(world, name, intent=own) is Rule.DISPLACED
