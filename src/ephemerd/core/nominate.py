"""The nomination rules: who could go, and why. They nominate and have no authority.

`nominee` is asked for a runner whenever something about it changed and at each moment at which a rule
could begin to hold (`examine.next_look`), so nothing waits for a sweep; the sweep every `nominate_every` asks again.
"""

from __future__ import annotations

from itertools import islice

from ephemerd.core import access, demand, holding, supply
from ephemerd.core.index import Group, variety_of
from ephemerd.core.rows import PoolRow
from ephemerd.core.spans import span
from ephemerd.core.turn import Turn
from ephemerd.domain.pool import Pool
from ephemerd.domain.runner import Rule, Runner, S

ENDABLE = frozenset({S.STARTING, S.LISTENING, S.ASSIGNED, S.RUNNING, S.FINISHING, S.STUCK})
SWEPT = frozenset({S.LISTENING, S.STUCK})
"""States that rules of the orphan sweep are about; `leaked` is about any."""


def nominee(t: Turn, row: Runner) -> tuple[Rule, str] | None:
    """Return the first rule that nominates the runner, with a sentence, or None.

    `spent` comes before the rules that the gate holds for ever where the registration is gone.
    """
    state = row.state
    if state not in ENDABLE:
        return None
    found, order = _spent(t, row), row.order_given
    if order is not None and (order.even_if_busy or found is None):
        return Rule.OPERATOR, f"{order.who} asked: {order.reason}"
    if state is S.RUNNING:
        return _overdue(t, row) or found
    if found is None and state is S.STARTING:
        found = _unborn(row)
    elif found is None and state is S.FINISHING:
        found = _finished(t, row)
    if found is None and (row.leak is not None or state in SWEPT):
        found = _orphaned(t, row)
    if found is None and state is S.LISTENING:
        found = _cordoned(t, row)
    return found


def still(t: Turn, row: Runner, rule: Rule) -> bool:
    """Say, just before the fence, whether a rule that rests on the matching still holds."""
    if rule is Rule.SURPLUS:
        return _surplus(t, row, t.state.pool(row.pool)) is not None
    if rule is Rule.DISPLACED:
        return _displaced(t, row) is not None
    return True


def _orphaned(t: Turn, row: Runner) -> tuple[Rule, str] | None:
    """The rules of the orphan sweep, which nominate nobody while they rest."""
    if not t.policy.orphan_sweep:
        return None
    state, found = row.state, None
    if row.leak is not None:
        found = _leaked(row)
    elif state is S.STUCK:
        found = _kept_too_long(t, row)
    if found is None and state is S.LISTENING and row.listening is not None:
        pool = t.state.pools[row.pool].pool
        found = _expired(t, row, pool) or _surplus(t, row, pool) or _displaced(t, row)
    return None if found is None or _rests(t, row, t.state.pool(row.pool)) else found


def _rests(t: Turn, row: Runner, pool: Pool) -> bool:
    """After a start, what could rest on events that were missed waits (DOMAIN.md section 5, end)."""
    scope = t.state.scope(pool.scope)
    read = scope.jobs_listed is not None and scope.jobs_listed >= t.state.booted
    if not read and not t.state.is_observed(pool.scope):
        return True
    if not row.adopted:
        return False
    if not row.seen_after_start or scope.jobs_listed is None:
        return True
    return t.now < t.state.booted + pool.orphan_grace


def _overdue(t: Turn, row: Runner) -> tuple[Rule, str] | None:
    limit = t.state.pools[row.pool].pool.job_timeout
    if limit is None or row.hard is None:
        return None
    ran = t.now - row.hard
    if ran < limit:
        return None
    if row.stopping is not None and t.now - row.stopping < t.policy.overdue_grace:
        return None
    return (
        Rule.OVERDUE,
        f"its job has run for {span(ran)}, longer than the pool's job_timeout of {span(limit)}",
    )


def _unborn(row: Runner) -> tuple[Rule, str] | None:
    if row.late:
        return Rule.UNBORN, "it did not listen within the provision limit"
    return None


def _finished(t: Turn, row: Runner) -> tuple[Rule, str] | None:
    if t.now - row.since >= t.policy.exit_grace:
        return Rule.FINISHED, f"its job is over by {row.over_via}, and it did not leave within the exit grace"
    return None


def _spent(t: Turn, row: Runner) -> tuple[Rule, str] | None:
    if row.hard is not None and (row.over is None or t.now - row.over < t.policy.exit_grace):
        return None
    if row.soft_last is not None and t.now - row.soft_last < t.policy.soft_sign_life:
        return None
    if row.fence.accepted is not None:
        return Rule.SPENT, "the forge accepted its deregistration, and no job came"
    if row.lost_again is not None or row.fence.missing_again is not None:
        return Rule.SPENT, "its registration is gone, seen so twice, and no job came"
    return None


def _leaked(row: Runner) -> tuple[Rule, str] | None:
    if row.leak is not None and row.leak_again is not None and row.hard is None:
        return Rule.LEAKED, "an environment with our tag that the store does not know, seen twice"
    return None


def _kept_too_long(t: Turn, row: Runner) -> tuple[Rule, str] | None:
    if is_kept(row) and t.now - row.since >= t.state.pool(row.pool).orphan_grace:
        return (
            Rule.EXPIRED,
            "kept after a permit had lapsed, and no job showed itself within the grace window",
        )
    return None


def _expired(t: Turn, row: Runner, pool: Pool) -> tuple[Rule, str] | None:
    """The rule for one that listens."""
    idle = t.now - idle_from(row)
    if idle < pool.orphan_grace:
        return None
    looked_up = row.untaken is not None or row.lost is not None
    if row.surplus_since is None and idle >= t.policy.hold_after and not looked_up:
        return None
    if row.surplus_since is not None and _is_warm(t, row, pool) and idle < t.policy.max_idle_age:
        return None
    return Rule.EXPIRED, f"dispatched but never assigned a job within the grace window ({span(idle)})"


def is_kept(row: Runner) -> bool:
    """Say whether a second look kept it from being destroyed, and nothing was heard of a job."""
    return row.state is S.STUCK and row.leak is None and row.hard is None


def idle_from(row: Runner) -> int:
    """Return from when a listening runner counts as idle (ms): a hung one gets no second grace."""
    listening = row.listening if row.listening is not None else row.since
    return listening if row.offered else max(listening, row.since)


def _is_warm(t: Turn, row: Runner, pool: Pool) -> bool:
    """Say whether the runner is one of the pool's `min_idle` spares."""
    if pool.min_idle <= 0:
        return False
    kept = 0
    for other in sorted((t.state.runners[n] for n in t.state.index.supply.get(pool.name, ())), key=_age):
        if other.surplus_since is None:
            continue
        if other.id == row.id:
            return kept < pool.min_idle
        kept += 1
    return False


def _age(row: Runner) -> int:
    return row.order


def _surplus(t: Turn, row: Runner, pool: Pool) -> tuple[Rule, str] | None:
    if row.state is not S.LISTENING or row.surplus_since is None or _is_warm(t, row, pool):
        return None
    if t.now - row.surplus_since < pool.surplus_grace or not demand.discharged(t, row):
        return None
    return Rule.SURPLUS, "its job is demand no more, and the matching leaves it over"


def _displaced(t: Turn, row: Runner) -> tuple[Rule, str] | None:
    if row.state is not S.LISTENING or row.listening is None:
        return None
    if t.now - max(row.listening, row.since) < t.policy.displaced_after:
        return None
    if t.state.slots_free(row.host) > 0 and not supply.is_crowded(t.state, row.pool):
        return None
    if not _is_blocked(t, row, _leaving(t, row)):
        return None
    return Rule.DISPLACED, "demand that it cannot serve waits for its slot"


def _is_blocked(t: Turn, row: Runner, leaving: int) -> bool:
    """Say whether more demand waits for its slot, or for its place in its pool, and cannot be served by it, than
    leaves its host. What could not have a runner beside a free slot waits for none."""
    units, variety, is_full = 0, variety_of(row), t.state.slots_free(row.host) <= 0
    for group in t.state.index.groups.values():
        if group.unmatched <= 0 or variety in group.varieties or not _is_allowed(t, row, group):
            continue
        for name in group.pools:
            pool = t.state.pools[name]
            if pool.pool.host != row.host or not _is_open(t, pool):
                continue
            if name == row.pool or (
                is_full and len(t.state.index.live.get(name, ())) < pool.pool.max_concurrent
            ):
                units += group.unmatched
                break
        if units > leaving:
            return True
    return False


def _is_allowed(t: Turn, row: Runner, group: Group) -> bool:
    """Say whether a runner could be made for the class now if this one were gone: nobody holds back, its repository
    has room, or the place that this one has, and one of its oldest jobs need not wait for its next try."""
    if not holding.allows(t, group):
        return False
    job, own = group.sample, row.intent
    is_own = own is not None and own.forge == job.forge and own.repository.lower() == job.repository.lower()
    if not is_own and access.full(t.state, job):
        return False
    return any(t.state.jobs[key].not_before <= t.now for key in islice(group.queued, demand.LOOK_AHEAD))


def _is_open(t: Turn, row: PoolRow) -> bool:
    """Say whether it is for a slot alone that the pool makes no runner."""
    return row.configured and not row.cordoned and not row.missing and t.now >= row.not_before


def _leaving(t: Turn, row: Runner) -> int:
    """Count the other runners of the host that are on their way out already."""
    units = 0
    for name, pool in t.state.pools.items():
        if pool.pool.host != row.host:
            continue
        for other in t.state.index.live.get(name, ()):
            runner = t.state.runners[other]
            if runner.id != row.id and (runner.state is S.RETIRING or _yields(runner)):
                units += 1
    return units


def _yields(row: Runner) -> bool:
    return row.gate is not None and row.gate.rule in (Rule.DISPLACED, Rule.SURPLUS, Rule.EXPIRED)


def _cordoned(t: Turn, row: Runner) -> tuple[Rule, str] | None:
    """The rule for one that listens where nobody wants it any more."""
    pool, host = t.state.pools[row.pool], t.state.hosts.get(row.host)
    why = pool.cordoned or (host.cordoned if host else "") or t.state.meta.get("cordoned", "")
    if why:
        return Rule.CORDONED, f"cordoned: {why}"
    if not pool.configured:
        return Rule.CORDONED, "its pool is not configured any more"
    if host is not None and not host.configured:
        return Rule.CORDONED, "its host is not configured any more"
    return None
