"""The inbox: bounded for the outside, never for our own ports, first in first out."""

from __future__ import annotations

import asyncio

import pytest

from ephemerd.app.inbox import ENOUGH, TURNS, Fate, Inbox, Receipt
from ephemerd.core.events import JobReported, SweepOrdered, Woke
from ephemerd.domain.job import Told
from ephemerd.ports.store import DeliveryId
from ephemerd.testing.virtual_time import virtually
from tests.unit.app.fakes import report, until


def reported(number: int) -> JobReported:
    return JobReported(report(number), Told.WEBHOOK)


async def test_items_leave_in_the_order_in_which_they_came():
    inbox = Inbox()
    inbox.offer(reported(1))
    inbox.tell(Woke())
    inbox.offer(reported(2))
    assert [item.event for item in inbox.take(10)] == [reported(1), Woke(), reported(2)]
    assert len(inbox) == 0


async def test_take_leaves_what_is_beyond_its_bound():
    inbox = Inbox()
    for number in range(5):
        inbox.tell(reported(number))
    assert len(inbox.take(3)) == 3
    assert [item.event for item in inbox.take(3)] == [reported(3), reported(4)]


async def test_an_offer_is_refused_when_full_and_taken_when_there_is_room_again():
    inbox = Inbox(most=2)
    assert inbox.offer(reported(1)) is not None
    assert inbox.offer(reported(2)) is not None
    assert inbox.full
    assert inbox.offer(reported(3)) is None
    inbox.take(1)
    assert inbox.offer(reported(3)) is not None


async def test_waiting_bodies_are_bounded_by_their_bytes():
    inbox = Inbox(most_bytes=10)
    assert inbox.offer(reported(1), body=b"x" * 10) is not None
    assert inbox.offer(reported(2)) is None
    inbox.take(1)
    assert inbox.offer(reported(2), body=b"x" * 4) is not None
    assert inbox.offer(reported(3), body=b"x" * 6) is not None
    assert inbox.full
    assert len(inbox.take(1)) == 1, "one of two: its bytes are free again, the other's are not"
    assert inbox.offer(reported(4), body=b"x" * 4) is not None
    assert inbox.full


async def test_what_our_ports_tell_is_taken_although_full():
    inbox = Inbox(most=1)
    inbox.offer(reported(1))
    inbox.tell(Woke())
    assert len(inbox) == 2


async def test_a_listing_waits_for_room():
    inbox = Inbox(most=1)
    inbox.tell(Woke())
    putting = asyncio.create_task(inbox.put(reported(1)))
    await asyncio.sleep(0)
    assert not putting.done()
    inbox.take(1)
    await putting
    assert [item.event for item in inbox.take(1)] == [reported(1)]


async def test_listings_that_wait_all_get_in_one_after_the_other():
    inbox = Inbox(most=1)
    putting = [asyncio.create_task(inbox.put(reported(number))) for number in range(4)]
    taken: list[object] = []
    while len(taken) < 4:
        await inbox.wait(1)
        taken += [item.event for item in inbox.take(1)]
        await asyncio.sleep(0)
    await asyncio.gather(*putting)
    assert taken == [reported(number) for number in range(4)]


async def test_a_listing_that_is_cancelled_while_it_waits_leaves_no_trace():
    inbox = Inbox(most=1)
    inbox.tell(Woke())
    putting = asyncio.create_task(inbox.put(reported(1)))
    await asyncio.sleep(0)
    putting.cancel()
    await asyncio.gather(putting, return_exceptions=True)
    inbox.take(1)
    await inbox.put(reported(2))
    assert [item.event for item in inbox.take(9)] == [reported(2)]


async def test_closed_refuses_the_outside_alone():
    inbox = Inbox()
    inbox.close()
    assert inbox.offer(SweepOrdered()) is None
    inbox.tell(Woke())
    assert len(inbox) == 1


async def test_put_back_goes_to_the_front():
    inbox = Inbox()
    for number in range(3):
        inbox.tell(reported(number))
    taken = inbox.take(2)
    inbox.put_back(taken)
    assert [item.event for item in inbox.take(3)] == [reported(0), reported(1), reported(2)]


async def test_wait_returns_at_once_when_something_is_there_and_after_its_time_when_not():
    inbox = Inbox()
    await asyncio.wait_for(inbox.wait(0.01), 5)
    inbox.tell(Woke())
    await asyncio.wait_for(inbox.wait(None), 5)
    inbox.take(1)
    waiting = asyncio.create_task(inbox.wait(None))
    await asyncio.sleep(0)
    assert not waiting.done()
    inbox.nudge()
    await asyncio.wait_for(waiting, 5)


@pytest.mark.parametrize(("first", "second"), [(10.0, 15.0), (15.0, 10.0), (None, 10.0), (10.0, 10.0)])
def test_a_wait_ends_at_its_own_time_whatever_the_one_before_was_to_last(first, second):
    async def waits() -> float:
        inbox, loop = Inbox(), asyncio.get_running_loop()
        waiting = asyncio.create_task(inbox.wait(first))
        await asyncio.sleep(4.0)
        inbox.tell(Woke())
        await waiting
        inbox.take(1)
        began = loop.time()
        await inbox.wait(second)
        return loop.time() - began

    assert virtually(waits)[0] == pytest.approx(second)


def test_a_timer_that_is_left_over_ends_no_wait_without_time():
    async def waits() -> bool:
        inbox = Inbox()
        waiting = asyncio.create_task(inbox.wait(10.0))
        await asyncio.sleep(1.0)
        inbox.tell(Woke())
        await waiting
        inbox.take(1)
        waiting = asyncio.create_task(inbox.wait(None))
        await asyncio.sleep(60.0)
        inbox.nudge()
        ended = waiting.done()
        await waiting
        return ended

    assert not virtually(waits)[0]


async def test_a_nudge_is_used_up_by_one_wait():
    inbox = Inbox()
    inbox.nudge()
    await asyncio.wait_for(inbox.wait(None), 5)
    waiting = asyncio.create_task(inbox.wait(None))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


async def test_wait_without_time_lets_others_run():
    inbox = Inbox()
    ran = []
    task = asyncio.create_task(asyncio.sleep(0))
    task.add_done_callback(lambda _: ran.append(True))
    for _ in range(3):
        await inbox.wait(0)
    assert ran


async def arriving(inbox: Inbox, count: int, pause: int) -> None:
    """Offer deliveries, so many turns of the loop apart."""
    for number in range(count):
        inbox.offer(reported(number), delivery=DeliveryId("github", str(number)))
        for _ in range(pause):
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("count", "pause", "gathered"), [(5, 0, 5), (5, 1, 5), (4, 3, 4), (ENOUGH + 9, 0, ENOUGH + 9)]
)
async def test_deliveries_that_the_loop_is_about_to_read_are_gathered(count, pause, gathered):
    inbox = Inbox()
    coming = asyncio.create_task(arriving(inbox, count, pause))
    await inbox.wait(1)
    await inbox.gather()
    assert len(inbox) == gathered
    await coming


@pytest.mark.parametrize(("count", "pause", "least", "most"), [(100, 1, 2, TURNS + 1), (9, 4, 1, 2)])
async def test_gathering_ends_though_more_deliveries_come(count, pause, least, most):
    inbox = Inbox()
    coming = asyncio.create_task(arriving(inbox, count, pause))
    await inbox.wait(1)
    await inbox.gather()
    assert least <= len(inbox) <= most
    coming.cancel()
    await asyncio.gather(coming, return_exceptions=True)


async def test_enough_deliveries_are_not_added_to():
    inbox = Inbox()
    for number in range(ENOUGH):
        inbox.offer(reported(number), delivery=DeliveryId("github", str(number)))
    ran: list[str] = []
    asyncio.get_running_loop().call_soon(ran.append, "other work")
    await inbox.gather()
    assert ran == []


@pytest.mark.parametrize("waits", [True, False])
async def test_what_is_no_delivery_is_not_waited_with(waits):
    inbox = Inbox()
    if waits:
        inbox.tell(Woke())
    ran: list[str] = []
    asyncio.get_running_loop().call_soon(ran.append, "other work")
    await inbox.gather()
    assert ran == []


async def test_an_acknowledgement_is_given_once_and_to_nobody_who_left():
    inbox = Inbox()
    reply = inbox.offer(reported(1))
    assert reply is not None
    (item,) = inbox.take(1)
    item.answer(Receipt(Fate.STORED))
    item.answer(Receipt(Fate.NOT_STORED))
    assert (await reply).fate is Fate.STORED

    left = inbox.offer(reported(2))
    assert left is not None
    left.cancel()
    (item,) = inbox.take(1)
    item.answer(Receipt(Fate.STORED))
    with pytest.raises(asyncio.CancelledError):
        await left


async def test_lag_is_the_age_of_the_oldest():
    inbox = Inbox()
    assert inbox.lag() == 0.0
    inbox.tell(Woke())
    await until(lambda: inbox.lag() > 0)
    inbox.take(1)
    assert inbox.lag() == 0.0
