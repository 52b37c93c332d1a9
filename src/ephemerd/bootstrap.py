"""Where the concrete classes are chosen and joined: the only place that knows them.

Must not know `testing`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ephemerd import __version__
from ephemerd.adapters.forges.github import make_forge, make_webhooks
from ephemerd.adapters.runtimes.process import ProcessOptions, ProcessRuntime
from ephemerd.adapters.stores.sqlite import SqliteStore, open_journal
from ephemerd.adapters.system.clock import ShellClock
from ephemerd.adapters.telemetry.logs import set_up_logging, wants_color
from ephemerd.adapters.telemetry.meter import Known
from ephemerd.adapters.telemetry.metrics import Metrics
from ephemerd.app import intake as deliveries
from ephemerd.app.daemon import Daemon, Ports
from ephemerd.app.intake import Intake
from ephemerd.app.operator import Operator
from ephemerd.app.queries import Queries
from ephemerd.app.writer import Unbootable
from ephemerd.config.effective import Effective
from ephemerd.config.findings import Code
from ephemerd.config.units import listen_address, store_path
from ephemerd.domain.pool import SECOND, Setup
from ephemerd.ports.errors import Broken, Denied, NewerStore, PortError, StoreHeld
from ephemerd.ports.forge import Forge
from ephemerd.ports.runtime import Runtime
from ephemerd.ports.store import JournalEntry, Segment
from ephemerd.web.api import api_app, metrics_app
from ephemerd.web.local import LocalOnly, names_this_machine
from ephemerd.web.server import Listener, ListenFailed, bind_tcp, bind_unix
from ephemerd.web.webhooks import webhook_app

logger = logging.getLogger(__name__)

Journal = tuple[Segment, Iterator[JournalEntry]]

STOP_SHARE = 3 / 7
"""Of the bound on a destroy (70 s), how much the stop may take, and the kill: 30 s each."""


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


@dataclass(slots=True)
class Parts:
    """Everything that one daemon is made of."""

    daemon: Daemon
    intake: Intake
    queries: Queries
    operator: Operator
    metrics: Metrics


def serve(
    effective: Effective, *, log_level: str = "info", log_format: str = "auto", open_api: str | None = None
) -> int:
    """Run the daemon until a signal ends it; return the exit code.

    log_format  `json`, `console`, or `auto`: console on a terminal
    open_api    HOST:PORT on loopback where API, metrics and health are served without a token, for
                demonstrations
    """
    style = log_format
    if style == "auto":
        style = "console" if sys.stderr.isatty() else "json"
    set_up_logging(log_level, style, color=wants_color(sys.stderr, os.environ))
    try:
        return asyncio.run(_serve(effective, open_api))
    except StartError as error:
        sys.stderr.write(f"error: {error}\n  fix: {error.todo}\n")
        return error.code


async def _serve(effective: Effective, open_api: str | None) -> int:
    signals = _Signals()
    parts = build(effective)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(parts.daemon.close)
        await _open(parts.daemon)
        for listener in _bind(effective, parts, open_api):
            await listener.start()
            stack.push_async_callback(listener.stop)
            logger.info("listening", extra={"fields": {"address": listener.address, "for": listener.name}})
        await _run(parts.daemon, signals)
    return 0


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


async def _run(daemon: Daemon, signals: _Signals) -> None:
    """Run until a signal, then stop in peace; a second signal does not wait for commands under way."""
    running = asyncio.create_task(daemon.run(), name="daemon")
    first = asyncio.create_task(signals.wait())
    await asyncio.wait({running, first}, return_when=asyncio.FIRST_COMPLETED)
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
        forges = _forges(effective)
        hooks = {
            name: make_webhooks(name, secret=effective.webhook_secret(name).get_secret_value())
            for name in effective.settings.forge
        }
    except Denied as error:
        raise StartError(Code.CREDENTIALS, error.detail, "set the secret it names") from error
    except Broken as error:
        raise StartError(Code.ENVIRONMENT, error.detail, "mend the file it names") from error
    except PortError as error:
        raise StartError(Code.CONFIGURATION, error.detail, "correct the forge's settings") from error
    epoch = _Epoch()
    runtimes = _runtimes(effective, setup, clock, epoch)
    store = SqliteStore(_store_path(effective))
    daemon = Daemon(Ports(store, forges, runtimes, clock, metrics.meter), setup)
    epoch.daemon = daemon
    queries = Queries(daemon, __version__)
    metrics.show(queries.snapshot)
    return Parts(daemon, Intake(hooks, daemon.inbox, metrics.meter), queries, Operator(daemon), metrics)


class _Epoch:
    """The life whose permits a runtime honours, known once the daemon has begun it."""

    daemon: Daemon | None = None

    def __call__(self) -> str:
        return self.daemon.pulse.epoch if self.daemon is not None else ""


def _known(effective: Effective) -> Known:
    runtimes = dict.fromkeys(pool.runtime for pool in effective.settings.pools.values())
    return Known(tuple(effective.settings.forge), tuple(runtimes), deliveries.COUNTED)


def _store_path(effective: Effective) -> Path:
    url = effective.settings.server.store
    assert url is not None, "the effective configuration fills it in"
    return store_path(url)


def _forges(effective: Effective) -> Mapping[str, Forge]:
    """A token's file is handed over by its path, so that a new token in it is found without a restart."""
    forges: dict[str, Forge] = {}
    for name, forge in effective.settings.forge.items():
        file = forge.token_file if forge.token is None else None
        readable = file is not None and file.is_absolute()
        forges[name] = make_forge(
            name,
            url=forge.url,
            token="" if readable else effective.token(name).get_secret_value(),
            token_file=file if readable else None,
            ca_file=forge.ca_file,
        )
    return forges


def _runtimes(effective: Effective, setup: Setup, clock: ShellClock, epoch: _Epoch) -> Mapping[str, Runtime]:
    """One process runtime serves all pools of this machine."""
    settings = effective.settings
    work_dir = settings.runner.work_dir
    assert work_dir is not None, "the effective configuration fills it in"
    wait = setup.policy.retiring_limit / SECOND * STOP_SHARE
    options = {
        name: ProcessOptions(
            application=Path(settings.runner.application),
            work_dir=work_dir,
            logs_dir=work_dir.with_name("logs"),
            user=pool.user,
            allow_root=settings.runner.allow_root,
            extra_env=settings.runner.extra_env,
            follow=pool.follow,
            stop_wait=wait,
            kill_wait=wait,
            probe_timeout=setup.policy.probe_timeout / SECOND,
        )
        for name, pool in settings.pools.items()
    }
    runtime = ProcessRuntime(options, now=clock.now, epoch=epoch)
    return dict.fromkeys(options, runtime)


def _bind(effective: Effective, parts: Parts, open_api: str | None) -> list[Listener]:
    """Bind every socket before any is served: a start that fails has answered nobody."""
    server = effective.settings.server
    assert server.api_socket is not None, "the effective configuration fills it in"
    api = api_app(parts.queries, parts.operator, parts.metrics.text)
    bound: list[Listener] = []
    try:
        webhooks = webhook_app(parts.intake, parts.queries)
        bound.append(Listener("webhooks", webhooks, bind_tcp(*listen_address(server.webhook_listen))))
        bound.append(Listener("api", api, bind_unix(server.api_socket), server.api_socket))
        if server.metrics_listen is not None:
            app = metrics_app(parts.queries, parts.metrics.text)
            bound.append(Listener("metrics", app, bind_tcp(*listen_address(server.metrics_listen))))
        if open_api is not None:
            bound.append(Listener("open api", LocalOnly(api), _bind_loopback(open_api)))
    except ListenFailed as error:
        for listener in bound:
            listener.close()
        raise StartError(Code.ENVIRONMENT, str(error), error.todo) from error
    return bound


def _bind_loopback(address: str) -> socket.socket:
    if not names_this_machine(f"//{address}"):
        raise ListenFailed(address, "it is served without a token", "choose a loopback address")
    return bind_tcp(*listen_address(address))
