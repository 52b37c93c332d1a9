"""A runner's way from planned to gone, as the ports tell it. Nothing here destroys: that is the gate's."""

from __future__ import annotations

from msgspec.structs import replace

from ephemerd.core import backoff, gate, scopes, signs, verdicts
from ephemerd.core.commands import LookUpName, LookUpRunner, StartRunner
from ephemerd.core.events import (
    ApplicationTold,
    DestroyFailed,
    EnvironmentDestroyed,
    EnvironmentExited,
    EnvironmentStarted,
    NameLookedUp,
    Registered,
    RegistrationFailed,
    RunnerLookedUp,
    StartFailed,
)
from ephemerd.core.transitions import move_runner, next_state
from ephemerd.core.turn import Turn
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.exits import REFUSED_VERSION, in_words
from ephemerd.domain.runner import FINAL, GatePhase, Rule, Runner, S

REFUSED = "the forge refuses the version of its runner application"
ASK_AGAIN = 60_000
"""A look-up of a registration that got no answer goes out again after so many ms."""


def on_registered(t: Turn, event: Registered) -> None:
    """The forge knows the runner: start it, or take the registration back where it is wanted no more."""
    row = t.state.runners.get(event.runner)
    if row is None:
        return
    scopes.note_answer(t, row.scope, None)
    if row.state is not S.REGISTERING:
        if row.state is S.GONE:
            t.change_runner(row, registration=event.registration, unregister=True)
        return
    state = next_state(row, S.STARTING, t.now)
    t.put_runner(replace(row, state=state, since=t.now, started=t.now, registration=event.registration))
    t.send(StartRunner(row.id, row.pool))


def on_registration_failed(t: Turn, event: RegistrationFailed) -> None:
    """No registration, as far as is known. A POST is never repeated: the next try has another name."""
    row = t.runner(event.runner)
    if row is None:
        return
    scopes.note_answer(t, row.scope, event.fault)
    if row.state is not S.REGISTERING:
        return
    if event.taken is not None:
        end(
            t,
            replace(row, registration=event.taken, unregister=True),
            "the answer to its registration was lost",
        )
    elif event.fault.remedy is not Remedy.RETRY:  # else its name is looked up when the scope is tried again
        if event.fault.remedy is not Remedy.LIMITED and event.fault.remedy is not Remedy.DENIED:
            _failed(t, row, event.fault)
        end(t, row, f"not registered: {event.fault.detail}")


def look_up_name(t: Turn, row: Runner) -> None:
    """Ask whether a registration whose answer was lost exists, once the scope may be called."""
    if row.asked is None and scopes.may_call(t, row.scope):
        t.change_runner(row, asked=t.now)
        t.send(LookUpName(row.id, row.scope))


def on_name_looked_up(t: Turn, event: NameLookedUp) -> None:
    """Whatever the answer, the credential is lost: end the runner, and take back what is registered."""
    row = t.runner(event.runner)
    if row is None:
        return
    scopes.note_answer(t, row.scope, event.fault)
    if row.state is not S.REGISTERING:
        return
    if event.registration is not None:
        row = replace(row, registration=event.registration, unregister=True)
    end(t, row, "the answer to its registration was lost")


def on_started(t: Turn, event: EnvironmentStarted) -> None:
    """The environment runs; whether the listener listens is still to be seen."""
    row = t.state.runners.get(event.runner)
    if row is not None:
        t.put_runner(replace(row, environment=event.environment))


def on_start_failed(t: Turn, event: StartFailed) -> None:
    """There is no environment: the registration goes back, and the pool waits a while.

    Where the listener was heard, there is one all the same (a start that returned too late): it is listed.
    """
    row = t.runner(event.runner)
    if row is None or row.state in FINAL:
        return
    if row.state not in (S.REGISTERING, S.STARTING):
        host = t.state.hosts.get(row.host)
        if row.environment is None and host is not None and host.configured and host.asked is None:
            t.put_host(replace(host, due=t.now + 1))
            t.state.agenda.set("host", row.host, t.now + 1)
        return
    _failed(t, row, event.fault)
    end(t, replace(row, unregister=row.registration is not None), f"not started: {event.fault.detail}")


def on_exited(t: Turn, event: EnvironmentExited) -> None:
    """Listener and worker are proven gone.

    Leftovers of an environment whose reference was not told yet are ended when it is, as remains. Of one that no
    listing shows there are none; should it come back, it is held on to again.
    """
    row = t.state.runners.get(event.runner)
    if row is None or row.state is S.GONE:
        return
    before = row
    lost = row.absent is not None and event.code is None and not event.leftovers
    row = replace(
        row,
        exit_code=event.code,
        gate=None,
        absent=None,
        ending=row.ending or ("its environment was lost" if lost else ""),
        unregister=still_registered(row),
        cleanup=row.cleanup or not lost,
    )
    ended_unasked = row.state is not S.RETIRING and row.fence.accepted is None
    if lost:
        t.note("warning", "an environment is gone without a word", runner=row.id)
    elif row.hard is None and row.leak is None and ended_unasked:
        _without_a_job(t, row)
    if event.leftovers > 0 and row.environment is not None:
        _left_behind(t, row, before, event.leftovers)
        return
    ended = _gone(t, row, f"ended by itself with code {event.code}")
    if ended.cleanup and ended.environment is not None:
        gate.clean_up(t, ended)  # which puts the row
    else:
        t.put_runner(ended)


def _left_behind(t: Turn, row: Runner, before: Runner, count: int) -> None:
    """Processes of the job live on. The slot is held until they are gone, or are abandoned."""
    run = before.gate
    destroying = before.cleanup or (run is not None and run.phase is GatePhase.DESTROYING)
    if row.state is S.RETIRING and destroying:
        t.put_runner(replace(row, gate=run))  # the answer to what is under way tells of them, too
    elif row.state is S.ABANDONED:
        gate.clean_up_abandoned(t, row)
    else:
        gate.end_leftovers(t, row, f"{count} process(es) left")


def _without_a_job(t: Turn, row: Runner) -> None:
    """The first replacement comes at once, the next ones by backoff; an alarm after some in a row."""
    pool = t.state.pools[row.pool]
    exits = pool.exits + 1
    if row.exit_code == REFUSED_VERSION:
        _refused(t, row, exits)
        return
    wait = 0
    if exits > 1:
        wait = backoff.delay(t.policy.backoff, exits - 1, t.policy.jitter, f"{row.pool}:exit:{row.order}")
    t.put_pool(
        replace(
            pool,
            exits=exits,
            not_before=max(pool.not_before, t.now + wait),
            why="ended without a job",
            left=in_words(row.exit_code),
        )
    )
    t.count("ended_without_a_job_total", pool=row.pool)
    t.note("warning", "runner ended without a job", runner=row.id, code=row.exit_code, in_a_row=exits)
    if exits == t.policy.alarm_after_exits:
        t.note("warning", "runners end without a job again and again; look at their logs", pool=row.pool)


def _refused(t: Turn, row: Runner, exits: int) -> None:
    """No other runner of that version is any better: the pool rests, and one at a time finds out whether it is over."""
    pool = t.state.pools[row.pool]
    t.count("ended_without_a_job_total", pool=row.pool)
    if pool.refused is None:
        t.note("warning", f"{REFUSED}; its pool rests until there is another", runner=row.id, pool=row.pool)
    t.put_pool(
        replace(
            pool,
            exits=exits,
            refused=t.now,
            not_before=max(pool.not_before, t.now + t.policy.refused_retry),
            why=REFUSED,
            left=in_words(row.exit_code),
        )
    )


def on_application(t: Turn, event: ApplicationTold) -> None:
    """Runners of a pool cannot be started, or can again: then what stood in the way is over."""
    row = t.state.pools.get(event.pool)
    if row is None:
        return
    if event.missing:
        t.put_pool(replace(row, missing=event.missing))
    elif row.missing or row.refused is not None:
        t.note("info", "the runner application of a pool is there", pool=event.pool)
        t.put_pool(replace(row, missing="", refused=None, failures=0, exits=0, not_before=0, why=""))


def _failed(t: Turn, row: Runner, fault: Fault) -> None:
    pool = replace(t.state.pools[row.pool], why=fault.detail)
    if not pool.failures or row.created > pool.failed:
        failures = pool.failures + 1
        wait = backoff.delay(t.policy.backoff, failures, t.policy.jitter, f"{row.pool}:fail:{row.order}")
        until = max(pool.not_before, t.now + wait)
        pool = replace(pool, failures=failures, failed=t.now, not_before=until)
    t.put_pool(pool)
    t.count("start_failures_total", pool=row.pool)
    t.note("warning", "a runner could not be made", runner=row.id, pool=row.pool, detail=fault.detail)


def schedule_pool(t: Turn, name: str) -> None:
    """Wake when a pool's backoff ends."""
    until = t.state.pools[name].not_before
    t.state.agenda.set("pool", name, until if until > t.now else None)


def end(t: Turn, row: Runner, why: str) -> Runner:
    """Make the runner gone: its slot is free, whatever is still to be tidied up. Why it was to end counts more
    than `why` it ended."""
    return t.put_runner(_gone(t, row, why))


def _gone(t: Turn, row: Runner, why: str) -> Runner:
    if row.hard is None:
        t.count("wasted_dispatches_total", pool=row.pool)
    return replace(
        row,
        state=next_state(row, S.GONE, t.now),
        since=t.now,
        gate=None,
        stuck="",
        asked=None,
        surplus_since=None,
        ending=row.ending or why,
        consumes=row.consumes and row.hard is not None,
    )


def still_registered(row: Runner) -> bool:
    """Say whether the forge may hold a registration that nobody removes but we: a job takes its own along."""
    removed = row.fence.accepted is not None or row.fence.missing_again is not None
    return row.registration is not None and row.hard is None and not removed


def on_destroyed(t: Turn, event: EnvironmentDestroyed) -> None:
    """Nothing of the environment runs any more."""
    row = t.state.runners.get(event.runner)
    if row is None or row.environment != event.environment:
        return
    if row.state is S.GONE:
        t.put_runner(replace(row, cleanup=False))
    elif row.state in (S.RETIRING, S.ABANDONED):
        end(t, replace(row, cleanup=False, unregister=still_registered(row)), "destroyed")


def on_destroy_failed(t: Turn, event: DestroyFailed) -> None:
    """The environment is, or may be, still there."""
    row = t.runner(event.runner)
    if row is None or row.environment != event.environment:
        return
    if row.state is S.GONE:
        t.change_runner(row, vetoed_until=t.now + ASK_AGAIN)
    elif row.state is S.RETIRING:
        if row.cleanup and event.fault.remedy is Remedy.REFUSED and t.now >= row.vetoed_until:
            gate.end_leftovers(t, row, "the permit to end its leftovers had lapsed")
        elif event.fault.remedy is Remedy.REFUSED and not row.cleanup:
            gate.again_from_retiring(t, row, event.fault.detail)
        else:
            abandon(t, row, event.fault.detail)
    elif row.stopping is not None:
        t.note("warning", "the listener could not be asked to stop", runner=row.id, detail=event.fault.detail)


def abandon(t: Turn, row: Runner, why: str) -> None:
    """Give the slot back although the environment would not die; it is listed and counted."""
    t.count("abandoned_total", host=row.host)
    t.note("warning", "an environment would not die and is abandoned", runner=row.id, detail=why)
    t.put_runner(
        move_runner(
            replace(row, gate=None, consumes=False, unregister=still_registered(row)),
            S.ABANDONED,
            t.now,
            stuck=f"would not die: {why}",
        )
    )


def look_up(t: Turn, row: Runner) -> Runner:
    """Ask the forge about a registration outside the gate, once at a time."""
    if row.asked is not None or row.registration is None or not scopes.may_call(t, row.scope):
        return row
    token = t.draw("token")
    t.send(LookUpRunner(row.id, row.scope, row.registration, token))
    return t.change_runner(row, asked=t.now, token=token)


def on_looked_up(t: Turn, event: RunnerLookedUp) -> None:
    """Take in what the forge says of a registration."""
    row = t.runner(event.runner)
    if row is None:
        return
    if not event.missing:
        scopes.note_answer(t, row.scope, event.fault)
    run = row.gate
    if run is not None and run.phase is GatePhase.ASKING and run.token == event.token:
        gate.on_flag(t, row, run, event)
        return
    if event.token != row.token:
        return
    row = t.change_runner(row, asked=None)
    if event.missing:
        _missing(t, row)
    elif event.fault is None:
        _found(t, row, event)
    else:
        t.change_runner(row, vetoed_until=max(row.vetoed_until, t.now + ASK_AGAIN))


def _missing(t: Turn, row: Runner) -> None:
    if not scopes.answered_lately(t, row.scope):
        t.change_runner(row, vetoed_until=max(row.vetoed_until, t.now + ASK_AGAIN))
    elif row.state is S.GONE:
        t.change_runner(row, unregister=False, leak=None, leak_again=None)
    elif row.lost is None:
        t.change_runner(row, lost=t.now)
    elif t.now - row.lost >= t.policy.look_again:
        t.change_runner(row, lost_again=t.now)


def _found(t: Turn, row: Runner, event: RunnerLookedUp) -> None:
    if row.state is S.GONE:
        _registration_without_environment(t, row, event)
        return
    fence = row.fence
    if fence.missing is not None:
        # It is there after all: its fence may be asked again, and misses count anew.
        fence = replace(fence, missing=None, missing_again=None)
    row = t.change_runner(row, untaken=t.now, lost=None, lost_again=None, fence=fence)
    if event.busy and row.hard is None:
        signs.soft(t, row)
    elif event.busy is False:
        verdicts.doubt_flag(t, row)


def _registration_without_environment(t: Turn, row: Runner, event: RunnerLookedUp) -> None:
    if event.busy:
        t.change_runner(row, leak=t.now, leak_again=None)
    elif row.leak is None:
        t.change_runner(row, leak=t.now)
    elif t.now - row.leak >= t.policy.look_again:
        t.count("nominations_total", rule=Rule.LEAKED.value)
        t.change_runner(row, leak_again=t.now, unregister=True)
