"""Tidying up beside the loop, in virtual time: when rounds are made, what they do, and what they survive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ephemerd.app.queries import LITTLE, Queries
from ephemerd.app.upkeep import EVERY, FIRST_AFTER, MOST_PIECES, Upkeep
from ephemerd.ports.errors import Broken, NotStored
from ephemerd.ports.store import Keep, Pruned, StoreSize
from ephemerd.testing.virtual_time import virtually
from tests.unit.app.fakes import T0, FakeClock, FakeRuntime, FakeStore, until
from tests.unit.app.test_daemon import House

KEEP = Keep(age=5, size=7)


class Bench:
    def __init__(self) -> None:
        self.store, self.runtime, self.clock = FakeStore(), FakeRuntime(), FakeClock()
        self.upkeep = Upkeep(self.store, lambda: [self.runtime], self.clock, KEEP)


def in_virtual_time(work: Callable[[Bench], Awaitable[Any]]) -> Bench:
    bench = Bench()

    async def run() -> None:
        await work(bench)
        await bench.upkeep.close()

    virtually(run)
    return bench


def test_a_round_soon_after_the_start_and_then_every_ten_minutes():
    async def work(bench: Bench) -> None:
        bench.upkeep.begin()
        bench.upkeep.begin()  # twice is once
        await asyncio.sleep(FIRST_AFTER - 1)
        assert bench.store.pruned == []
        await asyncio.sleep(2)
        assert bench.store.pruned == [(T0, KEEP)]
        bench.upkeep.keep = Keep(age=9)
        await asyncio.sleep(EVERY * 3)

    bench = in_virtual_time(work)
    assert [keep for _, keep in bench.store.pruned] == [KEEP, *[Keep(age=9)] * 3]
    assert len(bench.runtime.named("tidy")) == 4
    assert bench.upkeep.size == bench.store.measured


def test_a_long_round_is_made_of_pieces_and_ends():
    async def work(bench: Bench) -> None:
        bench.store.to_prune = [Pruned(entries=5000, more=True)] * 3 + [Pruned(decisions=1)]
        await bench.upkeep.round()
        assert len(bench.store.pruned) == 4
        bench.store.to_prune = [Pruned(more=True)] * (MOST_PIECES * 2)
        await bench.upkeep.round()

    assert len(in_virtual_time(work).store.pruned) == 4 + MOST_PIECES


def test_what_fails_is_tried_again_and_holds_nothing_else_up(caplog):
    async def work(bench: Bench) -> None:
        for error in (NotStored("the disk is full"), Broken("damaged"), ValueError("odd")):

            async def fails(*_: object, error: Exception = error) -> Pruned:
                raise error

            bench.store.prune = fails  # type: ignore[method-assign, assignment]
            bench.runtime.answers["tidy"] = Broken("no leave")
            await bench.upkeep.round()

    bench = in_virtual_time(work)
    assert len(bench.runtime.named("tidy")) == 3
    assert bench.upkeep.size is not None
    assert [record.levelname for record in caplog.records].count("WARNING") == 5


async def test_the_daemon_makes_rounds_and_ends_them():
    async with House() as house:
        assert house.daemon.upkeep._task is not None
        await house.daemon.upkeep.round()
        assert house.store.pruned
    assert house.daemon.upkeep._task is None


async def test_a_disk_with_little_left_is_said_before_it_is_full():
    async with House() as house:
        queries = Queries(house.daemon, "1")
        assert queries.status().storage is None
        house.store.measured = StoreSize(4096, 0, LITTLE, T0)
        await house.daemon.upkeep.round()
        storage = queries.status().storage
        assert storage is not None
        assert (storage.total, storage.disk_free, storage.oldest) == (4096, LITTLE, T0)
        assert queries.health().status == "ok"
        house.store.measured = StoreSize(4096, 0, LITTLE - 1, T0)
        await house.daemon.upkeep.round()
        assert queries.health().status == "degraded"
        assert "199 MiB left" in queries.health().reasons[0]


async def test_health_recovers_when_the_quarantine_is_cleared():
    from ephemerd.app.operator import Operator

    async with House() as house:
        queries = Queries(house.daemon, "1")
        await house.store.quarantine(T0, "github", "d1", b"{}", "ValueError: no")
        await house.store.quarantine(T0, "github", "d2", b"{}", "ValueError: no")
        house.daemon.pulse.quarantined = 2
        assert queries.health().status == "degraded"
        page = await queries.quarantine(limit=1)
        assert ([one.delivery for one in page.items], page.next) == (["d1"], "1")
        view = await Operator(house.daemon).clear_quarantine(2)
        assert view.detail.startswith("2 event(s)")
        await until(lambda: queries.health().status == "ok")


async def test_a_lack_of_file_descriptors_is_said_once_in_a_while_and_by_health(caplog):
    from ephemerd.app.exhaustion import ACCEPT, SAID_EVERY, Exhaustion

    async with House() as house:
        queries, loop = Queries(house.daemon, "1"), asyncio.get_running_loop()
        handler = Exhaustion(house.daemon.pulse, house.clock)
        for _ in range(500):
            handler(loop, {"message": ACCEPT, "exception": OSError(24, "Too many open files")})
        assert [record.message for record in caplog.records].count(
            "connections wait: no file descriptors or memory left for them"
        ) == 1
        assert any("LimitNOFILE" in reason for reason in queries.health().reasons)
        house.clock.ms += SAID_EVERY
        handler(loop, {"message": ACCEPT})
        house.clock.ms += 60_000
        assert not any("LimitNOFILE" in reason for reason in queries.health().reasons)
        caplog.clear()
        handler(loop, {"message": "something else"})
        assert [record.message for record in caplog.records] == ["something else"]
