"""Matching on counts: how much of each class of demand does the supply of each variety of runner cover?

Pure and small: it sees counts and edges, never a job or a runner. Least flexible first on both sides,
then augmented until nothing unmatched can reach anything unused, so that no runner is made while one
that could serve stands idle. The work grows with the supply, not with the classes that wait for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

Flow = dict[tuple[str, str], int]
Taker = tuple[int, str]
"""A class as a variety knows it: how many varieties could serve it, and its name."""

Demand = Callable[[str], int]
Edges = Callable[[str], Sequence[str]]
Takers = Mapping[str, Sequence[Taker]]


def takers_of(edges: Mapping[str, Sequence[str]]) -> dict[str, list[Taker]]:
    """Return variety -> the classes that it can serve, the least flexible first; edges: class -> varieties."""
    found: dict[str, list[Taker]] = {}
    for name, varieties in edges.items():
        for variety in varieties:
            found.setdefault(variety, []).append((len(varieties), name))
    for line in found.values():
        line.sort()
    return found


def match(demand: Demand, supply: Mapping[str, int], edges: Edges, takers: Takers) -> Flow:
    """Return how many units of each (class, variety) are matched; a maximum of units altogether.

    demand  gives the units of a class; supply: variety -> units; edges gives the varieties that serve a class, the
    preferred first of those that serve as few; takers: variety -> the classes that it serves, sorted, as
    `takers_of` makes them. The result depends on the values alone, not on the order of the mappings.
    """
    left = {variety: units for variety, units in sorted(supply.items()) if units > 0 and takers.get(variety)}
    if not left:
        return {}
    flow: Flow = {}
    spare = (
        _serve(demand, left, takers, flow) if len(left) == 1 else _greedy(demand, left, edges, takers, flow)
    )
    while spare and _augment(demand, spare, edges, takers, flow):
        pass
    return flow


def _serve(demand: Demand, left: dict[str, int], takers: Takers, flow: Flow) -> dict[str, int]:
    """Serve class after class from the one variety that has supply; return what is left over."""
    ((variety, units),) = left.items()
    for _, name in takers[variety]:
        given = min(demand(name), units)
        if given > 0:
            flow[name, variety] = given
            units -= given
            if not units:
                return {}
    return {variety: units}


def _greedy(demand: Demand, left: dict[str, int], edges: Edges, takers: Takers, flow: Flow) -> dict[str, int]:
    """Serve the least flexible class first, from the variety that serves the fewest; return what is left over."""
    spare: dict[str, int] = {}
    place = dict.fromkeys(left, 0)
    done: set[str] = set()
    while left:
        ahead: tuple[Taker, str] | None = None
        for variety in list(left):
            line, at = takers[variety], place[variety]
            if at == len(line):
                spare[variety] = left.pop(variety)
            elif ahead is None or line[at] < ahead[0]:
                ahead = (line[at], variety)
        if ahead is None:
            break
        (_, name), variety = ahead
        place[variety] += 1
        if name in done:
            continue
        done.add(name)
        open_ = demand(name)
        able = [other for other in edges(name) if other in left]
        for other in sorted(able, key=lambda other: len(takers[other])):
            units = min(open_, left[other])
            if units <= 0:
                break
            flow[name, other] = units
            open_ -= units
            left[other] -= units
            if not left[other]:
                del left[other]
    return spare


def _augment(demand: Demand, spare: dict[str, int], edges: Edges, takers: Takers, flow: Flow) -> bool:
    """Move one unit along a chain from a variety with something left over, so that an open class is served;
    return whether there was such a chain."""
    onward: dict[str, tuple[str, str]] = {}
    """Variety -> the class that would leave it, and for which other one."""
    seen = set(spare)
    line = deque(sorted(spare))
    while line:
        to = line.popleft()
        movers = sorted((name, via) for name, via in flow if via not in seen and to in edges(name))
        for name, via in movers:
            if via in seen:
                continue
            seen.add(via)
            onward[via] = (name, to)
            served = _first_open(demand, via, edges, takers, flow)
            if served is not None:
                _shift(served, via, onward, spare, flow)
                return True
            line.append(via)
    return False


def _first_open(demand: Demand, variety: str, edges: Edges, takers: Takers, flow: Flow) -> str | None:
    for _, name in takers[variety]:
        if demand(name) > sum(flow.get((name, other), 0) for other in edges(name)):
            return name
    return None


def _shift(
    served: str, start: str, onward: dict[str, tuple[str, str]], spare: dict[str, int], flow: Flow
) -> None:
    variety, name = start, served
    while True:
        flow[name, variety] = flow.get((name, variety), 0) + 1
        if variety not in onward:
            break
        mover, to = onward[variety]
        flow[mover, variety] -= 1
        if not flow[mover, variety]:
            del flow[mover, variety]
        name, variety = mover, to
    spare[variety] -= 1
    if not spare[variety]:
        del spare[variety]
