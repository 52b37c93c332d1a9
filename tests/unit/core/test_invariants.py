"""The invariants of the domain that are the core's own: each is watched while histories are drawn.

I1 is the gate's (its tests), I2 and I4 are the simulator's (`tests/unit/simulate`).
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ephemerd.core import codec
from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.machine import Core
from ephemerd.core.matching import match, takers_of
from ephemerd.core.validate import slot_difference, validate
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.job import ForgeStatus, JobReport, Told
from ephemerd.domain.runner import FINAL, FenceAnswer, GatePhase, RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core.build import BUSY, IDLE, MINUTE, RETRY, SECOND, START, UNKNOWN, World, pool

STATES = [state.value for state in RunnerState if state is not RunnerState.PLANNED]
"""Nothing rests in `planned`: the turn that plans a runner sends its registration."""


@pytest.mark.parametrize("state", STATES)
def test_i3_a_slot_is_held_by_whoever_is_live(state):
    world = World()
    name = getattr(world, state)()
    assert world.state(name) == state
    assert world.core.state.slots_held("local") == (0 if RunnerState(state) in FINAL else 1)
    assert slot_difference(world.core.state) == 0
    assert world.sound()


@pytest.mark.parametrize("state", STATES)
def test_i7_rows_alone_give_an_equal_core(state):
    world = World()
    getattr(world, state)()
    rows = world.core.checkpoint()["rows"]
    plain = {
        kind: {name: codec.decode_row(kind, row) for name, row in found.items()}
        for kind, found in rows.items()
    }
    rebuilt = Core(plain, world.now)
    assert rebuilt.checkpoint()["rows"] == rows
    assert rebuilt.next_wake() == world.core.next_wake()
    assert validate(rebuilt.state) == []


def uncovered(state, made):
    """Units of demand that neither the supply, less the runners just made, nor a nameless bound one covers."""
    demand = {name: len(group.queued) for name, group in state.index.groups.items()}
    edges = {name: group.varieties for name, group in state.index.groups.items()}
    takers = takers_of(edges)

    def matched(supply):
        return match(lambda name: demand[name], supply, lambda name: edges[name], takers).items()

    consuming = {name: len(rows) for name, rows in state.index.consuming.items()}
    for (name, _), units in matched(consuming):
        demand[name] -= units
    supply = {name: sum(row not in made for row in rows) for name, rows in state.index.supply.items()}
    return sum(demand.values()) - sum(units for _, units in matched(supply))


class Walk:
    """A history drawn step by step; whatever the core asks is answered in a drawn way, or never."""

    def __init__(self) -> None:
        self.world = World(
            pool(surplus_grace=0), pool("big", labels=("big", "linux", "self-hosted")), slots=3
        )
        self.log: list[tuple[ev.Event, int]] = []

    def feed(self, event: ev.Event) -> None:
        world, state = self.world, self.world.core.state
        before = len(world.sent)
        asking = {row.id: row.gate for row in state.runners.values() if row.gate is not None}
        world.handle(event)
        self.check(world.sent[before:], asking)

    def check(self, sent, asking):
        state = self.world.core.state
        assert validate(state) == []
        made = [command.runner for command in sent if isinstance(command, cm.Register)]
        assert len(made) <= uncovered(state, made), "I5: a runner is made only while demand exceeds supply"
        names = [command.runner for command in sent if isinstance(command, cm.ProbeRunner)]
        assert len(names) == len(set(names)), "I8: one question a runner"
        for command in sent:
            if isinstance(command, cm.Destroy) and command.permit.warrant.value != "ended":
                run = asking.get(command.permit.runner)
                assert run is not None
                assert run.phase in (GatePhase.SETTLING, GatePhase.REPROBING), "I1: through the gate"
                assert command.permit.verdict.value == "idle"
                assert command.permit.fence == "accepted"

    def step(self, what: int, which: int) -> None:
        world = self.world
        jobs = [job.key for job in world.core.state.jobs.values() if job.conclusion is None]
        rows = [row for row in world.core.state.runners.values() if row.state not in FINAL]
        row = rows[which % len(rows)] if rows else None
        if what == 0:
            labels = ("linux", "self-hosted") if which % 2 else ("big", "linux")
            self.feed(_report(world.key(), ForgeStatus.QUEUED, labels))
        elif what == 1 and jobs:
            self.feed(_report(jobs[which % len(jobs)], ForgeStatus.COMPLETED, (), None, "cancelled"))
        elif what == 2 and jobs:
            self.feed(_report(jobs[which % len(jobs)], ForgeStatus.IN_PROGRESS, (), row.id if row else "x"))
        elif what >= 10:
            self.pass_gate(which, [row for row in rows if row.gate is not None])
        elif what == 3:
            world.now += (which + 1) * 7 * SECOND
            self.feed(ev.Woke())
        elif row is not None:
            self.runner(what, which, row)

    def pass_gate(self, which, rows):
        """Answer what the gate waits for, four times in five so that the runner goes on."""
        for row in rows[:1]:
            gate, well = row.gate, which % 5 != 0
            if gate.phase is GatePhase.FENCING:
                answer = FenceAnswer.ACCEPTED if well else FenceAnswer.REFUSED
                self.feed(ev.FenceAnswered(row.id, row.registration, gate.token, answer))
            elif gate.phase is GatePhase.SETTLING:
                self.world.now += 5 * SECOND
                self.feed(ev.Woke() if well else ev.SignSeen(row.id, Sign.OFFERED))
            else:
                self.feed(ev.Probed(row.id, gate.token, IDLE if well else BUSY))

    def runner(self, what, which, row):
        feed, gate = self.feed, row.gate
        if row.registration is None:
            feed(ev.Registered(row.id, 9000 + row.order))
        elif row.environment is None:
            feed(ev.EnvironmentStarted(row.id, f"env-{row.id}"))
        elif what == 4:
            feed(ev.SignSeen(row.id, list(Sign)[which % len(Sign)], f"line {which}"))
        elif what == 5 and gate is not None and gate.phase is GatePhase.FENCING:
            answer = list(FenceAnswer)[which % len(FenceAnswer)]
            feed(ev.FenceAnswered(row.id, row.registration, gate.token, answer))
        elif what == 5 and gate is not None and gate.phase is GatePhase.ASKING:
            feed(ev.RunnerLookedUp(row.id, gate.token, busy=bool(which % 2), connected=True))
        elif what in (5, 6) and gate is not None:
            feed(ev.Probed(row.id, gate.token, (IDLE, IDLE, BUSY, UNKNOWN)[which % 4]))
        elif what == 7 and row.state is RunnerState.RETIRING:
            feed(ev.EnvironmentDestroyed(row.id, row.environment))
        elif what == 8 and which % 3 == 0:
            feed(ev.EnvironmentExited(row.id, 0))
        elif what == 9:
            feed(ev.KillOrdered("ann", row.id, "drawn"))


def _report(key, status, labels, runner=None, conclusion=None):
    return ev.JobReported(
        JobReport(key, status, labels, runner_name=runner, conclusion=conclusion), Told.WEBHOOK
    )


STEPS = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 11)), min_size=20, max_size=50)


@settings(max_examples=60)
@given(STEPS)
def test_i1_i3_i5_i8_hold_after_every_event(steps):
    walk = Walk()
    for what, which in steps:
        walk.step(what, which)


def test_i6_a_registration_is_never_repeated_blindly():
    """The answer was lost: its name is looked up, and whatever exists under it is taken back."""
    world = World()
    name = world.registering()
    step = world.handle(ev.RegistrationFailed(name, RETRY))
    assert [type(command) for command in step.commands] == []
    world.wait(MINUTE)
    assert world.commands(cm.LookUpName, name) == [cm.LookUpName(name, world.row(name).scope)]
    world.handle(ev.NameLookedUp(name, 9001))
    names = [command.runner for command in world.commands(cm.Register)]
    assert len(names) == len(set(names))
    assert world.state(name) == "gone"
    assert [c.intent.registration for c in world.commands(cm.Deregister, name)] == [9001]


def test_i6_a_refused_registration_waits_for_its_backoff():
    world = World()
    name = world.registering()
    world.handle(ev.RegistrationFailed(name, Fault(Remedy.REFUSED, "422")))
    assert len(world.commands(cm.Register)) == 1
    world.wait(23 * SECOND)
    assert len(world.commands(cm.Register)) == 1
    world.wait(14 * SECOND)
    assert len(world.commands(cm.Register)) == 2


def test_i7_the_same_events_give_the_same_commands():
    events = []
    world = World()
    feed = world.core.handle

    def noting(event, now):
        step = feed(event, now)
        events.append((event, now, step))
        return step

    world.core.handle = noting  # type: ignore[method-assign]
    name = world.settled()
    world.probed(name)
    world.running()
    world.wait(11 * MINUTE)
    other = Core()
    other.handle(ev.Booted("abcd1234", "e1", world.setup, True), START)
    replayed = World()
    replayed.answers = False
    for event, now, step in events:
        assert replayed.core.handle(event, now) == step
    assert replayed.core.checkpoint() == world.core.checkpoint()


def test_i8_only_the_latest_question_of_a_runner_is_answered():
    world = World()
    name = world.at_gate()
    token = world.gate(name).token
    world.probed(name)
    assert world.handle(ev.Probed(name, token, BUSY)).decisions == ()
    assert world.gate(name).phase is GatePhase.FENCING
    step = world.handle(ev.FenceAnswered(name, 9001, token - 1, FenceAnswer.NO_ANSWER, RETRY))
    assert (step.decisions, world.gate(name).phase) == ((), GatePhase.FENCING)
