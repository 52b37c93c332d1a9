"""Who may use these machines: every queued job is judged by the policy of its forge, however it was heard of.

A job that is refused stays in its row and is no demand: no runner is made for it. What the judgement needs and
nobody told is asked of the forge, once a run; until the answer the job is refused as unknown. No policy can keep
the forge from giving a job to a runner that listens: where that happens it is counted and said.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from ephemerd.core import scopes
from ephemerd.core.asking import WAITING_AGAIN, ask
from ephemerd.core.events import RunLookedUp
from ephemerd.core.index import run_of
from ephemerd.core.state import State
from ephemerd.core.turn import Turn
from ephemerd.domain.access import Access, Refusal
from ephemerd.domain.ids import JobKey
from ephemerd.domain.job import J, Job, Origin
from ephemerd.domain.labels import covers
from ephemerd.domain.pool import Setup

LOOK_BACK = 256
"""So many of a repository's jobs are looked at for one of the same run before the forge is asked."""

UNKNOWN = Refusal.UNKNOWN.value
UNTOLD = Origin()


def of_forge(state: State, forge: str) -> Access | None:
    """Return who may use the runners of a forge, None where everybody may."""
    for row in state.setup.access:
        if row.forge == forge:
            return row
    return None


def full(state: State, job: JobKey) -> bool:
    """Say whether the job's repository has as many runners as it may have."""
    access = of_forge(state, job.forge)
    if access is None or access.most is None:
        return False
    return state.index.by_repository.get((job.forge, job.repository.lower()), 0) >= access.most


def take_in(t: Turn, setup: Setup) -> None:
    """Keep the policy of a new configuration; what is left out is forgotten."""
    now = {row.forge: row for row in setup.access}
    for forge in sorted({row.forge for row in t.state.setup.access} | set(now)):
        t.put_access(forge, now.get(forge))


def review(t: Turn) -> None:
    """Judge every queued job anew, after the configuration changed or a process life began."""
    index = t.state.index
    if not t.state.setup.access and not index.refused:
        return
    queued = [key for group in index.groups.values() for key in group.queued]
    for key in sorted([*queued, *index.refused], key=lambda key: t.state.jobs[key].order):
        judge(t, t.state.jobs[key])


def learn(job: Job, origin: Origin) -> Job:
    """Return the job with what was told of its origin; what was not told stays as it was."""
    if origin == UNTOLD:
        return job
    return replace(
        job,
        public=job.public if origin.public is None else origin.public,
        fork=job.fork if origin.fork is None else origin.fork,
        branch=origin.branch or job.branch,
        workflow=origin.workflow or job.workflow,
    )


def weigh(t: Turn, job: Job) -> Job:
    """Return a queued job as its forge's policy stands to it. One that no pool can serve is not judged."""
    access = of_forge(t.state, job.key.forge)
    refusal = access.refuses(job) if access is not None and _servable(t.state, job) else None
    refused = "" if refusal is None else refusal.value
    return job if refused == job.refused else replace(job, refused=refused)


def judge(t: Turn, job: Job) -> Job:
    """Put the job; one that is queued as the policy stands to it: ask for what is missing, and say a refusal once."""
    if job.status is not J.QUEUED:
        return t.put_job(job)
    known = t.state.jobs.get(job.key)
    before = known.refused if known is not None else ""
    job = weigh(t, job)
    if before == UNKNOWN and job.refused != UNKNOWN:
        job = _settled(job)
    job = t.put_job(job)
    if job.refused == UNKNOWN:
        return find_out(t, job)
    if job.refused and job.refused != before:
        t.count("jobs_refused_total", reason=job.refused)
        t.note("warning", "a job is not served", job=job.key, why=why(t.state, job))
    return job


def _settled(job: Job) -> Job:
    """Return the job without the question whose answer is known by now."""
    if job.asking == "origin":
        job = replace(job, asked=None, asking="")
    return replace(job, ask_again=None) if job.missing is None else job


def find_out(t: Turn, job: Job) -> Job:
    """Learn whose work a run is: from another of its jobs, else by one question a run."""
    if job.asked is not None or job.ask_again is not None or not job.run_id:
        return job
    for other in _of_run(t, job):
        told = learn(job, Origin(other.public, other.fork, other.branch, other.workflow))
        if weigh(t, told).refused != UNKNOWN:
            return judge(t, told)
    siblings = t.state.index.unsure[run_of(job)]
    if any(t.state.jobs[key].asking == "origin" for key in siblings):
        return t.change_job(job, ask_again=t.now + WAITING_AGAIN)
    ask(t, job, "origin")
    return t.state.jobs[job.key]


def on_run_looked_up(t: Turn, event: RunLookedUp) -> None:
    """Take in whose work a run is, for all its jobs that wait for that."""
    scope = t.state.scope_for(event.job)
    if scope is not None and not event.missing:
        scopes.note_answer(t, scope, event.fault)
    job = t.state.jobs.get(event.job)
    if job is None or event.token != job.token:
        return
    if job.asking == "origin":
        job = t.change_job(job, asked=None, asking="")
    unsure = list(t.state.index.unsure.get(run_of(job), ()))
    again = t.now + WAITING_AGAIN
    if event.origin is not None:
        for key in unsure:
            judge(t, learn(replace(t.state.jobs[key], ask_again=again), event.origin))
    elif job.key in unsure:
        t.change_job(job, ask_again=again, missing=t.now if event.missing else job.missing)


def taken(t: Turn, job: Job) -> None:
    """One of our runners was given the job: say so where the policy refuses it."""
    access = of_forge(t.state, job.key.forge)
    refusal = access.refuses(job) if access is not None else None
    if refusal is not None and refusal is not Refusal.UNKNOWN:
        t.count("refused_jobs_taken_total", reason=refusal.value)
        t.note(
            "warning", "the forge gave a runner a job that the policy refuses", job=job.key, runner=job.ours
        )


def why(state: State, job: Job) -> str:
    """Return in words why the policy refuses a queued job."""
    where = f"forge.{job.key.forge}"
    return {
        "repository": f"refused: {where}.repositories does not allow {job.key.repository}, or "
        "repositories_denied names it",
        "workflow": f"refused: {where}.workflows does not allow the workflow {job.workflow!r}",
        "branch": f"refused: {where}.branches does not allow the branch {job.branch!r}"
        + (" of a fork" if job.fork else ""),
        "public": f"refused: {job.key.repository} is public; name it in {where}.repositories, without *, "
        "to serve it",
        "fork": f"refused: its commit is from a fork; name the repository in {where}.forks to serve such runs",
        "unknown": _asked(state, job),
    }[job.refused]


def _asked(state: State, job: Job) -> str:
    known = "not served until it is known whether its repository is public and its commit from a fork"
    if not job.run_id:
        return f"{known}; the forge did not say which run it belongs to"
    waits = any(state.jobs[key].asked is not None for key in state.index.unsure.get(run_of(job), ()))
    return f"{known}; " + ("the forge is asked" if waits else "the forge will be asked again")


def _servable(state: State, job: Job) -> bool:
    for row in state.pools.values():
        fits = bool(job.labels) or row.pool.unlabelled
        if row.configured and fits and row.pool.scope.serves(job.key) and covers(row.pool.labels, job.labels):
            return True
    return False


def _of_run(t: Turn, job: Job) -> Iterator[Job]:
    index = t.state.index
    groups = [group for group in index.groups.values() if group.sample.repository == job.key.repository]
    queued = (key for group in groups for key in islice(group.queued, LOOK_BACK))
    refused, finished = (islice(reversed(kept), LOOK_BACK) for kept in (index.refused, index.finished))
    for key in (*queued, *index.running, *refused, *finished):
        other = t.state.jobs[key]
        if run_of(other) == run_of(job) and (other.public is not None or other.fork is not None):
            yield other
