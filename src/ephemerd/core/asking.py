"""Questions to the forge about one job: one at a time, numbered, and only where the scope may be called."""

from __future__ import annotations

from ephemerd.core import scopes
from ephemerd.core.commands import LookUpJob, LookUpRun
from ephemerd.core.turn import Turn
from ephemerd.domain.job import Job

WAITING_AGAIN = 30_000
"""DOMAIN.md section 2: a question about a waiting job that failed is asked again after so many ms."""

REPEATED = frozenset({"waiting", "gone", "name", "origin"})
"""Questions that are asked again where they could not be asked or were not answered."""


def ask(t: Turn, job: Job, why: str, pool: str = "") -> bool:
    """Ask the forge about a job, once at a time; say whether the question went out."""
    scope = t.state.scope_for(job.key, pool)
    if job.asked is not None and why == "waiting":
        t.change_job(job, ask_again=t.now + WAITING_AGAIN)
    if scope is None and job.ask_again is not None:
        t.change_job(job, ask_again=None)
    if job.asked is not None or scope is None:
        return False
    if not scopes.may_call(t, scope):
        if why in REPEATED:
            t.change_job(job, ask_again=t.now + WAITING_AGAIN)
        return False
    token = t.draw("token")
    t.change_job(job, asked=t.now, asking=why, pool=pool, token=token, ask_again=None)
    if why == "origin":
        t.send(LookUpRun(job.key, job.run_id, scope, token))
    else:
        t.send(LookUpJob(job.key, scope, token))
    return True
