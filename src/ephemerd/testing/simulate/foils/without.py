"""Ours with one check taken out: wrappers that change what the core is told and what it orders.

The core itself is never edited. Each wrapper can stand around another one, so that two checks of which either
is enough can be taken out together.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.state import Rows, State
from ephemerd.core.step import Step
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import JobReport, Told
from ephemerd.domain.runner import FINAL, FenceAnswer, GatePhase, Runner, RunnerState
from ephemerd.domain.verdict import Listing, ProbeReport, Sign
from ephemerd.testing.simulate.scheduler import Factory, Gate

LOG_SIGNS = frozenset({Sign.OFFERED, Sign.ACKNOWLEDGED, Sign.ANNOUNCED, Sign.ENDED, Sign.SKIPPED})
AFTER_FIRST_LOOK = frozenset({GatePhase.FENCING, GatePhase.SETTLING, GatePhase.REPROBING})


def joined(first: Step, then: Step, commands: tuple[cm.Command, ...]) -> Step:
    """Return two steps as one, with these commands in all; of two changes of one row the later stands."""
    changed = {(kind, name): row for kind, name, row in (*first.changed, *then.changed)}
    return Step(
        commands=commands,
        changed=tuple((kind, name, row) for (kind, name), row in sorted(changed.items(), key=_by_key)),
        decisions=(*first.decisions, *then.decisions),
        notes=(*first.notes, *then.notes),
        subjects=tuple(sorted({*first.subjects, *then.subjects})),
    )


def _by_key(item: tuple[tuple[str, str], object]) -> tuple[str, str]:
    return item[0]


class Without:
    """A scheduler around another one; by itself it changes nothing."""

    def __init__(self, inner: Factory = Gate) -> None:
        self.inner = inner()

    @property
    def state(self) -> State:
        return self.inner.state

    def next_wake(self) -> int | None:
        return self.inner.next_wake()

    def reload(self, rows: Rows, now: int) -> None:
        self.inner.reload(rows, now)

    def handle(self, event: ev.Event, now: int) -> Step:
        """Tell the core what `told` makes of the event, and pass on what `sent` makes of its orders."""
        heard = self.told(event)
        if heard is None:
            return Step((), (), (), (), ())
        step = self.inner.handle(heard, now)
        passed: list[cm.Command] = []
        answers: list[ev.Event] = []
        for command in step.commands:
            self.sent(command, passed.append, answers.append)
        answers.extend(self.after(event, passed.append))
        whole = joined(step, Step((), (), (), (), ()), tuple(passed))
        for answer in answers:
            then = self.handle(answer, now)
            whole = joined(whole, then, (*whole.commands, *then.commands))
        return whole

    def runner(self, name: RunnerId) -> Runner | None:
        return self.state.runners.get(name)

    def phase(self, name: RunnerId) -> GatePhase | None:
        """Return where the runner stands in the gate, if it is in it."""
        row = self.runner(name)
        return row.gate.phase if row is not None and row.gate is not None else None

    def told(self, event: ev.Event) -> ev.Event | None:
        """Return what the core hears of an event, None for nothing."""
        return event

    def sent(
        self, command: cm.Command, passed: Callable[[cm.Command], None], answer: Callable[[ev.Event], None]
    ) -> None:
        """Pass a command on, or answer it."""
        passed(command)

    def after(self, event: ev.Event, passed: Callable[[cm.Command], None]) -> list[ev.Event]:
        """Do what is due after an event; return what the core is to hear besides."""
        return []


class NoProbe(Without):
    """The processes are not looked at.

    Taken out: in each `Probed` the workers, the strangers and the state of the process list (it reads as
    complete, with a live listener and nothing else), and the sign that a worker appeared. Kept: the listener's
    log and performance file, in probes and followed; fence, settling, re-validation.
    """

    def told(self, event: ev.Event) -> ev.Event | None:
        if isinstance(event, ev.SignSeen) and event.sign is Sign.WORKER:
            return None
        if isinstance(event, ev.Probed) and event.report is not None:
            return replace(event, report=_without_processes(event.report))
        return event


def _without_processes(report: ProbeReport) -> ProbeReport:
    return replace(report, listing=Listing.COMPLETE, workers=0, strangers=0, listener_alive=True)


class NoLog(Without):
    """The listener's log and performance file are not read.

    Taken out: in each `Probed` when a job was offered, announced and ended; and the followed lines that tell
    of it (offered, acknowledged, announced, skipped, ended). Kept: that it listens, the worker process, in
    probes and as a sign; fence, settling, re-validation.
    """

    def told(self, event: ev.Event) -> ev.Event | None:
        if isinstance(event, ev.SignSeen) and event.sign in LOG_SIGNS:
            return None
        if isinstance(event, ev.Probed) and event.report is not None:
            quiet = replace(event.report, offered_at=None, announced_at=None, ended_at=None)
            return replace(event, report=quiet)
        return event


class NoFence(Without):
    """The forge is not asked before the environment is destroyed.

    Taken out: the deregistration of a gate run is not sent; "accepted" is answered at once. The real one goes
    out when the environment is gone: destroy first, deregister last. Kept: both probes, settling,
    re-validation.
    """

    def __init__(self, inner: Factory = Gate) -> None:
        super().__init__(inner)
        self._held: dict[RunnerId, cm.Deregister] = {}

    def sent(
        self, command: cm.Command, passed: Callable[[cm.Command], None], answer: Callable[[ev.Event], None]
    ) -> None:
        if not isinstance(command, cm.Deregister) or self.phase(command.intent.runner) is None:
            passed(command)
            return
        asked = command.intent
        self._held[asked.runner] = command
        answer(ev.FenceAnswered(asked.runner, asked.registration, command.token, FenceAnswer.ACCEPTED))

    def after(self, event: ev.Event, passed: Callable[[cm.Command], None]) -> list[ev.Event]:
        if isinstance(event, ev.EnvironmentDestroyed | ev.EnvironmentExited):
            held = self._held.pop(event.runner, None)
            if held is not None:
                passed(held)
        return []


class NoSettle(Without):
    """Between the fence and the permit nobody looks again.

    Taken out: `settle` is 0, and the second probe is not made: what the first one saw is told once more. Kept:
    the first probe, the fence, re-validation.
    """

    def __init__(self, inner: Factory = Gate) -> None:
        super().__init__(inner)
        self._first: dict[RunnerId, ev.Probed] = {}

    def told(self, event: ev.Event) -> ev.Event | None:
        if isinstance(event, ev.Booted):
            policy = replace(event.setup.policy, settle=0)
            return replace(event, setup=replace(event.setup, policy=policy))
        if isinstance(event, ev.Probed) and self.phase(event.runner) is GatePhase.PROBING:
            self._first[event.runner] = event
        return event

    def sent(
        self, command: cm.Command, passed: Callable[[cm.Command], None], answer: Callable[[ev.Event], None]
    ) -> None:
        if isinstance(command, cm.ProbeRunner) and self.phase(command.runner) is GatePhase.REPROBING:
            first = self._first.get(command.runner)
            if first is not None:
                answer(replace(first, token=command.token))
                return
        passed(command)


class NoRevalidate(Without):
    """A sign that comes after the first look does not stop the gate.

    Taken out: from the fence on, what would raise the runner's generation is kept from the core until the run
    is over: followed signs of a job, and that a delivery, listing or look-up names the runner. Kept: both
    probes with all that they see, the fence, settling.
    """

    def __init__(self, inner: Factory = Gate) -> None:
        super().__init__(inner)
        self._kept: dict[RunnerId, list[ev.Event]] = {}

    def reload(self, rows: Rows, now: int) -> None:
        self._kept.clear()
        super().reload(rows, now)

    def told(self, event: ev.Event) -> ev.Event | None:
        if isinstance(event, ev.SignSeen) and event.sign is not Sign.LISTENING:
            return None if self._keeps(event.runner, event) else event
        if isinstance(event, ev.JobReported) and self._names(event.report, event):
            return replace(event, report=_unnamed(event.report))
        if isinstance(event, ev.JobsRead):
            return replace(event, reports=tuple(self._listed(report) for report in event.reports))
        if (
            isinstance(event, ev.JobLookedUp)
            and event.report is not None
            and self._names(event.report, ev.JobReported(event.report, Told.LOOKUP))
        ):
            return replace(event, report=_unnamed(event.report))
        return event

    def _listed(self, report: JobReport) -> JobReport:
        later = ev.JobReported(report, Told.LISTING)
        return _unnamed(report) if self._names(report, later) else report

    def _names(self, report: JobReport, later: ev.Event) -> bool:
        return report.runner_name is not None and self._keeps(RunnerId(report.runner_name), later)

    def _keeps(self, name: RunnerId, event: ev.Event) -> bool:
        if self.phase(name) not in AFTER_FIRST_LOOK:
            return False
        self._kept.setdefault(name, []).append(event)
        return True

    def after(self, event: ev.Event, passed: Callable[[cm.Command], None]) -> list[ev.Event]:
        """Tell what was kept of runners that are through the gate, whichever way."""
        told: list[ev.Event] = []
        for name in [name for name in self._kept if self.phase(name) not in AFTER_FIRST_LOOK]:
            kept = self._kept.pop(name)
            row = self.runner(name)
            if row is not None and row.state not in FINAL and row.state is not RunnerState.RETIRING:
                told.extend(kept)
        return told


def _unnamed(report: JobReport) -> JobReport:
    return replace(report, runner_name=None, runner_id=None)
