"""A question about a job goes out once at a time, where somebody can be asked, and is repeated where it has to be."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.asking import WAITING_AGAIN, ask
from ephemerd.core.turn import Turn
from ephemerd.domain.job import Job
from tests.unit.core.world import APP, MINUTE, NO_ANSWER, World, key, of, pool


def asked(world: World, why: str, **changes: Any) -> tuple[bool, int, Job]:
    """Ask about the one job as changed: whether it said that it asked, what went out, and its row afterwards."""
    t = Turn(world.core.state, world.now)
    went_out = ask(t, t.put_job(replace(world.job(1), **changes)), why)
    return went_out, len(of(t.step().commands, cm.LookUpJob)), world.job(1)


def waiting() -> World:
    world = World(pool(max_concurrent=0), lists=False)
    world.queued(1)
    return world


def test_a_question_goes_out_and_is_to_be_repeated_no_more() -> None:
    world = waiting()
    went_out, sent, row = asked(world, "waiting", ask_again=world.now)
    assert (went_out, sent) == (True, 1)
    assert (row.asked, row.asking, row.ask_again) == (world.now, "waiting", None)


@pytest.mark.parametrize("again", [None, 5 * MINUTE])
@pytest.mark.parametrize("why", ["waiting", "unlisted"])
def test_while_one_is_out_no_other_follows_and_only_who_waits_for_leave_asks_later(
    why: str, again: int | None
) -> None:
    world = waiting()
    went_out, sent, row = asked(world, why, asked=world.now, asking="confirm", ask_again=again)
    assert (went_out, sent) == (False, 0)
    assert row.ask_again == (world.now + WAITING_AGAIN if why == "waiting" else again)


@pytest.mark.parametrize("again", [None, 5 * MINUTE])
def test_where_nobody_can_be_asked_any_more_nothing_is_repeated(again: int | None) -> None:
    world = waiting()
    world.core.state.pools.clear()
    t = Turn(world.core.state, world.now)
    assert not ask(t, t.change_job(world.job(1), ask_again=again), "waiting")
    assert t.state.jobs[key(1)].ask_again is None


def test_a_scope_that_is_silent_is_not_asked_and_the_question_waits() -> None:
    world = waiting()
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    went_out, sent, row = asked(world, "waiting")
    assert (went_out, sent, row.ask_again) == (False, 0, world.now + WAITING_AGAIN)
