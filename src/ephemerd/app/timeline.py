"""Who was in which state when: one lane a runner, kept in memory as commits go by.

Lanes of runners that are known at the start of a life are told from the times in their rows; from then on
each committed change of a row is followed. Bounded: the oldest ended lanes go first. After a restart it reaches
back as far as rows of ended runners are kept (`gone_kept`, one hour); decisions are read back from the store.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

import msgspec

from ephemerd.app.daemon import Daemon
from ephemerd.app.writer import Handled
from ephemerd.core import codec
from ephemerd.core.events import Booted
from ephemerd.domain.pool import DAY
from ephemerd.domain.runner import FINAL, Decision, Fence, Runner, RunnerState

MOST_LANES = 2_000
MOST_MARKS = 200
"""Marks of one lane; a runner that is vetoed for days keeps its newest."""
READ_BACK = 1_000
"""Decisions that are read back after a start."""
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch in one state, ms of the shell clock; `end` is None while it lasts."""

    state: str
    start: int
    end: int | None


@dataclass(frozen=True, slots=True)
class Held:
    """The stretch in which a job was bound to the runner."""

    job: str
    start: int
    end: int | None


@dataclass(frozen=True, slots=True)
class Mark:
    """One moment: `kind` is `nominated`, `vetoed`, `reaped`, `escaped`, `ordered`, `fence` or `breach`; `text`
    says what in a sentence, `evidence` what it rests on, one line each."""

    kind: str
    at: int
    text: str
    evidence: tuple[str, ...] = ()


@dataclass(slots=True)
class Lane:
    """Everything drawn of one runner. `revision` is that of its last change; `told` is how `compact` told it last, as
    of which revision and from which base."""

    runner: str
    pool: str
    host: str
    order: int
    intent: str
    revision: int = 0
    spans: list[Span] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    told: tuple[int, int, msgspec.Raw] | None = field(default=None, repr=False, compare=False)

    @property
    def ended(self) -> int | None:
        """When its last state ended; None for a runner that is there."""
        return self.spans[-1].end if self.spans else None


@dataclass(frozen=True, slots=True)
class TimelineView:
    """The lanes that changed after the revision asked for, newest runner first, as of `now` (ms).

    `life` names the recorder: with another one everything is to be read anew.
    """

    life: str
    now: int
    revision: int
    lanes: tuple[Lane, ...]


def spans_of(row: Runner) -> list[Span]:
    """Tell a runner's states from the times in its row: exact for the present one, as good as the row for those
    before. The state gone is drawn as the end."""
    known: list[tuple[int | None, RunnerState]] = [
        (row.created, RunnerState.PLANNED),
        (row.started, RunnerState.STARTING),
        (row.listening, RunnerState.LISTENING),
        (row.soft if row.hard is None or (row.soft or 0) < row.hard else None, RunnerState.ASSIGNED),
        (row.hard, RunnerState.RUNNING),
        (row.over if row.hard is not None else None, RunnerState.FINISHING),
    ]
    begun = [(at, state) for at, state in known if at is not None and row.created <= at <= row.since]
    begun = [(at, state) for at, state in begun if state is not row.state]
    begun.sort(key=lambda one: one[0])
    begun.append((row.since, row.state))
    spans: list[Span] = []
    for (at, state), (until, _) in itertools.pairwise(begun):
        if until > at:
            spans.append(Span(state.value, at, until))
    if row.state is RunnerState.GONE:
        return spans or [Span(RunnerState.PLANNED.value, row.created, row.since)]
    return [*spans, Span(row.state.value, row.since, None)]


def fence_marks(before: Fence, after: Fence) -> Iterator[Mark]:
    """Yield what became of a fence between two rows."""
    for name, text in (
        ("sent", "fence asked: deregister, which the forge refuses while a job is held"),
        ("accepted", "fence accepted: the forge can give this runner no job any more"),
        ("refused", "fence refused: the forge says that it holds a job"),
        ("missing", "fence: the forge does not know the registration, which proves nothing"),
        ("missing_again", "fence: not known to the forge once more"),
    ):
        at = getattr(after, name)
        if at is not None and at != getattr(before, name):
            yield Mark("fence", at, text)


def decision_mark(made: Decision) -> Mark:
    """Draw a decision: rule, verdict and means, and each look that it rests on."""
    text = f"{made.outcome}: nominated as {made.rule}, {made.verdict} by {made.via}; {made.reason}"
    looks = tuple(f"{look.via.value} said {look.verdict.value}: {look.detail}" for look in made.evidence)
    return Mark(made.outcome, made.at, text, looks)


class Timeline:
    """Follows a daemon from `begin` on. `commits` counts the events that it saw committed."""

    def __init__(self, daemon: Daemon, most: int = MOST_LANES) -> None:
        self._daemon = daemon
        self._most = most
        self._lanes: dict[str, Lane] = {}
        self._fences: dict[str, Fence] = {}
        self._nominated: dict[str, int] = {}
        self._decided: dict[str, set[int]] = {}
        self._revision = 0
        self._read_back = False

    def begin(self) -> None:
        """Watch the commits; call it before the daemon runs."""
        self._daemon.watch(self.take)

    async def view(self, after: int = 0, life: str = "") -> TimelineView:
        """Return the lanes changed after that revision; all where the revision is of another life."""
        await self._read_decisions()
        mine = self._daemon.life.store + str(self._daemon.pulse.started)
        if life != mine:
            after = 0
        lanes = [lane for lane in self._lanes.values() if lane.revision > after]
        lanes.sort(key=attrgetter("order"), reverse=True)
        return TimelineView(mine, self._daemon.ports.clock.now(), self._revision, tuple(lanes))

    def take(self, handled: Handled) -> None:
        """Follow one commit."""
        if isinstance(handled.item.event, Booted):
            for row in self._daemon.core.state.runners.values():
                self._follow(row)
        for kind, _, row in handled.step.changed:
            if kind == "runner" and isinstance(row, Runner):
                self._follow(row)
        for made in handled.step.decisions:
            self._decide(made)

    def _follow(self, row: Runner) -> None:
        lane = self._lanes.get(row.id)
        fresh = lane is None
        if lane is None:
            lane = Lane(row.id, row.pool, row.host, row.order, str(row.intent or ""), spans=spans_of(row))
            self._lanes[row.id] = lane
            self._forget_oldest()
        changed = self._bind(lane, row) | self._judge(lane, row) | self._move(lane, row)
        if fresh or changed:
            self._touch(lane)
        if row.state in FINAL:
            self._fences.pop(row.id, None)
            self._nominated.pop(row.id, None)

    @staticmethod
    def _move(lane: Lane, row: Runner) -> bool:
        last = lane.spans[-1]
        if last.end is None and last.state == row.state.value and last.start == row.since:
            return False
        if row.state is RunnerState.GONE:
            if last.end is None:
                lane.spans[-1] = Span(last.state, last.start, row.since)
                return True
            return False
        if last.end is None and last.state == row.state.value:
            return False
        if last.end is None:
            lane.spans[-1] = Span(last.state, last.start, max(last.start, row.since))
        lane.spans.append(Span(row.state.value, row.since, None))
        return True

    @staticmethod
    def _bind(lane: Lane, row: Runner) -> bool:
        before = list(lane.held)
        if row.job is not None:
            start = row.hard if row.hard is not None else row.soft if row.soft is not None else row.since
            if not lane.held or lane.held[-1].job != str(row.job):
                lane.held.append(Held(str(row.job), start, None))
            end = row.over if row.over is not None else row.since if row.state is RunnerState.GONE else None
            last = lane.held[-1]
            lane.held[-1] = Held(last.job, min(last.start, start), end)
        return lane.held != before

    def _judge(self, lane: Lane, row: Runner) -> bool:
        marks = list(fence_marks(self._fences.get(row.id, Fence()), row.fence))
        self._fences[row.id] = row.fence
        if row.gate is not None and self._nominated.get(row.id) != row.gate.nomination:
            self._nominated[row.id] = row.gate.nomination
            marks.append(
                Mark("nominated", row.gate.began, f"nominated as {row.gate.rule.value}: {row.gate.reason}")
            )
        order = row.order_given
        if order is not None and not any(
            mark.kind == "ordered" and mark.at == order.at for mark in lane.marks
        ):
            even = ", even if busy" if order.even_if_busy else ""
            marks.append(Mark("ordered", order.at, f"{order.who} ordered its end{even}: {order.reason}"))
        sign = max((at for at in (row.hard_last, row.soft_last) if at is not None), default=None)
        accepted = row.fence.accepted
        if accepted is not None and sign is not None and sign > accepted:
            text = "a sign of a job after the forge had accepted the fence"
            if not any(mark.kind == "breach" for mark in lane.marks):
                marks.append(Mark("breach", sign, text))
        for mark in marks:
            _add(lane, mark)
        return bool(marks)

    def _decide(self, made: Decision) -> None:
        lane = self._lanes.get(made.runner)
        if lane is None or made.id in self._decided.setdefault(made.runner, set()):
            return
        self._decided[made.runner].add(made.id)
        _add(lane, decision_mark(made))
        self._touch(lane)

    def _touch(self, lane: Lane) -> None:
        self._revision += 1
        lane.revision = self._revision

    def _forget_oldest(self) -> None:
        """Let ended lanes go, the oldest first; a runner that is there is never forgotten."""
        if len(self._lanes) <= self._most:
            return
        spare = sorted(
            (lane for lane in self._lanes.values() if lane.ended is not None), key=lambda one: one.order
        )
        for lane in spare[: max(1, self._most // 10)]:
            del self._lanes[lane.runner]
            self._decided.pop(lane.runner, None)

    async def _read_decisions(self) -> None:
        if self._read_back:
            return
        plain = await self._daemon.ports.store.decisions(limit=READ_BACK, newest=True)
        self._read_back = True
        for made in reversed([codec.decode_decision(one) for one in plain]):
            self._decide(made)


def _add(lane: Lane, mark: Mark) -> None:
    """Put a mark at its place in time."""
    place = len(lane.marks)
    while place and lane.marks[place - 1].at > mark.at:
        place -= 1
    lane.marks.insert(place, mark)
    del lane.marks[:-MOST_MARKS]


STATES = tuple(state.value for state in RunnerState)
KINDS = ("nominated", "vetoed", "reaped", "escaped", "ordered", "fence", "breach")


def compact(view: TimelineView) -> dict[str, object]:
    """Return a view in few bytes: states and kinds by their number, times from `base` on, in ms.

    A lane is [runner, pool, host, order, intent, spans [state, start, end|-1]…, held [job, start, end|-1]…, marks
    [kind, at, text, evidence]…].
    """
    earliest = min((lane.spans[0].start for lane in view.lanes if lane.spans), default=view.now)
    base = earliest // DAY * DAY  # the same for long, so that a lane that has not changed is not told anew
    return {
        "life": view.life,
        "now": view.now,
        "revision": view.revision,
        "base": base,
        "states": STATES,
        "kinds": KINDS,
        "lanes": [_told(lane, base) for lane in view.lanes],
    }


def _told(lane: Lane, base: int) -> msgspec.Raw:
    """Return a lane as `compact` has it, in JSON; made once until the lane changes."""
    if lane.told is None or lane.told[:2] != (lane.revision, base):
        lane.told = (lane.revision, base, msgspec.Raw(_encode(_plain(lane, base))))
    return lane.told[2]


def _plain(lane: Lane, base: int) -> tuple[object, ...]:
    def end(at: int | None) -> int:
        return -1 if at is None else at - base

    return (
        *(lane.runner, lane.pool, lane.host, lane.order, lane.intent),
        [(STATES.index(one.state), one.start - base, end(one.end)) for one in lane.spans],
        [(one.job, one.start - base, end(one.end)) for one in lane.held],
        [(KINDS.index(one.kind), one.at - base, one.text, one.evidence) for one in lane.marks],
    )
