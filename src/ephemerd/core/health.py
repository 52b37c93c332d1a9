"""Is it well? `ok`, `degraded` (works, needs attention) or `stuck` (demand does not move), with reasons
that say what to do."""

from __future__ import annotations

from collections.abc import Iterator

from ephemerd.core.index import Group
from ephemerd.core.spans import span
from ephemerd.core.state import State
from ephemerd.core.validate import slot_difference
from ephemerd.core.waiting import not_served
from ephemerd.domain.ids import JobKey
from ephemerd.domain.runner import LIVE, Runner, RunnerState
from ephemerd.domain.value import Value


class Health(Value, frozen=True):
    """status is "ok", "degraded" or "stuck"; each reason is one sentence that says what to do."""

    status: str
    reasons: tuple[str, ...]


def assess(state: State, now: int) -> Health:
    """Judge the state at `now` (ms). What only the shell knows (heartbeats, quarantine) it adds itself."""
    stuck = [*_abandoned(state), *_no_progress(state, now)]
    forge = [*_scopes(state, now), *_pools(state), *_untaken(state, now), *_unserved(state)]
    degraded = [*forge, *_odd(state), *_unseen(state, now)]
    status = "stuck" if stuck else "degraded" if degraded else "ok"
    return Health(status, (*stuck, *degraded))


def _abandoned(state: State) -> Iterator[str]:
    for host, count in sorted(state.index.abandoned.items()):
        if count >= state.policy.abandoned_limit:
            yield (
                f"Host {host} takes no new work: {count} environments would not die. End them by hand "
                "(`ephemerd runners` lists them as abandoned); work resumes by itself."
            )


def _no_progress(state: State, now: int) -> Iterator[str]:
    """Demand older than `stuck_after` that a slot would serve, and nothing taken or finished meanwhile."""
    if now - _last_progress(state, now) < state.policy.stuck_after:
        return
    for group, oldest in _served(state):
        age = now - state.jobs[oldest].first_seen
        if age >= state.policy.stuck_after and _slot_would_serve(state, group):
            yield (
                f"Job {oldest} has waited {age // 60_000} min while a slot could serve it and nothing "
                f"moved: run `ephemerd explain {oldest.id}`."
            )
            return


def _last_progress(state: State, now: int) -> int:
    last = state.booted
    for row in state.runners.values():
        for mark in (row.hard, row.over):
            if mark is not None and mark > last:
                last = mark
    return min(last, now)


def _slot_would_serve(state: State, group: Group) -> bool:
    for name in group.pools:
        host = state.pools[name].pool.host
        if state.slots_free(host) > 0:
            return True
        for other in state.pools:
            if state.pools[other].pool.host != host:
                continue
            for runner in state.index.live.get(other, ()):
                if not _verified_busy(state.runners[runner]):
                    return True
    return False


def _verified_busy(row: Runner) -> bool:
    return row.state is RunnerState.RUNNING


def _served(state: State) -> Iterator[tuple[Group, JobKey]]:
    for name in sorted(state.index.groups):
        group = state.index.groups[name]
        oldest = group.queued.oldest()
        if oldest is not None and group.pools:
            yield group, oldest


def _scopes(state: State, now: int) -> Iterator[str]:
    for name, row in sorted(state.scopes.items()):
        if not state.uses(row.scope):
            continue
        if row.denied:
            yield (
                f"{name} refuses our credential ({row.denied}): renew the token or its permissions, or "
                "correct the scope. Nothing is destroyed meanwhile."
            )
        elif row.silent is not None:
            yield (
                f"{name} has given no answer for {span(now - row.silent)} ({row.why}): nothing is "
                "destroyed meanwhile, and work resumes by itself. Check the network, the forge's url and "
                "its status page."
            )
        elif row.limited_until > now:
            yield f"{name} limits our requests for another {(row.limited_until - now) // 1000} s: just wait."


def _pools(state: State) -> Iterator[str]:
    for name, row in sorted(state.pools.items()):
        if row.configured and row.failures > 0:
            yield f"Pool {name} could not make its last {row.failures} runner(s): {row.why}"
        if row.configured and row.missing:
            yield f"Pool {name} starts no runners: {row.missing}."
        if row.configured and row.refused is not None:
            yield (
                f"Pool {name}: the forge refuses the version of its runner application. One runner every "
                f"{span(state.policy.refused_retry)} finds out whether that is over; what runs is left alone. Give "
                "it a newer application, or image, and run `ephemerd reload`."
            )
        elif row.configured and row.exits >= state.policy.alarm_after_exits:
            yield (
                f"Pool {name}: {row.exits} runners in a row ended without a job, the last with {row.left}. "
                "Run `ephemerd explain` for one of them and look at its log."
            )


def _untaken(state: State, now: int) -> Iterator[str]:
    for name, kept in sorted(state.classes.items()):
        group = state.index.groups.get(name)
        oldest = group.queued.oldest() if kept.held and group is not None else None
        if group is None or oldest is None:
            continue
        if now - state.jobs[oldest].first_seen < state.policy.assigned_stuck:
            continue
        yield (
            f"Job {oldest} is matched but not taken: {_listener(state, group)} satisfies it and listens, and "
            "the forge does not give it the job. Check group access, public repositories, max-parallel and "
            "concurrency, and the labels as the forge shows them."
        )


def _listener(state: State, group: Group) -> str:
    """Name the runner that could take the class's jobs and has listened for the longest."""
    supply = (
        state.runners[name] for variety in group.varieties for name in state.index.supply.get(variety, ())
    )
    found = [(row.listening, row.order, str(row.id)) for row in supply if row.listening is not None]
    return f"runner {min(found, default=(0, 0, 'of ours'))[2]}"


def _unserved(state: State) -> Iterator[str]:
    for name in sorted(state.index.groups):
        group = state.index.groups[name]
        oldest = group.queued.oldest() if not group.pools and group.unmatched > 0 else None
        if oldest is not None and "self-hosted" in group.labels:
            why = not_served(state, state.jobs[oldest])
            yield f"Job {oldest} is not served: {why}. Add the label to a pool, or a pool for it."


def _unseen(state: State, now: int) -> Iterator[str]:
    """Nominated again and again, and no look could tell whether it works: it is kept, and a person may know."""
    for row in state.runners.values():
        if row.state not in LIVE or row.vetoes == 0 or row.state is RunnerState.RUNNING:
            continue
        seen = max(mark for mark in (row.known, row.started, row.created) if mark is not None)
        asked_lately = now - row.vetoed_until <= 2 * state.policy.veto_backoff_max
        if asked_lately and now - seen >= state.policy.stuck_after:
            yield (
                f"Runner {row.id} could not be looked into for {span(now - seen)} and is kept: are its folder and "
                f"its processes there? `ephemerd explain {row.id}` says what was tried; if it has no job, "
                f"`ephemerd kill {row.id} --even-if-busy` ends it."
            )


def _odd(state: State) -> Iterator[str]:
    difference = slot_difference(state)
    if difference:
        yield f"Slot accounting differs by {difference}: this is a bug; please report it with `ephemerd status`."
    for row in state.runners.values():
        if row.stuck and row.state is not RunnerState.ABANDONED and row.state is not RunnerState.GONE:
            yield f"Runner {row.id} is stuck ({row.stuck}): run `ephemerd explain {row.id}`."
