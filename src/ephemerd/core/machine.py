"""The core: `handle(event, now) -> Step`, and nothing that touches the world.

Every turn is: take the event in, then settle (match what changed, plan, look at whoever was touched)
until nothing changes any more, then set the moments at which the touched ones want to be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ephemerd.core import (
    access,
    boot,
    codec,
    demand,
    examine,
    gate,
    jobs,
    lifecycle,
    listings,
    orders,
    provisioning,
    reconfigure,
    scopes,
    signs,
    supply,
)
from ephemerd.core import events as ev
from ephemerd.core.state import Rows, State, load
from ephemerd.core.step import Step
from ephemerd.core.turn import Turn, job_moment
from ephemerd.domain.ids import JobKey, RunnerId, parse_job_key

RULES = "1"
"""Version of the rules: a journal segment is replayed by the rules that wrote it."""

MOST_ROUNDS = 200
"""A turn that has not settled after so many rounds never will: that is a bug, and is said so."""


class Unsettled(Exception):
    """A turn went round and round; the message names the runners that kept changing."""


class Core:
    """The whole scheduler as one value. `now` is in ms and never goes back."""

    def __init__(self, rows: Rows | None = None, now: int = 0) -> None:
        """Build a core from decoded rows (kind -> id -> row) as they stood at `now` (ms)."""
        self.state: State = load(rows or {})
        if rows:
            rearm(Turn(self.state, now))

    def handle(self, event: ev.Event, now: int) -> Step:
        """Take in one event and return everything that follows from it."""
        t = Turn(self.state, now)
        handler = HANDLERS.get(type(event))
        if handler is None:
            t.concern(event.runner)  # type: ignore[union-attr]
            handler = ANSWERS[type(event)]
        handler(t, event)
        self._settle(t)
        return t.step()

    def next_wake(self) -> int | None:
        """Return when the core wants a `Woke` (ms), or None."""
        return self.state.agenda.next()

    def cordoned(self, pool: str) -> bool:
        """Say whether nothing is planned in a pool because a person asked."""
        row = self.state.pools.get(pool)
        host = self.state.hosts.get(row.pool.host) if row is not None else None
        return bool(
            self.state.meta.get("cordoned") or (row and row.cordoned) or (host is not None and host.cordoned)
        )

    def draining(self) -> bool:
        """Say whether the whole daemon drains."""
        return bool(self.state.meta.get("draining"))

    def checkpoint(self) -> dict[str, Any]:
        """Return all rows in plain form, from which `Core(rows)` builds an equal core."""
        state = self.state
        rows: dict[str, dict[str, Any]] = {
            "access": {row.forge: codec.encode_row("access", row) for row in state.setup.access},
            "runner": {name: codec.encode_row("runner", row) for name, row in state.runners.items()},
            "job": {str(key): codec.encode_row("job", row) for key, row in state.jobs.items()},
            "scope": {name: codec.encode_row("scope", row) for name, row in state.scopes.items()},
            "pool": {name: codec.encode_row("pool", row) for name, row in state.pools.items()},
            "host": {name: codec.encode_row("host", row) for name, row in state.hosts.items()},
            "class": {name: codec.encode_row("class", row) for name, row in state.classes.items()},
            "counter": {name: codec.encode_row("counter", value) for name, value in state.counters.items()},
            "policy": {"policy": codec.encode_row("policy", state.policy)},
            "meta": {name: codec.encode_row("meta", value) for name, value in state.meta.items()},
        }
        return {"rules": RULES, "rows": rows}

    def _settle(self, t: Turn) -> None:
        """Match, plan and examine in rounds, the last of which changes nothing: whatever makes it necessary to match
        again is counted by `stirred`."""
        state, index = t.state, t.state.index
        looked: dict[RunnerId, None] = {}
        planned = -1
        for _ in range(MOST_ROUNDS):
            if index.dirty_groups or index.dirty_varieties or index.advanced:
                supply.settle(t)
            settled = t.stirred
            if (index.unmatched or state.spared) and settled != planned:
                provisioning.provision(t)
                planned = t.stirred
            if t.touched:
                touched, t.touched = t.touched, {}
                for name in touched if len(touched) < 2 else _in_order(t, touched):
                    examine.examine(t, name)
                looked |= touched
            if t.stirred == settled and not t.touched:
                break
        else:
            raise Unsettled(f"no end at {t.now}: {', '.join(sorted(t.touched)[:5])}")
        agenda, runners = state.agenda, state.runners
        for name in looked:
            row = runners.get(name)
            if row is not None:
                agenda.set("runner", name, examine.next_look(t, row))


def _in_order(t: Turn, names: Iterable[RunnerId]) -> list[RunnerId]:
    """Return runners in the order in which they were made."""
    runners = t.state.runners
    return sorted(names, key=lambda name: (runners[name].order if name in runners else 0, name))


def rearm(t: Turn) -> None:
    """Derive what is not in the rows: which pool serves which class, and every moment of the agenda."""
    state = t.state
    demand.relink(t)
    supply.derive(t)
    for row in state.runners.values():
        state.agenda.set("runner", row.id, examine.next_look(t, row))
    now, policy = t.now, t.policy
    for job in state.jobs.values():
        if job.asked is None and job.ask_again is None and job.not_before <= now:
            continue  # nearly all of them are over
        state.agenda.set("job", str(job.key), job_moment(job, policy, now))
    for scope in state.scopes.values():
        scopes.schedule(t, scope)
    for host in state.hosts.values():
        listings.schedule(t, host)
    for name in state.pools:
        lifecycle.schedule_pool(t, name)
    if "sweep" in state.meta:
        state.agenda.set("sweep", "", int(state.meta["sweep"]))


def _scope_answered(t: Turn, event: ev.ScopeAnswered) -> None:
    if event.limited_until is not None:
        scopes.limit_said(t, event.scope, event.limited_until)
    else:
        scopes.note_answer(t, event.scope, None)


def _due(t: Turn) -> None:
    """The time has come for whoever set it."""
    for kind, name in t.state.agenda.due(t.now):
        if kind == "runner":
            t.touch((RunnerId(name),))
        elif kind == "job":
            _job_due(t, parse_job_key(name))
        elif kind == "scope":
            scopes.due(t, t.state.scopes[name])
        elif kind == "host":
            listings.ask_environments(t, t.state.hosts[name])
        elif kind == "sweep":
            orders.touch_live(t)
            jobs.prune(t)
            t.set_meta("sweep", t.now + t.policy.nominate_every)
            t.state.agenda.set("sweep", "", t.now + t.policy.nominate_every)


def _job_due(t: Turn, key: JobKey | None) -> None:
    job = t.state.jobs.get(key) if key is not None else None
    if job is not None:
        jobs.due(t, job)


def _reconfigured(t: Turn, event: ev.Reconfigured) -> None:
    reconfigure.on_reconfigured(t, event)
    _due(t)  # of a moment that is over the rows do not tell whether it was looked at
    rearm(t)


Handler = Callable[[Turn, Any], None]

HANDLERS: dict[type, Handler] = {
    ev.JobReported: jobs.on_reported,
    ev.SignSeen: signs.on_sign,
    ev.Woke: lambda t, _: _due(t),
    ev.ClockStepped: lambda t, _: _due(t),
    ev.Booted: boot.on_booted,
    ev.MachineSlept: boot.on_slept,
    ev.Reconfigured: _reconfigured,
    ev.JobLookedUp: jobs.on_looked_up,
    ev.RunLookedUp: access.on_run_looked_up,
    ev.ScopeAnswered: _scope_answered,
    ev.ApplicationTold: lifecycle.on_application,
    ev.CordonOrdered: orders.on_cordon,
    ev.DrainOrdered: orders.on_cordon,
    ev.UncordonOrdered: orders.on_uncordon,
    ev.KillOrdered: orders.on_kill,
    ev.SweepOrdered: lambda t, _: orders.touch_live(t),
    ev.EnvironmentsListed: listings.on_environments,
    ev.RegistrationsListed: listings.on_registrations,
    ev.JobsRead: jobs.on_read,
    ev.JobsListed: listings.on_jobs,
}
"""What takes in each kind of event."""

ANSWERS: dict[type, Handler] = {
    ev.Registered: lifecycle.on_registered,
    ev.RegistrationFailed: lifecycle.on_registration_failed,
    ev.NameLookedUp: lifecycle.on_name_looked_up,
    ev.EnvironmentStarted: lifecycle.on_started,
    ev.StartFailed: lifecycle.on_start_failed,
    ev.EnvironmentExited: lifecycle.on_exited,
    ev.Probed: gate.on_probed,
    ev.RunnerLookedUp: lifecycle.on_looked_up,
    ev.FenceAnswered: gate.on_fence,
    ev.EnvironmentDestroyed: lifecycle.on_destroyed,
    ev.DestroyFailed: lifecycle.on_destroy_failed,
}
"""What takes in each kind of answer about one runner, which the event names."""
