"""Plays the demo from its beginning to the report."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from ephemerd.testing.demo.act import JOBS as ACT_QUEUES
from ephemerd.testing.demo.act import Act
from ephemerd.testing.demo.bursts import LOOK_EVERY_S, Bursts
from ephemerd.testing.demo.clients import until
from ephemerd.testing.demo.measure import make_report
from ephemerd.testing.demo.narrator import Narrator
from ephemerd.testing.demo.options import DemoError, DemoOptions, DemoReport
from ephemerd.testing.demo.stage import Stage
from ephemerd.testing.forge_sim.truth import read_truth

QUIET_WITHIN_S = 300.0
"""Bound on the wait for the last job and for the daemon to clear up; what is left then is counted as it is."""
ACT_JOBS = ACT_QUEUES - 1
"""One of the act's jobs is cancelled."""


async def play(options: DemoOptions, narrator: Narrator) -> DemoReport:
    """Play the whole demo and measure it; raises :class:`DemoError` where it cannot be played."""
    began = time.monotonic()
    stage = Stage(options)
    async with stage:
        _introduce(stage, narrator)
        act, bursts = Act(stage, narrator), Bursts(stage, narrator)
        looking = asyncio.create_task(_keep_looking(stage))
        try:
            await _both_parts(stage, act, bursts, narrator)
            await _until_quiet(stage, narrator)
        finally:
            looking.cancel()
        report = await _measure(stage, act, bursts, began)
    if options.headless and not report.broken_promises and options.folder is None:
        stage.remove_folder()
    return report


async def _both_parts(stage: Stage, act: Act, bursts: Bursts, narrator: Narrator) -> None:
    """The act first; its last scene, the reaping, overlaps with the first bursts."""
    try:
        async with asyncio.TaskGroup() as group:
            if stage.options.act:
                await act.play_to_the_veto()
                group.create_task(act.play_to_the_end())
            narrator.title(f"Random bursts: {stage.options.jobs} jobs, at most {stage.options.burst} at once")
            group.create_task(bursts.play())
    except* DemoError as several:
        raise several.exceptions[0] from None


async def _measure(stage: Stage, act: Act, bursts: Bursts, began: float) -> DemoReport:
    """Read what the daemon knows, stop it or wait for the watcher to leave, and look for what is left."""
    options, daemon = stage.options, stage.daemon
    await daemon.look()
    facts: dict[str, Any] = {
        "decisions": await daemon.items("decisions"),
        "nominated": await daemon.metric("ephemerd_nominations_total"),
        "runners": daemon.runners,
        "jobs": daemon.jobs,
        "counted": bursts.jobs,
        "act_jobs": ACT_JOBS if act.jobs else 0,
        "kills": bursts.kills,
        "failures": act.failures,
        "wall_s": time.monotonic() - began,
    }
    code = await stage.stop_daemon()
    return make_report(
        options, truth=read_truth(stage.places.truth), leaks=stage.leaks(), daemon_exit=code, **facts
    )


async def _keep_looking(stage: Stage) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        await stage.daemon.look()


async def _until_quiet(stage: Stage, narrator: Narrator) -> None:
    """Wait until every job has ended and no runner is left."""
    narrator.say("everything is queued; waiting for the last jobs to end")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + QUIET_WITHIN_S
    while loop.time() < deadline and not await stage.forge.wait("jobs_ended", 10):
        state = await stage.forge.state()
        left = sum(1 for job in state["jobs"] if job["status"] != "completed")
        narrator.say(f"{left} jobs have not ended yet", "quiet")
    narrator.say("every job has ended; waiting for the daemon to clear up")

    async def quiet() -> bool:
        runners: dict[str, int] = (await stage.daemon.get("/api/v1/status"))["runners"]
        return not sum(count for state, count in runners.items() if state != "gone")

    await until(quiet, max(1.0, deadline - loop.time()), every=0.2)


def _introduce(stage: Stage, narrator: Narrator) -> None:
    options, places = stage.options, stage.places
    narrator.title("ephemerd demo")
    narrator.say(
        f"a GitHub look-alike runs at {stage.ready['url']}, weather {options.weather}, seed {options.seed}"
    )
    narrator.say(f"the daemon runs beside it, joined by HTTP and {places.config}")
    narrator.say(f"durations above 10 s, of weather and policy alike, are divided by {options.time_scale:g}")
    if options.port is not None:
        narrator.say(f"API, metrics and health: http://127.0.0.1:{options.port}/api/v1/status")


def summarise(report: DemoReport, narrator: Narrator) -> None:
    """Say how it went."""
    narrator.title("Summary, counted by the forge's side")
    good = "as promised"
    rows = [
        ("jobs completed", f"{report.completed}/{report.jobs}", f"and {report.act_jobs} in the act"),
        ("killed at work", str(report.killed), good if not report.killed else "A PROMISE IS BROKEN"),
        ("disturbed", str(report.disturbed), "offered to a runner that then went away"),
        ("lost", str(report.lost), "never run"),
        ("leaked", str(report.leaked), ", ".join(report.leaks[:3]) or "nothing is left"),
        ("runners made", str(report.dispatches), f"{report.wasted} of them in vain"),
        (
            "cancelled, taken",
            f"{report.cancelled_queued}, {report.foreign_taken}",
            "extra jobs outside the count",
        ),
        ("nominated", str(report.nominated), "runners that a rule said could go"),
        (
            "vetoed",
            str(report.vetoed),
            f"{report.vetoed_holding_job} nominations of a runner that held a job",
        ),
        ("reaped", str(report.reaped), f"{report.escaped} escaped"),
        ("fences refused", str(report.fence_refusals), f"{report.fence_breaches} breaches"),
        (
            "queue to start",
            f"{_s(report.queue_to_start_ms['p50'])}",
            f"p95 {_s(report.queue_to_start_ms['p95'])}",
        ),
        ("dispatch", f"{_ms(report.dispatch_ms['p50'])}", f"p95 {_ms(report.dispatch_ms['p95'])}"),
        ("API calls a job", str(report.api_calls_per_job), ""),
        ("time", f"{report.wall_s:.0f} s", ""),
    ]
    narrator.table(rows)
    for sentence in report.broken_promises:
        narrator.say(f"BROKEN PROMISE: {sentence}", "bad")


def _s(ms: float | None) -> str:
    return "–" if ms is None else f"{ms / 1000:.1f} s"


def _ms(ms: float | None) -> str:
    return "–" if ms is None else f"{ms:.0f} ms"
