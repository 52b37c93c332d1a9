"""Matching kept true over pools that share jobs, whose turn it is among pools, and who is looked at for room."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.index import Group, Index
from ephemerd.core.matching import takers_of
from ephemerd.core.plan import _count_component, is_crowded, is_discharged, ready, settle
from ephemerd.core.turn import Turn
from ephemerd.core.validate import validate
from ephemerd.domain.access import Access
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.pool import Policy
from ephemerd.domain.runner import RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core.world import GPU, MINUTE, ORG, SECOND, START, World, key, of, pool

X, Y, BOTH = ("x",), ("y",), ("x", "y")


def left_over(world: World) -> set[RunnerId]:
    """Return the runners that the matching leaves over."""
    rows = world.core.state.runners.values()
    return {row.id for row in rows if row.surplus_since is not None and row.state is not RunnerState.GONE}


def chain() -> World:
    """Two classes share the middle one of three pools: a serves x, b both, c y."""
    return World(pool("a", labels=X), pool("b", labels=BOTH), pool("c", labels=Y))


def made_for(world: World) -> list[int]:
    """Return the jobs for which runners were made, in order."""
    intents = [world.runner(command.runner).intent for command in of(world.sent, cm.Register)]
    return [intent.id for intent in intents if intent is not None]


# -- what hangs together is matched as one -----------------------------------------------------------


def test_a_job_that_two_pools_serve_is_counted_on_the_runner_of_one() -> None:
    world = World(pool("big", labels=GPU), pool("small", max_concurrent=1))
    _, wide = world.listening(1, 2)
    world.completed(1, how="cancelled")
    assert left_over(world) == {wide}


def test_a_spare_that_comes_nearer_to_listening_and_is_none_any_more_in_one_turn_is_left_over_by_nobody() -> (
    None
):
    world = World()
    (name,) = world.planned(1)
    world.registered(name)
    world.completed(1, how="cancelled")
    state = world.core.state
    assert state.index.leftover == {"small": 1}
    t = Turn(state, world.now)
    row = t.put_runner(replace(world.runner(name), state=RunnerState.LISTENING))
    t.put_runner(replace(row, offered=True))
    assert state.index.advanced == {"small": None}
    settle(t)
    assert (state.index.advanced, state.index.leftover, validate(state)) == ({}, {}, [])


def test_of_two_spares_the_one_that_is_offered_a_job_as_it_begins_to_listen_is_left_over_no_more() -> None:
    world = World()
    one, other = world.planned(1, 2)
    world.registered(one)
    world.registered(other)
    world.completed(1, how="cancelled")
    world.completed(2, how="cancelled")
    state = world.core.state
    assert state.index.leftover == {"small": 2}
    t = Turn(state, world.now)
    row = t.put_runner(replace(world.runner(one), state=RunnerState.LISTENING))
    t.put_runner(replace(row, offered=True))
    settle(t)
    assert (state.index.advanced, state.index.leftover, validate(state)) == ({}, {"small": 1}, [])
    assert world.runner(other).surplus_since is not None


def test_pools_hang_together_by_way_of_others_also_after_a_start() -> None:
    world = chain()
    world.listening(1, labels=X)
    (middle,) = world.listening(2, labels=BOTH)
    world.listening(3, labels=Y)
    world.completed(2, how="cancelled")
    assert left_over(world) == {middle}
    world.restart()
    assert left_over(world) == {middle}


def test_a_class_that_leaves_frees_its_runner_for_nobody_who_is_served_at_the_other_end() -> None:
    """The pools of the class that leaves are a and b; who else could use the runner of b has that of c."""
    world = chain()
    (middle,) = world.listening(1, labels=BOTH)
    world.completed(1, how="cancelled")
    assert world.planned(2, labels=X) == []
    world.listening(3, labels=Y)
    world.completed(2, how="cancelled")
    assert left_over(world) == {middle}


def test_pools_hang_together_for_as_long_as_they_share_a_class() -> None:
    world = World(pool("big", labels=GPU), pool("small", max_concurrent=1))
    _, wide = world.listening(1, 2)
    (other,) = world.listening(3, labels=("linux",))
    world.completed(3, how="cancelled")
    world.completed(1, how="cancelled")
    assert left_over(world) == {wide, other}
    world.completed(2, how="cancelled")
    assert not any(world.core.state.index.links.values())


def test_a_spare_is_still_counted_after_a_start() -> None:
    world = World(pool(min_idle=1))
    spare = world.last(cm.Register).runner
    world.registered(spare)
    world.started(spare)
    world.sign(spare, Sign.LISTENING)
    world.restart()
    assert world.count(cm.Register) == 1


def test_a_runner_whose_pool_serves_its_job_no_more_is_left_over_at_once() -> None:
    world = World(pool(unlabelled=True))
    (name,) = world.listening(1, labels=())
    assert left_over(world) == set()
    world.feed(ev.Reconfigured("ann", replace(world.setup, pools=(pool(),))))
    assert left_over(world) == {name}


def test_of_two_that_start_the_one_that_began_first_is_counted_on() -> None:
    world = World()
    first, second = world.planned(1, 2)
    world.registered(second)
    world.wait(SECOND)
    world.registered(first)
    world.completed(1, how="cancelled")
    assert left_over(world) == {first}


def test_of_two_jobs_one_has_a_runner_that_works_and_only_the_other_one_that_listens() -> None:
    world = World()
    first, *others = world.listening(1, 2, 3)
    world.completed(3, how="cancelled")
    world.sign(first, Sign.ANNOUNCED, "a job")
    world.sign(first, Sign.WORKER)
    assert world.runner(first).consumes
    assert left_over(world) == {others[1]}


def test_a_runner_of_other_labels_that_works_stands_for_its_job_until_that_has_a_name() -> None:
    world = World(pool(labels=GPU, exact=True))
    (name,) = world.listening(1, labels=("linux",))
    world.sign(name, Sign.ANNOUNCED, "a job")
    world.sign(name, Sign.WORKER)
    assert world.runner(name).consumes
    assert world.count(cm.Register) == 1


# -- whose turn it is --------------------------------------------------------------------------------


def test_of_classes_of_several_pools_that_wait_for_one_slot_the_older_job_is_served_first() -> None:
    world = World(pool("a", labels=X), pool("b", labels=Y), slots=1)
    (name,) = world.listening(1, labels=X)
    world.queued(2, labels=Y)
    world.queued(3, labels=X)
    world.in_progress(1, name, labels=X)
    world.exited(name)
    assert made_for(world) == [1, 2]


def test_a_class_whose_oldest_job_may_not_be_tried_yet_goes_by_the_one_that_may() -> None:
    world = World(pool(scope=ORG), slots=1)
    world.feed(ev.CordonOrdered("ann", ev.Target.ALL))
    for number in (1, 3):
        world.queued(number, repository="acme/app")
        world.queued(number + 1, repository="acme/lib")
    for name in (key(1), key(2, "acme/lib")):
        world.core.state.jobs[name] = replace(world.core.state.jobs[name], not_before=world.now + 1)
    world.feed(ev.UncordonOrdered("ann", ev.Target.ALL))
    assert made_for(world) == [3]


def test_a_job_may_be_tried_from_its_moment_on() -> None:
    world = World(slots=1)
    world.feed(ev.CordonOrdered("ann", ev.Target.ALL))
    world.queued(1, 2)
    world.core.state.jobs[key(1)] = replace(world.job(1), not_before=world.now)
    world.feed(ev.UncordonOrdered("ann", ev.Target.ALL))
    assert made_for(world) == [1]


@pytest.mark.parametrize(
    ("limit", "there", "can"), [(1, 0, True), (1, 1, False), (2, 1, True), (2, 2, False)]
)
def test_a_host_has_room_while_fewer_than_the_limit_are_abandoned_there(
    limit: int, there: int, can: bool
) -> None:
    world = World(policy=Policy(abandoned_limit=limit))
    world.core.state.index.abandoned = {"here": there} if there else {}
    assert ready(Turn(world.core.state, world.now), pool()) is can


@pytest.mark.parametrize(("refused", "can"), [(START - 1, False), (START, True)])
def test_a_pool_waits_for_the_runner_that_finds_out_whether_it_is_still_refused(
    refused: int, can: bool
) -> None:
    world = World()
    world.planned(1)
    world.core.state.pools["small"] = replace(world.core.state.pools["small"], refused=refused)
    assert ready(Turn(world.core.state, world.now), pool()) is can


# -- who gives room ----------------------------------------------------------------------------------


def test_one_that_serves_the_first_that_waits_is_looked_at_for_the_second() -> None:
    world = World(pool("a", labels=X), pool("b", labels=BOTH), pool("c", labels=Y), slots=1)
    (idle,) = world.listening(1, labels=X)
    world.queued(2, labels=X)
    world.wait(5 * MINUTE + SECOND)
    sent = world.queued(3, labels=Y)
    assert [command.runner for command in of(sent, cm.ProbeRunner)] == [idle]


def test_a_spare_waits_for_demand_of_another_pool_beside_demand_that_has_its_runner() -> None:
    world = World(pool("a", labels=X), pool("b", labels=Y), pool(min_idle=1), slots=2)
    spare = world.last(cm.Register).runner
    world.feed(ev.CordonOrdered("ann", ev.Target.POOL, "small"))
    world.registered(spare)
    world.started(spare)
    world.exited(spare)
    world.planned(1, labels=X)
    (name,) = world.planned(2, labels=Y)
    world.feed(ev.RegistrationFailed(name, Fault(Remedy.BROKEN, "the disk is full")))
    step = world.feed(ev.UncordonOrdered("ann", ev.Target.POOL, "small"))
    assert of(step.commands, cm.Register) == []


def test_the_spares_of_one_pool_are_made_before_those_of_the_next() -> None:
    world = World(pool("b", min_idle=2), pool("a", labels=X, min_idle=2), slots=2)
    assert [world.runner(command.runner).pool for command in of(world.sent, cm.Register)] == ["a", "a"]


def test_one_may_be_displaced_from_the_millisecond_on_in_which_it_waited_for_long_enough() -> None:
    world = World(pool("a", labels=X), pool("c", labels=Y), slots=1)
    world.wait(10 * SECOND)
    (idle,) = world.listening(1, labels=X)
    world.wait(world.setup.policy.displaced_after)
    sent = world.queued(2, labels=Y)
    assert [command.runner for command in of(sent, cm.ProbeRunner)] == [idle]


@pytest.mark.parametrize(
    ("most", "labels", "crowded"), [(2, GPU, False), (2, ("linux",), True), (3, ("linux",), False)]
)
def test_a_pool_is_crowded_when_it_is_full_and_one_of_its_runners_serves_less_than_it_could(
    most: int, labels: tuple[str, ...], crowded: bool
) -> None:
    world = World(pool(labels=GPU, exact=True, max_concurrent=most))
    assert len([*world.planned(1, labels=GPU), *world.planned(2, labels=labels)]) == 2
    assert is_crowded(world.core.state, "small") is crowded


def test_a_job_that_the_policy_refuses_is_no_demand() -> None:
    world = World()
    world.queued(1)
    t = Turn(world.core.state, world.now)
    assert not is_discharged(t, key(1))
    t.change_job(world.job(1), refused="repository")
    assert is_discharged(t, key(1))


def test_one_of_a_repository_that_is_full_gives_its_place_to_another_job_of_it_at_once() -> None:
    world = World(pool("a", labels=X), pool("c", labels=Y), slots=1)
    access = (Access("github", repositories=("acme/app",), forks=("*",), most=1),)
    world.feed(ev.Reconfigured("ann", replace(world.setup, access=access)))
    (idle,) = world.listening(1, labels=X)
    world.wait(5 * MINUTE + SECOND)
    sent = world.queued(2, labels=Y)
    assert [command.runner for command in of(sent, cm.ProbeRunner)] == [idle]


# -- how much supply of each variety is used -----------------------------------------------------------


def indexed(demand: dict[str, int], edges: dict[str, tuple[str, ...]], **members: dict[str, int]) -> Index:
    """Return an index of classes with so many jobs, of the varieties that serve them, and of so many runners."""
    index, number = Index(), 0
    for name, count in demand.items():
        group = index.groups[name] = Group(name, key(1), ("x",), edges[name], edges[name])
        for _ in range(count):
            number += 1
            group.queued.add(number, key(number))
        for variety in edges[name]:
            links = index.links.setdefault(variety, {})
            links |= {other: links.get(other, 0) + 1 for other in edges[name]}
    index.takers.update(takers_of(edges))
    for what, counts in members.items():
        for variety, count in counts.items():
            getattr(index, what)[variety] = {RunnerId(f"{what}-{variety}-{n}"): None for n in range(count)}
    return index


def test_what_consumes_comes_before_what_could_serve() -> None:
    index = indexed(
        {"both": 2, "late": 1}, {"both": ("a", "b"), "late": ("b",)},
        consuming={"a": 1}, supply={"a": 2, "b": 1},
    )  # fmt: skip
    assert _count_component(index, "a", {}) == ["a", "b"]
    assert index.leftover == {"a": 1}
    assert index.flow == {"a": {"both": 2}, "b": {"late": 1}}
    assert {name: group.unmatched for name, group in index.groups.items()} == {"both": 0, "late": 0}


def test_a_variety_alone_serves_its_classes_one_after_the_other() -> None:
    index = indexed(
        {"p": 2, "q": 1, "r": 1}, dict.fromkeys("pqr", ("a",)), consuming={"a": 1}, supply={"a": 2}
    )
    seen: dict[str, None] = {}
    assert _count_component(index, "a", seen) == ["a"]
    assert seen == {"a": None}
    assert index.flow == {"a": {"p": 2, "q": 1}}
    assert index.leftover == {}
    assert index.groups["r"].unmatched == 1
    index.supply["a"] = {RunnerId(f"more-{n}"): None for n in range(5)}
    _count_component(index, "a", {})
    assert index.flow == {"a": {"p": 2, "q": 1, "r": 1}}
    assert index.leftover == {"a": 2}


@pytest.mark.parametrize("demand", [{"p": 0}, {"p": 1}, {"p": 3}])
@pytest.mark.parametrize("supply", [0, 1, 2, 4])
@pytest.mark.parametrize("consuming", [0, 1, 2])
def test_counting_gives_what_matching_gives(demand: dict[str, int], supply: int, consuming: int) -> None:
    edges: dict[str, tuple[str, ...]] = {"p": ("a",)}
    alone = indexed(demand, edges, supply={"a": supply}, consuming={"a": consuming})
    _count_component(alone, "a", {})
    linked = indexed(demand, edges, supply={"a": supply}, consuming={"a": consuming})
    linked.links["a"]["b"] = 1  # another variety, of which there is nothing
    _count_component(linked, "a", {})
    assert linked.leftover == alone.leftover
    assert linked.groups["p"].matched == alone.groups["p"].matched
