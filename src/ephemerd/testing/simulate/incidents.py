"""Replay of incident journals in `adopt` mode: the runners of the journal exist as they are.

Every line that is neither truth nor legacy is fed to the scheduler; the truth lines drive a modelled process
list and forge; commands that would create runners cannot arise from the real core (the pool may make none) and
are dropped where a foil gives them. Then the journal's own checks are computed from what was destroyed and from
the truth lines alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.step import Step
from ephemerd.core.turn import Turn
from ephemerd.core.validate import slot_difference, validate
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.job import ForgeStatus, JobReport, Told
from ephemerd.domain.labels import normalise
from ephemerd.domain.pool import Host, Policy, Pool, Setup
from ephemerd.domain.runner import FINAL, Decision, FenceAnswer, Runner, RunnerState
from ephemerd.domain.verdict import Files, Listing, ProbeReport, Sign
from ephemerd.testing.simulate.heap import VirtualTime
from ephemerd.testing.simulate.scheduler import Factory, Gate, Scheduler

REPOSITORY = "acme/app"
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Variant:
    """How a replay departs from the journal.

    follow        the daemon hears the listener's lines as they appear; else only probes and events tell
    with_offer    the listener's lines appear with `job_assigned` instead of `worker_started`
    probes        the pool has a probe that works
    probe_fails   the pool has a probe, and it never answers
    silent_log    the listener's lines never appear, neither followed nor in a probe
    fence         how the forge answers while a job is held: "refuses", "accepts" (it is wrong), "500", "timeout"
    grace_s       instead of the journal's
    """

    follow: bool = False
    with_offer: bool = False
    probes: bool = True
    probe_fails: bool = False
    silent_log: bool = False
    fence: str = "refuses"
    grace_s: float | None = None


@dataclass(slots=True)
class Body:
    """A runner as it really is."""

    name: str
    registration: int | None
    listening: bool = False
    job: int | None = None
    assigned: int | None = None
    worker: bool = False
    announced: int | None = None
    ended: int | None = None
    alive: bool = True
    destroyed: int | None = None
    exited: int | None = None
    heard: int | None = None


@dataclass(slots=True)
class Report:
    """What the scheduler decided, and which expectations held."""

    file: str
    events: int = 0
    decisions: list[Decision] = field(default_factory=list)
    destroyed: list[tuple[int, str]] = field(default_factory=list)
    killed: list[tuple[int, str, int]] = field(default_factory=list)
    expectations: list[tuple[str, bool]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read(path: Path) -> tuple[Line, list[Line]]:
    """Return a journal's note and its lines, each with its time as `ms`."""
    lines = [json.loads(text) for text in path.read_text("utf-8").splitlines() if text.strip()]
    for line in lines:
        line["ms"] = moment(line["at"])
    return lines[0], lines[1:]


def moment(text: str) -> int:
    """Return a journal's time as ms since 1970."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)


class Adoption:
    """One replay."""

    def __init__(
        self, path: Path, variant: Variant, lines: Iterable[Line] | None = None, policy: Factory = Gate
    ) -> None:
        self.note, recorded = read(path)
        self.lines = list(lines) if lines is not None else recorded
        self.variant = variant
        self.report = Report(path.name)
        self.bodies: dict[str, Body] = {}
        self.time = VirtualTime(self.note["ms"] - 1_000)
        self.core: Scheduler = policy()
        self._real = policy is Gate
        self._woken_for: int | None = None
        self._registrations = 0
        self._labels: tuple[str, ...] = ()
        self._scopes: dict[str, str] = {}

    def run(self) -> Report:
        """Replay to the last line, then grace and five minutes more, and check."""
        policy = self.note["policy"]
        grace = self.variant.grace_s if self.variant.grace_s is not None else policy.get("grace_s", 600)
        self._feed(ev.Booted("incident", "e", self._setup(policy, int(grace * 1000))))
        for line in self.lines:
            self.time.at(line["ms"], self._line, line)
        end = max(line["ms"] for line in self.lines) + int(grace * 1000) + 300_000
        while (due := self.time.next()) is not None and due <= end:
            self.time.step()
        if self._real:
            self.report.problems.extend(validate(self.core.state))
        self.report.expectations = [(entry["text"], self._check(entry)) for entry in self.note["expect"]]
        return self.report

    def _setup(self, policy: Line, grace: int) -> Setup:
        repositories = sorted({line.get("repo", REPOSITORY) for line in self.lines})
        labels = next((normalise(line["labels"]) for line in self.lines if line.get("labels")), ())
        timeout = policy.get("job_timeout_s")
        pools = tuple(
            Pool(
                name=f"pool-{number}",
                scope=Scope("github", f"repo:{repository}"),
                labels=labels,
                host="host",
                runtime="process",
                max_concurrent=0,
                orphan_grace=grace,
                surplus_grace=int(policy.get("surplus_grace_s", 30) * 1000),
                job_timeout=int(timeout * 1000) if timeout else None,
                probes=self.variant.probes,
            )
            for number, repository in enumerate(repositories)
        )
        self._scopes = {repository: f"pool-{number}" for number, repository in enumerate(repositories)}
        return Setup(pools, (Host("host", int(policy.get("slots", 16))),), Policy())

    def _feed(self, event: ev.Event) -> None:
        step = self.core.handle(event, self.time.now)
        self.report.events += int(not isinstance(event, ev.Woke))
        self._after(step)

    def _after(self, step: Step) -> None:
        self.report.decisions.extend(step.decisions)
        if slot_difference(self.core.state):
            self.report.problems.append(f"slots differ at {self.time.now}")
        for command in step.commands:
            self._send(command)
        wake = self.core.next_wake()
        if wake is not None and (self._woken_for is None or wake < self._woken_for):
            self._woken_for = wake
            self.time.at(wake, self._wake, wake)

    def _wake(self, wake: int) -> None:
        if self._woken_for == wake:
            self._woken_for = None
            self._feed(ev.Woke())

    def _line(self, line: Line) -> None:
        if line.get("legacy"):
            return
        kind = line["kind"]
        body = self.bodies.get(str(line.get("runner")))
        if kind == "runner_registered":
            self._register(line)
        elif kind == "job_queued":
            self._job(line, ForgeStatus.QUEUED)
        elif kind == "job_in_progress":
            self._job(line, ForgeStatus.IN_PROGRESS)
        elif kind == "job_completed":
            self._job(line, ForgeStatus.COMPLETED)
        elif kind == "sweep_ran":
            self._feed(ev.SweepOrdered())
        elif body is not None and body.destroyed is None:
            self._body(kind, line, body)

    def _register(self, line: Line) -> None:
        """Put the journal's runner where the daemon's own would stand: registered and started."""
        self._registrations += 1
        name, repository = line["runner"], line.get("repo", REPOSITORY)
        self.bodies[name] = Body(name, self._registrations)
        pool = self._scopes[repository]
        turn = Turn(self.core.state, self.time.now)
        turn.put_runner(
            Runner(
                id=RunnerId(name),
                pool=pool,
                host="host",
                scope=self.core.state.pool(pool).scope,
                order=turn.draw("runner"),
                state=RunnerState.STARTING,
                since=self.time.now,
                created=self.time.now,
                intent=JobKey("github", repository, line["intent_job"]) if line.get("intent_job") else None,
                registration=self._registrations,
                environment=f"env-{name}",
                started=self.time.now,
            )
        )
        self._feed(ev.Woke())

    def _job(self, line: Line, status: ForgeStatus) -> None:
        key = JobKey("github", line.get("repo", REPOSITORY), line["job"])
        report = JobReport(
            key=key,
            status=status,
            labels=tuple(line.get("labels", ())),
            runner_name=line.get("runner"),
            conclusion=line.get("conclusion"),
        )
        self._feed(ev.JobReported(report, Told.WEBHOOK))

    def _body(self, kind: str, line: Line, body: Body) -> None:
        now = self.time.now
        if kind == "runner_listening":
            body.listening = True
            self._feed(ev.SignSeen(RunnerId(body.name), Sign.LISTENING))
        elif kind == "job_assigned":
            body.job, body.assigned = line["job"], now
            if self.variant.with_offer:
                self._announce(body)
        elif kind == "worker_started":
            body.worker = True
            if not self.variant.with_offer:
                self._announce(body)
        elif kind == "worker_exited":
            body.worker, body.assigned, body.registration = False, None, None
            if not self.variant.silent_log:
                body.ended = now
            if self.variant.follow and not self.variant.silent_log:
                self._feed(ev.SignSeen(RunnerId(body.name), Sign.ENDED))
        elif kind == "runner_exited":
            body.alive, body.exited = False, now
            self._feed(ev.EnvironmentExited(RunnerId(body.name), line.get("code"), 0))

    def _announce(self, body: Body) -> None:
        if self.variant.silent_log:
            return
        body.announced = self.time.now
        if self.variant.follow:
            body.heard = self.time.now
            self._feed(ev.SignSeen(RunnerId(body.name), Sign.ANNOUNCED))

    def _send(self, command: cm.Command) -> None:
        match command:
            case cm.ProbeRunner():
                self.time.after(10, self._probed, command)
            case cm.LookUpRunner():
                self.time.after(100, self._looked_up, command)
            case cm.Deregister():
                self.time.after(100, self._deregistered, command)
            case cm.Destroy():
                self._destroy(command)
            case cm.LookUpJob():
                fault = Fault(Remedy.RETRY, "not in the journal")
                self.time.after(100, self._feed, ev.JobLookedUp(command.job, command.token, fault=fault))
            case cm.LookUpRun():
                fault = Fault(Remedy.RETRY, "not in the journal")
                self.time.after(100, self._feed, ev.RunLookedUp(command.job, command.token, fault=fault))
            case cm.ListJobs():
                self.time.after(100, self._feed, ev.JobsListed(command.scope, 0))
            case cm.ListRegistrations():
                self.time.after(100, self._feed, ev.RegistrationsListed(command.scope, ()))
            case cm.ListEnvironments():
                self.time.after(10, self._feed, ev.EnvironmentsListed(command.host, (), complete=False))
            case _:
                if self._real:
                    self.report.problems.append(f"a command that creates: {command!r}")

    def _probed(self, command: cm.ProbeRunner) -> None:
        body = self.bodies[command.runner]
        if self.variant.probe_fails:
            self._feed(ev.Probed(command.runner, command.token, None, Fault(Remedy.RETRY, "no probe")))
            return
        report = ProbeReport(
            listing=Listing.COMPLETE if body.alive else Listing.EMPTY,
            workers=int(body.worker),
            strangers=0,
            listener_alive=body.alive,
            files=Files.HEALTHY,
            listening=body.listening,
            offered_at=body.announced,
            announced_at=body.announced,
            ended_at=body.ended,
            probe="process",
            detail="",
        )
        self._feed(ev.Probed(command.runner, command.token, report))

    def _looked_up(self, command: cm.LookUpRunner) -> None:
        body = self.bodies[command.runner]
        if body.registration is None:
            self._feed(ev.RunnerLookedUp(command.runner, command.token, missing=True))
        else:
            busy = body.assigned is not None
            self._feed(ev.RunnerLookedUp(command.runner, command.token, busy=busy, connected=body.listening))

    def _deregistered(self, command: cm.Deregister) -> None:
        body = self.bodies[command.intent.runner]
        answer, fault = FenceAnswer.ACCEPTED, None
        if body.registration is None:
            answer = FenceAnswer.NOT_FOUND
        elif body.assigned is not None and self.variant.fence != "accepts":
            answer = FenceAnswer.REFUSED
            if self.variant.fence != "refuses":
                answer, fault = FenceAnswer.NO_ANSWER, Fault(Remedy.RETRY, self.variant.fence)
        else:
            body.registration = None
        event = ev.FenceAnswered(
            command.intent.runner, command.intent.registration, command.token, answer, fault
        )
        self._feed(event)

    def _destroy(self, command: cm.Destroy) -> None:
        permit = command.permit
        body = self.bodies[permit.runner]
        if permit.polite:
            return
        if body.alive:
            self.report.destroyed.append((self.time.now, body.name))
            body.destroyed = self.time.now
            if body.assigned is not None and body.job is not None:
                self.report.killed.append((self.time.now, body.name, body.job))
        body.alive = body.worker = False
        done = ev.EnvironmentDestroyed(permit.runner, permit.environment)
        self.time.after(200, self._feed, done)

    def _check(self, entry: Line) -> bool:
        """Compute one of the journal's checks; an unknown one is not held."""
        kind = entry["check"]
        if kind == "no_kill":
            return not self.report.killed
        if kind == "survives":
            destroyed = self.bodies[entry["runner"]].destroyed
            return destroyed is None or destroyed >= moment(entry["until"])
        if kind == "gone_by":
            body = self.bodies[entry["runner"]]
            gone = body.destroyed if body.destroyed is not None else body.exited
            return gone is not None and gone <= moment(entry["at"]) and body.registration is None
        if kind == "job_ends":
            return self._job_ends(entry["job"], entry["conclusion"])
        if kind == "vetoed":
            return self._vetoed(entry)
        if kind == "nothing_left":
            live = [row for row in self.core.state.runners.values() if row.state not in FINAL]
            bodies = [b for b in self.bodies.values() if b.alive or b.registration is not None]
            return not live and not bodies and not any(self.core.state.index.held.values())
        return False

    def _job_ends(self, job: int, conclusion: str) -> bool:
        exits = [line for line in self.lines if line["kind"] == "worker_exited" and line["job"] == job]
        ends = [
            line
            for line in self.lines
            if line["kind"] == "job_completed" and line["job"] == job and not line.get("legacy")
        ]
        ran = all(self._reached(line) for line in exits)
        return bool(exits) and ran and bool(ends) and ends[-1]["conclusion"] == conclusion

    def _reached(self, line: Line) -> bool:
        destroyed = self.bodies[line["runner"]].destroyed
        return destroyed is None or destroyed >= line["ms"]

    def _vetoed(self, entry: Line) -> bool:
        start, end = moment(entry["from"]), moment(entry["to"])
        mine = [d for d in self.report.decisions if d.runner == entry["runner"] and start <= d.at <= end]
        if mine:
            return all(decision.outcome == "vetoed" for decision in mine)
        heard = self.bodies[entry["runner"]].heard
        return heard is not None and heard <= end


def replay_adopt(
    path: Path,
    variant: Variant | None = None,
    lines: Iterable[Line] | None = None,
    policy: Factory = Gate,
) -> Report:
    """Replay a journal whose runners exist as they are, under a variant and a policy, with other lines
    where given."""
    return Adoption(path, variant or Variant(), lines, policy).run()
