"""The one queue into the core: bounded, first in first out, without priorities.

What comes from outside is refused when it is full (the web answers 503, so that the forge records a failure
that can be fetched again). Listings wait for room. What our own ports tell is bounded by the commands and
runners that cause it and is always taken.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterable
from enum import Enum

import msgspec

from ephemerd.core.events import Event
from ephemerd.core.step import Step
from ephemerd.domain.value import Value
from ephemerd.ports.store import DeliveryId

MOST_ITEMS = 4096
MOST_BYTES = 64 * 1024 * 1024
ENOUGH = 64
"""Deliveries of one commit after which one more saves nothing worth waiting for."""
QUIET, TURNS = 3, 12
"""Turns of the loop for which deliveries are waited for before a commit: without anything new, and in all."""


class Fate(Enum):
    """What became of an item.

    STORED       committed; commands may have left
    DUPLICATE    its delivery id was committed before; nothing was done again
    QUARANTINED  the core could not handle it; its raw body is kept
    NOT_STORED   nothing of it is in the store
    """

    STORED = "stored"
    DUPLICATE = "duplicate"
    QUARANTINED = "quarantined"
    NOT_STORED = "not_stored"


class Receipt(Value, frozen=True):
    """The acknowledgement: the fate and, where the event was handled, the committed step."""

    fate: Fate
    step: Step | None = None


class Item(msgspec.Struct, eq=False):
    """One event on its way to the core. `arrived` is the loop's time in seconds; `body` the raw bytes for
    quarantine, until it is stored; `reply` is resolved after the commit (None where nobody waits)."""

    event: Event
    arrived: float
    delivery: DeliveryId | None = None
    body: bytes = b""
    reply: asyncio.Future[Receipt] | None = None

    def __repr__(self) -> str:
        """Name what it is, not what it holds."""
        return f"<Item {type(self.event).__name__}>"

    def answer(self, receipt: Receipt) -> None:
        """Resolve the acknowledgement, unless nobody waits for it any more."""
        if self.reply is not None and not self.reply.done():
            self.reply.set_result(receipt)


class Inbox:
    """Many producers, one consumer. All methods belong to the thread of one event loop, that of the first call."""

    def __init__(self, most: int = MOST_ITEMS, most_bytes: int = MOST_BYTES) -> None:
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._most = most
        self._most_bytes = most_bytes
        self._nudged = False
        self._waiting: asyncio.Future[None] | None = None
        self._until = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._room: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._found: asyncio.AbstractEventLoop | None = None

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The loop that runs: kept, since to ask for it is to ask the system in older Pythons."""
        if self._found is None:
            self._found = asyncio.get_running_loop()
        return self._found

    def __len__(self) -> int:
        return len(self._items)

    @property
    def full(self) -> bool:
        """Whether the next offer would be refused."""
        return len(self._items) >= self._most or self._bytes >= self._most_bytes

    def lag(self) -> float:
        """Seconds that the oldest waiting item has waited; 0 when empty."""
        if not self._items:
            return 0.0
        return max(0.0, self._loop.time() - self._items[0].arrived)

    def offer(
        self, event: Event, *, delivery: DeliveryId | None = None, body: bytes = b""
    ) -> asyncio.Future[Receipt] | None:
        """Take an event from outside and return its acknowledgement, or None when full or closed."""
        if self._closed or self.full:
            return None
        loop = self._loop
        item = Item(event, loop.time(), delivery, body, loop.create_future())
        self._append(item)
        return item.reply

    def tell(self, event: Event) -> None:
        """Take what a port of ours tells; never refuses."""
        self._append(Item(event, self._loop.time()))

    async def put(self, event: Event) -> None:
        """Take one event of a listing, waiting for room."""
        while self.full:
            room = self._loop.create_future()
            self._room.append(room)
            try:
                await room
            finally:
                if room in self._room:
                    self._room.remove(room)
        self.tell(event)

    def put_back(self, items: Iterable[Item]) -> None:
        """Return items to the front in their order: they were taken and could not be committed."""
        for item in reversed(list(items)):
            self._items.appendleft(item)
            self._bytes += len(item.body)
        self._wake()

    def take(self, most: int) -> list[Item]:
        """Remove and return up to `most` waiting items, oldest first."""
        items = self._items
        if len(items) <= most:
            taken = [*items]
            items.clear()
            self._bytes = 0
        else:
            taken = [items.popleft() for _ in range(most)]
            self._bytes -= sum([len(item.body) for item in taken])
        if self._room:
            self._make_room()
        return taken

    async def wait(self, seconds: float | None) -> None:
        """Return when something waits, when nudged, or after so many seconds. There is one consumer."""
        if seconds is not None and seconds <= 0:
            await asyncio.sleep(0)
            return
        if not self._items and not self._nudged:
            loop = self._loop
            waiting = self._waiting = loop.create_future()
            self._until = math.inf if seconds is None else loop.time() + seconds
            self._set_timer(loop)
            try:
                await waiting
            finally:
                self._waiting = None
        self._nudged = False

    async def gather(self) -> None:
        """Where a delivery waits, let those come in too that the loop is about to read: one commit, which waits for the
        disk once, does for all of them. Where the loop has nothing else to do that is `QUIET` empty turns of it."""
        quiet = 0
        for _ in range(TURNS):
            here = len(self._items)
            if not here or here >= ENOUGH or quiet >= QUIET or self._items[0].delivery is None:
                return
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._items) == here else 0

    def nudge(self) -> None:
        """Make `wait` return although nothing came."""
        self._nudged = True
        self._wake()

    def close(self) -> None:
        """Refuse everything from outside from now on; what our ports tell is still taken."""
        self._closed = True

    def _append(self, item: Item) -> None:
        self._items.append(item)
        self._bytes += len(item.body)
        self._wake()

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have a timer that ends at the latest when the wait does.

        One that ends before stays: nearly every wait is ended by an event, and the loop rests twice an event.
        """
        if self._timer is not None:
            if self._timer.when() <= self._until:
                return
            self._timer.cancel()
            self._timer = None
        if self._until < math.inf:
            self._timer = loop.call_at(self._until, self._timed)

    def _timed(self) -> None:
        timer, self._timer = self._timer, None
        if self._waiting is None or timer is None:
            return
        if timer.when() >= self._until:
            self._wake()
        else:
            self._set_timer(self._loop)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _make_room(self) -> None:
        free = self._most - len(self._items)
        while self._room and free > 0 and not self.full:
            room = self._room.popleft()
            if not room.done():
                room.set_result(None)
                free -= 1
