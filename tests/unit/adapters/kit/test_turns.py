"""One at a time for each name; what was found is told whoever waits; a permit for something else is refused."""

from __future__ import annotations

import asyncio

import pytest

from ephemerd.adapters.kit import permits
from ephemerd.adapters.kit.turns import Turns, told_anyway
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.permit import Permit, Warrant
from ephemerd.domain.verdict import Verdict
from ephemerd.ports.errors import Refused

PERMIT = Permit(
    runner=RunnerId("eph-1"),
    environment="process:1",
    warrant=Warrant.IDLE,
    rule="expired",
    verdict=Verdict.IDLE,
    made=100,
    expires=10_100,
    epoch="b1",
    fence="accepted",
    proofs=(90, 95),
    evidence=(),
    polite=False,
)


async def test_a_name_has_one_holder_and_another_name_another():
    turns, order, free = Turns(), [], asyncio.Event()

    async def hold(name: str, word: str, until: asyncio.Event | None = None) -> None:
        async with turns.of(name):
            order.append(word)
            if until is not None:
                await until.wait()

    first = asyncio.create_task(hold("a", "first", free))
    await asyncio.sleep(0)
    second = asyncio.create_task(hold("a", "second"))
    await hold("b", "other")
    assert order == ["first", "other"]
    free.set()
    await asyncio.gather(first, second)
    assert order == ["first", "other", "second"]
    assert turns._locks == {}


async def test_whoever_gives_up_waiting_leaves_nothing_behind():
    turns = Turns()
    async with turns.of("a"):
        waiting = asyncio.create_task(turns.of("a").__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert turns._locks == {}


@pytest.mark.parametrize("failure", [None, OSError("gone")])
async def test_what_was_found_is_told_although_nobody_waits(failure):
    loop = asyncio.get_running_loop()
    work, told = loop.create_future(), []
    waiting = asyncio.ensure_future(told_anyway(work, lambda: told.append("found")))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert (told, work.cancelled()) == ([], False)
    if failure is None:
        work.set_result(7)
    else:
        work.set_exception(failure)
    await asyncio.sleep(0)
    assert told == ["found"]


def test_a_permit_holds_for_what_it_names_while_it_lives():
    permits.check(PERMIT, "process:1", "eph-1", now=10_100, epoch="b1")


@pytest.mark.parametrize(
    ("environment", "runner", "now", "epoch", "words"),
    [
        ("process:2", "eph-1", 200, "b1", "another environment"),
        ("process:1", "eph-2", 200, "b1", "another environment"),
        ("process:1", "eph-1", 200, "b2", "another process life"),
        ("process:1", "eph-1", 10_101, "b1", "expired"),
    ],
)
def test_any_other_is_refused(environment, runner, now, epoch, words):
    with pytest.raises(Refused, match=words):
        permits.check(PERMIT, environment, runner, now=now, epoch=epoch)
