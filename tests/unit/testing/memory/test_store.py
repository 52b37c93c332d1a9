"""The store in memory keeps the contract, and fails when it is told to; the suite itself finds faults."""

from __future__ import annotations

import ast
import inspect
from collections import OrderedDict

import pytest

from ephemerd.ports.errors import NotStored, StoreHeld
from ephemerd.ports.store import Batch, DeliveryId, Keep, Loaded, Plain
from ephemerd.testing.contracts import store as contract
from ephemerd.testing.contracts.store import CLOCK, NOW, batch, decision, rows_of, step
from ephemerd.testing.memory.store import MemoryDisk, MemoryStore


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
async def test_contract(check):
    disk = MemoryDisk()
    await check(lambda: MemoryStore(disk))


def test_the_suite_runs_all_its_checks():
    tree = ast.parse(inspect.getsource(contract))
    written = [
        node.name
        for node in tree.body
        if isinstance(node, ast.AsyncFunctionDef) and [arg.arg for arg in node.args.args] == ["make"]
    ]
    assert [check.__name__ for check in contract.CHECKS] == [name for name in written if name != "opened"]


async def test_the_next_commit_fails_once_and_leaves_nothing():
    store = MemoryStore()
    await store.open()
    store.fail_next_commit = True
    work = batch(
        step(1, ("job", "a", {"n": 1}), decisions=(decision(1),), subjects=("a",)),
        deliveries=(DeliveryId("github", "1"),),
    )
    before = await contract.contents(store)
    with pytest.raises(NotStored):
        await store.commit(work, CLOCK)
    assert await contract.contents(store) == before
    assert await store.seen(work.deliveries) == set()
    await store.commit(work, CLOCK)
    assert await rows_of(store) == {"job": {"a": {"n": 1}}}


async def test_a_crash_lets_the_next_one_in_and_the_dead_one_does_nothing():
    disk = MemoryDisk()
    dead, heir = MemoryStore(disk), MemoryStore(disk)
    await dead.open()
    await dead.commit(batch(step(1, ("job", "a", {"n": 1}))), CLOCK)
    with pytest.raises(StoreHeld):
        await heir.open()
    dead.crash()
    await heir.open()
    with pytest.raises(RuntimeError):
        await dead.commit(batch(step(2)), CLOCK)
    await dead.close()
    assert await rows_of(heir) == {"job": {"a": {"n": 1}}}


async def test_a_journal_of_which_all_was_forgotten_is_empty_and_goes_on():
    store = MemoryStore()
    await store.open()
    await store.commit(batch(step(1, subjects=("a",)), step(2, subjects=("a",))), CLOCK)
    await store.open_segment("rules", {})
    assert (await store.prune(NOW + 2, Keep(age=1))).entries == 2
    assert (await store.journal(), await store.journal(subject="a")) == ([], [])
    await store.commit(batch(step(3, subjects=("a",))), CLOCK)
    assert [entry.seq for entry in await store.journal(subject="a")] == [3]


async def test_opening_twice_is_a_mistake():
    store = MemoryStore()
    await store.open()
    with pytest.raises(RuntimeError):
        await store.open()


class Forgets(MemoryStore):
    """Acknowledges and stores nothing."""

    def _commit(self, batch: Batch, clock: tuple[int, str, int]) -> int:
        self._held()
        return 0


class HalfWrites(MemoryStore):
    """Leaves the first steps of a batch that fails."""

    def _commit(self, batch: Batch, clock: tuple[int, str, int]) -> int:
        newest = 0
        for each in batch.steps:
            newest = super()._commit(Batch(batch.deliveries, (each,)), clock)
        return newest if batch.steps else super()._commit(batch, clock)


class Shares(MemoryStore):
    """Lets in everybody."""

    async def open(self) -> None:
        self.disk.holder = self


class Renamed(MemoryStore):
    """Has another id at every opening."""

    async def load(self) -> Loaded:
        loaded = await super().load()
        return Loaded(f"{id(self) % 10**8:08}", loaded.rows, loaded.clock)


class Unsorted(MemoryStore):
    """Gives decisions in the wrong order."""

    async def decisions(self, **query) -> list[Plain]:
        return list(reversed(await super().decisions(**query)))


class Remembers(MemoryStore):
    """Never forgets a delivery."""

    def _commit(self, batch: Batch, clock: tuple[int, str, int]) -> int:
        kept = dict(self.disk.deliveries)
        newest = super()._commit(batch, clock)
        self.disk.deliveries = OrderedDict({**kept, **self.disk.deliveries})
        return newest


@pytest.mark.parametrize(
    ("faulty", "check"),
    [
        (Forgets, contract.a_batch_comes_back_after_reopening),
        (Forgets, contract.only_committed_deliveries_are_seen),
        (Forgets, contract.a_failed_commit_leaves_nothing),
        (HalfWrites, contract.a_failed_commit_leaves_nothing),
        (Shares, contract.a_store_is_held_by_one),
        (Renamed, contract.an_empty_store_has_an_id_and_nothing_else),
        (Unsorted, contract.decisions_are_read_in_order),
        (Remembers, contract.deliveries_are_forgotten_after_eight_days),
    ],
)
async def test_the_suite_finds_a_faulty_store(faulty, check):
    disk = MemoryDisk()
    made: list[MemoryStore] = []  # kept alive, so that no two have one id()

    def make() -> MemoryStore:
        made.append(faulty(disk))
        return made[-1]

    with pytest.raises(AssertionError):
        await check(make)
