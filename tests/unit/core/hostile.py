"""Answers to the core's questions: as a calm world gives them, and as a hostile one may.

A hostile answer is of the right kind and about the right subject, and apart from that anything at all.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.machine import Core
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import JobKey, RunnerId
from ephemerd.domain.job import ForgeStatus, JobReport, JobStatus, Origin
from ephemerd.domain.pool import FenceKind, Host, Policy, Setup
from ephemerd.domain.runner import FINAL, FenceAnswer
from ephemerd.domain.verdict import Files, Listing, Sign
from tests.unit.core.world import GPU, LABELS, LIB, SECOND, pool, seen

SLOTS = {"here": 3, "there": 1}
SETUP = Setup(
    (
        pool(max_concurrent=2),
        pool("gpu", labels=GPU, surplus_grace=0, job_timeout=20 * 60 * SECOND),
        pool("bare", scope=LIB, host="there", probes=False),
        pool("tea", scope=LIB, labels=("tea",), host="there", probes=False, fence=FenceKind.NONE),
    ),
    tuple(Host(name, slots) for name, slots in SLOTS.items()),
    Policy(),
)
CLASSES = ((("acme/app"), LABELS), ("acme/app", GPU), ("acme/lib", LABELS), ("acme/lib", ("tea",)))
FAULTS = st.builds(
    Fault, st.sampled_from(list(Remedy)), st.just("a fault"), st.none() | st.integers(1, 120 * SECOND)
)
DELAYS = (
    1,
    SECOND,
    5 * SECOND,
    16 * SECOND,
    31 * SECOND,
    61 * SECOND,
    125 * SECOND,
    301 * SECOND,
    601 * SECOND,
)
ANY = st.integers(0, 10_000)
TIMES = st.none() | st.integers(-20 * 60 * SECOND, 0)


class Answers:
    """Who answers: knows the core, the time, and the names that were ever heard of."""

    core: Core
    now: int
    names: list[RunnerId]

    def pick(self, number: int) -> RunnerId:
        """Choose mostly among what lives, at times something that is gone or was never ours."""
        rows = sorted(self.core.state.runners.values(), key=lambda row: row.order)
        live = [row.id for row in rows if row.state not in FINAL]
        known = [*live, *live, *live, *(row.id for row in rows), *self.names[:2]]
        return known[number % len(known)]

    def said(
        self, number: int, status: ForgeStatus, who: int | None, registration: int | None, how: str | None
    ) -> JobReport:
        repository, labels = CLASSES[number % len(CLASSES)]
        name = self.pick(who) if who is not None else None
        return JobReport(
            JobKey("github", repository, number),
            status,
            labels,
            runner_name=name,
            runner_id=registration,
            conclusion=how,
        )

    def ago(self, ms: int | None) -> int | None:
        return None if ms is None else self.now + ms

    # -- a hostile world -----------------------------------------------------------------------------

    def answer(self, command: cm.Command, draw: Any) -> ev.Event:
        """Answer anything of the right kind."""
        match command:
            case cm.Register() | cm.LookUpName() | cm.LookUpRunner() | cm.Deregister():
                event: ev.Event = draw(self.of_registrations(command))
                return event
            case cm.StartRunner() | cm.ProbeRunner() | cm.Destroy() | cm.WatchRunner():
                told: ev.Event = draw(self.of_environments(command))
                return told
            case cm.LookUpJob():
                return self.of_jobs(command, draw)
            case cm.LookUpRun():
                return self.of_runs(command, draw)
            case cm.ListEnvironments():
                return ev.EnvironmentsListed(command.host, self.some(draw, command.host), draw(st.booleans()))
            case cm.ListRegistrations():
                found = tuple(
                    ev.FoundRegistration(name, draw(st.integers(1, 60)), draw(st.booleans()), online=True)
                    for name in self.names
                    if draw(st.booleans())
                )
                return ev.RegistrationsListed(command.scope, found, draw(st.none() | FAULTS))
            case cm.ListJobs():
                return ev.JobsListed(command.scope, 0, draw(st.none() | FAULTS))

    def of_registrations(
        self, command: cm.Register | cm.LookUpName | cm.LookUpRunner | cm.Deregister
    ) -> st.SearchStrategy[Any]:
        ids = st.none() | st.integers(1, 60)
        match command:
            case cm.Register(runner):
                failed = st.builds(ev.RegistrationFailed, st.just(runner), FAULTS, ids)
                return st.just(ev.Registered(runner, len(self.names))) | failed
            case cm.LookUpName(runner):
                return st.builds(ev.NameLookedUp, st.just(runner), ids, st.none() | FAULTS)
            case cm.LookUpRunner(runner):
                who, token = st.just(runner), st.just(command.token)
                flag = st.booleans()
                return (
                    st.builds(ev.RunnerLookedUp, who, token, busy=flag, connected=flag)
                    | st.just(ev.RunnerLookedUp(runner, command.token, missing=True))
                    | st.builds(ev.RunnerLookedUp, who, token, fault=FAULTS)
                )
            case cm.Deregister(intent):
                known = (st.just(intent.runner), st.just(intent.registration), st.just(command.token))
                clear = st.sampled_from([one for one in FenceAnswer if one is not FenceAnswer.NO_ANSWER])
                silent = st.just(FenceAnswer.NO_ANSWER)
                return st.builds(ev.FenceAnswered, *known, clear) | st.builds(
                    ev.FenceAnswered, *known, silent, FAULTS
                )

    def of_environments(
        self, command: cm.StartRunner | cm.ProbeRunner | cm.Destroy | cm.WatchRunner
    ) -> st.SearchStrategy[Any]:
        match command:
            case cm.StartRunner(runner):
                started = st.just(ev.EnvironmentStarted(runner, f"env-{runner}"))
                return started | st.builds(ev.StartFailed, st.just(runner), FAULTS)
            case cm.ProbeRunner(runner):
                report = st.builds(
                    seen,
                    listing=st.sampled_from(list(Listing)),
                    workers=st.integers(0, 1),
                    files=st.sampled_from(list(Files)),
                    offered_at=TIMES.map(self.ago),
                    announced_at=TIMES.map(self.ago),
                    ended_at=TIMES.map(self.ago),
                )
                looks = st.none() | st.just(seen()) | report
                return st.builds(ev.Probed, st.just(runner), st.just(command.token), looks)
            case cm.Destroy(permit):
                gone = st.just(ev.EnvironmentDestroyed(permit.runner, permit.environment))
                return gone | st.builds(
                    ev.DestroyFailed, st.just(permit.runner), st.just(permit.environment), FAULTS
                )
            case cm.WatchRunner(runner):
                told = st.builds(ev.SignSeen, st.just(runner), st.sampled_from(list(Sign)), st.just("build"))
                return told | st.just(ev.EnvironmentExited(runner, None))

    def of_jobs(self, command: cm.LookUpJob, draw: Any) -> ev.Event:
        status = draw(st.sampled_from([*ForgeStatus, None]))
        if status is None:
            return ev.JobLookedUp(command.job, command.token, missing=True)
        said = self.said(command.job.id, status, draw(st.none() | ANY), None, None)
        fault = draw(st.none() | FAULTS)
        return ev.JobLookedUp(command.job, command.token, None if fault else said, fault=fault)

    def of_runs(self, command: cm.LookUpRun, draw: Any) -> ev.Event:
        known = st.none() | st.booleans()
        origin = draw(st.none() | st.builds(Origin, known, known, st.just("main"), st.just("CI")))
        missing = origin is None and draw(st.booleans())
        return ev.RunLookedUp(command.job, command.token, origin, missing, draw(st.none() | FAULTS))

    def some(self, draw: Any, host: str) -> tuple[ev.FoundEnvironment, ...]:
        state = self.core.state
        return tuple(
            ev.FoundEnvironment(
                name,
                f"env-{name}",
                "small" if host == "here" else "bare",
                ended=draw(st.booleans()),
                leftovers=draw(st.integers(0, 1)),
            )
            for name in self.names
            if draw(st.booleans())
            and (name not in state.runners or state.runners[name].host == host)
            and name.startswith("eph-")
        )

    # -- a calm world --------------------------------------------------------------------------------

    def honest(self, command: cm.Command) -> ev.Event | None:
        """Answer as the forge and the runtimes do when all is well; None where there is no answer."""
        match command:
            case cm.Register(runner):
                return ev.Registered(runner, 1_000 + len(self.names))
            case cm.LookUpName(runner):
                return ev.NameLookedUp(runner, None)
            case cm.StartRunner(runner):
                return ev.EnvironmentStarted(runner, f"env-{runner}")
            case cm.ProbeRunner(runner):
                return ev.Probed(runner, command.token, seen())
            case cm.LookUpRunner(runner):
                return ev.RunnerLookedUp(runner, command.token, busy=False, connected=True)
            case cm.LookUpJob():
                return self.honest_about(command)
            case cm.LookUpRun():
                return ev.RunLookedUp(command.job, command.token, Origin(False, False, "main", "CI"))
            case cm.Deregister(intent):
                answer = FenceAnswer.ACCEPTED
                return ev.FenceAnswered(intent.runner, intent.registration, command.token, answer)
            case cm.Destroy(permit):
                return ev.EnvironmentDestroyed(permit.runner, permit.environment)
            case cm.ListEnvironments():
                return self.honest_list(command.host)
            case cm.ListRegistrations():
                return ev.RegistrationsListed(command.scope, ())
            case cm.ListJobs():
                return ev.JobsListed(command.scope, 0)
            case cm.WatchRunner(runner):
                row = self.core.state.runners.get(runner)
                runs = row is not None and row.state not in FINAL
                return None if runs else ev.EnvironmentExited(runner, None)

    def honest_about(self, command: cm.LookUpJob) -> ev.Event:
        job = self.core.state.jobs.get(command.job)
        waits = job is None or job.status is JobStatus.QUEUED
        status = ForgeStatus.QUEUED if waits else ForgeStatus.COMPLETED
        said = self.said(command.job.id, status, None, None, "success")
        return ev.JobLookedUp(command.job, command.token, said)

    def honest_list(self, host: str) -> ev.Event:
        found = tuple(
            ev.FoundEnvironment(row.id, row.environment, row.pool, ended=False)
            for row in self.core.state.runners.values()
            if row.host == host and row.environment and row.state not in FINAL
        )
        return ev.EnvironmentsListed(host, found, complete=True)
