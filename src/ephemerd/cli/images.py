"""`images`: what the runners' images take, and which of them may go. Asks the engines, not the daemon."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from ephemerd.cli import output
from ephemerd.cli.failure import Exit, Failure
from ephemerd.cli.options import Config, Json
from ephemerd.cli.output import Page, Table, clean

Plain = dict[str, Any]
MIB = 1024 * 1024

app = typer.Typer(
    name="images",
    help="Images that the runners used: list them, or remove those that may go.",
    epilog="Example: ephemerd images gc --dry-run",
    add_completion=False,
    rich_markup_mode=None,
    invoke_without_command=True,
)


@app.callback()
def images(context: typer.Context, config: Config = None, as_json: Json = False) -> int | None:
    """Images that the runners used: list them, or remove those that may go."""
    if context.invoked_subcommand is not None:
        return None
    from ephemerd.placing import list_images

    _show(_asked(config, list_images), as_json, "no image was used yet")
    return Exit.DONE


@app.command(short_help="Remove images that may go.", epilog="Example: ephemerd images gc --dry-run")
def gc(
    config: Config = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which would go, and why.")] = False,
    as_json: Json = False,
) -> int:
    """Remove what is unused for too long or too much in all; never what a container or a pool needs."""
    from ephemerd.placing import collect_images

    removed = _asked(config, lambda effective: collect_images(effective, really=not dry_run))
    _show(removed, as_json, "nothing may go")
    return Exit.DONE


def _asked(config: Path | None, ask: Callable[[Any], Coroutine[Any, Any, list[Plain]]]) -> list[Plain]:
    from ephemerd.config.effective import examine
    from ephemerd.config.findings import exit_code
    from ephemerd.ports.errors import PortError

    found = examine(config, os.environ, environment=False)
    if found.effective is None:
        first = next(one for one in found.findings if one.code)
        raise Failure(exit_code(found.findings), f"{first.where}: {first.what}", first.todo)
    if all(pool.runtime != "docker" for pool in found.effective.settings.pools.values()):
        raise Failure(Exit.CONFIGURATION, "no pool has containers", 'set runtime = "docker" in one')
    try:
        return asyncio.run(ask(found.effective))
    except PortError as error:
        raise Failure(Exit.ENVIRONMENT, error.detail, "start the engine, or correct hosts.*.engine") from None


def _show(found: list[Plain], as_json: bool, empty: str) -> None:
    if as_json:
        output.emit_json({"images": found})
        return
    rows = [
        (
            clean(one["host"]),
            clean(one["name"]),
            clean(one["image"]).removeprefix("sha256:")[:12],
            f"{one['size'] / MIB:.0f}",
            output.clock(round(one["used"] * 1000), day=True),
            clean(one["reason"]) or "-",
        )
        for one in found
    ]
    titles = ("HOST", "NAME", "IMAGE", "MIB", "LAST USED", "WHY")
    table = Table(titles, rows, right=frozenset({3}), wraps=frozenset({1, 5}), empty=empty)
    output.emit(Page([table]))
