"""The single writer: a group of events goes through the core and into the store in one commit.

One commit is under way at a time; what is handled meanwhile goes into the next one together. Nothing leaves before its
commit. A commit that fails drops the memory and reloads; an event on which the core
raises is put into quarantine with its raw body, and the rest goes on. A core that was reloaded begins with a
`Booted` under a fresh epoch, as after a start: permits and questions of the dropped memory are void.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from ephemerd.app.inbox import Fate, Item, Receipt
from ephemerd.app.recovery import revive
from ephemerd.core import codec
from ephemerd.core.events import Booted, Event, Woke
from ephemerd.core.machine import Core
from ephemerd.core.step import Step
from ephemerd.ports.errors import NotStored
from ephemerd.ports.store import Batch, DeliveryId, StepRecord, Store
from ephemerd.ports.system import Clock

logger = logging.getLogger(__name__)

REMEMBERED = 8192
"""Delivery ids kept in memory, so that a redelivery shortly after needs no look into the store."""
MOST_UNCOMMITTED = 256
"""Events that are handled beside a commit under way: a failing one throws little away."""


class Handled(msgspec.Struct, eq=False):
    """One event that went through the core and was committed; `seq` is its number in the journal."""

    item: Item
    now: int
    step: Step
    seq: int = 0


class _Portion(msgspec.Struct, eq=False):
    """What goes into one commit: events that were handled, their records, and the deliveries that told of them."""

    handled: list[Handled] = []
    records: list[StepRecord] = []
    deliveries: list[DeliveryId] = []


class Group(msgspec.Struct, eq=False):
    """What became of a group.

    handled      committed, in order; also of earlier groups what nobody was told of yet
    unstored     not committed, and told by our ports alone: nobody tells it again
    quarantined  events that could not be handled, or never be stored
    error        why something was not stored; `strange` where that was not the store's own `NotStored`, so
                 that one event of the group may be the cause
    """

    handled: list[Handled] = []
    unstored: list[Item] = []
    quarantined: list[Event] = []
    error: str = ""
    strange: bool = False


class Unbootable(Exception):
    """The core raises on the first event of a life: this store cannot be served by this version."""


class Writer:
    """Holds the core; every change of its state is made here and is committed or dropped.

    `boot` makes the first event of a life; its argument says whether it is one within the same process.
    `on_end` is called when a commit has ended that nobody may wait for: `write` tells then what became of it.
    """

    on_end: Callable[[], None]

    def __init__(self, core: Core, store: Store, clock: Clock, boot: Callable[[bool], Booted]) -> None:
        self.core = core
        self._store = store
        self._clock = clock
        self._boot = boot
        self._booted = False
        self._lives = 0
        self._stale = False
        self._recent: OrderedDict[DeliveryId, None] = OrderedDict()
        self.on_end = lambda: None
        self._next = _Portion()
        self._under_way: tuple[_Portion, asyncio.Future[Any]] | None = None
        self._untold: list[Handled] = []
        self._telling = False
        self._uncommitted: dict[DeliveryId, Item] = {}

    @property
    def booted(self) -> bool:
        """Whether the core in memory has begun its life: its `Booted` is committed."""
        return self._booted and not self._stale

    @property
    def news(self) -> bool:
        """Whether something was committed that no group told of yet."""
        return bool(self._untold)

    @property
    def idle(self) -> bool:
        """Whether all that was handled is committed and told."""
        return self._under_way is None and not (self._next.handled or self._untold)

    async def write(self, items: list[Item], *, through: bool = True) -> Group:
        """Handle and commit, the first event of a life before all others where it is due; resolves every
        acknowledgement. Raises `Unbootable` alone, never on a bad event or a failing store.

        Without `through` it does not wait for the commit: a later call, from `on_end` on, tells what became of it. So
        what comes during a commit is handled beside it.
        """
        group = Group()
        waiting = items
        try:
            self._look()
            if self._stale:
                await self._reload()
            if not self._booted:
                await self._begin(group)
            waiting = [*items]
            if any(item.delivery is not None for item in items):
                waiting = await self._without_duplicates(items)
                self._look()
            while waiting:
                waiting = await self._handle(waiting, group)
                if not self._booted:
                    await self._begin(group)
            if through:
                await self._finish()
            else:
                self._telling = True  # before it may be done
                self._commit_next()
                if self._under_way is not None:
                    await asyncio.sleep(0)  # it begins, and the loop does what else there is
        except Unbootable:
            raise
        except Exception as error:
            await self._fail([*await self._take_back(), *waiting], group, error)
        finally:
            self._telling = False
        group.handled, self._untold = self._untold, []
        return group

    async def close(self) -> None:
        """Wait for nothing any more: a commit under way is left to the store, and nobody is told of it."""
        self._next = _Portion()
        if self._under_way is not None:
            _, task = self._under_way
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # looked at: nobody is told of it any more
            self._under_way = None

    async def _begin(self, group: Group) -> None:
        """Begin a life, for the core in memory has none yet, in a commit of its own."""
        await self._handle([Item(self._boot(self._lives > 0), 0.0)], group)
        await self._finish()

    async def _fail(self, waiting: list[Item], group: Group, error: Exception) -> None:
        """Nothing of what still waits is stored: drop the memory, and set aside what cannot ever be stored."""
        group.error = f"{type(error).__name__}: {error}"
        group.strange = not isinstance(error, NotStored)
        logger.error("nothing of a group could be stored", extra={"fields": {"error": group.error}})
        alone = group.strange and self._booted and len(waiting) == 1
        self._stale = True
        try:
            await self._reload()
            if alone:
                await self._quarantine(waiting[0], error, group)
                return
        except Exception as again:
            logger.error("the store does not answer", extra={"fields": {"error": repr(again)}})
        self._return(waiting, group)

    async def _handle(self, items: list[Item], group: Group) -> list[Item]:
        """Handle up to the first event that the core cannot handle, set that aside once what was before it is
        committed, and return the rest; takes out of `items` what was handled."""
        while items:
            if len(self._next.handled) >= MOST_UNCOMMITTED:
                await self._next_commit()
            item, now, portion = items[0], self._clock.now(), self._next
            try:
                step = self.core.handle(item.event, now)
                record = _record(item, step, now)
            except Exception as error:
                logger.exception("the core could not handle an event", extra={"fields": _name(item)})
                await self._finish()
                if isinstance(item.event, Booted):
                    raise Unbootable(f"the core cannot begin with this store: {error}") from error
                await self._reload()
                await self._quarantine(item, error, group)
                return items[1:]
            del items[0]
            portion.handled.append(Handled(item, now, step))
            portion.records.append(record)
            if item.delivery is not None:
                portion.deliveries.append(item.delivery)
                self._uncommitted[item.delivery] = item
        return []

    def _commit_next(self) -> None:
        """Give to the store what was handled, unless a commit is under way. One that is done when it was asked for is
        taken in at once, without a task."""
        if self._under_way is not None or not self._next.handled:
            return
        mark = self._clock.mark()
        portion, self._next = self._next, _Portion()
        loop = asyncio.get_running_loop()
        try:
            answer = self._store.commit(Batch(tuple(portion.deliveries), tuple(portion.records)), mark)
        except Exception as error:  # told of as one that was raised when it was awaited
            answer = loop.create_future()
            answer.set_exception(error)
        if not isinstance(answer, asyncio.Future) or not answer.done() or answer.cancelled():
            self._under_way = (portion, loop.create_task(self._commit(portion, answer), name="commit"))
            return
        self._under_way = (portion, answer)
        if answer.exception() is None:
            self._done(portion, answer.result())
        else:
            self._failed()

    async def _commit(self, portion: _Portion, answer: Awaitable[int]) -> None:
        try:
            newest = await answer
        except Exception:
            self._failed()
            raise
        self._done(portion, newest)

    def _done(self, portion: _Portion, newest: int) -> None:
        """A commit has ended: begin the next one at once. Where `write` is about to tell of it, as of one that takes no
        time, there is nothing to say."""
        handled = portion.handled
        if portion.deliveries:
            self._remember(portion.deliveries)
        if isinstance(handled[0].item.event, Booted):
            self._booted = True
            self._lives += 1
        for number, done in enumerate(handled, newest - len(handled) + 1):
            done.seq = number
            item = done.item
            item.body = b""  # kept for quarantine alone
            if item.reply is not None:
                item.answer(Receipt(Fate.STORED, done.step))
        self._untold += handled
        self._under_way = None
        if self._next.handled:
            self._commit_next()
        if not self._telling:
            self.on_end()

    def _failed(self) -> None:
        """A commit has failed: it stays under way until `write` takes it back."""
        self._stale = True
        self.on_end()

    def _look(self) -> None:
        """Raise what the commit under way has failed with."""
        if self._under_way is not None and self._under_way[1].done():
            self._under_way[1].result()

    async def _next_commit(self) -> None:
        """Wait until the commit under way has ended and the next one has begun, if there is something for it."""
        self._commit_next()
        if self._under_way is not None:
            _, task = self._under_way
            await asyncio.wait({task})
            self._look()

    async def _finish(self) -> None:
        """Return when all that was handled is committed."""
        while self._under_way is not None or self._next.handled:
            await self._next_commit()

    async def _take_back(self) -> list[Item]:
        """Return what was handled and could not be committed, once nothing is under way any more. The first event of
        a life is not among it: the next one has its own."""
        with suppress(Exception):
            await self._finish()
        portions = [self._next] if self._under_way is None else [self._under_way[0], self._next]
        self._under_way, self._next = None, _Portion()
        self._uncommitted.clear()
        items = [done.item for portion in portions for done in portion.handled]
        return [item for item in items if not isinstance(item.event, Booted)]

    async def _quarantine(self, item: Item, error: Exception, group: Group) -> None:
        delivery = item.delivery or DeliveryId("", "")
        body = item.body or json.dumps(_plain(item)).encode()
        detail = f"{type(error).__name__}: {error}"
        await self._store.quarantine(self._clock.now(), delivery.forge, delivery.id, body, detail)
        group.quarantined.append(item.event)
        item.answer(Receipt(Fate.QUARANTINED))

    def _return(self, items: Iterable[Item], group: Group) -> None:
        """Answer "not stored" to whoever waits; keep what our ports told, it is not told twice."""
        for item in items:
            if item.reply is not None:
                item.answer(Receipt(Fate.NOT_STORED))
            elif not isinstance(item.event, Woke):
                group.unstored.append(item)

    async def _reload(self) -> None:
        self._stale, self._booted = True, False
        self.core = revive(await self._store.load())
        self._stale = False

    async def _without_duplicates(self, items: list[Item]) -> list[Item]:
        """Answer and leave out deliveries that were committed before; those that are being committed, or come twice in
        this group, get the fate of the first."""
        unknown = [
            item.delivery
            for item in items
            if item.delivery is not None
            and item.delivery not in self._recent
            and item.delivery not in self._uncommitted
        ]
        seen = await self._store.seen(unknown) if unknown else set()
        if not seen and len(unknown) == len(items) == len(set(unknown)):
            return [*items]
        fresh: list[Item] = []
        first: dict[DeliveryId, Item] = {}
        for item in items:
            delivery = item.delivery
            if delivery is None:
                fresh.append(item)
            elif delivery in self._recent or delivery in seen:
                item.answer(Receipt(Fate.DUPLICATE))
            elif (same := first.get(delivery) or self._uncommitted.get(delivery)) is not None:
                _follow(same, item)
            else:
                first[delivery] = item
                fresh.append(item)
        return fresh

    def _remember(self, deliveries: Iterable[DeliveryId]) -> None:
        for delivery in deliveries:
            self._recent[delivery] = None
            self._uncommitted.pop(delivery, None)
        while len(self._recent) > REMEMBERED:
            self._recent.popitem(last=False)


def _record(item: Item, step: Step, now: int) -> StepRecord:
    return StepRecord(
        now=now,
        event=codec.event_body(item.event),
        commands=codec.command_hash(step.commands),
        changed=tuple(
            [
                (kind, key, None if row is None else codec.row_body(kind, row))
                for kind, key, row in step.changed
            ]
        ),
        decisions=tuple(map(codec.encode_decision, step.decisions)),
        subjects=step.subjects,
    )


def _follow(first: Item, second: Item) -> None:
    """Give the second of two equal deliveries the fate of the first."""
    if first.reply is None or second.reply is None:
        return

    def pass_on(_: object) -> None:
        assert first.reply is not None
        if first.reply.cancelled():
            second.answer(Receipt(Fate.NOT_STORED))
            return
        fate = first.reply.result().fate
        second.answer(Receipt(Fate.DUPLICATE if fate is Fate.STORED else fate))

    first.reply.add_done_callback(pass_on)


def _name(item: Item) -> dict[str, str]:
    named = {"event": type(item.event).__name__}
    if item.delivery is not None:
        named["delivery"] = item.delivery.id
    return named


def _plain(item: Item) -> dict[str, object]:
    try:
        return codec.encode_event(item.event)
    except ValueError as error:
        return {"kind": type(item.event).__name__, "unencodable": str(error)}
