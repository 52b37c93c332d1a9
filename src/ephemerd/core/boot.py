"""The beginning of a process life: the configuration comes in, gates start again, the world is listed."""

from __future__ import annotations

from msgspec.structs import replace

from ephemerd.core import access, demand, lifecycle, listings, scopes, supply
from ephemerd.core.events import Booted, MachineSlept
from ephemerd.core.rows import HostRow, PoolRow
from ephemerd.core.turn import Turn
from ephemerd.domain.ids import Scope
from ephemerd.domain.pool import Setup
from ephemerd.domain.runner import FINAL, Rule, Runner, S

UNDER_WAY = frozenset({S.PLANNED, S.REGISTERING, S.STARTING, S.RETIRING})
"""States with a limit of their own for what we, or a machine, are just doing."""


def on_booted(t: Turn, event: Booted) -> None:
    """Begin a process life. Nothing is destroyed here; what was under way goes through the gate again."""
    t.set_meta("store", event.store)
    t.set_meta("epoch", event.epoch)
    t.set_meta("booted", t.now)
    for job in [job for job in t.state.jobs.values() if job.asked is not None]:
        t.change_job(job, asked=None, asking="", pool="")
    configure(t, event.setup, event.held)
    for row in sorted(t.state.runners.values(), key=lambda runner: runner.order):
        _resume(t, row, same_boot=event.same_boot)
    t.set_meta("sweep", t.now + t.policy.nominate_every)
    t.state.agenda.set("sweep", "", t.now + t.policy.nominate_every)
    for _, host in sorted(t.state.hosts.items()):
        listings.ask_environments(t, t.put_host(replace(host, listed=None, asked=None, due=t.now)))
    for scope in _used_scopes(t):
        scope_row = replace(
            t.state.scope(scope),
            jobs_due=t.now,
            registrations_due=t.now,
            jobs_asked=None,
            registrations_asked=None,
            jobs_listed=None,
            silent=None,
            why="",
            next_try=0,
            denied_until=0,
        )
        scopes.keep(t, scope_row)
        scopes.list_if_due(t, scope)


def on_slept(t: Turn, event: MachineSlept) -> None:
    """The machine was suspended: nothing ran meanwhile, and whatever was told is missed.

    As after a start everything is listed, and the rules that rest on silence rest until each runner was looked
    at. What was under way gets the time that it slept through: neither a boot nor an end is late by it.
    """
    t.note("warning", "the machine slept; everything is looked at anew", ms=event.by_ms)
    t.set_meta("booted", t.now)
    for row in sorted(t.state.runners.values(), key=lambda runner: runner.order):
        if row.state not in FINAL:
            t.put_runner(_woken(row, t.now, event.by_ms))
    for _, host in sorted(t.state.hosts.items()):
        listings.ask_environments(t, t.put_host(replace(host, due=t.now)))
    for scope in _used_scopes(t):
        row_now = t.state.scope(scope)
        again = {"jobs_due": t.now, "registrations_due": t.now, "jobs_listed": None}
        scopes.keep(t, replace(row_now, next_try=min(row_now.next_try, t.now), **again))
        scopes.list_if_due(t, scope)


def _woken(row: Runner, now: int, slept: int) -> Runner:
    if row.gate is not None:
        row = replace(row, gate=replace(row.gate, deadline=row.gate.deadline + slept))
    if row.state in UNDER_WAY:
        return replace(row, since=min(now, row.since + slept))
    return replace(row, adopted=True, seen_after_start=row.environment is None)


def _used_scopes(t: Turn) -> list[Scope]:
    """Return the scopes that are listed: of pools that are configured, and of runners that outlive theirs."""
    return sorted({row.pool.scope for row in t.state.pools.values() if t.state.uses(row.pool.scope)})


def configure(t: Turn, setup: Setup, held: tuple[tuple[str, str], ...]) -> None:
    """Take in a configuration: pools and hosts that are no longer there keep what they have."""
    missing = dict(held)
    setup = replace(setup, access=tuple(sorted(setup.access, key=lambda row: row.forge)))
    access.take_in(t, setup)
    t.configure(setup)
    pools = {pool.name: pool for pool in setup.pools}
    for name, row in sorted(t.state.pools.items()):
        if name not in pools and row.configured:
            t.put_pool(replace(row, configured=False))
    for name, pool in sorted(pools.items()):
        kept = t.state.pools.get(name)
        fresh = PoolRow(pool) if kept is None else replace(kept, pool=pool, configured=True)
        fresh = replace(fresh, missing=missing.get(name, ""), refused=None)
        t.put_pool(replace(fresh, failures=0, exits=0, not_before=0, why=""))
        if kept is not None and kept.pool.labels != pool.labels:
            supply.relabel(t, pool, kept.pool.labels)
    hosts = {host.name: host for host in setup.hosts}
    for name, host_row in sorted(t.state.hosts.items()):
        if name not in hosts and host_row.configured:
            t.put_host(replace(host_row, configured=False))
    for name, host in sorted(hosts.items()):
        known = t.state.hosts.get(name)
        t.put_host(
            HostRow(name, host.slots) if known is None else replace(known, slots=host.slots, configured=True)
        )
    for rule in (rule for rule in Rule if rule is not Rule.ENDED):
        t.count("nominations_total", 0, rule=rule.value)
    for pool in setup.pools:
        t.count("dispatches_total", 0, pool=pool.name)
        t.count("wasted_dispatches_total", 0, pool=pool.name)
    demand.relink(t)
    access.review(t)


def _at_rest(t: Turn, row: Runner) -> bool:
    """Say whether nothing but its end as a row is still to come: most of what a restart finds."""
    owed = row.unregister or row.cleanup or row.consumes or row.leak is not None
    owed = owed or t.now - row.since >= t.policy.gone_kept  # that end came while nobody was there
    return row.state is S.GONE and not owed


def _resume(t: Turn, row: Runner, *, same_boot: bool) -> None:
    """Bring one row into the new process life, from its written state alone."""
    if _at_rest(t, row):
        return
    t.touch((row.id,))  # moments of it may have passed while nobody was there
    row = replace(row, gate=None, asked=None, fence=replace(row.fence, retry=min(row.fence.retry, t.now)))
    if row.state in FINAL:
        if not same_boot and row.state is S.ABANDONED:
            lifecycle.end(t, replace(row, cleanup=True), "the machine was restarted")
        else:
            t.put_runner(row)
        return
    row = replace(row, adopted=True, seen_after_start=False, shown_ended=None)
    if row.state is S.RETIRING:
        row = replace(row, since=t.now)  # its permit is void, and its limit counts from the next one
    if row.state is S.PLANNED:
        lifecycle.end(t, row, "planned, and undone when the daemon was started again")
    elif row.state is S.REGISTERING:
        lifecycle.look_up_name(t, t.put_runner(row))
    elif not same_boot and row.environment is not None:
        left = lifecycle.still_registered(row)
        lifecycle.end(t, replace(row, unregister=left, cleanup=True), "the machine was restarted")
    else:
        t.put_runner(row)
