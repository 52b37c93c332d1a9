"""Every benchmark by its name, in the order in which they run."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from threading import Thread

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
"""What the programs of a benchmark and the connections to them can fail with; time-outs are errors of the system."""


def run(names: Iterable[str], told: Callable[[str], None]) -> Iterator[Figure]:
    """Run these, one after the other; `told` hears the name of each before it begins. One that fails does not keep
    the others from being measured."""
    for name in names:
        told(name)
        yield from (_apart if name in PARTS else _measured)(name, BENCHMARKS[name])


def _measured(name: str, benchmark: Benchmark) -> list[Figure]:
    try:
        return [*benchmark()]
    except FAILURES as error:
        return [broken(name, f"{type(error).__name__}: {error}")]


def _apart(name: str, benchmark: Benchmark) -> list[Figure]:
    """Measure in a fresh process, which ends with this call in any case."""
    fresh = get_context("spawn")
    figures, there = fresh.Pipe(duplex=False)
    process = fresh.Process(target=_measure_there, args=(name, benchmark, there), daemon=True)
    process.start()
    there.close()
    try:
        found: list[Figure] = figures.recv()
    except EOFError:
        process.join()
        return [broken(name, f"its process ended with code {process.exitcode}")]
    finally:
        process.kill()
        process.join()
        figures.close()
    return found


def _measure_there(name: str, benchmark: Benchmark, figures: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this process ends it
    Thread(target=_end_with_parent, daemon=True).start()
    look_for_garbage_seldom()
    figures.send(_measured(name, benchmark))


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
