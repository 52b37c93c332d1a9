"""Plays the demo from its beginning to the report."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

from ephemerd.testing.demo.act import JOBS as ACT_QUEUES
from ephemerd.testing.demo.act import Act
from ephemerd.testing.demo.board import shown
from ephemerd.testing.demo.bursts import LOOK_EVERY_S, Bursts
from ephemerd.testing.demo.clients import until
from ephemerd.testing.demo.measure import make_report
from ephemerd.testing.demo.narrator import Narrator
from ephemerd.testing.demo.options import DemoError, DemoOptions, DemoReport
from ephemerd.testing.demo.stage import Stage
from ephemerd.testing.demo.summary import summarise, where_to_look
from ephemerd.testing.forge_sim.truth import read_truth

QUIET_WITHIN_S = 300.0
"""Bound on the wait for the last job and for the daemon to clear up; what is left then is counted as it is."""
ACT_JOBS = ACT_QUEUES - 1
"""One of the act's jobs is cancelled."""


class Curtain:
    """When the demo has to end early, or may end at last: signals, and whether somebody watches.

    While the play runs a signal cancels it. Once ``lingering`` a signal is the watcher leaving.
    """

    def __init__(self) -> None:
        self.lingering = False
        self.left = asyncio.Event()
        self.signal: int | None = None
        self.play: asyncio.Task[DemoReport] | None = None

    def fall(self, number: int) -> None:
        """A signal came."""
        if self.lingering:
            self.left.set()
        elif self.play is not None:
            self.signal = number
            self.play.cancel()


async def play(options: DemoOptions, narrator: Narrator, curtain: Curtain) -> DemoReport:
    """Play the whole demo and measure it; raises :class:`DemoError` where it cannot be played.

    On a terminal the daemon goes on until the watcher leaves, so that it can be asked; elsewhere it is stopped.
    """
    began = time.monotonic()
    lingers = narrator.live and not options.headless and not options.as_json
    if lingers and options.port is None:
        options = dataclasses.replace(options, port=0)  # who watches may as well look at the dashboard
    stage = Stage(options)
    async with stage:
        _introduce(stage, narrator)
        act, bursts = Act(stage, narrator), Bursts(stage, narrator)
        looking = asyncio.create_task(keep_looking(stage))
        wanted = options.jobs + (ACT_QUEUES if options.act else 0)
        try:
            async with shown(
                stage, narrator, lambda: {*act.jobs, *bursts.jobs}, wanted, on=narrator.moves and lingers
            ):
                await _both_parts(stage, act, bursts, narrator)
                await until_quiet(stage, narrator)
        finally:
            looking.cancel()
        report = await _measure(stage, act, bursts, began, stop=not lingers)
        summarise(report, narrator)
        if not options.headless:
            where_to_look(report, narrator, stage.places, act.executing, running=lingers)
        if lingers:
            curtain.lingering = True
            await curtain.left.wait()
    if (options.headless or lingers) and not report.broken_promises and options.folder is None:
        stage.remove_folder()
    return report


async def _both_parts(stage: Stage, act: Act, bursts: Bursts, narrator: Narrator) -> None:
    """The act first; its last scene, the reaping, overlaps with the first bursts."""
    try:
        async with asyncio.TaskGroup() as group:
            act_over = asyncio.Event()
            if stage.options.act:
                await act.play_to_the_veto()
                group.create_task(act.play_to_the_end()).add_done_callback(lambda _: act_over.set())
            else:
                act_over.set()
            narrator.title(f"Random bursts: {stage.options.jobs} jobs, at most {stage.options.burst} at once")
            group.create_task(bursts.play(act_over))
    except* DemoError as several:
        raise several.exceptions[0] from None


async def _measure(stage: Stage, act: Act, bursts: Bursts, began: float, *, stop: bool) -> DemoReport:
    """Read what the daemon knows, stop it if asked, and look for what is left."""
    options, daemon = stage.options, stage.daemon
    await daemon.look()
    facts: dict[str, Any] = {
        "decisions": await daemon.items("decisions"),
        "nominated": await daemon.metric("ephemerd_nominations_total"),
        "recovered": await daemon.metric("ephemerd_deliveries_recovered_total"),
        "runners": list(daemon.runners.values()),
        "counted": bursts.jobs,
        "act_jobs": ACT_JOBS if act.jobs else 0,
        "kills": bursts.kills,
        "failures": act.failures,
        "wall_s": time.monotonic() - began,
    }
    code = await stage.stop_daemon() if stop else None
    return make_report(
        options, truth=read_truth(stage.places.truth), leaks=stage.leaks(), daemon_exit=code, **facts
    )


async def keep_looking(stage: Stage) -> None:
    """Remember the daemon's runners again and again: it forgets those that are gone."""
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        await stage.daemon.look()


async def until_quiet(stage: Stage, narrator: Narrator, within_s: float = QUIET_WITHIN_S) -> None:
    """Wait, ``within_s`` at most, until every job has ended and no runner is left, in the daemon's books, in the
    forge's, and on the machine: a registration that got no answer during an outage can be swept only after it, and
    a runner gives its slot back before its folder is removed."""
    narrator.say("everything is queued; waiting for the last jobs to end")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while loop.time() < deadline and not await stage.forge.wait("jobs_ended", 10):
        state = await stage.forge.state()
        left = sum(1 for job in state["jobs"] if job["status"] != "completed")
        narrator.say(f"not ended yet: {left}", "quiet")
    narrator.say("every job has ended; waiting for the daemon to clear up")

    async def quiet() -> bool:
        runners: dict[str, int] = (await stage.daemon.get("/api/v1/status"))["runners"]
        return not sum(count for state, count in runners.items() if state != "gone")

    await until(quiet, max(1.0, deadline - loop.time()), every=0.2)
    while loop.time() < deadline and not await stage.forge.wait("no_runners", 10):
        outage = (await stage.forge.state())["outage"]
        why = f"; its API is out of order ({outage})" if outage else ""
        narrator.say(f"the forge still has registrations{why}", "quiet")

    async def cleared() -> bool:
        return not await asyncio.to_thread(stage.leaks)

    await until(cleared, max(1.0, deadline - loop.time()), every=0.5)


def _introduce(stage: Stage, narrator: Narrator) -> None:
    options, places = stage.options, stage.places
    narrator.title("ephemerd demo")
    narrator.say(
        f"a GitHub look-alike runs at {stage.ready['url']}, weather {options.weather}, seed {options.seed}"
    )
    narrator.say(f"the daemon runs beside it, joined by HTTP and {places.config}")
    if stage.containers is not None:
        narrator.say(f"each runner is a container on {stage.containers.words}, in this machine's own network")
    narrator.say(f"durations above 10 s, of weather and policy alike, are divided by {options.time_scale:g}")
    if stage.open_port:
        narrator.say(f"dashboard: http://127.0.0.1:{stage.open_port}/ (API, metrics and health too)", "act")
