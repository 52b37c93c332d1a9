"""The configuration changes within a process life: nobody who runs is ended by it.

A pool or host that is left out is drained: nothing is planned there, who listens without a job leaves through
the gate, who works finishes. One that comes is served from this turn on.
"""

from __future__ import annotations

from msgspec.structs import replace

from ephemerd.core import boot, listings, orders, scopes
from ephemerd.core.events import Reconfigured
from ephemerd.core.turn import Turn
from ephemerd.domain.ids import Scope
from ephemerd.domain.pool import Pool, Setup


def on_reconfigured(t: Turn, event: Reconfigured) -> None:
    """Take the configuration in; the caller derives every moment anew afterwards."""
    setup = _in_place(t, event.setup)
    before = {pool.scope for pool in t.state.setup.pools}
    known = {name for name, row in t.state.hosts.items() if row.configured}
    boot.configure(t, setup, event.held)
    t.note("info", "the configuration was read again", by=event.who, pools=len(setup.pools))
    for name, host in sorted(t.state.hosts.items()):
        if not host.configured:
            continue
        due = t.now if name not in known else min(host.due, t.now + t.policy.reconcile_every)
        listings.ask_environments(t, t.put_host(replace(host, due=due)))
    for scope in sorted({pool.scope for pool in setup.pools}):
        _scope(t, scope, fresh=scope not in before)
    sweep = min(int(t.state.meta.get("sweep", t.now)), t.now + t.policy.nominate_every)
    t.set_meta("sweep", max(sweep, t.now + 1))
    orders.touch_live(t)


def _in_place(t: Turn, setup: Setup) -> Setup:
    """Leave a pool where it is while somebody rests on that: what runs there was placed and registered by it."""
    return replace(setup, pools=tuple(_stays(t, pool) for pool in setup.pools))


def _stays(t: Turn, pool: Pool) -> Pool:
    row = t.state.pools.get(pool.name)
    if row is None:
        return pool
    index = t.state.index
    if row.configured or index.live.get(pool.name) or index.reserved.get(row.pool.host):
        return replace(pool, scope=row.pool.scope, host=row.pool.host, runtime=row.pool.runtime)
    return pool


def _scope(t: Turn, scope: Scope, *, fresh: bool) -> None:
    """List a scope that nobody served until now; what is served keeps its rhythm, a shorter one holds at once."""
    row = t.state.scope(scope)
    latest = t.now if fresh else t.now + t.policy.reconcile_every
    row = replace(
        row,
        jobs_due=min(row.jobs_due, latest),
        registrations_due=min(row.registrations_due, latest),
        jobs_listed=None if fresh else row.jobs_listed,
    )
    scopes.keep(t, row)
    scopes.list_if_due(t, scope)
