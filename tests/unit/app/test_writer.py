"""The writer: one commit a group, acknowledgements after it, and what happens when something fails."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from ephemerd.app.inbox import Fate, Inbox, Item, Receipt
from ephemerd.app.recovery import EPOCH_ALPHABET, boot, draw_epoch, recover
from ephemerd.app.writer import REMEMBERED, Unbootable, Writer
from ephemerd.core import codec
from ephemerd.core.events import Booted, Event, JobReported, JobsListed, Woke
from ephemerd.core.machine import Core
from ephemerd.core.step import Step
from ephemerd.domain.job import ForgeStatus, JobStatus, Told
from ephemerd.ports.errors import Broken, NotStored
from ephemerd.ports.store import Batch, DeliveryId
from ephemerd.testing.memory.store import MemoryDisk, MemoryStore
from tests.unit.app.fakes import SCOPE, STORE, FakeClock, FakeStore, key, report, setup


class Bench:
    """A writer over a fake store and the real core, begun or not."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.clock = FakeClock()
        self.inbox = Inbox()
        self.boots = 0

    async def open(self) -> Writer:
        life = await recover(self.store, self.clock)

        def begin(again: bool) -> Booted:
            self.boots += 1
            return boot(life, setup(), again=again)

        self.writer = Writer(life.core, self.store, self.clock, begin)
        return self.writer

    def offer(
        self, event: Event, delivery: str | None = None, body: bytes = b"{}"
    ) -> asyncio.Future[Receipt]:
        named = DeliveryId("github", delivery) if delivery else None
        reply = self.inbox.offer(event, delivery=named, body=body)
        assert reply is not None
        return reply

    async def write(self, *, through: bool = True):
        return await self.writer.write(self.inbox.take(100), through=through)


@pytest.fixture(params=[False, True], ids=["waits", "at once"])
async def bench(request):
    """A store whose commits wait for something, and one whose commits are done when they are asked for."""
    made = Bench()
    made.store.at_once = request.param
    await made.open()
    await made.writer.write([])
    made.store.commits.clear()
    return made


def queued(number: int = 1) -> JobReported:
    return JobReported(report(number), Told.WEBHOOK)


def poison(monkeypatch, number: int = 666) -> JobReported:
    """Make the core raise, half-way, on the report of one job."""
    handle = Core.handle

    def raising(self: Core, event: Event, now: int) -> Step:
        step = handle(self, event, now)
        if isinstance(event, JobReported) and event.report.key.id == number:
            raise RuntimeError("a bug")
        return step

    monkeypatch.setattr(Core, "handle", raising)
    return queued(number)


async def test_a_life_begins_with_its_own_event_before_all_others():
    bench = Bench()
    await bench.open()
    reply = bench.offer(queued())
    await bench.write()
    assert bench.store.kinds() == ["Booted", "JobReported"]
    assert (await reply).fate is Fate.STORED
    assert bench.writer.booted


async def test_a_group_is_one_commit_and_acknowledged_after_it(bench):
    bench.store.gate = asyncio.Event()
    replies = [bench.offer(queued(number), f"d{number}") for number in range(3)]
    writing = asyncio.create_task(bench.write())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(reply.done() for reply in replies)
    bench.store.gate.set()
    group = await writing
    assert [(await reply).fate for reply in replies] == [Fate.STORED] * 3
    assert len(bench.store.commits) == 1
    assert bench.store.commits[0].deliveries == tuple(DeliveryId("github", f"d{n}") for n in range(3))
    assert [handled.item.event for handled in group.handled] == [queued(n) for n in range(3)]


async def test_the_receipt_holds_the_step(bench):
    reply = bench.offer(queued())
    await bench.write()
    assert any(kind == "job" for kind, _, _ in (await reply).step.changed)


async def test_a_delivery_that_was_committed_is_a_duplicate(bench):
    first = bench.offer(queued(), "d1")
    await bench.write()
    again = bench.offer(queued(), "d1")
    group = await bench.write()
    assert ((await first).fate, (await again).fate) == (Fate.STORED, Fate.DUPLICATE)
    assert group.handled == []
    assert len(bench.store.commits) == 1


async def test_a_duplicate_is_known_after_a_restart_too(bench):
    bench.offer(queued(), "d1")
    await bench.write()
    await bench.open()
    again = bench.offer(queued(), "d1")
    await bench.write()
    assert (await again).fate is Fate.DUPLICATE


async def test_the_same_id_of_another_forge_is_no_duplicate(bench):
    bench.offer(queued(1), "d1")
    await bench.write()
    reply = bench.inbox.offer(queued(2), delivery=DeliveryId("other", "d1"))
    await bench.write()
    assert (await reply).fate is Fate.STORED


async def test_two_equal_deliveries_in_one_group_are_handled_once(bench):
    first, second = bench.offer(queued(), "d1"), bench.offer(queued(), "d1")
    group = await bench.write()
    assert ((await first).fate, (await second).fate) == (Fate.STORED, Fate.DUPLICATE)
    assert len(group.handled) == 1


async def test_two_equal_deliveries_fail_together(bench):
    bench.store.fail = 1
    first, second = bench.offer(queued(), "d1"), bench.offer(queued(), "d1")
    await bench.write()
    assert ((await first).fate, (await second).fate) == (Fate.NOT_STORED, Fate.NOT_STORED)


async def test_remembered_ids_are_bounded(bench):
    for number in range(REMEMBERED + 5):
        bench.writer._remember([DeliveryId("github", str(number))])
    assert len(bench.writer._recent) == REMEMBERED
    assert DeliveryId("github", "0") not in bench.writer._recent


async def test_a_failed_commit_drops_the_memory_and_reloads(bench):
    bench.offer(queued(1), "d1")
    await bench.write()
    before = bench.writer.core
    bench.store.fail = 1
    lost = bench.offer(queued(2), "d2")
    group = await bench.write()
    assert (await lost).fate is Fate.NOT_STORED
    assert "no space left" in group.error
    assert group.handled == []
    assert bench.writer.core is not before
    assert set(bench.writer.core.state.jobs) == {key(1)}
    assert not bench.writer.booted


async def test_after_a_reload_a_life_begins_anew_under_another_epoch(bench):
    bench.store.fail = 1
    bench.offer(queued(), "d1")
    await bench.write()
    again = bench.offer(queued(), "d1")
    await bench.write()
    assert (await again).fate is Fate.STORED
    assert bench.store.kinds() == ["Booted", "Booted", "JobReported"]
    first, second = (entry.event for entry in bench.store.entries[:2])
    assert first["epoch"] != second["epoch"]
    assert second.get("same_boot", True) is True
    assert set(bench.writer.core.state.jobs) == {key(1)}


async def test_what_our_ports_told_is_kept_when_a_commit_fails_and_wakes_are_not(bench):
    bench.store.fail = 1
    lost = bench.offer(queued(1), "d1")
    bench.inbox.tell(JobsListed(SCOPE, 0))
    bench.inbox.tell(Woke())
    bench.inbox.tell(queued(2))
    group = await bench.write()
    assert (await lost).fate is Fate.NOT_STORED
    assert [item.event for item in group.unstored] == [JobsListed(SCOPE, 0), queued(2)]


async def test_nothing_is_handled_while_the_store_cannot_be_read(bench):
    bench.store.fail, bench.store.fail_load = 1, 3
    bench.offer(queued(), "d1")
    await bench.write()
    refused = bench.offer(queued(), "d1")
    group = await bench.write()
    assert (await refused).fate is Fate.NOT_STORED
    assert group.error
    stored = bench.offer(queued(), "d1")
    await bench.write()
    assert (await stored).fate is Fate.STORED


async def test_an_event_that_the_core_cannot_handle_is_set_aside_and_the_rest_goes_on(bench, monkeypatch):
    bad = poison(monkeypatch)
    replies = [
        bench.offer(queued(1), "d1"),
        bench.offer(bad, "d2", b'{"raw": "body"}'),
        bench.offer(queued(3), "d3"),
    ]
    group = await bench.write()
    assert [(await reply).fate for reply in replies] == [Fate.STORED, Fate.QUARANTINED, Fate.STORED]
    assert group.quarantined == [bad]
    assert bench.store.poison == [("github", "d2", b'{"raw": "body"}', "RuntimeError: a bug")]
    assert set(bench.writer.core.state.jobs) == {key(1), key(3)}, "nothing half-changed is left"
    assert bench.store.kinds() == ["Booted", "JobReported", "Booted", "JobReported"]
    assert DeliveryId("github", "d2") not in bench.store.known, "a redelivery is handled once the bug is gone"


async def test_what_cannot_be_quarantined_is_answered_as_not_stored(bench, monkeypatch):
    async def full(*_: object) -> None:
        raise NotStored("no space left")

    bad = poison(monkeypatch)
    monkeypatch.setattr(bench.store, "quarantine", full)
    replies = [bench.offer(queued(1), "d1"), bench.offer(bad, "d2"), bench.offer(queued(3), "d3")]
    group = await bench.write()
    assert [(await reply).fate for reply in replies] == [Fate.STORED, Fate.NOT_STORED, Fate.NOT_STORED]
    assert [handled.item.event for handled in group.handled] == [queued(1)]


async def test_an_event_without_a_body_is_quarantined_as_plain_data(bench, monkeypatch):
    bench.inbox.tell(poison(monkeypatch))
    await bench.write()
    ((_, _, body, _),) = bench.store.poison
    assert b'"kind": "JobReported"' in body


async def test_what_can_never_be_stored_is_set_aside_when_it_stands_alone(bench):
    bench.store.fail, bench.store.error = 1, ValueError
    bench.inbox.tell(queued(1))
    group = await bench.writer.write(bench.inbox.take(1))
    assert group.quarantined == [queued(1)]
    assert group.unstored == []
    assert group.strange


async def test_a_row_that_could_not_be_read_again_sets_its_event_aside_and_no_other(bench, monkeypatch):
    encode = codec.row_body

    def strict(kind: str, row: Any) -> codec.Body:
        if kind == "job" and row.key == key(2):
            raise ValueError("a bug")
        return encode(kind, row)

    monkeypatch.setattr(codec, "row_body", strict)
    replies = [bench.offer(queued(number), f"d{number}", b"raw") for number in (1, 2, 3)]
    group = await bench.write()
    assert [(await reply).fate for reply in replies] == [Fate.STORED, Fate.QUARANTINED, Fate.STORED]
    assert (group.quarantined, group.error) == ([queued(2)], "")
    assert [body for _, _, body, _ in bench.store.poison] == [b"raw"]
    assert set(bench.writer.core.state.jobs) == {key(1), key(3)}


async def test_a_body_is_kept_until_its_event_is_stored_and_no_longer(bench):
    bench.offer(queued(1), "d1", b"raw")
    (item,) = bench.inbox.take(1)
    bench.store.fail = 1
    await bench.writer.write([item])
    assert item.body == b"raw"
    await bench.writer.write([item])
    assert item.body == b""


async def test_a_life_that_cannot_be_stored_is_no_fault_of_the_event_after_it(bench):
    bench.store.fail, bench.store.error = 2, ValueError
    bench.inbox.tell(queued(1))
    bench.inbox.tell(queued(2))
    items = bench.inbox.take(2)
    assert len((await bench.writer.write(items)).unstored) == 2
    group = await bench.writer.write(items[:1])
    assert (group.quarantined, len(group.unstored)) == ([], 1)
    group = await bench.writer.write(items[:1])
    assert [type(handled.item.event) for handled in group.handled] == [Booted, JobReported]


async def test_a_full_disk_sets_nothing_aside(bench):
    bench.store.fail = 1
    bench.inbox.tell(queued(1))
    group = await bench.writer.write(bench.inbox.take(1))
    assert group.quarantined == []
    assert len(group.unstored) == 1
    assert not group.strange


async def test_a_core_that_cannot_begin_is_an_error_of_its_own(monkeypatch):
    bench = Bench()
    await bench.open()

    def raising(*_: object) -> Step:
        raise RuntimeError("no way")

    monkeypatch.setattr(Core, "handle", raising)
    with pytest.raises(Unbootable, match="no way"):
        await bench.writer.write([])


async def test_a_life_goes_on_from_what_the_store_holds(bench):
    bench.offer(queued(1), "d1")
    bench.offer(JobReported(report(2, ForgeStatus.COMPLETED, conclusion="success"), Told.WEBHOOK), "d2")
    await bench.write()
    life = await recover(bench.store, bench.clock)
    assert life.store == STORE
    assert life.same_boot
    assert bench.clock.started_with == bench.store.clock
    assert {name: row.status for name, row in life.core.state.jobs.items()} == {
        key(1): JobStatus.QUEUED,
        key(2): JobStatus.DONE,
    }
    assert len(bench.store.segments) == 2


@pytest.mark.parametrize(
    ("kind", "body", "why"),
    [
        ("job", b'{"key', r"no JSON: "),
        ("job", b'{"key":1}', "Job: "),
        ("jobb", b"{}", "no row is of kind 'jobb'"),
        ("counter", b"{}", "a row of kind 'counter' without a value"),
        ("meta", b"3", ""),
    ],
)
async def test_a_row_that_cannot_be_read_is_named_with_what_to_do(kind, body, why):
    store = MemoryStore(MemoryDisk(rows={(kind, "j1"): body}))
    with pytest.raises(
        Broken,
        match=rf"(row {kind} j1|rows of kind {kind}) cannot be read \({why}.*`ephemerd store check --set-aside`",
    ):
        await recover(store, FakeClock())
    assert await store.segment() is None


def test_epochs_are_four_characters_and_differ():
    drawn = {draw_epoch() for _ in range(50)}
    assert all(len(epoch) == 4 and set(epoch) <= set(EPOCH_ALPHABET) for epoch in drawn)
    assert len(drawn) > 40


async def test_an_item_without_a_waiter_takes_an_answer_in_silence():
    Item(Woke(), 0.0).answer(Receipt(Fate.STORED))


async def steps(times: int = 20) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def test_what_comes_during_a_commit_is_handled_beside_it_and_goes_into_the_next_together(bench):
    ended: list[int] = []
    bench.writer.on_end = lambda: ended.append(len(bench.store.commits))
    bench.store.gate = asyncio.Event()
    replies = [bench.offer(queued(1), "d1")]
    await bench.write(through=False)
    for number in (2, 3):
        replies.append(bench.offer(queued(number), f"d{number}"))
        assert (await bench.write(through=False)).handled == []
    assert set(bench.writer.core.state.jobs) == {key(1), key(2), key(3)}
    assert not any(reply.done() for reply in replies)
    assert not bench.writer.idle
    bench.store.gate.set()
    await steps()
    assert [[one.id for one in commit.deliveries] for commit in bench.store.commits] == [["d1"], ["d2", "d3"]]
    assert ended == [1, 2]
    assert [(await reply).fate for reply in replies] == [Fate.STORED] * 3
    assert bench.writer.news
    group = await bench.write(through=False)
    assert [handled.item.event for handled in group.handled] == [queued(1), queued(2), queued(3)]
    first = group.handled[0].seq
    assert [handled.seq for handled in group.handled] == [first, first + 1, first + 2]
    assert bench.writer.idle


async def test_a_commit_that_takes_no_time_is_told_of_at_once_and_wakes_nobody(bench):
    ended: list[int] = []
    bench.writer.on_end = lambda: ended.append(len(bench.store.commits))
    for number in (1, 2):
        reply = bench.offer(queued(number), f"d{number}")
        group = await bench.write(through=False)
        assert [handled.item.event for handled in group.handled] == [queued(number)]
        assert (await reply).fate is Fate.STORED
    await steps()
    assert (ended, bench.writer.news, bench.writer.idle) == ([], False, True)


async def test_a_commit_that_fails_takes_with_it_what_was_handled_beside_it(bench):
    bench.store.gate = asyncio.Event()
    replies = [bench.offer(queued(1), "d1")]
    await bench.write(through=False)
    replies.append(bench.offer(queued(2), "d2"))
    bench.inbox.tell(queued(3))
    await bench.write(through=False)
    bench.store.fail = 1
    bench.store.gate.set()
    await steps()
    assert not bench.writer.booted, "nothing is handled on top of what is not stored"
    assert bench.store.commits == []
    replies.append(bench.offer(queued(4), "d4"))
    group = await bench.write(through=False)
    assert [(await reply).fate for reply in replies] == [Fate.NOT_STORED] * 3
    assert (group.handled, [item.event for item in group.unstored]) == ([], [queued(3)])
    assert "no space left" in group.error
    assert bench.writer.core.state.jobs == {}
    assert bench.writer.idle
    again = bench.offer(queued(1), "d1")
    await bench.write()
    assert (await again).fate is Fate.STORED


async def test_what_was_committed_before_a_failure_is_told_with_it(bench):
    bench.store.gate = asyncio.Event()
    stored = bench.offer(queued(1), "d1")
    await bench.write(through=False)
    bench.store.gate.set()
    await steps()
    bench.store.fail = 1
    lost = bench.offer(queued(2), "d2")
    group = await bench.write()
    assert ((await stored).fate, (await lost).fate) == (Fate.STORED, Fate.NOT_STORED)
    assert [handled.item.event for handled in group.handled] == [queued(1)]
    assert group.error


async def twice_during_a_commit(bench):
    """Offer a delivery, and once more while it is committed; return both answers to come."""
    bench.store.gate = asyncio.Event()
    first = bench.offer(queued(), "d1")
    await bench.write(through=False)
    second = bench.offer(queued(), "d1")
    await bench.write(through=False)
    bench.store.gate.set()
    await steps()
    return first, second


async def test_a_delivery_that_is_being_committed_is_not_handled_again(bench):
    first, second = await twice_during_a_commit(bench)
    assert ((await first).fate, (await second).fate) == (Fate.STORED, Fate.DUPLICATE)
    assert len(bench.store.commits) == 1


async def test_a_delivery_whose_first_one_cannot_be_committed_is_not_stored_either(bench):
    bench.store.fail = 1
    first, second = await twice_during_a_commit(bench)
    await bench.write(through=False)
    assert ((await first).fate, (await second).fate) == (Fate.NOT_STORED, Fate.NOT_STORED)


async def test_a_poisonous_event_waits_for_the_commit_under_way(bench, monkeypatch):
    bad = poison(monkeypatch)
    bench.store.gate = asyncio.Event()
    replies = [bench.offer(queued(1), "d1")]
    await bench.write(through=False)
    replies += [bench.offer(queued(2), "d2"), bench.offer(bad, "d3"), bench.offer(queued(4), "d4")]
    writing = asyncio.create_task(bench.write(through=False))
    await steps()
    assert bench.store.poison == []
    bench.store.gate.set()
    group = await writing
    await steps()
    fates = [(await reply).fate for reply in replies]
    assert fates == [Fate.STORED, Fate.STORED, Fate.QUARANTINED, Fate.STORED]
    assert group.quarantined == [bad]
    assert set(bench.writer.core.state.jobs) == {key(1), key(2), key(4)}


async def test_not_more_than_a_bound_is_handled_beside_a_commit(bench, monkeypatch):
    monkeypatch.setattr("ephemerd.app.writer.MOST_UNCOMMITTED", 2)
    bench.store.gate = asyncio.Event()
    for number in range(1, 7):
        bench.inbox.tell(queued(number))
    await bench.writer.write(bench.inbox.take(1), through=False)
    writing = asyncio.create_task(bench.write(through=False))
    await steps()
    assert set(bench.writer.core.state.jobs) == {key(1), key(2), key(3)}
    bench.store.gate.set()
    await writing
    await steps()
    assert [len(commit.steps) for commit in bench.store.commits] == [1, 2, 2, 1]


async def test_a_store_that_cannot_be_asked_fails_after_the_commit_under_way(bench, monkeypatch):
    async def dead(_: object) -> set[DeliveryId]:
        raise NotStored("the disk gives no answer")

    bench.store.gate = asyncio.Event()
    first = bench.offer(queued(1), "d1")
    await bench.write(through=False)
    monkeypatch.setattr(bench.store, "seen", dead)
    second = bench.offer(queued(2), "d2")
    writing = asyncio.create_task(bench.write(through=False))
    await steps()
    bench.store.gate.set()
    group = await writing
    assert ((await first).fate, (await second).fate) == (Fate.STORED, Fate.NOT_STORED)
    assert [handled.item.event for handled in group.handled] == [queued(1)]


async def test_a_writer_that_is_closed_leaves_the_commit_under_way_to_the_store(bench):
    bench.store.gate = asyncio.Event()
    first = bench.offer(queued(1), "d1")
    await bench.write(through=False)
    bench.inbox.tell(queued(2))
    await bench.write(through=False)
    await bench.writer.close()
    assert not first.done()
    assert bench.writer.idle
    await bench.writer.close()


async def test_what_a_commit_ends_with_while_the_writer_is_closed_is_no_error_that_nobody_looks_at(bench):
    said: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: said.append(context))

    async def commit(batch: Batch, clock: object) -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise NotStored("given up") from None
        return 0

    bench.store.commit = commit
    bench.inbox.tell(queued(1))
    await bench.write(through=False)
    await bench.writer.close()
    gc.collect()
    await asyncio.sleep(0)
    assert said == []


@pytest.mark.parametrize("error", [NotStored, RuntimeError])
async def test_a_store_that_raises_as_it_is_asked_has_stored_nothing_and_nothing_is_lost(bench, error):
    def commit(batch: Batch, clock: object) -> int:
        raise error("not today")

    kept, bench.store.commit = bench.store.commit, commit
    reply = bench.offer(queued(1), "d1")
    bench.inbox.tell(queued(2))
    await bench.write(through=False)
    bench.store.commit = kept
    group = await bench.write(through=False)
    assert "not today" in group.error
    assert group.strange is (error is RuntimeError)
    assert [item.event for item in group.unstored] == [queued(2)]
    assert (await reply).fate is Fate.NOT_STORED


async def test_a_commit_that_is_done_when_it_is_asked_for_needs_no_task():
    bench = Bench()
    bench.store.at_once = True
    await bench.open()
    await bench.writer.write([])
    made = asyncio.all_tasks()
    bench.inbox.tell(queued(1))
    writing = bench.write(through=False)
    with pytest.raises(StopIteration) as ended:
        writing.send(None)  # it ends without a turn of the loop
    assert [done.item.event for done in ended.value.value.handled] == [queued(1)]
    assert asyncio.all_tasks() == made


async def test_what_an_item_holds_is_not_in_its_text():
    item = Item(queued(1), 0.0, DeliveryId("github", "d1"), b"secret")
    assert repr(item) == "<Item JobReported>"
