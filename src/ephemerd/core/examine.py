"""A runner is looked at: whatever is due for it by its state, its age and its surroundings happens.

Idempotent: a second look at the same moment changes nothing. A runner is looked at when its row or its
matching changed and at each moment that `next_look` gives, so that no deadline needs a timer of its own and a
stale one does not exist.
"""

from __future__ import annotations

from collections.abc import Callable

from ephemerd.core import gate, holding, lifecycle, nominate, scopes, signs
from ephemerd.core.asking import ask
from ephemerd.core.commands import ProbeRunner
from ephemerd.core.index import Group, is_supply, variety_of
from ephemerd.core.turn import Turn
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import J
from ephemerd.domain.runner import FINAL, GatePhase, Runner, RunnerState, S

ASKED_ONE_BY_ONE = 16
"""So many jobs of a class are asked about for a runner whose job has no name: a queue of thousands would
else cost as many requests."""

STUCK_ASSIGNED = "a job was offered and acknowledged, and nothing followed"
STUCK_NO_WORKER = "a job was announced, and no worker was ever seen"
STUCK_WORKER = "its job is over at the forge, and its worker lives on"


def examine(t: Turn, name: RunnerId) -> None:
    """Do whatever is due for a runner now."""
    runners = t.state.runners
    row = runners.get(name)
    if row is None:
        return
    if row.asked is not None and t.now - row.asked >= gate.QUESTION_LIMIT:
        row = t.change_runner(row, asked=None)
    if row.consumes:
        _consumption(t, row)
        row = runners[name]
    if row.state in FINAL:
        _tidy(t, row)
        return
    if row.gate is not None:
        gate.on_deadline(t, row)
        row = runners[name]
    limit = LIMITS.get(row.state)
    if limit is not None:
        row = limit(t, row)
        if row is None:
            return
    if row.adopted or row.lost is not None or row.state is S.LISTENING:
        _ask_what_is_open(t, row)
        row = runners[name]
    if row.gate is not None or t.now < row.vetoed_until:
        return
    if row.asked is not None and not row.seen_after_start:  # one probe at a time
        return
    found = nominate.nominee(t, row)
    if found is not None:
        gate.begin(t, row, *found)


def _planned(t: Turn, row: Runner) -> Runner | None:
    if t.now - row.since < t.policy.planned_limit:
        return row
    lifecycle.end(t, row, "planned, and nothing was done about it")
    return None


def _registering(t: Turn, row: Runner) -> None:
    if t.now - row.since >= t.policy.registering_limit:
        lifecycle.look_up_name(t, row)


def _starting(t: Turn, row: Runner) -> Runner:
    if t.now - row.since >= t.policy.provision_limit and not row.late:
        return t.change_runner(row, late=True, stuck="it does not begin to listen")
    return row


def _assigned(t: Turn, row: Runner) -> Runner:
    last = row.soft_last if row.soft_last is not None else row.since
    if t.now - last >= t.policy.soft_sign_life and row.hard is None:
        return signs.lapse(t, row)
    if t.now - row.since >= t.policy.assigned_stuck and not row.stuck:
        return lifecycle.look_up(t, t.change_runner(row, stuck=STUCK_ASSIGNED))
    return row


def _running(t: Turn, row: Runner) -> Runner:
    if row.worker is None and row.job is None:
        began = row.hard if row.hard is not None else row.since
        if not row.stuck and t.now - began >= t.policy.no_worker_stuck:
            return t.change_runner(row, stuck=STUCK_NO_WORKER)
    elif row.stuck == STUCK_NO_WORKER:
        return t.change_runner(row, stuck="")
    return row


def _finishing(t: Turn, row: Runner) -> Runner:
    if row.over is not None and t.now - row.over >= t.policy.stuck_after and not row.stuck:
        return t.change_runner(row, stuck=STUCK_WORKER)
    return row


def _retiring(t: Turn, row: Runner) -> None:
    destroying = row.gate is None or row.gate.phase is GatePhase.DESTROYING
    if t.now - row.since >= t.policy.retiring_limit and destroying:
        lifecycle.abandon(t, row, "no end within the limit")


LIMITS: dict[RunnerState, Callable[[Turn, Runner], Runner | None]] = {
    S.PLANNED: _planned,
    S.REGISTERING: _registering,
    S.STARTING: _starting,
    S.ASSIGNED: _assigned,
    S.RUNNING: _running,
    S.FINISHING: _finishing,
    S.RETIRING: _retiring,
}
"""What applies the limit of a state; it returns the row as it is then, or None where the runner is none to nominate."""


def _ask_what_is_open(t: Turn, row: Runner) -> None:
    """Look the registration up where a rule or a restart wants to know of it."""
    if row.adopted and not row.seen_after_start and row.environment is not None and row.asked is None:
        if row.gate is None and t.state.pool(row.pool).probes:
            _look_inside(t, row)
        elif not t.state.pool(row.pool).probes:
            t.change_runner(row, seen_after_start=True)
        return
    if row.lost is not None and row.lost_again is None:
        if t.now - row.lost >= t.policy.look_again and t.now >= row.vetoed_until:
            lifecycle.look_up(t, row)
    elif row.state is S.LISTENING and row.surplus_since is None:
        _untaken(t, row)


def _untaken(t: Turn, row: Runner) -> None:
    """It listens and is not left over: look it up once; where it is supply, hold its classes back."""
    if t.now - max(row.listening or 0, row.since) < t.policy.hold_after:
        return
    if is_supply(row):
        holding.untaken(t, row)
    if row.untaken is None and row.lost is None and t.now >= row.vetoed_until:
        lifecycle.look_up(t, row)


def _look_inside(t: Turn, row: Runner) -> None:
    token = t.draw("token")
    t.change_runner(row, asked=t.now, token=token)
    t.send(ProbeRunner(row.id, row.pool, row.environment or "", token))


def _consumption(t: Turn, row: Runner) -> None:
    """A bound runner whose job has no name stands for a unit of demand, until a limit or an answer."""
    if row.hard is None:
        if t.now - (row.soft_last or 0) >= t.policy.nameless_soft:
            t.change_runner(row, consumes=False)
    elif t.now >= signs.telling_from(t, row):
        _who_is_it(t, row)


def _who_is_it(t: Turn, row: Runner) -> None:
    """Ask about the oldest waiting job that could be the one; release the runner when none is left.

    A job that the forge called waiting `confirm_after` or more after the sign is not the one. Only the
    oldest of a class are asked about one by one; of the others the next listing tells all at once. Where
    the forge could not say, the question comes again in its time, and its answer serves here, too.
    """
    certain = signs.telling_from(t, row)
    listed = t.state.scope(row.scope).jobs_listed
    for group in _candidates(t, row):
        for place, key in enumerate(group.queued):
            if place >= ASKED_ONE_BY_ONE:
                if listed is None or listed < certain:
                    return
                break
            job = t.state.jobs[key]
            if job.status is not J.QUEUED or job.confirmed >= certain:
                continue
            if job.asked is None and job.ask_again is None and scopes.is_open(t, row.scope):
                ask(t, job, "name")
            return
    t.change_runner(row, consumes=False)


def _candidates(t: Turn, row: Runner) -> list[Group]:
    takers = t.state.index.takers.get(variety_of(row), ())
    return [t.state.index.groups[name] for name in sorted(name for _, name in takers)]


def _tidy(t: Turn, row: Runner) -> None:
    """What is still to be done for a runner that is gone: remains, registration, at last the row."""
    if row.unregister:
        gate.take_back(t, row)
        row = t.state.runners[row.id]
    if row.state is not S.GONE:
        return
    if row.cleanup and row.environment is not None:
        if t.now >= row.vetoed_until:
            gate.clean_up(t, row)
        return
    if row.unregister:
        return
    if row.leak is not None and row.leak_again is None and row.registration is not None:
        if t.now - row.leak >= t.policy.look_again and t.now >= row.vetoed_until:
            lifecycle.look_up(t, row)
        return
    if not row.consumes and t.now - row.since >= t.policy.gone_kept:
        t.drop_runner(row)


def next_look(t: Turn, row: Runner) -> int | None:
    """Return the next moment at which something can become due for the runner as it stands."""
    policy, fence = t.policy, row.fence
    found = MOMENTS[row.state](t, row)
    if row.asked is not None:
        found.append(row.asked + gate.QUESTION_LIMIT)
    if row.consumes:
        nameless = (row.soft_last or 0) + policy.nameless_soft
        found.append(nameless if row.hard is None else signs.telling_from(t, row))
    if row.unregister:
        found.append(fence.retry)
    if row.state not in FINAL:
        if fence.retry:
            found.append(fence.retry)
        if fence.missing is not None:
            found.append(fence.missing + policy.look_again)
        if row.lost is not None:
            found.append(row.lost + policy.look_again)
        if row.gate is not None:
            found.append(row.gate.deadline)
        if row.vetoed_until:
            found.append(row.vetoed_until)
        if row.adopted:
            found.append(t.state.booted + t.state.pool(row.pool).orphan_grace)
        if row.soft_last is not None:
            found.append(row.soft_last + policy.soft_sign_life)
    if not found:
        return None
    first, now = min(found), t.now
    return first if first > now else min((moment for moment in found if moment > now), default=None)


def _moments_of_listener(t: Turn, row: Runner) -> list[int]:
    if row.listening is None:
        return []
    policy, pool, begun = t.policy, t.state.pool(row.pool), max(row.listening, row.since)
    found = [
        nominate.idle_from(row) + pool.orphan_grace,
        begun + policy.hold_after,
        begun + policy.displaced_after,
        begun + pool.orphan_grace,
    ]
    if pool.min_idle > 0:
        found.append(begun + policy.max_idle_age)
    if row.surplus_since is not None:
        found.append(row.surplus_since + pool.surplus_grace)
    return found


def _moments_of_assigned(t: Turn, row: Runner) -> list[int]:
    last = row.soft_last if row.soft_last is not None else row.since
    return [row.since + t.policy.assigned_stuck, last + t.policy.soft_sign_life]


def _moments_of_running(t: Turn, row: Runner) -> list[int]:
    if row.hard is None:
        return []
    found, limit = [row.hard + t.policy.no_worker_stuck], t.state.pools[row.pool].pool.job_timeout
    if limit is not None:
        found.append(row.hard + limit)
        if row.stopping is not None:
            found.append(row.stopping + t.policy.overdue_grace)
    return found


def _moments_of_finishing(t: Turn, row: Runner) -> list[int]:
    found = [row.since + t.policy.exit_grace]
    if row.over is not None:
        found.append(row.over + t.policy.stuck_after)
    return found


def _moments_of_stuck(t: Turn, row: Runner) -> list[int]:
    return [row.since + t.state.pool(row.pool).orphan_grace] if nominate.is_kept(row) else []


def _moments_of_remains(t: Turn, row: Runner) -> list[int]:
    found = [row.since + t.policy.gone_kept]
    if row.cleanup or row.leak is not None:
        found.append(row.vetoed_until)
    if row.leak is not None:
        found.append(row.leak + t.policy.look_again)
    return found


MOMENTS: dict[RunnerState, Callable[[Turn, Runner], list[int]]] = {
    S.PLANNED: lambda t, row: [row.since + t.policy.planned_limit],
    S.REGISTERING: lambda t, row: [row.since + t.policy.registering_limit],
    S.STARTING: lambda t, row: [row.since + t.policy.provision_limit],
    S.LISTENING: _moments_of_listener,
    S.ASSIGNED: _moments_of_assigned,
    S.RUNNING: _moments_of_running,
    S.FINISHING: _moments_of_finishing,
    S.RETIRING: lambda t, row: [row.since + t.policy.retiring_limit],
    S.STUCK: _moments_of_stuck,
    S.ABANDONED: _moments_of_remains,
    S.GONE: _moments_of_remains,
}
"""What gives the moments at which the limit of a state, or a rule that nominates in it, could begin to hold; some may
be over."""
