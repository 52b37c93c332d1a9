"""A forge's list of deliveries in memory, and a daemon beside it whose clock is the loop's."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from ephemerd.app.catchup import CatchUp
from ephemerd.app.intake import Intake
from ephemerd.core.events import JobReported
from ephemerd.domain.ids import Scope
from ephemerd.domain.job import ForgeStatus, JobReport
from ephemerd.ports.errors import Gone
from ephemerd.ports.hooks import HookDelivery, Tries
from ephemerd.ports.store import DeliveryId
from ephemerd.ports.webhooks import Delivery
from ephemerd.testing.virtual_time import virtually
from tests.unit.app.fakes import SCOPE, T0, FakeClock, FakeStore, report
from tests.unit.app.test_daemon import House
from tests.unit.app.test_intake import FakeWebhooks

BEGAN = 1000.0
"""The time of a virtual loop at its beginning."""


class LoopClock(FakeClock):
    """A clock that moves with the loop, a wall clock for the forge too."""

    def now(self) -> int:
        return T0 + round((asyncio.get_running_loop().time() - BEGAN) * 1000)


class FakeLog:
    """What the forge tried to deliver, oldest first in `tries`; `held` by the number of a try.

    `wrong` is raised by the calls of that name as long as it is there, by `read:N` for one delivery alone.
    """

    def __init__(
        self, clock: LoopClock, name: str = str(SCOPE), scopes: tuple[Scope, ...] = (SCOPE,)
    ) -> None:
        self.name, self.forge, self.scopes = name, "github", scopes
        self.clock = clock
        self.tries: list[HookDelivery] = []
        self.held: dict[int, Delivery] = {}
        self.calls: list[str] = []
        self.looked_at: list[float] = []
        self.wrong: dict[str, Exception] = {}
        self.page = 100
        self.chooses = True

    def fail(
        self,
        number: int = 1,
        status: ForgeStatus = ForgeStatus.QUEUED,
        *,
        ago: float = 0.0,
        delivery: str = "",
        told: JobReport | None = None,
        code: int = 0,
        **more: Any,
    ) -> str:
        """Have a delivery about a job fail, so many seconds ago; return its id."""
        name = delivery or f"{number}-{status.value}"
        at = self.clock.now() - round(ago * 1000)
        tried = {
            "event": "workflow_job",
            "status": code,
            "outcome": "timed out",
            "used": True,
            "repository": 1,
        }
        one = HookDelivery(len(self.tries) + 1, delivery=name, at=at, **{**tried, **more})
        self.tries.append(one)
        self.held[one.id] = Delivery(name, one.event, told or report(number, status))
        return name

    async def failed(self, older: str = "") -> Tries:
        self.calls.append(f"failed {older}".strip())
        self.looked_at.append(asyncio.get_running_loop().time())
        if "failed" in self.wrong:
            raise self.wrong["failed"]
        shown = [one for one in reversed(self.tries) if not (self.chooses and one.good)]
        begin = int(older or 0)
        rest = shown[begin : begin + self.page]
        further = begin + self.page
        return Tries(tuple(rest), str(further) if further < len(shown) else "")

    async def read(self, number: int) -> tuple[Delivery, bytes]:
        self.calls.append(f"read {number}")
        for name in ("read", f"read:{number}"):
            if name in self.wrong:
                raise self.wrong[name]
        if number not in self.held:
            raise Gone("forgotten")
        return self.held[number], b"{}"

    def reads(self) -> list[int]:
        return [int(call.split()[1]) for call in self.calls if call.startswith("read")]


class Hooked(House):
    """A daemon that follows the deliveries of some hooks."""

    def __init__(self, *, store: FakeStore | None = None, logs: Iterable[str] = (str(SCOPE),)) -> None:
        super().__init__(store)
        self.loop_clock = LoopClock()
        self.clock = self.daemon.ports.clock = self.loop_clock
        self.intake = Intake({"github": FakeWebhooks()}, self.daemon.inbox, self.meter)
        self.logs = [FakeLog(self.loop_clock, name) for name in logs]
        self.catch_up = CatchUp(self.daemon, self.intake, self.logs)
        self.daemon.accompany(self.catch_up)

    @property
    def log(self) -> FakeLog:
        return self.logs[0]

    def told(self) -> list[JobReported]:
        """What the core was told of jobs, in order."""
        return [event for event in self.events if isinstance(event, JobReported)]

    async def __aenter__(self) -> Hooked:
        self.events: list[Any] = []
        self.daemon.watch(lambda handled: self.events.append(handled.item.event))
        await super().__aenter__()
        return self

    def knows(self, *deliveries: str) -> bool:
        return {DeliveryId("github", name) for name in deliveries} <= self.store.known

    def recovered(self, result: str = "stored") -> float:
        return self.meter.total("deliveries_recovered_total", forge="github", result=result)


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of a coroutine that runs on a virtual loop."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        virtually(lambda: test(**fixtures))

    return run
