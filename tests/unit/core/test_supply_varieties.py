"""Runners of one pool with other labels than its own: they serve what they were registered for, and nothing else."""

from __future__ import annotations

from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.health import assess
from ephemerd.core.index import labels_of, pool_of, variety_of
from ephemerd.core.step import Step
from ephemerd.core.waiting import why_waiting
from ephemerd.domain.pool import Host, Pool, Setup
from ephemerd.domain.runner import RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core.field import Field
from tests.unit.core.world import GPU, HOUR, LABELS, MINUTE, SECOND, World, key, of, pool

S = RunnerState


def again(world: World, *pools: Pool) -> Step:
    """The configuration is read again."""
    world.setup = Setup(pools, (Host("here", 4),), world.setup.policy)
    return world.feed(ev.Reconfigured("anna", world.setup))


def exact(**changes: object) -> Pool:
    return pool("small", labels=GPU, exact=True, **changes)


def test_a_variety_names_its_pool_and_its_labels() -> None:
    world = World(exact())
    world.planned(1, labels=("gpu", "linux"))
    row = next(iter(world.core.state.runners.values()))
    assert pool_of(variety_of(row)) == "small"
    assert labels_of(variety_of(row)) == ("gpu", "linux")
    assert labels_of("small") == ()


# A reload, or a start, with other labels.


def test_a_runner_that_was_registered_with_other_labels_is_no_supply_for_the_new_ones() -> None:
    world = World()
    (old,) = world.listening(1)
    again(world, pool(labels=("arm",)))
    assert world.runner(old).labels == LABELS
    world.completed(1, how="cancelled")
    (new,) = world.planned(2, labels=("arm",))
    assert new != old
    assert world.runner(new).labels == ()
    assert world.last(cm.Register).labels == ("arm",)


def test_a_start_with_other_labels_is_no_different() -> None:
    world = World()
    (old,) = world.listening(1)
    setup = replace(world.setup, pools=(pool(labels=("arm",)),))
    world.restart(setup=setup)
    assert world.runner(old).labels == LABELS
    assert world.planned(2, labels=("arm",)) != [old]


def test_a_runner_still_serves_the_job_it_was_made_for_after_its_pool_got_other_labels() -> None:
    world = World()
    (old,) = world.listening(1)
    again(world, pool(labels=("arm",)))
    assert world.runner(old).surplus_since is None
    assert why_waiting(world.core.state, key(1), world.now).startswith("a runner for it is on its way")
    assert not any("not served" in reason for reason in assess(world.core.state, world.now).reasons)
    world.sign(old, Sign.ANNOUNCED, "job 1")
    world.in_progress(1, old)
    assert world.runner(old).job == key(1)


def test_a_second_job_of_the_old_labels_is_not_served_and_told_so() -> None:
    world = World()
    world.listening(1)
    again(world, pool(labels=("arm",)))
    assert of(world.queued(2), cm.Register) == []
    assert why_waiting(world.core.state, key(2), world.now) == "no pool has the label(s) linux, self-hosted"
    group = next(iter(world.core.state.index.groups.values()))
    assert (group.unmatched, group.pools) == (1, ())


def test_labels_that_come_back_make_the_runner_an_ordinary_one() -> None:
    world = World()
    (old,) = world.listening(1)
    again(world, pool(labels=("arm",)))
    again(world, pool(labels=("mips",)))
    assert world.runner(old).labels == LABELS
    again(world, pool())
    assert world.runner(old).labels == ()
    assert world.core.state.index.odd == {}


def test_a_runner_that_nobody_can_use_any_more_leaves_as_surplus() -> None:
    world = World(pool(surplus_grace=SECOND))
    (old,) = world.listening(1)
    again(world, pool(labels=("arm",), surplus_grace=SECOND))
    world.completed(1, how="cancelled")
    Field(world).run(2 * MINUTE)
    assert world.runner(old).state is S.GONE
    assert {decision.rule for decision in world.decisions} == {"surplus"}
    assert world.core.state.index.odd == {}


def test_a_spare_with_the_old_labels_is_replaced_by_one_with_the_new() -> None:
    world = World(pool(min_idle=1, surplus_grace=SECOND))
    (old,) = [row.id for row in world.core.state.runners.values()]
    world.registered(old)
    world.started(old)
    world.sign(old, Sign.LISTENING)
    step = again(world, pool(labels=("arm",), min_idle=1, surplus_grace=SECOND))
    (made,) = of(step.commands, cm.Register)
    assert made.labels == ("arm",)
    Field(world).run(3 * MINUTE)
    assert world.runner(old).state is S.GONE


def test_one_that_is_gone_keeps_its_labels_only_while_it_stands_for_a_job() -> None:
    world = World()
    names = world.listening(1, 2)
    for name in names:
        world.sign(name, Sign.ANNOUNCED, "a job")
        world.sign(name, Sign.WORKER)
    world.in_progress(1, names[0])
    for name in names:
        world.exited(name)
    again(world, pool(labels=("arm",)))
    assert world.runner(names[0]).labels == ()
    assert (world.runner(names[1]).consumes, world.runner(names[1]).labels) == (True, LABELS)
    assert next(iter(world.core.state.index.groups.values())).unmatched == 0


# `exact`: a runner with the labels of the job that it is made for.


def test_a_listener_with_fewer_labels_serves_no_job_that_asks_for_more() -> None:
    world = World(exact())
    (plain,) = world.listening(1, labels=("linux",))
    world.completed(1, how="cancelled")
    (fitting,) = world.planned(2, labels=("gpu", "linux"))
    assert fitting != plain
    assert world.last(cm.Register).labels == ("gpu", "linux")
    assert of(world.queued(3, labels=("linux",)), cm.Register) == [], "the plain one is there for it"


def test_of_two_that_serve_a_job_the_one_with_fewer_labels_is_counted_on() -> None:
    world = World(exact())
    (plain,) = world.listening(1, labels=("linux",))
    (wide,) = world.listening(2, labels=GPU)
    world.completed(1, how="cancelled")
    world.completed(2, how="cancelled")
    world.queued(3, labels=("linux",))
    assert world.runner(plain).surplus_since is None
    assert world.runner(wide).surplus_since is not None


def test_one_that_holds_a_slot_in_vain_gives_it_to_a_job_that_it_cannot_serve() -> None:
    world = World(exact(max_concurrent=1), slots=1)
    (plain,) = world.listening(1, labels=("linux",))
    world.completed(1, how="cancelled")
    world.queued(2, labels=("gpu",))
    Field(world).run(5 * MINUTE)
    assert world.runner(plain).state is S.GONE
    assert world.last(cm.Register).labels == ("gpu",)


def test_one_that_nobody_takes_gives_its_place_in_its_pool_to_a_job_that_it_cannot_serve() -> None:
    """Slots are free; it is the pool's max_concurrent that the other job waits for."""
    world = World(exact(max_concurrent=1), slots=4)
    (plain,) = world.listening(1, labels=("linux",))
    world.queued(2, labels=("gpu",))
    field = Field(world)
    field.run(59 * SECOND)
    assert world.runner(plain).gate is None
    field.run(20 * SECOND)
    assert world.runner(plain).state is S.GONE
    assert {decision.rule for decision in world.decisions} == {"displaced"}
    for made in world.sent:
        if isinstance(made, cm.Register) and made.runner != plain:
            world.registered(made.runner)
            world.started(made.runner)
            world.sign(made.runner, Sign.LISTENING)
    field.run(2 * MINUTE)
    assert ("gpu",) in {made.labels for made in world.sent if isinstance(made, cm.Register)}, (
        "they take turns"
    )


def test_one_that_waited_long_gives_its_place_when_the_demand_comes_and_not_a_minute_later() -> None:
    world = World(exact(max_concurrent=1), pool("other", labels=("arm",)), slots=4)
    (plain,) = world.listening(1, labels=("linux",))
    world.wait(5 * MINUTE + SECOND)
    sent = world.queued(2, labels=("gpu",))
    assert [command.runner for command in of(sent, cm.ProbeRunner)] == [plain]


def test_a_place_in_a_pool_is_given_also_where_another_pool_has_runners_of_its_jobs_labels() -> None:
    other = pool("other", labels=("arm", "fast"), exact=True)
    world = World(exact(max_concurrent=1), other, slots=4)
    world.listening(9, labels=("arm",))
    (plain,) = world.listening(1, labels=("linux",))
    world.queued(2, labels=("gpu",))
    Field(world).run(80 * SECOND)
    assert world.runner(plain).state is S.GONE
    assert {decision.rule for decision in world.decisions} == {"displaced"}


def test_a_full_pool_whose_runners_serve_all_displaces_nobody() -> None:
    world = World(pool("small", labels=GPU, max_concurrent=1), slots=4)
    (plain,) = world.listening(1, labels=("linux",))
    world.queued(2, labels=("gpu",))
    Field(world).run(3 * MINUTE)
    assert "displaced" not in {decision.rule for decision in world.decisions}
    assert world.runner(plain).state is S.LISTENING


def test_an_exact_listener_that_is_left_over_is_no_spare() -> None:
    world = World(exact(surplus_grace=SECOND))
    (odd,) = world.listening(1, labels=("linux",))
    (made,) = of(again(world, exact(min_idle=1, surplus_grace=SECOND)).commands, cm.Register)
    world.registered(made.runner)
    world.started(made.runner)
    world.sign(made.runner, Sign.LISTENING)
    world.completed(1, how="cancelled")
    Field(world).run(2 * MINUTE)
    assert world.runner(odd).state is S.GONE
    assert world.runner(made.runner).state is S.LISTENING


def test_a_held_class_is_held_for_runners_of_every_variety() -> None:
    world = World(exact())
    world.listening(1, labels=("linux",))
    world.wait(31 * SECOND)
    assert of(world.queued(2, labels=("linux",)), cm.Register) == []
    (name,) = world.core.state.index.held_back
    assert world.core.state.classes[name].held


def test_nothing_is_kept_of_a_variety_without_runners() -> None:
    world = World(exact())
    (name,) = world.listening(1, labels=("linux",))
    assert len(world.core.state.index.odd) == 1
    world.sign(name, Sign.ANNOUNCED, "job 1")
    world.in_progress(1, name)
    assert world.core.state.index.odd == {}
    world.completed(1, name)
    world.exited(name)
    Field(world).run(2 * HOUR)
    assert not world.knows(name)
    index = world.core.state.index
    for kept in (index.takers, index.links, index.flow, index.supply, index.consuming, index.leftover):
        assert [variety for variety in kept if labels_of(variety)] == []
