"""Every benchmark by its name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ephemerd.testing.bench.core import core
from ephemerd.testing.bench.figures import Benchmark, Figure
from ephemerd.testing.bench.idle import idle
from ephemerd.testing.bench.recover import recover
from ephemerd.testing.bench.soak import soak
from ephemerd.testing.bench.sweep import sweep
from ephemerd.testing.bench.webhooks import webhooks

BENCHMARKS: dict[str, Benchmark] = {
    "webhooks": webhooks,
    "core": core,
    "sweep": sweep,
    "recover": recover,
    "idle": idle,
    "soak": soak,
}


def run(names: Iterable[str], told: Callable[[str], None]) -> Iterator[Figure]:
    """Run these, one after the other; `told` hears the name of each before it begins."""
    for name in names:
        told(name)
        yield from BENCHMARKS[name]()
