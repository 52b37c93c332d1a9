"""Options that several commands share, and what the options before the command said."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("auto", "console", "json")


@dataclass(frozen=True, slots=True)
class Common:
    """The options of every command: `log_level` is one of LEVELS, `log_format` one of FORMATS; `level_given` where
    somebody said it."""

    debug: bool = False
    quiet: bool = False
    log_level: str = "info"
    log_format: str = "auto"
    level_given: bool = False


def common(context: typer.Context) -> Common:
    """Return what the options before the command said."""
    found = context.find_root().obj
    return found if isinstance(found, Common) else Common()


Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Look again and again; with --json one line each time.")
]
Every = Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.1, help="Pause between looks.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="Most entries shown.")]
Socket = Annotated[
    Path | None,
    typer.Option("--socket", metavar="PATH", help="The daemon's socket; default $EPHEMERD_SOCKET."),
]
Url = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="Reach the daemon over HTTP instead of a socket.")
]
Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Configuration; default $EPHEMERD_CONFIG."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one key, e.g. pools.linux.max_concurrent=2."),
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is kept in the journal.")]
