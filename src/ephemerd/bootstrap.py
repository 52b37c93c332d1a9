"""Where the concrete classes are chosen and joined: the only place that knows them.

Must not know `testing`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ephemerd import __version__
from ephemerd.adapters.forges.github import make_catalogue
from ephemerd.adapters.stores import sqlite
from ephemerd.adapters.stores.sqlite import SqliteStore, open_journal
from ephemerd.adapters.system.applications import ApplicationShelf
from ephemerd.adapters.system.clock import ShellClock
from ephemerd.adapters.system.loopwatch import LoopWatch
from ephemerd.adapters.system.notify import Notifier
from ephemerd.adapters.system.tokenfile import TokenFile
from ephemerd.adapters.telemetry.logs import HIDDEN, redacted, set_level, set_up_logging, wants_color
from ephemerd.adapters.telemetry.meter import Known
from ephemerd.adapters.telemetry.metrics import Metrics
from ephemerd.app import inspection
from ephemerd.app import intake as deliveries
from ephemerd.app.applications import Applications
from ephemerd.app.catchup import CatchUp
from ephemerd.app.daemon import Daemon, Ports
from ephemerd.app.exhaustion import Exhaustion
from ephemerd.app.feed import Feed
from ephemerd.app.intake import Intake
from ephemerd.app.logs import Logs
from ephemerd.app.operator import NotTaken, Operator
from ephemerd.app.queries import Queries
from ephemerd.app.reload import Prepared, Reloader
from ephemerd.app.sessions import Failures, Sessions
from ephemerd.app.tokens import Tokens
from ephemerd.app.trail import RESULTS
from ephemerd.app.writer import Unbootable
from ephemerd.config import reload
from ephemerd.config.effective import Effective, Examined
from ephemerd.config.findings import Code, Finding, errors
from ephemerd.config.units import listen_address, store_path
from ephemerd.domain.pool import SECOND
from ephemerd.joining import delivery_logs, downloads, make_forges, shelf_of, verifiers
from ephemerd.placing import Placing
from ephemerd.ports.errors import Broken, Denied, NewerStore, PortError, StoreHeld
from ephemerd.ports.store import JournalEntry, Keep, Segment, SetAside, Store, StoreSize
from ephemerd.ports.views import ChangeView, FindingView
from ephemerd.web.access import Keys
from ephemerd.web.api import Api
from ephemerd.web.dashboard.routes import dashboard_pages
from ephemerd.web.pace import Pace
from ephemerd.web.server import Listener, ListenFailed
from ephemerd.web.site import Addresses, bind
from ephemerd.web.webhooks import webhook_app

logger = logging.getLogger(__name__)

Journal = tuple[Segment, Iterator[JournalEntry]]

SHORTEST_SECRET = 6
"""A secret of ours that is shorter is no secret, and would hide ordinary words in logs."""
GARBAGE_AFTER = 10_000
"""Objects made and not freed until garbage is looked for. By Python's own number, 700, a dozen deliveries cost a look,
and looks a fifteenth of the daemon's time under load; they find next to nothing, for little here refers to itself."""
STATUS_EVERY = 5.0
"""Seconds between two lines of status for the service manager."""


class StartError(Exception):
    """The daemon cannot start. `code` is the exit code, `todo` what to do about it."""

    def __init__(self, code: int, what: str, todo: str) -> None:
        super().__init__(what)
        self.code = code
        self.todo = todo


def journal_of(path: Path, number: int | None = None) -> AbstractContextManager[Journal]:
    """Read a journal segment and its entries from a store's file, read-only; the newest without a number.

    Raises `StartError` (5) with what to do.
    """
    return _journal_of(path, number)


@contextmanager
def _journal_of(path: Path, number: int | None) -> Iterator[Journal]:
    try:
        with open_journal(path, number) as found:
            yield found
    except NewerStore as error:
        raise StartError(Code.ENVIRONMENT, str(error), "run the newer version") from error
    except PortError as error:
        raise StartError(Code.ENVIRONMENT, error.detail, "name another store or segment") from error


def open_store(path: Path) -> Store:
    """Make a store on a file; nothing is opened yet."""
    return SqliteStore(path)


@dataclass(frozen=True, slots=True)
class StoreReport:
    """What `store check` finds: the file, who it is, what it holds (rows by kind, records by table), and what is
    wrong. `set_aside` rows were put into quarantine first."""

    path: Path
    store: str
    version: int
    size: StoreSize
    rows: dict[str, int]
    records: dict[str, int]
    unreadable: int
    set_aside: int
    problems: tuple[str, ...]


def check_store(path: Path, *, set_aside: bool = False) -> StoreReport:
    """Check a store's file and the state in it. Raises `StartError` (5) where it cannot be opened at all."""
    with _store_errors():
        found = sqlite.survey(path)
        broken = [*found.unreadable, *inspection.unreadable(found.loaded)]
        moved = 0
        if set_aside and broken:
            moved = sqlite.put_aside(path, broken)
            found = sqlite.survey(path)
            broken = [*found.unreadable, *inspection.unreadable(found.loaded)]
    named = [f"row {kind} {key}: cannot be read: {why}" for kind, key, why in broken]
    return StoreReport(
        path=path,
        store=found.loaded.store,
        version=found.version,
        size=found.size,
        rows={kind: len(rows) for kind, rows in found.loaded.rows.items()},
        records=found.counts,
        unreadable=len(broken),
        set_aside=moved,
        problems=(*found.problems, *named, *inspection.problems(found.loaded)),
    )


def back_up_store(
    path: Path, target: Path, *, replace: bool, progress: Callable[[int, int], None] | None = None
) -> int:
    """Copy a store, also beside a running daemon; return the copy's bytes. Raises `StartError` (5)."""
    with _store_errors():
        return sqlite.backup(path, target, replace=replace, progress=progress)


def lines_of_store(path: Path) -> Iterator[dict[str, object]]:
    """Yield everything in a store as plain objects. Raises `StartError` (5)."""
    with _store_errors():
        yield from sqlite.lines(path)


def quarantine_of_store(path: Path, *, clear: bool) -> list[SetAside]:
    """Read what a store's file has in quarantine, and forget it where asked. Raises `StartError` (5)."""
    with _store_errors():
        found = sqlite.quarantine_of(path)
        if clear:
            sqlite.clear_quarantine_of(path)
        return found


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except StoreHeld as error:
        raise StartError(Code.ENVIRONMENT, str(error), "stop the daemon first") from error
    except NewerStore as error:
        raise StartError(Code.ENVIRONMENT, str(error), "run the newer version") from error
    except PortError as error:
        raise StartError(Code.ENVIRONMENT, error.detail, "do what it says, or name another file") from error


@dataclass(slots=True)
class Parts:
    """Everything that one daemon is made of."""

    daemon: Daemon
    intake: Intake
    queries: Queries
    operator: Operator
    metrics: Metrics
    placing: Placing
    catch_up: CatchUp
    applications: Applications
    shelf: ApplicationShelf


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
    parts = build(effective)
    manager = Notifier.from_environment(os.environ)
    reloader = _reloader(effective, parts, wishes, manager)
    async with AsyncExitStack() as stack:
        stack.callback(manager.close)
        stack.push_async_callback(parts.daemon.close)
        await _open(parts.daemon)
        look_for_garbage_seldom()
        await parts.applications.open()
        feed = Feed(parts.daemon)
        for listener in _bind(effective, parts, reloader, feed, wishes.open_api):
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
            parts.daemon.upkeep.keep = _keep(wanted)
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


def build(effective: Effective) -> Parts:
    """Make everything from the configuration; nothing is opened, listened on or sent yet.

    Call it inside the running loop. Raises `StartError` (3 configuration, 4 credentials, 5 environment).
    """
    setup = effective.to_setup()
    metrics = Metrics(_known(effective))
    clock = ShellClock()
    try:
        forges = make_forges(effective)
        hooks = verifiers(effective, list(effective.settings.forge))
    except Denied as error:
        raise StartError(Code.CREDENTIALS, error.detail, "set the secret it names") from error
    except Broken as error:
        raise StartError(Code.ENVIRONMENT, error.detail, "mend the file it names") from error
    except PortError as error:
        raise StartError(Code.CONFIGURATION, error.detail, "correct the forge's settings") from error
    epoch = _Epoch()
    shelf = shelf_of(effective)
    applications = Applications(
        shelf,
        {
            name: make_catalogue(forge, ca_file=effective.settings.forge[name].ca_file)
            for name, forge in forges.items()
        },
        downloads(effective),
        now=clock.now,
        nowhere=shelf.folder / "none",
        every=effective.settings.runner.download.every / SECOND,
    )
    placing = Placing(effective, setup, now=clock.now, epoch=epoch, application=applications.folder)
    applications.changed = placing.renew
    runtimes = placing.runtimes(effective)
    store = SqliteStore(_store_path(effective))
    daemon = Daemon(Ports(store, forges, runtimes, clock, metrics.meter), setup, keep=_keep(effective))
    epoch.daemon = daemon
    applications.attach(daemon)
    daemon.accompany(applications)
    queries = Queries(daemon, __version__, applications)
    metrics.show(queries.snapshot)
    intake = Intake(hooks, daemon.inbox, metrics.meter)
    catch_up = CatchUp(daemon, intake, delivery_logs(effective, forges))
    daemon.accompany(catch_up)
    operator = Operator(daemon)
    return Parts(daemon, intake, queries, operator, metrics, placing, catch_up, applications, shelf)


class _Epoch:
    """The life whose permits a runtime honours, known once the daemon has begun it."""

    daemon: Daemon | None = None

    def __call__(self) -> str:
        return self.daemon.pulse.epoch if self.daemon is not None else ""


def _known(effective: Effective) -> Known:
    runtimes = dict.fromkeys(pool.runtime for pool in effective.settings.pools.values())
    return Known(tuple(effective.settings.forge), tuple(runtimes), deliveries.COUNTED, RESULTS)


def _keep(effective: Effective) -> Keep:
    retention = effective.settings.retention
    return Keep(age=retention.history, size=retention.store_size)


def _store_path(effective: Effective) -> Path:
    url = effective.settings.server.store
    assert url is not None, "the effective configuration fills it in"
    return store_path(url)


def _bind(
    effective: Effective, parts: Parts, reloader: Reloader | None, feed: Feed, open_api: str | None
) -> list[Listener]:
    server, forges = effective.settings.server, effective.settings.forge.values()
    assert server.api_socket is not None, "the effective configuration fills it in"

    def address(text: str | None) -> tuple[str, int] | None:
        return None if text is None else listen_address(text)

    addresses = Addresses(
        server.api_socket,
        api=address(server.api_listen),
        metrics=address(server.metrics_listen),
        webhooks=address(
            server.webhook_listen if any(one.discovery == "webhook" for one in forges) else None
        ),
        open_api=address(open_api),
    )
    daemon, logs = parts.daemon, Logs(parts.daemon, _hiding(effective))
    pace = Pace(daemon.inbox.lag, lambda: daemon.pulse.commits)
    api = Api(
        parts.queries,
        parts.operator,
        parts.metrics.text,
        version=__version__,
        reloader=reloader,
        logs=logs,
        feed=feed,
        pages=dashboard_pages(daemon, parts.queries, parts.operator, parts.metrics.figures, logs, pace),
        pace=pace,
    )
    try:
        return bind(addresses, api, _keys(effective, daemon), webhook_app(parts.intake, parts.queries))
    except ListenFailed as error:
        raise StartError(Code.ENVIRONMENT, str(error), error.todo) from error


def _keys(effective: Effective, daemon: Daemon) -> Keys:
    """Read the tokens, which lie beside the store. Cookies are named by the store: browsers mix up ports."""
    path = _store_path(effective)

    def now() -> int:
        return time.time_ns() // 1_000_000

    tokens = Tokens(TokenFile(path.with_name(f"{path.stem}.tokens.json")), now)
    try:
        tokens.load()
    except Broken as error:
        raise StartError(
            Code.CREDENTIALS, error.detail, "do what it says; no token holds until then"
        ) from error
    return Keys(tokens, Sessions(now, tokens.holds), Failures(now), f"ephemerd-{daemon.life.store}")


def _hiding(effective: Effective) -> Callable[[str], str]:
    """Return what hides secrets in a text: ours by their value, all others by their look."""
    ours = [value.get_secret_value() for value in effective.vault.values.values()]

    def hide(text: str) -> str:
        for secret in ours:
            if len(secret) >= SHORTEST_SECRET:
                text = text.replace(secret, HIDDEN)
        return str(redacted(text))

    return hide
