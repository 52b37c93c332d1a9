"""`reconcile`: 10,000 queued jobs in 200 repositories, read by a daemon that begins, beside the same bytes alone.

What was asked and answered is recorded in a first pass that is not timed. Then by turns: the daemon with the
look-alike, the daemon with the recorded answers, and a reader that asks for them all and does nothing with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import psutil

from ephemerd.storing import journal_of
from ephemerd.testing.alone import SECRET
from ephemerd.testing.bench.figures import RUNS, Figure, figure
from ephemerd.testing.bench.lookalike import OWNER, TOKEN, looking_alike
from ephemerd.testing.bench.programs import Program, config_text, with_runners
from ephemerd.testing.bench.wires import Answers, read_plainly, recording, replaying
from ephemerd.testing.demo.clients import Daemon, until
from ephemerd.testing.demo.settings import write_secret
from ephemerd.testing.demo.stage import free_port
from ephemerd.testing.fake_runner.folder import write_folder

REPOSITORIES = 200
"""Four lists of runs each: together just what the adapter sends to an endpoint within a minute (800), of which it keeps
count itself. One more would make the figure a minute longer."""
RUNS_OF_EACH = 2
JOBS_OF_EACH = 25
CONNECTIONS = 9
"""As many requests as the daemon has under way at a time: three repositories, three runs of each."""
WITHIN_S = 170.0
LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Read:
    """Seconds from the daemon's first event to the end of its first listing, and of a processor that it used so far."""

    took: float
    cpu: float


def reconcile() -> Sequence[Figure]:
    """Three passes of each, each of the daemon's on a fresh store."""
    jobs = REPOSITORIES * RUNS_OF_EACH * JOBS_OF_EACH
    with (
        TemporaryDirectory(prefix="ephemerd-bench-") as name,
        looking_alike(
            Path(name) / "forge", repositories=REPOSITORIES, runs=RUNS_OF_EACH, jobs=JOBS_OF_EACH
        ) as url,
    ):
        return asyncio.run(_measured(urlsplit(url).port or 0, jobs))


async def _measured(port: int, jobs: int) -> list[Figure]:
    answers: Answers = {}
    async with recording(port, answers) as between:
        await _read(between, jobs)
    whole, again, plain = [], [], []
    for _ in range(RUNS):
        whole.append(await _read(port, jobs))
        async with replaying(port, answers) as memory:
            again.append(await _read(memory, jobs))
            plain.append(await read_plainly(memory, answers, CONNECTIONS))
    size = sum(map(len, answers.values()))
    what = f"{jobs:,} jobs, {REPOSITORIES} repositories, {len(answers):,} requests, {size / 1e6:.1f} MB"
    base = "baseline: the same bytes, asked for over loopback and thrown away"
    replayed = "the look-alike's own work left out: its answers come from memory"
    return [
        figure("reconcile", "s", [one.took for one in whole], baseline=plain, note=f"{what}; {base}"),
        figure("reconcile.replayed", "s", [one.took for one in again], baseline=plain, note=replayed),
        figure(
            "reconcile.cpu",
            "s",
            [one.cpu for one in again],
            note="the daemon's, with those answers, its own start included",
        ),
    ]


async def _read(port: int, jobs: int) -> Read:
    with _daemon(port) as (program, socket):
        daemon = Daemon(socket)

        async def read() -> bool:
            return int((await daemon.get("/api/v1/status"))["jobs"]["queued"]) >= jobs

        try:
            await program.ready()
            found = await until(read, WITHIN_S, every=LOOK_S)
            if not found:
                counts = (await daemon.get("/api/v1/status"))["jobs"]
                raise RuntimeError(f"not all jobs were read, but {counts}: {program.words()}")
        finally:
            await daemon.close()
        used = psutil.Process(program.process.pid).cpu_times()
        program.stop()
        return Read(_took(program.folder / "state.db"), used.user + used.system)


def _took(store: Path) -> float:
    """Return the seconds from the beginning of the life to the end of the first listing of jobs, by the journal."""
    with journal_of(store) as (_, entries):
        began = None
        for entry in entries:
            began = entry.now if began is None else began
            if entry.event["kind"] == "JobsListed":
                return (entry.now - began) / 1000
    raise RuntimeError("no listing is in the journal")


@contextmanager
def _daemon(port: int) -> Iterator[tuple[Program, Path]]:
    with TemporaryDirectory(prefix="ephemerd-bench-") as name:
        folder, own = Path(name), free_port()
        write_secret(folder / "token", TOKEN)
        write_secret(folder / "hook", SECRET)
        application = write_folder(folder / "application")
        listener = application / "bin" / "Runner.Listener"
        listener.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")  # nothing is to be left running
        config = folder / "config.toml"
        text = config_text(folder, own, url=f"http://127.0.0.1:{port}", scope=f"org:{OWNER}", slots=1)
        config.write_text(text, encoding="utf-8")
        with with_runners(folder, own, "ephemerd.testing.bench.eager", str(config)) as program:
            yield program, folder / "api.sock"
