"""`soak`: jobs through the whole daemon shell over in-memory ports: how many a second, and whether memory grows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ephemerd.testing.bench.figures import Figure, figure
from ephemerd.testing.soak.run import FLAT
from ephemerd.testing.soak.run import soak as run

JOBS = 20_000
DAYS = 20.0
PER_SECOND = 500.0


def soak() -> Sequence[Figure]:
    """One run: it is long enough to be its own average."""
    with _quiet():
        result = run(JOBS, days=DAYS)
    rate = result.outcome.jobs / result.wall_s
    grown, held = abs(result.change("rss")), abs(result.held("blocks"))
    note = "blocks of Python's allocator after warm-up, of those that the jobs had added until then"
    return [
        figure("soak", "jobs/s", [rate], target=PER_SECOND, least=True),
        figure("soak.memory", "% of change", [grown], target=FLAT, note="resident memory after warm-up"),
        figure("soak.held", "% of change", [held], target=FLAT, note=note),
        figure("soak.problems", "problems", [float(len(result.problems))], target=0.0),
    ]


@contextmanager
def _quiet() -> Iterator[None]:
    """Log errors alone: what is planned to go wrong here is no news."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
