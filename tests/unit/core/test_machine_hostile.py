"""A hostile world against the core: any event, in any order, with any answer, also about nobody.

Whatever is told, the state holds together, slots are never exceeded, nothing is destroyed without a permit
of this process life, and nothing that gave a hard sign during its gate run is fenced or destroyed. When the
world calms down at the end, everything of ours is gone: there is no state without a way out.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ephemerd.core import codec
from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.machine import Core
from ephemerd.core.step import Step
from ephemerd.core.validate import validate
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus, Told
from ephemerd.domain.permit import Warrant
from ephemerd.domain.pool import FenceKind
from ephemerd.domain.runner import FINAL, Runner, RunnerState
from ephemerd.domain.verdict import Sign, Verdict
from tests.unit.core.hostile import ANY, DELAYS, SETUP, SLOTS, Answers
from tests.unit.core.world import APP, HOUR, LIB, MINUTE, SECOND

DELIBERATE = (Warrant.ESCAPE, Warrant.OVERDUE, Warrant.FORCED, Warrant.ENDED)


def unmatched(core: Core) -> dict[str, int]:
    return {name: group.unmatched for name, group in core.state.index.groups.items()}


class Hostile(Answers, RuleBasedStateMachine):
    """Rules are events; `now` only grows; answers may be kept and given again."""

    def __init__(self) -> None:
        super().__init__()
        self.core = Core()
        self.now = 1_000_000
        self.open: list[cm.Command] = []
        self.stored: dict[str, dict[str, Any]] = {}
        self.epoch = 0
        self.names: list[RunnerId] = [RunnerId("eph-s-zz-1"), RunnerId("somebody-elses")]
        self.posted: dict[RunnerId, int] = {}

    # -- the core's side ------------------------------------------------------------------------------

    def feed(self, event: ev.Event) -> Step:
        step = self.core.handle(event, self.now)
        for kind, name, row in step.changed:
            rows = self.stored.setdefault(kind, {})
            if row is None:
                rows.pop(name, None)
            else:
                rows[name] = row
        for command in step.commands:
            self.check(command)
        self.open.extend(step.commands)
        del self.open[:-40]
        return step

    def check(self, command: cm.Command) -> None:
        state = self.core.state
        if isinstance(command, cm.Register):
            row = state.runners[command.runner]
            assert state.slots_held(row.host) + state.index.reserved.get(row.host, 0) <= SLOTS[row.host]
            assert len(state.index.live[row.pool]) <= state.pool(row.pool).max_concurrent
            self.posted[command.runner] = self.posted.get(command.runner, 0) + 1
            assert self.posted[command.runner] == 1, "a POST was repeated"
            self.names.append(command.runner)
        elif isinstance(command, cm.Deregister):
            intent = command.intent
            assert intent.made == self.now
            self.not_fresh(state.runners[intent.runner], intent.warrant)
            assert state.pool(state.runners[intent.runner].pool).fence is FenceKind.REFUSES
        elif isinstance(command, cm.Destroy):
            permit = command.permit
            row = state.runners[permit.runner]
            assert (permit.made, permit.expires) == (self.now, self.now + 10 * SECOND)
            assert (permit.epoch, permit.environment) == (state.epoch, row.environment or "")
            assert permit.proofs[0] <= permit.proofs[1] <= self.now
            assert permit.warrant is not Warrant.IDLE or permit.verdict is Verdict.IDLE
            self.not_fresh(row, permit.warrant)

    def not_fresh(self, row: Runner, warrant: Warrant) -> None:
        if warrant in DELIBERATE or row.hard_last is None:
            return
        assert row.gate is not None, f"{warrant} outside the gate"
        assert row.gate.generation == row.signs, f"fenced or destroyed with a sign of its gate run: {row}"

    def later(self, ms: int) -> None:
        until = self.now + ms
        while (wake := self.core.next_wake()) is not None and wake <= until:
            self.now = max(self.now, wake)
            self.feed(ev.Woke())
            again = self.core.next_wake()
            assert again is None or again > self.now, "woken twice for one moment"
        self.now = until

    # -- rules ----------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.boot(True)
        for number in range(1, 9):
            self.feed(ev.JobReported(self.said(number, ForgeStatus.QUEUED, None, None, None), Told.WEBHOOK))
        self.settle(8)

    def settle(self, times: int) -> None:
        """Answer the oldest questions as a calm world would; what is started begins to listen."""
        for _ in range(min(times, len(self.open))):
            command = self.open.pop(0)
            event = self.honest(command)
            if event is not None:
                self.feed(event)
            if isinstance(command, cm.StartRunner):
                self.feed(ev.SignSeen(command.runner, Sign.LISTENING))

    def boot(self, same: bool) -> None:
        self.epoch += 1
        self.feed(ev.Booted("s", f"e{self.epoch}", SETUP, same))

    @rule(delay=st.sampled_from(DELAYS))
    def time_passes(self, delay: int) -> None:
        self.later(delay)

    @rule(delay=st.sampled_from(DELAYS))
    def the_wakening_is_late(self, delay: int) -> None:
        """The loop is busy: other events are handled before it says that the time has come."""
        self.now += delay

    @rule(
        number=st.integers(1, 8),
        status=st.sampled_from(list(ForgeStatus)),
        told=st.sampled_from(list(Told)),
        who=st.none() | ANY,
        registration=st.none() | st.integers(1, 60),
        conclusion=st.sampled_from([None, "success", "cancelled"]),
    )
    def the_forge_tells(
        self,
        number: int,
        status: ForgeStatus,
        told: Told,
        who: int | None,
        registration: int | None,
        conclusion: str | None,
    ) -> None:
        self.feed(ev.JobReported(self.said(number, status, who, registration, conclusion), told))

    @rule(numbers=st.lists(st.integers(1, 8), min_size=1, max_size=5))
    def jobs_are_queued(self, numbers: list[int]) -> None:
        for number in numbers:
            self.feed(ev.JobReported(self.said(number, ForgeStatus.QUEUED, None, None, None), Told.WEBHOOK))

    @rule(who=ANY, sign=st.sampled_from(list(Sign)), detail=st.sampled_from(["", "build", "test"]))
    def a_sign(self, who: int, sign: Sign, detail: str) -> None:
        self.feed(ev.SignSeen(self.pick(who), sign, detail))

    @rule(who=ANY, code=st.sampled_from([None, 0, 137]), leftovers=st.integers(0, 2))
    def an_exit(self, who: int, code: int | None, leftovers: int) -> None:
        self.feed(ev.EnvironmentExited(self.pick(who), code, leftovers))

    @precondition(lambda self: self.open)
    @rule(which=ANY, data=st.data(), keep=st.booleans())
    def an_answer(self, which: int, data: st.DataObject, keep: bool) -> None:
        """Any question that is or was open is answered, rightly or wrongly, maybe not for the last time."""
        place = which % len(self.open)
        command = self.open[place] if keep else self.open.pop(place)
        self.feed(self.answer(command, data.draw))

    @precondition(lambda self: self.open)
    @rule(times=st.integers(1, 20), then=st.sampled_from((0, *DELAYS)))
    def honest_answers(self, times: int, then: int) -> None:
        self.settle(times)
        self.later(then)

    @rule(
        place=st.sampled_from([("all", ""), ("pool", "small"), ("host", "here"), ("pool", "nowhere")]),
        kind=st.sampled_from(["cordon", "uncordon", "drain", "sweep"]),
    )
    def an_order(self, place: tuple[str, str], kind: str) -> None:
        where, name = ev.Target(place[0]), place[1]
        orders: dict[str, ev.Event] = {
            "cordon": ev.CordonOrdered("me", where, name, "why"),
            "uncordon": ev.UncordonOrdered("me", where, name),
            "drain": ev.DrainOrdered("me", where, name),
            "sweep": ev.SweepOrdered(),
        }
        self.feed(orders[kind])

    @rule(who=ANY, force=st.booleans())
    def a_kill(self, who: int, force: bool) -> None:
        self.feed(ev.KillOrdered("me", self.pick(who), "because", force))

    @rule(scope=st.sampled_from([APP, LIB]), limited=st.none() | st.integers(1, 90 * SECOND))
    def a_scope_answers(self, scope: Any, limited: int | None) -> None:
        self.feed(ev.ScopeAnswered(scope, None if limited is None else self.now + limited))

    @rule(down=st.sampled_from([0, 5 * SECOND, 90 * SECOND, 2 * HOUR]), same=st.booleans())
    def a_crash(self, down: int, same: bool) -> None:
        self.open.clear()
        self.now += down
        self.core = Core(self.decoded(), self.now)
        self.boot(same)

    def decoded(self) -> dict[str, dict[str, Any]]:
        return {
            kind: {name: codec.decode_row(kind, codec.encode_row(kind, row)) for name, row in rows.items()}
            for kind, rows in self.stored.items()
        }

    # -- what holds -----------------------------------------------------------------------------------

    @invariant()
    def the_state_holds_together(self) -> None:
        found = validate(self.core.state)
        assert not found, found
        index = self.core.state.index
        assert (index.dirty_groups, index.dirty_varieties, index.advanced) == ({}, {}, {})
        for held in self.core.state.index.reserved.values():
            assert held > 0

    @invariant()
    def the_rows_make_an_equal_core(self) -> None:
        again = Core(self.decoded(), self.now)
        assert again.checkpoint() == self.core.checkpoint()
        assert unmatched(again) == unmatched(self.core)
        assert again.state.index.leftover == self.core.state.index.leftover
        mine, theirs = self.core.state.agenda.moments(), again.state.agenda.moments()
        for subject in sorted(mine.keys() | theirs.keys()):
            if mine.get(subject, self.now + 1) > self.now:
                found = (self.now, subject, mine.get(subject), theirs.get(subject))
                assert found[2] == found[3], (found, self.row(subject))

    def row(self, subject: tuple[str, str]) -> Any:
        return self.core.checkpoint()["rows"].get(subject[0], {}).get(subject[1])

    @invariant()
    def nobody_is_forgotten(self) -> None:
        moments = self.core.state.agenda.moments()
        for row in self.core.state.runners.values():
            waits_for_scope = row.unregister or row.consumes or row.leak is not None
            if row.state is RunnerState.GONE and not waits_for_scope:
                assert ("runner", row.id) in moments, f"never looked at again: {row}"
        for scope in self.core.state.scopes.values():
            if self.core.state.uses(scope.scope):
                assert ("scope", str(scope.scope)) in moments, f"never listed again: {scope}"

    # -- the calm at the end --------------------------------------------------------------------------

    def calm(self, ms: int) -> None:
        """Let time pass in a world in which every question is answered truly, at once."""
        until = self.now + ms
        while self.now < until:
            while self.open:
                event = self.honest(self.open.pop(0))
                if event is not None:
                    self.feed(event)
            wake = self.core.next_wake()
            self.later(max(0, min(wake or until, until) - self.now))

    def teardown(self) -> None:
        if not self.epoch:
            return
        self.open.clear()
        self.feed(ev.UncordonOrdered("me", ev.Target.ALL))
        for number in range(1, 9):
            self.feed(
                ev.JobReported(self.said(number, ForgeStatus.COMPLETED, None, None, "success"), Told.WEBHOOK)
            )
        for row in list(self.core.state.runners.values()):
            if row.hard is not None and row.state not in FINAL:
                self.feed(ev.EnvironmentExited(row.id, 0))
        self.calm(2 * HOUR)
        left = [row for row in self.core.state.runners.values() if row.state not in FINAL]
        if left:
            self.calm(7 * HOUR)
            left = [row for row in self.core.state.runners.values() if row.state not in FINAL]
        assert left == [], f"no way out, at {self.now}: {left}"
        assert self.core.state.index.held == {}
        assert self.core.state.index.reserved == {}
        kept = HOUR + 10 * MINUTE
        for row in self.core.state.runners.values():
            assert not row.unregister, f"never taken back: {row}"
            assert not row.cleanup, f"never cleaned up: {row}"
            assert self.now - row.since <= kept, f"never forgotten, at {self.now}: {row}"


pytestmark = pytest.mark.timeout(600)  # drawn histories, measured, on a machine that may be busy
TestHostile = Hostile.TestCase
TestHostile.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
