"""Why has a queued job no runner? One sentence, in the order in which planning would have stopped."""

from __future__ import annotations

from ephemerd.core import access, holding, provisioning
from ephemerd.core.index import Group, group_name
from ephemerd.core.state import State
from ephemerd.core.turn import Turn
from ephemerd.domain.ids import JobKey
from ephemerd.domain.job import J, Job
from ephemerd.domain.pool import Pool


def why_waiting(state: State, key: JobKey, now: int) -> str:
    """Return why a queued or waiting job does not run yet; "" for any other."""
    job = state.jobs.get(key)
    if job is None:
        return ""
    if job.status is J.WAITING:
        return "the forge holds it for an approval or a wait timer"
    if job.status is not J.QUEUED:
        return ""
    if job.refused:
        return access.why(state, job)
    group = state.index.groups.get(group_name(job))
    if group is not None and group.unmatched <= 0:
        return "a runner for it is on its way or listens; the forge has not given it the job yet"
    if group is None or not group.pools:
        return not_served(state, job)
    if job.asked is not None:
        return "the forge is asked whether it still waits; a slot is reserved"
    if job.not_before > now:
        return f"its last try was in vain; next try in {(job.not_before - now) // 1000} s"
    turn = Turn(state, now)
    if access.full(state, key):
        return f"{key.repository} has as many runners as forge.{key.forge}.repository_runners allows"
    if not holding.allows(turn, group):
        return "the forge seems to hold back: a listening runner of its class has not been taken"
    return _why_not_ready(turn, group)


def not_served(state: State, job: Job) -> str:
    """Say which labels keep every pool from serving the job."""
    best: tuple[str, ...] | None = None
    for row in state.pools.values():
        if row.configured and row.pool.scope.serves(job.key):
            missing = tuple(label for label in job.labels if label not in row.pool.labels)
            if best is None or len(missing) < len(best):
                best = missing
    if best is None:
        return "no pool serves its repository"
    if not job.labels:
        return "it asks for no labels, and no pool has `unlabelled = true`"
    return f"no pool has the label(s) {', '.join(best)}"


def _why_not_ready(t: Turn, group: Group) -> str:
    reasons = [_pool_reason(t, t.state.pools[name].pool) for name in group.pools]
    return reasons[0] if reasons else ""


def _pool_reason(t: Turn, pool: Pool) -> str:
    if provisioning.ready(t, pool):
        return "a runner for it is about to be planned"
    row, host = t.state.pools[pool.name], t.state.hosts.get(pool.host)
    if not row.configured:
        return f"pool {pool.name} is not configured any more"
    cordoned = row.cordoned or (host.cordoned if host else "") or str(t.state.meta.get("cordoned", ""))
    if cordoned:
        return f"pool {pool.name} is cordoned by {cordoned}"
    scope = t.state.scope(pool.scope)
    if scope.denied:
        return f"the forge refuses our credential: {scope.denied}"
    if scope.silent is not None:
        return "the forge gives no answer"
    if t.now < scope.limited_until:
        return f"the forge limits our requests for another {(scope.limited_until - t.now) // 1000} s"
    if t.state.index.abandoned.get(pool.host, 0) >= t.policy.abandoned_limit:
        return f"host {pool.host} has too many abandoned environments"
    if row.missing:
        return f"pool {pool.name} starts no runners: {row.missing}"
    if t.now < row.not_before:
        return f"pool {pool.name} waits {(row.not_before - t.now) // 1000} s after: {row.why}"
    if (trial := provisioning.trying(t.state, row)) is not None:
        return f"runner {trial} finds out whether the forge still refuses the runner application of pool {pool.name}"
    if len(t.state.index.live.get(pool.name, ())) >= pool.max_concurrent:
        return f"pool {pool.name} is at its max_concurrent ({pool.max_concurrent})"
    return f"host {pool.host} has no free slot"
