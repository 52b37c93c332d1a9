"""What one hook failed to deliver: what is missing is read and stored, once, newest first.

Which deliveries are missing is known from the store: it keeps the id of each one that was handled for longer than
any forge lists them, so that nothing else has to survive a restart and no clock has to be trusted. Newest first,
since a job's end that is known before its beginning asks for no runner.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec.structs import replace

from ephemerd.app.deadline import within
from ephemerd.app.intake import Intake, Taken
from ephemerd.core.events import JobReported
from ephemerd.domain.ids import JobKey
from ephemerd.domain.job import ForgeStatus, JobReport, Told
from ephemerd.domain.pool import DAY, MINUTE
from ephemerd.ports.errors import Denied, Gone, Limited, NotSent, Refused, RetryLater
from ephemerd.ports.hooks import DeliveryLog, HookDelivery
from ephemerd.ports.store import DeliveryId, Store
from ephemerd.ports.webhooks import Delivery

logger = logging.getLogger(__name__)

MOST_PAGES = 30
MOST_READS = 200
PASS_LIMIT = 120.0
"""What one pass may cost: pages, deliveries read, seconds. What is left waits for the next."""
CALL_LIMIT = 60.0
"""Outer net in seconds, above the deadlines that the adapter keeps itself."""
HORIZON = 3 * DAY
"""ms: nothing older is of use. GitHub cancels a job after a day in the queue, and lists deliveries for three days."""
OVERLAP = 10 * MINUTE
"""ms by which a pass looks back beyond the newest try of the one before: a try may be listed late."""
PATIENCE = 2
"""A delivery that cannot be read so many times is given up; the reconcile repairs what it would have told."""
REMEMBERED = 8192

RESULTS = ("stored", "duplicate", "quarantined", "unused", "foreign", "unreadable")
"""What became of a failed delivery, in the words of `deliveries_recovered_total{result}`."""

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class NotTaken(Exception):
    """The store takes nothing at the moment."""


@dataclass(slots=True)
class Found:
    """What a pass found: failed deliveries that were missing, by what became of them. `more`: some are left."""

    results: Counter[str] = field(default_factory=Counter)
    pages: int = 0
    more: bool = False

    @property
    def whole(self) -> bool:
        """Whether nothing that had failed is left out: given up, or beyond the pages of one pass."""
        return not self.more and not self.results["unreadable"] and self.pages < MOST_PAGES


@dataclass(frozen=True, slots=True)
class Known:
    """What a trail asks the daemon: the time (ms), whether a job is known to be over, how old a word that a job is
    queued may be (ms) before the forge is asked whether it still is, and what it says then."""

    now: Callable[[], int]
    is_over: Callable[[JobKey], bool]
    confirm_after: Callable[[], int]
    look_up: Callable[[JobKey], Coroutine[Any, Any, JobReport]]


class Trail:
    """The failed deliveries of one hook. `newest` is what the last look at the forge's list began with."""

    def __init__(self, log: DeliveryLog, intake: Intake, store: Store, known: Known) -> None:
        self.log = log
        self.newest: tuple[HookDelivery, ...] = ()
        self._intake = intake
        self._store = store
        self._known = known
        self._since = 0
        self._settled: OrderedDict[str, None] = OrderedDict()
        self._strangers: OrderedDict[int, None] = OrderedDict()
        self._failures: OrderedDict[str, int | None] = OrderedDict()

    async def follow(self, found: Found) -> None:
        """Make one pass; `found` tells how far it came, however it ends. Raises what the forge raises, `NotTaken`,
        and `TimeoutError`."""
        loop, older, newest = asyncio.get_running_loop(), "", 0
        end = loop.time() + PASS_LIMIT
        while found.pages < MOST_PAGES:
            tries = await _bounded(self.log.failed(older))
            found.pages += 1
            if not older:
                self.newest = tries.items
            newest = max([newest, *(one.at for one in tries.items)])
            for one in await self._missing(tries.items):
                if found.results.total() >= MOST_READS or loop.time() >= end:
                    found.more = True
                    return
                found.results[await self._fetch(one)] += 1
            older = tries.older
            if not older or self._reached(tries.items):
                break
        self._since = max(self._since, newest - OVERLAP)

    def _reached(self, items: Iterable[HookDelivery]) -> bool:
        """Say whether all that is older was settled by the pass before, or is of no use any more."""
        oldest = min((one.at for one in items if one.at), default=0)
        return 0 < oldest < max(self._since, self._known.now() - HORIZON)

    async def _missing(self, items: Iterable[HookDelivery]) -> list[HookDelivery]:
        """Return one try of each delivery that we use, that never arrived and that nothing was done about yet."""
        wanted: dict[str, HookDelivery] = {}
        for one in items:
            if one.good:
                _remember(self._settled, one.delivery)  # a later try of it went well
            elif one.used and one.delivery and one.repository not in self._strangers:
                wanted.setdefault(one.delivery, one)
        ids = [DeliveryId(self.log.forge, name) for name in wanted if name not in self._settled]
        seen = await self._store.seen(ids) if ids else set()
        return [wanted[one.id] for one in ids if one not in seen]

    async def _fetch(self, one: HookDelivery) -> str:
        """Bring one delivery in; return what became of it."""
        try:
            delivery, body = await _bounded(self.log.read(one.id))
        except (Limited, NotSent):
            raise
        except (Gone, Refused) as error:
            return self._give_up(one, error)
        except RetryLater as error:
            if self._is_patient(one):
                raise
            return self._give_up(one, error)
        if delivery.report is None:
            return self._settle(one, "unused")
        if not any(scope.serves(delivery.report.key) for scope in self.log.scopes):
            if one.repository is not None:
                _remember(self._strangers, one.repository)
            return self._settle(one, "foreign")
        event = await self._event(delivery, one)
        if event is None:
            return self._settle(one, "unused")
        taken = await self._intake.bring(self.log.forge, one.delivery, event, body)
        if taken is Taken.NOT_STORED:
            raise NotTaken
        return str(taken.value)

    async def _event(self, delivery: Delivery, one: HookDelivery) -> JobReported | None:
        """Return what to tell the core. That a job is queued is an old word by now: the forge is asked, so that no
        runner is made for a job that is over; None where the job is not there any more."""
        report = delivery.report
        assert report is not None
        told = JobReported(report, Told.WEBHOOK)
        fresh = self._known.now() - one.at < self._known.confirm_after()
        if report.status is not ForgeStatus.QUEUED or fresh or self._known.is_over(report.key):
            return told
        try:
            now = await _bounded(self._known.look_up(report.key))
        except (Limited, NotSent):
            raise
        except Gone:
            return None
        except (Denied, Refused):
            return told
        except RetryLater:
            if self._is_patient(one):
                raise
            return told
        return JobReported(_with_origin(now, report), Told.LOOKUP)

    def _is_patient(self, one: HookDelivery) -> bool:
        """Count a failure about this delivery; say whether it may be tried again."""
        failures = (self._failures.pop(one.delivery, None) or 0) + 1
        _remember(self._failures, one.delivery, failures)
        return failures < PATIENCE

    def _give_up(self, one: HookDelivery, error: Exception) -> str:
        fields = {"hook": self.log.name, "delivery": one.delivery, "error": str(error)}
        logger.warning(
            "a failed delivery cannot be read; the reconcile has to repair it", extra={"fields": fields}
        )
        return self._settle(one, "unreadable")

    def _settle(self, one: HookDelivery, result: str) -> str:
        _remember(self._settled, one.delivery)
        return result


async def _bounded(call: Coroutine[Any, Any, T]) -> T:
    return await within(CALL_LIMIT, call)


def _with_origin(now: JobReport, told: JobReport) -> JobReport:
    """A job that is asked for does not say what the delivery said of its repository."""
    public = now.origin.public if now.origin.public is not None else told.origin.public
    fork = now.origin.fork if now.origin.fork is not None else told.origin.fork
    return replace(now, origin=replace(now.origin, public=public, fork=fork))


def _remember(book: OrderedDict[K, V | None], key: K, value: V | None = None) -> None:
    """Note a key, the oldest falling out beyond a bound."""
    book[key] = value
    book.move_to_end(key)
    while len(book) > REMEMBERED:
        book.popitem(last=False)
