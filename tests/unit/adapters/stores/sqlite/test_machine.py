"""The file against the store in memory: whatever is done to both, they hold the same.

A state machine: commits, bad ones too, crashes before and during them, reopening, quarantine, segments, pruning,
backups that are restored. The store in memory is the model. After each step both are compared in full.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ephemerd.adapters.stores.sqlite import SqliteStore, backup, pruning, quarantine_of, survey
from ephemerd.ports.errors import NotStored
from ephemerd.ports.store import Batch, DeliveryId, Keep, Plain, StepRecord, Store
from ephemerd.testing.contracts.store import rows_of
from ephemerd.testing.memory.store import MemoryDisk, MemoryStore

T = TypeVar("T")
EXAMPLES = 25
"""Short in the default run; more by hand: EXAMPLES here, and the timeout with it."""
NOW = 1_800_000_000_000
QUICK = "/dev/shm" if Path("/dev/shm").is_dir() else None
HOUR, DAY = 3_600_000, 86_400_000

names = st.sampled_from(["a", "b", "c/d", "e\x1f", "Ä"])
kinds = st.sampled_from(["job", "runner", "meta"])
values = st.one_of(st.none(), st.fixed_dictionaries({"n": st.integers(0, 9), "text": st.text(max_size=8)}))
changes = st.lists(st.tuples(kinds, names, values), max_size=4)
deliveries = st.lists(st.integers(1, 30), max_size=3)
ages = st.sampled_from([0, HOUR, DAY, 9 * DAY])


class Machine(RuleBasedStateMachine):
    """Does the same to a file and to its model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="eph-store-", dir=QUICK))
        self.loop = asyncio.new_event_loop()
        self.now = NOW
        self.numbers = itertools.count(1)
        self.decided = 0
        self.disk = MemoryDisk()
        self.copy: tuple[Path, Any] | None = None

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    def do_commit(self, store: Store, batch: Batch, clock: tuple[int, str, int]) -> int:
        async def commit() -> int:
            return await store.commit(batch, clock)

        return self.do(commit())

    def both(self) -> tuple[Store, Store]:
        return self.file, self.model

    @initialize()
    def begin(self) -> None:
        self.file = SqliteStore(self.folder / "state.db")
        self.model = MemoryStore(self.disk)
        for store in self.both():
            self.do(store.open())

    def batch(self, changed: list[tuple[str, str, Plain | None]], seen: list[int], decide: bool) -> Batch:
        number = next(self.numbers)
        made: tuple[Plain, ...] = ()
        if decide:
            self.decided += 1
            made = ({"id": self.decided, "at": self.now, "runner": "a", "outcome": "vetoed"},)
        subjects = tuple(dict.fromkeys(name for _, name, _ in changed))
        step = StepRecord(
            self.now, {"kind": "Numbered", "n": number}, f"{number:032x}", tuple(changed), made, subjects
        )
        return Batch(tuple(DeliveryId("github", f"d{one}") for one in seen), (step,))

    @rule(changed=changes, seen=deliveries, decide=st.booleans())
    def commit(self, changed: list[tuple[str, str, Plain | None]], seen: list[int], decide: bool) -> None:
        batch = self.batch(changed, seen, decide)
        for store in self.both():
            self.do_commit(store, batch, (self.now, "boot", self.now))

    @precondition(lambda self: self.decided)
    @rule(changed=changes, seen=deliveries)
    def commit_what_cannot_be(self, changed: list[tuple[str, str, Plain | None]], seen: list[int]) -> None:
        """A decision that is there already, in the last of two steps: nothing of it is stored."""
        good = self.batch(changed, seen, True)
        self.decided -= 1  # nothing of it will be
        twice = StepRecord(self.now, {"kind": "Twice"}, "0", (), good.steps[0].decisions, ("twice",))
        for store in self.both():
            with pytest.raises(NotStored):
                self.do_commit(store, Batch(good.deliveries, (*good.steps, twice)), (self.now, "b", self.now))

    @rule(by=ages)
    def time_passes(self, by: int) -> None:
        self.now += by + 1

    @rule()
    def next_segment(self) -> None:
        rows = {"rules": "r", "rows": {}}
        first, second = (self.do(store.open_segment("r", rows)) for store in self.both())
        assert first == second

    @rule(body=st.binary(max_size=20))
    def put_into_quarantine(self, body: bytes) -> None:
        for store in self.both():
            self.do(store.quarantine(self.now, "github", "d", body, "odd"))

    @rule(upto=st.integers(0, 6))
    def clear_quarantine(self, upto: int) -> None:
        first, second = (self.do(store.clear_quarantine(upto)) for store in self.both())
        assert first == second

    @rule(age=ages, segment_age=ages, entries=st.integers(1, 6))
    def tidy(self, age: int, segment_age: int, entries: int) -> None:
        """To its end: pieces are cut differently, the end is the same."""
        keep = Keep(age=age, segment_age=segment_age, segment_entries=entries, least_entries=1)
        for store in self.both():
            for _ in range(200):
                if not self.do(store.prune(self.now, keep)).more:
                    break

    @rule(age=ages, pieces=st.integers(1, 3))
    def die_while_tidying(self, age: int, pieces: int) -> None:
        """The file's store ends in the middle; the next one comes to the same end as one that did not."""
        keep = Keep(age=age, segment_age=900 * DAY)
        for _ in range(pieces):
            self.do(self.file.prune(self.now, keep))
        self.reopen()
        for store in self.both():
            while self.do(store.prune(self.now, keep)).more:
                pass

    @rule()
    def reopen(self) -> None:
        self.do(self.file.close())
        self.file = SqliteStore(self.folder / "state.db")
        self.do(self.file.open())
        self.model.crash()
        self.model = MemoryStore(self.disk)
        self.do(self.model.open())

    @rule(changed=changes, seen=deliveries)
    def die_before_the_commit(self, changed: list[tuple[str, str, Plain | None]], seen: list[int]) -> None:
        """What was begun and not committed is not there: the transaction of a connection that went away."""
        writer = self.file._writer
        assert writer is not None
        connection = self.file._database.connection

        def half() -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM record")
            connection.execute("DELETE FROM delivery")

        self.do(writer.do(half, 30))
        self.reopen()

    @rule()
    def back_up(self) -> None:
        target = self.folder / "copy.db"
        backup(self.folder / "state.db", target, replace=True)
        self.copy = (target, self.contents(self.file))

    @precondition(lambda self: self.copy is not None)
    @rule()
    def the_backup_is_a_store_of_its_time(self) -> None:
        assert self.copy is not None
        target, expected = self.copy
        other = self.folder / "restored.db"
        shutil.copyfile(target, other)
        store = SqliteStore(other)
        self.do(store.open())
        try:
            assert self.contents(store) == expected
        finally:
            self.do(store.close())

    def contents(self, store: Store) -> Any:
        loaded = self.do(store.load())
        ids = [DeliveryId("github", f"d{one}") for one in range(1, 31)]
        return (
            self.do(rows_of(store)),
            loaded.clock,
            [(one.seq, one.segment, one.now, one.event) for one in self.do(store.journal())],
            self.do(store.decisions()),
            sorted(self.do(store.subjects_like("", limit=100))),
            [self.do(store.journal(subject=name)) for name in ("a", "b", "twice")],
            sorted(one.id for one in self.do(store.seen(ids))),
            self.do(store.set_aside()),
            self.do(store.segment()),
        )

    @invariant()
    def they_hold_the_same(self) -> None:
        assert self.contents(self.file) == self.contents(self.model)

    def the_file_is_sound(self) -> None:
        found = survey(self.folder / "state.db")
        assert found.problems == ()
        assert len(quarantine_of(self.folder / "state.db")) == found.counts["quarantine"]

    def teardown(self) -> None:
        try:
            self.the_file_is_sound()
        finally:
            self.do(self.file.close())
            self.loop.close()
        shutil.rmtree(self.folder)


@pytest.mark.timeout(600)
def test_the_file_and_the_store_in_memory_hold_the_same(monkeypatch):
    monkeypatch.setattr(pruning, "AT_ONCE", 3)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
