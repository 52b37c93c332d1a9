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

from ephemerd.ports.errors import NotStored, StoreHeld
from ephemerd.ports.store import Batch, DeliveryId, Plain, Segment, StepRecord, Store

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


async def contents(store: Store) -> tuple[Any, ...]:
    """Return all that can be read, to compare before and after."""
    loaded = await store.load()
    return (
        loaded.store,
        loaded.rows,
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
            loaded.rows,
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
        same((await store.load()).rows, {"meta": {"ä\x1fß": row}}, "a row of all that JSON knows")


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
        same((await store.load()).rows, {"job": {"a": {"n": 3}, "d": {"n": 3}}}, "the rows")
        await store.commit(batch(step(4, ("job", "a", None), ("job", "d", None), ("job", "no", None))), CLOCK)
        same((await store.load()).rows, {}, "the rows after their deletion")


async def what_is_stored_cannot_be_changed_from_outside(make: Factory) -> None:
    row = {"labels": ["a"]}
    async with opened(make) as store:
        await store.commit(batch(step(1, ("job", "a", row))), CLOCK)
        row["labels"].append("b")
        (await store.load()).rows["job"]["a"]["labels"].append("c")
        same((await store.load()).rows["job"]["a"], {"labels": ["a"]}, "the row")


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
        await store.commit(batch(step(1, subjects=("r1", "j1")), step(2, subjects=("r2", "r2"))), CLOCK)
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


async def a_store_is_held_by_one(make: Factory) -> None:
    second = make()
    async with opened(make) as store:
        await refused(StoreHeld, second.open(), "a second daemon")
        await store.commit(batch(step(1, ("job", "a", {"n": 1}))), CLOCK)
        same((await store.load()).rows, {"job": {"a": {"n": 1}}}, "the first one's rows")
        await refused(StoreHeld, second.open(), "a second daemon, once more")
    await second.open()
    try:
        same((await second.load()).rows, {"job": {"a": {"n": 1}}}, "the rows, once the first was closed")
    finally:
        await second.close()


async def commits_that_wait_together_keep_their_order(make: Factory) -> None:
    async with opened(make) as store:
        await asyncio.gather(
            *(store.commit(batch(step(number, ("job", "a", {"n": number}))), CLOCK) for number in range(20))
        )
        numbers = [entry.event["number"] for entry in await store.journal()]
        same(numbers, list(range(20)), "the journal's order")
        same((await store.load()).rows, {"job": {"a": {"n": 19}}}, "the last row")


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
    deliveries_are_forgotten_after_eight_days,
    a_failed_commit_leaves_nothing,
    decisions_are_read_in_order,
    the_journal_is_read_in_order_and_by_subject,
    entries_belong_to_the_segment_that_is_open,
    a_segment_is_read_with_the_state_it_starts_from,
    subjects_are_found_by_a_part_newest_first,
    what_is_quarantined_is_counted,
    a_store_is_held_by_one,
    commits_that_wait_together_keep_their_order,
    a_closed_store_does_nothing,
)
