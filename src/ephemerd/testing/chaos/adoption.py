"""Measures a restart with many live runners: when deliveries are taken, and when every runner is adopted.

The runners are real processes with real registrations. Their listeners are short scripts that listen and do nothing
else, so that it is the daemon that is measured and not the machine's patience with two hundred interpreters.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import httpx2
import psutil

from ephemerd.testing.chaos.options import Adoption
from ephemerd.testing.demo.clients import until
from ephemerd.testing.demo.options import DemoError, DemoOptions
from ephemerd.testing.demo.settings import BURST_LABELS, config_text
from ephemerd.testing.demo.stage import REPOSITORY, Stage
from ephemerd.testing.forge_sim.truth import read_truth

LISTENING_WITHIN_S = 300.0
ADOPTED_WITHIN_S = 120.0
LOOK_EVERY_S = 0.01
QUEUED_AT_ONCE = 50
LISTENER = """#!/bin/sh
trap 'exit 0' INT TERM
echo "$(date -u '+%Y-%m-%d %H:%M:%SZ'): Listening for Jobs"
while :; do sleep 1000 & wait $!; done
"""
SEEN = """
SELECT count(DISTINCT json_extract(event, '$.runner')) FROM journal
WHERE seq > ? AND json_extract(event, '$.kind') = 'SignSeen' AND json_extract(event, '$.sign') = 'listening'
"""


FORGE_SCALE = 10.0
"""The forge's own minutes are this much shorter, so that its limit of requests a minute is met and passed soon."""
PACE = 'write_burst = 100\nwrite_per_second = 12.0\nhold_after = "1h"'
"""Below that limit: 900 points a minute, 5 for a registration. None of the jobs is given to anybody, on purpose."""


class AdoptionStage(Stage):
    """A stage with so many slots and runners that only listen. The daemon's policy is not scaled."""

    def __init__(self, runners: int, seed: int, folder: Path | None) -> None:
        super().__init__(
            DemoOptions(seed=seed, weather="calm", time_scale=FORGE_SCALE, act=False, folder=folder)
        )
        self.weather = dataclasses.replace(self.weather, slots=runners)

    def _config(self) -> str:
        (self.places.application / "bin" / "Runner.Listener").write_text(LISTENER, encoding="utf-8")
        text = config_text(
            self.places,
            self.weather,
            forge_url=self.ready["url"],
            repository=REPOSITORY,
            webhook_port=self.webhook_port,
            factor=1.0,
        )
        return text.replace("[policy]", f"[policy]\n{PACE}")

    def listeners(self) -> set[psutil.Process]:
        """The listeners that live, as the runners' folders name them."""
        found = set()
        for file in self.places.runners.glob("*/.ephemerd/pid"):
            with suppress(psutil.Error, OSError):
                process = psutil.Process(json.loads(file.read_text())["listener"]["pid"])
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.add(process)
        return found

    def daemon_cpu_s(self) -> float:
        """Seconds of processor that the daemon has used."""
        times = psutil.Process(self.daemon_pid).cpu_times()
        return float(times.user + times.system)

    def journal(self, query: str, *values: int) -> int:
        """The one number that a query of the daemon's journal gives, while the daemon writes."""
        with closing(sqlite3.connect(f"file:{self.places.store}?mode=ro", uri=True)) as books:
            return int(books.execute(query, values).fetchone()[0] or 0)


async def measure_adoption(runners: int, seed: int, folder: Path | None = None) -> Adoption:
    """Let so many runners listen, kill the daemon, start it again and watch. Raises :class:`DemoError` where that
    cannot be played."""
    stage = AdoptionStage(runners, seed, folder)
    async with stage:
        await _all_listening(stage, runners)
        before = stage.listeners()
        await stage.kill_daemon()
        last = stage.journal("SELECT max(seq) FROM journal")
        loop = asyncio.get_running_loop()
        began = loop.time()
        await stage.spawn_daemon()
        await _takes_deliveries(stage)
        ready = loop.time()

        async def adopted() -> bool:
            return stage.journal(SEEN, last) >= runners

        await until(adopted, ADOPTED_WITHIN_S, every=LOOK_EVERY_S)
        end, used = loop.time(), stage.daemon_cpu_s()
        count = stage.journal(SEEN, last)
        after = stage.listeners()
        fenced = [record for record in read_truth(stage.places.truth) if record["kind"] == "fence_asked"]
    if folder is None:
        stage.remove_folder()
    return Adoption(
        runners=len(before),
        adopted=count,
        destroyed=max(len(before - after), len(fenced)),
        ready_ms=round((ready - began) * 1000),
        adopted_ms=round((end - began) * 1000),
        cpu_ms=round(used * 1000),
    )


async def _all_listening(stage: AdoptionStage, runners: int) -> None:
    for first in range(0, runners, QUEUED_AT_ONCE):
        # Held back by the forge for ever: each gets its runner, and none is taken.
        await stage.forge.queue(BURST_LABELS, min(QUEUED_AT_ONCE, runners - first), held=True)

    async def listening() -> bool:
        counts = (await stage.daemon.get("/api/v1/status"))["runners"]
        return int(counts.get("listening", 0)) >= runners

    if not await until(listening, LISTENING_WITHIN_S, every=0.2):
        raise DemoError(f"not all of {runners} runners came to listen", f"see {stage.places.log('daemon')}")


async def _takes_deliveries(stage: Stage) -> None:
    async with asyncio.timeout(ADOPTED_WITHIN_S), httpx2.AsyncClient(verify=False) as http:
        while True:
            with suppress(httpx2.HTTPError):
                if (await http.get(f"http://127.0.0.1:{stage.webhook_port}/readyz")).status_code == 200:
                    return
            await asyncio.sleep(LOOK_EVERY_S)
