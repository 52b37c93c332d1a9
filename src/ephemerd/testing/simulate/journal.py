"""Journal segments of a simulated daemon: kept while it runs, and replayed (DOMAIN.md I7).

A segment opens with the rows that it starts from; each entry is an event, its time and the hash of the
commands that it gave. Replayed by a fresh core, it must give the same hashes and the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ephemerd.core import codec
from ephemerd.core import events as ev
from ephemerd.core.machine import Core
from ephemerd.core.state import Rows, State
from ephemerd.core.step import Step
from ephemerd.domain.runner import Decision

SEGMENT = 250
"""So many events make a segment, so that replaying the last one at each crash stays cheap."""

FROM_ROWS = 0
"""The time (ms) at which a core stands up from rows, as in the shell: whatever is overdue is due at once."""

Entry = tuple[ev.Event, int, str]


def rows_of(state: State) -> dict[str, dict[Any, Any]]:
    """Return all rows of a state as they are; rows are immutable, so nothing is copied but the tables.

    Runners and jobs stand under their own keys here; what builds a core from rows looks at no key of theirs.
    """
    return {
        "runner": dict(state.runners),
        "job": dict(state.jobs),
        "scope": dict(state.scopes),
        "pool": dict(state.pools),
        "host": dict(state.hosts),
        "class": dict(state.classes),
        "counter": dict(state.counters),
        "policy": {"policy": state.policy},
        "access": {row.forge: row for row in state.setup.access},
        "meta": dict(state.meta),
    }


@dataclass(slots=True)
class Segment:
    """The rows at its beginning, the time at which a core stands up from them (ms), and what happened since."""

    rows: Rows
    at: int = FROM_ROWS
    entries: list[Entry] = field(default_factory=list)


@dataclass(slots=True)
class Replayed:
    """What a replay gave: the core at its end, the decisions, and how it differs from what was recorded."""

    core: Core
    decisions: list[Decision] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


def replay(segment: Segment, *, keep_steps: bool = False) -> Replayed:
    """Feed a segment to a fresh core and compare the commands of each event."""
    result = Replayed(Core(segment.rows, segment.at))
    for number, (event, now, commands) in enumerate(segment.entries, 1):
        step = result.core.handle(event, now)
        result.decisions.extend(step.decisions)
        if keep_steps:
            result.steps.append(step)
        if codec.command_hash(step.commands) != commands:
            name = type(event).__name__
            result.differences.append(f"event {number} ({name} at {now} ms) gives other commands")
            break
    return result


def differences(state: State, other: State) -> list[str]:
    """Say in which kinds of rows two states differ."""
    mine, theirs = rows_of(state), rows_of(other)
    found: list[str] = []
    for kind, rows in mine.items():
        if rows == theirs[kind]:
            continue
        names = dict.fromkeys([*rows, *theirs[kind]])
        odd = [str(name) for name in names if rows.get(name) != theirs[kind].get(name)]
        found.append(f"{kind} rows differ: {', '.join(odd[:3])}")
    return found


class Recorder:
    """Keeps the current segment of a running daemon, or everything since the start where asked."""

    def __init__(self, *, whole: bool = False) -> None:
        self.segment: Segment | None = None
        self.replays = 0
        self._whole = whole

    def begin(self, rows: Rows) -> None:
        """A process life begins with these rows."""
        self.segment = Segment({kind: dict(found) for kind, found in rows.items()})

    def add(self, event: ev.Event, now: int, commands: str, state: State) -> None:
        """Note an event that was committed; `state` is what it left."""
        segment = self.segment
        if segment is None:
            return
        segment.entries.append((event, now, commands))
        if self._whole or len(segment.entries) < SEGMENT:
            return
        first = state.agenda.next()
        if first is None or first >= now:  # rows do not tell what is overdue
            self.segment = Segment(rows_of(state), now - 1)  # what is due at this very moment still is

    def verify(self, state: State) -> list[str]:
        """Replay the current segment and compare hashes and rows with what is."""
        if self.segment is None:
            return []
        self.replays += 1
        result = replay(self.segment)
        return result.differences or differences(state, result.core.state)


def total_hash(hashes: Iterable[str]) -> str:
    """Return one hash over the hashes of several runs, in their order."""
    import hashlib

    digest = hashlib.blake2s()
    for text in hashes:
        digest.update(text.encode("ascii") + b"\n")
    return digest.hexdigest()
