"""What one call of `handle` gives back: commands, changed rows, decisions, notes."""

from __future__ import annotations

from typing import Any

from ephemerd.core.commands import Command
from ephemerd.domain.runner import Decision
from ephemerd.domain.value import Value


class Note(Value, frozen=True):
    """A line for the log. `level` is info or warning; `fields` are sorted pairs."""

    level: str
    text: str
    fields: tuple[tuple[str, str], ...] = ()


class Step(Value, frozen=True):
    """The whole effect of one event.

    changed     (kind, id, row or None for a deletion), each row once, as it is at the end, in the order in which they
                were first touched; kinds are those of `codec.ROW_CLASSES`; rows are domain values or plain ones
    subjects    runner ids and job keys (as text) that the event and its effects concern, sorted
    """

    commands: tuple[Command, ...]
    changed: tuple[tuple[str, str, Any], ...]
    decisions: tuple[Decision, ...]
    notes: tuple[Note, ...]
    subjects: tuple[str, ...]
