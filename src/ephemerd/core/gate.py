"""The gate: the only way to destroy an environment and to deregister a registration.

A nominated runner passes: generation noted → probe → (unknown: the forge's busy flag) → decision →
fence → settle → probe again → decision again → re-validation → permit. Whatever is not proven stops it.
Permits and fence intents are made in this file alone.
"""

from __future__ import annotations

from msgspec.structs import replace

from ephemerd.core import backoff, jobs, nominate, scopes, signs, verdicts
from ephemerd.core.commands import Deregister, Destroy, LookUpRunner, ProbeRunner
from ephemerd.core.decision import VETO, Bounds, Ruling, age_of, bounds_of, decide
from ephemerd.core.events import FenceAnswered, Probed, RunnerLookedUp
from ephemerd.core.judge import judge, never_at_work, no_report
from ephemerd.core.transitions import move_runner
from ephemerd.core.turn import Turn
from ephemerd.domain.permit import FenceIntent, Permit, Warrant
from ephemerd.domain.pool import FenceKind
from ephemerd.domain.runner import FenceAnswer, GatePhase, GateRun, Rule, Runner, S
from ephemerd.domain.verdict import Evidence, Verdict, Via, worse

QUESTION_LIMIT = 90_000
"""An answer that has not come after so many ms never comes: every port call has a shorter deadline."""

CLEAN_AGAIN = 60_000
"""Remains of an ended environment that could not be removed are tried again after so many ms."""


def begin(t: Turn, row: Runner, rule: Rule, reason: str) -> None:
    """Take a nominated runner in: number the nomination, note its generation, look inside."""
    t.count("nominations_total", rule=rule.value)
    nomination = t.draw("nomination")
    t.note("info", "nominated", runner=row.id, rule=rule.value, reason=reason)
    run = GateRun(
        nomination=nomination,
        rule=rule,
        reason=reason,
        phase=GatePhase.PROBING,
        began=t.now,
        generation=row.signs,
        token=0,
        deadline=t.now,
    )
    row = t.change_runner(row, nominations=row.nominations + 1)
    if t.state.pool(row.pool).probes and row.environment is not None:
        _probe(t, row, run, GatePhase.PROBING)
    else:
        _ask_flag(t, row, run)


def _probe(t: Turn, row: Runner, run: GateRun, phase: GatePhase) -> None:
    token = t.draw("token")
    run = replace(run, phase=phase, token=token, deadline=t.now + t.policy.probe_timeout + 5_000)
    t.change_runner(row, gate=run)
    t.send(ProbeRunner(row.id, row.pool, row.environment or "", token))


def _ask_flag(t: Turn, row: Runner, run: GateRun) -> None:
    """Step 3: one GET of the busy flag. True is busy; it vetoes, and by itself never clears."""
    if row.registration is None or not scopes.may_call(t, row.scope):
        run = _with(run, Evidence(Verdict.UNKNOWN, Via.NONE, t.now, "neither probe nor forge can be asked"))
        _rule(t, row, run, Verdict.UNKNOWN, Via.NONE)
        return
    token = t.draw("token")
    run = replace(run, phase=GatePhase.ASKING, token=token, deadline=t.now + QUESTION_LIMIT)
    t.change_runner(row, gate=run)
    t.send(LookUpRunner(row.id, row.scope, row.registration, token))


def _with(run: GateRun, evidence: Evidence) -> GateRun:
    return replace(run, evidence=(*run.evidence, evidence))


def on_probed(t: Turn, event: Probed) -> None:
    """Take in what a probe saw: in a gate run it decides, outside one it only tells."""
    row = t.runner(event.runner)
    if row is None:
        return
    if event.report is None:
        evidence = no_report(event.fault, t.now)
    else:
        evidence = judge(event.report, t.now, t.policy.soft_sign_life)
    run = row.gate
    asked_by_gate = run is not None and run.token == event.token
    if not asked_by_gate and event.token != row.token:
        return
    if event.report is not None:
        row = verdicts.absorb(t, row, event.report, evidence)
    if run is None or not asked_by_gate:
        t.change_runner(row, seen_after_start=True, asked=None)
        return
    run = _with(run, evidence)
    if run.phase is GatePhase.PROBING:
        run = replace(run, ended=event.report is not None and event.report.ended_at is not None)
        if evidence.verdict is Verdict.UNKNOWN:
            _ask_flag(t, row, run)
        else:
            _rule(t, row, run, evidence.verdict, evidence.via)
    elif run.phase is GatePhase.REPROBING:
        unsaid = run.flag_idle and evidence.verdict is Verdict.UNKNOWN
        if unsaid and event.report is not None and never_at_work(event.report):
            detail = "it never connected, is deregistered, and no worker is among its processes"
            evidence = Evidence(Verdict.IDLE, Via.FORGE, t.now, detail)
            run = _with(run, evidence)
        _second(t, row, run, evidence)


def on_flag(t: Turn, row: Runner, run: GateRun, event: RunnerLookedUp) -> None:
    """Take in the busy flag."""
    evidence = verdicts.of_flag(event, t.now)
    run = _with(run, evidence)
    if evidence.verdict is Verdict.BUSY:
        row = t.change_runner(row, known=t.now)
        if row.hard is None:
            row = signs.soft(t, row)
        _rule(t, row, run, Verdict.BUSY, Via.FORGE)
        return
    if event.busy is False:
        verdicts.doubt_flag(t, row)
    never_connected = run.rule is Rule.UNBORN and event.connected is False
    pool = t.state.pool(row.pool)
    age = age_of(Verdict.UNKNOWN, row, t.now)
    if event.busy is False and (never_connected or (not pool.probes and age >= pool.orphan_grace)):
        run = replace(run, first=Verdict.IDLE, first_at=t.now, flag_idle=True)
        _fence(t, row, run)
        return
    _rule(t, row, run, Verdict.UNKNOWN, Via.FORGE)


def _ruling(t: Turn, row: Runner, run: GateRun, verdict: Verdict) -> tuple[Ruling, int, Bounds]:
    """Step 4. A person's order never escapes: without force it ends nothing that is not proven idle."""
    bounds = bounds_of(row, t.state.pool(row.pool), t.policy)
    age = age_of(verdict, row, t.now)
    ruling = decide(verdict, age, bounds)
    if ruling.escape and run.rule is Rule.OPERATOR:
        ruling = VETO
    return ruling, age, bounds


def _forced(row: Runner) -> bool:
    return row.order_given is not None and row.order_given.even_if_busy


def _rule(t: Turn, row: Runner, run: GateRun, verdict: Verdict, via: Via) -> None:
    """Step 4. An operator's forced order and an overdue job are deliberate ends, not escapes."""
    ruling, _, _ = _ruling(t, row, run, verdict)
    run = replace(run, first=verdict, first_at=t.now, escape=ruling.escape)
    if run.rule is Rule.OVERDUE:
        _overdue(t, row, run, verdict)
    elif ruling.destroys or _forced(row):
        _fence(t, row, run)
    else:
        _veto(t, row, run, verdict, via, run.evidence[-1].detail if run.evidence else "")


def _overdue(t: Turn, row: Runner, run: GateRun, verdict: Verdict) -> None:
    """The listener is asked to stop, so that the forge shows a reason; some minutes later all goes."""
    if row.stopping is None:
        permit = _permit(t, row, run, verdict, Warrant.OVERDUE, polite=True)
        t.note("warning", "job is overdue; asking the listener to stop", runner=row.id, reason=run.reason)
        t.change_runner(row, stopping=t.now, gate=None)
        t.send(Destroy(permit, row.pool))
        return
    _grant(t, row, run, verdict, Warrant.OVERDUE)


def _fence(t: Turn, row: Runner, run: GateRun) -> None:
    """Step 5: make the forge unable to give the runner a job; deregistering is refused while it holds one."""
    if not nominate.still(t, row, run.rule):
        _veto(t, row, run, run.first, Via.NONE, "the rule holds no longer")
        return
    if run.first is Verdict.IDLE and row.signs != run.generation and not _forced(row):
        _veto(t, row, run, Verdict.BUSY, Via.SIGN, "a sign of a job came while it was looked at")
        return
    if t.state.pool(row.pool).fence is FenceKind.NONE or row.registration is None:
        _settle(t, row, replace(run, fence="none"))
    elif row.fence.accepted is not None:
        _settle(t, row, replace(run, fence="accepted"))
    elif row.fence.missing_again is not None and not _may_be_missing(row, run) and not _forced(row):
        _veto(
            t,
            row,
            run,
            run.first,
            Via.FENCE,
            "held: its registration was not found twice; asking proves no more",
        )
    elif t.now < row.fence.retry or not scopes.may_call(t, row.scope):
        if _forced(row):
            _settle(t, row, replace(run, fence="not asked"))
            return
        _veto(t, row, run, run.first, Via.FENCE, "held: the forge cannot be asked to deregister it now")
    else:
        token = t.draw("token")
        run = replace(run, phase=GatePhase.FENCING, token=token, deadline=t.now + QUESTION_LIMIT)
        _remake(t, row, run)
        row = t.change_runner(row, gate=run, fence=replace(row.fence, sent=t.now))
        t.send(Deregister(_intent(t, row, _warrant(row, run), run.rule, run.evidence), token))


def _remake(t: Turn, row: Runner, run: GateRun) -> None:
    """It leaves supply, although it was matched: nobody took it (DOMAIN.md 4.4)."""
    if run.rule is Rule.EXPIRED and row.surplus_since is None and row.fence.sent is None:
        jobs.remake(t, row)


def _warrant(row: Runner, run: GateRun) -> Warrant:
    if _forced(row):
        return Warrant.FORCED
    return Warrant.ESCAPE if run.escape else Warrant.IDLE


def _intent(
    t: Turn, row: Runner, warrant: Warrant, rule: Rule, evidence: tuple[Evidence, ...]
) -> FenceIntent:
    return FenceIntent(
        runner=row.id,
        scope=row.scope,
        registration=row.registration or 0,
        warrant=warrant,
        rule=rule.value,
        made=t.now,
        evidence=evidence,
    )


def on_fence(t: Turn, event: FenceAnswered) -> None:
    """Take in what the forge said to a deregistration."""
    row = t.runner(event.runner)
    if row is None:
        return
    if event.answer is not FenceAnswer.NOT_FOUND:
        scopes.note_answer(t, row.scope, event.fault)
    row = verdicts.remember_fence(t, row, event.answer)
    run = row.gate
    if run is None or run.phase is not GatePhase.FENCING or run.token != event.token:
        if row.state in (S.GONE, S.ABANDONED):
            verdicts.unregistered(t, row, event)
        return
    evidence = verdicts.of_fence(event, t.now)
    run = _with(run, evidence)
    if event.answer is FenceAnswer.ACCEPTED:
        _settle(t, row, replace(run, fence="accepted"))
    elif event.answer is FenceAnswer.REFUSED:
        _refused(t, row, run)
    elif event.answer is FenceAnswer.NOT_FOUND:
        _not_found(t, row, run)
    else:
        _unanswered(t, row, run, evidence.detail)


def _unanswered(t: Turn, row: Runner, run: GateRun, detail: str) -> None:
    """No answer, 401, 403, 429 or 5xx: hold, however long it takes."""
    if _forced(row):
        _settle(t, row, replace(run, fence="no answer"))
    else:
        _veto(t, row, run, run.first, Via.FENCE, f"held: {detail}")


def _refused(t: Turn, row: Runner, run: GateRun) -> None:
    """The forge holds a job for it: busy, whatever the probe said."""
    t.count("fence_refusals_total")
    row = t.change_runner(row, known=t.now)
    if row.hard is None:
        row = signs.soft(t, row)
        run = replace(run, generation=run.generation + 1)
    ruling, _, _ = _ruling(t, row, run, Verdict.BUSY)
    if ruling.escape or _forced(row):
        _settle(t, row, replace(run, fence="refused", first=Verdict.BUSY, escape=ruling.escape))
    else:
        _veto(t, row, run, Verdict.BUSY, Via.FENCE, "the forge refuses to deregister it: it holds a job")


def _not_found(t: Turn, row: Runner, run: GateRun) -> None:
    """Says nothing: an assignment can consume a registration, and lost permission looks alike.

    It counts only where the scope answered within a minute, and only with what else proves an end. That a
    delivery called the job completed is not enough: it may tell of a job that the runner had before.
    """
    counts = scopes.answered_lately(t, row.scope) and _may_be_missing(row, run)
    if counts or _forced(row):
        _settle(t, row, replace(run, fence="not found"))
    else:
        _veto(t, row, run, run.first, Via.FENCE, "held: the registration is not found, which proves nothing")


def _may_be_missing(row: Runner, run: GateRun) -> bool:
    """Say whether "not found" could let the run go on; where it could not, one more DELETE is for nothing."""
    over = run.ended or row.over_via in ("log", "read")
    over_and_gone = over and row.fence.missing_again is not None
    return run.escape or run.rule is Rule.SPENT or over_and_gone


def _settle(t: Turn, row: Runner, run: GateRun) -> None:
    """Step 6, first half: wait, so that a job that was in flight shows itself."""
    wait = 0 if _forced(row) else t.policy.settle
    run = replace(run, phase=GatePhase.SETTLING, deadline=t.now + wait)
    t.change_runner(row, gate=run)


def on_deadline(t: Turn, row: Runner) -> None:
    """The moment that a gate run waits for has come: settled, or a question that got no answer."""
    run = row.gate
    if run is None or t.now < run.deadline:
        return
    silent = Evidence(Verdict.UNKNOWN, Via.NONE, t.now, f"no answer while {run.phase.value}")
    if run.phase is GatePhase.SETTLING:
        _settled(t, row, run)
    elif run.phase is GatePhase.PROBING:
        _ask_flag(t, row, _with(run, silent))
    elif run.phase is GatePhase.REPROBING:
        _second(t, row, _with(run, silent), silent)
    elif run.phase is GatePhase.FENCING:
        row = verdicts.remember_fence(t, row, FenceAnswer.NO_ANSWER)
        _unanswered(t, row, _with(run, silent), silent.detail)
    elif run.phase is GatePhase.ASKING:
        _rule(t, row, _with(run, silent), Verdict.UNKNOWN, Via.NONE)


def _settled(t: Turn, row: Runner, run: GateRun) -> None:
    if run.flag_idle and run.fence != "accepted":
        run = replace(run, first=Verdict.UNKNOWN)
    if t.state.pool(row.pool).probes and row.environment is not None:
        _probe(t, row, run, GatePhase.REPROBING)
        return
    together = run.first is Verdict.IDLE
    detail = "not busy at the forge and an accepted fence together" if together else "no probe"
    evidence = Evidence(run.first, Via.FORGE, t.now, detail)
    _second(t, row, _with(run, evidence), evidence)


def _second(t: Turn, row: Runner, run: GateRun, evidence: Evidence) -> None:
    """Steps 6 and 7: the worse of the two verdicts is ruled on; a sign since step 1 keeps the runner."""
    if run.first is Verdict.IDLE and run.fence == "accepted" and _shows_a_job(row, run, evidence):
        t.count("fence_breaches_total")
        t.note("warning", "FENCE BREACH: a job showed itself after an accepted deregistration", runner=row.id)
    verdict = worse(run.first, evidence.verdict)
    ruling, _, _ = _ruling(t, row, run, verdict)
    if run.rule is Rule.OVERDUE or _forced(row):
        warrant = Warrant.FORCED if _forced(row) else Warrant.OVERDUE
        _grant(t, row, run, verdict, warrant)
    elif not ruling.destroys:
        _veto(t, row, run, verdict, evidence.via, evidence.detail)
    elif row.signs != run.generation:
        _veto(t, row, run, Verdict.BUSY, Via.SIGN, "a sign of a job came while it passed the gate")
    else:
        _grant(t, row, run, verdict, Warrant.ESCAPE if ruling.escape else Warrant.IDLE)


def _shows_a_job(row: Runner, run: GateRun, evidence: Evidence) -> bool:
    """Say whether the second look is busy, or a sign came in this run after the accepted fence."""
    after = max(row.fence.accepted or 0, run.began)
    late = any(mark is not None and mark > after for mark in (row.soft_last, row.hard_last))
    return late or evidence.verdict is Verdict.BUSY


def _grant(t: Turn, row: Runner, run: GateRun, verdict: Verdict, warrant: Warrant) -> None:
    """Step 8: the permit, and what is written about it."""
    _, age, bounds = _ruling(t, row, run, verdict)
    outcome = "escaped" if warrant is Warrant.ESCAPE else "reaped"
    bound = bounds.hard if verdict is Verdict.BUSY else bounds.unknown
    verdicts.record(t, row, run, outcome, verdict, _via(run), run.reason, age, bound)
    verdicts.log_destroy(t, row, run, verdict, warrant)
    if warrant in (Warrant.OVERDUE, Warrant.FORCED):
        t.count("deliberate_ends_total", warrant=warrant.value, pool=row.pool)
    _remake(t, row, run)
    if row.environment is None:
        ended = replace(row, gate=None, ending=f"{run.rule.value}: {run.reason}")
        t.put_runner(move_runner(ended, S.GONE, t.now, consumes=False))
        return
    permit = _permit(t, row, run, verdict, warrant)
    run = replace(run, phase=GatePhase.DESTROYING, deadline=t.now + t.policy.retiring_limit)
    changes = {"gate": run, "ending": f"{run.rule.value}: {run.reason}", "consumes": False}
    if row.state is S.RETIRING:
        t.change_runner(row, since=t.now, **changes)
    else:
        t.put_runner(move_runner(row, S.RETIRING, t.now, **changes))
    t.send(Destroy(permit, row.pool))


def _via(run: GateRun) -> Via:
    return run.evidence[-1].via if run.evidence else Via.NONE


def _permit(
    t: Turn, row: Runner, run: GateRun, verdict: Verdict, warrant: Warrant, *, polite: bool = False
) -> Permit:
    return Permit(
        runner=row.id,
        environment=row.environment or "",
        warrant=warrant,
        rule=run.rule.value,
        verdict=verdict,
        made=t.now,
        expires=t.now + t.policy.permit_life,
        epoch=t.state.epoch,
        fence=run.fence,
        proofs=(run.first_at, t.now),
        evidence=run.evidence,
        polite=polite,
    )


def _veto(t: Turn, row: Runner, run: GateRun, verdict: Verdict, via: Via, reason: str) -> None:
    """Keep the runner, and leave it alone for a while."""
    _, age, bounds = _ruling(t, row, run, verdict)
    bound = bounds.unknown if verdict is Verdict.UNKNOWN else bounds.hard
    verdicts.record(t, row, run, "vetoed", verdict, via, reason, age, bound)
    t.count("vetoes_total", via=via.value)
    t.note(
        "info",
        "orphan sweep nomination vetoed",
        runner=row.id,
        busy_verdict=verdict.value,
        probe=via.value,
        rule=run.rule.value,
        reason=reason,
    )
    pause = backoff.doubling(t.policy.veto_backoff, t.policy.veto_backoff_max, row.vetoes)
    given_up = verdict is Verdict.BUSY or decide(verdict, age, bounds).escape
    order = None if given_up else row.order_given
    row = replace(row, gate=None, vetoes=row.vetoes + 1, vetoed_until=t.now + pause, order_given=order)
    if row.state is S.RETIRING:
        row = move_runner(row, S.STUCK, t.now, stuck=f"kept after a permit had lapsed: {reason}")
    t.put_runner(row)


def again_from_retiring(t: Turn, row: Runner, why: str) -> None:
    """A permit lapsed before it was used: look once more and rule anew. One of an earlier process life
    is void, and the gate begins at its beginning."""
    run, phase = row.gate, GatePhase.REPROBING
    if run is None:
        phase = GatePhase.PROBING
        run = GateRun(
            nomination=t.draw("nomination"),
            rule=Rule.ENDED,
            reason="it was being destroyed when this process life began",
            phase=phase,
            began=t.now,
            generation=row.signs,
            token=0,
            deadline=t.now,
        )
    _probe(t, row, _with(run, Evidence(Verdict.UNKNOWN, Via.NONE, t.now, why)), phase)


def end_leftovers(t: Turn, row: Runner, what: str) -> None:
    """Listener and worker are proven gone: what the job left running (`what`) is ours to end."""
    permit = _ended_permit(t, row, f"listener and worker have exited; {what}")
    row = replace(row, vetoed_until=permit.expires, ending="ended by itself, left processes behind")
    t.put_runner(row if row.state is S.RETIRING else move_runner(row, S.RETIRING, t.now))
    t.send(Destroy(permit, row.pool))


def clean_up(t: Turn, row: Runner) -> None:
    """The environment has ended: have its remains removed."""
    if row.environment is not None:
        t.put_runner(replace(row, vetoed_until=t.now + CLEAN_AGAIN))
        t.send(Destroy(_ended_permit(t, row, "listener and worker have exited"), row.pool))


def clean_up_abandoned(t: Turn, row: Runner) -> None:
    """Listener and worker of an abandoned environment have ended at last, and processes of the job have not:
    end them. It stays abandoned until they are gone; each listing that finds it tries again."""
    t.put_runner(row)
    t.send(
        Destroy(_ended_permit(t, row, "listener and worker have exited, other processes have not"), row.pool)
    )


def _ended_permit(t: Turn, row: Runner, detail: str) -> Permit:
    """Permit what is left of an environment that ended by itself: no gate run proved it idle, its exit did."""
    return Permit(
        runner=row.id,
        environment=row.environment or "",
        warrant=Warrant.ENDED,
        rule=Rule.ENDED.value,
        verdict=Verdict.IDLE,
        made=t.now,
        expires=t.now + t.policy.permit_life,
        epoch=t.state.epoch,
        fence="none",
        proofs=(t.now, t.now),
        evidence=(Evidence(Verdict.IDLE, Via.EXIT, t.now, detail),),
    )


def take_back(t: Turn, row: Runner) -> None:
    """The environment is gone, or never was: deregister what is left at the forge."""
    if row.registration is None or t.state.pool(row.pool).fence is FenceKind.NONE:
        t.change_runner(row, unregister=False)
        return
    if t.now < row.fence.retry or not scopes.may_call(t, row.scope):
        return
    evidence = (Evidence(Verdict.IDLE, Via.EXIT, t.now, "its environment is gone or never started"),)
    row = t.change_runner(row, fence=replace(row.fence, sent=t.now, retry=t.now + QUESTION_LIMIT))
    t.send(Deregister(_intent(t, row, Warrant.ENDED, Rule.ENDED, evidence), t.draw("token")))
