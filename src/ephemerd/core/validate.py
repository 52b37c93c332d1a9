"""Does the state still hold together? Every index equals a recount, every slot has its runner."""

from __future__ import annotations

from collections.abc import Iterator

from ephemerd.core.index import Index, Turn
from ephemerd.core.matching import takers_of
from ephemerd.core.state import State
from ephemerd.domain.job import ENDED_STATUSES, JobStatus
from ephemerd.domain.labels import SEPARATOR
from ephemerd.domain.runner import FINAL, HOLDS_SLOT, UNBOUND, Runner, RunnerState

COUNTED = (
    *("held", "reserved", "asked", "abandoned", "by_status", "by_state"),
    *("registrations", "unsure", "by_repository"),
)
"""What of the index is compared as a whole with a recount."""


def validate(state: State) -> list[str]:
    """Return every problem found, empty where there is none. O(everything): for tests and the end."""
    return [*_recount(state), *_lines(state), *_slots(state), *_rows(state), *_names(state)]


def validate_runner(row: Runner) -> list[str]:
    """Return the problems of one runner's row by itself; cheap, for use after each event."""
    return list(_row(row))


def _recount(state: State) -> Iterator[str]:
    fresh = Index()
    for row in state.runners.values():
        fresh.runner_changed(None, row)
    for job in state.jobs.values():
        fresh.job_changed(None, job, state.host_of)
    kept = state.index
    for name in ("supply", "consuming", "live"):
        want = {pool: sorted(members) for pool, members in getattr(fresh, name).items() if members}
        have = {pool: sorted(members) for pool, members in getattr(kept, name).items() if members}
        if want != have:
            yield f"index {name}: {have} kept, {want} counted"
    for name in COUNTED:
        if getattr(fresh, name) != getattr(kept, name):
            yield f"index {name}: {getattr(kept, name)} kept, {getattr(fresh, name)} counted"
    if sorted(fresh.running) != sorted(kept.running):
        yield f"index running: {len(kept.running)} kept, {len(fresh.running)} counted"
    if sorted(fresh.refused) != sorted(kept.refused):
        yield f"index refused: {len(kept.refused)} kept, {len(fresh.refused)} counted"
    if sorted(fresh.finished) != sorted(kept.finished):
        yield f"index finished: {len(kept.finished)} kept, {len(fresh.finished)} counted"
    queued = {name: sorted(group.queued) for name, group in kept.groups.items() if group.queued}
    if queued != {name: sorted(group.queued) for name, group in fresh.groups.items()}:
        yield "index groups: the queued jobs kept are not the queued jobs counted"
    intents = {key: sorted(members) for key, members in kept.intents.items()}
    if intents != {key: sorted(members) for key, members in fresh.intents.items()}:
        yield "index intents: what is kept is not what is counted"


def _lines(state: State) -> Iterator[str]:
    """What planning keeps in order: who serves whom, whose turn it is, what the last matching gave."""
    kept = state.index
    held = sorted(name for name, row in state.classes.items() if row.held)
    if sorted(kept.held_back) != held:
        yield f"index held_back: {sorted(kept.held_back)} kept, {held} counted"
    takers = takers_of({name: group.varieties for name, group in kept.groups.items()})
    if {name: line for name, line in kept.takers.items() if line} != takers:
        yield "index takers: the classes kept are not those that the varieties serve"
    turns: dict[str, list[Turn]] = {}
    given: dict[str, int] = {}
    for flow in kept.flow.values():
        for name, units in flow.items():
            given[name] = given.get(name, 0) + units
    for name, group in kept.groups.items():
        if group.matched != given.get(name, 0):
            yield f"class {name}: {group.matched} matched, {given.get(name, 0)} given"
        if group.turn is not None:
            for pool in group.pools:
                turns.setdefault(pool, []).append(group.turn)
            served = state.classes[name].served if name in state.classes else 0
            if group.turn != (served, group.queued.first(), name):
                yield f"class {name}: its turn {group.turn} is not ({served}, {group.queued.first()})"
    unmatched = sum(group.unmatched for group in kept.groups.values())
    if kept.unmatched != unmatched:
        yield f"index unmatched: {kept.unmatched} kept, {unmatched} counted"
    if {pool: line for pool, line in kept.turns.items() if line} != {
        pool: sorted(line) for pool, line in turns.items()
    }:
        yield "index turns: the lines kept are not the turns of the classes"


def slot_difference(state: State) -> int:
    """Return held slots less the runners that hold them, over all hosts; it must be 0."""
    holding = sum(1 for row in state.runners.values() if row.state in HOLDS_SLOT)
    return sum(state.index.held.values()) - holding


def _slots(state: State) -> Iterator[str]:
    if slot_difference(state) != 0:
        yield f"slots: {slot_difference(state)} more held than runners hold"
    for host, held in state.index.held.items():
        if held < 0:
            yield f"slots: {held} held on {host}"


def _rows(state: State) -> Iterator[str]:
    for row in state.runners.values():
        yield from _row(row)
    for job in state.jobs.values():
        if job.status in ENDED_STATUSES and job.ended is None:
            yield f"job {job.key}: {job.status.value} without a time"
        if job.asking and job.asked is None:
            yield f"job {job.key}: asks {job.asking} without a time"
        if job.asking == "confirm" and job.status is not JobStatus.QUEUED:
            yield f"job {job.key}: a slot is reserved for it although it is {job.status.value}"
        if any(SEPARATOR in label for label in job.labels):
            yield f"job {job.key}: a label could forge a class key"


def _row(row: Runner) -> Iterator[str]:
    if row.state in UNBOUND and row.hard is not None:
        yield f"runner {row.id}: {row.state.value} with a hard sign"
    if row.state is RunnerState.RUNNING and row.hard is None:
        yield f"runner {row.id}: running without a hard sign"
    if row.state in FINAL and row.gate is not None:
        yield f"runner {row.id}: {row.state.value} in the gate"
    if row.consumes and row.job is not None:
        yield f"runner {row.id}: its job has a name, and it stands for another"
    unnamed = row.registration is None and row.environment is None and not row.adopted
    if unnamed and row.state in (RunnerState.LISTENING, RunnerState.RUNNING):
        yield f"runner {row.id}: {row.state.value} without a registration"


def _names(state: State) -> Iterator[str]:
    seen: dict[int, str] = {}
    for row in state.runners.values():
        if row.order in seen:
            yield f"runners {row.id} and {seen[row.order]} have one order"
        seen[row.order] = row.id
