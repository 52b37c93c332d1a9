"""`core`: events a second through `handle`, whatever the ledger holds, however many wait, however they differ."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, islice

from ephemerd.testing.bench.figures import RUNS, Figure, figure
from ephemerd.testing.bench.scene import Scene, ended

LEDGERS = (10, 1_000, 10_000, 100_000)
LIVES = 150
BURST = 3_000
CLASSES = 2_000
PER_SECOND = 50_000
FLAT = 2.0
"""An event at the longest ledger may cost so many times what it costs at the shortest."""
PER_EVENT_US = 100


def core() -> Sequence[Figure]:
    """Lives of runners over ledgers of 10 to 100,000 ended jobs; a burst; 2,000 classes that hang together."""
    costs: dict[int, list[float]] = {count: [] for count in LEDGERS}
    for run in range(RUNS):
        for count in LEDGERS:
            costs[count].append(_lives(count, run))
    rates = {count: [1.0 / cost for cost in runs] for count, runs in costs.items()}
    found = [
        figure(
            f"core.ledger_{count}",
            "events/s",
            rates[count],
            **({"target": PER_SECOND, "least": True} if count == 1_000 else {}),
        )
        for count in LEDGERS
    ]
    flat = [long / short for long, short in zip(costs[LEDGERS[-1]], costs[LEDGERS[0]], strict=True)]
    note = f"time of an event at {LEDGERS[-1]:,} entries over that at {LEDGERS[0]:,}"
    found.append(figure("core.flat", "times", flat, target=FLAT, note=note))
    found.append(figure("core.burst", "us/event", [1e6 * _burst() for _ in range(RUNS)]))
    found.append(
        figure("core.classes", "us/event", [1e6 * _classes() for _ in range(RUNS)], target=PER_EVENT_US)
    )
    return found


def _lives(entries: int, run: int) -> float:
    scene = Scene(slots=4, rows=ended(entries))
    first = entries + 1 + run * LIVES
    scene.live(range(first, first + LIVES // 10))  # what is made on first use
    scene.reset()
    scene.live(range(first + LIVES, first + 2 * LIVES))
    return scene.per_event


def _burst() -> float:
    """So many jobs of one class, 16 slots: each is told once, and one after the other is done."""
    scene = Scene(slots=16)
    running = [(runner, number) for number in range(1, BURST + 1) for runner in scene.queue(number)]
    for runner, number in running:
        scene.listen(runner)
        scene.work(runner, number)
    for runner, number in running:
        scene.leave(runner, number)
    return scene.per_event


def _classes() -> float:
    """Each job wants other labels of the one pool, so that every class hangs together with every other."""
    labels = tuple(f"l{number:02}" for number in range(13))
    subsets = (chosen for size in range(1, len(labels)) for chosen in combinations(labels, size))
    scene = Scene(slots=16, labels=labels)
    for number, wanted in enumerate(islice(subsets, CLASSES), 1):
        scene.queue(number, wanted)
    return scene.per_event
