"""`webhooks`: signed deliveries of 10 KB a second, stored and acknowledged, beside the same server without a store."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ephemerd.testing.bench.figures import RUNS, Figure, figure
from ephemerd.testing.bench.programs import Program, running
from ephemerd.testing.bench.sender import SIZE, Sent, prepared, send

CONNECTIONS = 32
DELIVERIES = 9_000
WARM = 600
OF_BARE, PER_SECOND, P99_MS = 0.6, 3_000.0, 50.0


def webhooks() -> Sequence[Figure]:
    """Bare and whole in turn, each run with a fresh program; what was acknowledged is counted in the store's file."""
    bare, whole, lost, fsyncs = [], [], [], []
    for _ in range(RUNS):
        with running(bare=True) as program:
            bare.append(asyncio.run(_run(program)))
        with running() as program:
            whole.append(asyncio.run(_run(program)))
            program.stop()
            lost.append(float(whole[-1].answers[202] + WARM - _stored(program.folder / "state.db")))
        fsyncs.append(_fsyncs())
    refused = sum(sum(sent.answers.values()) - sent.answers[202] for sent in whole)
    rates = [sent.rate for sent in whole]
    return [
        figure(
            "webhooks",
            "deliveries/s",
            rates,
            baseline=[sent.rate for sent in bare],
            target=OF_BARE,
            of="ratio",
            least=True,
            note="baseline: the same server, signature and parsing, without a store",
        ),
        figure("webhooks.rate", "deliveries/s", rates, target=PER_SECOND, least=True),
        figure("webhooks.p50", "ms", [1e3 * sent.percentile(0.5) for sent in whole]),
        figure("webhooks.p99", "ms", [1e3 * sent.percentile(0.99) for sent in whole], target=P99_MS),
        figure("webhooks.lost", "deliveries", lost, target=0.0, note="acknowledged and not in the store"),
        figure("webhooks.refused", "deliveries", [float(refused)], target=0.0),
        figure("webhooks.fsync", "10 KB/s", fsyncs, note="a plain loop of one write and one fsync each"),
    ]


async def _run(program: Program) -> Sent:
    await program.ready()
    await send(program.port, prepared(0, WARM), CONNECTIONS)
    return await send(program.port, prepared(WARM, DELIVERIES), CONNECTIONS)


def _stored(path: Path) -> int:
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return int(database.execute("SELECT count(*) FROM delivery").fetchone()[0])
    finally:
        database.close()


def _fsyncs(seconds: float = 2.0) -> float:
    block = os.urandom(SIZE)
    with tempfile.TemporaryFile() as file:
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
            count += 1
        return count / (time.perf_counter() - began)
