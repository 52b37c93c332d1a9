"""When lost deliveries are fetched: after the start, after an outage of ours, and then now and again.

A forge does not repeat what it could not deliver, but lists it (GitHub's webhook documentation). A pass over that
list is due when a process life begins, when deliveries were turned away for our sake, when a listing shows a job that
no delivery told of, when the machine slept, and every `reconcile_every`: while nothing failed that is one question
whose answer is a 304. Passes only read, so that they wait first when a budget runs low; where they may not read, the
reconcile goes on alone, and a person is told once what is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from ephemerd.app.daemon import Daemon
from ephemerd.app.intake import Intake
from ephemerd.app.trail import Found, Known, NotTaken, Trail
from ephemerd.app.writer import Handled
from ephemerd.core.events import JobReported, JobsRead, MachineSlept
from ephemerd.domain.ids import JobKey, Scope
from ephemerd.domain.job import ENDED_STATUSES, Job, JobReport
from ephemerd.domain.pool import SECOND
from ephemerd.ports.errors import Limited, NotSent, PortError, Refused, RetryLater
from ephemerd.ports.hooks import DeliveryLog, HookDelivery
from ephemerd.ports.views import RecoveryView

logger = logging.getLogger(__name__)

SOON = 2.0
"""Seconds from a reason for a pass to the pass: more of the same kind usually follows."""
BARRED_FOR = 3600.0
"""Seconds until a hook that may not be read, or is not there, is tried again."""
LEAST_FAILED = 3
"""So many failures in a row, without a delivery that came through, are no accident."""
SLACK = 30 * SECOND
"""ms by which the forge's clock and ours may differ, when its failures are laid beside what we heard."""


@dataclass(slots=True)
class _Plan:
    """When a trail is followed next; times are the loop's, in seconds.

    barred   until then no reason brings it forward
    again    a reason came during the pass
    absent   no hook was found that leads to us; `hoped`: when a delivery last said otherwise
    faults   passes in a row that got no answer
    """

    trail: Trail
    due: float = 0.0
    began: float = float("-inf")
    barred: float = float("-inf")
    again: bool = False
    absent: bool = False
    hoped: float = float("-inf")
    faults: int = 0
    told: str = ""
    recovered: int = 0
    looked: int | None = None


class CatchUp:
    """Follows the trails of all hooks, one pass at a time, while the daemon lives."""

    def __init__(self, daemon: Daemon, intake: Intake, logs: Iterable[DeliveryLog]) -> None:
        """What is learnt is shown in `daemon.pulse.recoveries`, by the hook's name."""
        self._daemon = daemon
        self._intake = intake
        self._logs = tuple(logs)
        self._plans: list[_Plan] = []
        self._heard: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        intake.watch = self
        daemon.watch(self._saw)

    def begin(self) -> None:
        """Make passes from now on, as a task of the running loop."""
        if self._task is None:
            self.replace(self._logs)
            self._task = asyncio.create_task(self._run(), name="catch-up")

    def replace(self, logs: Iterable[DeliveryLog]) -> None:
        """Follow these hooks from now on, and no others."""
        loop, recoveries = asyncio.get_running_loop(), self._daemon.pulse.recoveries
        before = {plan.trail.log.name: plan.recovered for plan in self._plans}
        self._logs = tuple(logs)
        self._plans = [self._plan(log, before.get(log.name, 0)) for log in self._logs]
        recoveries.clear()
        for plan in self._plans:
            self._heard.setdefault(plan.trail.log.forge, loop.time())
            self._show(plan)
        self._changed.set()

    def _plan(self, log: DeliveryLog, recovered: int) -> _Plan:
        trail = Trail(log, self._intake, self._daemon.ports.store, self._known(log.forge))
        return _Plan(trail, recovered=recovered)

    async def close(self) -> None:
        """Make no more passes; what was fetched is stored."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # What gives a reason for a pass

    def heard(self, forge: str) -> None:
        """A delivery was verified: the forge reaches us."""
        now = self._heard[forge] = asyncio.get_running_loop().time()
        for plan in self._plans:
            if plan.trail.log.forge != forge:
                continue
            if plan.absent and now - plan.hoped >= BARRED_FOR:
                plan.absent, plan.hoped, plan.barred, plan.due = False, now, now, now + SOON
                self._changed.set()
            if self._daemon.pulse.recoveries[plan.trail.log.name].failing:
                self._show(plan)

    def missed(self, forge: str) -> None:
        """A delivery may have been turned away that the forge will not repeat."""
        self._wake(forge)

    def _saw(self, handled: Handled) -> None:
        event = handled.item.event
        if isinstance(event, MachineSlept):
            self._wake(None)
        elif isinstance(event, JobReported):
            trust = self._daemon.executor.trust(event.report.key.forge)
            if trust is not None:
                trust.heard(event.report.key, handled.now)
        elif isinstance(event, JobsRead):
            self._listed(event.scope.forge, handled)

    def _listed(self, forge: str, handled: Handled) -> None:
        """A listing was taken in: what it shows first is looked for among the deliveries, and is to be found there."""
        rows = (row for _, _, row in handled.step.changed if isinstance(row, Job))
        news = [row for row in rows if _is_news(row, handled.now)]
        trust = self._daemon.executor.trust(forge)
        for row in news:
            if trust is not None:
                trust.untold(row.key, handled.now)
        if news:
            self._wake(forge)

    def _wake(self, forge: str | None) -> None:
        now, least = asyncio.get_running_loop().time(), self._pause()
        for plan in self._plans:
            if forge is None or plan.trail.log.forge == forge:
                plan.due = min(plan.due, max(now + SOON, plan.began + least, plan.barred))
                plan.again = True
        self._changed.set()

    # Passes

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            plan = min(self._plans, key=lambda one: one.due, default=None)
            if plan is None or plan.due > loop.time():
                await _until(None if plan is None else plan.due, self._changed)
            else:
                await self._round(plan)

    async def _round(self, plan: _Plan) -> None:
        """Make one pass and say when the next one is due. Raises nothing but a cancellation."""
        loop = asyncio.get_running_loop()
        plan.began, plan.again = loop.time(), False
        if self._is_closed(plan.trail.log.scopes):
            plan.due = plan.began + self._pause()
            return
        found, now = Found(), self._daemon.ports.clock.now()
        try:
            await plan.trail.follow(found)
        except (NotTaken, TimeoutError):
            plan.due = loop.time() + self._backoff(plan)
        except (Limited, NotSent) as error:
            plan.due = loop.time() + max((error.after_ms or 0) / SECOND, self._pause())
        except RetryLater as error:
            logger.info("failed deliveries could not be looked for", extra={"fields": _fields(plan, error)})
            plan.due = loop.time() + self._backoff(plan)
        except PortError as error:
            plan.barred = plan.due = loop.time() + BARRED_FOR
            plan.absent = isinstance(error, Refused)
            self._tell(plan, error)
            if trust := self._daemon.executor.trust(plan.trail.log.forge):
                trust.closed(plan.trail.log.scopes)
        except Exception:
            logger.exception("looking for failed deliveries failed", extra={"fields": _fields(plan)})
            plan.due = loop.time() + self._every()
        else:
            self._went_well(plan, found, now)
        self._count(plan, found)
        if plan in self._plans:
            self._show(plan)

    def _went_well(self, plan: _Plan, found: Found, began: int) -> None:
        plan.faults, plan.told = 0, ""
        plan.due = plan.began + (self._pause() if found.more or plan.again else self._every())
        if not found.more:
            plan.looked = self._daemon.ports.clock.now()
            if trust := self._daemon.executor.trust(plan.trail.log.forge):
                trust.read_back(plan.trail.log.scopes, began, whole=found.whole)

    def _tell(self, plan: _Plan, error: PortError) -> None:
        if plan.told != error.detail:
            plan.told = error.detail
            what = (
                "failed deliveries cannot be fetched; the reconcile repairs alone what they would have told"
            )
            logger.warning(what, extra={"fields": _fields(plan, error)})

    def _count(self, plan: _Plan, found: Found) -> None:
        if not found.results:
            return
        plan.recovered += found.results["stored"]
        for result, count in sorted(found.results.items()):
            self._daemon.ports.meter.count(
                "deliveries_recovered_total", float(count), forge=plan.trail.log.forge, result=result
            )
        fields = {**_fields(plan), **found.results, "pages": found.pages, "more": found.more}
        logger.info("failed deliveries were fetched from the forge", extra={"fields": fields})

    def _backoff(self, plan: _Plan) -> float:
        plan.faults += 1
        return min(self._pause() * 2.0 ** (plan.faults - 1), max(self._every(), self._pause()))

    def _pause(self) -> float:
        """Least seconds between two passes, and the first pause after one that failed."""
        return self._daemon.setup.policy.try_silent_every / SECOND

    def _every(self) -> float:
        return self._daemon.setup.policy.reconcile_every / SECOND

    def _is_closed(self, scopes: Iterable[Scope]) -> bool:
        """Say whether the forge gives none of these scopes an answer: it is not asked for what can wait."""
        state, now = self._daemon.core.state, self._daemon.ports.clock.now()
        rows = [state.scopes.get(str(scope)) for scope in scopes]
        return all(
            row is not None and (row.silent is not None or bool(row.denied) or row.limited_until > now)
            for row in rows
        )

    def _known(self, forge: str) -> Known:
        daemon = self._daemon

        def is_over(key: JobKey) -> bool:
            row = daemon.core.state.jobs.get(JobKey(key.forge, key.repository.lower(), key.id))
            return row is not None and row.status in ENDED_STATUSES

        async def look_up(key: JobKey) -> JobReport:
            return await daemon.ports.forges[forge].job(key)

        return Known(
            now=daemon.ports.clock.now,
            is_over=is_over,
            confirm_after=lambda: daemon.setup.policy.confirm_after,
            look_up=look_up,
        )

    # What is shown

    def _show(self, plan: _Plan) -> None:
        log = plan.trail.log
        self._daemon.pulse.recoveries[log.name] = RecoveryView(
            log.name, log.forge, plan.looked, plan.recovered, plan.told, self._failing(plan)
        )

    def _failing(self, plan: _Plan) -> str:
        """Return a sentence where nothing that the forge sent lately came through, else ""."""
        log, policy = plan.trail.log, self._daemon.setup.policy
        now = self._daemon.ports.clock.now()
        silent = asyncio.get_running_loop().time() - self._heard.get(log.forge, float("-inf"))
        failed = [one for one in plan.trail.newest if not one.good and one.at > now - silent * SECOND + SLACK]
        if len(failed) < LEAST_FAILED:
            return ""
        lately = 2 * policy.reconcile_every + policy.stuck_after
        if now - failed[-1].at < policy.stuck_after or now - failed[0].at > lately:
            return ""
        many = (
            f"the last {len(failed)}"
            if len(failed) < len(plan.trail.newest)
            else f"all of the last {len(failed)}"
        )
        return (
            f"The forge cannot deliver by the hook of {log.name}: {many} deliveries failed, the latest with "
            f'"{failed[0].outcome or failed[0].status}". {_todo(failed[0])} What failed is fetched from the forge '
            "meanwhile, later than it would be told."
        )


async def _until(when: float | None, changed: asyncio.Event) -> None:
    """Wait until the loop's time is `when`, or until something changes."""
    try:
        async with asyncio.timeout_at(when):
            await changed.wait()
    except TimeoutError:
        return


def _is_news(row: Job, now: int) -> bool:
    """Say whether a listing made this row: a job that lives, and of which nothing was heard before."""
    return row.first_seen == now and row.status not in ENDED_STATUSES


def _fields(plan: _Plan, error: PortError | None = None) -> dict[str, object]:
    named: dict[str, object] = {"hook": plan.trail.log.name}
    return named if error is None else {**named, "error": error.detail}


def _todo(latest: HookDelivery) -> str:
    if latest.status in (401, 403):
        return "The hook has another secret than the daemon: run `ephemerd webhook install`."
    if latest.status in (404, 405):
        return "The hook leads elsewhere: correct `webhook_url`, and run `ephemerd webhook install`."
    if latest.status:
        return (
            "Look at what answers in front of the daemon, such as a proxy; `ephemerd webhook test` tries it."
        )
    return (
        "Check that `webhook_url` leads to this machine, through firewall and proxy, with a certificate that the "
        "forge accepts; `ephemerd webhook test` tries it."
    )
