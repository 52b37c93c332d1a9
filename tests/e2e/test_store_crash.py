"""The store against kill -9: what was acknowledged is there, and nothing is there by half."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ephemerd.adapters.stores.sqlite import SqliteStore
from ephemerd.ports.store import DeliveryId, JournalEntry, Store
from ephemerd.testing.contracts.store import opened, rows_of

pytestmark = pytest.mark.e2e

KILLS = 20
# Commits batches for ever, each of several steps over several tables, and prints a number only after its
# commit has returned. It goes on from the number after the last one that the store holds.
WRITER = """
import asyncio, sys
from pathlib import Path
from ephemerd.adapters.stores.sqlite import SqliteStore
from ephemerd.ports.store import Batch, DeliveryId, StepRecord
from ephemerd.testing.contracts.store import rows_of

def batch(number):
    size = 1 + number % 17
    row = {"number": number, "size": size, "padding": "x" * (number % 7 * 1000)}
    steps = tuple(
        StepRecord(
            number, {"kind": "Numbered", "number": number, "size": size}, "0" * 32,
            (("job", f"job-{place}", row), ("meta", "last", {"value": number})),
            ({"id": number * 100 + place, "runner": f"r{place}", "outcome": "vetoed"},),
            (f"job-{place}", f"batch-{number}"),
        )
        for place in range(size)
    )
    return Batch((DeliveryId("github", str(number)),), steps)

async def main():
    store = SqliteStore(Path(sys.argv[1]))
    await store.open()
    rows = await rows_of(store)
    number = rows["meta"]["last"]["value"] + 1 if rows else 1
    while True:
        await store.commit(batch(number), (number, "boot", number))
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


def run_and_kill(path: Path, draw: random.Random) -> list[int]:
    """Let a writer work, kill it somewhere, and return the numbers that it acknowledged."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    lines = [writer.stdout.readline() for _ in range(draw.randint(1, 25))]
    time.sleep(draw.random() * 0.004)  # no waiting for anything: where in the next commits it dies
    writer.send_signal(signal.SIGKILL)
    rest = writer.stdout.read()  # from the buffer that the lines above came from, too
    errors = writer.stderr.read()
    assert writer.wait(30) == -signal.SIGKILL, errors
    writer.stdout.close()
    writer.stderr.close()
    # The last line may have been cut off by the kill.
    text = "".join(lines) + rest
    return [int(line) for line in text[: text.rfind("\n") + 1].splitlines()]


async def whole_journal(store: Store) -> list[JournalEntry]:
    found: list[JournalEntry] = []
    while page := await store.journal(after=found[-1].seq if found else 0):
        found += page
    return found


async def check_whole(store: Store, acknowledged: list[int]) -> int:
    """Check that every batch up to the last one is there, whole, in every table; return how many are."""
    journal = await whole_journal(store)
    last = journal[-1].event["number"]
    expected = [number for number in range(1, last + 1) for _ in range(1 + number % 17)]
    assert [entry.event["number"] for entry in journal] == expected
    assert [entry.seq for entry in journal] == list(range(1, len(journal) + 1))
    assert acknowledged[-1] <= last <= acknowledged[-1] + 1
    deliveries = {DeliveryId("github", str(number)) for number in range(1, last + 1)}
    assert await store.seen(deliveries) == deliveries
    assert await store.seen([DeliveryId("github", str(last + 1))]) == set()
    loaded = await store.load()
    assert loaded.clock == (last, "boot", last)
    rows = await rows_of(store)
    assert rows["meta"]["last"] == {"value": last}
    for place, row in enumerate(rows["job"][f"job-{n}"] for n in range(len(rows["job"]))):
        writers = [number for number in range(1, last + 1) if number % 17 >= place]
        assert row["number"] == writers[-1]
    newest = await store.decisions(newest=True, limit=1)
    assert newest[0]["id"] == last * 100 + last % 17
    assert len(await store.journal(subject=f"batch-{last}")) == 1 + last % 17
    return int(last)


async def test_every_acknowledged_batch_survives_kill_9(tmp_path):
    draw = random.Random(1)
    path = tmp_path / "state.db"
    acknowledged: list[int] = []
    name, last = "", 0
    for _ in range(KILLS):
        acknowledged += run_and_kill(path, draw)
        async with opened(lambda: SqliteStore(path)) as store:
            last = await check_whole(store, acknowledged)
            name = name or (await store.load()).store
            assert (await store.load()).store == name
    assert acknowledged == sorted(set(acknowledged))
    assert len(acknowledged) > KILLS
    assert last >= len(acknowledged)
