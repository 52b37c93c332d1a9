"""The configuration changes within a process life: what is gone drains, what comes is served, nobody is ended."""

from __future__ import annotations

from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.pool import Host, Policy, Setup
from ephemerd.domain.runner import Rule, RunnerState
from tests.unit.core.field import Field
from tests.unit.core.world import APP, GPU, LIB, MINUTE, SECOND, World, of, pool, seen

S = RunnerState


def again(world: World, *pools, hosts=None, policy=None):
    """Read the configuration again: these pools, and what is not said as before."""
    setup = Setup(pools, hosts or world.setup.hosts, policy or world.setup.policy)
    world.setup = setup
    return world.feed(ev.Reconfigured("ann", setup))


def test_a_pool_that_comes_serves_what_waited_for_it() -> None:
    world = World()
    assert world.queued(1, labels=GPU) == ()
    step = again(world, pool(), pool("gpu", labels=GPU))
    (made,) = of(step.commands, cm.Register)
    assert world.runner(made.runner).pool == "gpu"
    assert of(step.commands, cm.ListJobs) == [], "its scope is served already"


def test_a_scope_that_comes_is_listed_at_once() -> None:
    world = World()
    step = again(world, pool(), pool("lib", scope=LIB))
    assert [command.scope for command in of(step.commands, cm.ListJobs)] == [LIB]
    assert [command.scope for command in of(step.commands, cm.ListRegistrations)] == [LIB]


def test_a_pool_that_goes_is_drained_and_its_job_finishes() -> None:
    world = World(pool(), pool("gpu", labels=GPU))
    busy, idle = world.listening(1, 2, labels=GPU)
    world.in_progress(1, busy, labels=GPU)
    field = Field(world)
    field.probes[busy] = seen(workers=1)
    step = again(world, pool())
    assert of(step.commands, cm.Destroy) + of(step.commands, cm.Deregister) == []
    field.run(5 * MINUTE)
    assert world.runner(busy).state is S.RUNNING
    assert not world.knows(idle) or world.runner(idle).state is S.GONE
    assert world.queued(3, labels=GPU) == (), "nothing is planned in it"
    field.run(MINUTE)
    assert world.core.state.slots_held("here") == 1
    world.completed(1, busy, labels=GPU)
    world.exited(busy)
    assert world.runner(busy).state is S.GONE
    assert world.core.state.slots_held("here") == 0


def test_a_pool_that_comes_back_is_served_again() -> None:
    world = World(pool(), pool("gpu", labels=GPU))
    again(world, pool())
    assert world.queued(1, labels=GPU) == ()
    assert len(of(again(world, pool(), pool("gpu", labels=GPU)).commands, cm.Register)) == 1


def test_fewer_runners_than_there_are_end_nobody_and_make_none() -> None:
    world = World()
    runners = world.listening(1, 2, 3)
    for number, name in enumerate(runners, 1):
        world.in_progress(number, name)
    step = again(world, pool(max_concurrent=1), hosts=(Host("here", 1),))
    assert of(step.commands, cm.Destroy) + of(step.commands, cm.Deregister) == []
    assert world.planned(4) == []
    for number, name in enumerate(runners[:2], 1):
        world.completed(number, name)
        world.exited(name)
    assert world.count(cm.Register) == 3
    world.completed(3, runners[2])
    world.exited(runners[2])
    assert world.count(cm.Register) == 4


def test_more_slots_are_used_in_the_same_turn() -> None:
    world = World(slots=1)
    assert len(world.planned(1, 2, 3)) == 1
    assert len(of(again(world, pool(), hosts=(Host("here", 3),)).commands, cm.Register)) == 2


def test_a_host_that_goes_takes_nothing_new_and_keeps_what_it_has() -> None:
    hosts = (Host("here", 2), Host("there", 2))
    world = World(pool(), pool("gpu", labels=GPU, host="there"), hosts=hosts)
    (name,) = world.listening(1, labels=GPU)
    world.in_progress(1, name, labels=GPU)
    again(world, pool(), pool("gpu", labels=GPU, host="there"), hosts=hosts[:1])
    assert world.planned(2, labels=GPU) == []
    assert world.runner(name).state is S.RUNNING
    assert len(of(again(world, *world.setup.pools, hosts=hosts).commands, cm.Register)) == 1


def test_a_pool_stays_where_it_is_while_the_process_lives() -> None:
    world = World(hosts=(Host("here", 2), Host("there", 2)))
    again(world, pool(host="there", scope=LIB, runtime="docker", max_concurrent=7))
    kept = world.core.state.pool("small")
    assert (kept.host, kept.scope, kept.runtime, kept.max_concurrent) == ("here", APP, "process", 7)


def test_shorter_durations_hold_at_once() -> None:
    world = World()
    (name,) = world.listening(1)
    world.completed(1, how="cancelled")
    field = Field(world)
    field.run(10 * SECOND)
    assert world.runner(name).state is S.LISTENING
    again(world, pool(surplus_grace=SECOND))
    field.run(2 * SECOND)
    assert world.runner(name).gate is not None or world.runner(name).state is not S.LISTENING


def test_the_policy_is_kept_for_the_next_life() -> None:
    world = World()
    again(world, pool(), policy=replace(Policy(), settle=9 * SECOND, reconcile_every=MINUTE))
    assert world.reborn().state.policy.settle == 9 * SECOND
    sent = world.wait(61 * SECOND)
    for kind in (cm.ListJobs, cm.ListRegistrations, cm.ListEnvironments):
        assert len(of(sent, kind)) == 1, "the shorter rhythm holds at once"


def test_a_backoff_ends_since_somebody_mended_something() -> None:
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.feed(ev.StartFailed(name, Fault(Remedy.BROKEN, "no application")))
    assert world.count(cm.Register) == 1
    step = again(world, pool())
    assert len(of(step.commands, cm.Register)) == 1


def test_a_host_that_goes_has_its_idle_runners_nominated_though_their_pool_stays() -> None:
    world = World()
    (name,) = world.listening(1)
    step = again(world, pool(host="there"), hosts=(Host("there", 4),))
    run = world.runner(name).gate
    assert run is not None
    assert (run.rule, run.reason) == (Rule.CORDONED, "its host is not configured any more")
    assert of(step.commands, cm.Destroy) + of(step.commands, cm.Deregister) == []


def test_that_the_configuration_was_read_again_is_said() -> None:
    world = World()
    again(world, pool())
    assert "the configuration was read again" in world.notes


def test_a_host_that_comes_is_listed_at_once_and_the_others_in_their_time() -> None:
    """What runs there may be ours: it holds slots that would else be given away."""
    world = World(pool(), hosts=(Host("gone", 1), Host("here", 1)))
    world.wait(SECOND)
    step = again(world, pool(), hosts=(Host("here", 1), Host("there", 1)))
    assert of(step.commands, cm.ListEnvironments) == [cm.ListEnvironments("there")]


def test_rules_are_evaluated_as_often_as_the_new_policy_says_from_now_on() -> None:
    world = World()
    world.wait(SECOND)
    again(world, pool(), policy=Policy(nominate_every=10 * SECOND))
    assert world.core.next_wake() == world.now + 10 * SECOND
    again(world, pool(), policy=Policy(nominate_every=MINUTE))
    assert world.core.next_wake() == world.now + 10 * SECOND, "what was to come sooner does"


def moved(world: World) -> str:
    """Leave the pool out and bring it back on another host; return where it is then."""
    again(world, pool("other"))
    again(world, pool("other"), pool(host="there"))
    return world.core.state.pool("small").host


def test_a_pool_that_was_left_out_comes_back_where_its_runners_are() -> None:
    world = World(hosts=(Host("here", 2), Host("there", 2)))
    assert moved(world) == "there"
    world = World(hosts=(Host("here", 2), Host("there", 2)))
    (name,) = world.listening(1)
    world.in_progress(1, name)
    assert moved(world) == "here"


def test_a_pool_that_was_left_out_comes_back_where_a_slot_is_reserved_for_it() -> None:
    """The forge is asked about a job, and the slot of the host where the pool was is kept for the answer."""
    world = World(hosts=(Host("here", 1), Host("there", 1)))
    (name,) = world.listening(9)
    world.in_progress(9, name)
    world.queued(1)
    world.wait(61 * SECOND)
    world.lists = False
    world.exited(name)
    assert world.core.state.index.reserved == {"here": 1}
    assert moved(world) == "here"


def test_what_was_listed_of_a_scope_that_nobody_served_meanwhile_counts_no_more() -> None:
    """What was queued there meanwhile is not known: the rules that rest on silence rest until it is read."""
    world = World(pool(), pool("lib", scope=LIB))
    assert world.core.state.scope(LIB).jobs_listed is not None
    again(world, pool())
    world.lists = False
    again(world, pool(), pool("lib", scope=LIB))
    assert world.core.state.scope(LIB).jobs_listed is None
    assert world.core.state.scope(APP).jobs_listed is not None


def test_what_is_due_as_the_configuration_comes_is_done_all_the_same() -> None:
    """Every moment is derived anew, and rows do not tell which of those that are over was looked at."""
    world = World()
    (name,) = world.planned(1)
    world.feed(ev.RegistrationFailed(name, Fault(Remedy.BROKEN, "it does not like us")))
    assert world.runner(name).state is S.GONE
    world.now += world.setup.policy.gone_kept + SECOND
    again(world, pool())
    world.wait(world.setup.policy.reconcile_every)
    assert not world.knows(name)
