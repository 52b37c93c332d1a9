"""Containers on a real engine: what a start costs, what a look costs, fifty at once, what spares are worth.

    python -m benchmarks.containers [--only NAME …] [--pairs N] [--json]

Starts an engine of its own, as the tests do: needs root on Linux and what `make system` installs.
  start    from order to listener running, isolated, a network being ready, against `docker run` of the same image and
           command; medians of pairs in one run (target: 1.25 times that)
  without  the same where no network is ready (no target)
  probe    p95 of looks at 20 containers, all at once, ms (target 60)
  fifty    50 isolated runners started at once: failures (target 0); `runs` are the seconds until all listen and until
           all are gone
  warm     from a queued job to its worker running, with listening spares, against none, in one run of look-alike and
           daemon (target: a third)
Exit code 8 where a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from ephemerd.adapters.runtimes.docker import DockerRuntime, local
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.permit import Warrant
from ephemerd.domain.verdict import Sign
from ephemerd.ports.errors import PortError
from ephemerd.ports.runtime import StartOrder
from ephemerd.testing.contracts.runtime import STORE, Sink
from ephemerd.testing.demo.clients import until
from ephemerd.testing.demo.options import CONTAINER_TIME_SCALE, DemoOptions
from ephemerd.testing.demo.settings import ACT_LABELS, BURST_LABELS
from ephemerd.testing.demo.stage import Stage
from ephemerd.testing.engines.own import why_not
from ephemerd.testing.forge_sim.truth import read_truth
from tests.e2e.docker_runtime import POOL, SECRET, Lab, container_of
from tests.e2e.engine import IMAGE, NEEDED, TestEngine, busybox_image

Result = dict[str, Any]
SUBNETS = "10.202.0.0/16"
OVERHEAD, PROBE_MS, WARM = 1.25, 60.0, 1 / 3
LOOKED_AT, ROUNDS, AT_ONCE, SPARES = 20, 20, 50, 2
LISTENS_WITHIN_S, GONE_WITHIN_S = 120.0, 300.0


@contextmanager
def engine() -> Iterator[TestEngine]:
    """An engine with the stand-in's image."""
    made = TestEngine()
    try:
        made.start()
        made.api.import_image(IMAGE, busybox_image(), "USER runner", "WORKDIR /runner")
        yield made
    finally:
        made.stop()


def result(name: str, value: float, unit: str, **more: Any) -> Result:
    """One line of the report, in the form of `bench --json`."""
    shape: Result = {"name": name, "value": round(value, 3), "unit": unit, "baseline": None, "ratio": None}
    return {**shape, "target": None, "met": None, "runs": [], **more}


def compared(name: str, ours: list[float], theirs: list[float], target: float | None) -> Result:
    """The medians of two series in ms, and whether their ratio is what was wanted."""
    value, baseline = statistics.median(ours), statistics.median(theirs)
    ratio = value / baseline
    runs = [[round(each) for each in pair] for pair in zip(ours, theirs, strict=True)]
    met = None if target is None else ratio <= target
    more = {"baseline": round(baseline, 3), "ratio": round(ratio, 3), "target": target, "met": met}
    return result(name, value, "ms", **more, runs=runs)


def until_listener(lab: Lab, container: str) -> None:
    """Return when the listener is one of a container's processes, by its control group."""
    pid = int(lab.engine.inspect(container)["State"]["Pid"])
    end = time.monotonic() + LISTENS_WITHIN_S
    while time.monotonic() < end:
        group = local.group_of(pid, container)
        for each in local.pids_in(group) if group is not None else ():
            try:
                with open(f"/proc/{each}/comm") as comm:  # noqa: PTH123 - a few thousand times
                    if comm.read().strip() == "Runner.Listener":
                        return
            except OSError:
                continue
        time.sleep(0.002)
    raise SystemExit(f"the listener of {container[:12]} did not come up")


def run_plainly(lab: Lab) -> str:
    """What anybody would type; return the container's id."""
    command = ["docker", "--host", lab.engine.url, "run", "--detach", "--entrypoint", "sh"]
    command += ["--env", "ACTIONS_RUNNER_INPUT_JITCONFIG=x", "--env", "RUNNER_PERFLOG=/tmp"]
    command += [IMAGE, "-c", "exec bin/Runner.Listener run"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LISTENS_WITHIN_S)
    return ran.stdout.strip()


async def measure_start(lab: Lab, pairs: int, *, ready: int) -> tuple[list[float], list[float]]:
    """Times of our start and of the plain one, ms, by turns; each is removed before the next one."""
    runtime, sink = lab.runtime(network="isolated", subnets=SUBNETS, ready_networks=ready), Sink()
    runtime.attach(sink)
    await runtime.list(STORE)
    ours, theirs = [], []
    for number in range(pairs + 1):
        runner = RunnerId(f"eph-bench-{ready}-{number}")
        await runtime.stock.filled()
        began = time.perf_counter()
        environment = await runtime.start(StartOrder(runner, POOL, STORE, SECRET))
        await asyncio.to_thread(until_listener, lab, container_of(environment))
        took = time.perf_counter() - began
        lab.clock = 1_000_000
        await sink.until_sign(runner, Sign.LISTENING)
        await runtime.destroy(environment, lab.permit(runner, environment, Warrant.IDLE))
        await runtime.stock.filled()
        began = time.perf_counter()
        plain = await asyncio.to_thread(run_plainly, lab)
        await asyncio.to_thread(until_listener, lab, plain)
        if number:  # the first pair warms both up
            ours.append(took * 1000)
            theirs.append((time.perf_counter() - began) * 1000)
        lab.engine.call("DELETE", f"/containers/{plain}?force=1&v=1")
    await runtime.close()
    return ours, theirs


async def start(lab: Lab, pairs: int) -> Result:
    return compared("start", *await measure_start(lab, pairs, ready=1), OVERHEAD)


async def without(lab: Lab, pairs: int) -> Result:
    return compared("without", *await measure_start(lab, pairs, ready=0), None)


async def many(
    lab: Lab, number: int, **changes: Any
) -> tuple[DockerRuntime, dict[RunnerId, str], list[BaseException], float]:
    """Start so many at once; return them, what failed, and the seconds until those that did not listen."""
    runtime, sink = lab.runtime(**changes), Sink()
    runtime.attach(sink)
    names = [RunnerId(f"eph-bench-many-{each}") for each in range(number)]
    began = time.perf_counter()
    orders = [runtime.start(StartOrder(name, POOL, STORE, SECRET)) for name in names]
    done = await asyncio.gather(*orders, return_exceptions=True)
    environments = {name: each for name, each in zip(names, done, strict=True) if isinstance(each, str)}
    failures = [each for each in done if isinstance(each, BaseException)]
    wanted = {(name, Sign.LISTENING) for name in environments}
    await sink.until(lambda: wanted <= set(sink.signs), LISTENS_WITHIN_S)
    return runtime, environments, failures, time.perf_counter() - began


async def probe(lab: Lab, pairs: int) -> Result:
    runtime, environments, _, _ = await many(lab, LOOKED_AT)
    spans: list[float] = []

    async def look(runner: RunnerId, environment: str) -> None:
        began = time.perf_counter()
        await runtime.probe(runner, environment)
        spans.append((time.perf_counter() - began) * 1000)

    for _ in range(ROUNDS):
        await asyncio.gather(*(look(*each) for each in environments.items()))
    p95 = statistics.quantiles(spans, n=20)[-1]
    more = {"target": PROBE_MS, "met": p95 <= PROBE_MS}
    return result("probe", p95, "ms", **more, runs=[round(statistics.median(spans), 2), round(max(spans), 2)])


async def fifty(lab: Lab, pairs: int) -> Result:
    runtime, environments, failures, took = await many(lab, AT_ONCE, network="isolated", subnets=SUBNETS)
    began = time.perf_counter()
    lab.clock = 1_000_000
    permits = {each: lab.permit(*each, Warrant.FORCED) for each in environments.items()}
    ended = await asyncio.gather(
        *(
            runtime.destroy(environment, permits[name, environment])
            for name, environment in environments.items()
        ),
        return_exceptions=True,
    )
    failed = [*failures, *(each for each in ended if each is not None)]
    for each in failed:
        sys.stderr.write(f"{each!r}\n" if isinstance(each, PortError) else f"unexpected: {each!r}\n")
    runs = [round(took, 1), round(time.perf_counter() - began, 1)]
    return result("fifty", len(failed), "failures", target=0, met=not failed, runs=runs)


class SparesStage(Stage):
    """The pool of the bursts has spares, that of the act has none; both are followed alike."""

    def _config(self) -> str:
        text = super()._config().replace("[pools.burst]\n", f"[pools.burst]\nmin_idle = {SPARES}\n")
        return text.replace('follow = "listening"', 'follow = "all"')


async def measure_spares(rounds: int) -> tuple[list[float], list[float]]:
    """From queued to worker running, ms, with spares and without, by turns."""
    options = DemoOptions(
        runtime="docker", engine="own", weather="calm", act=False, time_scale=CONTAINER_TIME_SCALE
    )
    stage = SparesStage(options)
    warm: list[int] = []
    cold: list[int] = []

    async def listening() -> bool:
        return int((await stage.daemon.get("/api/v1/status"))["runners"].get("listening", 0)) >= SPARES

    async with stage:
        for _ in range(rounds):
            for labels, jobs in ((ACT_LABELS, cold), (BURST_LABELS, warm)):
                if not await until(listening, LISTENS_WITHIN_S):
                    raise SystemExit(f"the spares did not come to listen; see {stage.places.log('daemon')}")
                jobs += await stage.forge.queue(labels, 1, duration_s=1)
                if not await stage.forge.wait("jobs_ended", LISTENS_WITHIN_S):
                    raise SystemExit(f"a job did not end; see {stage.places.log('daemon')}")
                await stage.daemon.look()
        await stage.stop_daemon()
        truth = read_truth(stage.places.truth)
    stage.remove_folder()
    queued = {record["job"]: record["ms"] for record in truth if record["kind"] == "job_queued"}
    running = {record["job"]: record["ms"] for record in truth if record["kind"] == "worker_started"}
    return [running[job] - queued[job] for job in warm], [running[job] - queued[job] for job in cold]


async def warm(pairs: int) -> Result:
    return compared("warm", *await measure_spares(pairs), WARM)


ON_ENGINE: dict[str, Callable[[Lab, int], Awaitable[Result]]] = {
    "start": start,
    "without": without,
    "probe": probe,
    "fifty": fifty,
}


async def measure(names: list[str], pairs: int) -> list[Result]:
    """Measure what was asked for, one after another; each begins with nothing on the engine."""
    found = []
    if any(name in ON_ENGINE for name in names):
        with engine() as made:
            for name in names:
                if name in ON_ENGINE:
                    lab = Lab(made)
                    try:
                        found.append(await ON_ENGINE[name](lab, pairs))
                    finally:
                        await lab.close()
    if "warm" in names:
        found.append(await warm(pairs))
    return found


def main() -> int:
    names = [*ON_ENGINE, "warm"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=names, action="append", default=[])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    if reason := why_not((*NEEDED, "docker")):
        sys.stderr.write(f"error: no engine can be started here: {reason}\n")
        return 5
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    found = asyncio.run(measure(options.only or names, options.pairs))
    if options.as_json:
        sys.stdout.write(json.dumps({"benchmarks": found}) + "\n")
    else:
        for each in found:
            ratio = "" if each["ratio"] is None else f", {each['ratio']} of {each['baseline']}"
            sys.stdout.write(f"{each['name']:<9}{each['value']} {each['unit']}{ratio}, runs {each['runs']}\n")
    missed = [each for each in found if each["met"] is False]
    for each in missed:
        sys.stderr.write(f"missed: {each['name']}, wanted {each['target']:g} at most\n")
    return 8 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
