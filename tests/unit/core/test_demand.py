"""Classes of demand: which pools serve them, what they leave behind, and which jobs are demand no more."""

from __future__ import annotations

from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.demand import is_discharged
from ephemerd.core.index import group_name
from ephemerd.core.turn import Turn
from ephemerd.domain.pool import Setup
from tests.unit.core.world import GPU, LABELS, ORG, World, key, of, pool


def test_fp_45_one_class_for_all_spellings() -> None:
    world = World()
    world.queued(1, labels=("Self-Hosted", "LINUX"))
    world.queued(2, labels=("linux", "self-hosted", "linux", " "))
    assert len(world.core.state.index.groups) == 1
    assert [command.labels for command in of(world.sent, cm.Register)] == [LABELS, LABELS]


def test_fp_47_no_labels_match_nothing_unless_a_pool_says_so() -> None:
    assert World().planned(1, labels=()) == []
    assert len(World(pool(unlabelled=True)).planned(1, labels=())) == 1


def test_a_scope_that_does_not_serve_the_repository_is_no_place() -> None:
    world = World(pool("app"), pool("org", scope=ORG))
    (name,) = world.planned(1, repository="acme/lib")
    assert world.runner(name).pool == "org"


def test_a_class_that_comes_later_finds_the_varieties_that_are_there() -> None:
    world = World(pool(labels=GPU, exact=True, scope=ORG))
    world.listening(1, labels=("gpu", "linux"))
    world.completed(1, how="cancelled")
    assert of(world.queued(2, labels=("gpu",), repository="acme/lib"), cm.Register) == []
    assert len(of(world.queued(3, labels=LABELS, repository="acme/lib"), cm.Register)) == 1


def test_varieties_are_linked_once_for_each_class_that_both_serve() -> None:
    world = World(pool("big", labels=GPU), pool("small"))
    index = world.core.state.index
    world.queued(1, 2)
    world.queued(3, labels=("linux",))
    world.queued(4, labels=GPU)
    assert index.links == {"small": {"small": 2, "big": 2}, "big": {"small": 2, "big": 3}}
    for number in (1, 2, 4):
        world.completed(number, how="cancelled")
    assert index.links == {"small": {"small": 1, "big": 1}, "big": {"small": 1, "big": 1}}
    world.completed(3, how="cancelled")
    assert index.links == {"small": {}, "big": {}}


def test_a_class_that_appears_counts_as_served_with_the_last_runner_that_was_made() -> None:
    world = World(pool(scope=ORG), slots=0)
    world.queued(1)
    assert [row.served for row in world.core.state.classes.values()] == [0]
    world = World(pool(scope=ORG), slots=1)
    world.queued(1)
    world.queued(2, repository="acme/lib")
    assert [row.served for row in world.core.state.classes.values()] == [1, 1]


def test_a_job_that_is_not_known_is_no_demand() -> None:
    world = World(slots=1)
    (name,) = world.listening(1)
    t = Turn(world.core.state, world.now)
    assert not is_discharged(t, key(1))
    assert is_discharged(t, key(99))
    assert is_discharged(t, None)
    world.in_progress(1, name)
    assert is_discharged(t, key(1))


def test_a_job_that_the_policy_refuses_is_no_demand() -> None:
    world = World()
    world.queued(1)
    t = Turn(world.core.state, world.now)
    assert not is_discharged(t, key(1))
    t.change_job(world.job(1), refused="repository")
    assert is_discharged(t, key(1))


def test_a_class_is_found_by_its_name_as_long_as_a_job_of_it_waits() -> None:
    world = World()
    world.queued(1)
    name = group_name(world.job(1))
    group = world.core.state.group(name)
    assert group is not None
    assert (group.labels, group.pools, len(group.queued)) == (LABELS, ("small",), 1)
    world.completed(1)
    assert world.core.state.group(name) is None


def test_a_class_without_a_job_leaves_nothing_behind_in_the_store() -> None:
    world = World()
    world.queued(1)
    assert len(world.stored["class"]) == 1
    world.completed(1)
    assert (world.core.state.classes, world.stored["class"]) == ({}, {})


def test_a_pool_whose_labels_changed_knows_the_jobs_no_more_that_it_served_before() -> None:
    world = World(pool(), pool("big", labels=GPU), slots=2)
    world.planned(1)
    setup = Setup((pool(labels=("arm",)), pool("big", labels=GPU)), world.setup.hosts, world.setup.policy)
    world.feed(ev.Reconfigured("ann", setup))
    world.completed(1, how="cancelled")
    assert world.core.state.index.groups == {}
    world.queued(2, labels=("arm",))
    index = world.core.state.index
    assert {pool: len(names) for pool, names in index.takers.items() if names} == {"small": 1}
    assert {pool: len(names) for pool, names in index.turns.items() if names} == {"small": 1}


def test_a_runner_whose_pool_serves_its_job_no_more_is_left_over_at_once() -> None:
    world = World(pool(unlabelled=True))
    (name,) = world.listening(1, labels=())
    assert world.runner(name).surplus_since is None
    world.feed(ev.Reconfigured("ann", replace(world.setup, pools=(pool(),))))
    assert world.runner(name).surplus_since == world.now


def test_what_is_matched_with_old_labels_survives_a_restart() -> None:
    world = World()
    world.listening(1)
    world.feed(ev.Reconfigured("anna", replace(world.setup, pools=(pool(labels=("arm",)),))))
    world.queued(2, labels=("arm",))
    reborn = world.reborn().state.index
    kept = world.core.state.index
    assert (reborn.odd, reborn.takers, reborn.turns) == (kept.odd, kept.takers, kept.turns)
    assert [group.unmatched for group in reborn.groups.values()] == [
        group.unmatched for group in kept.groups.values()
    ]
