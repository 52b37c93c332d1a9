"""Matching kept true, and what is provisioned for what it leaves open (DOMAIN.md section 4).

Level-triggered: only components whose counts changed are matched again, and runners are planned from
counts, never from a scan of jobs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable
from itertools import islice

from msgspec.structs import replace

from ephemerd.core import access, holding, scopes
from ephemerd.core.asking import ask
from ephemerd.core.commands import Register
from ephemerd.core.index import Group, Index, labels_of, pool_of, variety_of
from ephemerd.core.matching import match
from ephemerd.core.rows import ClassRow, PoolRow
from ephemerd.core.state import State
from ephemerd.core.transitions import next_state
from ephemerd.core.turn import Turn
from ephemerd.domain.ids import JobKey, RunnerId, runner_name
from ephemerd.domain.job import Job
from ephemerd.domain.labels import SEPARATOR, covers
from ephemerd.domain.pool import Pool
from ephemerd.domain.runner import FINAL, Runner, S

LOOK_AHEAD = 64
"""How many of a class's oldest jobs are looked at for one that may have a runner now."""

RANK = {
    S.LISTENING: 0,
    S.STARTING: 1,
    S.REGISTERING: 2,
    S.PLANNED: 3,
}


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


def _unlink(index: Index, group: Group) -> None:
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
    _unlink(index, group)
    index.unmatched += group.matched
    del index.groups[group.name]
    t.put_class(group.name, None)


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
            _unlink(index, group)
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


def provision(t: Turn) -> None:
    """Plan runners for open demand while slots are free, then spares; ask about a job where its word is old."""
    index = t.state.index
    while index.unmatched and (best := _next_turn(t)) is not None:
        group, pool, job = best
        if _needs_word(t, job):
            asked = ask(t, job, "confirm", pool.name)
            assert asked, "a pool that is ready can be asked for, and the next job has no question out"
            continue
        _plan(t, group, pool, job)
    _keep_spares(t)


def _next_turn(t: Turn) -> tuple[Group, Pool, Job] | None:
    """Return whose turn it is, of the classes that a runner can be made for now: that which was served longest
    ago, of several that with the older job."""
    best: tuple[tuple[int, int], Group, Pool, Job] | None = None
    groups = t.state.index.groups
    for name, line in t.state.index.turns.items():
        is_ready = False
        for served, oldest, group_name in line:
            if best is not None and (served, oldest) >= best[0]:
                break
            group = groups[group_name]
            if group.unmatched <= 0:
                continue
            is_ready = is_ready or ready(t, t.state.pools[name].pool)
            if not is_ready:
                break
            job = _next_job(t, group)
            if job is not None and (best is None or (served, job.order) < best[0]):
                best = ((served, job.order), group, _first_ready(t, group, name), job)
    return None if best is None else best[1:]


def _needs_word(t: Turn, job: Job) -> bool:
    return t.now - job.confirmed > t.policy.confirm_after and not job.waived


def _first_ready(t: Turn, group: Group, known: str) -> Pool:
    """Return the pool that the next runner for a class is made in; `known` is one of its pools that is ready."""
    pools = t.state.pools
    return pools[next(name for name in group.pools if name == known or ready(t, pools[name].pool))].pool


def _allows(t: Turn, group: Group) -> bool:
    """Say whether another runner may be made for the class: nobody holds back, and its repository has room."""
    return holding.allows(t, group) and not access.full(t.state, group.sample)


def ready(t: Turn, pool: Pool) -> bool:
    """Say whether a runner of the pool could be made at this moment."""
    state, now = t.state, t.now
    host = state.hosts.get(pool.host)
    if host is None or state.slots_free(pool.host) <= 0:  # by far the most frequent reason
        return False
    row = state.pools[pool.name]
    if not row.configured or row.cordoned or host.cordoned or state.meta.get("cordoned"):
        return False
    if now < row.not_before:
        return False
    if row.missing or trying(state, row) is not None:
        return False
    if state.index.abandoned.get(pool.host, 0) >= t.policy.abandoned_limit:
        return False
    if len(state.index.live.get(pool.name, ())) >= pool.max_concurrent:
        return False
    scope = state.scope(pool.scope)
    if now < scope.limited_until or now < scope.denied_until:
        return False
    return scope.silent is None or now >= scope.next_try


def trying(state: State, row: PoolRow) -> RunnerId | None:
    """Return the runner that finds out whether the forge still refuses the pool's runner application."""
    if row.refused is None:
        return None
    live = (state.runners[name] for name in state.index.live.get(row.pool.name, ()))
    return next((runner.id for runner in live if runner.created > row.refused), None)


def _next_job(t: Turn, group: Group) -> Job | None:
    """Return the job that the next runner for a class would be made for, None where none may be made: the oldest
    without one that was made for it, else the oldest that may have one."""
    if not _allows(t, group) or group.unmatched <= t.state.index.asked.get(group.name, 0):
        return None
    fallback: Job | None = None
    intents = t.state.index.intents
    for key in islice(group.queued, LOOK_AHEAD + len(intents)):
        job = t.state.jobs[key]
        if job.asked is not None or job.not_before > t.now:
            continue
        if key not in intents:
            return job
        fallback = fallback or job
    return fallback


def _plan(t: Turn, group: Group, pool: Pool, job: Job) -> None:
    holding.spend(t, group)
    exactly = pool.exact and group.labels != pool.labels
    row = _make(t, pool, job.key, group.labels if exactly else ())
    t.concern(str(job.key))
    if job.waived:
        t.change_job(job, waived=False, unconfirmed=t.now)
    group.matched += 1
    t.state.index.unmatched -= 1
    flow = t.state.index.flow.setdefault(variety_of(row), {})
    flow[group.name] = flow.get(group.name, 0) + 1
    line_up(t, group)


def _make(t: Turn, pool: Pool, intent: JobKey | None, labels: tuple[str, ...] = ()) -> Runner:
    """Plan a runner; `labels` are what it is registered with, () for the pool's own."""
    may_call = scopes.may_call(t, pool.scope)  # uses up the trial call of a scope in trouble
    assert may_call, "a pool that is ready may be registered for"
    name = runner_name(t.state.store, t.state.epoch, t.draw("name"), pool.suffix)
    row = Runner(
        id=name,
        pool=pool.name,
        host=pool.host,
        scope=pool.scope,
        order=t.draw("runner"),
        state=S.PLANNED,
        since=t.now,
        created=t.now,
        intent=intent,
        labels=labels,
    )
    row = t.put_runner(replace(row, state=next_state(row, S.REGISTERING, t.now)))
    t.count("dispatches_total", pool=pool.name)
    t.send(Register(name, pool.scope, labels or pool.labels))
    return row


def _keep_spares(t: Turn) -> None:
    """Make up for what is missing of `min_idle`, where no demand waits for the slots."""
    for name in t.state.spared:
        pool = t.state.pools[name].pool
        missing = pool.min_idle - t.state.index.leftover.get(name, 0)
        while missing > 0 and ready(t, pool) and not _is_wanted(t, pool):
            _make(t, pool, None)
            missing -= 1


def _is_wanted(t: Turn, pool: Pool) -> bool:
    """Say whether open demand has a better claim to a slot than a spare of the pool has. Demand of the pool
    itself always has: while it is held back or backs off, spares would only be matched to it. Demand of
    others has where they could use the slot."""
    for group in t.state.index.groups.values():
        allowed = _allows(t, group)
        if pool.name in group.pools and (group.unmatched > 0 or not allowed):
            return True
        if group.unmatched <= 0 or not allowed:
            continue
        for row in (t.state.pools[name] for name in group.pools):
            open_ = row.pool.host == pool.host and row.configured and not row.cordoned
            if open_ and len(t.state.index.live.get(row.pool.name, ())) < row.pool.max_concurrent:
                return True
    return False


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


def relabel(t: Turn, pool: Pool, before: tuple[str, ...]) -> None:
    """A pool has other labels than `before`: its runners keep those that they were registered with."""
    for row in [row for row in t.state.runners.values() if row.pool == pool.name]:
        if row.state not in FINAL or row.consumes:
            labels = row.labels or before
            t.change_runner(row, labels=() if labels == pool.labels else labels)


def discharged(t: Turn, row: Runner) -> bool:
    """Say whether the job that caused a runner is demand no more."""
    return is_discharged(t, row.intent)


def is_discharged(t: Turn, intent: JobKey | None) -> bool:
    """Say whether a job is no demand: started, done, gone, waiting, refused, or not known."""
    if intent is None:
        return True
    job = t.state.jobs.get(intent)
    return job is None or job.status.value != "queued" or bool(job.refused)
