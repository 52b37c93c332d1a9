"""What a person orders: each an event, acknowledged after its commit."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable

from ephemerd.app import render
from ephemerd.app.daemon import Daemon
from ephemerd.app.inbox import Fate, Receipt
from ephemerd.app.writer import Handled
from ephemerd.core.events import (
    CordonOrdered,
    DrainOrdered,
    Event,
    KillOrdered,
    SweepOrdered,
    Target,
    UncordonOrdered,
)
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.runner import FINAL, Decision, Rule, Runner, RunnerState
from ephemerd.ports.errors import NotStored, PortError
from ephemerd.ports.views import OrderView

STORE_WAIT = 8.0
KILL_WAIT = 20.0
"""Seconds that an order to end a runner waits for the gate: a probe (10 s), the fence and the settling (5 s)."""


COMPARED, LONGEST = 100, 200
"""Names that are compared by resemblance at most, and characters of what they are compared with."""
TARGETS = tuple(target.value for target in Target)


class Unknown(Exception):
    """No such runner, pool or host; `near` holds what was perhaps meant."""

    def __init__(self, what: str, name: str, near: tuple[str, ...]) -> None:
        super().__init__(f"there is no {what} {name!r}")
        self.near = near


class NotTaken(Exception):
    """The order could not be stored; nothing was done."""


def near(name: str, known: Iterable[str], most: int = 5) -> tuple[str, ...]:
    """Return the known names that resemble `name`: those that contain it, then similar ones.

    Resemblance takes half a millisecond a name, and there may be 20,000: it is looked for among the last ones of
    the same form, a job's or a runner's.
    """
    names = list(known)
    inside = [known for known in names if name and name in known]
    alike = [known for known in names if ("/" in known) == ("/" in name)]
    close = difflib.get_close_matches(name[:LONGEST], alike[-COMPARED:], n=most, cutoff=0.5)
    return tuple(dict.fromkeys([*inside, *close]))[:most]


class Operator:
    """Orders to a running daemon. `target` is one of `TARGETS`; `name` names the pool or host.

    Raises `Unknown` for what does not exist and `NotTaken` where nothing was stored.
    """

    def __init__(self, daemon: Daemon, *, kill_wait: float = KILL_WAIT) -> None:
        self._daemon = daemon
        self._kill_wait = kill_wait

    async def cordon(self, who: str, target: str, name: str = "", reason: str = "") -> OrderView:
        """Plan nothing there any more; unbound runners are nominated as they listen."""
        self._check(target, name)
        await self._order(CordonOrdered(who, Target(target), name, reason))
        return OrderView("accepted", f"{_named(target, name)} is cordoned")

    async def uncordon(self, who: str, target: str, name: str = "") -> OrderView:
        """End a cordon or a drain."""
        self._check(target, name)
        await self._order(UncordonOrdered(who, Target(target), name))
        return OrderView("accepted", f"{_named(target, name)} takes jobs again")

    async def drain(self, who: str, target: str, name: str = "", reason: str = "") -> OrderView:
        """Cordon until no runner is left there."""
        self._check(target, name)
        await self._order(DrainOrdered(who, Target(target), name, reason))
        return OrderView("accepted", f"{_named(target, name)} drains; its running jobs are waited for")

    async def sweep(self) -> OrderView:
        """Evaluate all nomination rules now."""
        await self._order(SweepOrdered())
        return OrderView("accepted", "all nomination rules were evaluated")

    async def kill(self, who: str, runner: str, reason: str, even_if_busy: bool = False) -> OrderView:
        """Send a runner through the gate and wait a while for what the gate decides."""
        runners = self._daemon.core.state.runners
        row = runners.get(RunnerId(runner))
        if row is None or row.state in FINAL:
            raise Unknown("live runner", runner, near(runner, runners))
        outcome: asyncio.Future[OrderView] = asyncio.get_running_loop().create_future()

        def watcher(handled: Handled) -> None:
            verdict = _verdict(handled, RunnerId(runner))
            if verdict is not None and not outcome.done():
                outcome.set_result(verdict)

        end_watch = self._daemon.watch(watcher)
        try:
            await self._order(KillOrdered(who, RunnerId(runner), reason, even_if_busy))
            async with asyncio.timeout(self._kill_wait):
                return await outcome
        except TimeoutError:
            return OrderView(
                "pending", "the gate has not decided yet; `ephemerd explain` tells how it goes on"
            )
        finally:
            end_watch()

    async def clear_quarantine(self, upto: int) -> OrderView:
        """Forget what is in quarantine up to and including that number; health recovers with the last one."""
        store = self._daemon.ports.store
        try:
            cleared = await store.clear_quarantine(upto)
            self._daemon.pulse.quarantined = await store.quarantined()
        except (NotStored, PortError) as error:
            raise NotTaken(f"the quarantine could not be cleared: {error}") from error
        return OrderView("accepted", f"{cleared} event(s) were taken out of quarantine and forgotten")

    def _check(self, target: str, name: str) -> None:
        setup = self._daemon.setup
        known = {
            Target.POOL: [pool.name for pool in setup.pools],
            Target.HOST: [host.name for host in setup.hosts],
        }.get(Target(target), [""])
        if name not in known:
            raise Unknown(target, name, near(name, known))

    async def _order(self, event: Event) -> Receipt:
        reply = self._daemon.inbox.offer(event)
        if reply is None:
            raise NotTaken("the daemon stops or is overloaded; try again")
        try:
            async with asyncio.timeout(STORE_WAIT):
                receipt = await reply
        except TimeoutError:
            raise NotTaken("the order was not committed in time; look before trying again") from None
        if receipt.fate is not Fate.STORED:
            raise NotTaken("the order could not be stored; the log and /healthz say why")
        return receipt


def _named(target: str, name: str) -> str:
    return "everything" if target == Target.ALL.value else f"{target} {name}"


def _verdict(handled: Handled, runner: RunnerId) -> OrderView | None:
    """Return the answer that this step gives to an order to end the runner, None where it gives none."""
    for decision in handled.step.decisions:
        if decision.runner == runner and decision.rule == Rule.OPERATOR.value:
            return _decided(decision)
    for kind, key, row in handled.step.changed:
        if kind == "runner" and key == runner:
            if row is None or (isinstance(row, Runner) and row.state in FINAL):
                return OrderView("accepted", "the runner is gone")
            if isinstance(row, Runner) and row.state is RunnerState.RETIRING:
                return OrderView("accepted", "the runner is being ended")
    return None


def _decided(decision: Decision) -> OrderView:
    outcome = "vetoed" if decision.outcome == "vetoed" else "accepted"
    return OrderView(outcome, decision.reason, render.decision(decision))
