"""Signs of a job: hard ones bind a runner until it is gone, soft ones for a quarter of an hour.

A sign is a latch: nothing un-sees it. Each one raises the runner's generation, against which the gate
re-validates, so that whatever is learnt during a gate run stops it.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ephemerd.core import holding
from ephemerd.core.events import SignSeen
from ephemerd.core.transitions import RUNNER_EDGES, next_state
from ephemerd.core.turn import Turn
from ephemerd.domain.job import J, Job, Told
from ephemerd.domain.runner import FINAL, Runner, S
from ephemerd.domain.verdict import Sign

SOFT_FROM = frozenset({S.STARTING, S.LISTENING, S.STUCK})
HARD_FROM = SOFT_FROM | {S.ASSIGNED}
UNSTARTED = frozenset({S.PLANNED, S.REGISTERING})
"""There can be no environment yet: what speaks of one means another."""
WITHOUT_ENVIRONMENT = FINAL | UNSTARTED


def on_sign(t: Turn, event: SignSeen) -> None:
    """Take in what a followed file or the process table told without being asked."""
    row = t.state.runners.get(event.runner)
    if row is None or row.state in WITHOUT_ENVIRONMENT:
        return
    t.concern(row.id)
    TAKEN_IN[event.sign](t, row, event.detail)


def listens(t: Turn, row: Runner) -> None:
    """The listener is connected."""
    listening = t.now if row.listening is None else row.listening
    found = row.state is S.STUCK and row.leak is not None and row.hard is None
    if row.state is S.STARTING or found:
        state = next_state(row, S.LISTENING, t.now)
        t.put_runner(replace(row, state=state, since=t.now, stuck="", listening=listening))
        pool = t.state.pools[row.pool]
        if pool.failures:
            t.put_pool(replace(pool, failures=0, why=""))
    elif row.listening is None:
        t.put_runner(replace(row, listening=listening))


def soft(t: Turn, row: Runner, *, offered: bool = False) -> Runner:
    """An offer, an acknowledgement, a busy flag or a refused fence: bound for a while.

    `offered`: it is an offer or acknowledgement that the runner's own files tell of.
    """
    first = row.soft is None and row.hard is None
    state, since = row.state, row.since
    if state in SOFT_FROM:
        state, since = next_state(row, S.ASSIGNED, t.now), t.now
    row = t.put_runner(
        replace(
            row,
            state=state,
            since=since,
            signs=row.signs + 1,
            soft=row.soft if row.soft is not None else t.now,
            soft_last=t.now,
            offered=row.offered or offered,
            consumes=row.consumes or (row.job is None and row.hard is None),
        )
    )
    if first:
        holding.taken(t, row)
    return row


def hard(t: Turn, row: Runner, *, worker: bool = False, announced: str = "", another: bool = False) -> Runner:
    """An announcement, a worker, or the forge naming the runner: bound until it is gone.

    An announcement that was heard before (they are told anew after a restart) is no other job, and the
    first one that is heard of a runner whose worker was seen is that worker's, told late. `another`: the
    forge named it for another job than before.
    """
    first = row.hard is None
    new_job = row.over is not None and (another or _tells_of_another(row, announced))
    if new_job:
        row = replace(row, over=None, over_via="")
    state, since = row.state, row.since
    if state in HARD_FROM or (new_job and state is S.FINISHING):
        state, since = next_state(row, S.RUNNING, t.now), t.now
    row = t.put_runner(
        replace(
            row,
            state=state,
            since=since,
            signs=row.signs + 1,
            hard=t.now if first else row.hard,
            hard_last=t.now,
            worker=t.now if worker else row.worker,
            announced=announced or row.announced,
            consumes=row.consumes or (first and row.job is None),
            stuck="" if first else row.stuck,
        )
    )
    if first:
        _first_hard(t, row)
    return row


def _tells_of_another(row: Runner, announced: str) -> bool:
    late = not row.announced and row.worker is not None
    return announced not in ("", row.announced) and not late


def _first_hard(t: Turn, row: Runner) -> None:
    if row.soft is None:
        holding.taken(t, row)
    pool = t.state.pools[row.pool]
    if pool.exits:
        not_before = 0 if not pool.failures else pool.not_before
        t.put_pool(replace(pool, exits=0, not_before=not_before, refused=None))


def over(t: Turn, row: Runner, via: str) -> Runner:
    """The runner's one job is over by its log, an event or a read: it should leave by itself now."""
    state, since = row.state, row.since
    if S.FINISHING in RUNNER_EDGES[state]:
        state, since = next_state(row, S.FINISHING, t.now), t.now
    known = row.over is not None
    return t.put_runner(
        replace(
            row,
            state=state,
            since=since,
            over=row.over if known else t.now,
            over_via=row.over_via if known and row.over_via != "log" else via,
        )
    )


def named(t: Turn, row: Runner, job: Job, *, over: bool, told: Told) -> None:
    """The forge named this runner for a job: a hard sign, and the name of what it runs.

    A report about a job that the runner had before another one changes neither name nor state: neither its
    end, nor a start that is told after the end.
    """
    if row.state in UNSTARTED or (row.job == job.key and not over):
        return
    if row.job is not None and not over and job.status is not J.RUNNING:
        return
    another = row.job is not None
    if row.job is None or not over:
        row = replace(row, job=job.key, consumes=False)
    if row.state in FINAL:
        t.put_runner(row)
        return
    if row.hard is None or not over:
        row = hard(t, row, another=another)
    if over and row.job == job.key:
        _over_by_forge(t, row, told)


def _over_by_forge(t: Turn, row: Runner, told: Told) -> None:
    over(t, row, "event" if told is Told.WEBHOOK else "read")


def lapse(t: Turn, row: Runner) -> Runner:
    """The soft sign is older than its life and no hard one came: the runner may be supply again, unless
    it was offered a job and nothing followed: that one hangs, and goes as soon as a rule and the gate let it.

    Where its beginning to listen was never heard, it counts from now, so that it can expire.
    """
    listening = row.listening if row.listening is not None else t.now
    fence = row.fence
    if fence.refused is not None and fence.accepted is None and fence.refused >= (fence.sent or 0):
        fence = replace(fence, sent=None, refused=None)  # only a refusal lapses, no answer does not
    return t.put_runner(
        replace(
            row,
            state=next_state(row, S.LISTENING, t.now),
            since=t.now,
            consumes=False,
            fence=fence,
            stuck="",
            listening=listening,
            untaken=None,
        )
    )


def telling_from(t: Turn, row: Runner) -> int:
    """Return from when on "it still waits" tells that a job is not the runner's (ms).

    Until its worker has reported, a job that a runner has acquired reads as waiting (runner.md section 5),
    so an announcement without a worker says nothing for as long as the worker may take.
    """
    hard = row.hard if row.hard is not None else row.since
    if row.worker is not None:
        return max(hard, row.worker) + t.policy.confirm_after
    if row.state is S.GONE:
        return max(hard, row.since) + t.policy.confirm_after
    return hard + t.policy.no_worker_stuck


def _skipped(t: Turn, row: Runner, _: str) -> None:
    t.note("info", "the listener skipped a job that it was offered", runner=row.id)


TAKEN_IN: dict[Sign, Callable[[Turn, Runner, str], object]] = {
    Sign.LISTENING: lambda t, row, _: listens(t, row),
    Sign.OFFERED: lambda t, row, _: soft(t, row, offered=True),
    Sign.ACKNOWLEDGED: lambda t, row, _: soft(t, row, offered=True),
    Sign.ANNOUNCED: lambda t, row, detail: hard(t, row, announced=detail),
    Sign.WORKER: lambda t, row, _: hard(t, row, worker=True),
    Sign.ENDED: lambda t, row, _: over(t, row, "log"),
    Sign.SKIPPED: _skipped,
}
"""What takes in each sign; the last argument is its detail."""
