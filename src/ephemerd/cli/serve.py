"""`serve`: check everything first, then run the daemon until it is told to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ephemerd.cli.check import examined, report
from ephemerd.cli.failure import Exit, Failure
from ephemerd.cli.options import Config, Set, common

OpenApi = Annotated[
    str | None,
    typer.Option(
        "--open-api",
        metavar="HOST:PORT",
        help="For demonstrations: API, metrics and health on this loopback address, without a token.",
    ),
]


def serve(
    context: typer.Context, config: Config = None, override: Set = None, open_api: OpenApi = None
) -> int:
    """Run the daemon. Stopping it (SIGTERM, Ctrl-C) leaves busy runners running; the next start adopts them."""
    from ephemerd.config.findings import exit_code

    if open_api is not None and not _is_address(open_api):
        raise Failure(Exit.USAGE, f"--open-api {open_api!r} is no address", "write e.g. 127.0.0.1:8081")
    here = Path.cwd()
    found = examined(config, override or [])
    report(found.findings)
    code = exit_code(found.findings)
    if code or found.effective is None:
        return code
    from ephemerd import serving

    said = common(context)
    path = here / found.path if found.path is not None else config
    wishes = serving.Wishes(
        log_level=said.log_level if said.level_given else "",
        log_format=said.log_format,
        open_api=open_api,
        reread=lambda: examined(path, override or []),
    )
    return serving.serve(found.effective, wishes)


def _is_address(text: str) -> bool:
    from ephemerd.config.units import listen_address

    try:
        listen_address(text)
    except ValueError:
        return False
    return True
