"""Every benchmark by its name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import psutil

from ephemerd.serving import look_for_garbage_seldom
from ephemerd.testing.bench.api import api
from ephemerd.testing.bench.core import core
from ephemerd.testing.bench.dispatch import dispatch
from ephemerd.testing.bench.figures import Benchmark, Figure, broken
from ephemerd.testing.bench.idle import idle
from ephemerd.testing.bench.machine import machine
from ephemerd.testing.bench.reconcile import reconcile
from ephemerd.testing.bench.recover import recover
from ephemerd.testing.bench.soak import soak
from ephemerd.testing.bench.sweep import sweep
from ephemerd.testing.bench.webhooks import webhooks
from ephemerd.testing.demo.options import DemoError

BENCHMARKS: dict[str, Benchmark] = {
    "machine": machine,
    "webhooks": webhooks,
    "core": core,
    "dispatch": dispatch,
    "sweep": sweep,
    "recover": recover,
    "reconcile": reconcile,
    "api": api,
    "idle": idle,
    "soak": soak,
}

PARTS = frozenset({"core", "sweep", "recover", "soak"})
"""Those that run parts of the daemon: each in a process of its own, as the daemon does, so that it finds no heap that
another benchmark has left, and looks for garbage as the daemon does."""
FAILURES = (RuntimeError, OSError, EOFError, DemoError, psutil.Error)
"""What the programs of a benchmark and the connections to them can fail with; time-outs are errors of the system, and
a process that died is an error at run time."""


def run(names: Iterable[str], told: Callable[[str], None]) -> Iterator[Figure]:
    """Run these, one after the other; `told` hears the name of each before it begins. One that fails does not keep
    the others from being measured."""
    for name in names:
        told(name)
        benchmark = BENCHMARKS[name]
        try:
            found = [*(_apart(benchmark) if name in PARTS else benchmark())]
        except FAILURES as error:
            found = [broken(name, f"{type(error).__name__}: {error}")]
        yield from found


def _apart(benchmark: Benchmark) -> Sequence[Figure]:
    with ProcessPoolExecutor(1, get_context("spawn"), look_for_garbage_seldom) as process:
        return process.submit(benchmark).result()
