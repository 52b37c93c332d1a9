"""A deadline that holds even where what is waited for does not mind being cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

A_MOMENT = 1.0
"""Seconds that a call which was cancelled may take to clean up before it is left behind."""

T = TypeVar("T")
_left_behind: set[asyncio.Task[Any]] = set()


async def within(seconds: float, call: Coroutine[Any, Any, T]) -> T:
    """Return what the call returns; raise `TimeoutError` after so many seconds.

    `asyncio.timeout` waits for what it has cancelled, and so for ever on a call that swallows the
    cancellation. Here such a call is left behind: whoever waits goes on, and its late end is noted. A call
    that ends at the last moment with an answer has answered.
    """
    task = asyncio.get_running_loop().create_task(call)
    try:
        await _ended(task, seconds)
    except asyncio.CancelledError:
        await _let_go(task, seconds)
        raise
    if not task.done():
        await _let_go(task, seconds)
        if not task.done() or task.cancelled():
            raise TimeoutError
    return task.result()


def left_behind() -> int:
    """Return how many calls are still under way although nobody waits for them any more."""
    return len(_left_behind)


async def _ended(task: asyncio.Task[Any], seconds: float) -> None:
    """Return when the task has ended, or after so many seconds: what `asyncio.wait` does for many, at half its cost."""
    loop = task.get_loop()
    over: asyncio.Future[None] = loop.create_future()

    def end(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    timer = loop.call_later(seconds, end)
    task.add_done_callback(end)
    try:
        await over
    finally:
        timer.cancel()
        task.remove_done_callback(end)


async def _let_go(task: asyncio.Task[Any], seconds: float) -> None:
    task.set_name(f"{getattr(task.get_coro(), '__qualname__', 'call')} within {seconds:g} s")
    task.cancel()
    await asyncio.wait((task,), timeout=A_MOMENT)
    if not task.done():
        logger.warning(
            "a call goes on although it was given up; nobody waits for it any more",
            extra={"fields": {"call": task.get_name()}},
        )
        _left_behind.add(task)
        task.add_done_callback(_ended_late)


def _ended_late(task: asyncio.Task[Any]) -> None:
    _left_behind.discard(task)
    if not task.cancelled() and task.exception() is not None:
        logger.warning(
            "a call that was given up failed late",
            extra={"fields": {"call": task.get_name(), "error": type(task.exception()).__name__}},
        )
