"""Plays chaos from its beginning to the report."""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

from ephemerd.testing.chaos import judge
from ephemerd.testing.chaos.adoption import measure_adoption
from ephemerd.testing.chaos.commits import kill_in_commits
from ephemerd.testing.chaos.killer import EngineKiller, Killer
from ephemerd.testing.chaos.options import ChaosOptions, ChaosReport, Commits, broken_besides, broken_promises
from ephemerd.testing.chaos.stage import ChaosStage, demo_options
from ephemerd.testing.demo.bursts import LOOK_EVERY_S, Bursts
from ephemerd.testing.demo.driver import until_quiet
from ephemerd.testing.demo.measure import make_report
from ephemerd.testing.demo.narrator import Narrator
from ephemerd.testing.demo.options import DemoError
from ephemerd.testing.forge_sim.truth import read_truth

QUIET_WITHIN_S = 420.0
"""Bound on the wait for the end: above the hard bound of a wedged worker in scaled time."""


class Storm(Bursts):
    """The demo's bursts, spread over all the lives of the daemon."""

    def __init__(self, stage: ChaosStage, narrator: Narrator, killer: Killer) -> None:
        super().__init__(stage, narrator)
        self._killer = killer

    async def _burst(self, group: asyncio.TaskGroup) -> None:
        await self._killer.has_done(len(self.jobs) / self.options.jobs)
        await super()._burst(group)


async def run_chaos(options: ChaosOptions, narrator: Narrator) -> ChaosReport:
    """Play the storm, and what was asked for besides, and measure it all.

    Raises :class:`DemoError` where it cannot be played. Whatever way it ends, the programs and runners that it
    started are ended. The folder stays where a promise was broken, or where it was asked for.
    """
    began = time.monotonic()
    adoption, commits = None, None
    if options.runners:
        narrator.title(f"A restart with {options.runners} live runners")
        adoption = await measure_adoption(options.runners, options.seed, _below(options, "adoption"))
        narrator.say(f"deliveries were taken after {adoption.ready_ms:.0f} ms")
        narrator.say(f"{adoption.adopted} runners were adopted after {adoption.adopted_ms:.0f} ms")
    if options.commit_kills:
        narrator.title(f"{options.commit_kills} deaths in the middle of group commits")
        commits = await _commits(options)
        narrator.say(f"{commits.acknowledged} deliveries acknowledged, {commits.lost} lost")
    report = await _play_storm(options, narrator)
    report = dataclasses.replace(
        report, adoption=adoption, commits=commits, wall_s=round(time.monotonic() - began, 2)
    )
    return dataclasses.replace(report, broken_promises=report.broken_promises + broken_besides(report))


def _below(options: ChaosOptions, name: str) -> Path | None:
    return None if options.folder is None else options.folder / name


async def _commits(options: ChaosOptions) -> Commits:
    folder = _below(options, "commits")
    if folder is not None:
        return await kill_in_commits(folder, options.commit_kills, options.seed)
    with tempfile.TemporaryDirectory(prefix="ephemerd-chaos-") as temporary:
        return await kill_in_commits(Path(temporary), options.commit_kills, options.seed)


async def _play_storm(options: ChaosOptions, narrator: Narrator) -> ChaosReport:
    began = time.monotonic()
    stage = ChaosStage(
        demo_options(
            jobs=options.jobs,
            burst=options.burst,
            seed=options.seed,
            weather=options.weather,
            time_scale=options.time_scale,
            runtime=options.runtime,
            engine="own" if options.engine_kills else None,
            folder=_below(options, "storm"),
        )
    )
    async with stage:
        narrator.title(f"Chaos: {options.jobs} jobs, the daemon is killed {options.kills} times")
        narrator.say(f"weather {options.weather}, seed {options.seed}; everything is in {stage.places.root}")
        narrator.say(
            f"durations above 10 s, of weather and policy alike, are divided by {options.time_scale:g}"
        )
        killer = Killer(stage, narrator, kills=options.kills, seed=options.seed)
        engines = _engine_killer(stage, options, killer, narrator)
        bursts = Storm(stage, narrator, killer)
        looking = asyncio.create_task(_keep_looking(stage))
        try:
            await _storm(bursts, killer, engines)
            await until_quiet(stage, narrator, QUIET_WITHIN_S)
        finally:
            looking.cancel()
        report = await _measure(stage, options, bursts, killer, engines, began)
    if not report.broken_promises and options.folder is None:
        stage.remove_folder()
    return report


def _engine_killer(
    stage: ChaosStage, options: ChaosOptions, killer: Killer, narrator: Narrator
) -> EngineKiller | None:
    """Return who ends the engine, where that was asked for; raise :class:`DemoError` where none can be ended."""
    if not options.engine_kills:
        return None
    own = stage.containers.own if stage.containers is not None else None
    if own is None:
        raise DemoError("there is no engine of our own to end", "add --runtime docker, as root on Linux", 2)
    return EngineKiller(stage, own, killer, narrator, kills=options.engine_kills, seed=options.seed)


async def _storm(bursts: Bursts, killer: Killer, engines: EngineKiller | None) -> None:
    no_act = asyncio.Event()
    no_act.set()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(bursts.play(no_act))
            group.create_task(killer.run())
            if engines is not None:
                group.create_task(engines.run())
    except* DemoError as several:
        raise several.exceptions[0] from None


async def _keep_looking(stage: ChaosStage) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        await stage.look()


async def _measure(
    stage: ChaosStage,
    options: ChaosOptions,
    bursts: Bursts,
    killer: Killer,
    engines: EngineKiller | None,
    began: float,
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
        engine_restarts=engines.done if engines is not None else 0,
        engine_restarts_at_work=engines.at_work if engines is not None else 0,
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
