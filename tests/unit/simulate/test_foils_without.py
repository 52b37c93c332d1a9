"""What each wrapper takes out, told and sent word for word; and that by itself a wrapper changes nothing."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec
import pytest

from ephemerd.core import codec
from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.step import Note, Step
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import JobReport, Told
from ephemerd.domain.permit import FenceIntent, Permit, Warrant
from ephemerd.domain.runner import FenceAnswer, GatePhase, Runner, RunnerState
from ephemerd.domain.verdict import Files, Listing, Sign
from ephemerd.testing import weather as weathers
from ephemerd.testing.simulate.foils import POLICIES, forged
from ephemerd.testing.simulate.foils.without import (
    NoFence,
    NoLog,
    NoProbe,
    NoRevalidate,
    NoSettle,
    Without,
    joined,
)
from ephemerd.testing.simulate.run import simulate
from ephemerd.testing.simulate.scheduler import Scheduler
from tests.unit.simulate.world import DONE, LABELS, RUNNING, World, key, seen

WHOLE = seen(
    workers=1,
    strangers=2,
    listing=Listing.PARTIAL,
    listener_alive=False,
    offered_at=5,
    announced_at=6,
    ended_at=7,
    files=Files.UNREADABLE,
)


class World2(World):
    """A world of the core: its runners listen, and one that is left over is surplus at once."""

    def __init__(self, wrapper: Without) -> None:
        super().__init__(wrapper, surplus_grace=0)

    def nominated(self) -> Runner:
        """Bring a runner to the gate's first probe."""
        name = self.dispatched(1)
        self.tell(ev.SignSeen(name, Sign.LISTENING))
        self.job(1, RUNNING, "somebody-elses")
        assert self.row(name).gate is not None
        return self.row(name)

    def probe(self, **found: Any) -> None:
        asked = self.only(cm.ProbeRunner)
        self.tell(ev.Probed(asked.runner, asked.token, seen(**found)))

    def phase(self, name: str) -> GatePhase | None:
        gate = self.row(name).gate
        return gate.phase if gate is not None else None


def told(wrapper: Scheduler, event: ev.Event) -> ev.Event | None:
    assert isinstance(wrapper, Without)
    return wrapper.told(event)


def sign(kind: Sign) -> ev.SignSeen:
    return ev.SignSeen(RunnerId("r"), kind)


class TestNothingTakenOut:
    @pytest.mark.parametrize("weather", ["bursty", "hostile"])
    def test_a_wrapper_by_itself_changes_no_command(self, weather, monkeypatch):
        monkeypatch.setitem(POLICIES, "wrapped", Without)
        plain, wrapped = (
            simulate(weathers.load(weather), 3, 150, policy=policy) for policy in ("gate", "wrapped")
        )
        assert wrapped.command_hash == plain.command_hash
        assert wrapped.counters == plain.counters


class TestNoProbe:
    def test_processes_are_erased_and_files_kept(self):
        event = ev.Probed(RunnerId("r"), 1, WHOLE)
        heard = told(NoProbe(), event)
        assert isinstance(heard, ev.Probed)
        assert heard.report == msgspec.structs.replace(
            WHOLE, workers=0, strangers=0, listing=Listing.COMPLETE, listener_alive=True
        )

    def test_a_probe_that_failed_still_failed(self):
        event = ev.Probed(RunnerId("r"), 1, None)
        assert told(NoProbe(), event) == event

    @pytest.mark.parametrize("kind", list(Sign))
    def test_of_the_signs_only_the_worker_goes(self, kind):
        heard = told(NoProbe(), sign(kind))
        assert heard == (None if kind is Sign.WORKER else sign(kind))


class TestNoLog:
    def test_offers_announcements_and_ends_are_erased_and_processes_kept(self):
        heard = told(NoLog(), ev.Probed(RunnerId("r"), 1, WHOLE))
        assert isinstance(heard, ev.Probed)
        assert heard.report == msgspec.structs.replace(
            WHOLE, offered_at=None, announced_at=None, ended_at=None
        )

    @pytest.mark.parametrize("kind", list(Sign))
    def test_of_the_signs_listening_and_the_worker_stay(self, kind):
        kept = kind in (Sign.LISTENING, Sign.WORKER)
        assert told(NoLog(), sign(kind)) == (sign(kind) if kept else None)


class TestNoFence:
    def test_the_forge_is_asked_when_the_environment_is_gone(self):
        world = World2(NoFence())
        name = world.nominated().id
        world.probe()
        assert world.all(cm.Deregister) == []
        assert world.phase(name) is GatePhase.SETTLING
        assert world.row(name).fence.accepted == world.now
        (look,) = [c for c in world.wait(6) if isinstance(c, cm.ProbeRunner)]
        world.tell(ev.Probed(name, look.token, seen()))
        assert world.only(cm.Destroy).permit.warrant is Warrant.IDLE
        world.destroyed()
        assert world.only(cm.Deregister).intent.runner == name

    def test_a_second_look_still_vetoes(self):
        world = World2(NoFence())
        name = world.nominated().id
        world.probe()
        (look,) = [c for c in world.wait(6) if isinstance(c, cm.ProbeRunner)]
        world.tell(ev.Probed(name, look.token, seen(workers=1)))
        assert world.all(cm.Destroy) == []
        world.tell(ev.EnvironmentExited(name, 0))
        assert name in [command.intent.runner for command in world.all(cm.Deregister)]

    def test_a_deregistration_outside_the_gate_is_asked_as_ever(self):
        world = World2(NoFence())
        name = world.dispatched(1)
        sent = [*world.tell(ev.EnvironmentExited(name, 1)), *world.wait(60)]
        asked = [command.intent.runner for command in sent if isinstance(command, cm.Deregister)]
        assert name in asked
        assert world.row(name).fence.accepted is None


class TestNoSettle:
    def test_the_permit_comes_with_the_fences_answer(self):
        world = World2(NoSettle())
        name = world.nominated().id
        world.probe()
        world.answer(FenceAnswer.ACCEPTED)
        sent = [*world.sent, *world.wait(0)]
        assert [command.permit.runner for command in sent if isinstance(command, cm.Destroy)] == [name]
        assert not [command for command in sent if isinstance(command, cm.ProbeRunner)]

    def test_a_sign_meanwhile_still_stops_it(self):
        world = World2(NoSettle())
        name = world.nominated().id
        world.probe()
        asked = world.only(cm.Deregister)
        world.tell(ev.SignSeen(name, Sign.OFFERED))
        world.tell(ev.FenceAnswered(name, asked.intent.registration, asked.token, FenceAnswer.ACCEPTED))
        assert not [c for c in (*world.sent, *world.wait(0)) if isinstance(c, cm.Destroy)]

    def test_the_policy_that_the_core_hears_settles_for_nothing_else_changes(self):
        world = World2(NoSettle())
        assert world.scheduler.state.policy == msgspec.structs.replace(world.setup.policy, settle=0)


class TestNoRevalidate:
    def gated(self) -> tuple[World2, Runner, cm.Deregister]:
        world = World2(NoRevalidate())
        row = world.nominated()
        world.probe()
        return world, row, world.only(cm.Deregister)

    def pass_on(self, world: World2, row: Runner, asked: cm.Deregister, **second: Any) -> None:
        registration = asked.intent.registration
        world.tell(ev.FenceAnswered(row.id, registration, asked.token, FenceAnswer.ACCEPTED))
        (look,) = [c for c in world.wait(6) if isinstance(c, cm.ProbeRunner)]
        world.tell(ev.Probed(row.id, look.token, seen(**second)))

    @pytest.mark.parametrize("kind", [kind for kind in Sign if kind is not Sign.LISTENING])
    def test_a_sign_after_the_first_look_does_not_stop_it(self, kind):
        world, row, asked = self.gated()
        world.tell(ev.SignSeen(row.id, kind))
        assert world.row(row.id).signs == row.signs
        self.pass_on(world, row, asked)
        assert world.only(cm.Destroy).permit.runner == row.id

    @pytest.mark.parametrize("status", [RUNNING, DONE])
    def test_nor_does_a_delivery_that_names_it_and_the_job_is_known_all_the_same(self, status):
        world, row, asked = self.gated()
        world.job(2, status, row.id)
        assert world.scheduler.state.jobs[key(2)].ours is None
        self.pass_on(world, row, asked)
        assert world.only(cm.Destroy).permit.runner == row.id

    def test_nor_a_look_up_that_names_it(self):
        world, row, _ = self.gated()
        report = JobReport(key(2), RUNNING, LABELS, runner_name=row.id)
        heard = told(world.scheduler, ev.JobLookedUp(key(2), 1, report))
        assert isinstance(heard, ev.JobLookedUp)
        assert heard.report == msgspec.structs.replace(report, runner_name=None)

    def test_the_second_look_still_does_and_then_it_is_told(self):
        world, row, asked = self.gated()
        world.job(2, RUNNING, row.id)
        self.pass_on(world, row, asked, workers=1)
        assert world.all(cm.Destroy) == []
        assert world.row(row.id).job == key(2)
        assert world.row(row.id).state is RunnerState.RUNNING

    def test_before_the_first_look_everything_is_heard(self):
        world = World2(NoRevalidate())
        row = world.nominated()
        world.tell(ev.SignSeen(row.id, Sign.OFFERED))
        assert world.row(row.id).signs == row.signs + 1

    def test_a_report_of_another_runner_passes_as_it_is(self):
        world, _, _ = self.gated()
        report = JobReport(key(2), RUNNING, LABELS, runner_name="somebody-elses")
        event = ev.JobReported(report, Told.WEBHOOK)
        assert told(world.scheduler, event) == event

    def test_a_crash_forgets_what_was_kept(self):
        world, row, _ = self.gated()
        world.tell(ev.SignSeen(row.id, Sign.OFFERED))
        world.scheduler.reload({}, world.now)
        world.tell(ev.Booted("store", "e2", world.setup))
        assert not world.knows(row.id)


def test_two_steps_are_joined_in_their_order():
    first = Step((), (("job", "a", 1), ("runner", "r", 1)), (), (Note("info", "one"),), ("b",))
    then = Step((), (("runner", "r", 2),), (), (Note("info", "two"),), ("a",))
    whole = joined(first, then, ())
    assert whole.changed == (("job", "a", 1), ("runner", "r", 2))
    assert [note.text for note in whole.notes] == ["one", "two"]
    assert whole.subjects == ("a", "b")


class TestForged:
    """Forged leave looks like the real one, and is taken by the models alone."""

    @pytest.mark.parametrize(
        ("mine", "real"), [(forged.ForgedPermit, Permit), (forged.ForgedIntent, FenceIntent)]
    )
    def test_it_has_the_attributes_and_is_no_kind_of_it(self, mine, real):
        assert [field.name for field in fields(mine)] == [
            field.name for field in msgspec.structs.fields(real)
        ]
        assert not issubclass(mine, real)

    def commands(self) -> tuple[cm.Destroy, cm.Deregister]:
        world = World(POLICIES["intent"]())
        world.dispatched(1)
        world.job(1, DONE)
        ended = world.only(cm.Destroy)
        world.destroyed()
        return ended, world.only(cm.Deregister)

    def test_no_store_or_journal_takes_it(self):
        for command in self.commands():
            with pytest.raises(ValueError, match="Forged"):
                codec.command_hash([command])

    def test_its_hash_says_what_it_would_do(self):
        ended, left = self.commands()
        assert forged.command_hash(ended) == forged.command_hash(self.commands()[0])
        assert forged.commands_hash((ended, left)) != forged.commands_hash((left, ended))

    def test_other_commands_are_hashed_as_ever(self):
        plain = (cm.ListEnvironments("host"), cm.ListEnvironments("other"))
        assert forged.commands_hash(plain) == codec.command_hash(plain)
        assert forged.command_hash(plain[0]) == codec.command_hash(plain[:1])
        assert forged.commands_hash(()) == codec.command_hash(())
