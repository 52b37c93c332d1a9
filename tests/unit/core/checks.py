"""What holds of every step, whatever the test is about; both worlds look at each of theirs."""

from __future__ import annotations

from ephemerd.core.step import Step

LEVELS = ("info", "warning")


def check(step: Step) -> None:
    """Every row, counter and sequence that changed has a name, and every line for the log a level."""
    unnamed = [(kind, name) for kind, name, _ in step.changed if not name or name.startswith("|")]
    assert unnamed == []
    assert [note for note in step.notes if note.level not in LEVELS] == []
