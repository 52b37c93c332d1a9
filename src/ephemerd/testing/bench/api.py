"""`api`: how many requests of the API and pages of the dashboard a daemon answers while 100 jobs a second run on it,
and what that does to its deliveries."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count, cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ephemerd.testing.alone import SECRET
from ephemerd.testing.bench.busy import PER_SECOND
from ephemerd.testing.bench.figures import RUNS, Figure, figure
from ephemerd.testing.bench.programs import Program, config_text, started
from ephemerd.testing.bench.sender import answer, percentile, request
from ephemerd.testing.demo.settings import write_secret
from ephemerd.testing.demo.stage import free_port
from ephemerd.testing.fake_runner.folder import write_folder

SLOTS = 500
SENDERS = 32
SECONDS = 6.0
WARM_S = 4.0
CALLS = ("/api/v1/status", "/api/v1/runners?limit=100", "/api/v1/jobs?limit=100", "/metrics")
PAGES = ("/", "/timeline.json", "/jobs")
CALLERS, WATCHERS = 4, 2
"""Who asks for the API, and who for pages: each one thing after the other, without a pause."""
HELD = 0.95
"""The share of the jobs' rate that must have been there, or nothing of this was measured."""


def api() -> Sequence[Figure]:
    """Spans of time by turns: deliveries alone, and with readers."""
    return asyncio.run(_measured())


class Traffic:
    """Sends what the daemon's world tells, and keeps when each delivery was sent (s), and how long its answer took."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self._deliveries = count(1)
        self.answered: list[tuple[float, float]] = []
        self.ended: list[float] = []
        self.refused = 0
        self._more = asyncio.Event()

    async def listen(self, lines: asyncio.StreamReader) -> None:
        """Make a delivery of each line."""
        while line := await lines.readline():
            job, status, runner, conclusion = (
                None if word == "-" else word for word in line.decode().split()
            )
            if status == "completed":
                self.ended.append(time.perf_counter())
            fields: dict[str, Any] = {"runner": runner, "conclusion": conclusion}
            self._waiting.put_nowait(request(next(self._deliveries), int(job or 0), status or "", **fields))

    async def send(self) -> None:
        """Send one after the other over one connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            while True:
                delivery = await self._waiting.get()
                began = time.perf_counter()
                writer.write(delivery)
                self.refused += await answer(reader) != 202
                self.answered.append((began, time.perf_counter() - began))
                self._more.set()
        finally:
            writer.close()

    async def p99(self, since: float) -> float:
        """Return the 99th percentile (ms) of the deliveries that were sent since then, of one at least."""
        while not (taken := [took for began, took in self.answered if began >= since]):
            self._more.clear()
            await self._more.wait()
        return 1e3 * percentile(taken, 0.99)

    def rate(self, since: float) -> float:
        """Return how many jobs a second have ended since then."""
        return sum(at >= since for at in self.ended) / (time.perf_counter() - since)


async def _measured() -> list[Figure]:
    calls, pages, alone, read, rates = [], [], [], [], []
    with _busy() as (program, port):
        await program.ready()
        async with _traffic(program) as traffic:
            await asyncio.sleep(WARM_S)
            for _ in range(RUNS):
                began = time.perf_counter()
                await asyncio.sleep(SECONDS)
                alone.append(await traffic.p99(began))
                began = time.perf_counter()
                asked = await asyncio.gather(
                    *(_ask(port, CALLS, began + SECONDS) for _ in range(CALLERS)),
                    *(_ask(port, PAGES, began + SECONDS) for _ in range(WATCHERS)),
                )
                took = time.perf_counter() - began
                calls.append(sum(asked[:CALLERS]) / took)
                pages.append(sum(asked[CALLERS:]) / took)
                read.append(await traffic.p99(began))
                rates.append(traffic.rate(began))
            refused = float(traffic.refused)
    what = f"{CALLERS} callers and {WATCHERS} watchers at the same time, without a pause"
    return [
        figure("api", "requests/s", calls, note=what),
        figure("api.pages", "pages/s", pages, note=f"beside them; a watcher asks for {', '.join(PAGES)}"),
        figure("api.p99", "ms", read, baseline=alone, note="of deliveries; baseline: while nobody reads"),
        figure(
            "api.jobs", "jobs/s", rates, target=HELD * PER_SECOND, least=True, note="ended while it was read"
        ),
        figure("api.refused", "deliveries", [refused], target=0.0),
    ]


async def _ask(port: int, paths: Sequence[str], end: float) -> int:
    """Ask for one after the other until then; return how many answers were good."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    good = 0
    try:
        for path in cycle(paths):
            if time.perf_counter() >= end:
                break
            writer.write(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode())
            good += await answer(reader) == 200
    finally:
        writer.close()
    return good


@asynccontextmanager
async def _traffic(program: Program) -> AsyncIterator[Traffic]:
    lines, traffic = asyncio.StreamReader(), Traffic(program.port)
    protocol = asyncio.StreamReaderProtocol(lines)
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, program.process.stdout)
    tasks = [asyncio.create_task(traffic.listen(lines))]
    tasks += [asyncio.create_task(traffic.send()) for _ in range(SENDERS)]
    try:
        yield traffic
        failed = [task.exception() for task in tasks if task.done()]
        if failed:
            raise RuntimeError(
                f"the deliveries ended before the measurement: {failed[0]!r}, {program.words()}"
            )
    finally:
        pipe.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def _busy() -> Iterator[tuple[Program, int]]:
    with TemporaryDirectory(prefix="ephemerd-bench-") as name:
        folder, port, open_port = Path(name), free_port(), free_port()
        write_secret(folder / "token", "a-token-of-nobody")
        write_secret(folder / "hook", SECRET)
        write_folder(folder / "application")
        config = folder / "config.toml"
        text = config_text(folder, port, url="http://127.0.0.1:9", scope="repo:acme/app", slots=SLOTS)
        config.write_text(text, encoding="utf-8")
        arguments = ("ephemerd.testing.bench.busy", str(config), f"127.0.0.1:{open_port}")
        with started(folder, port, *arguments, output=subprocess.PIPE) as program:
            yield program, open_port
