"""What really runs and what is really registered, against the rows: adoption, losses and leaks.

Absence from a list of registrations proves nothing. An environment counts as lost only when two complete
listings, a minute apart, miss it, and a look at itself finds nothing either: the runtime or engine that it lives
in may not be configured any more, and then no listing shows a job that runs. What bears our tag and has no row is
held on to first, and may be nominated as leaked when it was seen twice.
"""

from __future__ import annotations

from msgspec.structs import replace

from ephemerd.core import gate, jobs, lifecycle, scopes, verdicts
from ephemerd.core.commands import ListEnvironments, WatchRunner
from ephemerd.core.events import (
    EnvironmentExited,
    EnvironmentsListed,
    FoundEnvironment,
    FoundRegistration,
    JobsListed,
    RegistrationsListed,
)
from ephemerd.core.rows import HostRow
from ephemerd.core.turn import Turn
from ephemerd.domain.ids import RunnerId, Scope, is_ours
from ephemerd.domain.runner import Runner, S

LISTING_LIMIT = 120_000


def ask_environments(t: Turn, row: HostRow) -> None:
    """List a host's environments where that is due."""
    if row.asked is not None and t.now - row.asked < LISTING_LIMIT:
        return
    if t.now >= row.due and row.configured:
        row = t.put_host(replace(row, asked=t.now, due=t.now + t.policy.reconcile_every))
        t.send(ListEnvironments(row.name))
    schedule(t, row)


def schedule(t: Turn, row: HostRow) -> None:
    """Set when the host wants the next look."""
    at = row.due if row.asked is None else max(row.due, row.asked + LISTING_LIMIT)
    t.state.agenda.set("host", row.name, at if row.configured and at > t.now else None)


def on_environments(t: Turn, event: EnvironmentsListed) -> None:
    """Compare what runs on a host with the rows."""
    host = t.state.hosts.get(event.host)
    if host is None:
        return
    again = False
    for found in event.found:
        again = _found(t, found, event.host) or again
    if event.complete:
        present = {found.runner: None for found in event.found}
        again = _absent(t, event.host, present) or again
        host = replace(host, listed=t.now)
    due = min(host.due, t.now + t.policy.look_again) if again else host.due
    # A listing that took longer than the time between two is due again at once, else nobody would ask any more.
    ask_environments(t, t.put_host(replace(host, asked=None, due=due)))


def _found(t: Turn, found: FoundEnvironment, host: str) -> bool:
    """Take in one environment; return whether the host is to be listed again soon."""
    row = t.runner(found.runner)
    if row is None:
        _adopt(t, found, host)
        return True
    if row.state is S.GONE:
        if found.ended:
            if not row.cleanup or row.environment is None:
                gate.clean_up(t, t.change_runner(row, environment=found.environment, cleanup=True))
            return False
        if row.cleanup:
            return False
        _adopt(t, found, host, registration=row.registration, order=row.order)
        return True
    if row.environment is None:
        if row.state in (S.PLANNED, S.REGISTERING):
            return False
        row = t.change_runner(row, environment=found.environment)
    was_missed = row.absent is not None
    if was_missed:
        row = t.change_runner(row, absent=None)
    if found.ended:
        return _ended(t, row, found)
    unheard = t.state.hosts[host].listed is None  # a probe may have answered before the first listing did
    if row.adopted and (unheard or not row.seen_after_start):
        t.send(WatchRunner(row.id, row.pool, row.environment or ""))
        t.touch((row.id,))
        if row.state is S.RETIRING and row.cleanup:
            gate.end_leftovers(t, row, "it had left processes when this process life began")
        elif row.state is S.RETIRING and row.gate is None:
            gate.again_from_retiring(t, row, "this process life began while it was being destroyed")
    elif row.adopted and was_missed:
        # Perhaps by the first listing of all, after which nobody would follow it.
        t.send(WatchRunner(row.id, row.pool, row.environment or ""))
    if row.leak is not None and row.leak_again is None:
        if t.now - row.leak < t.policy.look_again:
            return True
        t.change_runner(row, leak_again=t.now)
    return False


def _ended(t: Turn, row: Runner, found: FoundEnvironment) -> bool:
    """A listing shows that it ended. Whoever follows it tells what its files say and then the exit; of one that
    nobody in this life has followed yet, that is asked for first: an end without the signs before it reads as
    one without a job, and the job that it did would be given another runner. Where nothing comes of that, the
    listing's word holds."""
    exited = EnvironmentExited(row.id, found.code, found.leftovers)
    if row.state is S.ABANDONED:
        lifecycle.on_exited(t, exited)
    elif not row.adopted:
        return False
    elif row.shown_ended is None:
        row = t.change_runner(row, shown_ended=t.now)
        t.send(WatchRunner(row.id, row.pool, found.environment))
        return True
    elif t.now - row.shown_ended < t.policy.confirm_after:
        return True
    else:
        lifecycle.on_exited(t, exited)
    return False


def _adopt(
    t: Turn, found: FoundEnvironment, host: str, registration: int | None = None, order: int | None = None
) -> None:
    """Hold on to an environment of ours that has no row: it keeps a slot until it is proven idle twice."""
    pool = found.pool if found.pool in t.state.pools else _any_pool(t, host)
    if pool is None:
        t.note("warning", "an environment bears our tag and no pool is configured", runner=found.runner)
        return
    t.note("warning", "an environment that the store does not know is held on to", runner=found.runner)
    row = t.put_runner(
        Runner(
            id=found.runner,
            pool=pool,
            host=host,
            scope=t.state.pool(pool).scope,
            order=order if order is not None else t.draw("runner"),
            state=S.STUCK,
            since=t.now,
            created=t.now,
            registration=registration,
            environment=found.environment,
            started=t.now,
            stuck="the store does not know it; it goes when it was seen twice and is proven idle",
            adopted=True,
            seen_after_start=False,
            leak=t.now,
        )
    )
    scopes.list_if_due(t, row.scope)  # nobody may have used it until now
    if found.ended:
        lifecycle.on_exited(t, EnvironmentExited(row.id, found.code, found.leftovers))
    else:
        t.send(WatchRunner(row.id, pool, found.environment))


def _any_pool(t: Turn, host: str) -> str | None:
    for name in sorted(t.state.pools):
        if t.state.pools[name].pool.host == host:
            return name
    return None


def _absent(t: Turn, host: str, present: dict[RunnerId, None]) -> bool:
    again = False
    for row in _of_host(t, host):
        if row.id in present or not _has_environment(row):
            continue
        if row.absent is None:
            t.change_runner(row, absent=t.now)
            again = True
        elif t.now - row.absent < t.policy.look_again:
            again = True
        elif row.environment is not None:
            t.send(WatchRunner(row.id, row.pool, row.environment))
            again = True
        else:
            t.note("warning", "an environment is gone without a word", runner=row.id)
            left = lifecycle.still_registered(row)
            lifecycle.end(t, replace(row, unregister=left), "its environment was lost")
    return again


def _has_environment(row: Runner) -> bool:
    """Say whether a listing should show it: it was started, or a sign of it was heard."""
    if row.environment is not None:
        return True
    return row.state not in (S.PLANNED, S.REGISTERING) and (row.adopted or row.state is not S.STARTING)


def _of_host(t: Turn, host: str) -> list[Runner]:
    """Return the runners that have, or may have, an environment on a host: a pool may have moved since."""
    live = (t.state.runners[name] for members in t.state.index.live.values() for name in members)
    found = [row for row in live if row.host == host]
    if t.state.index.abandoned.get(host):
        everyone = t.state.runners.values()
        found.extend(row for row in everyone if row.state is S.ABANDONED and row.host == host)
    return sorted(found, key=lambda row: row.order)


def on_registrations(t: Turn, event: RegistrationsListed) -> None:
    """Find registrations that bear our store's id and have no environment."""
    scopes.note_answer(t, event.scope, event.fault)
    scopes.keep(t, replace(t.state.scope(event.scope), registrations_asked=None))
    if event.fault is None:
        for found in event.found:
            if is_ours(found.name, t.state.store):
                _registration(t, event.scope, found)
    scopes.list_if_due(t, event.scope)


def _registration(t: Turn, scope: Scope, found: FoundRegistration) -> None:
    row = t.runner(RunnerId(found.name))
    if row is not None and not found.busy:
        verdicts.doubt_flag(t, row)
    if row is None:
        pool = next((n for n in sorted(t.state.pools) if t.state.pools[n].pool.scope == scope), None)
        if pool is None:
            return
        t.note(
            "warning",
            "a registration of ours has no runner",
            name=found.name,
            registration=found.registration,
        )
        t.put_runner(
            Runner(
                id=RunnerId(found.name),
                pool=pool,
                host=t.state.pool(pool).host,
                scope=scope,
                order=t.draw("runner"),
                state=S.GONE,
                since=t.now,
                created=t.now,
                registration=found.registration,
                leak=t.now,
                ending="known by its registration alone",
            )
        )
    elif row.state is S.GONE and not row.unregister and row.leak is None:
        t.change_runner(row, registration=found.registration, leak=t.now, leak_again=None)
    elif row.registration is None and row.state in (S.STUCK, S.LISTENING, S.ASSIGNED, S.RUNNING, S.FINISHING):
        t.change_runner(row, registration=found.registration)  # an adopted one: now its fence can be asked


def on_jobs(t: Turn, event: JobsListed) -> None:
    """A scope's queued and running jobs were read; each came as a report before this.

    Where only some of its repositories were read, the others' jobs stay as they are, and the scope counts as
    listed only as far as the event says it of all.
    """
    scopes.note_answer(t, event.scope, event.fault)
    before = t.state.scope(event.scope)
    row = before
    if event.fault is None:
        row = scopes.heard(t, row, active=event.jobs > 0 or event.lively)
        listed = t.now if event.repositories is None else event.as_of
        if listed is not None and listed >= t.state.booted:
            row = replace(row, jobs_listed=listed)
    scopes.keep(t, replace(row, jobs_asked=None))
    if event.fault is None and before.jobs_asked is not None:
        jobs.ask_unlisted(t, event.scope, before.jobs_asked, event.repositories)
    t.touch(runner.id for runner in t.state.live_of_scope(event.scope))
    scopes.list_if_due(t, event.scope)
