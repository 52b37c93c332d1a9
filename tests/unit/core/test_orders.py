"""What a person ordered: cordon, drain, kill; each passes the same gate as everything else."""

from __future__ import annotations

import pytest

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.pool import Host
from ephemerd.domain.runner import FenceAnswer, RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core.world import GPU, MINUTE, SECOND, World, of, pool, seen

S = RunnerState
ALL, POOL, HOST = ev.Target.ALL, ev.Target.POOL, ev.Target.HOST


@pytest.mark.parametrize(("target", "name"), [(ALL, ""), (POOL, "small"), (HOST, "here")])
def test_fp_60_nothing_is_planned_where_it_is_cordoned(target: ev.Target, name: str) -> None:
    world = World()
    world.feed(ev.CordonOrdered("ann", target, name, "disk swap"))
    assert world.planned(1) == []
    assert world.core.cordoned("small")
    step = world.feed(ev.UncordonOrdered("ann", target, name))
    assert len(of(step.commands, cm.Register)) == 1
    assert not world.core.cordoned("small")


def test_another_pool_and_another_host_go_on() -> None:
    world = World(pool(), pool("big", labels=GPU, host="there"), hosts=(Host("here", 1), Host("there", 1)))
    world.feed(ev.CordonOrdered("ann", POOL, "small"))
    assert len(world.planned(1, labels=GPU)) == 1
    world.feed(ev.CordonOrdered("ann", HOST, "there"))
    assert world.planned(2, labels=GPU) == []


def test_an_order_for_something_unknown_changes_no_row() -> None:
    world = World()
    assert world.feed(ev.CordonOrdered("ann", POOL, "nowhere")).changed == ()
    assert world.feed(ev.UncordonOrdered("ann", HOST, "nowhere")).changed == ()
    assert world.feed(ev.KillOrdered("ann", RunnerId("eph-s1-e1-99"), "x")).changed == ()


def test_fp_60a_the_cordon_is_checked_at_the_registration_itself() -> None:
    """The dispatch that waited for its word finds the cordon when the word comes."""
    world = World(slots=1)
    world.doubted(1)
    question = world.last(cm.LookUpJob)
    world.feed(ev.CordonOrdered("ann", ALL))
    step = world.feed(ev.JobLookedUp(question.job, question.token, world.waiting[question.job]))
    assert of(step.commands, cm.Register) == []
    assert world.core.state.index.reserved == {}


def test_fp_60b_what_still_boots_is_nominated_when_it_listens() -> None:
    world = World()
    (name,) = world.planned(1)
    world.feed(ev.DrainOrdered("ann", ALL))
    assert world.core.draining()
    world.registered(name)
    world.started(name)
    assert world.count(cm.ProbeRunner) == 0
    step = world.sign(name, Sign.LISTENING)
    assert [command.runner for command in of(step.commands, cm.ProbeRunner)] == [name]


def test_fp_60c_listeners_are_deregistered_and_busy_ones_are_waited_for() -> None:
    world = World()
    idle, busy = world.listening(1, 2)
    step = world.feed(ev.DrainOrdered("ann", ALL))
    probes = {command.runner: command for command in of(step.commands, cm.ProbeRunner)}
    assert sorted(probes) == sorted([idle, busy])
    world.probed(probes[idle])
    world.probed(probes[busy], seen(workers=1))
    (fence,) = of(world.sent, cm.Deregister)
    assert fence.intent.runner == idle
    world.deregistered(fence)
    for command in of(world.wait(5 * SECOND), cm.ProbeRunner):
        if command.runner == idle:
            world.probed(command)
    world.destroyed(world.last(cm.Destroy))
    assert (world.runner(idle).state, world.runner(busy).state) == (S.GONE, S.RUNNING)
    for command in of(world.wait(30 * MINUTE), cm.ProbeRunner):
        world.probed(command, seen(workers=1))
    assert world.runner(busy).state is S.RUNNING
    assert world.count(cm.Destroy) == 1
    world.exited(busy)
    assert world.held == 0


def test_a_refused_one_is_busy_and_waited_for() -> None:
    world = World()
    (name,) = world.listening(1)
    world.feed(ev.CordonOrdered("ann", ALL))
    world.probed(world.last(cm.ProbeRunner))
    world.deregistered(world.last(cm.Deregister), FenceAnswer.REFUSED)
    assert world.runner(name).state is S.ASSIGNED
    assert world.count(cm.Destroy) == 0


def test_a_cordon_survives_a_restart_with_who_and_why() -> None:
    world = World()
    world.feed(ev.CordonOrdered("ann", ALL, "", "disk swap"))
    world.feed(ev.DrainOrdered("bob", POOL, "small", "upgrade"))
    world.restart()
    assert world.core.state.meta["cordoned"] == "ann: disk swap"
    assert world.core.state.pools["small"].cordoned == "bob: upgrade"
    assert world.core.state.pools["small"].draining
    assert world.planned(1) == []


@pytest.mark.parametrize(("target", "name"), [(ALL, ""), (POOL, "small"), (HOST, "here")])
def test_fp_60_a_cordon_has_an_age_from_its_first_order_to_its_end(target: ev.Target, name: str) -> None:
    world = World()

    def since() -> int:
        state = world.core.state
        found = {ALL: int(state.meta.get("cordoned_at", 0)), POOL: state.pools["small"].cordoned_at}
        return found.get(target, state.hosts["here"].cordoned_at)

    began = world.now
    world.feed(ev.CordonOrdered("ann", target, name, "disk"))
    world.wait(MINUTE)
    world.feed(ev.DrainOrdered("bob", target, name, "more"))
    world.restart()
    assert since() == began
    world.feed(ev.UncordonOrdered("ann", target, name))
    assert since() == 0


def test_an_uncordon_of_everything_leaves_the_cordon_of_a_pool() -> None:
    world = World()
    world.feed(ev.CordonOrdered("ann", POOL, "small"))
    world.feed(ev.DrainOrdered("ann", ALL))
    world.feed(ev.UncordonOrdered("ann", ALL))
    assert not world.core.draining()
    assert world.core.cordoned("small")


def test_an_uncordoned_listener_is_used_again() -> None:
    world = World()
    (name,) = world.listening(1)
    world.feed(ev.CordonOrdered("ann", ALL))
    world.feed(ev.UncordonOrdered("ann", ALL))
    world.probed(world.last(cm.ProbeRunner), seen(workers=1))
    assert world.runner(name).state is S.RUNNING


def test_a_kill_nominates_at_once_and_does_not_destroy() -> None:
    world = World()
    (name,) = world.listening(1)
    step = world.feed(ev.KillOrdered("ann", name, "stuck"))
    assert [command.runner for command in of(step.commands, cm.ProbeRunner)] == [name]
    assert of(step.commands, cm.Destroy) + of(step.commands, cm.Deregister) == []
    assert len(of(step.commands, cm.Register)) == 1  # its job is served by another one
    assert world.runner(name).order_given is not None
    assert name not in world.core.state.index.supply["small"]


def test_a_kill_of_what_still_registers_waits_until_it_can_be_looked_at() -> None:
    world = World()
    (name,) = world.planned(1)
    world.feed(ev.KillOrdered("ann", name, "wrong pool"))
    assert world.runner(name).state is S.REGISTERING
    step = world.registered(name)
    assert world.runner(name).gate is not None
    assert of(step.commands, cm.Destroy) == []


def test_a_kill_of_what_is_gone_is_no_order() -> None:
    world = World()
    (name,) = world.listening(1)
    world.exited(name)
    assert world.feed(ev.KillOrdered("ann", name, "late")).changed == ()


def test_a_sweep_looks_at_every_live_runner() -> None:
    world = World(pool(surplus_grace=0))
    (name,) = world.listening(1)
    world.completed(1, how="cancelled")
    world.probed(world.last(cm.ProbeRunner), None)
    before = world.count(cm.ProbeRunner)
    world.feed(ev.SweepOrdered())
    assert world.count(cm.ProbeRunner) == before  # one probe at a time
    assert world.runner(name).gate is not None


def test_every_order_is_logged_with_who_gave_it_and_what_for() -> None:
    world = World()
    (runner,) = world.listening(1)
    said = {}
    for order in (
        ev.CordonOrdered("ann", POOL, "small", "disk swap"),
        ev.DrainOrdered("bob", ALL),
        ev.UncordonOrdered("eve", HOST, "here"),
        ev.KillOrdered("dan", runner, "cleaning up", even_if_busy=False),
    ):
        for note in world.feed(order).notes:
            said[note.text] = dict(note.fields)
    assert said["cordoned"] == {"target": "pool", "name": "small", "by": "ann: disk swap"}
    assert said["draining"] == {"target": "all", "name": "", "by": "bob"}
    assert said["uncordoned"] == {"target": "host", "name": "here", "by": "eve"}
    assert said["kill ordered"] == {
        "runner": runner,
        "by": "dan",
        "reason": "cleaning up",
        "force": "False",
    }


def cordons(world: World) -> dict[str, tuple[str, bool]]:
    """What is ordered for each pool and host: why it is cordoned, and whether it drains."""
    state = world.core.state
    rows = {f"pool {name}": row for name, row in state.pools.items()} | {
        f"host {name}": row for name, row in state.hosts.items()
    }
    return {name: (row.cordoned, row.draining) for name, row in rows.items()}


NOTHING = ("", False)


def test_a_pool_and_a_host_of_one_name_are_told_apart_and_a_drain_ends_where_it_was_ordered() -> None:
    world = World(pool("here"), pool("small"))
    world.feed(ev.DrainOrdered("ann", HOST, "here"))
    assert cordons(world) == {"pool here": NOTHING, "pool small": NOTHING, "host here": ("ann", True)}
    world.feed(ev.DrainOrdered("bob", POOL, "here"))
    world.feed(ev.UncordonOrdered("ann", HOST, "here"))
    assert cordons(world) == {"pool here": ("bob", True), "pool small": NOTHING, "host here": NOTHING}
    world.feed(ev.UncordonOrdered("ann", POOL, "here"))
    assert set(cordons(world).values()) == {NOTHING}


def test_an_order_for_what_is_not_there_changes_nothing() -> None:
    """There is no pool of the host's name, and no host of the pool's."""
    world = World(pool("small"))
    for target, name in ((POOL, "here"), (HOST, "small"), (POOL, "nowhere"), (HOST, "nowhere")):
        world.feed(ev.CordonOrdered("ann", target, name))
        assert set(cordons(world).values()) == {NOTHING}
        world.feed(ev.UncordonOrdered("ann", target, name))
    world.feed(ev.CordonOrdered("ann", HOST, "here"))
    world.feed(ev.UncordonOrdered("ann", POOL, "here"))
    assert cordons(world)["host here"] == ("ann", False)
