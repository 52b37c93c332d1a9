"""Nothing in the daemon grows with the number of jobs: a short soak, and what its journal is worth.

The long one is `make soak`; it measures memory. Here the collections themselves are counted.
"""

from __future__ import annotations

import json

import msgspec
import pytest

from ephemerd.domain.pool import Policy
from ephemerd.ports.store import Keep
from ephemerd.testing.memory.store import MemoryDisk
from ephemerd.testing.simulate.exported import replay_exported
from ephemerd.testing.soak import Soak, SoakResult
from ephemerd.testing.soak.run import Sample
from ephemerd.testing.soak.world import Outcome
from ephemerd.testing.virtual_time import virtually

pytestmark = pytest.mark.timeout(600)
JOBS = 1500
FINISHED = 200
GROWS_BY_CHANCE = 40
"""Runners stay an hour after their end, agenda entries a while: so many more or fewer say nothing."""


@pytest.fixture(scope="module")
def soaked() -> tuple[MemoryDisk, SoakResult]:
    policy = Policy(finished_most=FINISHED)
    keep = Keep(age=3_600_000, segment_age=1_800_000, least_entries=100)
    soak = Soak(JOBS, days=1.5, policy=policy, keep=keep)
    return soak.disk, virtually(soak.run)[0]


@pytest.fixture(scope="module")
def result(soaked: tuple[MemoryDisk, SoakResult]) -> SoakResult:
    return soaked[1]


def recounted(disk: MemoryDisk) -> int:
    kept = [*disk.rows.values()]
    kept += [entry.event for entry in disk.journal.values()]
    kept += [checkpoint for _, checkpoint, _ in disk.segments.values()]
    kept += [body for _, _, _, body, _ in disk.quarantine.values()]
    return sum(len(one) for one in [*kept, *disk.decisions.values()])


def test_what_a_disk_says_it_uses_is_what_it_keeps(soaked):
    disk, _ = soaked
    assert disk.used == recounted(disk)


def test_every_job_is_done_and_nothing_is_left(result):
    assert result.problems == []
    assert result.outcome.jobs == JOBS
    assert result.outcome.cancelled > 0
    assert result.outcome.destroyed > 0


def test_no_collection_grows_with_the_jobs(result):
    warm, *later = [sample for sample in result.samples if sample.jobs >= JOBS / 2]
    assert len(later) >= 5
    bounded = {name for name in warm.sizes if name not in ("recent", "store_deliveries")}
    for name in bounded:
        most = max(sample.sizes[name] for sample in later)
        assert most <= warm.sizes[name] * 1.4 + GROWS_BY_CHANCE, name


def test_what_is_kept_by_time_is_bounded_by_its_time(result):
    last = result.samples[-1].sizes
    assert last["recent"] <= 8192
    assert last["store_deliveries"] <= 3.2 * JOBS  # eight days have not passed
    assert last["jobs"] <= FINISHED + GROWS_BY_CHANCE
    assert last["store_rows"] == pytest.approx(last["jobs"] + last["runners"] + last["counters"], abs=30)


@pytest.mark.parametrize(("days", "first"), [(200.0, 15), (20.0, 45), (1.0, 90)])
def test_growth_is_looked_for_once_all_that_is_kept_for_a_time_is_full(days, first):
    samples = [Sample(jobs, 1_000 + jobs, 5_000 + min(jobs, 50), {}) for jobs in range(0, 101, 5)]
    result = SoakResult(Outcome(jobs=100), days, 0, 1.0, samples)
    assert result.warm[0].jobs == first
    assert result.change("rss") == round(100 * (100 - first) / (1_000 + first), 2)
    assert result.held("blocks") == round(100 * max(0, 50 - first) / min(first, 50), 2)


def test_segments_that_a_running_store_opened_are_replayed_to_the_same_commands(tmp_path):
    keep = Keep(segment_age=10**12, segment_entries=200, least_entries=100)
    soak = Soak(150, days=0.05, policy=Policy(finished_most=50), keep=keep)
    assert virtually(soak.run)[0].problems == []
    disk, decode = soak.disk, msgspec.json.decode
    assert len(disk.segments) >= 4
    assert disk.used == recounted(disk)
    numbers = sorted(disk.segments)
    for number in numbers[1:]:
        rules, checkpoint, first = disk.segments[number]
        rows = decode(checkpoint)
        begin = {"kind": "checkpoint", "rules": rules, "rows": rows["rows"], "stands_at": rows.get("at", 0)}
        entries = [
            {"seq": seq, "now": entry.now, "event": decode(entry.event), "commands": entry.commands}
            for seq, entry in disk.journal.items()
            if entry.segment == number
        ]
        file = tmp_path / f"{number}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in [begin, *entries]))
        report = replay_exported(file)
        assert report.problems == [], f"segment {number} from {first}"
        assert report.events > 0
