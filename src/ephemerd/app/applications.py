"""The runner application kept current: asked for, fetched ahead, used by new runners, and old ones forgotten.

For each scope whose pools want it, what the forge lists is compared with what is at hand. A newer version is fetched
beside the others and is used by new runners from then on; a version that a live runner may have been made from stays.
Where the forge refuses a version, its list is asked at once. Nothing here ends a runner: an idle one of a version
that ends soon is nominated, and the gate decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from ephemerd.app.application_source import FETCHING, Source
from ephemerd.app.daemon import Daemon
from ephemerd.app.deadline import within
from ephemerd.app.versions import idle, lives, needed_by, start_of, trimmed, used_at
from ephemerd.app.writer import Handled
from ephemerd.core.events import ApplicationTold, EnvironmentExited, KillOrdered, Reconfigured
from ephemerd.domain.exits import REFUSED_VERSION
from ephemerd.domain.ids import Scope
from ephemerd.domain.pool import SECOND
from ephemerd.domain.runner import FINAL, Runner
from ephemerd.ports.applications import Catalogue, Offered, Shelf, Unpacked, Use
from ephemerd.ports.errors import PortError, Refused
from ephemerd.ports.views import ApplicationView

logger = logging.getLogger(__name__)

WHO = "ephemerd"
EVERY = 6 * 3600.0
LOOK = 60.0
"""Seconds between two looks at the list, and at what runs."""
BACKOFF = (30.0, 60.0, 120.0, 300.0, 600.0)
REFUSED_EVERY = 600.0
"""Seconds between two tries: after failures in a row, and while the forge refuses the version that it lists."""
LIST_LIMIT, FETCH_LIMIT = 60.0, 3600.0
"""Outer nets in seconds, above the deadlines that the adapters keep themselves."""


class Applications:
    """The applications of all scopes whose pools want `application = "download"`.

    now       the shell clock, ms
    nowhere   a folder that holds no application, for a pool that has none yet
    changed   called when new runners of some pool are to be made from another folder
    """

    def __init__(
        self,
        shelf: Shelf,
        catalogues: Mapping[str, Catalogue],
        wanted: Mapping[str, Scope],
        *,
        now: Callable[[], int],
        nowhere: Path,
        every: float = EVERY,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`wanted` names the scope of each pool that wants it; `every` is seconds between two looks at a list."""
        self.changed = changed
        self._shelf = shelf
        self._catalogues = catalogues
        self._wanted = dict(wanted)
        self._now = now
        self._nowhere = nowhere
        self._every = every
        self._sources: dict[str, Source] = {}
        self._at_hand: dict[str, Unpacked] = {}
        self._kept: dict[str, list[Use]] = {}
        self._open = False
        self._daemon: Daemon | None = None
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._find_sources()

    # What others ask

    def folder(self, pool: str) -> Path:
        """Return the folder that the next runner of a pool is made from."""
        scope = self._wanted.get(pool)
        source = self._sources.get(str(scope)) if scope is not None else None
        return source.current.folder if source is not None and source.current is not None else self._nowhere

    def held(self, wanted: Mapping[str, Scope] | None = None) -> tuple[tuple[str, str], ...]:
        """Return the pools that cannot start runners, and why; of other pools than the present ones where given."""
        found = []
        for pool, scope in (self._wanted if wanted is None else wanted).items():
            source = self._sources.get(str(scope))
            why = source.missing() if source is not None else FETCHING
            if why:
                found.append((pool, why))
        return tuple(found)

    def views(self) -> tuple[ApplicationView, ...]:
        """Show each scope's application. Cheap."""
        versions = tuple(sorted(one.version for one in self._at_hand.values()))
        return tuple(
            source.view(self._now(), tuple(self._pools(source)), versions)
            for _, source in sorted(self._sources.items())
        )

    def reasons(self) -> list[str]:
        """Say what needs attention, each with what to do; what keeps a pool from starting runners says the core."""
        found = (
            source.reason(self._now(), self._rests(source)) for _, source in sorted(self._sources.items())
        )
        return [reason for reason in found if reason]

    # Its life

    async def open(self) -> None:
        """Look at what is at hand; what cannot be looked at is tried again by itself."""
        if not self._open and self._wanted:
            try:
                await self._shelf.open()
                self._at_hand = {one.key: one for one in await self._shelf.unpacked()}
                self._kept = await self._shelf.uses()
            except PortError as error:
                for source in self._sources.values():
                    self._failed(source, error)
                return
            self._open = True
            self._find_sources()
            self.changed()

    def attach(self, daemon: Daemon) -> None:
        """Tell this daemon's core what there is, and hear what becomes of it."""
        self._daemon = daemon
        daemon.held = self.held
        daemon.watch(self._heard)

    def begin(self) -> None:
        """Keep applications current from now on, as a task of the running loop."""
        self._task = asyncio.create_task(self._run(), name="runner applications")

    async def close(self) -> None:
        """Stop; a fetch that is under way is gone on with by the next life."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._shelf.close()

    def reconfigure(self, wanted: Mapping[str, Scope], every: float) -> None:
        """Serve these pools from now on; what failed is tried at once, since a person may have mended it."""
        self._wanted, self._every = dict(wanted), every
        self._find_sources()
        for source in self._sources.values():
            source.due = 0.0 if source.problem else source.due
        self._news.set()

    # Below: how.

    def _find_sources(self) -> None:
        """Have a source for each scope that is wanted, with what is known of it from earlier lives."""
        for scope in dict.fromkeys(self._wanted.values()):
            source = self._sources.setdefault(str(scope), Source(scope))
            if not source.uses:
                source.uses = list(self._kept.get(str(scope), ()))
            if source.current is None:
                keys = (use.key for use in source.uses if use.key in self._at_hand)
                source.current = self._at_hand.get(next(keys, ""))
        for name in [
            name for name, source in self._sources.items() if source.scope not in self._wanted.values()
        ]:
            self._kept[name] = self._sources.pop(name).uses

    def _pools(self, source: Source) -> list[str]:
        return [pool for pool, scope in self._wanted.items() if scope == source.scope]

    async def _run(self) -> None:
        while True:
            self._news.clear()
            pause = LOOK
            try:
                await self.round()
                pause = self._pause()
            except Exception:
                logger.exception("looking after runner applications failed; again")
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._news.wait()

    def _pause(self) -> float:
        now = asyncio.get_running_loop().time()
        return max(0.0, min([LOOK, *(source.due - now for source in self._sources.values())]))

    async def round(self) -> None:
        """Do whatever is due."""
        due = [one for one in self._sources.values() if one.due <= asyncio.get_running_loop().time()]
        if due:
            await self.open()
        for source in due if self._open else ():
            await self._renew(source)
        self._tell()
        self._retire()
        await self._prune()

    # One scope's application

    async def _renew(self, source: Source) -> None:
        """Ask what is listed, and have it at hand and in use."""
        if source.current is not None and not self._rests(source):
            source.refused.discard(source.current.key)  # it was taken back
        self._tell()
        try:
            catalogue = self._catalogues.get(source.scope.forge)
            if catalogue is None:
                raise Refused(f"the forge {source.scope.forge} is not connected yet; restart the daemon")
            offered = self._mine(source, await within(LIST_LIMIT, catalogue.offered(source.scope)))
            source.listed = offered.version
            found = await within(FETCH_LIMIT, self._fetched(source, offered))
            await self._use(source, found)
            await self._ask_ends(source, catalogue)
        except PortError as error:
            self._failed(source, error)
        except TimeoutError:
            self._failed(source, PortError("it took too long"))
        except Exception:  # what is odd about one scope keeps no other waiting
            logger.exception(
                "a runner application failed to be renewed", extra={"fields": {"scope": str(source.scope)}}
            )
            self._failed(source, PortError("an unforeseen failure; the log says which"))
        else:
            source.problem, source.failures, source.failing = "", 0, None
            stuck = source.current is not None and source.current.key in source.refused
            source.due = asyncio.get_running_loop().time() + (
                min(REFUSED_EVERY, self._every) if stuck else self._every
            )
        finally:
            source.progress = None
        source.checked = self._now()

    def _mine(self, source: Source, offered: list[Offered]) -> Offered:
        system, architecture = self._shelf.system, self._shelf.architecture
        for one in offered:
            if (one.system, one.architecture) == (system, architecture):
                return one
        raise Refused(
            f"{source.scope} offers no runner application for {system} {architecture}: unpack one by hand and write "
            "its folder into runner.application"
        )

    async def _fetched(self, source: Source, offered: Offered) -> Unpacked:
        if (found := self._at_hand.get(offered.key)) is not None:
            return found
        fields = {"scope": str(source.scope), "version": offered.version}
        logger.info("fetching a runner application", extra={"fields": fields})

        def progress(done: int, total: int) -> None:
            source.progress = (done, total)

        found = await self._shelf.fetch(offered, progress)
        self._at_hand[found.key] = found
        logger.info("a runner application is here", extra={"fields": {**fields, "folder": str(found.folder)}})
        return found

    async def _use(self, source: Source, found: Unpacked) -> None:
        """Make new runners from a version, and say so to the core, which may have waited for it."""
        if source.uses and source.uses[0].key == found.key and source.current == found:
            return
        before = source.current
        if not source.uses or source.uses[0].key != found.key:
            uses = trimmed([Use(found.key, self._now()), *source.uses], self._at_hand)
            await self._shelf.keep_uses({**self._kept, **self._all_uses(), str(source.scope): uses})
            source.uses = uses
        source.current = found
        self.changed()
        fields = {
            "scope": str(source.scope),
            "version": found.version,
            "before": before.version if before else "",
        }
        logger.info("new runners are made from another runner application", extra={"fields": fields})
        for pool in self._pools(source):
            self._send(ApplicationTold(pool))

    def _all_uses(self) -> dict[str, list[Use]]:
        return {name: source.uses for name, source in self._sources.items() if source.uses}

    async def _ask_ends(self, source: Source, catalogue: Catalogue) -> None:
        """Ask until when the versions in use are good; that it cannot be told is no failure."""
        for use in source.uses[:2]:
            one = self._at_hand.get(use.key)
            if one is None:
                continue
            try:
                ends = await within(LIST_LIMIT, catalogue.ends(source.scope, one.version))
            except (PortError, TimeoutError):
                continue
            if ends is not None:
                source.ends[use.key] = ends

    def _failed(self, source: Source, error: PortError) -> None:
        loop = asyncio.get_running_loop()
        wait = BACKOFF[min(source.failures, len(BACKOFF) - 1)]
        source.failures += 1
        source.failing = self._now() if source.failing is None else source.failing
        source.problem = error.detail.rstrip(". ")
        source.due = loop.time() + max(wait, min((error.after_ms or 0) / SECOND, self._every))
        fields = {
            "scope": str(source.scope),
            "error": error.detail,
            "again_in_s": round(source.due - loop.time()),
        }
        logger.warning("the runner application could not be renewed", extra={"fields": fields})

    # What the core hears

    def _send(self, event: ApplicationTold | KillOrdered) -> None:
        if self._daemon is not None and not self._daemon.stopping:
            self._daemon.inbox.tell(event)

    def _tell(self) -> None:
        """Tell the core where a pool's row says otherwise than it is."""
        if self._daemon is None or not self._daemon.ready:
            return
        held, rows = dict(self.held()), self._daemon.core.state.pools
        for pool, row in rows.items():
            if row.configured and row.missing != held.get(pool, ""):
                self._send(ApplicationTold(pool, held.get(pool, "")))

    def _heard(self, handled: Handled) -> None:
        """After a commit: a version was refused, or the configuration changed."""
        event = handled.item.event
        if isinstance(event, Reconfigured):
            self._news.set()
        if not isinstance(event, EnvironmentExited) or event.code != REFUSED_VERSION:
            return
        for kind, _, row in handled.step.changed:
            if kind == "runner" and isinstance(row, Runner) and row.id == event.runner and row.hard is None:
                self._refused(row)

    def _refused(self, row: Runner) -> None:
        """A newer version than the refused one ends the pool's rest at once; without one the list is asked now."""
        scope = self._wanted.get(row.pool)
        source = self._sources.get(str(scope)) if scope is not None else None
        if source is None or source.current is None:
            return
        key = used_at(source.uses, start_of(row))
        if key is not None:
            source.refused.add(key)
        if key is not None and key != source.current.key:
            self._send(ApplicationTold(row.pool))
        else:
            source.due = min(source.due, asyncio.get_running_loop().time())
            self._news.set()

    # Old versions

    def _retire(self) -> None:
        """Nominate idle runners of a version that ends soon: one a pool at a time, all where it has ended."""
        if self._daemon is None or not self._daemon.ready:
            return
        rows = [row for row in self._daemon.core.state.runners.values() if row.state not in FINAL]
        leaving = {row.pool for row in rows if row.order_given is not None and row.order_given.who == WHO}
        for row in sorted(rows, key=lambda row: row.order):
            scope = self._wanted.get(row.pool)
            source = self._sources.get(str(scope)) if scope is not None else None
            if source is None or row.order_given is not None or not idle(row):
                continue
            old = source.ending(row, self._at_hand, self._now())
            if old is None or (row.pool in leaving and old.key not in source.refused):
                continue
            leaving.add(row.pool)
            newer = source.current.version if source.current is not None else ""
            why = f"its runner application {old.version} is, or will soon be, refused; there is {newer}"
            self._send(KillOrdered(WHO, row.id, why))

    async def _prune(self) -> None:
        """Remove the versions that no runner, and no scope, needs any more."""
        daemon = self._daemon
        if daemon is None or not daemon.ready or not self._open:
            return
        if any(host.listed is None for host in daemon.core.state.hosts.values() if host.configured):
            return  # what runs without our knowledge is not known yet
        if any(source.current is None for source in self._sources.values()):
            return  # what was fetched for it may not be in use yet
        rows = [row for row in daemon.core.state.runners.values() if lives(row)]
        needs = needed_by({**self._kept, **self._all_uses()}, rows, self._wanted)
        for key in [key for key in self._at_hand if needs is not None and key not in needs]:
            try:
                await self._shelf.remove(key)
            except PortError as error:
                logger.warning("an old runner application stays", extra={"fields": {"error": error.detail}})
                continue
            logger.info("an old runner application was removed", extra={"fields": {"key": key}})
            del self._at_hand[key]

    def _rests(self, source: Source) -> bool:
        """Say whether a pool of the scope rests since the forge refused its version."""
        pools = self._daemon.core.state.pools if self._daemon is not None else {}
        return any(pools[pool].refused is not None for pool in self._pools(source) if pool in pools)
