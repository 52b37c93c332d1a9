"""The broadcast of what changed: order, resuming, what a flood and a slow reader become, and its bounds."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest

from ephemerd.app import feed as feed_module
from ephemerd.app.feed import Feed, FeedEvent, TooMany, merge
from ephemerd.core.step import Step
from ephemerd.ports.errors import Broken
from ephemerd.web.events import wire
from tests.unit.app.fakes import idle_report, key, until
from tests.unit.app.test_daemon import House
from tests.unit.app.test_operator import listening


@pytest.fixture
async def house():
    async with House() as made:
        yield made


def make(house: House, **more: Any) -> Feed:
    return Feed(house.daemon, **{"pause": 0.0, **more})


async def quiet(house: House, feed: Feed) -> int:
    """Wait until nothing is under way, and everything that was committed is told; return the newest number."""
    await until(lambda: house.daemon.settled)
    await until(lambda: feed._rung == feed.newest)
    return feed.newest


async def take(feed: Feed, count: int, after: int | None = None, **wanted: Any) -> list[FeedEvent]:
    """Return the next `count` events of a subscription."""
    found: list[FeedEvent] = []
    async with aclosing(feed.subscribe(after, **wanted)) as events:
        async with asyncio.timeout(10):
            async for event in events:
                found.append(event)
                if len(found) == count:
                    return found
    return found


async def test_each_entry_of_the_journal_is_told_once_with_its_number(house):
    feed = make(house)
    taking = asyncio.create_task(take(feed, 6, 0))
    for number in range(1, 4):
        await house.report(number=number)
    found = await taking
    entries = house.store.entries[: len(found)]
    assert [(event.id, event.kind, event.at) for event in found] == [
        (entry.seq, entry.event["kind"], entry.now) for entry in entries
    ]


async def test_an_event_says_what_became_of_which(house):
    feed, before = make(house), len(house.store.entries)
    await house.report()
    (row,) = await until(house.runners)
    await quiet(house, feed)
    (told,) = await take(feed, 1, before, kinds=["JobReported"])
    assert str(key()) in told.subjects
    assert told.data["jobs"] == {str(key()): "queued"}
    (planned,) = await take(feed, 1, before, subject=row.id)
    assert {row.id, "linux", "local"} <= set(planned.subjects)
    assert set(planned.data["runners"]) == {row.id}


async def test_a_decision_is_told(house):
    name = await listening(house)
    feed = make(house)
    house.runtime.answers["probe"] = idle_report(workers=1)
    house.pass_time(11 * 60_000)
    await until(lambda: house.store.made)
    await quiet(house, feed)
    made = house.store.made[0]
    told = [event for event in feed._newer(0) if "decisions" in event.data]
    assert told[0].data["decisions"] == [
        {name: made[name] for name in ("id", "runner", "rule", "outcome", "verdict", "via")}
    ]
    assert (told[0].data["decisions"][0]["outcome"], name in told[0].subjects) == ("vetoed", True)


async def test_resuming_gives_what_was_missed_and_nothing_twice(house):
    feed = make(house)
    await house.report()
    newest = await quiet(house, feed)
    whole = await take(feed, newest - 2, 2)
    assert [event.id for event in whole] == list(range(3, newest + 1))
    later = await take(feed, newest - 4, 4)
    assert [event.id for event in later] == list(range(5, newest + 1))


async def test_what_is_told_is_made_once_and_not_before_somebody_asks(house):
    feed = make(house)
    await house.report()
    newest = await quiet(house, feed)
    assert all(isinstance(kept.found, Step) for kept in feed._ring)
    (first,) = await take(feed, 1, newest - 1)
    (second,) = await take(feed, 1, newest - 1)
    assert first is second
    assert [isinstance(kept.found, Step) for kept in feed._ring] == [True] * (len(feed._ring) - 1) + [False]


async def test_what_the_ring_has_not_is_read_back_from_the_journal(house):
    await house.report()
    await house.report(number=2)
    feed = make(house, kept=1)
    await house.report(number=3)
    newest = await quiet(house, feed)
    found = await take(feed, newest, 0)
    assert [event.id for event in found] == list(range(1, newest + 1))
    assert found[0].kind == "Booted"
    reported = [event for event in found if event.kind == "JobReported"]
    assert [event.subjects for event in reported] == [(str(key(number)),) for number in (1, 2, 3)]


async def test_reading_back_of_one_subject_is_exact(house):
    name = await listening(house)
    feed = make(house, kept=1)
    await house.report(number=9)
    await quiet(house, feed)
    known = [entry.seq for entry in await house.store.journal(subject=name)]
    found = await take(feed, len(known), 0, subject=name)
    assert [event.id for event in found] == known
    assert all(name in event.subjects for event in found)


@pytest.mark.parametrize("why", ["pruned", "too much", "another store", "a broken disk", "a pool"])
async def test_what_cannot_be_told_is_one_reset(house, why, monkeypatch):
    feed = make(house, kept=1)
    await house.report()
    newest = await quiet(house, feed)
    after, subject = 0, ""
    if why == "pruned":
        entries = house.store.entries[3:]
        monkeypatch.setattr(house.store, "journal", lambda **_: _answer(entries))
    elif why == "too much":
        monkeypatch.setattr(feed_module, "CAUGHT_UP", newest - 1)
    elif why == "another store":
        after = 10**9
    elif why == "a broken disk":
        monkeypatch.setattr(house.store, "journal", lambda **_: _answer(Broken("no answer")))
    else:
        subject = "linux"
    (event,) = await take(feed, 1, after, subject=subject)
    assert (event.kind, event.id, event.subjects) == ("reset", newest, ())


async def _answer(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value


async def test_a_number_of_another_store_before_the_first_event_of_this_life():
    house = House()
    feed = Feed(house.daemon, pause=0.0)
    taking = asyncio.create_task(take(feed, 1, 10**9))
    async with house:
        (event,) = await taking
    assert event.kind == "reset"


async def test_who_comes_before_the_first_event_gets_it():
    house = House()
    feed = Feed(house.daemon, pause=0.0, beat=0.001)
    async with aclosing(feed.subscribe()) as events:
        assert (await anext(events)).kind == "heartbeat"
        async with house:
            event = await anext(events)
            while event.kind == "heartbeat":
                event = await anext(events)
    assert (event.id, event.kind) == (1, "Booted")


async def test_a_reader_that_slept_longer_than_the_ring_is_reset(house, monkeypatch):
    monkeypatch.setattr(feed_module, "CAUGHT_UP", 2)
    feed = make(house, kept=40)
    async with aclosing(feed.subscribe(kinds=["JobReported"])) as events:
        first = asyncio.ensure_future(anext(events))
        await until(lambda: feed.subscribers == 1)
        await house.report()
        assert (await first).kind == "JobReported"
        for number in range(2, 60):
            await house.report(number=number)
        await quiet(house, feed)
        assert (await anext(events)).kind == "reset"
        await house.report(number=99)
        assert (await anext(events)).subjects[-1:] != ()


async def test_entries_that_were_committed_and_not_told_are_read_from_the_journal(house):
    """As where a disk answers after the deadline: the writer calls it not stored, and finds it when it loads."""
    feed = make(house)
    await house.report()
    newest = await quiet(house, feed)
    house.store.entries.append(house.store.entries[-1])
    house.store.subjects.append(())
    await house.report(number=2)
    await quiet(house, feed)
    found = await take(feed, 1, newest)
    assert found[0].id in (newest + 1, house.store.entries[-1].seq)
    assert feed._ring[0].id > newest + 1


async def test_a_flood_is_told_as_one(house, monkeypatch):
    monkeypatch.setattr(feed_module, "AT_ONCE", 5)
    feed = make(house, pause=3600.0)
    feed._wake()
    after = feed.newest
    for number in range(1, 11):
        await house.report(number=number)
    await until(lambda: house.daemon.settled)
    many = asyncio.gather(*(take(feed, 1, after) for _ in range(3)))
    await until(lambda: feed.subscribers == 3)
    feed._wake()
    (first,), (second,), (third,) = await many
    assert first is second is third, "made once for all"
    assert (first.kind, first.id) == ("many", feed.newest)
    assert first.data["kinds"]["JobReported"] == 10
    assert first.data["count"] == sum(first.data["kinds"].values())
    assert {str(key(number)) for number in range(1, 11)} <= set(first.subjects)


def test_what_concerns_too_much_becomes_a_reset():
    events = [FeedEvent(n, "JobReported", n, (f"a{n}", f"b{n}")) for n in range(1, 300)]
    assert (merge(events).kind, merge(events).id) == ("reset", 299)
    decision = {"id": 1}
    events = [
        FeedEvent(1, "Probed", 5, ("a",), {"runners": {"a": "listening"}, "decisions": [decision]}),
        FeedEvent(2, "SignSeen", 6, ("a",), {"runners": {"a": "running"}, "jobs": {"j": "running"}}),
    ]
    made = merge(events)
    assert (made.id, made.at, made.subjects) == (2, 6, ("a",))
    assert made.data == {
        "count": 2,
        "kinds": {"Probed": 1, "SignSeen": 1},
        "runners": {"a": "running"},
        "jobs": {"j": "running"},
        "decisions": [decision],
    }


async def test_wakings_are_bounded_in_time(house):
    feed = make(house, pause=3600.0)
    feed._wake()
    await house.report()
    assert feed._ringing is not None
    assert feed._ringing.when() - asyncio.get_running_loop().time() > 3000
    await house.report(number=2)
    assert feed.newest > feed._rung
    feed.close()


async def test_silence_is_a_heartbeat(house):
    feed = make(house, beat=0.001)
    newest = await quiet(house, feed)
    (event,) = await take(feed, 1)
    assert (event.kind, event.id, event.at) == ("heartbeat", newest, house.clock.now())


async def test_who_wants_little_has_heartbeats_while_much_else_happens(house, monkeypatch):
    feed = make(house, beat=60.0)
    await quiet(house, feed)
    loop = asyncio.get_running_loop()
    time, passed = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: time() + passed)
    async with aclosing(feed.subscribe(subject="nobody")) as events:
        told = asyncio.ensure_future(anext(events))
        await until(lambda: feed.subscribers == 1)
        for number in range(1, 5):
            passed += 25.0
            await house.report(number=number)
            await quiet(house, feed)
            assert told.done() == (number > 2), number
        assert (await told).kind == "heartbeat"


async def test_subscribers_are_bounded_and_counted(house):
    feed = make(house, most=2, beat=0.001)
    full = []
    async with aclosing(feed.subscribe()) as one, aclosing(feed.subscribe()) as two:
        for events in (one, two):
            await anext(events)
            full.append(feed.is_full())
        with pytest.raises(TooMany):
            await anext(feed.subscribe())
    assert full == [False, True]
    assert feed.subscribers == 0


async def test_closing_ends_every_subscription(house):
    feed = make(house)
    await quiet(house, feed)
    taking = asyncio.create_task(take(feed, 10**6))
    await until(lambda: feed.subscribers == 1)
    feed.close()
    feed.close()
    assert await taking == []
    await house.report()
    assert not feed._ring or feed.newest == feed._ring[-1].id


@pytest.mark.parametrize("kind", ["reset", "heartbeat", "JobReported"])
def test_an_event_is_sent_with_all_its_keys_also_where_nothing_is_in_them(kind: str):
    (line,) = [line for line in wire(FeedEvent(5, kind, 7)).splitlines() if line.startswith(b"data: ")]
    assert json.loads(line[6:]) == {"id": 5, "kind": kind, "at": 7, "subjects": [], "data": {}}
