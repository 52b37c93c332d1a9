"""What every `ports.store.Store` must do. Each check takes a factory and raises AssertionError.

The factory returns, at each call, a new store that is not open, over one and the same place, which was empty
before the check. With pytest:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_contract(check, tmp_path):
        await check(lambda: MyStore(tmp_path / "state"))
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from ephemerd.core.codec import plain_from
from ephemerd.ports.errors import NotStored, StoreHeld
from ephemerd.ports.store import Batch, DeliveryId, Keep, Plain, Pruned, Segment, SetAside, StepRecord, Store

Factory = Callable[[], Store]
Check = Callable[[Factory], Awaitable[None]]
DAY = 24 * 60 * 60 * 1000
NOW = 1_753_000_000_000
CLOCK = (NOW, "boot-1", 1000)


def step(
    number: int = 1,
    *changed: tuple[str, str, Plain | None],
    decisions: tuple[Plain, ...] = (),
    subjects: tuple[str, ...] = (),
    now: int = NOW,
) -> StepRecord:
    """Return a step whose event bears the number."""
    return StepRecord(
        now, {"kind": "Numbered", "number": number}, f"{number:032x}", changed, decisions, subjects
    )


def batch(*steps: StepRecord, deliveries: tuple[DeliveryId, ...] = ()) -> Batch:
    """Return a batch of these steps."""
    return Batch(deliveries, steps)


def decision(number: int, runner: str = "r1", outcome: str = "vetoed") -> Plain:
    """Return a plain decision."""
    return {"id": number, "runner": runner, "outcome": outcome, "evidence": [{"verdict": "busy"}]}


@asynccontextmanager
async def opened(make: Factory) -> AsyncIterator[Store]:
    """Open a store, and close it whatever happens."""
    store = make()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def same(found: object, expected: object, what: str) -> None:
    """Compare, types included (1 is not True here)."""
    if found != expected or repr(found) != repr(expected):
        raise AssertionError(f"{what}: expected {expected!r}, found {found!r}")


async def refused(kind: type[Exception], call: Awaitable[object], what: str) -> Exception:
    """Await a call that must raise that exception."""
    try:
        await call
    except kind as error:
        return error
    raise AssertionError(f"{what}: expected {kind.__name__}, and nothing was raised")


async def rows_of(store: Store) -> dict[str, dict[str, Any]]:
    """Return the rows of a store as plain data."""
    found = (await store.load()).rows
    return {kind: {key: plain_from(text) for key, text in rows.items()} for kind, rows in found.items()}


async def contents(store: Store) -> tuple[Any, ...]:
    """Return all that can be read, to compare before and after."""
    loaded = await store.load()
    return (
        loaded.store,
        await rows_of(store),
        loaded.clock,
        await store.journal(),
        await store.decisions(),
        await store.subjects_like(""),
        await store.quarantined(),
    )


async def an_empty_store_has_an_id_and_nothing_else(make: Factory) -> None:
    async with opened(make) as store:
        name, *rest = await contents(store)
        same(rest, [{}, None, [], [], [], 0], "an empty store")
        if not re.fullmatch(r"[a-z0-9]{8}", name):
            raise AssertionError(f"a store's id is 8 of [a-z0-9], found {name!r}")
        same(await store.seen([DeliveryId("github", "a")]), set(), "deliveries seen by an empty store")
    async with opened(make) as store:
        same((await store.load()).store, name, "the id after reopening")


async def a_batch_comes_back_after_reopening(make: Factory) -> None:
    job = {"key": {"forge": "github", "id": 7}, "labels": ["linux", "x64"], "order": 3}
    async with opened(make) as store:
        await store.commit(
            batch(
                step(
                    1, ("job", "github/acme/app/7", job), ("counter", "order", {"value": 3}), subjects=("s",)
                ),
                step(2, ("runner", "r1", {"state": "planned"}), decisions=(decision(1),), now=NOW + 5),
                deliveries=(DeliveryId("github", "d1"),),
            ),
            (NOW + 6, "boot-1", 1006),
        )
        before = await contents(store)
    async with opened(make) as store:
        same(await contents(store), before, "everything after reopening")
        loaded = await store.load()
        same(loaded.clock, (NOW + 6, "boot-1", 1006), "the clock")
        same(
            await rows_of(store),
            {
                "counter": {"order": {"value": 3}},
                "job": {"github/acme/app/7": job},
                "runner": {"r1": {"state": "planned"}},
            },
            "the rows",
        )
        entries = [(entry.now, entry.event, entry.commands) for entry in await store.journal()]
        same(
            entries,
            [
                (NOW, {"kind": "Numbered", "number": 1}, f"{1:032x}"),
                (NOW + 5, {"kind": "Numbered", "number": 2}, f"{2:032x}"),
            ],
            "the journal",
        )
        same(await store.decisions(), [decision(1)], "the decisions")
        same(await store.seen([DeliveryId("github", "d1")]), {DeliveryId("github", "d1")}, "deliveries")


async def plain_data_comes_back_as_it_was(make: Factory) -> None:
    row: Plain = {
        "text": 'ä€😀\x1f\n"\\', "empty": "", "none": None, "true": True, "zero": 0, "large": 2**63 - 1,
        "small": -(2**63), "float": 0.1, "whole": 2.0, "list": [1, [2, {"a": []}], {}], "": "nameless",
    }  # fmt: skip
    async with opened(make) as store:
        await store.commit(batch(step(1, ("meta", "ä\x1fß", row))), CLOCK)
        same(await rows_of(store), {"meta": {"ä\x1fß": row}}, "a row of all that JSON knows")


async def the_last_change_of_a_row_stands(make: Factory) -> None:
    async with opened(make) as store:
        await store.commit(batch(step(1, ("job", "a", {"n": 1}), ("job", "b", {"n": 1}))), CLOCK)
        await store.commit(
            batch(
                step(
                    2, ("job", "a", {"n": 2}), ("job", "b", None), ("job", "c", {"n": 2}), ("job", "d", None)
                ),
                step(3, ("job", "a", {"n": 3}), ("job", "c", None), ("job", "d", {"n": 3})),
            ),
            CLOCK,
        )
        same(await rows_of(store), {"job": {"a": {"n": 3}, "d": {"n": 3}}}, "the rows")
        await store.commit(batch(step(4, ("job", "a", None), ("job", "d", None), ("job", "no", None))), CLOCK)
        same(await rows_of(store), {}, "the rows after their deletion")


async def what_is_stored_cannot_be_changed_from_outside(make: Factory) -> None:
    row = {"labels": ["a"]}
    async with opened(make) as store:
        await store.commit(batch(step(1, ("job", "a", row))), CLOCK)
        row["labels"].append("b")
        (await store.load()).rows["job"].clear()
        same(await rows_of(store), {"job": {"a": {"labels": ["a"]}}}, "the rows")


async def only_committed_deliveries_are_seen(make: Factory) -> None:
    first, second, other = DeliveryId("github", "1"), DeliveryId("github", "2"), DeliveryId("ghes", "1")
    async with opened(make) as store:
        await store.commit(batch(deliveries=(first, first)), CLOCK)
        await store.commit(batch(step(1), deliveries=(first,)), CLOCK)
        same(await store.seen([second, first, other]), {first}, "what was seen")
        same(await store.seen([]), set(), "what was seen of nothing")
        many = tuple(DeliveryId("github", f"many-{number}") for number in range(2000))
        await store.commit(batch(deliveries=many), CLOCK)
        same(len(await store.seen(many)), 2000, "how many of many were seen")


async def a_large_batch_is_stored_to_the_last_row(make: Factory) -> None:
    count = 299
    steps = [
        step(
            number,
            ("job", f"j{number}", {"n": number}),
            decisions=(decision(number),),
            subjects=(f"j{number}", "all"),
        )
        for number in range(1, count + 1)
    ]
    deliveries = tuple(DeliveryId("github", f"d{number}") for number in range(1, count + 1))
    async with opened(make) as store:
        await store.commit(batch(*steps, deliveries=deliveries), CLOCK)
        gone = [("job", f"j{number}", None) for number in range(2, count + 1)]
        newest = await store.commit(batch(step(count + 1, *gone)), CLOCK)
        same(newest, count + 1, "the number of the newest entry")
        same(await rows_of(store), {"job": {"j1": {"n": 1}}}, "the rows")
        same(await store.seen(deliveries), set(deliveries), "the deliveries")
        numbers = [entry.event["number"] for entry in await store.journal()]
        same(numbers, [*range(1, count + 2)], "the journal")
        for name, expected in (("all", [*range(1, count + 1)]), (f"j{count}", [count])):
            same([entry.seq for entry in await store.journal(subject=name)], expected, f"entries of {name}")
        same(
            await store.decisions(limit=1000), [decision(number + 1) for number in range(count)], "decisions"
        )


async def deliveries_are_forgotten_after_eight_days(make: Factory) -> None:
    first, second = DeliveryId("github", "1"), DeliveryId("github", "2")
    async with opened(make) as store:
        await store.commit(batch(deliveries=(first,)), CLOCK)
        await store.commit(batch(deliveries=(second,)), (NOW + DAY, "boot-1", 0))
        await store.commit(batch(), (NOW + 8 * DAY, "boot-1", 0))
        same(len(await store.seen([first, second])), 2, "what was seen after 8 days")
        await store.commit(batch(), (NOW + 8 * DAY + 1, "boot-1", 0))
        same(await store.seen([first, second]), {second}, "what was seen after 8 days and 1 ms")
        await store.commit(batch(step(now=NOW + 30 * DAY)), CLOCK)
        same(await store.seen([first, second]), set(), "what was seen when a step says that it is later")


async def a_failed_commit_leaves_nothing(make: Factory) -> None:
    unplain: Any = {"value": object()}
    bad = (
        step(3, ("job", "b", {"n": 2}), decisions=(decision(2), decision(1)), subjects=("new",)),
        step(3, ("job", "b", {"n": 2}), ("job", "c", unplain), decisions=(decision(2),), subjects=("new",)),
    )
    async with opened(make) as store:
        await store.commit(batch(step(1, ("job", "a", {"n": 1}), decisions=(decision(1),))), CLOCK)
        before = await contents(store)
        for last in bad:
            worse = batch(step(2, ("job", "a", None)), last, deliveries=(DeliveryId("github", "9"),))
            await refused(NotStored, store.commit(worse, (NOW + 9, "boot-2", 9)), "a bad batch")
            same(await contents(store), before, "everything after a failed commit")
            same(await store.seen([DeliveryId("github", "9")]), set(), "deliveries of a failed commit")
        await store.commit(batch(step(4, decisions=(decision(2),))), CLOCK)
        same(len(await store.journal()), 2, "entries after a later commit")


async def decisions_are_read_in_order(make: Factory) -> None:
    async with opened(make) as store:
        for number, runner, outcome in (
            (1, "r1", "vetoed"), (2, "r2", "vetoed"), (4, "r1", "reaped"), (7, "r2", "escaped"), (11, "r1", "vetoed"),
        ):  # fmt: skip
            await store.commit(batch(step(number, decisions=(decision(number, runner, outcome),))), CLOCK)

        async def numbers(**query: Any) -> list[int]:
            return [plain["id"] for plain in await store.decisions(**query)]

        same(await numbers(), [1, 2, 4, 7, 11], "all")
        same(await numbers(limit=2), [1, 2], "the first page")
        same(await numbers(after=2, limit=2), [4, 7], "the second page")
        same(await numbers(after=11), [], "the page behind the last")
        same(await numbers(newest=True, limit=2), [11, 7], "the newest")
        same(await numbers(newest=True, after=7, limit=2), [4, 2], "the page after the newest")
        same(await numbers(runner="r1"), [1, 4, 11], "of a runner")
        same(await numbers(outcome="vetoed", newest=True), [11, 2, 1], "of an outcome")
        same(await numbers(runner="r1", outcome="vetoed", after=1), [11], "of both")
        same(await numbers(runner="r"), [], "of an unknown runner")
        same(await numbers(limit=0), [], "none")


async def the_journal_is_read_in_order_and_by_subject(make: Factory) -> None:
    async with opened(make) as store:
        newest = await store.commit(
            batch(step(1, subjects=("r1", "j1")), step(2, subjects=("r2", "r2"))), CLOCK
        )
        same(newest, (await store.journal())[-1].seq, "a commit says its newest entry's number")
        same(await store.commit(batch(), CLOCK), newest, "one without an entry the one before")
    async with opened(make) as store:
        await store.commit(batch(step(3), step(4, subjects=("j1",)), step(5, subjects=("r1",))), CLOCK)

        async def numbers(**query: Any) -> list[int]:
            return [entry.event["number"] for entry in await store.journal(**query)]

        sequence = [entry.seq for entry in await store.journal()]
        same(sorted(set(sequence)), sequence, "the sequence numbers rise")
        same(await numbers(), [1, 2, 3, 4, 5], "all")
        same(await numbers(limit=2), [1, 2], "the first page")
        same(await numbers(after=sequence[1], limit=2), [3, 4], "the second page")
        same(await numbers(subject="r1"), [1, 5], "of a runner")
        same(await numbers(subject="r2"), [2], "of a subject named twice")
        same(await numbers(subject="j1", after=sequence[0]), [4], "of a job, later")
        same(await numbers(subject="r1", limit=1), [1], "of a runner, one")
        same(await numbers(subject="r"), [], "of an unknown subject")
        same(await numbers(limit=0), [], "none")


async def entries_belong_to_the_segment_that_is_open(make: Factory) -> None:
    async with opened(make) as store:
        await store.commit(batch(step(1)), CLOCK)
        same(await store.open_segment("rules-1", {}), 1, "the first segment")
        await store.commit(batch(step(2), step(3)), CLOCK)
        same(await store.open_segment("rules-2", {"job": {"a": {"n": [1]}}}), 2, "the second segment")
    async with opened(make) as store:
        await store.commit(batch(step(4)), CLOCK)
        same(await store.open_segment("rules-2", {}), 3, "the segment after reopening")
        await store.commit(batch(step(5)), CLOCK)
        found = [(entry.event["number"], entry.segment) for entry in await store.journal()]
        same(found, [(1, 0), (2, 1), (3, 1), (4, 2), (5, 3)], "the segments of the entries")


async def a_segment_is_read_with_the_state_it_starts_from(make: Factory) -> None:
    rows = {"rules": "r", "rows": {"job": {"a": {"n": [1, None, "\u00e9"]}}}}
    async with opened(make) as store:
        same(await store.segment(), None, "the segment of an empty store")
        await store.commit(batch(step(1)), CLOCK)
        await store.open_segment("rules-1", rows)
        await store.commit(batch(step(2), step(3)), CLOCK)
        await store.open_segment("rules-2", {})
    async with opened(make) as store:
        same(await store.segment(), Segment(2, "rules-2", {}, 4), "the newest segment")
        same(await store.segment(1), Segment(1, "rules-1", rows, 2), "an older segment")
        for number in (0, 3, -1):
            same(await store.segment(number), None, f"segment {number}")


async def a_segment_may_start_from_the_rows_as_they_stand(make: Factory) -> None:
    async with opened(make) as store:
        await store.open_segment("rules-0")
        first = step(1, ("job", "b", {"n": 1}), ("job", 'a"\u00e9', {"n": [None]}), ("pool", "p", {}))
        await store.commit(batch(first, step(2, ("job", "b", {"n": 2}), ("pool", "p", None))), CLOCK)
        same(await store.open_segment("rules-1"), 2, "the segment")
        await store.commit(batch(step(3, ("job", "b", None))), CLOCK)
    async with opened(make) as store:
        rows = {"job": {'a"\u00e9': {"n": [None]}, "b": {"n": 2}}}
        begun = {"rules": "rules-1", "at": 0, "rows": rows}
        same(await store.segment(), Segment(2, "rules-1", begun, 3), "it keeps them as they stood")
        begun = {"rules": "rules-0", "at": 0, "rows": {}}
        same(await store.segment(1), Segment(1, "rules-0", begun, 1), "where there was none")


async def subjects_are_found_by_a_part_newest_first(make: Factory) -> None:
    async with opened(make) as store:
        await store.commit(
            batch(
                step(1, subjects=("eph-a-1", "github/Acme/app/7")),
                step(2, subjects=("eph-a-2", "eph-b-1")),
                step(3, subjects=("eph-a-1", "100%_x")),
            ),
            CLOCK,
        )
        same(await store.subjects_like("eph-a"), ["eph-a-1", "eph-a-2"], "by a part")
        same(await store.subjects_like("eph"), ["eph-a-1", "eph-a-2", "eph-b-1"], "by a shorter part")
        same(await store.subjects_like("eph", 1), ["eph-a-1"], "one")
        same(await store.subjects_like("acme/APP"), ["github/Acme/app/7"], "whatever the case")
        for sign in ("%", "_", "0%_"):
            same(await store.subjects_like(sign), ["100%_x"], f"{sign} means itself")
        for nothing in ("*", "eph_a", "'", "\ud800", "eph-a-1 "):
            same(await store.subjects_like(nothing), [], f"no name contains {nothing!r}")


async def what_is_quarantined_is_counted(make: Factory) -> None:
    async with opened(make) as store:
        await store.quarantine(NOW, "github", "d1", b"\x00\xff not json", "ValueError: no")
        await store.quarantine(NOW, "github", "d1", b"", "again")
        same(await store.quarantined(), 2, "the count")
        same(await store.seen([DeliveryId("github", "d1")]), set(), "a quarantined delivery is not handled")
    async with opened(make) as store:
        same(await store.quarantined(), 2, "the count after reopening")


async def what_is_quarantined_is_read_and_cleared(make: Factory) -> None:
    async with opened(make) as store:
        await store.quarantine(NOW, "github", "d1", b"\x00\xff not json", "ValueError: no")
        await store.quarantine(NOW + 1, "", "", b"", "again")
    async with opened(make) as store:
        first, second = await store.set_aside()
        same(first, SetAside(first.seq, NOW, "github", "d1", 11, "ValueError: no"), "the first")
        same(second, SetAside(second.seq, NOW + 1, "", "", 0, "again"), "the second")
        same(await store.set_aside(after=first.seq), [second], "those after the first")
        same(await store.set_aside(limit=1), [first], "one")
        same(await store.clear_quarantine(first.seq), 1, "how many were cleared")
        same(await store.set_aside(), [second], "what is left")
        await store.quarantine(NOW + 2, "", "", b"", "once more")
        same(await store.clear_quarantine(second.seq), 1, "how many were cleared then")
        same([one.error for one in await store.set_aside()], ["once more"], "what came since")
    async with opened(make) as store:
        same(await store.quarantined(), 1, "the count after reopening")
        last = (await store.set_aside())[-1].seq
        await store.clear_quarantine(last)
        await store.quarantine(NOW + 3, "", "", b"", "later")
        same([one.seq for one in await store.set_aside()], [last + 1], "a number is never given again")


async def tidied(store: Store, now: int, keep: Keep) -> Pruned:
    """Prune until there is nothing more to do; return the sum."""
    total = Pruned()
    while True:
        done = await store.prune(now, keep)
        total = Pruned(
            total.segments + done.segments,
            total.entries + done.entries,
            total.decisions + done.decisions,
            total.quarantined + done.quarantined,
            total.opened or done.opened,
        )
        if not done.more:
            return total


def made_at(number: int, now: int) -> Plain:
    """Return a decision with its time."""
    return {**decision(number), "at": now}


async def _three_segments(store: Store) -> None:
    """A segment a day, each with two entries that concern a subject of the day and one that all share."""
    for day in range(3):
        await store.open_segment(f"rules-{day}", {})
        for half in range(2):
            now = NOW + day * DAY + half
            number = 10 * day + half + 1
            await store.commit(
                batch(
                    step(
                        number,
                        ("job", f"j{day}", {"n": number}),
                        decisions=(made_at(number, now),),
                        subjects=(f"day{day}", "all"),
                        now=now,
                    ),
                    deliveries=(DeliveryId("github", f"{day}-{half}"),),
                ),
                (now, "boot-1", now),
            )
        await store.quarantine(NOW + day * DAY + 1, "github", f"q{day}", b"", "no")


async def old_history_is_forgotten_by_whole_segments(make: Factory) -> None:
    async with opened(make) as store:
        await _three_segments(store)
        rows = await rows_of(store)
        keep = Keep(age=DAY, segment_age=9 * DAY)
        same(await tidied(store, NOW + DAY, keep), Pruned(segments=1), "before anything is past its time")
        done = await tidied(store, NOW + 2 * DAY + 1, keep)
        same((done.segments, done.entries), (1, 2), "what went of the journal: its newest entry counts")
        same((done.decisions, done.quarantined), (2, 1), "what went with it")
        same([entry.event["number"] for entry in await store.journal()], [11, 12, 21, 22], "what is left")
        same(await store.segment(1), None, "the segment that went")
        same((await store.segment(2) or Segment(0, "", {}, 0)).first_seq, 3, "the oldest that stayed")
        same(await store.subjects_like("day"), ["day2", "day1"], "subjects")
        same([entry.event["number"] for entry in await store.journal(subject="all")], [11, 12, 21, 22], "all")
        same(await store.journal(subject="day0"), [], "entries of a forgotten subject")
        same([made["id"] for made in await store.decisions()], [11, 12, 21, 22], "decisions")
        same([one.delivery for one in await store.set_aside()], ["q1", "q2"], "quarantine")
        same(await rows_of(store), rows, "rows are state, no history")
        same(len(await store.seen([DeliveryId("github", f"{n}-0") for n in range(3)])), 3, "deliveries")
    async with opened(make) as store:
        await store.commit(batch(step(99, subjects=("all",))), CLOCK)
        same((await store.journal())[-1].seq, 7, "numbers go on")
        same(await store.open_segment("rules-9", {}), 4, "and so do segments")


async def the_open_segment_always_stays(make: Factory) -> None:
    async with opened(make) as store:
        await _three_segments(store)
        keep = Keep(age=DAY, segment_age=900 * DAY)
        await tidied(store, NOW + 400 * DAY, keep)
        same([entry.event["number"] for entry in await store.journal()], [21, 22], "the open segment")
        same(await store.subjects_like(""), ["all", "day2"], "its subjects")
        same(await store.quarantined(), 0, "old quarantine")
        same(await tidied(store, NOW + 400 * DAY, keep), Pruned(), "a second time")


async def large_history_is_forgotten_whatever_its_age(make: Factory) -> None:
    async with opened(make) as store:
        await _three_segments(store)
        done = await tidied(store, NOW + 2 * DAY, Keep(size=0, segment_age=9 * DAY))
        same(done.entries, 4, "entries that went")
        same([entry.event["number"] for entry in await store.journal()], [21, 22], "the open segment")
        same([made["id"] for made in await store.decisions()], [21, 22], "decisions go with their entries")
        same(sorted(await rows_of(store)), ["job"], "rows")


async def a_long_segment_is_followed_by_one_from_the_rows_as_they_stand(make: Factory) -> None:
    row = {"n": 7, "text": '\u00e4"\\'}
    async with opened(make) as store:
        keep = Keep(segment_age=DAY, segment_entries=4, least_entries=2)
        same(await tidied(store, NOW, keep), Pruned(), "without a segment")
        await store.open_segment("rules-1", {})
        await store.commit(batch(step(1, ("job", 'a\u00e4"', {"n": 1}), ("meta", "m", {}))), CLOCK)
        same((await tidied(store, NOW + DAY, keep)).opened, 0, "below the least number of entries")
        await store.commit(batch(step(2, ("job", 'a\u00e4"', row), now=NOW + 5)), CLOCK)
        same((await tidied(store, NOW + DAY - 1, keep)).opened, 0, "too young and too short")
        same((await tidied(store, NOW + DAY, keep)).opened, 2, "old enough")
        rows = {"job": {'a\u00e4"': row}, "meta": {"m": {}}}
        expected = Segment(2, "rules-1", {"rules": "rules-1", "at": NOW + 4, "rows": rows}, 3)
        same(await store.segment(), expected, "the segment that was opened")
        same((await tidied(store, NOW + 9 * DAY, keep)).opened, 0, "an empty one stays open")
        await store.commit(batch(*(step(n) for n in range(3, 7))), CLOCK)
        same((await tidied(store, NOW + 5, keep)).opened, 3, "long enough")
        found = [(entry.event["number"], entry.segment) for entry in await store.journal()]
        same(found, [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (6, 2)], "the segments of the entries")


async def a_store_knows_its_size(make: Factory) -> None:
    async with opened(make) as store:
        same((await store.size()).oldest, None, "the oldest entry of an empty store")
        before = (await store.size()).total
        await store.commit(batch(step(1, ("job", "a", {"text": "x" * 100_000}))), CLOCK)
        await store.commit(batch(step(2, now=NOW + 1)), CLOCK)
        after = await store.size()
        same(after.oldest, NOW, "the oldest entry")
        if after.total < before + 100_000:
            raise AssertionError(f"100 kB more, and the size went from {before} to {after.total}")


async def a_store_is_held_by_one(make: Factory) -> None:
    second = make()
    async with opened(make) as store:
        await refused(StoreHeld, second.open(), "a second daemon")
        await store.commit(batch(step(1, ("job", "a", {"n": 1}))), CLOCK)
        same(await rows_of(store), {"job": {"a": {"n": 1}}}, "the first one's rows")
        await refused(StoreHeld, second.open(), "a second daemon, once more")
    await second.open()
    try:
        same(await rows_of(second), {"job": {"a": {"n": 1}}}, "the rows, once the first was closed")
    finally:
        await second.close()


async def commits_that_wait_together_keep_their_order(make: Factory) -> None:
    async with opened(make) as store:
        await asyncio.gather(
            *(store.commit(batch(step(number, ("job", "a", {"n": number}))), CLOCK) for number in range(20))
        )
        numbers = [entry.event["number"] for entry in await store.journal()]
        same(numbers, list(range(20)), "the journal's order")
        same(await rows_of(store), {"job": {"a": {"n": 19}}}, "the last row")


async def a_closed_store_does_nothing(make: Factory) -> None:
    store = make()
    await store.close()
    await store.open()
    await store.close()
    await store.close()
    await refused(RuntimeError, store.commit(batch(step(1)), CLOCK), "a commit after closing")
    await refused(RuntimeError, store.load(), "a load after closing")
    await refused(RuntimeError, store.journal(), "a query after closing")


CHECKS: tuple[Check, ...] = (
    an_empty_store_has_an_id_and_nothing_else,
    a_batch_comes_back_after_reopening,
    plain_data_comes_back_as_it_was,
    the_last_change_of_a_row_stands,
    what_is_stored_cannot_be_changed_from_outside,
    only_committed_deliveries_are_seen,
    a_large_batch_is_stored_to_the_last_row,
    deliveries_are_forgotten_after_eight_days,
    a_failed_commit_leaves_nothing,
    decisions_are_read_in_order,
    the_journal_is_read_in_order_and_by_subject,
    entries_belong_to_the_segment_that_is_open,
    a_segment_is_read_with_the_state_it_starts_from,
    a_segment_may_start_from_the_rows_as_they_stand,
    subjects_are_found_by_a_part_newest_first,
    what_is_quarantined_is_counted,
    what_is_quarantined_is_read_and_cleared,
    old_history_is_forgotten_by_whole_segments,
    the_open_segment_always_stays,
    large_history_is_forgotten_whatever_its_age,
    a_long_segment_is_followed_by_one_from_the_rows_as_they_stand,
    a_store_knows_its_size,
    a_store_is_held_by_one,
    commits_that_wait_together_keep_their_order,
    a_closed_store_does_nothing,
)
