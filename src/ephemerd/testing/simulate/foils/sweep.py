"""`sweep`: teardown keyed on actual assignment, and an orphan sweep that acts at once (#105 with #131).

`in_progress` binds the runner that it names; `completed` destroys the runner that it names, and where it names
none (cancelled before it was assigned) the runner of the job's intent unless that is bound to another job. The
sweep destroys what is unbound for the whole grace (rule 1), and what is unbound although its intent job was
seen running and no queued job of its class is without a dispatch (rule 2). A dispatch that waited for its slot
is given up where its job was seen running or completed.
"""

from __future__ import annotations

from ephemerd.core.index import group_name
from ephemerd.core.turn import Turn
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import Job, JobStatus
from ephemerd.domain.runner import Runner, RunnerState
from ephemerd.testing.simulate.foils.ledger import Earlier

RULE_1 = "unbound for the whole grace"
RULE_2 = "discharged, and no demand of its class"
CANCELLED = "its intent job was cancelled before it was assigned"
NAMED = "completed: the job that it ran"
DISCHARGED = frozenset({JobStatus.RUNNING, JobStatus.DONE})


class Sweep(Earlier):
    """Believes that a runner that no delivery has named runs nothing."""

    def still_wanted(self, job: Job) -> bool:
        return job.status is JobStatus.QUEUED

    def in_progress(self, t: Turn, job: Job, runner: str | None) -> None:
        self.bind(t, runner, job)

    def completed(self, t: Turn, job: Job, runner: str | None) -> None:
        """Destroy the runner that the delivery names, or else that of the intent; then sweep."""
        if runner is not None:
            named = t.runner(RunnerId(runner))
            if named is not None:
                self.tear_down(t, named, NAMED)
        else:
            for name in list(t.state.index.intents.get(job.key, ())):
                row = t.state.runners[name]
                if unbound(row):
                    self.orphan(t, row, CANCELLED)
        self.sweep(t)

    def sweep(self, t: Turn) -> None:
        """Apply both rules to every runner that no delivery has named."""
        demand: dict[str, bool] = {}
        for pool in list(t.state.index.live):
            for name in list(t.state.index.live[pool]):
                row = t.state.runners[name]
                if unbound(row):
                    rule = self._rule(t, row, demand)
                    if rule:
                        self.orphan(t, row, rule)

    def _rule(self, t: Turn, row: Runner, demand: dict[str, bool]) -> str:
        if row.started is not None and t.now - row.started >= t.state.pool(row.pool).orphan_grace:
            return RULE_1
        job = t.state.jobs.get(row.intent) if row.intent is not None else None
        if job is None or job.status not in DISCHARGED:
            return ""
        name = group_name(job)
        if name not in demand:
            demand[name] = self._demand(t, name)
        return "" if demand[name] else RULE_2

    def _demand(self, t: Turn, name: str) -> bool:
        """Say whether a queued job of the class has no runner dispatched for it."""
        group = t.state.group(name)
        return group is not None and any(key not in t.state.index.intents for key in group.queued)

    def orphan(self, t: Turn, row: Runner, rule: str) -> None:
        """A rule applies: destroy at once."""
        self.tear_down(t, row, rule)


def unbound(row: Runner) -> bool:
    """Say whether a runner is in the books, and no delivery has named it."""
    live = row.state in (RunnerState.STARTING, RunnerState.LISTENING)
    return live and row.environment is not None and row.job is None
