"""Reading the configuration again: a bad file is refused and changes nothing, a good one becomes an event.

What it means is decided elsewhere: `read` (made where everything is joined) looks at the file and says what can
be applied; the core takes the new setup in; only once that is committed are the ports told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from ephemerd.app.daemon import Daemon
from ephemerd.app.inbox import Fate, Receipt
from ephemerd.app.operator import STORE_WAIT, NotTaken
from ephemerd.app.writer import Handled
from ephemerd.core.events import Reconfigured
from ephemerd.domain.pool import Setup
from ephemerd.ports.views import ChangeView, FindingView, ReloadView

logger = logging.getLogger(__name__)

READ_LIMIT = 20.0
"""Seconds that reading the file and looking at the machine may take."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A configuration that was read.

    setup     what the core is to know; None where the configuration was refused
    held      the pools that cannot start runners as it stands, and why
    apply     tells the ports and the shell; called at the moment of the commit, must not wait
    """

    setup: Setup | None
    changes: tuple[ChangeView, ...] = ()
    findings: tuple[FindingView, ...] = ()
    held: tuple[tuple[str, str], ...] = ()
    apply: Callable[[], None] = field(default=lambda: None, repr=False)


class Reloader:
    """One reload at a time; `begin` and `end` tell the service manager."""

    def __init__(
        self,
        daemon: Daemon,
        read: Callable[[], Prepared],
        *,
        begin: Callable[[], None] = lambda: None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self._daemon = daemon
        self._read = read
        self._begin = begin
        self._end = end
        self._turn = asyncio.Lock()

    async def reload(self, who: str) -> ReloadView:
        """Read the file again and take in what can be. Raises `NotTaken` where nothing could be stored."""
        async with self._turn:
            self._begin()
            try:
                return await self._reload(who)
            finally:
                self._end()

    async def _reload(self, who: str) -> ReloadView:
        try:
            async with asyncio.timeout(READ_LIMIT):
                prepared = await asyncio.to_thread(self._read)
        except TimeoutError:
            raise NotTaken(f"the configuration could not be read within {READ_LIMIT:.0f} s") from None
        for finding in prepared.findings:
            level = logging.ERROR if finding.level == "error" else logging.WARNING
            text = "the new configuration: %s: %s (%s)"
            logger.log(level, text, finding.where, finding.what, finding.todo)
        if prepared.setup is None:
            return self._refused(who, prepared)
        await self._commit(who, prepared)
        return self._taken(who, prepared)

    async def _commit(self, who: str, prepared: Prepared) -> None:
        assert prepared.setup is not None
        event = Reconfigured(who, prepared.setup, prepared.held)
        reply = self._daemon.inbox.offer(event)
        if reply is None:
            raise NotTaken("the daemon stops or is overloaded; try again")
        self._apply_once(event, reply, prepared.apply)
        try:
            async with asyncio.timeout(STORE_WAIT):
                receipt = await asyncio.shield(reply)
        except TimeoutError:
            raise NotTaken("the reload was not committed in time; look before trying again") from None
        if receipt.fate is not Fate.STORED:
            raise NotTaken("the reload could not be stored; the log and /healthz say why")

    def _apply_once(
        self, event: Reconfigured, reply: asyncio.Future[Receipt], apply: Callable[[], None]
    ) -> None:
        """Tell the ports as soon as the event is committed, also when nobody waits for it any more: else the core
        would serve pools that the ports do not know."""
        over = False

        def committed() -> None:
            nonlocal over
            if not over:
                over = True
                end_watch()
                apply()

        def watcher(handled: Handled) -> None:
            if handled.item.event is event:
                committed()

        def answered(done: asyncio.Future[Receipt]) -> None:
            nonlocal over
            if not done.cancelled() and done.result().fate is Fate.STORED:
                committed()
            elif not over:
                over = True
                end_watch()

        end_watch = self._daemon.watch(watcher)
        reply.add_done_callback(answered)

    def _refused(self, who: str, prepared: Prepared) -> ReloadView:
        first = next(finding for finding in prepared.findings if finding.level == "error")
        said = f"{first.where}: {first.what} ({first.todo})"
        self._daemon.pulse.refused = said
        logger.error("the new configuration is refused; the old one stays in use", extra=_by(who))
        return ReloadView(
            "refused",
            f"the new configuration is refused, the old one stays in use: {said}",
            findings=prepared.findings,
        )

    def _taken(self, who: str, prepared: Prepared) -> ReloadView:
        pulse = self._daemon.pulse
        pulse.refused = ""
        waiting = tuple(change.key for change in prepared.changes if not change.applied)
        if waiting != pulse.needs_restart and waiting:
            logger.warning(
                "some of the new configuration needs a restart",
                extra={"fields": {"keys": ", ".join(waiting)}},
            )
        pulse.needs_restart = waiting
        applied = len(prepared.changes) - len(waiting)
        logger.info("the configuration was read again", extra=_by(who, changed=applied))
        if not prepared.changes:
            return ReloadView("unchanged", "nothing differs from what is in use", findings=prepared.findings)
        detail = f"{_changes(applied)} applied"
        if waiting:
            detail += f"; a restart is needed for {', '.join(waiting)}"
        return ReloadView("applied", detail, prepared.changes, prepared.findings)


def _changes(count: int) -> str:
    return "1 change" if count == 1 else f"{count} changes"


def _by(who: str, **more: object) -> dict[str, dict[str, object]]:
    return {"fields": {"by": who, **more}}
