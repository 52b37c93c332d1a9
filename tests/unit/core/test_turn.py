"""What a turn keeps true by itself: moments, subjects, and the rows that a store has to forget."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ephemerd.core.rows import ClassRow
from ephemerd.core.turn import Turn, job_moment
from ephemerd.domain.access import Access
from ephemerd.domain.pool import Policy
from tests.unit.core.world import APP, MINUTE, SECOND, World, key


def turn(world: World) -> Turn:
    return Turn(world.core.state, world.now)


def test_a_runner_that_is_dropped_is_forgotten_by_store_agenda_and_turn() -> None:
    world = World()
    (name,) = world.listening(1)
    t = turn(world)
    t.touch((name,))
    t.drop_runner(world.runner(name))
    assert ("runner", name, None) in t.step().changed
    assert ("runner", name) not in t.state.agenda.moments()
    assert name not in t.touched


def test_a_job_that_is_dropped_is_forgotten_by_store_and_agenda() -> None:
    world = World()
    world.queued(1)
    t = turn(world)
    t.put_job(replace(world.job(1), not_before=world.now + MINUTE))
    assert t.state.agenda.moments()["job", str(key(1))] == world.now + MINUTE
    t.drop_job(key(1))
    assert ("job", str(key(1)), None) in t.step().changed
    assert ("job", str(key(1))) not in t.state.agenda.moments()


def test_a_runners_row_concerns_its_job_too() -> None:
    """So that the story of a job tells what happened to the runner that has it."""
    world = World()
    (name,) = world.listening(1)
    t = turn(world)
    t.change_runner(world.runner(name), job=key(1))
    assert t.step().subjects == tuple(sorted((name, str(key(1)))))
    t = turn(world)
    t.change_runner(replace(world.runner(name), job=None), token=5)
    assert t.step().subjects == (name,)


def test_a_pool_wants_a_look_when_its_pause_ends_and_none_without_one() -> None:
    world = World()
    t = turn(world)
    row = t.put_pool(replace(t.state.pools["small"], not_before=world.now + 1))
    assert t.state.agenda.moments()["pool", "small"] == world.now + 1
    t.put_pool(replace(row, not_before=world.now))
    assert ("pool", "small") not in t.state.agenda.moments()


def test_a_job_wants_a_look_at_the_first_of_its_moments_and_never_at_this_one() -> None:
    world = World()
    world.queued(1)
    row, now, policy = world.job(1), world.now, Policy()
    asked = replace(row, asked=now, not_before=now + MINUTE)
    assert job_moment(asked, policy, now) == now + policy.confirm_wait < now + MINUTE
    again = replace(row, ask_again=now + 30 * SECOND, not_before=now + SECOND)
    assert job_moment(again, policy, now) == now + SECOND
    assert job_moment(replace(row, not_before=now), policy, now) is None


def test_a_class_of_demand_that_is_forgotten_is_forgotten_by_the_store() -> None:
    world = World()
    world.queued(1)
    (name,) = world.core.state.classes
    t = turn(world)
    t.put_class(name, None)
    assert t.step().changed == (("class", name, None),)
    assert name not in t.state.classes


def test_a_row_that_equals_the_one_that_is_there_changes_nothing() -> None:
    world = World()
    (name,) = world.listening(1)
    t, runner, job = turn(world), world.runner(name), world.job(1)
    t.put_runner(replace(runner))
    t.change_runner(runner, token=runner.token)
    t.put_job(replace(job))
    t.change_job(job, token=job.token)
    assert t.step().changed == ()
    assert (t.stirred, t.touched) == (0, {})


def test_a_row_that_is_changed_back_to_the_one_that_is_there_changes_nothing() -> None:
    world = World()
    (name,) = world.listening(1)
    t, runner = turn(world), world.runner(name)
    t.change_runner(replace(runner, token=runner.token + 1), token=runner.token)
    assert (t.step().changed, t.stirred) == ((), 0)


def test_whom_an_event_concerns_is_said_in_order() -> None:
    t = turn(World())
    t.concern("b")
    t.concern("a")
    assert t.step().subjects == ("a", "b")


def test_a_job_that_is_dropped_leaves_every_index() -> None:
    world = World()
    world.queued(1)
    world.completed(1, how="cancelled")
    t = turn(world)
    t.drop_job(key(1))
    assert (t.state.index.finished, t.state.index.by_status) == ({}, {})


def test_a_job_that_is_scheduled_wants_a_look_at_its_moment() -> None:
    world = World()
    world.queued(1)
    t, row = turn(world), replace(world.job(1), not_before=world.now + MINUTE)
    t.schedule_job(row)
    assert t.state.agenda.moments()["job", str(key(1))] == world.now + MINUTE


def test_numbers_are_drawn_one_by_one_and_kept() -> None:
    t = turn(World())
    assert [t.draw("x"), t.draw("x"), t.draw("y")] == [1, 2, 1]
    assert t.step().changed == (("meta", "x", 2), ("meta", "y", 1))


def test_who_may_use_the_runners_of_a_forge_is_kept_by_the_store_and_forgotten() -> None:
    t = turn(World())
    t.put_access("github", Access("github"))
    t.put_access("gitea", None)
    assert t.step().changed == (("access", "github", Access("github")), ("access", "gitea", None))


def test_whatever_planning_could_rest_on_is_counted_and_what_it_cannot_is_not() -> None:
    world = World()
    (name,) = world.listening(1)
    (group,) = world.core.state.classes
    t, state = turn(world), world.core.state
    counted = [
        lambda: t.change_runner(world.runner(name), token=5),
        lambda: t.change_job(world.job(1), not_before=world.now + 1),
        lambda: t.put_scope(state.scopes[str(APP)]),
        lambda: t.put_pool(state.pools["small"]),
        lambda: t.put_host(state.hosts["here"]),
        lambda: t.put_class(group, state.classes[group]),
        lambda: t.set_meta("x", 1),
        lambda: t.drop_runner(world.runner(name)),
        lambda: t.drop_job(key(1)),
    ]
    for number, change in enumerate(counted, start=1):
        change()
        assert t.stirred == number
    t.count("x")
    t.note("info", "nothing")
    t.concern("x")
    assert t.stirred == len(counted)


def test_what_is_put_and_dropped_in_one_turn_is_told_once_as_it_is_at_the_end() -> None:
    world = World()
    (name,) = world.listening(1)
    t = turn(world)
    row, job = t.state.runners[name], t.state.jobs[key(1)]
    t.put_runner(replace(row, stuck="x"))
    t.drop_runner(t.state.runners[name])
    t.put_job(replace(job, name="x"))
    t.drop_job(key(1))
    t.put_class("c", ClassRow(served=1))
    t.put_class("c", None)
    t.put_class("c", ClassRow(served=2))
    assert t.step().changed == (
        ("runner", name, None),
        ("job", str(key(1)), None),
        ("class", "c", ClassRow(served=2)),
    )


def test_a_job_that_changed_meanwhile_is_followed_from_where_it_is() -> None:
    world = World()
    world.listening(1)
    t = turn(world)
    old = t.state.jobs[key(1)]
    t.change_job(old, asking="confirm", asked=t.now, pool="small")
    t.change_job(old, name="x")
    assert t.state.index.reserved == {}
    assert t.state.jobs[key(1)] == replace(old, name="x")


def test_a_job_about_which_nothing_is_open_any_more_wants_no_look() -> None:
    world = World()
    world.queued(1)
    t, row = turn(world), world.job(1)
    for change in ({"not_before": world.now + MINUTE}, {"asked": world.now}, {"ask_again": world.now + 1}):
        t.put_job(replace(row, **change))
        assert ("job", str(key(1))) in t.state.agenda.moments()
        t.put_job(row)
        assert ("job", str(key(1))) not in t.state.agenda.moments()


@pytest.mark.parametrize("field", ["not_before", "ask_again", "asked"])
def test_a_moment_of_a_job_that_is_put_off_is_so_in_the_agenda(field: str) -> None:
    world = World()
    world.queued(1)
    moments = []
    for later in (SECOND, 2 * SECOND, 3 * SECOND):
        t = turn(world)
        t.change_job(world.job(1), **{field: world.now + later})
        moments.append(t.state.agenda.moments()["job", str(key(1))])
    assert [moment - moments[0] for moment in moments] == [0, SECOND, 2 * SECOND]
    turn(world).change_job(world.job(1), **{field: 0 if field == "not_before" else None})
    assert ("job", str(key(1))) not in world.core.state.agenda.moments()
