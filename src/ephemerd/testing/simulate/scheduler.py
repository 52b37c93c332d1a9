"""What the simulator drives: the real core, or a foil in its place, behind one small Protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ephemerd.core import events as ev
from ephemerd.core.machine import Core
from ephemerd.core.state import Rows, State
from ephemerd.core.step import Step


class Scheduler(Protocol):
    """A policy under test: an event and the time (ms) in, a step out; the simulator does the rest.

    Whatever a scheduler orders is done by the models as it stands: they alone accept a permit or a fence
    intent that no gate made.
    """

    @property
    def state(self) -> State:
        """The core's state as this scheduler keeps it: read for slots, counters and the end of a run."""
        ...

    def handle(self, event: ev.Event, now: int) -> Step:
        """Take in one event and return everything that follows from it."""
        ...

    def next_wake(self) -> int | None:
        """Return when it wants a `Woke` (ms), or None."""
        ...

    def reload(self, rows: Rows, now: int) -> None:
        """Forget everything and stand up from decoded rows (kind -> id -> row), as after a crash."""
        ...


Factory = Callable[[], Scheduler]


class Gate:
    """The real core, as it is shipped."""

    def __init__(self) -> None:
        self.core = Core()

    @property
    def state(self) -> State:
        return self.core.state

    def handle(self, event: ev.Event, now: int) -> Step:
        return self.core.handle(event, now)

    def next_wake(self) -> int | None:
        return self.core.next_wake()

    def reload(self, rows: Rows, now: int) -> None:
        self.core = Core(rows, now)
