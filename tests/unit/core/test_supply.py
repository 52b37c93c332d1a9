"""Matching kept true: pools that share jobs, runners whose job has no name yet, who is looked at for room."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.index import Group, Index
from ephemerd.core.matching import takers_of
from ephemerd.core.supply import _count_component, is_crowded, settle
from ephemerd.core.turn import Turn
from ephemerd.core.validate import validate
from ephemerd.domain.access import Access
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus
from ephemerd.domain.pool import Host
from ephemerd.domain.runner import RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core.world import APP, GPU, HOUR, MINUTE, NO_ANSWER, SECOND, World, key, of, pool

F = ForgeStatus

X, Y, BOTH = ("x",), ("y",), ("x", "y")


def left_over(world: World) -> set[RunnerId]:
    """Return the runners that the matching leaves over."""
    rows = world.core.state.runners.values()
    return {row.id for row in rows if row.surplus_since is not None and row.state is not RunnerState.GONE}


def chain() -> World:
    """Two classes share the middle one of three pools: a serves x, b both, c y."""
    return World(pool("a", labels=X), pool("b", labels=BOTH), pool("c", labels=Y))


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


def test_a_held_class_is_let_go_when_its_listener_is_supply_no_more() -> None:
    world = World(slots=4)
    (name,) = world.listening(1)
    world.wait(31 * SECOND)
    assert len(world.core.state.index.held_back) == 1
    world.exited(name)
    assert len(world.core.state.index.held_back) == 0


def test_of_two_that_start_the_one_that_began_first_is_counted_on() -> None:
    world = World()
    first, second = world.planned(1, 2)
    world.registered(second)
    world.wait(SECOND)
    world.registered(first)
    world.completed(1, how="cancelled")
    assert left_over(world) == {first}


def test_least_flexible_demand_is_matched_first_so_that_nothing_is_made_too_many() -> None:
    """A wide runner listens; the job that only it can take gets it, and the other job a small one."""
    world = World(pool("big", labels=GPU), pool("small"), slots=2)
    (wide,) = world.listening(1, labels=GPU)
    world.completed(1, how="cancelled")
    (narrow,) = world.planned(2, 3, labels=GPU)
    assert world.runner(narrow).pool == "big"
    world = World(pool("big", labels=GPU), pool("small"), slots=3)
    (wide,) = world.listening(1, labels=GPU)
    world.completed(1, how="cancelled")
    assert world.planned(2) == []  # the wide one serves it
    (narrow,) = world.planned(3, labels=GPU)
    assert world.runner(narrow).pool in ("small", "big")
    assert world.runner(wide).surplus_since is None


def test_the_runner_that_listens_serves_the_job_that_is_left_and_the_one_that_starts_is_spare() -> None:
    world = World(slots=2)
    first, second = world.planned(1, 2)
    world.registered(second)
    world.started(second)
    world.sign(second, Sign.LISTENING)
    world.completed(1, how="cancelled")
    assert world.runner(second).surplus_since is None
    assert world.runner(first).surplus_since == world.now


def test_whoever_listens_first_is_the_matched_one_though_nobody_came_or_went() -> None:
    """Two runners, one job left: the later one listens first. The matching says so at once, not after a restart."""
    world = World()
    first, second = world.planned(1, 2)
    world.completed(1, how="cancelled")
    spare = {name for name in (first, second) if world.runner(name).surplus_since is not None}
    assert spare == {second}
    world.registered(second)
    world.started(second)
    world.sign(second, Sign.LISTENING)
    assert world.runner(second).surplus_since is None
    assert world.runner(first).surplus_since == world.now


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


# -- bound, and the job has no name yet ---------------------------------------------------------------


def test_a_soft_sign_stands_for_a_unit_of_demand_for_two_minutes() -> None:
    world = World(slots=4)
    (name,) = world.listening(1)
    world.sign(name, Sign.ACKNOWLEDGED)
    assert world.runner(name).consumes
    assert of(world.wait(2 * MINUTE - 1), cm.Register) == []
    sent = world.wait(1)
    assert not world.runner(name).consumes
    (question,) = of(sent, cm.LookUpJob)
    assert len(of(world.job_answer(question, F.QUEUED).commands, cm.Register)) == 1


def test_fp_5_a_hard_sign_stands_for_it_until_the_job_has_a_name() -> None:
    world = World(slots=4)
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED)
    world.sign(name, Sign.WORKER)
    world.wait(50 * SECOND)
    assert world.count(cm.Register) == 1
    world.in_progress(1, name)
    assert not world.runner(name).consumes
    assert world.count(cm.Register) == 1


def test_a_hard_sign_is_named_by_asking_about_the_job_that_could_be_the_one() -> None:
    world = World(slots=4)
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED)
    world.sign(name, Sign.WORKER)
    (question,) = of(world.wait(MINUTE), cm.LookUpJob)
    assert question.job == key(1)
    world.job_answer(question, F.IN_PROGRESS, runner_name=name)
    row = world.runner(name)
    assert (row.job, row.consumes) == (key(1), False)
    assert world.count(cm.Register) == 1


def test_when_the_forge_says_that_all_of_them_wait_the_runner_stands_for_none() -> None:
    world = World(slots=4)
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED)
    world.sign(name, Sign.WORKER)
    (question,) = of(world.wait(MINUTE), cm.LookUpJob)
    step = world.job_answer(question, F.QUEUED)
    assert not world.runner(name).consumes
    assert len(of(step.commands, cm.Register)) == 1


def test_a_long_queue_is_not_asked_about_job_by_job() -> None:
    """One nameless runner beside hundreds of waiting jobs: a few questions, and the listing does the rest."""
    world = World(pool(max_concurrent=1), slots=1)
    world.strict = False
    (name,) = world.listening(1)
    world.queued(*range(2, 300))
    world.sign(name, Sign.WORKER)
    world.wait(MINUTE)
    asked = 0
    while world.job((question := world.last(cm.LookUpJob)).job.id).asked is not None:
        world.now += SECOND
        world.job_answer(question, F.QUEUED)
        asked += 1
    assert asked == 16
    assert world.runner(name).consumes
    sent = world.wait(5 * MINUTE)
    assert not world.runner(name).consumes
    assert of(sent, cm.LookUpJob) == []


def test_a_hard_sign_stands_for_it_also_after_the_runner_is_gone() -> None:
    world = World(slots=4)
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED)
    world.sign(name, Sign.WORKER)
    step = world.exited(name)
    assert of(step.commands, cm.Register) == []
    assert world.runner(name).consumes
    world.destroyed(world.last(cm.Destroy))
    world.completed(1, name)
    assert not world.runner(name).consumes
    world.registrations.clear()
    world.wait(HOUR + MINUTE)
    assert not world.knows(name)


def test_one_that_is_gone_is_asked_about_although_the_forge_was_away_when_it_was_due() -> None:
    """Demand would else be eaten for ever by a runner that nobody looks at again."""
    world = World(slots=4)
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED)
    world.sign(name, Sign.WORKER)
    world.exited(name)
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    world.wait(90 * SECOND)
    assert world.runner(name).consumes
    world.feed(ev.ScopeAnswered(APP))
    world.wait(MINUTE)
    world.job_answer(world.last(cm.LookUpJob), F.QUEUED)
    assert not world.runner(name).consumes
    assert world.count(cm.Register) == 2


def test_fp_35_a_start_on_a_foreign_runner_removes_the_demand() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, "other-node-7")
    assert world.runner(name).surplus_since == world.now
    assert of(world.queued(2), cm.Register) == []


# -- who gives room ----------------------------------------------------------------------------------


def test_one_that_serves_the_first_that_waits_is_looked_at_for_the_second() -> None:
    world = World(pool("a", labels=X), pool("b", labels=BOTH), pool("c", labels=Y), slots=1)
    (idle,) = world.listening(1, labels=X)
    world.queued(2, labels=X)
    world.wait(5 * MINUTE + SECOND)
    sent = world.queued(3, labels=Y)
    assert [command.runner for command in of(sent, cm.ProbeRunner)] == [idle]


def test_whoever_may_be_displaced_is_looked_at_when_the_demand_comes_and_not_a_minute_later() -> None:
    world = World(pool(), pool("arm", labels=("arm",)), slots=1)
    (idle,) = world.listening(1)
    world.wait(5 * MINUTE + SECOND)
    sent = world.queued(2, labels=("arm",))
    assert [command.runner for command in of(sent, cm.ProbeRunner)] == [idle]


def test_they_are_looked_at_also_where_the_pool_that_is_wanted_has_had_runners_before() -> None:
    world = World(pool("a", labels=X), pool("c", labels=Y), slots=1)
    (gone,) = world.listening(1, labels=Y)
    world.in_progress(1, gone, labels=Y)
    world.exited(gone)
    (idle,) = world.listening(2, labels=X)
    assert {name: len(members) for name, members in world.core.state.index.supply.items()} == {"a": 1, "c": 0}
    world.wait(5 * MINUTE + SECOND)
    sent = world.queued(3, labels=Y)
    assert [command.runner for command in of(sent, cm.ProbeRunner)] == [idle]


def test_room_on_one_host_hides_no_demand_that_waits_for_a_slot_of_another() -> None:
    hosts = (Host("here", 4), Host("there", 1))
    arm, big = pool("arm", labels=("arm",), host="there"), pool("big", labels=GPU, host="there")
    world = World(pool("a"), big, arm, hosts=hosts)
    (idle,) = world.listening(1, labels=("arm",))
    world.wait(5 * MINUTE + SECOND)
    assert len(world.planned(2)) == 1
    sent = world.queued(3, labels=GPU)
    assert [command.runner for command in of(sent, cm.ProbeRunner)] == [idle]


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
