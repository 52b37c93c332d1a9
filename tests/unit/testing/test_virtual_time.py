"""Time that jumps to the next timer, however late it is."""

from __future__ import annotations

import asyncio
import socket
import weakref
from contextvars import ContextVar, copy_context

import pytest

from ephemerd.testing.virtual_time import VirtualLoop, virtually


@pytest.mark.timeout(20)
@pytest.mark.parametrize("days", [1, 194.1, 195, 10_000])
def test_a_timer_is_due_at_its_own_moment_also_where_a_double_tells_no_billionths_of_a_second_apart(days):
    """From 2**24 s on, the loop's own tolerance is less than what such a number can say."""

    async def wait() -> None:
        await asyncio.sleep(days * 86_400)
        for _ in range(50):
            await asyncio.sleep(0.1)

    _, took = virtually(wait)
    assert took == pytest.approx(days * 86_400 + 5)


def test_timers_that_were_taken_back_do_not_pile_up_and_the_others_come_in_their_order():
    came: list[object] = []

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        for number in range(2_000):
            loop.call_later(1e6, came.append, "taken back").cancel()
            loop.call_later(10 - number / 1_000, came.append, number)
            await asyncio.sleep(0)
        assert isinstance(loop, VirtualLoop)
        assert sum(timer.cancelled() for *_, timer in loop._timers) <= len(loop._timers) / 2 + 1
        await asyncio.sleep(20)

    virtually(wait)
    assert came == sorted(range(2_000), reverse=True)


def test_timers_that_were_taken_back_are_counted_as_they_are_thrown_away():
    """One that lies behind another of the same moment too: else the loop throws timers away for nothing."""

    async def wait() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        for number in range(500):
            due = loop.time() + 1
            loop.call_at(due, int)
            loop.call_at(due + number % 2, int).cancel()
            await asyncio.sleep(1)
        assert isinstance(loop, VirtualLoop)
        return loop._timer_cancelled_count, sum(timer.cancelled() for *_, timer in loop._timers)

    counted, there = virtually(wait)[0]
    assert counted == there


def test_what_a_thread_gives_comes_also_where_nothing_else_is_waited_for():
    async def wait() -> int:
        return await asyncio.to_thread(lambda: 7)

    assert virtually(wait)[0] == 7


def test_timers_of_one_moment_come_as_they_were_set_and_after_what_waits_already():
    came: list[object] = []

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        for number in range(5):
            loop.call_later(1, came.append, number)
        loop.call_later(0, came.append, "at once")
        loop.call_soon(came.append, "sooner")
        await asyncio.sleep(2)

    virtually(wait)
    assert came == ["sooner", "at once", 0, 1, 2, 3, 4]


def test_what_comes_by_a_file_is_read_between_two_timers():
    async def wait() -> bytes:
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        with here, there:
            there.setblocking(False)
            for number in range(100):
                loop.call_later(number, int)
            here.sendall(b"news")
            return await loop.sock_recv(there, 10)

    news, took = virtually(wait)
    assert news == b"news"
    assert took <= 3


def test_a_loop_that_is_told_to_stop_before_it_runs_does_one_turn():
    came: list[int] = []
    loop = VirtualLoop()
    try:
        loop.call_soon(lambda: loop.call_soon(came.append, 2))
        loop.call_soon(came.append, 1)
        loop.stop()
        loop.run_forever()
        assert came == [1]
        loop.stop()
        loop.run_forever()
        assert came == [1, 2]
    finally:
        loop.close()


def test_a_closed_loop_takes_nothing_more_and_debug_mode_looks_at_who_calls():
    loop = VirtualLoop()
    loop.set_debug(True)
    with pytest.raises(TypeError):
        loop.call_soon(7)  # type: ignore[arg-type]
    loop.close()
    for call in (lambda: loop.call_soon(int), lambda: loop.call_later(1, int), lambda: loop.call_at(1, int)):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_a_callback_that_raises_is_told_of_and_the_loop_goes_on():
    told: list[dict[str, object]] = []
    came: list[int] = []

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        loop.call_soon(lambda: 1 / 0)
        loop.call_later(1, lambda: int("x"))
        loop.call_later(2, came.append, 1)
        await asyncio.sleep(3)

    virtually(wait)
    assert [type(context["exception"]) for context in told] == [ZeroDivisionError, ValueError]
    assert all("lambda" in str(context["message"]) for context in told)
    assert came == [1]


def test_what_ends_a_program_is_not_kept_from_doing_so():
    async def wait() -> None:
        asyncio.get_running_loop().call_soon(exit_)
        await asyncio.sleep(1)

    def exit_() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        virtually(wait)


def test_a_callback_that_was_taken_back_does_not_come_and_has_its_own_context():
    name: ContextVar[str] = ContextVar("name", default="")
    came: list[str] = []

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        name.set("here")
        other = copy_context()
        other.run(name.set, "there")
        gone = loop.call_soon(came.append, "gone")
        gone.cancel()
        late = loop.call_later(1, came.append, "late")
        assert (late.when(), late.cancelled(), gone.cancelled()) == (loop.time() + 1, False, True)
        late.cancel()
        assert late.cancelled()
        loop.call_soon(lambda: came.append(name.get()))
        loop.call_soon(lambda: came.append(name.get()), context=other)
        loop.call_later(1, lambda: came.append(name.get()), context=other)
        name.set("changed")
        await asyncio.sleep(2)

    virtually(wait)
    assert came == ["here", "there", "there"]


def test_what_is_taken_back_lets_go_of_what_it_held():
    class Held:
        pass

    async def wait() -> list[object]:
        loop, gone = asyncio.get_running_loop(), []
        for number in range(2):
            held = Held()
            gone.append(weakref.ref(held))
            handle = loop.call_later(9, print, held) if number else loop.call_soon(print, held)
            assert "Held" not in repr(handle)
            del held
            handle.cancel()
        return [one() for one in gone]

    assert virtually(wait)[0] == [None, None]
