"""Why does this job wait? One sentence, in the order in which planning would have stopped."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.waiting import why_waiting
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.job import ForgeStatus
from ephemerd.domain.pool import Policy, Setup
from tests.unit.core.world import (
    APP,
    GPU,
    LABELS,
    LIB,
    NO_ANSWER,
    SECOND,
    World,
    key,
    pool,
    report,
)

BROKEN = Fault(Remedy.BROKEN, "the disk is full")
FULL = "pool small is at its max_concurrent (0)"


def why(world: World, number: int = 1) -> str:
    return why_waiting(world.core.state, key(number), world.now)


def test_a_job_that_does_not_wait_has_no_reason() -> None:
    world = World()
    assert why(world) == ""
    world.queued(1)
    world.in_progress(1, "somebody-elses")
    assert why(world) == ""


def test_approval_and_a_runner_on_its_way() -> None:
    world = World()
    world.told(report(1, ForgeStatus.WAITING))
    assert why(world) == "the forge holds it for an approval or a wait timer"
    world.queued(1)
    assert why(world).startswith("a runner for it is on its way")


def test_no_pool_and_no_labels() -> None:
    world = World()
    world.queued(1, labels=GPU)
    assert why(world) == "no pool has the label(s) gpu"
    world.queued(2, labels=())
    assert why(world, 2) == "it asks for no labels, and no pool has `unlabelled = true`"


def test_a_question_that_is_out() -> None:
    world = World(slots=1)
    (name,) = world.listening(9)
    world.in_progress(9, name)
    world.queued(1)
    assert why(world) == "host here has no free slot"
    world.wait(61 * SECOND)
    world.exited(name)
    assert why(world) == "the forge is asked whether it still waits; a slot is reserved"


def test_a_backoff_says_how_long_and_after_what() -> None:
    world = World()
    (name,) = world.planned(1)
    world.feed(ev.RegistrationFailed(name, BROKEN))
    assert why(world).startswith("pool small waits ")
    assert why(world).endswith("after: the disk is full")


def test_a_cordon_says_by_whom() -> None:
    world = World()
    world.feed(ev.CordonOrdered("ann", ev.Target.HOST, "here", "disk swap"))
    world.queued(1)
    assert why(world) == "pool small is cordoned by ann: disk swap"


def test_troubles_of_the_scope() -> None:
    world = World()
    world.feed(ev.ScopeAnswered(APP, limited_until=world.now + 30 * SECOND))
    world.queued(1)
    assert why(world) == "the forge limits our requests for another 30 s"
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    assert why(world) == "the forge gives no answer"
    world.feed(ev.JobsListed(APP, 0, Fault(Remedy.DENIED, "Bad credentials")))
    assert why(world) == "the forge refuses our credential: Bad credentials"


def test_limits_of_the_pool_and_of_the_host() -> None:
    world = World(pool(max_concurrent=1), slots=2)
    world.queued(1, 2)
    assert why(world, 2) == "pool small is at its max_concurrent (1)"
    world = World()
    for number in (1, 2):
        (name,) = world.listening(number)
        world.in_progress(number, name)
        world.exited(name, leftovers=1)
        world.feed(ev.DestroyFailed(name, f"env-{name}", BROKEN))
    world.queued(3)
    assert why(world, 3) == "host here has too many abandoned environments"


def test_a_pool_that_is_not_configured_any_more_is_said_to_be() -> None:
    world = World(pool(), pool("big", labels=GPU))
    world.restart(setup=Setup((pool(),), world.setup.hosts, Policy()))
    world.queued(1, labels=GPU)
    assert why(world) == "pool big is not configured any more"


def test_a_class_of_which_another_job_is_asked_about_has_its_turn() -> None:
    world = World(slots=3)
    names = world.listening(7, 8, 9)
    for number, name in zip((7, 8, 9), names, strict=True):
        world.in_progress(number, name)
    world.queued(1)
    world.wait(61 * SECOND)
    for name in names:
        world.exited(name)
    assert world.last(cm.LookUpJob).job == key(1)
    world.queued(2)
    assert why(world, 2) == "a runner for it is about to be planned"


def test_a_job_that_nobody_knows_has_no_reason() -> None:
    assert why(World(), 99) == ""


def test_an_arrival_in_a_repository_that_no_pool_serves_any_more() -> None:
    world = World()
    world.queued(1)
    world.restart(setup=Setup((pool(scope=LIB),), world.setup.hosts, Policy()))
    assert why(world) == "no pool serves its repository"


def test_the_nearest_pool_names_the_labels_that_are_missing() -> None:
    world = World(pool("far", labels=("arm",)), pool(), pool("off", labels=("linux", "self-hosted", "x64")))
    world.queued(1, labels=("self-hosted", "linux", "x64", "gpu"))
    assert why(world) == "no pool has the label(s) gpu"


def test_a_class_that_is_held_says_so() -> None:
    world = World()
    world.listening(1)
    world.wait(30 * SECOND)
    world.queued(2)
    assert why(world, 2) == "the forge seems to hold back: a listening runner of its class has not been taken"


@pytest.mark.parametrize(("target", "name"), [("pool", "small"), ("host", "here"), ("all", "")])
def test_a_cordon_is_named_whatever_it_is_of(target: str, name: str) -> None:
    world = World()
    world.feed(ev.CordonOrdered("ann", ev.Target(target), name, "new disk"))
    world.queued(1)
    assert why(world) == "pool small is cordoned by ann: new disk"


def test_a_pool_on_a_host_that_nobody_knows_has_no_slot() -> None:
    world = World(pool(host="elsewhere"))
    world.queued(1)
    assert why(world) == "host elsewhere has no free slot"


@pytest.mark.parametrize("rest", [0, 1, 1_999, 90_500])
def test_a_pause_is_told_to_its_last_millisecond_and_not_after(rest: int) -> None:
    """Of a job, of its pool, and of its forge: what is over is no reason any more."""
    world = World(pool(max_concurrent=0))
    world.queued(1)
    state, job = world.core.state, world.job(1)
    state.jobs[job.key] = replace(job, not_before=world.now + rest)
    in_vain = f"its last try was in vain; next try in {rest // SECOND} s"
    assert why(world) == (in_vain if rest else FULL)
    state.jobs[job.key] = job
    row = state.pools["small"]
    state.pools["small"] = replace(row, not_before=world.now + rest, why="the disk is full")
    pause = f"pool small waits {rest // SECOND} s after: the disk is full"
    assert why(world) == (pause if rest else FULL)
    state.pools["small"] = row
    state.keep_scope(replace(state.scope(APP), limited_until=world.now + rest))
    limit = f"the forge limits our requests for another {rest // SECOND} s"
    assert why(world) == (limit if rest else FULL)


def test_where_one_abandoned_environment_is_too_many_none_is_not() -> None:
    world = World(pool(max_concurrent=0), policy=Policy(abandoned_limit=1))
    world.queued(1)
    assert why(world) == FULL


def test_labels_that_are_missing_are_told_of_pools_that_are_configured() -> None:
    """The nearest pool is no more: a person who adds its label there would wait for ever."""
    world = World(pool("far", labels=("arm",)), pool("near"))
    world.restart(setup=Setup((pool("far", labels=("arm",)),), world.setup.hosts, Policy()))
    world.queued(1, labels=(*LABELS, "gpu"))
    assert why(world) == "no pool has the label(s) gpu, linux, self-hosted"
