"""`dispatch`: from a stored webhook to a runner process that executes, beside bare fork and exec of the same program,
and with containers beside `docker run` of it."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from ephemerd.testing.alone import SECRET
from ephemerd.testing.bench import starts
from ephemerd.testing.bench.figures import RUNS, Figure, figure, skipped
from ephemerd.testing.bench.lookalike import OWNER, TOKEN, looking_alike
from ephemerd.testing.bench.programs import Program, config_text, with_runners
from ephemerd.testing.bench.sender import answer, request
from ephemerd.testing.bench.starts import Starts, write_application
from ephemerd.testing.demo.clients import Daemon, until
from ephemerd.testing.demo.containers import Containers
from ephemerd.testing.demo.options import DemoError
from ephemerd.testing.demo.settings import write_secret
from ephemerd.testing.demo.stage import free_port

AT_ONCE = {1: 5, 10: 2, 100: 1}
CONTAINERS_AT_ONCE = {1: 3, 10: 1, 100: 1}
"""How many jobs at once, and how often in a run. A daemon's life has no more registrations in it than fit into the
points that GitHub allows an endpoint in a minute: those limits hold here too."""
JUDGED = 10
TIMES = 3.0
"""With so many at once, a dispatch takes at most so many times bare fork and exec."""
GONE_WITHIN_S = 120.0

Plain = Callable[[Starts, Path, int], Awaitable[list[float]]]
MakeLab = Callable[[Starts], AbstractContextManager["Lab"]]


def dispatch() -> Sequence[Figure]:
    """Processes, then containers where an engine is there or can be started."""
    found = list(asyncio.run(_processes()))
    docker = shutil.which("docker")
    if docker is None:
        return [*found, skipped("dispatch.docker", "ms", "there is no `docker` to compare with")]
    containers, names = Containers(None), set[str]()
    try:
        containers.open()
    except DemoError as error:
        return [*found, skipped("dispatch.docker", "ms", error.what)]
    try:
        return [*found, *asyncio.run(_containers(docker, containers, names))]
    finally:
        containers.close(names)


async def _processes() -> list[Figure]:
    async with _heard() as hears:
        return await _measured(hears, "process", AT_ONCE, _forked, _lab)


async def _containers(docker: str, containers: Containers, names: set[str]) -> list[Figure]:
    """`names` gets the names of all runners, whatever happens: who owns the engine removes what is left of them."""
    async with _heard() as hears:
        plain = partial(_run_plainly, docker, containers)
        lab = partial(_lab, containers=containers, names=names)
        return await _measured(hears, "docker", CONTAINERS_AT_ONCE, plain, lab)


@asynccontextmanager
async def _heard() -> AsyncIterator[Starts]:
    hears = Starts()
    await hears.open()
    try:
        yield hears
    finally:
        hears.dismiss()
        hears.close()


@dataclass
class Lab:
    """A daemon beside the look-alike, whose runner application is the program that says when it runs. `names` gets
    those of its runners."""

    hears: Starts
    program: Program
    listener: Path
    socket: Path
    names: set[str]

    def __post_init__(self) -> None:
        self._jobs, self._deliveries = count(1), count(1)

    async def dispatched(self, number: int) -> list[float]:
        """Queue so many jobs at once; return ms from the answer to each delivery to a start. Ends with no runner."""
        jobs = [next(self._jobs) for _ in range(number)]
        stored = await self._sent([request(next(self._deliveries), job, "queued") for job in jobs])
        daemon = Daemon(self.socket)
        try:
            executing = await self.hears.heard(number)
            runners = await self._runners(daemon)
            await self._end(daemon, {job: runners[f"github/{OWNER}/app/{job}"] for job in jobs})
        except TimeoutError:
            await self._runners(daemon)
            raise RuntimeError(f"not all of {number} runners were started: {self.program.words()}") from None
        finally:
            await daemon.close()
        return starts.spans(stored, executing)

    async def _runners(self, daemon: Daemon) -> dict[str, str]:
        """Return the runners by the job that each was made for."""
        found = {one["intent"]: one["id"] for one in await daemon.items("runners")}
        self.names.update(found.values())
        return found

    async def _end(self, daemon: Daemon, runners: Mapping[int, str]) -> None:
        """Tell that each job was done by its runner, and let the runners go to the last one."""
        deliveries = [
            request(next(self._deliveries), job, "completed", runner=runner, conclusion="success")
            for job, runner in runners.items()
        ]
        await self._sent(deliveries)
        self.hears.dismiss()

        async def empty() -> bool:
            counts: dict[str, int] = (await daemon.get("/api/v1/status"))["runners"]
            return not sum(number for state, number in counts.items() if state != "gone")

        if not await until(empty, GONE_WITHIN_S):
            raise RuntimeError("runners are left over")

    async def _sent(self, requests: Sequence[bytes]) -> list[int]:
        """Send these deliveries at once; return when each was answered, ns."""
        connections = [await asyncio.open_connection("127.0.0.1", self.program.port) for _ in requests]

        async def send(place: int, delivery: bytes) -> int:
            reader, writer = connections[place]
            writer.write(delivery)
            code = await answer(reader)
            at = starts.now()
            if code != 202:
                raise RuntimeError(f"a delivery was answered with {code}")
            return at

        try:
            return list(await asyncio.gather(*(send(*each) for each in enumerate(requests))))
        finally:
            for _, writer in connections:
                writer.close()


@contextmanager
def _lab(hears: Starts, containers: Containers | None = None, names: set[str] | None = None) -> Iterator[Lab]:
    with TemporaryDirectory(prefix="ephemerd-bench-") as name, looking_alike(Path(name) / "forge") as url:
        folder, port = Path(name) / "daemon", free_port()
        folder.mkdir()
        folder.parent.chmod(0o755)  # a container's user reads the application
        folder.chmod(0o755)
        listener = write_application(folder / "application", hears.port)
        write_secret(folder / "hook", SECRET)
        config = folder / "config.toml"
        write_secret(folder / "token", TOKEN)
        slots = max(*AT_ONCE, *CONTAINERS_AT_ONCE)
        more = containers.tables("linux") if containers is not None else {}
        text = config_text(folder, port, url=url, scope=f"repo:{OWNER}/app", slots=slots, more=more)
        config.write_text(text, encoding="utf-8")
        with with_runners(folder, port, "ephemerd", "serve", "--config", str(config)) as program:
            yield Lab(hears, program, listener, folder / "api.sock", set() if names is None else names)


async def _measured(
    hears: Starts, kind: str, sizes: Mapping[int, int], plain: Plain, make: MakeLab
) -> list[Figure]:
    """In each run a fresh daemon; at each size baseline and dispatches by turns, after one of each for warmth."""
    ours: dict[int, list[float]] = {number: [] for number in sizes}
    theirs: dict[int, list[float]] = {number: [] for number in sizes}
    last: dict[int, list[float]] = {number: [] for number in sizes}
    for _ in range(RUNS):
        with make(hears) as lab:
            await lab.program.ready()
            await plain(hears, lab.listener, 1)
            await lab.dispatched(1)
            for number, times in sizes.items():
                bare, whole = [], []
                for _ in range(times):
                    bare += await plain(hears, lab.listener, number)
                    whole += await lab.dispatched(number)
                ours[number].append(statistics.median(whole))
                theirs[number].append(statistics.median(bare))
                last[number].append(max(whole))
    return [_figure(kind, number, ours[number], theirs[number], last[number]) for number in sizes]


def _figure(kind: str, number: int, ours: list[float], theirs: list[float], last: list[float]) -> Figure:
    judged = {"target": TIMES, "of": "ratio"} if (kind, number) == ("process", JUDGED) else {}
    note = f"p50 of {number} at once; the last one after {statistics.median(last):.0f} ms"
    return figure(f"dispatch.{kind}_{number}", "ms", ours, baseline=theirs, note=note, **judged)


async def _forked(hears: Starts, listener: Path, number: int) -> list[float]:
    """Fork and exec the program so many times, as fast as that goes."""
    return await _plain(hears, number, [str(listener), "run"])


async def _run_plainly(
    docker: str, containers: Containers, hears: Starts, listener: Path, number: int
) -> list[float]:
    """`docker run` of the program in the same image."""
    command = [docker, "--host", containers.url, "run", "--rm", "--network", "host"]
    command += ["--volume", f"{listener.parents[1]}:/application:ro", containers.image]
    return await _plain(hears, number, [*command, "/application/bin/Runner.Listener", "run"])


async def _plain(hears: Starts, number: int, command: Sequence[str]) -> list[float]:
    """All are wanted at one moment, as the jobs are: ms from there."""
    began = starts.now()
    processes = [_spawned(command) for _ in range(number)]
    executing = await hears.heard(number)
    hears.dismiss()
    for process in processes:
        await asyncio.to_thread(process.wait)
    return starts.spans([began] * number, executing)


def _spawned(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
