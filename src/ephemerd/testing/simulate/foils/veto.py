"""`veto`: the rules of `sweep` nominate, and a look at the moment of teardown can veto (#151, and #210).

The look is local and asks one question: is there a `Runner.Worker`? If that is not known, the forge's busy flag
is asked ("not found" reads as not busy). The decision table is that of the founding documents; the binding is
validated again; then the environment is destroyed, and the registration removed last. A dispatch that waited
for its slot asks the forge whether the job still awaits a runner (#210).
"""

from __future__ import annotations

from dataclasses import dataclass

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.decision import Bounds, decide
from ephemerd.core.state import Rows
from ephemerd.core.turn import Turn
from ephemerd.domain.job import ForgeStatus, Job, Told
from ephemerd.domain.permit import Warrant
from ephemerd.domain.pool import MINUTE
from ephemerd.domain.runner import Decision, Runner, RunnerState
from ephemerd.domain.verdict import Evidence, Listing, ProbeReport, Verdict, Via
from ephemerd.testing.simulate.foils.lives import JOB_TIMEOUT
from ephemerd.testing.simulate.foils.sweep import Sweep, unbound

ANSWER_LIMIT = 60_000
"""A look that has no answer after so many ms (a crash took it) is taken again."""


@dataclass(frozen=True, slots=True)
class Nomination:
    """A runner under a look: by which rule, since when, and the number of the question that is out."""

    number: int
    rule: str
    at: int
    token: int


def worker_seen(report: ProbeReport | None) -> Verdict:
    """Judge by the processes alone, as the package `runnerbusy` does: a worker, none, or no way to tell."""
    if report is None or report.listing in (Listing.FAILED, Listing.EMPTY):
        return Verdict.UNKNOWN
    return Verdict.BUSY if report.workers > 0 else Verdict.IDLE


def flag(event: ev.RunnerLookedUp) -> Verdict:
    """Read the forge's busy flag; a registration that is not found is not busy."""
    if event.fault is not None:
        return Verdict.UNKNOWN
    return Verdict.BUSY if event.busy else Verdict.IDLE


class Veto(Sweep):
    """Believes that a runner without a worker has no job."""

    def _forget(self) -> None:
        super()._forget()
        self._looking: dict[str, Nomination] = {}
        self._confirming: dict[int, Runner] = {}

    def reload(self, rows: Rows, now: int) -> None:
        super().reload(rows, now)
        self._forget()

    def take_in(self, t: Turn, event: ev.Event) -> None:
        if isinstance(event, ev.JobLookedUp):
            self._confirmed(t, event)
        else:
            super().take_in(t, event)

    def granted(self, t: Turn, job: Job, row: Runner, *, waited: bool) -> None:
        """Register at once, or, where the dispatch waited, only if the job still awaits a runner."""
        if not waited:
            self.register(t, row)
            return
        token = t.draw("token")
        self._confirming[token] = row
        t.send(cm.LookUpJob(job.key, row.scope, token))

    def _confirmed(self, t: Turn, event: ev.JobLookedUp) -> None:
        """An error provisions all the same: a skipped live job is worse than a wasted runner."""
        planned = self._confirming.pop(event.token, None)
        row = t.runner(planned.id) if planned is not None else None
        if row is None or row.state is not RunnerState.PLANNED:
            return
        settled = event.report is not None and event.report.status in (
            ForgeStatus.IN_PROGRESS,
            ForgeStatus.COMPLETED,
        )
        if settled and event.report is not None:
            t.drop_runner(row)
            self._reported(t, event.report, Told.LOOKUP)
        else:
            self.register(t, row)

    def orphan(self, t: Turn, row: Runner, rule: str) -> None:
        """A rule nominates: look inside, unless a look is under way."""
        last = self._looking.get(row.id)
        if last is not None and t.now - last.at < ANSWER_LIMIT:
            return
        nomination = Nomination(t.draw("nomination"), rule, t.now, t.draw("token"))
        self._looking[row.id] = nomination
        t.count("nominations_total", rule=rule)
        if t.state.pool(row.pool).probes:
            t.send(cm.ProbeRunner(row.id, row.pool, row.environment or "", nomination.token))
        else:
            self._ask(t, row, nomination)

    def _ask(self, t: Turn, row: Runner, nomination: Nomination) -> None:
        if row.registration is None:
            self._decide(t, row, nomination, Verdict.UNKNOWN, Via.NONE)
        else:
            t.send(cm.LookUpRunner(row.id, row.scope, row.registration, nomination.token))

    def looked(self, t: Turn, row: Runner, event: ev.Probed | ev.RunnerLookedUp) -> None:
        nomination = self._looking.get(row.id)
        if nomination is None or nomination.token != event.token:
            return
        if isinstance(event, ev.RunnerLookedUp):
            self._decide(t, row, nomination, flag(event), Via.FORGE)
            return
        verdict = worker_seen(event.report)
        if verdict is Verdict.UNKNOWN:
            self._ask(t, row, nomination)
        else:
            self._decide(t, row, nomination, verdict, Via.PROBE)

    def _decide(self, t: Turn, row: Runner, nomination: Nomination, verdict: Verdict, via: Via) -> None:
        """The table; then the binding once more, and the teardown."""
        del self._looking[row.id]
        if not unbound(row):
            return
        pool = t.state.pool(row.pool)
        age = t.now - (row.started if row.started is not None else t.now)
        hard = (pool.job_timeout or JOB_TIMEOUT) + 30 * MINUTE
        ruling = decide(verdict, age, Bounds(unknown=pool.orphan_grace, hard=hard))
        t.count("orphan_reap_decisions_total", outcome=ruling.outcome, verdict=verdict.value)
        t.decide(
            Decision(
                id=t.draw("decision"),
                at=t.now,
                runner=row.id,
                pool=row.pool,
                nomination=nomination.number,
                rule=nomination.rule,
                outcome=ruling.outcome,
                verdict=verdict.value,
                via=via.value,
                reason=nomination.rule,
                age=age,
                bound=pool.orphan_grace if verdict is Verdict.UNKNOWN else hard,
                evidence=(Evidence(verdict, via, t.now, "a worker is looked for, and nothing else"),),
            )
        )
        if ruling.destroys:
            self.tear_down(t, row, nomination.rule, Warrant.ESCAPE if ruling.escape else Warrant.IDLE)
