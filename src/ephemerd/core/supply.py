"""Supply against demand, kept true: what is matched, what is left over, and who might give room.

Level-triggered: only components whose counts changed are matched again, and they are matched by counts, never
by a scan of jobs. Nothing is planned here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ephemerd.core import holding
from ephemerd.core.demand import enter, forget, line_up, link, serves, unlink
from ephemerd.core.index import Group, Index, labels_of, pool_of
from ephemerd.core.matching import match
from ephemerd.core.state import State
from ephemerd.core.turn import Turn
from ephemerd.domain.labels import SEPARATOR
from ephemerd.domain.pool import Pool
from ephemerd.domain.runner import FINAL, Runner, S

RANK = {
    S.LISTENING: 0,
    S.STARTING: 1,
    S.REGISTERING: 2,
    S.PLANNED: 3,
}


def settle(t: Turn) -> None:
    """Match again what changed."""
    index = t.state.index
    matched = _match_changed(t) if index.dirty_groups or index.dirty_varieties else {}
    if index.advanced:
        advanced, index.advanced = index.advanced, {}
        for variety in sorted(advanced) if index.leftover else ():
            if variety in index.leftover and variety not in matched:
                _mark_spares(t, variety)


def _match_changed(t: Turn) -> dict[str, None]:
    """Match whatever hangs together with a class or variety that changed; return the varieties of all that."""
    index = t.state.index
    for name in sorted(index.dirty_varieties):
        if SEPARATOR in name:
            _notice(t, name)
    stale, index.dirty_varieties = index.dirty_varieties, {}
    groups, index.dirty_groups = sorted(index.dirty_groups), {}
    for name in groups:
        group = index.groups[name]
        if not group.varieties:
            link(t, group)
        if name not in t.state.classes:
            enter(t, group)
        for variety in group.varieties:
            stale[variety] = None
        if group.queued.jobs:
            line_up(t, group)
        else:
            forget(t, group)
    matched: dict[str, None] = {}
    for variety in sorted(stale):
        if variety not in matched:
            _match_component(t, variety, matched)
    if index.unmatched and any(index.supply.values()):
        _ask_for_room(t, matched)
    return matched


def _notice(t: Turn, variety: str) -> None:
    """A variety beside its pool's own comes with its first runner and goes with its last."""
    index = t.state.index
    there = bool(index.supply.get(variety) or index.consuming.get(variety))
    if there == (variety in index.odd):
        return
    if there:
        index.odd[variety] = None
    else:
        del index.odd[variety]
    pool, labels = t.state.pool(pool_of(variety)), labels_of(variety)
    for group in index.groups.values():
        if serves(pool, labels, group):
            unlink(index, group)
            index.dirty_groups[group.name] = None
    if not there:
        _note(index, variety, {})
        for kept in (index.takers, index.links, index.flow, index.supply, index.consuming, index.leftover):
            kept.pop(variety, None)
        del index.dirty_varieties[variety]


def derive(t: Turn) -> None:
    """Count again, from rows alone, what the last matching left over; nothing is done about it."""
    index = t.state.index
    seen: dict[str, None] = {}
    for group in index.groups.values():
        line_up(t, group)
    for variety in sorted({*t.state.pools, *index.odd}):
        if variety not in seen:
            _count_component(index, variety, seen)


def _component(index: Index, start: str) -> list[str]:
    """Return the varieties that hang together with one, by the classes that they share."""
    found = {start: None}
    line = [start]
    while line:
        for other in index.links.get(line.pop(), ()):
            if other not in found:
                found[other] = None
                line.append(other)
    return sorted(found)


def _count_component(index: Index, start: str, seen: dict[str, None]) -> list[str]:
    """Match what hangs together with a variety, and note how much supply of each is left over; return the varieties."""
    if len(index.links.get(start, ())) <= 1:
        seen[start] = None
        _count_alone(index, start)
        return [start]
    varieties = _component(index, start)
    seen.update(dict.fromkeys(varieties))
    groups = index.groups
    flow: dict[str, dict[str, int]] = {variety: {} for variety in varieties}
    consuming = {name: len(members) for name in varieties if (members := index.consuming.get(name))}
    consumed: dict[str, int] = {}
    if consuming:
        found = match(lambda name: len(groups[name].queued), consuming, _edges(index), index.takers)
        for (name, variety), units in found.items():
            flow[variety][name] = units
            consumed[name] = consumed.get(name, 0) + units
    supply = {name: len(members) for name in varieties if (members := index.supply.get(name))}
    used: dict[str, int] = {}
    if supply:
        found = match(
            lambda name: len(groups[name].queued) - consumed.get(name, 0),
            supply,
            _edges(index),
            index.takers,
        )
        for (name, variety), units in found.items():
            flow[variety][name] = flow[variety].get(name, 0) + units
            used[variety] = used.get(variety, 0) + units
    for variety in varieties:
        _note(index, variety, flow[variety])
        _leave_over(index, variety, supply.get(variety, 0) - used.get(variety, 0))
    return varieties


def _count_alone(index: Index, variety: str) -> None:
    """Match a variety that shares no class with another, as `match` would."""
    flow: dict[str, int] = {}
    consuming, supply = index.consuming.get(variety), index.supply.get(variety)
    if consuming:
        _give(index, variety, len(consuming), flow)
    left = _give(index, variety, len(supply), flow) if supply else 0
    _note(index, variety, flow)
    if left or index.leftover:
        _leave_over(index, variety, left)


def _give(index: Index, variety: str, left: int, flow: dict[str, int]) -> int:
    """Give so many units to the classes of a variety, one after the other; return what is left over."""
    for _, name in index.takers.get(variety, ()):
        given = flow.get(name, 0)
        more = min(len(index.groups[name].queued.jobs) - given, left)
        if more > 0:
            flow[name] = given + more
            left -= more
            if not left:
                break
    return left


def _leave_over(index: Index, variety: str, left: int) -> None:
    if left:
        index.leftover[variety] = left
    else:
        index.leftover.pop(variety, None)


def _edges(index: Index) -> Callable[[str], tuple[str, ...]]:
    return lambda name: index.groups[name].varieties


def _note(index: Index, variety: str, now: dict[str, int]) -> None:
    """Note what of each class's demand a variety is matched with, most often the same as before."""
    before = index.flow.get(variety, {})
    if before == now:
        return
    for name, units in before.items():
        if (group := index.groups.get(name)) is not None:
            group.matched -= units
            index.unmatched += units
    for name, units in now.items():
        index.groups[name].matched += units
        index.unmatched -= units
    index.flow[variety] = now


def _match_component(t: Turn, start: str, seen: dict[str, None]) -> None:
    index = t.state.index
    varieties = _count_component(index, start, seen)
    for name in sorted(index.held_back) if index.held_back else ():
        group = index.groups.get(name)
        if group is not None and not set(group.varieties).isdisjoint(varieties):
            holding.review(t, group)
    for variety in varieties:
        if index.supply.get(variety):
            _mark_spares(t, variety)


def _ask_for_room(t: Turn, varieties: Collection[str]) -> None:
    """Demand waits for a slot: have whoever of the supply may be displaced for it looked at now, not at the next
    sweep."""
    index = t.state.index
    for host in {t.state.pool(pool_of(name)).host: None for name in varieties}:
        if t.state.slots_free(host) > 0 and not _has_crowded(t.state, host):
            continue
        idle = {
            runner: variety
            for variety, members in index.supply.items()
            if members and t.state.host_of(pool_of(variety)) == host
            for runner in members
            if t.now - t.state.runners[runner].since >= t.policy.displaced_after
        }
        for group in _waiting_for(t, varieties, host) if idle else ():
            useless = [runner for runner, variety in idle.items() if variety not in group.varieties]
            t.touch(useless)
            for runner in useless:
                del idle[runner]
            if not idle:
                break


def is_crowded(state: State, pool: str) -> bool:
    """Say whether a pool has as many runners as it may have, and not all of them serve all that it could."""
    odd = any(pool_of(variety) == pool for variety in state.index.odd)
    return odd and len(state.index.live.get(pool, ())) >= state.pool(pool).max_concurrent


def _has_crowded(state: State, host: str) -> bool:
    return bool(state.index.odd) and any(
        row.pool.host == host and is_crowded(state, name) for name, row in state.pools.items()
    )


def _waiting_for(t: Turn, varieties: Collection[str], host: str) -> Iterable[Group]:
    """Yield the classes of these varieties that could use a slot of the host and have none."""
    for variety in varieties:
        for _, _, name in t.state.index.turns.get(variety, ()):
            group = t.state.index.groups[name]
            if t.state.host_of(variety) == host and group.unmatched > 0:
                yield group


def _mark_spares(t: Turn, variety: str) -> None:
    """Note on each runner of a variety's supply whether the matching leaves it over; the most advanced ones
    are matched first."""
    members = [t.state.runners[name] for name in t.state.index.supply[variety]]
    left = t.state.index.leftover.get(variety, 0)
    if left:
        members.sort(key=_advancement)
    used = len(members) - left
    for row in members[:used]:
        if row.surplus_since is not None:
            t.change_runner(row, surplus_since=None)
    for row in members[used:]:
        if row.surplus_since is None:
            t.change_runner(row, surplus_since=t.now)


def _advancement(row: Runner) -> tuple[int, int, int]:
    return (RANK[row.state], row.listening if row.listening is not None else row.since, row.order)


def relabel(t: Turn, pool: Pool, before: tuple[str, ...]) -> None:
    """A pool has other labels than `before`: its runners keep those that they were registered with."""
    for row in [row for row in t.state.runners.values() if row.pool == pool.name]:
        if row.state not in FINAL or row.consumes:
            labels = row.labels or before
            t.change_runner(row, labels=() if labels == pool.labels else labels)
