"""The sentence of each kind of event, in the words of the glossary: what happened, not what it means.

Each class of the `Event` union has its own; a test keeps it so.
"""

from __future__ import annotations

from functools import singledispatch

from ephemerd.core import events as ev
from ephemerd.core.spans import span
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.job import ForgeStatus, JobReport, Told
from ephemerd.domain.runner import FenceAnswer
from ephemerd.domain.value import Value
from ephemerd.domain.verdict import Files, ProbeReport, Sign


class Said(Value, frozen=True):
    """A sentence without a full stop, and what it rests on."""

    text: str
    evidence: tuple[str, ...] = ()


def subject_of(event: ev.Event) -> str:
    """Return the runner or job that an event is about; empty for the others."""
    runner = getattr(event, "runner", None)
    if runner is not None:
        return str(runner)
    if isinstance(event, ev.JobReported):
        return str(event.report.key)
    return str(event.job) if isinstance(event, ev.JobLookedUp | ev.RunLookedUp) else ""


def say(event: ev.Event, subject: str = "") -> Said:
    """Return the sentence of an event; `subject` is whose story it stands in."""
    return _say(event, subject)


@singledispatch
def _say(event: object, subject: str) -> Said:
    raise TypeError(f"no sentence for {type(event).__name__}")


def spoken() -> tuple[type, ...]:
    """Return every class that has a sentence."""
    return tuple(cls for cls in _say.registry if cls is not object)


def _fault(fault: Fault | None) -> str:
    if fault is None:
        return "no answer came"
    wait = f", wait {span(fault.after_ms)}" if fault.after_ms is not None else ""
    meaning = {
        Remedy.RETRY: "no usable answer, it may have happened",
        Remedy.LIMITED: "a rate limit",
        Remedy.REFUSED: "refused as it stands",
        Remedy.GONE: "not found",
        Remedy.DENIED: "the credential was not accepted",
        Remedy.BROKEN: "this machine cannot do it",
    }[fault.remedy]
    return f"{fault.detail} ({meaning}{wait})"


def _report(report: JobReport) -> str:
    """What the forge says of a job, without saying how it was heard."""
    on = f" on {report.runner_name}" if report.runner_name else ""
    if report.status is ForgeStatus.QUEUED:
        return f"queued, asking for {', '.join(report.labels) or 'no label'}"
    if report.status is ForgeStatus.WAITING:
        return "waiting for approval"
    if report.status is ForgeStatus.IN_PROGRESS:
        return f"in progress{on or ' on a runner that it does not name'}"
    if report.status is ForgeStatus.COMPLETED:
        conclusion = f"as {report.conclusion}" if report.conclusion else "without a conclusion"
        return f"completed {conclusion}{on or ' and never had a runner'}"
    return "in a status that we do not know"


@_say.register
def _booted(event: ev.Booted, subject: str) -> Said:
    pools = ", ".join(pool.name for pool in event.setup.pools) or "none"
    since = "" if event.same_boot else ", after a reboot of the machine"
    return Said(f"the daemon started{since} (store {event.store}, boot epoch {event.epoch}, pools: {pools})")


@_say.register
def _reconfigured(event: ev.Reconfigured, subject: str) -> Said:
    pools = ", ".join(f"{pool.name} (at most {pool.max_concurrent})" for pool in event.setup.pools) or "none"
    return Said(f"{event.who} had the configuration read again (pools: {pools})")


@_say.register
def _woke(event: ev.Woke, subject: str) -> Said:
    return Said("a deadline came due")


@_say.register
def _clock_stepped(event: ev.ClockStepped, subject: str) -> Said:
    way = "forward" if event.by_ms >= 0 else "back"
    return Said(f"the wall clock was moved {way} by {span(abs(event.by_ms))}; nothing ages by it")


@_say.register
def _machine_slept(event: ev.MachineSlept, subject: str) -> Said:
    return Said(f"the machine slept for {span(event.by_ms)}; everything is looked at anew")


@_say.register
def _job_reported(event: ev.JobReported, subject: str) -> Said:
    by = {Told.WEBHOOK: "a delivery", Told.LISTING: "the listing", Told.LOOKUP: "the forge, asked directly,"}
    name = f" {event.report.name!r}" if event.report.name else ""
    return Said(f"{by[event.told]} said that the job{name} is {_report(event.report)}")


@_say.register
def _jobs_read(event: ev.JobsRead, subject: str) -> Said:
    for report in event.reports:
        if str(report.key).lower() == subject.lower():
            return _job_reported(ev.JobReported(report, Told.LISTING), subject)
    return Said(f"a listing of {event.scope} showed {len(event.reports)} jobs")


@_say.register
def _job_looked_up(event: ev.JobLookedUp, subject: str) -> Said:
    if event.report is not None:
        return Said(f"asked about the job, the forge said that it is {_report(event.report)}")
    if event.missing:
        return Said("asked about the job, the forge did not find it, though the repository answers")
    return Said(f"asked about the job, the forge gave no usable answer: {_fault(event.fault)}")


@_say.register
def _run_looked_up(event: ev.RunLookedUp, subject: str) -> Said:
    if event.missing:
        return Said("asked whose work its run is, the forge did not find the run")
    if event.origin is None:
        return Said(f"asked whose work its run is, the forge gave no usable answer: {_fault(event.fault)}")
    kind = {True: "a public repository", False: "a repository that is not public", None: "a repository"}
    fork = ", its commit from a fork" if event.origin.fork else ""
    branch = f", branch {event.origin.branch}" if event.origin.branch else ""
    return Said(f"asked whose work its run is, the forge said: of {kind[event.origin.public]}{branch}{fork}")


@_say.register
def _registered(event: ev.Registered, subject: str) -> Said:
    return Said(f"registered at the forge, registration {event.registration}")


@_say.register
def _registration_failed(event: ev.RegistrationFailed, subject: str) -> Said:
    taken = f"; the name belongs to registration {event.taken}" if event.taken is not None else ""
    return Said(f"registering failed: {_fault(event.fault)}{taken}")


@_say.register
def _name_looked_up(event: ev.NameLookedUp, subject: str) -> Said:
    if event.fault is not None:
        return Said(f"whether its name is registered could not be learned: {_fault(event.fault)}")
    if event.registration is None:
        return Said("its name is not registered at the forge")
    return Said(f"its name is registered at the forge, registration {event.registration}")


@_say.register
def _environment_started(event: ev.EnvironmentStarted, subject: str) -> Said:
    return Said(f"its environment started ({event.environment})")


@_say.register
def _start_failed(event: ev.StartFailed, subject: str) -> Said:
    return Said(f"its environment could not be started: {_fault(event.fault)}")


_SIGNS = {
    Sign.LISTENING: "its listener is ready for a job",
    Sign.OFFERED: "a job was offered to its listener (soft sign)",
    Sign.ACKNOWLEDGED: "its listener acknowledged a job (soft sign)",
    Sign.ANNOUNCED: "its listener announced a job (hard sign)",
    Sign.WORKER: "a worker was seen in its environment (hard sign)",
    Sign.ENDED: "its own log says that its job is over",
    Sign.SKIPPED: "its listener gave an offered job up and listens on",
}


@_say.register
def _sign_seen(event: ev.SignSeen, subject: str) -> Said:
    return Said(_SIGNS[event.sign], (event.detail,) if event.detail else ())


@_say.register
def _environment_exited(event: ev.EnvironmentExited, subject: str) -> Said:
    code = "an unknown exit code" if event.code is None else f"exit code {event.code}"
    left = f"; {_count(event.leftovers, 'process')} of its job still ran" if event.leftovers else ""
    return Said(f"listener and worker are proven gone ({code}){left}")


@_say.register
def _probed(event: ev.Probed, subject: str) -> Said:
    if event.report is None:
        return Said(f"the probe could not look inside: {_fault(event.fault)}")
    return Said(f"the probe looked inside: {_seen(event.report)}", _details(event.report))


def _seen(report: ProbeReport) -> str:
    worker = _count(report.workers, "worker") if report.workers else "no worker"
    listener = "listener alive" if report.listener_alive else "no listener"
    files = "files readable" if report.files is Files.HEALTHY else "files not readable"
    other = f", {_count(report.strangers, 'unknown process')}" if report.strangers else ""
    return f"{worker}, {listener}{other}, {files}, process list {report.listing.value}"


def _details(report: ProbeReport) -> tuple[str, ...]:
    found = [f"{report.probe}: {report.detail}"] if report.detail else []
    if report.announced_at is not None:
        found.append("its log announces a job" + (" and its end" if report.ended_at is not None else ""))
    elif report.offered_at is not None:
        found.append(
            "its files show an offered job" + (" and its end" if report.ended_at is not None else "")
        )
    return tuple(found)


@_say.register
def _runner_looked_up(event: ev.RunnerLookedUp, subject: str) -> Said:
    if event.missing:
        return Said("the forge does not find its registration")
    if event.fault is not None:
        return Said(f"the forge gave no usable answer about its registration: {_fault(event.fault)}")
    flag = {True: "busy", False: "not busy", None: "no busy flag"}[event.busy]
    never = "; it never connected" if event.connected is False else ""
    return Said(f"the forge shows its registration: {flag}{never} (the flag can veto, it cannot clear)")


@_say.register
def _fence_answered(event: ev.FenceAnswered, subject: str) -> Said:
    number = event.registration
    if event.answer is FenceAnswer.ACCEPTED:
        return Said(f"fence accepted: the forge deregistered {number} and can give it no job any more")
    if event.answer is FenceAnswer.REFUSED:
        return Said(f"fence refused: the forge says that registration {number} holds a job")
    if event.answer is FenceAnswer.NOT_FOUND:
        return Said(f"fence: the forge does not find registration {number}, which by itself says nothing")
    return Said(f"fence: no usable answer, so it is held: {_fault(event.fault)}")


@_say.register
def _environment_destroyed(event: ev.EnvironmentDestroyed, subject: str) -> Said:
    return Said(f"its environment was destroyed; nothing of it runs any more ({event.environment})")


@_say.register
def _destroy_failed(event: ev.DestroyFailed, subject: str) -> Said:
    return Said(f"its environment would not end ({event.environment}): {_fault(event.fault)}")


@_say.register
def _environments_listed(event: ev.EnvironmentsListed, subject: str) -> Said:
    whole = "" if event.complete else ", the list was not complete"
    text = f"host {event.host} listed {_count(len(event.found), 'environment')} of ours{whole}"
    for found in event.found:
        if found.runner == subject:
            state = "it has ended" if found.ended else "it runs"
            return Said(text, (f"its own is among them, and {state} ({found.environment})",))
    return Said(text)


@_say.register
def _registrations_listed(event: ev.RegistrationsListed, subject: str) -> Said:
    if event.fault is not None:
        return Said(f"the registrations of {event.scope} could not be listed: {_fault(event.fault)}")
    text = f"{event.scope} listed {_count(len(event.found), 'registration')} of ours"
    for found in event.found:
        if found.name == subject:
            flags = f"{'online' if found.online else 'offline'}, {'busy' if found.busy else 'not busy'}"
            return Said(text, (f"its own is among them: {found.registration}, {flags}",))
    return Said(text)


@_say.register
def _jobs_listed(event: ev.JobsListed, subject: str) -> Said:
    if event.fault is not None:
        return Said(f"the jobs of {event.scope} could not be listed: {_fault(event.fault)}")
    part = "" if event.repositories is None else f"; {len(event.repositories)} of its repositories were read"
    return Said(f"{event.scope} listed {_count(event.jobs, 'job')} of queued and running runs{part}")


@_say.register
def _scope_answered(event: ev.ScopeAnswered, subject: str) -> Said:
    if event.limited_until is not None:
        return Said(f"{event.scope} reached a rate limit; calls wait for its reset")
    return Said(f"{event.scope} answers")


def _target(target: ev.Target, name: str) -> str:
    return "everything" if target is ev.Target.ALL else f"{target.value} {name}"


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


@_say.register
def _cordon_ordered(event: ev.CordonOrdered, subject: str) -> Said:
    return Said(f"{event.who} cordoned {_target(event.target, event.name)}{_because(event.reason)}")


@_say.register
def _uncordon_ordered(event: ev.UncordonOrdered, subject: str) -> Said:
    return Said(f"{event.who} lifted the cordon of {_target(event.target, event.name)}")


@_say.register
def _drain_ordered(event: ev.DrainOrdered, subject: str) -> Said:
    return Said(f"{event.who} drains {_target(event.target, event.name)}{_because(event.reason)}")


@_say.register
def _application_told(event: ev.ApplicationTold, subject: str) -> Said:
    if event.missing:
        return Said(f"pool {event.pool} can start no runners: {event.missing}")
    return Said(f"the runner application of pool {event.pool} is there")


@_say.register
def _kill_ordered(event: ev.KillOrdered, subject: str) -> Said:
    force = ", even if it is busy" if event.even_if_busy else ""
    return Said(f"{event.who} asked to end it{force}{_because(event.reason)}")


@_say.register
def _sweep_ordered(event: ev.SweepOrdered, subject: str) -> Said:
    return Said("all nomination rules were evaluated")


def _count(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"
