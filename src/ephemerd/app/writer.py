"""The single writer: a group of events goes through the core and into the store in one commit.

Nothing leaves before the commit. A commit that fails drops the memory and reloads; an event on which the core
raises is put into quarantine with its raw body, and the rest goes on. A core that was reloaded begins with a
`Booted` under a fresh epoch, as after a start: permits and questions of the dropped memory are void.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class Handled:
    """One event that went through the core and was committed; `seq` is its number in the journal."""

    item: Item
    now: int
    step: Step
    seq: int = 0


@dataclass(slots=True)
class Group:
    """What became of a group.

    handled      committed, in order
    unstored     not committed, and told by our ports alone: nobody tells it again
    quarantined  events that could not be handled, or never be stored
    error        why something was not stored; `strange` where that was not the store's own `NotStored`, so
                 that one event of the group may be the cause
    """

    handled: list[Handled] = field(default_factory=list)
    unstored: list[Item] = field(default_factory=list)
    quarantined: list[Event] = field(default_factory=list)
    error: str = ""
    strange: bool = False


class Unbootable(Exception):
    """The core raises on the first event of a life: this store cannot be served by this version."""


class Writer:
    """Holds the core; every change of its state is made here and is committed or dropped.

    `boot` makes the first event of a life; its argument says whether it is one within the same process.
    """

    def __init__(self, core: Core, store: Store, clock: Clock, boot: Callable[[bool], Booted]) -> None:
        self.core = core
        self._store = store
        self._clock = clock
        self._boot = boot
        self._booted = False
        self._lives = 0
        self._stale = False
        self._recent: OrderedDict[DeliveryId, None] = OrderedDict()

    @property
    def booted(self) -> bool:
        """Whether the core in memory has begun its life: its `Booted` is committed."""
        return self._booted and not self._stale

    async def write(self, items: list[Item]) -> Group:
        """Handle and commit, the first event of a life before all others where it is due; resolves every
        acknowledgement. Raises `Unbootable` alone, never on a bad event or a failing store."""
        group = Group()
        waiting = items
        try:
            if self._stale:
                await self._reload()
            if not self._booted:
                await self._begin(group)
            waiting = await self._without_duplicates(items)
            while waiting:
                waiting = await self._write_some(waiting, group)
                if not self._booted:
                    await self._begin(group)
        except Unbootable:
            raise
        except Exception as error:
            await self._fail(waiting, group, error)
        return group

    async def _begin(self, group: Group) -> None:
        """Begin a life, for the core in memory has none yet, in a commit of its own."""
        await self._write_some([Item(self._boot(self._lives > 0), 0.0)], group)

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

    async def _write_some(self, items: list[Item], group: Group) -> list[Item]:
        """Handle up to the first event that the core cannot handle, commit, and return the rest."""
        records: list[StepRecord] = []
        handled: list[Handled] = []
        poison: tuple[Item, Exception] | None = None
        rest: list[Item] = []
        for place, item in enumerate(items):
            now = self._clock.now()
            try:
                step = self.core.handle(item.event, now)
                records.append(_record(item, step, now))
            except Exception as error:
                logger.exception("the core could not handle an event", extra={"fields": _name(item)})
                poison, rest = (item, error), items[place + 1 :]
                break
            handled.append(Handled(item, now, step))
        if records:
            deliveries = tuple(done.item.delivery for done in handled if done.item.delivery is not None)
            newest = await self._store.commit(Batch(deliveries, tuple(records)), self._clock.mark())
            for number, done in enumerate(handled, newest - len(handled) + 1):
                done.seq = number
            items[: len(handled)] = []
            self._committed(handled, deliveries)
            group.handled += handled
        if poison is not None:
            if isinstance(poison[0].event, Booted):
                raise Unbootable(f"the core cannot begin with this store: {poison[1]}") from poison[1]
            await self._reload()
            await self._quarantine(*poison, group)
        return rest

    def _committed(self, handled: list[Handled], deliveries: Iterable[DeliveryId]) -> None:
        self._remember(deliveries)
        if isinstance(handled[0].item.event, Booted):
            self._booted = True
            self._lives += 1
        for done in handled:
            done.item.answer(Receipt(Fate.STORED, done.step))

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
        """Answer and leave out deliveries that were committed before, or that come twice in this group."""
        if all(item.delivery is None for item in items):
            return items
        unknown = [
            item.delivery for item in items if item.delivery is not None and item.delivery not in self._recent
        ]
        seen = await self._store.seen(unknown) if unknown else set()
        fresh: list[Item] = []
        first: dict[DeliveryId, Item] = {}
        for item in items:
            delivery = item.delivery
            if delivery is None:
                fresh.append(item)
            elif delivery in self._recent or delivery in seen:
                item.answer(Receipt(Fate.DUPLICATE))
            elif delivery in first:
                _follow(first[delivery], item)
            else:
                first[delivery] = item
                fresh.append(item)
        return fresh

    def _remember(self, deliveries: Iterable[DeliveryId]) -> None:
        for delivery in deliveries:
            self._recent[delivery] = None
            self._recent.move_to_end(delivery)
        while len(self._recent) > REMEMBERED:
            self._recent.popitem(last=False)


def _record(item: Item, step: Step, now: int) -> StepRecord:
    return StepRecord(
        now=now,
        event=codec.encode_event(item.event),
        commands=codec.command_hash(step.commands),
        changed=tuple(
            (kind, key, None if row is None else codec.encode_row(kind, row))
            for kind, key, row in step.changed
        ),
        decisions=tuple(codec.encode_decision(decision) for decision in step.decisions),
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
