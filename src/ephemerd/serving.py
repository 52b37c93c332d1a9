"""A daemon's life as a process: begun from its configuration, told to the service manager, ended in peace.

Must not know `testing`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass

from ephemerd import bootstrap
from ephemerd.adapters.system.loopwatch import LoopWatch
from ephemerd.adapters.system.notify import Notifier
from ephemerd.adapters.telemetry.logs import set_level, set_up_logging, wants_color
from ephemerd.app.daemon import Daemon
from ephemerd.app.exhaustion import Exhaustion
from ephemerd.app.feed import Feed
from ephemerd.app.operator import NotTaken
from ephemerd.app.reload import Prepared, Reloader
from ephemerd.app.writer import Unbootable
from ephemerd.bootstrap import Parts
from ephemerd.config import reload
from ephemerd.config.effective import Effective, Examined
from ephemerd.config.findings import Code, Finding, errors
from ephemerd.domain.pool import SECOND
from ephemerd.joining import delivery_logs, downloads, verifiers
from ephemerd.ports.errors import NewerStore, PortError, StoreHeld
from ephemerd.ports.views import ChangeView, FindingView
from ephemerd.storing import StartError

logger = logging.getLogger(__name__)

GARBAGE_AFTER = 10_000
"""Objects made and not freed until garbage is looked for. By Python's own number, 700, a dozen deliveries cost a look,
and looks a fifteenth of the daemon's time under load; they find next to nothing, for little here refers to itself."""
STATUS_EVERY = 5.0
"""Seconds between two lines of status for the service manager."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line asks of `serve` beside the configuration.

    log_level   goes before the configuration's; "" where it was not given
    log_format  `json`, `console`, or `auto`: console on a terminal
    open_api    HOST:PORT on loopback where API, metrics and health are served without a token, for
                demonstrations
    reread      reads the configuration again, from the same sources
    """

    log_level: str = ""
    log_format: str = "auto"
    open_api: str | None = None
    reread: Callable[[], Examined] | None = None


def serve(effective: Effective, wishes: Wishes | None = None) -> int:
    """Run the daemon until a signal ends it; return the exit code."""
    wishes = wishes or Wishes()
    style = wishes.log_format
    if style == "auto":
        style = "console" if sys.stderr.isatty() else "json"
    level = wishes.log_level or effective.settings.server.log_level
    set_up_logging(level, style, color=wants_color(sys.stderr, os.environ))
    try:
        return asyncio.run(_serve(effective, wishes))
    except StartError as error:
        sys.stderr.write(f"error: {error}\n  fix: {error.todo}\n")
        return error.code


async def _serve(effective: Effective, wishes: Wishes) -> int:
    signals = _Signals()
    parts = bootstrap.build(effective)
    manager = Notifier.from_environment(os.environ)
    reloader = _reloader(effective, parts, wishes, manager)
    async with AsyncExitStack() as stack:
        stack.callback(manager.close)
        stack.push_async_callback(parts.daemon.close)
        await _open(parts.daemon)
        look_for_garbage_seldom()
        await parts.applications.open()
        feed = Feed(parts.daemon)
        for listener in bootstrap.listeners(effective, parts, reloader, feed, wishes.open_api):
            await listener.start()
            stack.push_async_callback(listener.stop)
            logger.info("listening", extra={"fields": {"address": listener.address, "for": listener.name}})
        stack.callback(feed.close)
        limit = effective.settings.server.loop_limit
        watch = LoopWatch(None if limit is None else limit / SECOND)
        stack.callback(watch.stop)
        _attend(parts, manager, watch)
        with _on_hangup(reloader):
            await _run(parts.daemon, signals, manager, watch)
    return 0


def look_for_garbage_seldom() -> None:
    """What was loaded stays: a look for garbage need not go through it again and again, nor come so often."""
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER)


def _attend(parts: Parts, manager: Notifier, watch: LoopWatch) -> None:
    """Each turn of the loop is told: to the watching thread, and to the service manager."""
    daemon = parts.daemon
    if manager.interval is not None:
        daemon.heartbeat = min(daemon.heartbeat, manager.interval)
    told = float("-inf")

    def turned() -> None:
        nonlocal told
        watch.beat()
        manager.alive()
        now = asyncio.get_running_loop().time()
        if manager.wanted and daemon.ready and now - told >= STATUS_EVERY:
            told = now
            manager.status(parts.queries.line())

    daemon.on_turn = turned
    asyncio.get_running_loop().set_exception_handler(Exhaustion(daemon.pulse, daemon.ports.clock))


@contextmanager
def _on_hangup(reloader: Reloader | None) -> Iterator[None]:
    """SIGHUP reads the configuration again; what becomes of it is in the log."""
    loop = asyncio.get_running_loop()
    under_way: set[asyncio.Task[None]] = set()

    async def again() -> None:
        try:
            if reloader is not None:
                await reloader.reload("SIGHUP")
        except NotTaken as error:
            logger.error("the configuration was not read again", extra={"fields": {"error": str(error)}})

    def came() -> None:
        task = asyncio.create_task(again(), name="reload")
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    loop.add_signal_handler(signal.SIGHUP, came)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        for task in under_way:
            task.cancel()


async def _open(daemon: Daemon) -> None:
    try:
        await daemon.open()
    except StoreHeld as error:
        raise StartError(
            Code.ENVIRONMENT, str(error), "stop the other daemon, or set server.store"
        ) from error
    except NewerStore as error:
        raise StartError(Code.ENVIRONMENT, str(error), "run the newer version, or another store") from error
    except PortError as error:
        todo = "mend what it names, or set server.store"
        raise StartError(Code.ENVIRONMENT, error.detail, todo) from error


async def _run(daemon: Daemon, signals: _Signals, manager: Notifier, watch: LoopWatch) -> None:
    """Run until a signal, then stop in peace; a second signal does not wait for commands under way."""
    running = asyncio.create_task(daemon.run(), name="daemon")
    watch.start(running)
    ready = asyncio.create_task(_ready(daemon, manager))
    first = asyncio.create_task(signals.wait())
    await asyncio.wait({running, first}, return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    manager.stopping()
    if not running.done():
        logger.info("stopping; runners are left running")
        stopping = asyncio.create_task(daemon.stop())
        again = asyncio.create_task(signals.wait())
        await asyncio.wait({stopping, again}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            await daemon.executor.close()
        await stopping
        again.cancel()
    first.cancel()
    try:
        await running
    except Unbootable as error:
        todo = "report this with the log; a backup of the store may still be good"
        raise StartError(1, str(error), todo) from error
    logger.info("stopped")


async def _ready(daemon: Daemon, manager: Notifier) -> None:
    await daemon.booted()
    manager.ready()


def _reloader(effective: Effective, parts: Parts, wishes: Wishes, manager: Notifier) -> Reloader | None:
    """Make what reads the configuration again; None where nobody said from which sources."""
    reread = wishes.reread
    if reread is None:
        return None
    running = reload.running(effective)

    def read() -> Prepared:
        found = reread()
        findings = tuple(_finding(finding) for finding in found.findings)
        if errors(found.findings) or found.effective is None:
            return Prepared(None, findings=findings)
        wanted = found.effective
        compared = reload.compare(running, wanted)
        place = parts.placing.prepared(wanted, compared.setup)
        served = {pool.name: pool.scope for pool in compared.setup.pools}
        applications = {name: served[name] for name in downloads(wanted) if name in served}
        held = parts.applications.held(applications)
        try:
            hooks = verifiers(wanted, list(running.forges))
        except PortError as error:
            refused = Finding(Code.CREDENTIALS, "webhook_secret", error.detail, "set the secret it names")
            return Prepared(None, findings=(*findings, _finding(refused)))

        def apply() -> None:
            nonlocal running
            running = compared.running
            parts.shelf.unverified = wanted.settings.runner.download.unverified
            parts.applications.reconfigure(applications, wanted.settings.runner.download.every / SECOND)
            place()
            parts.daemon.upkeep.keep = bootstrap.keep(wanted)
            parts.intake.replace(hooks)
            parts.catch_up.replace(delivery_logs(wanted, parts.daemon.ports.forges))
            if not wishes.log_level:
                set_level(wanted.settings.server.log_level)

        changes = tuple(
            ChangeView(one.key, one.before, one.after, one.applied, one.note) for one in compared.changes
        )
        return Prepared(compared.setup, changes, findings, held, apply)

    return Reloader(parts.daemon, read, begin=manager.reloading, end=manager.ready)


def _finding(finding: Finding) -> FindingView:
    level = "error" if finding.code else "warning"
    return FindingView(level, int(finding.code), finding.where, finding.what, finding.todo)


class _Signals:
    """SIGTERM and SIGINT as something to wait for, one by one."""

    def __init__(self) -> None:
        self._came = asyncio.Semaphore(0)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._came.release)

    async def wait(self) -> None:
        await self._came.acquire()
