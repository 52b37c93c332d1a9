"""Provisioning: runners for the demand that matching leaves open, and spares (DOMAIN.md section 4).

Runners are planned from counts, class by class as they stand in line, never from a scan of jobs.
"""

from __future__ import annotations

from itertools import islice

from msgspec.structs import replace

from ephemerd.core import access, holding, scopes
from ephemerd.core.asking import ask
from ephemerd.core.commands import Register
from ephemerd.core.demand import LOOK_AHEAD, line_up
from ephemerd.core.index import Group, variety_of
from ephemerd.core.rows import PoolRow
from ephemerd.core.state import State
from ephemerd.core.transitions import next_state
from ephemerd.core.turn import Turn
from ephemerd.domain.ids import JobKey, RunnerId, runner_name
from ephemerd.domain.job import Job
from ephemerd.domain.pool import Pool
from ephemerd.domain.runner import Runner, S


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
