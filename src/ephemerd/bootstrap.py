"""Where the concrete classes are chosen and joined: the only place that knows them all.

Must not know `testing`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ephemerd import __version__
from ephemerd.adapters.forges.github import make_catalogue
from ephemerd.adapters.system.applications import ApplicationShelf
from ephemerd.adapters.system.clock import ShellClock
from ephemerd.adapters.system.tokenfile import TokenFile
from ephemerd.adapters.telemetry.logs import HIDDEN, redacted
from ephemerd.adapters.telemetry.meter import Known
from ephemerd.adapters.telemetry.metrics import Metrics
from ephemerd.app import intake as deliveries
from ephemerd.app.applications import Applications
from ephemerd.app.catchup import CatchUp
from ephemerd.app.daemon import Daemon, Ports
from ephemerd.app.feed import Feed
from ephemerd.app.intake import Intake
from ephemerd.app.logs import Logs
from ephemerd.app.operator import Operator
from ephemerd.app.queries import Queries
from ephemerd.app.reload import Reloader
from ephemerd.app.sessions import Failures, Sessions
from ephemerd.app.tokens import Tokens
from ephemerd.app.trail import RESULTS
from ephemerd.config.effective import Effective
from ephemerd.config.findings import Code
from ephemerd.config.units import listen_address, store_path
from ephemerd.domain.pool import SECOND
from ephemerd.joining import delivery_logs, downloads, make_forges, shelf_of, verifiers
from ephemerd.placing import Placing
from ephemerd.ports.errors import Broken, Denied, PortError
from ephemerd.ports.store import Keep
from ephemerd.storing import StartError, open_store
from ephemerd.web.access import Keys
from ephemerd.web.api import Api
from ephemerd.web.dashboard.routes import dashboard_pages
from ephemerd.web.pace import Pace
from ephemerd.web.server import Listener, ListenFailed
from ephemerd.web.site import Addresses, bind
from ephemerd.web.webhooks import webhook_app

SHORTEST_SECRET = 6
"""A secret of ours that is shorter is no secret, and would hide ordinary words in logs."""


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
    store = open_store(_store_path(effective))
    daemon = Daemon(Ports(store, forges, runtimes, clock, metrics.meter), setup, keep=keep(effective))
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


def keep(effective: Effective) -> Keep:
    """Return how much history the store keeps."""
    retention = effective.settings.retention
    return Keep(age=retention.history, size=retention.store_size)


def _store_path(effective: Effective) -> Path:
    url = effective.settings.server.store
    assert url is not None, "the effective configuration fills it in"
    return store_path(url)


def listeners(
    effective: Effective, parts: Parts, reloader: Reloader | None, feed: Feed, open_api: str | None
) -> list[Listener]:
    """Make what listens: API, dashboard and metrics, and the webhook endpoint; nothing is listened on yet.

    Call it once the store is open. Raises `StartError` (4 tokens, 5 an address).
    """
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
