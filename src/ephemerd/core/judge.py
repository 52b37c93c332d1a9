"""From what a probe saw to a verdict. Idle needs everything read and everything quiet."""

from __future__ import annotations

from ephemerd.core.spans import span
from ephemerd.domain.errors import Fault
from ephemerd.domain.verdict import Evidence, Files, Listing, ProbeReport, Verdict, Via


def judge(report: ProbeReport, now: int, soft_life: int) -> Evidence:
    """Turn a probe's report into evidence.

    Busy: a worker, or an announcement without an end, or an offer or acknowledgement without an end that
    is younger than `soft_life` ms (an older one that no announcement followed is a sign no more).
    Idle: complete list, no worker, nothing unexplained, files healthy and quiet. Otherwise unknown.
    """
    if report.workers > 0:
        return Evidence(Verdict.BUSY, Via.PROBE, now, f"{report.probe}: {report.detail or 'a worker runs'}")
    if _open(report.announced_at, report.ended_at):
        return Evidence(Verdict.BUSY, Via.LOG, now, f"{report.probe}: the log announces a job without an end")
    if _open(report.offered_at, report.ended_at):
        age = now - (report.offered_at or 0)
        if age < soft_life:
            return Evidence(Verdict.BUSY, Via.LOG, now, f"{report.probe}: a job was offered {span(age)} ago")
    doubt = _doubt(report)
    if doubt:
        return Evidence(Verdict.UNKNOWN, Via.PROBE, now, f"{report.probe}: {doubt}")
    quiet = f"{report.probe}: no worker among the processes, log and performance file quiet"
    return Evidence(Verdict.IDLE, Via.PROBE, now, quiet)


def never_at_work(report: ProbeReport) -> bool:
    """Say whether a look shows nothing of a job, in an environment whose files do not tell anything yet.

    A boot that wedged before it wrote its first line can never be read as quiet. Where the forge says that it
    never connected and has let it go, a whole list without a worker is enough: nobody could give it a job.
    """
    no_sign = report.offered_at is None and report.announced_at is None
    return report.listing is Listing.COMPLETE and report.workers == 0 and no_sign


def no_report(fault: Fault | None, now: int) -> Evidence:
    """Return the evidence of a probe that could not look: unknown, with what went wrong."""
    return Evidence(
        Verdict.UNKNOWN, Via.PROBE, now, f"probe failed: {fault.detail if fault else 'no answer'}"
    )


def _open(begun: int | None, ended: int | None) -> bool:
    return begun is not None and (ended is None or ended < begun)


def _doubt(report: ProbeReport) -> str:
    if report.listing is not Listing.COMPLETE:
        return f"the process list is {report.listing.value}"
    if report.strangers > 0:
        return f"{report.strangers} process(es) beside the listener that could be a worker in the making"
    if report.files is not Files.HEALTHY:
        return "the listener's files cannot be trusted"
    return ""
