"""A deadline over calls that mind it, that do not, and that end at the last moment."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from ephemerd.app import deadline
from ephemerd.app.deadline import left_behind, within
from tests.unit.app.fakes import until


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(deadline, "A_MOMENT", 0.01)


async def value(answer):
    await asyncio.sleep(0)
    return answer


async def fails():
    await asyncio.sleep(0)
    raise LookupError("not here")


class Stubborn:
    """A call that goes on when it is cancelled, until it is let go."""

    def __init__(self, end: BaseException | None = None) -> None:
        self.go = asyncio.Event()
        self.cancelled = 0
        self.end = end

    async def call(self) -> str:
        while not self.go.is_set():
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
        if self.end is not None:
            raise self.end
        return "late"


async def test_an_answer_and_a_failure_pass_through():
    assert await within(5, value(7)) == 7
    with pytest.raises(LookupError, match="not here"):
        await within(5, fails())


async def test_a_call_that_minds_its_cancellation_is_gone_at_the_deadline():
    forever = asyncio.Event()
    with pytest.raises(TimeoutError):
        await within(0.01, forever.wait())
    assert left_behind() == 0


@pytest.mark.parametrize("end", [None, LookupError("secret of the call"), asyncio.CancelledError()])
async def test_a_call_that_does_not_is_left_behind_and_its_end_is_noted(end, caplog):
    stubborn = Stubborn(end)
    with caplog.at_level(logging.WARNING), pytest.raises(TimeoutError):
        await within(0.01, stubborn.call())
    assert (stubborn.cancelled, left_behind()) == (1, 1)
    stubborn.go.set()
    await until(lambda: left_behind() == 0)
    assert "goes on although it was given up" in caplog.text
    assert ("failed late" in caplog.text) == isinstance(end, LookupError)
    assert "secret" not in caplog.text


async def test_what_ends_with_an_answer_when_it_is_cancelled_has_answered():
    async def at_the_last_moment():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "done after all"

    assert await within(0.01, at_the_last_moment()) == "done after all"


async def test_who_waits_may_be_cancelled_although_the_call_may_not():
    stubborn = Stubborn()
    waiting = asyncio.create_task(within(60, stubborn.call()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert stubborn.cancelled == 1
    stubborn.go.set()
    await until(lambda: left_behind() == 0)
