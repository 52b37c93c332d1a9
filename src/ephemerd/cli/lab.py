"""The one door to `ephemerd.testing`: `demo`, `forge-sim`, the simulator and the benchmarks.

Everything there is loaded only when asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ephemerd.cli.failure import Exit, Failure
from ephemerd.cli.options import Json

Weather = Annotated[
    str, typer.Option("--weather", metavar="NAME", help="How rough the forge is: calm, bursty, …")
]
Seed = Annotated[int, typer.Option("--seed", help="Same seed, same draws.")]


def demo(
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=10_000, help="Jobs that must all be run.")] = 40,
    burst: Annotated[int, typer.Option("--burst", min=1, max=500, help="Most jobs queued at once.")] = 6,
    seed: Seed = 1,
    weather: Weather = "bursty",
    headless: Annotated[
        bool, typer.Option("--headless", help="Nobody watches: no waiting at the end, nothing is kept.")
    ] = False,
    runtime: Annotated[
        str, typer.Option("--runtime", metavar="NAME", help="What runners live in: process or docker.")
    ] = "process",
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="URL",
            help="unix:// of Docker, or own; else the usual one, or one of our own.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65_535, help="Serve API, metrics and health on this port."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="Keep everything here; else a temporary one."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Watch the main job: a look-alike forge, the daemon, real processes, and nobody killed at work."""
    from ephemerd.testing.demo import DemoOptions, main
    from ephemerd.testing.demo.options import CONTAINER_TIME_SCALE, TIME_SCALE

    if runtime not in ("process", "docker"):
        raise Failure(Exit.USAGE, f"there is no runtime {runtime!r}", "use --runtime process or docker")
    _known_weather(weather)
    return main(
        DemoOptions(
            jobs=jobs,
            burst=burst,
            seed=seed,
            weather=weather,
            headless=headless,
            as_json=as_json,
            port=port,
            folder=folder,
            runtime=runtime,
            engine=engine,
            time_scale=TIME_SCALE if runtime == "process" else CONTAINER_TIME_SCALE,
        )
    )


def _known_weather(name: str) -> None:
    from ephemerd.testing.weather import WeatherError, load

    try:
        load(name)
    except WeatherError as error:
        raise Failure(Exit.USAGE, str(error), "see --help of this command") from None


def forge_sim(
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="0 takes a free one.")] = 0,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    weather: Weather = "calm",
    seed: Seed = 1,
    time_scale: Annotated[
        float,
        typer.Option("--time-scale", min=1.0, max=1_000.0, help="Divides all durations above 10 s."),
    ] = 1.0,
    repository: Annotated[
        str, typer.Option("--repository", metavar="OWNER/NAME", help="The one that it begins with.")
    ] = "acme/app",
    truth: Annotated[
        Path | None, typer.Option("--truth", metavar="FILE", help="Write what really happened here.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="Accept this token; else one is made.")
    ] = None,
    webhook_secret_file: Annotated[
        Path | None, typer.Option("--webhook-secret-file", metavar="FILE", help="Sign deliveries with it.")
    ] = None,
    hook_url: Annotated[
        str | None, typer.Option("--hook-url", metavar="URL", help="Deliver webhooks there from the start.")
    ] = None,
    write_runner: Annotated[
        Path | None,
        typer.Option("--write-runner", metavar="DIR", help="Write the fake runner application there."),
    ] = None,
) -> int:
    """Run the GitHub look-alike alone, to test any runner manager; prints one JSON line when ready."""
    import asyncio

    from ephemerd.testing.forge_sim.main import Options, StartError, serve_async

    _known_weather(weather)
    owner, slash, name = repository.partition("/")
    if not (owner and slash and name) or "/" in name:
        raise Failure(Exit.USAGE, f"--repository {repository!r} has another form", "write OWNER/NAME")
    options = Options(
        host=host,
        port=port,
        weather=weather,
        seed=seed,
        time_scale=time_scale,
        repository=repository,
        truth_path=truth,
        token_file=token_file,
        webhook_secret_file=webhook_secret_file,
        hook_url=hook_url,
        write_runner_dir=write_runner,
    )
    try:
        asyncio.run(serve_async(options))
    except StartError as error:
        what, _, todo = str(error).partition("; ")
        raise Failure(error.code, what, todo or "see 'ephemerd forge-sim --help'") from None
    return Exit.DONE


def simulator() -> Any:
    """Return the simulator's front: a module of functions that take and give plain values."""
    from ephemerd.testing.simulate import front

    return front


def benchmarks() -> Any:
    """Return the benchmarks: a module with their names and what runs them."""
    from ephemerd.testing.bench import run

    return run
