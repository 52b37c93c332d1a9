"""What the three earlier designs do differently: whom they destroy, on what ground, and what stops them."""

from __future__ import annotations

from typing import Any

import pytest

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import JobReport
from ephemerd.domain.permit import Warrant
from ephemerd.domain.runner import RunnerState
from ephemerd.domain.verdict import Files, Listing, ProbeReport, Verdict
from ephemerd.testing.simulate.foils.intent import Intent
from ephemerd.testing.simulate.foils.sweep import CANCELLED, RULE_1, RULE_2, Sweep
from ephemerd.testing.simulate.foils.veto import Veto, flag, worker_seen
from tests.unit.simulate.world import DONE, LABELS, QUEUED, RUNNING, World, key, seen

SILENT = Fault(Remedy.RETRY, "no answer")


def destroyed(world: World) -> list[tuple[str, str]]:
    """Runner and rule of every destruction that the last event led to."""
    return [(command.permit.runner, command.permit.rule) for command in world.all(cm.Destroy)]


def discharged(world: World) -> str:
    """A runner whose intent job was taken by somebody else's: by rule 2 it could go."""
    name = world.dispatched(1)
    world.job(1, RUNNING, "somebody-elses")
    return name


class TestIntent:
    def test_the_end_of_a_job_destroys_the_runner_dispatched_for_it_whoever_ran_it(self):
        world = World(Intent())
        mine, other = world.dispatched(1), world.dispatched(2)
        world.job(1, RUNNING, other)
        world.job(2, RUNNING, mine)
        world.job(1, DONE, other)
        assert [runner for runner, _ in destroyed(world)] == [mine]

    def test_the_end_of_a_job_without_a_runner_destroys_nothing(self):
        world = World(Intent())
        world.dispatched(1)
        world.job(7, DONE, "somebody-elses")
        assert destroyed(world) == []

    def test_no_sweep_looks_for_orphans(self):
        world = World(Intent())
        discharged(world)
        world.tell(ev.SweepOrdered())
        assert destroyed(world) == []
        assert not [command for command in world.wait(3600) if isinstance(command, cm.Destroy)]

    def test_a_dispatch_that_waited_is_made_although_its_job_is_over(self):
        world = World(Intent(), slots=1)
        first = world.dispatched(1)
        world.job(2, QUEUED)
        world.job(2, DONE, "somebody-elses")
        world.tell(ev.EnvironmentExited(first, 0))
        assert world.row(world.only(cm.Register).runner).intent == key(2)


class TestSweep:
    def test_the_end_of_a_job_destroys_the_runner_that_it_names(self):
        world = World(Sweep())
        mine, other = world.dispatched(1), world.dispatched(2)
        world.job(2, RUNNING, mine)
        world.job(1, RUNNING, other)
        world.job(1, DONE, other)
        assert [runner for runner, _ in destroyed(world)] == [other]

    def test_a_foreign_name_destroys_nothing(self):
        world = World(Sweep())
        world.dispatched(1)
        world.job(2, QUEUED)
        world.job(7, DONE, "somebody-elses")
        assert destroyed(world) == []

    def test_cancelled_before_it_was_assigned_destroys_the_runner_of_the_intent(self):
        world = World(Sweep())
        name = world.dispatched(1)
        world.job(1, DONE)
        assert destroyed(world) == [(name, CANCELLED)]

    def test_but_not_one_that_is_bound_to_another_job(self):
        world = World(Sweep())
        name = world.dispatched(1)
        world.job(2, RUNNING, name)
        world.job(1, DONE)
        assert destroyed(world) == []

    def test_rule_1_destroys_what_is_unbound_for_the_grace(self):
        world = World(Sweep())
        name = world.dispatched(1)
        assert not [c for c in world.wait(599) if isinstance(c, cm.Destroy)]
        (ended,) = [c for c in world.wait(60) if isinstance(c, cm.Destroy)]
        assert (ended.permit.runner, ended.permit.rule) == (name, RULE_1)

    def test_rule_1_spares_what_is_bound(self):
        world = World(Sweep())
        world.job(1, RUNNING, world.dispatched(1))
        assert not [c for c in world.wait(3600) if isinstance(c, cm.Destroy)]

    @pytest.mark.parametrize("by", ["minute", "completed", "order"])
    def test_rule_2_destroys_at_once_what_is_discharged_in_a_class_without_demand(self, by):
        world = World(Sweep())
        name = discharged(world)
        assert destroyed(world) == []
        if by == "minute":
            (ended,) = [c for c in world.wait(60) if isinstance(c, cm.Destroy)]
            assert (ended.permit.runner, ended.permit.rule) == (name, RULE_2)
            return
        if by == "completed":
            world.job(9, DONE, "somebody-elses")
        else:
            world.tell(ev.SweepOrdered())
        assert destroyed(world) == [(name, RULE_2)]

    def test_rule_2_spares_it_while_a_queued_job_of_the_class_has_no_runner(self):
        world = World(Sweep(), slots=1)
        discharged(world)
        world.job(2, QUEUED)
        world.tell(ev.SweepOrdered())
        assert destroyed(world) == []

    def test_a_job_whose_runner_runs_another_one_is_no_demand(self):
        """The counting of its time: a runner was dispatched for it, and that is that."""
        world = World(Sweep())
        mine, other = world.dispatched(1), world.dispatched(2)
        world.job(1, RUNNING, other)
        world.tell(ev.SweepOrdered())
        assert destroyed(world) == [(mine, RULE_2)]

    def test_the_burst_of_2026_08_12(self):
        """Three jobs, three runners, assignments permuted: the first start makes a busy sibling surplus."""
        world = World(Sweep())
        a, b, c = (world.dispatched(number) for number in (1, 2, 3))
        world.job(1, RUNNING, c)
        world.job(3, RUNNING, b)
        world.job(3, DONE, b)
        assert destroyed(world) == [(b, "completed: the job that it ran"), (a, RULE_2)]

    def test_a_dispatch_that_waited_is_given_up_where_its_job_was_seen_running(self):
        world = World(Sweep(), slots=1)
        first = world.dispatched(1)
        world.job(2, QUEUED)
        world.job(2, RUNNING, "somebody-elses")
        world.tell(ev.EnvironmentExited(first, 0))
        assert key(2) not in [row.intent for row in world.scheduler.state.runners.values()]

    def test_what_has_no_environment_yet_is_not_in_the_books(self):
        world = World(Sweep())
        world.job(1, QUEUED)
        world.job(1, DONE)
        world.tell(ev.SweepOrdered())
        assert destroyed(world) == []


class TestVeto:
    def nominated(self, **options: Any) -> tuple[World, str]:
        world = World(Veto(), **options)
        name = discharged(world)
        world.tell(ev.SweepOrdered())
        return world, name

    def probed(self, world: World, report: ProbeReport | None) -> None:
        asked = world.only(cm.ProbeRunner)
        fault = SILENT if report is None else None
        world.tell(ev.Probed(asked.runner, asked.token, report, fault))

    def looked_up(self, world: World, **answer: Any) -> None:
        asked = world.only(cm.LookUpRunner)
        world.tell(ev.RunnerLookedUp(asked.runner, asked.token, **answer))

    def counted(self, world: World) -> dict[str, int]:
        prefix = "orphan_reap_decisions_total|"
        counters = world.scheduler.state.counters
        return {name.removeprefix(prefix): n for name, n in counters.items() if name.startswith(prefix) and n}

    def test_a_nomination_destroys_nothing_and_looks(self):
        world, name = self.nominated()
        assert destroyed(world) == []
        assert world.only(cm.ProbeRunner).runner == name

    def test_idle_is_reaped_and_deregistered_last(self):
        world, name = self.nominated()
        self.probed(world, seen())
        assert destroyed(world) == [(name, RULE_2)]
        assert world.all(cm.Deregister) == []
        world.destroyed()
        assert world.only(cm.Deregister).intent.runner == name
        assert self.counted(world) == {"outcome=reaped|verdict=idle": 1}

    def test_a_worker_vetoes(self):
        world, _ = self.nominated()
        self.probed(world, seen(workers=1))
        assert destroyed(world) == []
        assert self.counted(world) == {"outcome=vetoed|verdict=busy": 1}

    def test_an_announced_job_without_a_worker_does_not(self):
        """Its one honest limit: between the assignment and the worker's fork it says idle."""
        world, name = self.nominated()
        self.probed(world, seen(offered_at=1, announced_at=2))
        assert destroyed(world) == [(name, RULE_2)]

    def test_a_vetoed_runner_is_looked_at_again_at_the_next_sweep(self):
        world, name = self.nominated()
        self.probed(world, seen(workers=1))
        world.tell(ev.SweepOrdered())
        assert world.only(cm.ProbeRunner).runner == name

    def test_one_look_at_a_time(self):
        world, _ = self.nominated()
        world.tell(ev.SweepOrdered())
        assert world.all(cm.ProbeRunner) == []
        world.now += 60_000
        world.tell(ev.SweepOrdered())
        assert len(world.all(cm.ProbeRunner)) == 1

    def test_an_answer_to_an_older_look_is_no_answer(self):
        world, name = self.nominated()
        old = world.only(cm.ProbeRunner)
        world.now += 60_000
        world.tell(ev.SweepOrdered())
        world.tell(ev.Probed(old.runner, old.token, seen()))
        assert destroyed(world) == []
        assert world.row(name).state is RunnerState.LISTENING

    def test_a_binding_during_the_look_saves_it(self):
        world, name = self.nominated()
        asked = world.only(cm.ProbeRunner)
        world.job(2, RUNNING, name)
        world.tell(ev.Probed(asked.runner, asked.token, seen()))
        assert destroyed(world) == []
        assert self.counted(world) == {}

    def test_unknown_asks_the_forge(self):
        world, name = self.nominated()
        self.probed(world, None)
        assert world.only(cm.LookUpRunner).runner == name
        self.looked_up(world, busy=True)
        assert self.counted(world) == {"outcome=vetoed|verdict=busy": 1}

    @pytest.mark.parametrize("answer", [{"busy": False}, {"missing": True}])
    def test_not_busy_and_not_found_clear_it(self, answer):
        world, name = self.nominated()
        self.probed(world, seen(listing=Listing.EMPTY))
        self.looked_up(world, **answer)
        assert destroyed(world) == [(name, RULE_2)]

    def test_unknown_is_held_until_grace_and_then_escapes(self):
        world, name = self.nominated(probes=False)
        self.looked_up(world, fault=SILENT)
        assert destroyed(world) == []
        assert self.counted(world) == {"outcome=vetoed|verdict=unknown": 1}
        world.now += 600_000
        world.tell(ev.SweepOrdered())
        self.looked_up(world, fault=SILENT)
        (ended,) = world.all(cm.Destroy)
        assert (ended.permit.runner, ended.permit.warrant) == (name, Warrant.ESCAPE)

    def test_busy_escapes_past_the_hard_bound_of_job_timeout_and_half_an_hour(self):
        world, name = self.nominated(job_timeout=600_000)
        world.scheduler.state.agenda.set("runner", name, None)  # its timeout would have torn it down before
        self.probed(world, seen(workers=1))
        world.now += 2_400_000
        world.tell(ev.SweepOrdered())
        self.probed(world, seen(workers=1))
        (ended,) = world.all(cm.Destroy)
        assert ended.permit.warrant is Warrant.ESCAPE

    def test_a_cancelled_intent_nominates_too(self):
        world = World(Veto())
        name = world.dispatched(1)
        world.job(1, DONE)
        assert destroyed(world) == []
        self.probed(world, seen())
        assert destroyed(world) == [(name, CANCELLED)]

    def test_every_decision_is_told(self):
        world, name = self.nominated()
        asked = world.only(cm.ProbeRunner)
        step = world.scheduler.handle(ev.Probed(asked.runner, asked.token, seen(workers=1)), world.now)
        (decision,) = step.decisions
        assert (decision.runner, decision.rule, decision.outcome, decision.verdict, decision.via) == (
            name,
            RULE_2,
            "vetoed",
            "busy",
            "probe",
        )


class TestConfirmation:
    """#210: a dispatch that waited for its slot asks whether its job still awaits a runner."""

    def waited(self) -> tuple[World, cm.LookUpJob]:
        world = World(Veto(), slots=1)
        first = world.dispatched(1)
        world.job(2, QUEUED)
        world.now += 1_000
        world.job(1, RUNNING, first)
        world.tell(ev.EnvironmentExited(first, 0))
        assert world.all(cm.Register) == []
        return world, world.only(cm.LookUpJob)

    def test_a_dispatch_with_its_slot_at_once_does_not_ask(self):
        world = World(Veto())
        world.job(1, QUEUED)
        assert world.all(cm.LookUpJob) == []
        assert len(world.all(cm.Register)) == 1

    @pytest.mark.parametrize("status", [RUNNING, DONE])
    def test_settled_gives_the_slot_back(self, status):
        world, asked = self.waited()
        report = JobReport(key(2), status, LABELS, runner_name="somebody-elses")
        world.tell(ev.JobLookedUp(asked.job, asked.token, report))
        assert world.all(cm.Register) == []
        assert world.scheduler.state.slots_free("host") == 1

    @pytest.mark.parametrize("answer", [{"fault": SILENT}, {"missing": True}])
    def test_not_known_provisions_all_the_same(self, answer):
        world, asked = self.waited()
        world.tell(ev.JobLookedUp(asked.job, asked.token, **answer))
        assert world.row(world.only(cm.Register).runner).intent == key(2)

    def test_still_waiting_provisions(self):
        world, asked = self.waited()
        world.tell(ev.JobLookedUp(asked.job, asked.token, JobReport(key(2), QUEUED, LABELS)))
        assert len(world.all(cm.Register)) == 1
        world.tell(ev.JobLookedUp(asked.job, asked.token, JobReport(key(2), QUEUED, LABELS)))
        assert world.sent == ()


@pytest.mark.parametrize(
    ("report", "verdict"),
    [
        (None, Verdict.UNKNOWN),
        (seen(listing=Listing.FAILED), Verdict.UNKNOWN),
        (seen(listing=Listing.EMPTY), Verdict.UNKNOWN),
        (seen(), Verdict.IDLE),
        (seen(listing=Listing.PARTIAL), Verdict.IDLE),
        (seen(strangers=3, files=Files.UNREADABLE), Verdict.IDLE),
        (seen(workers=1), Verdict.BUSY),
        (seen(workers=2, listing=Listing.PARTIAL), Verdict.BUSY),
    ],
)
def test_the_look_of_its_time_asks_for_a_worker_and_nothing_else(report, verdict):
    assert worker_seen(report) is verdict


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ({"busy": True}, Verdict.BUSY),
        ({"busy": False}, Verdict.IDLE),
        ({"missing": True}, Verdict.IDLE),
        ({"fault": SILENT}, Verdict.UNKNOWN),
    ],
)
def test_the_flag_as_it_was_read(answer, verdict):
    assert flag(ev.RunnerLookedUp(RunnerId("r"), 1, **answer)) is verdict
