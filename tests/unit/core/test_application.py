"""What runners are made from can be missing or refused by the forge: nothing is started in vain, no demand is lost."""

from __future__ import annotations

from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.health import assess
from ephemerd.core.waiting import why_waiting
from ephemerd.domain.exits import REFUSED_VERSION
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus, JobReport, JobStatus
from ephemerd.domain.pool import Setup
from ephemerd.domain.runner import RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core.build import LABELS, MINUTE, SECOND, pool
from tests.unit.core.build import World as Plain

MISSING = "it is being fetched"


class World(Plain):
    """The forge says of every job that it is asked about that it still waits."""

    def _answer(self, command: cm.Command) -> None:
        super()._answer(command)
        if isinstance(command, cm.LookUpJob):
            waits = JobReport(command.job, ForgeStatus.QUEUED, LABELS)
            self.handle(ev.JobLookedUp(command.job, command.token, waits))


def registered(world: World) -> list[RunnerId]:
    """Every runner that was registered for, in order."""
    return [command.runner for command in world.sent if isinstance(command, cm.Register)]


def refused(world: World, name: RunnerId | None = None) -> RunnerId:
    """A runner listens, and leaves since the forge refuses its version."""
    name = name or world.listening()
    world.exits(name, REFUSED_VERSION)
    return name


def comes_up(world: World, name: RunnerId) -> RunnerId:
    world.handle(ev.Registered(name, 9900 + len(world.sent)))
    world.handle(ev.EnvironmentStarted(name, f"env-{name}"))
    world.sign(name, Sign.LISTENING)
    return name


def held(*pools: tuple[str, str], min_idle: int = 0) -> World:
    """A world whose life began with pools that lack their application."""
    world = World(pool(min_idle=min_idle), answers=True)
    world.core = type(world.core)()
    world.sent.clear()
    world.handle(ev.Booted("abcd1234", "e9", world.setup, held=pools))
    return world


def test_a_version_that_is_refused_is_not_started_again_and_again() -> None:
    world = World()
    refused(world)
    assert world.core.state.index.by_status[JobStatus.QUEUED.value] == 1, "the job stays demand"
    assert len(registered(world)) == 1
    world.wait(10 * MINUTE - SECOND)
    assert len(registered(world)) == 1
    world.wait(2 * SECOND)
    assert len(registered(world)) == 2, "one finds out whether it is over"


def test_only_one_runner_at_a_time_tries_a_version_that_was_refused() -> None:
    world = World(pool(min_idle=2))
    first, second = registered(world)
    for name in (first, second):
        refused(world, comes_up(world, name))
    for _ in range(3):
        world.queue()
    world.wait(10 * MINUTE)
    assert len(registered(world)) == 3
    refused(world, comes_up(world, registered(world)[-1]))
    world.wait(10 * MINUTE)
    assert len(registered(world)) == 4
    assert world.core.state.pools["linux"].exits == 3


def test_a_runner_that_was_there_before_is_no_try() -> None:
    world = World(pool(min_idle=1))
    busy = comes_up(world, registered(world)[0])
    world.sign(busy, Sign.ANNOUNCED, "job")
    refused(world, comes_up(world, registered(world)[1]))
    world.wait(11 * MINUTE)
    assert len(registered(world)) == 3
    assert world.row(busy).state is RunnerState.RUNNING


def test_a_try_that_is_given_a_job_ends_the_pause() -> None:
    world = World(slots=4)
    refused(world)
    for _ in range(2):
        world.queue()
    world.wait(10 * MINUTE)
    assert len(registered(world)) == 2
    found = comes_up(world, registered(world)[-1])
    assert len(registered(world)) == 2
    world.sign(found, Sign.ANNOUNCED, "job")
    assert len(registered(world)) == 4
    assert world.core.state.pools["linux"].refused is None


def test_another_application_ends_the_pause_at_once() -> None:
    world = World()
    refused(world)
    world.handle(ev.ApplicationTold("linux"))
    assert len(registered(world)) == 2
    row = world.core.state.pools["linux"]
    assert (row.refused, row.exits, row.not_before, row.why) == (None, 0, 0, "")


def test_a_reload_ends_the_pause_as_well() -> None:
    world = World()
    refused(world)
    world.handle(ev.Reconfigured("ann", world.setup))
    assert len(registered(world)) == 2


def test_that_the_application_is_there_says_nothing_of_other_troubles() -> None:
    world = World()
    name = world.listening()
    world.exits(name, 1)
    world.exits(world.listening(), 1)
    before = world.core.state.pools["linux"]
    assert before.not_before > world.now
    world.handle(ev.ApplicationTold("linux"))
    assert world.core.state.pools["linux"] == before


def test_a_pool_without_its_application_waits_from_the_start() -> None:
    world = held(("linux", MISSING), min_idle=1)
    world.queue()
    assert registered(world) == []
    (key,) = world.core.state.jobs
    assert why_waiting(world.core.state, key, world.now) == f"pool linux starts no runners: {MISSING}"
    health = assess(world.core.state, world.now)
    assert health.status == "degraded"
    assert health.reasons == (f"Pool linux starts no runners: {MISSING}.",)
    world.handle(ev.ApplicationTold("linux"))
    assert len(registered(world)) == 2, "one for the job, and the spare"
    assert assess(world.core.state, world.now).status == "ok"


def test_what_it_waits_for_can_change_and_survives_in_the_row() -> None:
    world = held(("linux", MISSING))
    world.handle(ev.ApplicationTold("linux", "the checksum is wrong"))
    world.queue()
    assert registered(world) == []
    assert world.core.state.pools["linux"].missing == "the checksum is wrong"
    world.restart()
    assert len(registered(world)) == 1, "a new life is told anew"


def test_a_reload_says_it_for_a_pool_that_is_new() -> None:
    world = World()
    fresh = pool("other", labels=("gpu",))
    setup = Setup((*world.setup.pools, fresh), world.setup.hosts, world.setup.policy)
    world.handle(ev.Reconfigured("ann", setup, (("other", MISSING),)))
    world.queue(("gpu",))
    assert registered(world) == []
    assert world.core.state.pools["linux"].missing == ""


def test_what_is_said_of_a_pool_that_is_not_there_is_dropped() -> None:
    world = World()
    before = world.core.checkpoint()
    world.handle(ev.ApplicationTold("nowhere", MISSING))
    assert world.core.checkpoint() == before


def test_health_and_the_job_say_that_the_version_is_refused() -> None:
    world = World()
    refused(world)
    (key,) = world.core.state.jobs
    why = why_waiting(world.core.state, key, world.now)
    assert why == "pool linux waits 600 s after: the forge refuses the version of its runner application"
    health = assess(world.core.state, world.now)
    assert health.status == "degraded"
    (reason,) = health.reasons
    assert reason.startswith("Pool linux: the forge refuses the version of its runner application")
    assert "every 10 min" in reason
    world.wait(10 * MINUTE)
    name = comes_up(world, registered(world)[-1])
    world.queue()
    latest = max(world.core.state.jobs.values(), key=lambda row: row.order).key
    assert f"runner {name}" in why_waiting(world.core.state, latest, world.now)


def test_the_alarm_is_given_once() -> None:
    world = World(pool(min_idle=2))
    told: list[str] = []
    for name in registered(world):
        comes_up(world, name)
        world.exits(name, REFUSED_VERSION)
        told += [note.text for note in world.step.notes if "refuses the version" in note.text]
    assert len(told) == 1


def test_a_pool_that_is_refused_is_paused_no_longer_than_the_policy_says() -> None:
    world = World(policy=replace(World().setup.policy, refused_retry=MINUTE))
    refused(world)
    world.wait(MINUTE + SECOND)
    assert len(registered(world)) == 2


# What runners are called


def test_the_names_of_a_pools_runners_end_as_it_says() -> None:
    world = World(pool(suffix="-linux"))
    name = world.registering()
    assert name == "eph-abcd1234-e1-1-linux"


# A registration that was never used


def test_a_registration_that_lapsed_before_it_was_used_is_made_anew_at_once_in_its_slot() -> None:
    """The listener came too late, is told that its registration is gone, and leaves with code 1."""
    world = World(slots=1)
    first = world.starting()
    assert world.core.state.slots_free("local") == 0
    step = world.exits(first, 1)
    (second,) = [command.runner for command in step.commands if isinstance(command, cm.Register)]
    assert second != first
    assert world.core.state.slots_free("local") == 0, "nobody else got it in between"
    assert world.row(second).intent == world.row(first).intent
