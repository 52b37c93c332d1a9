"""Reading goes at the pace that the daemon's work leaves: who reads, however often, slows it by a share at most.

All runs on one loop, so while a page is made no delivery is taken and no command begun. So what reads waits for its
turn: until no event is late, and until the loop has been free of reading for a multiple of the time that the last
reading held it. Where nothing is committed meanwhile nobody waits. Turns are given in the order in which they
were asked for, and what is read is read after the turn has come: nothing here is kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

SHARE = 0.25
"""What part of the loop's time reading may take while the daemon has work."""
LATE = 0.02
"""Seconds after which an event that waits is late; a commit takes a few milliseconds."""
PATIENCE = 0.5
"""Seconds that a reading waits for a moment in which no event is late; under a lasting load there may be none."""
LONGEST_REST = 0.5
"""Seconds of rest after a reading, however long it took: with `PATIENCE` a page is there in about a second."""
LOOK = 0.005
"""Seconds between two looks whether the next one may begin."""

A = TypeVar("A")
R = TypeVar("R")


class Pace:
    """The turns of one daemon's readers.

    lag      for how many seconds the oldest event has waited
    commits  how many there were
    time     now, in seconds; the loop's where nothing is given
    """

    def __init__(
        self,
        lag: Callable[[], float],
        commits: Callable[[], int],
        time: Callable[[], float] | None = None,
    ) -> None:
        self._lag = lag
        self.commits = commits
        self._time = time or (lambda: asyncio.get_running_loop().time())
        self._waiting: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._rests_until = float("-inf")
        self._read_at = -1

    def over(self, answer: Callable[[A], Awaitable[R]]) -> Callable[[A], Awaitable[R]]:
        """Wrap what answers by reading, so that it waits for its turn."""

        async def paced(asked: A) -> R:
            await self.turn()
            return await self.counted(answer(asked))

        return paced

    async def turn(self) -> None:
        """Return when a reading may begin."""
        now = self._time()
        if not self._waiting and self._may_begin(now, now):
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((now, turn))
        self._look_later()
        await turn

    def counted(self, work: Awaitable[R]) -> Awaitable[R]:
        """Wrap a reading that has its turn, so that the time in which it holds the loop is made up for."""
        return _Counted(work, self._time, self._held)

    def _may_begin(self, now: float, since: float) -> bool:
        if self.commits() == self._read_at and not self._lag():
            return True
        return now >= self._rests_until and (self._lag() < LATE or now - since >= PATIENCE)

    def _held(self, seconds: float) -> None:
        now = self._time()
        rest = seconds * (1 / SHARE - 1)
        self._rests_until = min(max(self._rests_until, now) + rest, now + LONGEST_REST)
        self._read_at = self.commits()

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK, self._look)

    def _look(self) -> None:
        """Give the next one its turn, if it may begin: one a look, so that its time is counted before the next."""
        self._timer = None
        while self._waiting and self._waiting[0][1].done():  # who waited has gone
            self._waiting.popleft()
        if not self._waiting:
            return
        since, turn = self._waiting[0]
        if self._may_begin(self._time(), since):
            self._waiting.popleft()
            turn.set_result(None)
        self._look_later()


class _Counted(Generic[R]):
    """Awaits something, and tells of each stretch in which it held the loop, in seconds."""

    def __init__(self, work: Awaitable[R], time: Callable[[], float], held: Callable[[float], None]) -> None:
        self._work = work
        self._time = time
        self._held = held

    def __await__(self) -> Generator[Any, Any, R]:
        steps = self._work.__await__()
        error: BaseException | None = None
        while True:
            began = self._time()
            try:
                waited_for = next(steps) if error is None else steps.throw(error)
            except StopIteration as over:
                result: R = over.value
                return result
            finally:
                self._held(self._time() - began)
            error = None
            try:
                yield waited_for
            except BaseException as thrown:  # handed on: it is for what is awaited
                error = thrown
