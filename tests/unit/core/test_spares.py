"""Runners that a pool keeps listening in advance (`min_idle`): made, replaced, retired, and never at a job's cost."""

from __future__ import annotations

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.pool import Host, Setup
from ephemerd.domain.verdict import Sign
from tests.unit.core.build import HOUR, LABELS, MINUTE, SECOND, World, pool

GPU = ("gpu", *LABELS)


def registered(world: World) -> list[RunnerId]:
    """Every runner that was registered for, in order."""
    return [command.runner for command in world.sent if isinstance(command, cm.Register)]


def spares(world: World) -> list[RunnerId]:
    """Those of them that no job caused."""
    return [name for name in registered(world) if world.row(name).intent is None]


def listens(world: World, name: RunnerId) -> RunnerId:
    """Let a runner that is being registered come up."""
    world.handle(ev.Registered(name, 9900 + len(world.sent)))
    world.handle(ev.EnvironmentStarted(name, f"env-{name}"))
    world.sign(name, Sign.LISTENING)
    return name


def test_they_are_made_without_any_job_and_no_more_than_wanted() -> None:
    world = World(pool(min_idle=2))
    assert len(spares(world)) == 2
    world.wait(MINUTE)
    assert len(registered(world)) == 2


def test_one_that_is_taken_is_replaced_at_once() -> None:
    world = World(pool(min_idle=1))
    (first,) = spares(world)
    listens(world, first)
    key = world.queue()
    assert len(registered(world)) == 2, "the job has the spare, so another one is made for the next job"
    world.begins(key, first)
    assert len(registered(world)) == 2
    assert world.row(registered(world)[1]).intent is None


def test_a_job_takes_the_one_that_listens_and_causes_none_of_its_own() -> None:
    world = World(pool(min_idle=1))
    listens(world, spares(world)[0])
    world.queue()
    assert [world.row(name).intent for name in registered(world)] == [None, None]


def test_they_fill_no_slot_that_a_job_waits_for() -> None:
    """Two slots, two jobs of another pool that has room for one: the second slot stays free for it."""
    world = World(pool("warm", min_idle=2), pool("gpu", labels=GPU, max_concurrent=2), slots=3)
    assert len(spares(world)) == 2
    world.queue(GPU)
    world.queue(GPU)
    assert len(registered(world)) == 3
    world.exits(listens(world, spares(world)[0]))
    intents = [world.row(name).intent for name in registered(world)]
    assert len([intent for intent in intents if intent is not None]) == 2, "the freed slot went to the job"


def test_a_class_that_the_forge_holds_back_gets_no_spares_either() -> None:
    """Otherwise each spare would be matched to a waiting job, and another one made, up to the pool's limit."""
    world = World(pool(min_idle=1, max_concurrent=10), slots=10)
    listens(world, spares(world)[0])
    world.queue()
    listens(world, spares(world)[1])
    world.wait(31 * SECOND)
    for _ in range(6):
        world.queue()
    assert len(registered(world)) == 2


def test_a_limit_of_the_pool_counts_them() -> None:
    world = World(pool(min_idle=5, max_concurrent=3), slots=10)
    assert len(registered(world)) == 3


def test_a_pool_that_is_cordoned_makes_none() -> None:
    world = World(pool(min_idle=1))
    (first,) = spares(world)
    world.handle(ev.CordonOrdered("ann", ev.Target.POOL, "linux"))
    world.exits(listens(world, first))
    assert len(registered(world)) == 1
    world.handle(ev.UncordonOrdered("ann", ev.Target.POOL, "linux"))
    world.wait(HOUR)
    assert len(registered(world)) > 1


def test_failures_back_off_as_for_any_other_runner() -> None:
    world = World(pool(min_idle=1))
    (first,) = spares(world)
    world.handle(ev.RegistrationFailed(first, Fault(Remedy.BROKEN, "the disk is full")))
    assert len(registered(world)) == 1
    world.wait(29 * SECOND * 8 // 10 - 1)
    assert len(registered(world)) == 1
    world.wait(MINUTE)
    assert len(registered(world)) == 2


def test_one_that_grew_old_is_retired_and_another_takes_its_place() -> None:
    world = World(pool(min_idle=1))
    (first,) = spares(world)
    listens(world, first)
    world.wait(6 * HOUR - MINUTE)
    assert len(registered(world)) == 1
    world.wait(2 * MINUTE)
    assert world.rules(first) == "expired"


def test_one_that_is_there_is_still_counted_after_the_configuration_is_read_again() -> None:
    world = World(pool(min_idle=1))
    listens(world, spares(world)[0])
    world.setup = Setup((pool(min_idle=1), pool("gpu", labels=GPU)), (Host("local", 4),), world.setup.policy)
    world.handle(ev.Reconfigured("ann", world.setup))
    assert len(registered(world)) == 1


def test_they_are_given_up_when_they_are_wanted_no_more() -> None:
    world = World(pool(min_idle=1))
    (first,) = spares(world)
    listens(world, first)
    world.setup = Setup((pool(),), (Host("local", 4),), world.setup.policy)
    world.handle(ev.Reconfigured("ann", world.setup))
    world.wait(31 * SECOND)
    assert world.rules(first) == "surplus"
