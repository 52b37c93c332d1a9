"""What the forge says of jobs. Monotone by id: nothing leaves `done`; late, doubled and reordered
reports are no-ops; the status counts, not the action."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache

from msgspec.structs import replace

from ephemerd.core import access, scopes, signs
from ephemerd.core.asking import REPEATED, WAITING_AGAIN, ask
from ephemerd.core.events import JobLookedUp, JobReported, JobsRead
from ephemerd.core.index import pool_of
from ephemerd.core.transitions import move_job, next_status
from ephemerd.core.turn import Turn
from ephemerd.domain.ids import JobKey, RunnerId, Scope, job_text, scope_text
from ephemerd.domain.job import F, J, Job, JobReport, JobStatus, Told
from ephemerd.domain.labels import normalise
from ephemerd.domain.runner import Runner

ASK_AT_ONCE = 50
"""How many jobs that a listing did not show are asked about after it."""

BINDING = frozenset({F.IN_PROGRESS, F.COMPLETED})
"""What a report must say of a job to bind it to a runner."""

FIRST = {
    F.QUEUED: J.QUEUED,
    F.WAITING: J.WAITING,
    F.IN_PROGRESS: J.RUNNING,
    F.COMPLETED: J.DONE,
}


def on_reported(t: Turn, event: JobReported) -> None:
    """Take in a delivery."""
    apply(t, event.report, event.told)


def on_read(t: Turn, event: JobsRead) -> None:
    """Take in a part of a listing, line by line."""
    for report in event.reports:
        apply(t, report, Told.LISTING)


def apply(t: Turn, report: JobReport, told: Told) -> None:
    """Bring the job's row to what the report says, as far as that is an advance."""
    key = report.key
    if not key.repository.islower():
        key = JobKey(key.forge, key.repository.lower(), key.id)
    t.concern(job_text(key))
    if report.status is F.OTHER:
        return
    known = t.state.jobs.get(key)
    if known is None:
        if not any(row.configured and row.pool.scope.serves(key) for row in t.state.pools.values()):
            t.count("reports_ignored_total", reason="scope")
            return
        job = _create(t, key, report)
    else:
        job = access.learn(known, report.origin)
    if report.status not in BINDING:
        access.judge(t, job if known is None else _advance(t, job, report, told))
        return
    named = find_runner(t, report)
    found, before = named or _known_to_have(t, job, report), job.ours
    job = _bound(job, report, found)
    job = job if known is None else _advance(t, job, report, told, named)
    job = t.put_job(job)  # it runs or is over, and nobody judges it any more
    if found is None:
        return
    if found.id != before:
        access.taken(t, job)
    signs.named(t, found, job, over=report.status is F.COMPLETED, told=told)


_normalised = lru_cache(maxsize=1_024)(normalise)
"""Thousands of jobs have the same few sets of labels."""


def _create(t: Turn, key: JobKey, report: JobReport) -> Job:
    status = FIRST[report.status]
    job = Job(
        key=key,
        labels=_normalised(report.labels),
        order=t.draw("job"),
        status=status,
        since=t.now,
        first_seen=t.now,
        confirmed=t.now,
        name=report.name,
        run_id=report.run_id,
        attempt=report.attempt,
        started=t.now if status is J.RUNNING else None,
    )
    job = access.learn(job, report.origin)
    if status is J.DONE:
        job = replace(job, ended=t.now, conclusion=report.conclusion)
        _count_end(t, job, "")
    return job


def _advance(t: Turn, job: Job, report: JobReport, told: Told, named: Runner | None = None) -> Job:
    """Return the job as the report leaves it; `named` is the runner of ours that it names."""
    status = job.status
    if status is J.DONE:
        return job
    if report.status is F.COMPLETED:
        return _end(t, job, report, named)
    if status is J.RUNNING:
        return t.change_job(job, confirmed=t.now) if told is not Told.WEBHOOK else job
    if report.status is F.IN_PROGRESS:
        return _leave_queue(t, replace(job, started=t.now, ended=None), J.RUNNING)
    if report.status is F.QUEUED:
        if status is J.QUEUED:
            return t.change_job(job, confirmed=t.now, missing=None)
        return t.put_job(move_job(job, J.QUEUED, t.now, confirmed=t.now, missing=None, ended=None))
    return _waits(t, job, told)


def _waits(t: Turn, job: Job, told: Told) -> Job:
    if job.status is J.WAITING:
        return t.change_job(job, confirmed=t.now)
    if job.status is J.QUEUED and told is not Told.LOOKUP:
        ask(t, job, "waiting")
        return t.state.jobs[job.key]
    return _leave_queue(t, replace(job, confirmed=t.now, ended=None), J.WAITING)


def _leave_queue(t: Turn, job: Job, to: JobStatus) -> Job:
    """The job is queued no more: nothing is asked about it any more, and whoever was made for it is looked at."""
    moved = t.put_job(
        replace(
            job,
            status=next_status(job, to, t.now),
            since=t.now,
            asking="",
            asked=None,
            pool="",
            ask_again=None,
            waived=False,
            missing=None,
        )
    )
    t.touch(t.state.index.intents.get(job.key, ()))
    return moved


def _end(t: Turn, job: Job, report: JobReport, named: Runner | None) -> Job:
    job = replace(job, ended=t.now, conclusion=report.conclusion or "unknown")
    ended = _leave_queue(t, job, J.DONE)
    _count_end(t, ended, named.pool if named is not None else "")
    return ended


def _count_end(t: Turn, job: Job, pool: str) -> None:
    t.count("jobs_finished_total", conclusion=job.conclusion or "unknown", pool=pool)


def find_runner(t: Turn, report: JobReport) -> Runner | None:
    """Find our runner that a report names, by its name, or by the registration where no name is given.

    Names are ours alone and never repeat; 0, "" and null were made None on the way in and are nobody, and
    so is an id that two runners bear (in two scopes that both serve the job).
    """
    if report.runner_name is not None:
        found = t.state.runners.get(RunnerId(report.runner_name))
        if found is not None and found.scope.forge == report.key.forge:
            return found
        return None
    if report.runner_id is None:
        return None
    bearers: dict[RunnerId, None] = {}
    for row in t.state.pools.values():
        if row.pool.scope.serves(report.key):
            bearers |= t.state.index.registrations.get((scope_text(row.pool.scope), report.runner_id), {})
    return t.state.runners.get(next(iter(bearers))) if len(bearers) == 1 else None


def _bound(job: Job, report: JobReport, found: Runner | None) -> Job:
    """Return the job with who has it by a report that binds: whom the forge names, and which runner of ours that is."""
    runner, ours = report.runner_name or job.runner, job.ours if found is None else found.id
    if runner == job.runner and ours == job.ours:
        return job
    return replace(job, runner=runner, ours=ours)


def _known_to_have(t: Turn, job: Job, report: JobReport) -> Runner | None:
    """A job can be called completed without naming anybody. Where an earlier report named our runner for it,
    and that one has had no other job since, its job is over."""
    if report.status is not F.COMPLETED or report.runner_name or report.runner_id or job.ours is None:
        return None
    row = t.state.runners.get(job.ours)
    return row if row is not None and row.job == job.key else None


def ask_unlisted(t: Turn, scope: Scope, since: int, read: tuple[str, ...] | None = None) -> None:
    """Ask about jobs that a complete listing, asked for at `since`, did not show: their end was missed.

    A job that is believed to run would else keep its runner "busy" for days, and one that is believed to
    wait would keep a runner listening. At most `ASK_AT_ONCE` a listing, the longest unconfirmed first.
    `read` are the repositories that it covers, None where it covers all of the scope.
    """
    covered = None if read is None else frozenset(read)
    missed = [
        job
        for job in _open_jobs(t, scope)
        if job.confirmed < since
        and job.since < since
        and job.asked is None
        and (covered is None or job.key.repository in covered)
    ]
    missed.sort(key=lambda job: (job.confirmed, job.order))
    for job in missed[:ASK_AT_ONCE]:
        if not ask(t, job, "unlisted"):
            break


def _open_jobs(t: Turn, scope: Scope) -> Iterator[Job]:
    for key in t.state.index.running:
        if scope.serves(key):
            yield t.state.jobs[key]
    for group in t.state.index.groups.values():
        if scope.serves(group.sample):
            for key in group.queued:
                yield t.state.jobs[key]
    for key in t.state.index.refused:
        if scope.serves(key):
            yield t.state.jobs[key]


def on_looked_up(t: Turn, event: JobLookedUp) -> None:
    """Take in the forge's direct answer about a job."""
    job = t.state.jobs.get(event.job)
    scope = t.state.scope_for(event.job, job.pool if job is not None else "")
    if scope is not None and not event.missing:
        scopes.note_answer(t, scope, event.fault)
    if job is None:
        return
    why = job.asking if event.token == job.token else ""
    if event.token == job.token:
        job = t.change_job(job, asked=None, asking="", pool="")
    if event.report is not None:
        if job.status is not J.DONE:
            job = t.change_job(job, confirmed=t.now, missing=None)
        apply(t, event.report, Told.LOOKUP)
    elif event.missing:
        _missed(t, job, why)
    else:
        _unanswered(t, job, why)
    _touch_consuming(t, job)


def _missed(t: Turn, job: Job, why: str) -> None:
    if job.status in (J.DONE, J.GONE):
        return
    if job.missing is None:
        job = t.change_job(job, missing=t.now, ask_again=t.now + t.policy.look_again)
    elif t.now - job.missing >= t.policy.look_again:
        _leave_queue(t, replace(job, ended=t.now), J.GONE)
        return
    else:
        job = t.change_job(job, ask_again=job.missing + t.policy.look_again)
    if why == "confirm":
        waive(t, job)


def _unanswered(t: Turn, job: Job, why: str) -> None:
    if why == "confirm":
        waive(t, job)
    elif why in REPEATED:
        t.change_job(job, ask_again=t.now + WAITING_AGAIN)


def waive(t: Turn, job: Job) -> None:
    """The forge could not confirm the job: let a runner be made all the same, once an hour at most."""
    if job.unconfirmed is None or t.now - job.unconfirmed >= t.policy.remake_every:
        t.change_job(job, waived=True)
    else:
        t.change_job(job, not_before=t.now + t.policy.look_again)


def due(t: Turn, job: Job) -> None:
    """A moment of the job's row has come: a question without an answer, or one to be repeated."""
    if job.asked is not None and t.now - job.asked >= t.policy.confirm_wait:
        why = job.asking
        job = t.change_job(job, asked=None, asking="", pool="")
        _unanswered(t, job, why)
        _touch_consuming(t, job)
        job = t.state.jobs[job.key]
    if job.ask_again is not None and t.now >= job.ask_again:
        if job.missing is None and job.refused == access.UNKNOWN and job.status is J.QUEUED:
            access.find_out(t, t.change_job(job, ask_again=None))
        else:
            ask(t, job, "gone" if job.missing is not None else "waiting")
    t.schedule_job(t.state.jobs[job.key])


def _touch_consuming(t: Turn, job: Job) -> None:
    """Runners whose job has no name yet may ask about the next candidate, or be released: those only that
    have begun to ask, since an answer means nothing to the others."""
    for variety, members in sorted(t.state.index.consuming.items()):
        pool = t.state.pools.get(pool_of(variety))
        if not members or pool is None or not pool.pool.scope.serves(job.key):
            continue
        rows = (t.state.runners[name] for name in members)
        t.touch(row.id for row in rows if row.hard is not None and t.now >= signs.telling_from(t, row))


def prune(t: Turn, most: int = 1_000) -> None:
    """Forget finished jobs past their time or number, at most `most` a turn."""
    finished = t.state.index.finished
    over: list[JobKey] = []
    for key in itertools.islice(finished, most):
        ended = t.state.jobs[key].ended or 0
        if len(finished) - len(over) <= t.policy.finished_most and t.now - ended < t.policy.finished_kept:
            break
        over.append(key)
    for key in over:
        t.drop_job(key)


def remake(t: Turn, row: Runner) -> None:
    """A runner that was matched and never taken leaves supply: its job is served anew, once an hour at most."""
    job = t.state.jobs.get(row.intent) if row.intent is not None else None
    if job is None or job.status is not J.QUEUED:
        return
    if job.remade is not None and job.remade > t.now:
        return  # its next try has its time already
    earliest = t.now if job.remade is None else max(t.now, job.remade + t.policy.remake_every)
    t.change_job(job, remade=earliest, not_before=max(job.not_before, earliest))
