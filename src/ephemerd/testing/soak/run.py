"""One soak: a daemon over the world's ports, its memory measured at each twentieth of the jobs."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sized
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import psutil

from ephemerd.app.daemon import Daemon, Ports
from ephemerd.app.intake import Intake, Taken
from ephemerd.app.spending import Spending, Window
from ephemerd.core.validate import slot_difference, validate
from ephemerd.domain.job import JobReport
from ephemerd.domain.pool import Host, Policy, Pool, Setup
from ephemerd.ports.store import Keep
from ephemerd.testing.memory.store import MemoryDisk, MemoryStore
from ephemerd.testing.soak.world import (
    FORGE,
    LABELS,
    SCOPE,
    Outcome,
    World,
    WorldClock,
    WorldForge,
    WorldRuntime,
    WorldWebhooks,
)
from ephemerd.testing.virtual_time import virtually

DAYS = 200.0
"""Virtual days over which the jobs arrive."""
SAMPLES = 20
WARM, WARM_DAYS = 0.15, 8.5
"""The share of the jobs, and the days, after which nothing may grow any more: delivery ids are kept for 8 days,
whatever is set, and nothing is kept for longer."""
LATEST = 0.9
"""Where there are fewer days, growth is looked for from this share on, and may be what is kept for a time."""
FLAT = 5.0
"""Percent by which memory may differ from what it was when warm."""
QUIET = 3600.0
"""Virtual seconds after the last job within which all that was made must be gone."""
LOOK = 10.0
SLOTS = 8
HOUR = 3_600_000
KEPT = Policy(finished_kept=24 * HOUR)
HISTORY = Keep(age=12 * HOUR, segment_age=HOUR, least_entries=100)
"""Little is kept, because the store is in the memory that is measured: the less is kept, the less hides a leak. 5 % of
what is left is some 30 bytes a job."""


class CountingMeter:
    """Counts how many series there are; label sets that grow would be memory that grows."""

    def __init__(self) -> None:
        self.series: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        key = (name, tuple(sorted(labels.items())))
        self.series[key] = self.series.get(key, 0.0) + amount

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        key = (name, tuple(sorted(labels.items())))
        self.series[key] = self.series.get(key, 0.0) + 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory at one moment: resident bytes, blocks of Python's allocator, and how much each collection holds."""

    jobs: int
    rss: int
    blocks: int
    sizes: dict[str, int]


@dataclass(slots=True)
class SoakResult:
    """What one soak gave; `problems` are broken promises, in words."""

    outcome: Outcome
    virtual_days: float
    events: int
    wall_s: float
    samples: list[Sample]
    problems: list[str] = field(default_factory=list)

    @property
    def warm(self) -> list[Sample]:
        """The samples after all that is kept for a time is full."""
        share = min(max(WARM, WARM_DAYS / self.virtual_days), LATEST)
        return [sample for sample in self.samples if sample.jobs >= share * self.outcome.jobs]

    def change(self, name: str) -> float:
        """The largest difference from the first warm sample, in percent of it."""
        return self._worst(name, getattr(self.warm[0], name))

    def held(self, name: str) -> float:
        """The same in percent of what the jobs had added until then, without what a process has before them."""
        return self._worst(name, getattr(self.warm[0], name) - getattr(self.samples[0], name))

    def _worst(self, name: str, of: int) -> float:
        values: list[int] = [getattr(sample, name) for sample in self.warm]
        worst = max((value - values[0] for value in values), key=abs)
        return round(100.0 * worst / max(of, 1), 2)

    def plain(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        warm, last = self.warm[0], self.samples[-1]
        return {
            **asdict(self.outcome),
            "virtual_days": round(self.virtual_days, 2),
            "events": self.events,
            "jobs_per_s": round(self.outcome.jobs / self.wall_s, 1),
            "wall_s": round(self.wall_s, 1),
            "rss_mib": {"warm": _mib(warm.rss), "end": _mib(last.rss), "change_pct": self.change("rss")},
            "blocks": {"warm": warm.blocks, "end": last.blocks, "change_pct": self.held("blocks")},
            "sizes": {"warm": warm.sizes, "end": last.sizes},
            "problems": self.problems,
        }


def _trim() -> None:
    """Have the C library give back what it holds free, where it can be asked: it is no memory of the daemon's."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _grains(spent: Spending) -> Iterator[list[int]]:
    for kept in fields(spent):
        window = getattr(spent, kept.name)
        if isinstance(window, Window):
            yield from window._grains


def _mib(size: int) -> float:
    return round(size / 1024**2, 1)


class Soak:
    """Jobs through a whole daemon. `progress` is told each sample."""

    def __init__(
        self,
        jobs: int,
        *,
        days: float = DAYS,
        seed: int = 1,
        policy: Policy | None = None,
        keep: Keep = HISTORY,
        progress: Callable[[Sample], None] | None = None,
    ) -> None:
        self._jobs = jobs
        self._gap = days * 86_400 / jobs
        self._seed = seed
        self._policy = policy or KEPT
        self._keep = keep
        self._progress = progress
        self.disk = MemoryDisk()
        self.samples: list[Sample] = []
        self._process = psutil.Process()

    async def run(self) -> SoakResult:
        """Run to the end; call it on a virtual loop."""
        began, loop = time.monotonic(), asyncio.get_running_loop()
        self.world = world = World(self._jobs, self._gap, seed=self._seed)
        self.meter, hooks = CountingMeter(), WorldWebhooks()
        self.runtime = WorldRuntime(world)
        pool = Pool("linux", SCOPE, LABELS, "local", "process", max_concurrent=SLOTS)
        setup = Setup((pool,), (Host("local", SLOTS),), self._policy)
        store = MemoryStore(self.disk)
        ports = Ports(
            store, {FORGE: WorldForge(world)}, {"linux": self.runtime}, WorldClock(world), self.meter
        )
        self.daemon = daemon = Daemon(ports, setup, keep=self._keep)
        intake = Intake({FORGE: hooks}, daemon.inbox, self.meter)

        async def deliver(name: str, report: JobReport) -> bool:
            hooks.reports[name] = report
            taken, _ = await intake.take(FORGE, {"x-delivery": name}, b"{}")
            hooks.reports.pop(name, None)
            return taken in (Taken.STORED, Taken.DUPLICATE)

        world.deliver = deliver
        await daemon.open()
        running = asyncio.create_task(daemon.run())
        await daemon.booted()
        first = loop.time()
        world.begin()
        await self._sampled()
        ended = loop.time()
        problems = await self._at_rest()
        await daemon.stop()
        await running
        return SoakResult(
            world.outcome,
            (ended - first) / 86_400,
            self.disk.next_seq - 1,
            time.monotonic() - began,
            self.samples,
            problems,
        )

    async def _sampled(self) -> None:
        """Wait for the last job to be over, and measure at each twentieth of the way."""
        world, due = self.world, 0
        while not world.over.is_set():
            if world.outcome.jobs >= due * self._jobs / SAMPLES:
                self._sample()
                due += 1
            try:
                async with asyncio.timeout(max(self._gap * self._jobs / SAMPLES / 10, 1.0)):
                    await world.over.wait()
            except TimeoutError:
                continue
        self._sample()

    def _sample(self) -> None:
        gc.collect()
        _trim()
        sample = Sample(
            self.world.outcome.jobs,
            self._process.memory_info().rss,
            sys.getallocatedblocks(),
            {name: len(found) for name, found in self.collections().items()},
        )
        self.samples.append(sample)
        if self._progress is not None:
            self._progress(sample)

    def collections(self) -> dict[str, Sized]:
        """Everything that holds something a job or a runner long."""
        daemon = self.daemon
        state, executor = daemon.core.state, daemon.executor
        index = state.index
        writer: Any = daemon._writer
        listings = [forge.discovery for forge in executor._forges.values()]
        return {
            "jobs": state.jobs,
            "runners": state.runners,
            "classes": state.classes,
            "counters": state.counters,
            "groups": index.groups,
            "intents": index.intents,
            "registrations": index.registrations,
            "agenda": state.agenda.moments(),
            "agenda_heap": state.agenda._heap,
            "recent": writer._recent,
            "inbox": range(len(daemon.inbox)),
            "credentials": executor._credentials._held,
            "runs": [run for one in listings for run in one.ledger._runs],
            "spent": [
                grain for one in listings for spent in one._spending.values() for grain in _grains(spent)
            ],
            "commands": range(executor.running),
            "following": executor._following,
            "watching": executor._runtimes._watching,
            "tasks": asyncio.all_tasks(),
            "series": self.meter.series,
            "store_rows": self.disk.rows,
            "store_deliveries": self.disk.deliveries,
            "store_journal": self.disk.journal,
            "store_subjects": self.disk.subjects,
            "store_decisions": self.disk.decisions,
            "store_segments": self.disk.segments,
        }

    async def _at_rest(self) -> list[str]:
        """Wait until all that was made is gone, and look at what is left."""
        world = self.world
        for _ in range(round(QUIET / LOOK)):
            if not world.left:
                break
            await asyncio.sleep(LOOK)
        found = list(validate(self.daemon.core.state))
        outcome = world.outcome
        if world.left:
            found.append(f"{world.left} registrations and environments are left over")
        if outcome.completed + outcome.cancelled != outcome.jobs:
            lost = outcome.jobs - outcome.completed - outcome.cancelled
            found.append(f"{lost} jobs neither completed nor cancelled")
        if outcome.killed:
            found.append(f"{outcome.killed} runners were destroyed while they held a job")
        if slot_difference(self.daemon.core.state):
            found.append("slots held are not the slots that runners hold")
        return found


def soak(jobs: int, **options: Any) -> SoakResult:
    """Run one soak on a virtual loop of its own."""
    made = Soak(jobs, **options)
    return virtually(made.run)[0]
