"""`recover`: a restart with 1,000 runners and 100,000 finished jobs in the store, beside plain reading of its rows.

Neither looks for garbage while it reads.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ephemerd.app.recovery import boot, without_collecting
from ephemerd.app.recovery import recover as begin
from ephemerd.domain.pool import Setup
from ephemerd.ports.store import Batch, StepRecord
from ephemerd.storing import open_store
from ephemerd.testing.bench.figures import RUNS, Figure, figure
from ephemerd.testing.bench.scene import BEGAN, Scene, ended

RUNNERS = 1_000
JOBS = 100_000
TIMES = 3.0
PER_COMMIT = 2_000
MARK = (BEGAN, "boot", 1_000)


class Still:
    """A clock that stands."""

    def start(self, last: tuple[int, str, int] | None) -> bool:
        return True

    def now(self) -> int:
        return BEGAN

    def mark(self) -> tuple[int, str, int]:
        return MARK

    def stepped(self) -> int:
        return 0

    def slept(self) -> int:
        return 0


def recover() -> Sequence[Figure]:
    """From the opening of the store to the first commands of the new life; each run on the same file."""
    with tempfile.TemporaryDirectory(prefix="ephemerd-bench-") as folder:
        path = Path(folder) / "state.db"
        setup = asyncio.run(_fill(path))
        took, plain = [], []
        for _ in range(RUNS):
            plain.append(_read_plainly(path))
            took.append(asyncio.run(_begin(path, setup)))
    note = f"{RUNNERS:,} runners at work, {JOBS:,} finished jobs; baseline: select and decode"
    return [figure("recover", "s", took, baseline=plain, target=TIMES, of="ratio", note=note)]


async def _fill(path: Path) -> Setup:
    scene = Scene(slots=RUNNERS, rows=ended(JOBS))
    for number in range(JOBS + 1, JOBS + RUNNERS + 1):
        (runner,) = scene.queue(number)
        scene.listen(runner)
        scene.work(runner, number)
    rows: Mapping[str, Mapping[str, Any]] = scene.core.checkpoint()["rows"]
    every = [(kind, name, row) for kind, found in rows.items() for name, row in found.items()]
    store = open_store(path)
    await store.open()
    await store.open_segment("bench", {})
    for start in range(0, len(every), PER_COMMIT):
        changed = tuple(every[start : start + PER_COMMIT])
        await store.commit(Batch((), (StepRecord(BEGAN, {"kind": "Woke"}, "", changed, (), ()),)), MARK)
    await store.close()
    return scene.core.state.setup


async def _begin(path: Path, setup: Setup) -> float:
    store = open_store(path)
    began = time.perf_counter()
    life = await begin(store, Still())
    life.core.handle(boot(life, setup), BEGAN)
    took = time.perf_counter() - began
    await store.close()
    return took


def _read_plainly(path: Path) -> float:
    decode = msgspec.json.Decoder().decode
    began = time.perf_counter()
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    with without_collecting():
        rows = [
            (kind, name, decode(data))
            for kind, name, data in database.execute("SELECT kind, id, data FROM record")
        ]
    took = time.perf_counter() - began
    database.close()
    assert len(rows) > JOBS
    return took
