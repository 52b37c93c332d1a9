"""Demand by class: which pools and varieties could serve one, its place in line, what is demand no more.

A class that appears is linked with the varieties that serve it and takes its place in the line of each of its
pools; one without a job is forgotten.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from ephemerd.core.index import Group, Index, labels_of, pool_of
from ephemerd.core.rows import ClassRow
from ephemerd.core.turn import Turn
from ephemerd.domain.ids import JobKey
from ephemerd.domain.labels import covers
from ephemerd.domain.pool import Pool
from ephemerd.domain.runner import Runner

LOOK_AHEAD = 64
"""How many of a class's oldest jobs are looked at for one that may have a runner now."""


def serves(pool: Pool, labels: tuple[str, ...], group: Group) -> bool:
    """Say whether a runner that the pool registered with these labels can be given jobs of the class."""
    if not group.labels and not pool.unlabelled:
        return False
    return covers(labels, group.labels) and pool.scope.serves(group.sample)


def link(t: Turn, group: Group) -> None:
    """Find the pools and varieties of a class that is new, or after either changed."""
    index = t.state.index
    fitting = [
        (len(row.pool.labels), name)
        for name, row in t.state.pools.items()
        if serves(row.pool, row.pool.labels, group)
    ]
    fitting.sort()
    group.pools = group.varieties = tuple([name for _, name in fitting])
    if index.odd:
        for variety in index.odd:
            labels = labels_of(variety)
            if serves(t.state.pool(pool_of(variety)), labels, group):
                fitting.append((len(labels), variety))
        fitting.sort()
        group.varieties = tuple([name for _, name in fitting])
    taker = (len(fitting), group.name)
    for name in group.varieties:
        insort(index.takers.setdefault(name, []), taker)
        links = index.links.setdefault(name, {})
        for other in group.varieties:
            links[other] = links.get(other, 0) + 1


def unlink(index: Index, group: Group) -> None:
    """Take a class out of what `link` and `line_up` put it into."""
    _leave_line(index, group)
    taker = (len(group.varieties), group.name)
    for name in group.varieties:
        line, links = index.takers[name], index.links[name]
        del line[bisect_left(line, taker)]
        for other in group.varieties:
            links[other] -= 1
            if not links[other]:
                del links[other]
    group.pools = group.varieties = ()


def line_up(t: Turn, group: Group) -> None:
    """Give a class its place in the line of each of its pools: who was served longest ago comes first."""
    oldest = group.queued.first()
    kept = t.state.classes.get(group.name)
    turn = None if oldest is None else (kept.served if kept is not None else 0, oldest, group.name)
    if turn == group.turn:
        return
    _leave_line(t.state.index, group)
    if turn is not None and group.pools:
        group.turn = turn
        for name in group.pools:
            insort(t.state.index.turns.setdefault(name, []), turn)


def _leave_line(index: Index, group: Group) -> None:
    if group.turn is None:
        return
    for name in group.pools:
        line = index.turns[name]
        del line[bisect_left(line, group.turn)]
    group.turn = None


def enter(t: Turn, group: Group) -> None:
    """A class of demand appears: it takes its turn behind those that already wait, never before them."""
    t.put_class(group.name, ClassRow(served=int(t.state.meta.get("dispatch", 0))))


def forget(t: Turn, group: Group) -> None:
    """Drop a class of demand that has no job left."""
    index = t.state.index
    unlink(index, group)
    index.unmatched += group.matched
    del index.groups[group.name]
    t.put_class(group.name, None)


def relink(t: Turn) -> None:
    """Find the pools and varieties of every class again, after the configuration changed."""
    index = t.state.index
    for found in (index.takers, index.links, index.turns, index.flow, index.leftover, index.odd):
        found.clear()
    named = {name for members in (index.supply, index.consuming) for name, rows in members.items() if rows}
    index.odd.update(dict.fromkeys(sorted(name for name in named if labels_of(name))))
    for name in sorted(index.groups):
        group = index.groups[name]
        index.unmatched += group.matched
        group.matched, group.turn = 0, None
        link(t, group)
        index.dirty_groups[name] = None
    index.dirty_varieties.update(dict.fromkeys((*t.state.pools, *index.odd)))


def discharged(t: Turn, row: Runner) -> bool:
    """Say whether the job that caused a runner is demand no more."""
    return is_discharged(t, row.intent)


def is_discharged(t: Turn, intent: JobKey | None) -> bool:
    """Say whether a job is no demand: started, done, gone, waiting, refused, or not known."""
    if intent is None:
        return True
    job = t.state.jobs.get(intent)
    return job is None or job.status.value != "queued" or bool(job.refused)
