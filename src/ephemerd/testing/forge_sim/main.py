"""Starting the look-alike: as a coroutine inside a test, or as a program of its own.

The program prints one JSON line on stdout when it is ready::

    {"url": …, "admin": …, "repository": …, "weather": …, "seed": …, "time_scale": …,
     "token": …, "webhook_secret": …, "runner": … or null}

``token`` and ``webhook_secret`` are left out where they were given by file. It ends on SIGTERM or SIGINT.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from ephemerd.testing.fake_runner.folder import write_folder
from ephemerd.testing.forge_sim import (
    rest_applications,
    rest_apps,
    rest_deliveries,
    rest_groups,
    rest_hooks,
    rest_jobs,
    rest_repositories,
    rest_runners,
)
from ephemerd.testing.forge_sim.admin import Admin
from ephemerd.testing.forge_sim.apps import Apps
from ephemerd.testing.forge_sim.assignment import Assigner
from ephemerd.testing.forge_sim.broker import Broker
from ephemerd.testing.forge_sim.deliveries import Deliverer
from ephemerd.testing.forge_sim.limits import PRIMARY_LIMIT, Limits
from ephemerd.testing.forge_sim.offers import Offers
from ephemerd.testing.forge_sim.outages import Outages
from ephemerd.testing.forge_sim.rest import Site, no_such_endpoint
from ephemerd.testing.forge_sim.rest_repositories import ByNumber
from ephemerd.testing.forge_sim.truth import TruthLog
from ephemerd.testing.forge_sim.world import World
from ephemerd.testing.weather import Weather, WeatherError, load

EXIT_USAGE, EXIT_CREDENTIALS, EXIT_ENVIRONMENT = 2, 4, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to start. ``port`` 0 takes a free one; ``time_scale`` shortens durations above 10 s.

    ``weather`` is the name of a shipped one, or one that a test made up.
    """

    host: str = "127.0.0.1"
    port: int = 0
    weather: str | Weather = "calm"
    seed: int = 1
    time_scale: float = 1.0
    repository: str = "acme/app"
    truth_path: Path | None = None
    token_file: Path | None = None
    webhook_secret_file: Path | None = None
    write_runner_dir: Path | None = None
    hook_url: str | None = None
    rate_limit: int = PRIMARY_LIMIT


class StartError(Exception):
    """The look-alike cannot start; ``code`` is the exit code of INTERFACES.md, the text says what to do."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class ForgeSim:
    """A running look-alike, for tests in the same process."""

    options: Options
    url: str
    token: str
    webhook_secret: str
    world: World
    site: Site
    assigner: Assigner

    @property
    def truth(self) -> TruthLog:
        """The truth log."""
        return self.world.truth

    def ready_line(self) -> dict[str, Any]:
        """What the program prints when it is ready."""
        options = self.options
        line: dict[str, Any] = {
            "url": self.url,
            "admin": f"{self.url}/_admin",
            "repository": options.repository,
            "weather": self.world.weather.name,
            "seed": options.seed,
            "time_scale": options.time_scale,
            "runner": str(options.write_runner_dir) if options.write_runner_dir else None,
        }
        if options.token_file is None:
            line["token"] = self.token
        if options.webhook_secret_file is None:
            line["webhook_secret"] = self.webhook_secret
        return line


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers and without its ten wake-ups a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stopping = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield

    async def main_loop(self) -> None:
        """Wait until somebody asks for the end."""
        await self.stopping.wait()


@contextlib.asynccontextmanager
async def running(options: Options) -> AsyncIterator[ForgeSim]:
    """Run a look-alike for the length of the block; raises :class:`StartError` if it cannot start."""
    token = _secret(options.token_file, lambda: "ghp_" + secrets.token_hex(18))
    webhook_secret = _secret(options.webhook_secret_file, lambda: secrets.token_hex(20))
    try:
        weather = load(options.weather) if isinstance(options.weather, str) else options.weather
        listener = socket.create_server((options.host, options.port), backlog=512)
    except WeatherError as error:
        raise StartError(EXIT_USAGE, str(error)) from error
    except OSError as error:
        where = f"{options.host}:{options.port}"
        text = f"cannot listen on {where}: {error.strerror}; choose another port"
        raise StartError(EXIT_ENVIRONMENT, text) from error
    if options.write_runner_dir is not None:
        write_folder(options.write_runner_dir)
    truth = TruthLog(options.truth_path)
    world = World(weather, seed=options.seed, time_scale=options.time_scale, truth=truth)
    world.base_url = f"http://{options.host}:{listener.getsockname()[1]}"
    world.add_repository(options.repository)
    offers = Offers(world)
    deliverer = Deliverer(world)
    outages = Outages(world, deliverer)
    assigner = Assigner(world, offers)
    apps = Apps(world)
    deliverer.apps = apps.apps
    site = Site(world, offers, deliverer, outages, token, Limits(world, options.rate_limit), apps)
    admin = Admin(site, assigner, repository=options.repository, webhook_secret=webhook_secret)
    world.on_job = deliverer.announce
    world.on_change = assigner.poke
    app = Starlette(
        routes=[*_rest(site), *Broker(world, offers).routes(), *admin.routes()],
        exception_handlers={404: no_such_endpoint, 405: no_such_endpoint},
    )
    server = _Server(
        uvicorn.Config(
            ByNumber(app, world),
            log_config=None,
            access_log=False,
            lifespan="off",
            date_header=False,
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=2,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    world.spawn(outages.follow_weather())
    if options.hook_url is not None:
        deliverer.add_hook(world.add_repository(options.repository), options.hook_url, secret=webhook_secret)
    try:
        yield ForgeSim(options, world.base_url, token, webhook_secret, world, site, assigner)
    finally:
        await world.close()
        server.stopping.set()
        await serving
        truth.close()


def _rest(site: Site) -> list[Route]:
    """The endpoints of the REST interface."""
    companies = [
        one
        for scope in ("/orgs/{org}", "/enterprises/{enterprise}")
        for one in (
            *rest_runners.routes(site, scope),
            *rest_groups.routes(site, scope),
            *rest_applications.routes(site, scope),
        )
    ]
    return [
        *rest_runners.routes(site, "/repos/{owner}/{repo}"),
        *rest_applications.routes(site, "/repos/{owner}/{repo}"),
        *rest_applications.files(site),
        *companies,
        *rest_apps.routes(site),
        *rest_repositories.routes(site),
        *rest_jobs.routes(site),
        *rest_hooks.routes(site),
        *rest_deliveries.routes(site),
    ]


def _secret(path: Path | None, make: Callable[[], str]) -> str:
    if path is None:
        return make()
    try:
        text = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise StartError(EXIT_CREDENTIALS, f"cannot read {path}: {error.strerror}") from error
    if not text:
        raise StartError(EXIT_CREDENTIALS, f"{path} is empty; write the secret into it")
    return text


async def serve_async(options: Options, *, ready: Callable[[ForgeSim], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT; call ``ready``, or print the ready line, once connections are accepted."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with running(options) as sim:
            if ready is not None:
                ready(sim)
            else:
                print(json.dumps(sim.ready_line()), flush=True)
            await stop.wait()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def serve(options: Options, *, ready: Callable[[ForgeSim], None] | None = None) -> int:
    """Serve as a program and return its exit code; what went wrong at the start goes to stderr."""
    try:
        asyncio.run(serve_async(options, ready=ready))
    except StartError as error:
        print(f"forge-sim: {error}", file=sys.stderr)
        return error.code
    return 0
