"""Many simulations at once, one process a core; each is its own history, so the order does not matter."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from ephemerd.testing.simulate.run import Result, Simulation
from ephemerd.testing.weather import load

LOOK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Order:
    """One run: who schedules, in which weather (by name), which seed, how many jobs."""

    policy: str
    weather: str
    seed: int
    jobs: int


_SHARED: list[Any] = []
"""In a process of a pool: the count of queued jobs that all of them share."""


def _begin(counter: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # who interrupts the whole wants no traceback of each
    _SHARED.append(counter)


def carry_out(order: Order, progress: Callable[[int], None] | None = None) -> Result:
    """Run one order in this process; `progress` is told how many of its jobs were queued."""
    simulation = Simulation(load(order.weather), order.seed, order.jobs, policy=order.policy)
    result = simulation.run(progress)
    if progress is not None:
        progress(order.jobs)
    return result


def _in_a_process(order: Order) -> Result:
    told = 0

    def progress(made: int) -> None:
        nonlocal told
        (counter,) = _SHARED
        with counter.get_lock():
            counter.value += made - told
        told = made

    return carry_out(order, progress)


def run_all(
    orders: Sequence[Order], *, workers: int = 0, progress: Callable[[int], None] | None = None
) -> list[Result]:
    """Carry out the orders on so many processes (0: one a core) and return their results in order.

    `progress` is told now and then how many jobs of all orders were queued so far. One order, or one
    worker, takes no other process.
    """
    count = min(workers or os.cpu_count() or 1, len(orders))
    if count <= 1:
        return _one_by_one(orders, progress)
    context = multiprocessing.get_context("spawn")
    counter = context.Value("q", 0)
    with ProcessPoolExecutor(count, context, initializer=_begin, initargs=(counter,)) as pool:
        futures = [pool.submit(_in_a_process, order) for order in orders]
        try:
            _wait(futures, lambda: progress(counter.value) if progress is not None else None)
        except BaseException:
            for process in list((pool._processes or {}).values()):  # else leaving waits for what still runs
                process.terminate()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]


def _one_by_one(orders: Sequence[Order], progress: Callable[[int], None] | None) -> list[Result]:
    results: list[Result] = []
    before = 0

    def tell(made: int) -> None:
        if progress is not None:
            progress(before + made)

    for order in orders:
        results.append(carry_out(order, tell))
        before += order.jobs
    return results


def _wait(futures: Sequence[Future[Result]], look: Callable[[], None]) -> None:
    open_ = set(futures)
    while open_:
        done, open_ = wait(open_, timeout=LOOK_EVERY_S, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
        look()
