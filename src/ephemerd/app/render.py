"""Domain values as the views that the outside reads. Pure; `now` is the shell clock's time in ms."""

from __future__ import annotations

from ephemerd.domain.job import ENDED_STATUSES, Job, JobStatus
from ephemerd.domain.pool import SECOND
from ephemerd.domain.runner import Decision, Fence, GateRun, Runner, RunnerState
from ephemerd.domain.verdict import Evidence
from ephemerd.ports.store import JournalEntry, Segment
from ephemerd.ports.views import (
    DecisionView,
    EvidenceView,
    GateView,
    JobView,
    JournalView,
    RunnerView,
    SegmentView,
)


def seconds(ms: int) -> float:
    """A duration in seconds; a moment that lies ahead of the clock's last reading counts as now."""
    return max(0, ms) / SECOND


def evidence(looks: tuple[Evidence, ...]) -> tuple[EvidenceView, ...]:
    return tuple(EvidenceView(look.verdict.value, look.via.value, look.at, look.detail) for look in looks)


def decision(made: Decision) -> DecisionView:
    return DecisionView(
        id=made.id,
        at=made.at,
        runner=made.runner,
        pool=made.pool,
        nomination=made.nomination,
        rule=made.rule,
        outcome=made.outcome,
        verdict=made.verdict,
        via=made.via,
        reason=made.reason,
        age_s=seconds(made.age),
        bound_s=seconds(made.bound),
        evidence=evidence(made.evidence),
    )


def gate(run: GateRun) -> GateView:
    return GateView(
        run.nomination, run.rule.value, run.reason, run.phase.value, run.began, evidence(run.evidence)
    )


def fence(row: Fence) -> str:
    """The strongest thing that is known of a runner's fence."""
    if row.accepted is not None:
        return "accepted"
    if row.missing is not None:
        return "missing"
    if row.refused is not None:
        return "refused"
    return "sent" if row.sent is not None else ""


def bound(row: Runner, now: int, soft_sign_life: int) -> str:
    """By which kind of sign the runner is known to hold a job: `hard`, `soft` or none."""
    if row.state is RunnerState.GONE:
        return ""
    if row.hard is not None:
        return "hard"
    if row.soft_last is not None and now - row.soft_last < soft_sign_life:
        return "soft"
    return ""


def runner(row: Runner, now: int, soft_sign_life: int) -> RunnerView:
    return RunnerView(
        id=row.id,
        pool=row.pool,
        host=row.host,
        scope=str(row.scope),
        state=row.state.value,
        since=row.since,
        since_s=seconds(now - row.since),
        created=row.created,
        age_s=seconds(now - row.created),
        started=row.started,
        listening=row.listening,
        intent=str(row.intent) if row.intent else None,
        job=str(row.job) if row.job else None,
        bound=bound(row, now, soft_sign_life),
        worker=row.worker,
        over=row.over,
        registration=row.registration,
        environment=row.environment,
        nominations=row.nominations,
        vetoes=row.vetoes,
        vetoed_until=row.vetoed_until if row.vetoed_until > now else None,
        fence=fence(row.fence),
        gate=gate(row.gate) if row.gate else None,
        stuck=row.stuck,
        ending=row.ending,
        exit_code=row.exit_code,
        adopted=row.adopted,
        labels=row.labels,
    )


def job(row: Job, now: int, why: str) -> JobView:
    ended = row.since if row.status in ENDED_STATUSES else now
    until = row.started if row.started is not None else ended
    return JobView(
        id=str(row.key),
        forge=row.key.forge,
        repository=row.key.repository,
        number=row.key.id,
        name=row.name,
        run_id=row.run_id,
        attempt=row.attempt,
        labels=row.labels,
        status=row.status.value,
        since=row.since,
        since_s=seconds(now - row.since),
        first_seen=row.first_seen,
        waited_s=seconds(until - row.first_seen),
        started=row.started,
        ended=row.ended,
        runner=row.runner,
        ours=row.ours is not None,
        conclusion=row.conclusion,
        why=why if row.status is JobStatus.QUEUED else "",
    )


def journal(entry: JournalEntry) -> JournalView:
    return JournalView(entry.seq, entry.segment, entry.now, entry.event, entry.commands)


def segment(found: Segment) -> SegmentView:
    checkpoint = found.checkpoint
    return SegmentView(
        found.number, found.rules, found.first_seq, checkpoint.get("rows", {}), checkpoint.get("at", 0)
    )
