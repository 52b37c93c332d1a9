"""Plays chaos from its beginning to the report."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

from ephemerd.testing.chaos import judge
from ephemerd.testing.chaos.killer import Killer
from ephemerd.testing.chaos.options import ChaosOptions, ChaosReport, broken_promises
from ephemerd.testing.chaos.stage import ChaosStage, demo_options
from ephemerd.testing.demo.bursts import LOOK_EVERY_S, Bursts
from ephemerd.testing.demo.driver import until_quiet
from ephemerd.testing.demo.measure import make_report
from ephemerd.testing.demo.narrator import Narrator
from ephemerd.testing.demo.options import DemoError
from ephemerd.testing.forge_sim.truth import read_truth

QUIET_WITHIN_S = 420.0
"""Bound on the wait for the end: above the hard bound of a wedged worker in scaled time."""


async def run_chaos(options: ChaosOptions, narrator: Narrator) -> ChaosReport:
    """Play the storm and measure it; raises :class:`DemoError` where it cannot be played.

    Whatever way it ends, the programs and runners that it started are ended. The folder stays where a promise was
    broken, or where it was asked for.
    """
    began = time.monotonic()
    stage = ChaosStage(
        demo_options(
            jobs=options.jobs,
            burst=options.burst,
            seed=options.seed,
            weather=options.weather,
            time_scale=options.time_scale,
            folder=options.folder,
        )
    )
    async with stage:
        narrator.title(f"Chaos: {options.jobs} jobs, the daemon is killed {options.kills} times")
        narrator.say(f"weather {options.weather}, seed {options.seed}; everything is in {stage.places.root}")
        narrator.say(
            f"durations above 10 s, of weather and policy alike, are divided by {options.time_scale:g}"
        )
        bursts = Bursts(stage, narrator)
        killer = Killer(stage, narrator, kills=options.kills, seed=options.seed)
        looking = asyncio.create_task(_keep_looking(stage))
        try:
            await _storm(bursts, killer)
            await until_quiet(stage, narrator, QUIET_WITHIN_S)
        finally:
            looking.cancel()
        report = await _measure(stage, options, bursts, killer, began)
    if not report.broken_promises and options.folder is None:
        stage.remove_folder()
    return report


async def _storm(bursts: Bursts, killer: Killer) -> None:
    no_act = asyncio.Event()
    no_act.set()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(bursts.play(no_act))
            group.create_task(killer.run())
    except* DemoError as several:
        raise several.exceptions[0] from None


async def _keep_looking(stage: ChaosStage) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        await stage.look()


async def _measure(
    stage: ChaosStage, options: ChaosOptions, bursts: Bursts, killer: Killer, began: float
) -> ChaosReport:
    """Read what the daemon knows, stop it, and judge by the truth and the books."""
    await stage.look()
    facts: dict[str, Any] = {
        "decisions": await stage.daemon.items("decisions"),
        "nominated": await stage.daemon.metric("ephemerd_nominations_total"),
        "runners": list(stage.daemon.runners.values()),
    }
    code = await stage.stop_daemon()
    truth = read_truth(stage.places.truth)
    told = make_report(
        stage.options,
        truth=truth,
        counted=bursts.jobs,
        act_jobs=0,
        kills=bursts.kills,
        failures=[],
        leaks=stage.leaks(),
        daemon_exit=code,
        wall_s=time.monotonic() - began,
        **facts,
    )
    shared = {item.name for item in dataclasses.fields(ChaosReport)} & set(told.as_json())
    report = ChaosReport(
        **{name: getattr(told, name) for name in shared - {"broken_promises"}},
        slot_error=stage.slot_error,
        restarts=killer.done,
        wedged=len(judge.wedged(truth)),
        deliveries=judge.deliveries(truth, stage.places.store),
        commits=None,
        adoption=None,
        broken=judge.broken_by_weather(truth, bursts.jobs),
    )
    broken = broken_promises(report)
    if code != 0:
        broken.append(f"the daemon ended with code {code}")
    return dataclasses.replace(report, broken_promises=broken)
