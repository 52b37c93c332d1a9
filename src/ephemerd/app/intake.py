"""Deliveries on their way in: verified, parsed, put into the inbox, and answered only after the commit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum
from typing import Protocol

from ephemerd.app.inbox import Fate, Inbox, Receipt
from ephemerd.core.events import JobReported
from ephemerd.domain.job import Told
from ephemerd.ports.store import DeliveryId
from ephemerd.ports.system import Meter
from ephemerd.ports.webhooks import BadSignature, Delivery, Malformed, Webhooks, WrongType

STORE_WAIT = 8.0
"""Seconds until a delivery that is not committed is answered 503: GitHub waits 10 s (github.md, 9.3)."""
LARGE = 256 * 1024
"""Bytes from which verifying and parsing leave the loop's thread."""
EVENTS = ("workflow_job", "ping")
"""Event names that metrics tell apart; a name is what the sender says and must not make a series."""


class Taken(Enum):
    """What became of a delivery, in the words of `webhooks_total{result}`."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    UNUSED = "unused"
    QUARANTINED = "quarantined"
    NOT_STORED = "not_stored"


MISSED = frozenset({"too_slow", "overloaded"})
"""Of those below: the sender was turned away for our sake, and nobody knows yet whether it was the forge."""
REFUSED = ("bad_signature", "malformed", "wrong_type", "too_large", "too_slow", "overloaded")
"""The other values of `result`: requests that never became a delivery."""

COUNTED = (
    *((event, taken.value) for event in (*EVENTS, "other") for taken in Taken),
    *(("unknown", result) for result in REFUSED),
)
"""Every pair (event, result) that `webhooks_total` can have."""

_BY_FATE = {
    Fate.STORED: Taken.STORED,
    Fate.DUPLICATE: Taken.DUPLICATE,
    Fate.QUARANTINED: Taken.QUARANTINED,
    Fate.NOT_STORED: Taken.NOT_STORED,
}


class Watch(Protocol):
    """Hears how deliveries fare, by the forge's name."""

    def heard(self, forge: str) -> None:
        """A delivery was verified: the forge reaches us."""
        ...

    def missed(self, forge: str) -> None:
        """A delivery may have been turned away that the forge will not repeat."""
        ...


class Intake:
    """Takes the deliveries of all configured forges, by the forge's name."""

    watch: Watch | None

    def __init__(
        self, webhooks: Mapping[str, Webhooks], inbox: Inbox, meter: Meter, *, wait: float = STORE_WAIT
    ) -> None:
        self._webhooks = dict(webhooks)
        self.inbox = inbox
        self._meter = meter
        self._wait = wait
        self.watch = None

    def replace(self, webhooks: Mapping[str, Webhooks]) -> None:
        """Check deliveries with other secrets from now on; forges that are not named keep theirs."""
        self._webhooks.update(webhooks)

    def knows(self, forge: str) -> bool:
        """Whether deliveries of a forge with this name are taken."""
        return forge in self._webhooks

    async def take(self, forge: str, headers: Mapping[str, str], body: bytes) -> tuple[Taken, str]:
        """Verify, parse, store; return what became of it and a word on why.

        Raises `BadSignature`, `Malformed` or `WrongType`, having counted them.
        """
        try:
            delivery = await self._read(self._webhooks[forge], headers, body)
        except BadSignature:
            self.refused(forge, "bad_signature")
            raise
        except Malformed:
            self.refused(forge, "malformed")
            raise
        except WrongType:
            self.refused(forge, "wrong_type")
            raise
        if self.watch is not None:
            self.watch.heard(forge)
        taken = Taken.UNUSED
        if delivery.report is not None:
            taken = await self.bring(forge, delivery.id, JobReported(delivery.report, Told.WEBHOOK), body)
        event = delivery.event if delivery.event in EVENTS else "other"
        self._meter.count("webhooks_total", forge=forge, event=event, result=taken.value)
        return taken, delivery.unused

    def refused(self, forge: str, result: str) -> None:
        """Count a request that never became a delivery; its event's name is not to be believed."""
        self._meter.count("webhooks_total", forge=forge, event="unknown", result=result)
        if self.watch is not None and result in MISSED:
            self.watch.missed(forge)

    async def _read(self, webhooks: Webhooks, headers: Mapping[str, str], body: bytes) -> Delivery:
        if len(body) < LARGE:
            return webhooks.receive(headers, body)
        return await asyncio.to_thread(webhooks.receive, headers, body)

    async def bring(self, forge: str, delivery: str, event: JobReported, body: bytes) -> Taken:
        """Store what a delivery told, under its id, so that it is handled once however it came."""
        taken = await self._store(event, DeliveryId(forge, delivery), body)
        if taken is Taken.NOT_STORED and self.watch is not None:
            self.watch.missed(forge)
        return taken

    async def _store(self, event: JobReported, delivery: DeliveryId, body: bytes) -> Taken:
        reply = self.inbox.offer(event, delivery=delivery, body=body)
        if reply is None:
            return Taken.NOT_STORED
        timer = reply.get_loop().call_later(self._wait, _give_up, reply)
        try:
            receipt = await reply
        finally:
            timer.cancel()
        return _BY_FATE[receipt.fate]


def _give_up(reply: asyncio.Future[Receipt]) -> None:
    """Answer in the writer's place, whose answer comes too late then."""
    if not reply.done():
        reply.set_result(Receipt(Fate.NOT_STORED))
