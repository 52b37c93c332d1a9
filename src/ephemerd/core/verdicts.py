"""What the gate reads and writes down: signs in a probe, answers as evidence, decisions, log lines."""

from __future__ import annotations

from msgspec.structs import replace

from ephemerd.core import backoff, signs
from ephemerd.core.events import FenceAnswered, RunnerLookedUp
from ephemerd.core.scopes import answered_lately
from ephemerd.core.turn import Turn
from ephemerd.domain.permit import Warrant
from ephemerd.domain.runner import Decision, FenceAnswer, GateRun, Runner, S
from ephemerd.domain.verdict import Evidence, ProbeReport, Verdict, Via

RETRY = (30_000, 60_000, 120_000, 300_000, 600_000, 3_600_000)
"""Pauses between requests to take back the registration of a runner that is gone (a zombie is refused
for 10 to 15 minutes, at times for hours: github.md section 4)."""


def absorb(t: Turn, row: Runner, report: ProbeReport, evidence: Evidence) -> Runner:
    """Latch the signs that a probe saw, and when a verdict was last something else than unknown."""
    if report.workers > 0 and (row.worker is None or row.hard is None):
        row = signs.hard(t, row, worker=True)
    elif evidence.verdict is Verdict.BUSY and report.announced_at is not None and row.hard is None:
        row = signs.hard(t, row)
    elif (
        evidence.verdict is Verdict.BUSY
        and row.hard is None
        and (row.soft is None or row.state in signs.SOFT_FROM)
    ):
        row = signs.soft(t, row, offered=True)
    if evidence.verdict is not Verdict.UNKNOWN:
        row = t.change_runner(row, known=t.now)
    return row


def of_flag(event: RunnerLookedUp, now: int) -> Evidence:
    """Turn the forge's view of a registration into evidence: only "busy" is a verdict."""
    if event.missing:
        return Evidence(Verdict.UNKNOWN, Via.FORGE, now, "the registration is not found, which says nothing")
    if event.fault is not None:
        return Evidence(Verdict.UNKNOWN, Via.FORGE, now, f"the forge gave no answer: {event.fault.detail}")
    if event.busy:
        return Evidence(Verdict.BUSY, Via.FORGE, now, "the forge shows the runner as busy")
    return Evidence(Verdict.UNKNOWN, Via.FORGE, now, "the forge shows it as not busy, which clears nothing")


def of_fence(event: FenceAnswered, now: int) -> Evidence:
    """Turn an answer to a deregistration into evidence."""
    if event.answer is FenceAnswer.ACCEPTED:
        return Evidence(Verdict.IDLE, Via.FENCE, now, "the forge accepted the deregistration")
    if event.answer is FenceAnswer.REFUSED:
        return Evidence(Verdict.BUSY, Via.FENCE, now, "the forge refused the deregistration")
    if event.answer is FenceAnswer.NOT_FOUND:
        return Evidence(Verdict.UNKNOWN, Via.FENCE, now, "the registration is not found")
    detail = event.fault.detail if event.fault is not None else "no answer"
    return Evidence(Verdict.UNKNOWN, Via.FENCE, now, f"the deregistration got no answer: {detail}")


def remember_fence(t: Turn, row: Runner, answer: FenceAnswer) -> Runner:
    """Keep what the forge said to a deregistration; "not found" counts only if the scope answers."""
    fence = row.fence
    if answer is FenceAnswer.ACCEPTED:
        fence = replace(fence, accepted=t.now, retry=0, tries=0)
    elif answer is FenceAnswer.REFUSED:
        tries = 1 if fence.refused is None else fence.tries + 1
        fence = replace(fence, refused=t.now, retry=t.now + t.policy.veto_backoff_max, tries=tries)
    elif answer is FenceAnswer.NOT_FOUND and answered_lately(t, row.scope):
        if fence.missing is None:
            fence = replace(fence, missing=t.now, retry=t.now + t.policy.look_again)
        elif t.now - fence.missing >= t.policy.look_again:
            fence = replace(fence, missing_again=t.now, retry=0)
    else:
        pause = backoff.doubling(t.policy.veto_backoff, t.policy.veto_backoff_max, fence.tries)
        fence = replace(fence, retry=t.now + pause, tries=fence.tries + 1)
    return t.change_runner(row, fence=fence)


def unregistered(t: Turn, row: Runner, event: FenceAnswered) -> None:
    """A registration without an environment was to be taken back: done, or, where the forge refuses, tried
    again ever more slowly. No answer is the scope's trouble, which has its own pace, and slows nothing after
    it: `remember_fence` waits a minute at most. "Not found" by a scope that does not answer otherwise is no
    answer: a token that lost its access would else leave every registration behind."""
    gone = event.answer is FenceAnswer.NOT_FOUND and answered_lately(t, row.scope)
    if gone or event.answer is FenceAnswer.ACCEPTED:
        t.change_runner(row, unregister=False)
        return
    if event.answer is not FenceAnswer.REFUSED:
        return
    pause = RETRY[min(row.fence.tries, len(RETRY)) - 1] if row.fence.tries else RETRY[0]
    t.change_runner(row, fence=replace(row.fence, retry=t.now + pause))


def doubt_flag(t: Turn, row: Runner) -> None:
    """The forge shows a runner as not busy. Where its worker was seen a minute ago or longer and nothing says
    that its job is over, the flag is wrong: it is counted, and changes nothing."""
    began = row.hard if row.hard is not None else t.now
    if row.state is S.RUNNING and row.worker is not None and t.now - began >= t.policy.confirm_after:
        t.count("flag_contradictions_total", pool=row.pool)


def record(
    t: Turn,
    row: Runner,
    run: GateRun,
    outcome: str,
    verdict: Verdict,
    via: Via,
    reason: str,
    age: int,
    bound: int,
) -> None:
    """Write one decision down and count it."""
    t.decide(
        Decision(
            id=t.draw("decision"),
            at=t.now,
            runner=row.id,
            pool=row.pool,
            nomination=run.nomination,
            rule=run.rule.value,
            outcome=outcome,
            verdict=verdict.value,
            via=via.value,
            reason=reason,
            age=age,
            bound=bound,
            evidence=run.evidence,
        )
    )
    t.count("orphan_reap_decisions_total", outcome=outcome, verdict=verdict.value)


def log_destroy(t: Turn, row: Runner, run: GateRun, verdict: Verdict, warrant: Warrant) -> None:
    """Write the lines that people search for."""
    fields = {
        "runner": row.id,
        "reason": run.reason,
        "busy_verdict": verdict.value,
        "grace": t.state.pool(row.pool).orphan_grace,
        "rule": run.rule.value,
        "fence": run.fence,
    }
    if warrant is Warrant.ESCAPE:
        t.note("warning", "ESCAPE: destroying a runner that is not proven idle", **fields)
    elif warrant in (Warrant.OVERDUE, Warrant.FORCED):
        t.note("warning", f"destroying a runner on purpose ({warrant.value})", **fields)
    else:
        t.note("info", "destroying orphaned runner", **fields)
