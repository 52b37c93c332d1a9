"""Matching kept true, and what is provisioned for what it leaves open (DOMAIN.md section 4).

Level-triggered: only components whose counts changed are matched again, and runners are planned from
counts, never from a scan of jobs.
"""

from __future__ import annotations

from itertools import islice

from ephemerd.core import access, holding, scopes
from ephemerd.core.asking import ask
from ephemerd.core.commands import Register
from ephemerd.core.index import Group
from ephemerd.core.matching import match
from ephemerd.core.rows import ClassRow, PoolRow
from ephemerd.core.state import State
from ephemerd.core.transitions import move_runner
from ephemerd.core.turn import Turn
from ephemerd.domain.ids import JobKey, RunnerId, runner_name
from ephemerd.domain.job import Job
from ephemerd.domain.labels import satisfies
from ephemerd.domain.pool import Pool
from ephemerd.domain.runner import Runner, RunnerState

LOOK_AHEAD = 64
"""How many of a class's oldest jobs are looked at for one that may have a runner now."""

RANK = {
    RunnerState.LISTENING: 0,
    RunnerState.STARTING: 1,
    RunnerState.REGISTERING: 2,
    RunnerState.PLANNED: 3,
}


def serves(pool: Pool, group: Group) -> bool:
    """Say whether a runner of the pool can be given jobs of the class."""
    if not group.labels and not pool.unlabelled:
        return False
    return pool.scope.serves(group.sample) and satisfies(pool.labels, group.labels)


def link(t: Turn, group: Group) -> None:
    """Find the pools of a class that is new, or after the configuration changed."""
    fitting = [row.pool for row in t.state.pools.values() if serves(row.pool, group)]
    group.pools = tuple(pool.name for pool in sorted(fitting, key=lambda pool: (len(pool.labels), pool.name)))
    for name in group.pools:
        t.state.index.pool_groups.setdefault(name, {})[group.name] = None


def enter(t: Turn, group: Group) -> None:
    """A class of demand appears: it takes its turn behind those that already wait, never before them."""
    link(t, group)
    t.put_class(group.name, ClassRow(served=int(t.state.meta.get("dispatch", 0))))


def forget(t: Turn, group: Group) -> None:
    """Drop a class of demand that has no job left."""
    for name in group.pools:
        t.state.index.pool_groups.get(name, {}).pop(group.name, None)
    del t.state.index.groups[group.name]
    t.put_class(group.name, None)


def settle(t: Turn) -> bool:
    """Match again what changed; return whether anything had changed."""
    index = t.state.index
    if not index.dirty_groups and not index.dirty_pools:
        return False
    groups, pools = sorted(index.dirty_groups), sorted(index.dirty_pools)
    index.dirty_groups.clear()
    index.dirty_pools.clear()
    seen: dict[str, None] = {}
    for name in groups:
        group = index.groups[name]
        if group.name not in t.state.classes:
            enter(t, group)
        elif not group.pools:
            link(t, group)
        pools.extend(group.pools)
        if not group.queued:
            forget(t, group)
        elif not group.pools:
            group.unmatched = len(group.queued)
    for pool in sorted(dict.fromkeys(pools)):
        if pool not in seen:
            _match_component(t, pool, seen)
    return True


def derive(t: Turn) -> None:
    """Count again, from rows alone, what the last matching left over; nothing is done about it."""
    seen: dict[str, None] = {}
    for pool in sorted(t.state.pools):
        if pool not in seen:
            _count_component(t, pool, seen)
    for group in t.state.index.groups.values():
        if not group.pools:
            group.unmatched = len(group.queued)


def _count_component(
    t: Turn, start: str, seen: dict[str, None]
) -> tuple[dict[str, Group], dict[str, None], dict[str, int]]:
    """Match what hangs together with a pool; return its classes, its pools, and how much supply of each is used."""
    index = t.state.index
    pools: dict[str, None] = {start: None}
    groups: dict[str, Group] = {}
    line = [start]
    while line:
        for name in index.pool_groups.get(line.pop(), ()):
            if name in groups:
                continue
            groups[name] = index.groups[name]
            for pool in groups[name].pools:
                if pool not in pools:
                    pools[pool] = None
                    line.append(pool)
    seen.update(pools)
    demand = {name: len(group.queued) for name, group in groups.items()}
    edges = {name: group.pools for name, group in groups.items()}
    consumed = match(demand, {pool: len(index.consuming.get(pool, ())) for pool in pools}, edges)
    for (name, _), units in consumed.items():
        demand[name] -= units
    flow = match(demand, {pool: len(index.supply.get(pool, ())) for pool in pools}, edges)
    used: dict[str, int] = {}
    for (name, pool), units in flow.items():
        demand[name] -= units
        used[pool] = used.get(pool, 0) + units
    for name, group in groups.items():
        group.unmatched = demand[name]
    for pool in pools:
        index.leftover[pool] = len(index.supply.get(pool, ())) - used.get(pool, 0)
    return groups, pools, used


def _match_component(t: Turn, start: str, seen: dict[str, None]) -> None:
    groups, pools, used = _count_component(t, start, seen)
    for _, group in sorted(groups.items()):
        holding.review(t, group)
        if group.unmatched > 0 and not access.full(t.state, group.sample):
            _ask_for_room(t, group)
    for pool in sorted(pools):
        _mark_spares(t, pool, used.get(pool, 0))


def _ask_for_room(t: Turn, group: Group) -> None:
    """Demand waits for a slot: have whoever may be displaced for it looked at now, not at the next sweep."""
    hosts = {t.state.pools[name].pool.host: None for name in group.pools}
    for host in hosts:
        if t.state.slots_free(host) > 0:
            continue
        for name, row in t.state.pools.items():
            if row.pool.host != host or name in group.pools:
                continue
            t.touch(
                runner
                for runner in t.state.index.supply.get(name, ())
                if t.now - t.state.runners[runner].since >= t.policy.displaced_after
            )


def _mark_spares(t: Turn, pool: str, used: int) -> None:
    """Note on each runner of a pool's supply whether the matching leaves it over; the most advanced ones
    are matched first."""
    supply = t.state.index.supply.get(pool, {})
    members = [t.state.runners[name] for name in supply]
    if used >= len(members):
        spare: list[Runner] = []
        matched = members
    else:
        members.sort(key=_advancement)
        matched, spare = members[:used], members[used:]
    for row in matched:
        if row.surplus_since is not None:
            t.change_runner(row, surplus_since=None)
    for row in spare:
        if row.surplus_since is None:
            t.change_runner(row, surplus_since=t.now)


def _advancement(row: Runner) -> tuple[int, int, int]:
    return (RANK[row.state], row.listening if row.listening is not None else row.since, row.order)


def provision(t: Turn) -> bool:
    """Plan runners for open demand while slots are free, then spares; return whether anything was planned or
    asked."""
    acted = False
    while _any_slot(t):
        best: tuple[tuple[int, int], Group, Pool, Job] | None = None
        for name in sorted(t.state.index.groups):
            group = t.state.index.groups[name]
            if group.unmatched <= 0 or not group.pools:
                continue
            place = _place(t, group)
            if place is None:
                continue
            pool, job = place
            kept = t.state.classes.get(name)
            rank = (kept.served if kept is not None else 0, job.order)
            if best is None or rank < best[0]:
                best = (rank, group, pool, job)
        if best is None:
            return _keep_spares(t) or acted
        acted = True
        _, group, pool, job = best
        if _needs_word(t, job):
            asked = ask(t, job, "confirm", pool.name)
            assert asked, "a pool that is ready can be asked for, and the next job has no question out"
            continue
        _plan(t, group, pool, job)
    return acted


def _any_slot(t: Turn) -> bool:
    return any(t.state.slots_free(name) > 0 for name in t.state.hosts)


def _needs_word(t: Turn, job: Job) -> bool:
    return t.now - job.confirmed > t.policy.confirm_after and not job.waived


def _place(t: Turn, group: Group) -> tuple[Pool, Job] | None:
    """Return where the next runner for the class would go and for which job, or None."""
    if not _allows(t, group) or group.unmatched <= t.state.index.asked.get(group.name, 0):
        return None
    for name in group.pools:
        pool = t.state.pools[name].pool
        if ready(t, pool):
            job = _next_job(t, group)
            return (pool, job) if job is not None else None
    return None


def _allows(t: Turn, group: Group) -> bool:
    """Say whether another runner may be made for the class: nobody holds back, and its repository has room."""
    return holding.allows(t, group) and not access.full(t.state, group.sample)


def ready(t: Turn, pool: Pool) -> bool:
    """Say whether a runner of the pool could be made at this moment."""
    row, host = t.state.pools[pool.name], t.state.hosts.get(pool.host)
    if not row.configured or row.cordoned or host is None or host.cordoned or t.state.meta.get("cordoned"):
        return False
    if t.now < row.not_before or t.state.slots_free(pool.host) <= 0:
        return False
    if row.missing or trying(t.state, row) is not None:
        return False
    if t.state.index.abandoned.get(pool.host, 0) >= t.policy.abandoned_limit:
        return False
    if len(t.state.index.live.get(pool.name, ())) >= pool.max_concurrent:
        return False
    scope = t.state.scope(pool.scope)
    if t.now < scope.limited_until or t.now < scope.denied_until:
        return False
    return scope.silent is None or t.now >= scope.next_try


def trying(state: State, row: PoolRow) -> RunnerId | None:
    """Return the runner that finds out whether the forge still refuses the pool's runner application."""
    if row.refused is None:
        return None
    live = (state.runners[name] for name in state.index.live.get(row.pool.name, ()))
    return next((runner.id for runner in live if runner.created > row.refused), None)


def _next_job(t: Turn, group: Group) -> Job | None:
    """The oldest job without a runner that was made for it; else the oldest that may have one."""
    fallback: Job | None = None
    for key in islice(group.queued, LOOK_AHEAD + len(t.state.index.intents)):
        job = t.state.jobs[key]
        if job.asked is not None or job.not_before > t.now:
            continue
        if key not in t.state.index.intents:
            return job
        fallback = fallback or job
    return fallback


def _plan(t: Turn, group: Group, pool: Pool, job: Job) -> None:
    holding.spend(t, group)
    _make(t, pool, job.key)
    t.concern(str(job.key))
    if job.waived:
        t.change_job(job, waived=False, unconfirmed=t.now)
    group.unmatched -= 1


def _make(t: Turn, pool: Pool, intent: JobKey | None) -> None:
    may_call = scopes.may_call(t, pool.scope)  # uses up the trial call of a scope in trouble
    assert may_call, "a pool that is ready may be registered for"
    name = runner_name(t.state.store, t.state.epoch, t.draw("name"), pool.suffix)
    row = t.put_runner(
        Runner(
            id=name,
            pool=pool.name,
            host=pool.host,
            scope=pool.scope,
            order=t.draw("runner"),
            state=RunnerState.PLANNED,
            since=t.now,
            created=t.now,
            intent=intent,
        )
    )
    t.put_runner(move_runner(row, RunnerState.REGISTERING, t.now))
    t.count("dispatches_total", pool=pool.name)
    t.send(Register(name, pool.scope, pool.labels))


def _keep_spares(t: Turn) -> bool:
    """Make up for what is missing of `min_idle`, where no demand waits for the slots."""
    acted = False
    for name in sorted(t.state.pools):
        pool = t.state.pools[name].pool
        missing = pool.min_idle - t.state.index.leftover.get(name, 0)
        while missing > 0 and ready(t, pool) and not _is_wanted(t, pool):
            _make(t, pool, None)
            missing -= 1
            acted = True
    return acted


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
    """Find the pools of every class again, after the configuration changed."""
    index = t.state.index
    index.pool_groups.clear()
    for name in sorted(index.groups):
        link(t, index.groups[name])
        index.dirty_groups[name] = None
    for name in t.state.pools:
        index.dirty_pools[name] = None


def discharged(t: Turn, row: Runner) -> bool:
    """Say whether the job that caused a runner is demand no more."""
    return is_discharged(t, row.intent)


def is_discharged(t: Turn, intent: JobKey | None) -> bool:
    """Say whether a job is no demand: started, done, gone, waiting, refused, or not known."""
    if intent is None:
        return True
    job = t.state.jobs.get(intent)
    return job is None or job.status.value != "queued" or bool(job.refused)
