"""Which version of the runner application was used when, which ones are still needed, and which one ends soon. Pure.

Uses of one scope are told newest first; times are ms of the shell clock. A runner was made from the version that was
in use when its start was ordered; near a change it may have been either, and nothing here rests on which.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from ephemerd.domain.pool import DAY, MINUTE
from ephemerd.domain.runner import Runner, RunnerState
from ephemerd.ports.applications import Ends, Use

GOOD_FOR = 30 * DAY
"""How long GitHub lets a version work after the next one came (github.md, section 15)."""
RETIRE_BEFORE = DAY
"""So long before that, idle runners of an older version are retired."""
UNSURE = 10 * MINUTE
"""Around a change of version a runner may have been made from either."""
KEPT = 2
"""Versions of a scope that are kept in any case: the one in use, and the one before."""


def used_at(uses: Sequence[Use], at: int) -> str | None:
    """Return the version that was in use at a time; None before everything that is known."""
    return next((use.key for use in uses if use.since <= at), None)


def start_of(row: Runner) -> int:
    """Return when a runner's start was ordered, as far as its row knows."""
    return row.started if row.started is not None else row.created


def lives(row: Runner) -> bool:
    """Say whether a runner's environment may still be there."""
    return row.state is not RunnerState.GONE or row.cleanup


def needed(uses: Sequence[Use], starts: Iterable[int]) -> set[str] | None:
    """Return which versions the runners that were started then, and the next ones, need; None: who knows, all."""
    found = {use.key for use in uses[:KEPT]}
    for at in starts:
        if not uses or at < uses[-1].since:
            return None
        for number, use in enumerate(uses):
            until = uses[number - 1].since if number else None
            if use.since - UNSURE <= at and (until is None or at <= until + UNSURE):
                found.add(use.key)
    return found


def needed_by(
    scopes: Mapping[str, Sequence[Use]], rows: Iterable[Runner], wanted: Container[str]
) -> set[str] | None:
    """Return which versions are needed by these runners, and by the next ones of each scope; None: all.

    scopes   the uses of each scope that ever had any
    wanted   the pools whose runners are made from such versions
    """
    starts: dict[str, list[int]] = {name: [] for name, uses in scopes.items() if uses}
    for row in rows:
        if row.leak is not None:
            return None  # found without a row: nobody knows when it was started
        if (name := str(row.scope)) in starts:
            starts[name].append(start_of(row))
        elif row.pool in wanted:
            return None
    found: set[str] = set()
    for name, at in starts.items():
        some = needed(scopes[name], at)
        if some is None:
            return None
        found |= some
    return found


def trimmed(uses: Sequence[Use], at_hand: Iterable[str]) -> list[Use]:
    """Return the uses up to the oldest one whose version is at hand, so that the list does not grow for ever."""
    there = set(at_hand)
    last = max((number for number, use in enumerate(uses) if use.key in there), default=-1)
    return list(uses[: max(last + 1, KEPT)])


def refused_from(uses: Sequence[Use], key: str, told: Mapping[str, Ends]) -> int | None:
    """Return from when the forge refuses a version: as it says itself, else a month after the next one came into
    use; None where there is no next one."""
    if (ends := told.get(key)) is not None and ends.running is not None:
        return ends.running
    for number, use in enumerate(uses):
        if use.key == key:
            return uses[number - 1].since + GOOD_FOR if number else None
    return None


def idle(row: Runner) -> bool:
    """Say whether a runner listens, and nothing says that it has or gets a job. The gate alone knows."""
    bound = row.hard is not None or row.soft_last is not None or row.gate is not None
    return row.state is RunnerState.LISTENING and not bound
