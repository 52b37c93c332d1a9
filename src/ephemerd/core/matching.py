"""Matching on counts: how much of each class of demand does each pool's supply cover?

Pure and small: it sees counts and edges, never a job or a runner. Least flexible first on both sides,
then augmented until nothing unmatched can reach anything unused, so that no runner is made while one
that could serve stands idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

Flow = dict[tuple[str, str], int]


def match(demand: Mapping[str, int], supply: Mapping[str, int], edges: Mapping[str, Sequence[str]]) -> Flow:
    """Return how many units of each (class, pool) are matched; a maximum of units altogether.

    demand  class -> units; supply: pool -> units; edges: class -> pools that satisfy it. The result
    depends on the values alone, not on the order of the mappings.
    """
    left = {pool: units for pool, units in sorted(supply.items()) if units > 0}
    open_ = {name: units for name, units in sorted(demand.items()) if units > 0}
    if not left or not open_:
        return {}
    reach = {name: [pool for pool in edges.get(name, ()) if pool in left] for name in open_}
    degree: dict[str, int] = dict.fromkeys(left, 0)
    for pools in reach.values():
        for pool in pools:
            degree[pool] += 1
    flow: Flow = {}
    for name in sorted(open_, key=lambda n: (len(reach[n]), n)):
        for pool in sorted(reach[name], key=lambda p: (degree[p], p)):
            units = min(open_[name], left[pool])
            if units > 0:
                flow[name, pool] = units
                open_[name] -= units
                left[pool] -= units
    _augment(open_, left, reach, flow)
    return flow


def _augment(open_: dict[str, int], left: dict[str, int], reach: dict[str, list[str]], flow: Flow) -> None:
    for name in sorted(open_):
        while open_[name] > 0:
            path = _path(name, left, reach, flow)
            if path is None:
                break
            _shift(path, open_, left, flow)


def _path(start: str, left: dict[str, int], reach: dict[str, list[str]], flow: Flow) -> list[str] | None:
    """Find class, pool, class, pool, … from an unmatched class to a pool with something left."""
    if not any(left.values()):
        return None
    came: dict[str, tuple[str, str]] = {}
    seen = {start}
    queue = deque([start])
    while queue:
        name = queue.popleft()
        for pool in reach[name]:
            if pool in came:
                continue
            came[pool] = (name, pool)
            if left[pool] > 0:
                return _unwind(start, pool, came, flow)
            for (other, via), units in sorted(flow.items()):
                if via == pool and units > 0 and other not in seen:
                    seen.add(other)
                    came[f"\x00{other}"] = (pool, other)
                    queue.append(other)
    return None


def _unwind(start: str, pool: str, came: dict[str, tuple[str, str]], flow: Flow) -> list[str]:
    path = [pool]
    name = came[pool][0]
    while name != start:
        path.append(name)
        previous = came[f"\x00{name}"][0]
        path.append(previous)
        name = came[previous][0]
    path.append(start)
    return path[::-1]


def _shift(path: list[str], open_: dict[str, int], left: dict[str, int], flow: Flow) -> None:
    names, pools = path[0::2], path[1::2]
    open_[names[0]] -= 1
    left[pools[-1]] -= 1
    for place, (name, pool) in enumerate(zip(names, pools, strict=True)):
        flow[name, pool] = flow.get((name, pool), 0) + 1
        if place + 1 < len(names):
            after = names[place + 1]
            flow[after, pool] -= 1
            if flow[after, pool] == 0:
                del flow[after, pool]
