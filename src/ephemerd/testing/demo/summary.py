"""The closing summary, and where to look next."""

from __future__ import annotations

import shlex

from ephemerd.testing.demo.narrator import Narrator
from ephemerd.testing.demo.options import DemoReport
from ephemerd.testing.demo.settings import Places


def summarise(report: DemoReport, narrator: Narrator) -> None:
    """Say how it went."""
    narrator.title("Summary, counted by the forge's side")
    narrator.table(rows(report))
    for sentence in report.broken_promises:
        narrator.say(f"BROKEN PROMISE: {sentence}", "bad")
    if not report.broken_promises:
        narrator.say("every promise held", "good")


def rows(report: DemoReport) -> list[tuple[str, str, str]]:
    """Name, figure and remark of each line."""
    start, dispatch, kills = report.queue_to_start_ms, report.dispatch_ms, report.operator_kills
    longest = _s(report.lost_to_start_ms["max"])
    fetched = f"{report.recovered} failed ones were fetched"
    extra = (
        f"{report.cancelled_queued} cancelled while they waited, {report.foreign_taken} taken by another host"
    )
    return [
        ("jobs completed", f"{report.completed}/{report.jobs}", f"and {report.act_jobs} in the act"),
        ("jobs killed at work", str(report.killed), f"an operator asked {kills['asked']} times and was refused"
         if kills["asked"] and not kills["accepted"] else ""),
        ("disturbed, lost", f"{report.disturbed}, {report.lost}", "lost the runner offered; never run"),
        ("extra jobs", str(report.cancelled_queued + report.foreign_taken), extra),
        ("outages of the API", str(report.outages), f"weather {report.weather}"),
        ("deliveries lost", str(report.lost_queued), f"of queued jobs, started within {longest}, {fetched}"),
        ("sent too early", str(report.early_calls), f"torn down in an outage: {report.torn_down_in_outage}"),
        ("runners made", str(report.dispatches), f"{report.wasted} of them in vain"),
        ("nominated", str(report.nominated), "runners of which a rule said that they could go"),
        ("vetoed", str(report.vetoed), f"of a runner that held a job: {report.vetoed_holding_job}"),
        ("reaped", str(report.reaped), "idle, fenced, looked at again, then ended"),
        ("escaped", str(report.escaped), "ended past a bound without proof"),
        ("fences refused", str(report.fence_refusals), f"accepted for a busy runner: {report.fence_breaches}"),
        ("left behind", str(report.leaked), ", ".join(report.leaks[:3])),
        ("queue to start", _s(start["p50"]), f"95 %: {_s(start['p95'])}, longest: {_s(start['max'])}"),
        ("delivery to process", _ms(dispatch["p50"]), f"95 %: {_ms(dispatch['p95'])}"),
        ("API calls a job", str(report.api_calls_per_job), ""),
        ("whole demo", f"{report.wall_s:.0f} s", f"time scale {report.time_scale:g}"),
    ]  # fmt: skip


def where_to_look(
    report: DemoReport, narrator: Narrator, places: Places, runner: str, *, running: bool
) -> None:
    """Name the commands that show more."""
    socket = shlex.quote(str(places.socket))
    commands = [f"ephemerd {name} --socket {socket}" for name in ("top", "decisions", "jobs")]
    if runner:
        commands.insert(0, f"ephemerd explain {runner} --socket {socket}")
    narrator.title("Where to look next")
    if not running:
        commands.insert(
            0, f"ephemerd serve --config {shlex.quote(str(places.config))}   (in another terminal)"
        )
    narrator.detail(commands)
    narrator.detail([f"what really happened: {places.truth}"])
    if running:
        narrator.say("the daemon goes on until you press Ctrl-C; then the folder is removed", "act")


def _s(ms: float | None) -> str:
    return "–" if ms is None else f"{ms / 1000:.1f} s"


def _ms(ms: float | None) -> str:
    return "–" if ms is None else f"{ms:.0f} ms"
