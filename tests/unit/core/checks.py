"""What holds of every step, whatever the test is about; both worlds look at each of theirs."""

from __future__ import annotations

from ephemerd.core.commands import Deregister, Destroy
from ephemerd.core.step import Step
from ephemerd.domain.runner import Runner, RunnerState

LEVELS = ("info", "warning")
OUTCOMES = ("vetoed", "reaped", "escaped")


def check(step: Step) -> None:
    """Whatever changed has a name, whatever is written for people says something, and every line has a level."""
    unnamed = [(kind, name) for kind, name, _ in step.changed if not name or name.startswith("|")]
    assert unnamed == []
    assert [note for note in step.notes if note.level not in LEVELS] == []
    for decision in step.decisions:
        assert decision.reason, decision
        assert decision.outcome in OUTCOMES, decision
        assert all(item.detail for item in decision.evidence), decision
    for command in step.commands:
        if isinstance(command, Destroy | Deregister):
            leave = command.permit if isinstance(command, Destroy) else command.intent
            assert all(item.detail for item in leave.evidence), leave
    for _, _, row in step.changed:
        if isinstance(row, Runner):
            assert row.ending or row.state is not RunnerState.GONE, row
            assert row.stuck or row.state not in (RunnerState.STUCK, RunnerState.ABANDONED), row
