"""`store`: check, back up and export a store's file, and look into its quarantine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ephemerd.cli import output
from ephemerd.cli.client import connect
from ephemerd.cli.failure import Exit, Failure, complain
from ephemerd.cli.journal import write_lines
from ephemerd.cli.options import Config, Json, Socket, Url, common

Plain = dict[str, Any]

app = typer.Typer(
    name="store",
    help="The daemon's store: check it, back it up, export it, look into its quarantine.",
    epilog="Example: ephemerd store backup /var/backups/ephemerd.db",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)

File = Annotated[
    Path | None,
    typer.Option("--store", metavar="FILE", help="The store's file; default: the configuration's."),
]
REPAIR = (
    "stop the daemon; --set-aside helps with rows that cannot be read, else put a backup in the file's place"
    " (docs/OPERATIONS.md, Repair)"
)


@app.callback()
def _group() -> None:
    """The daemon's store: check it, back it up, export it, look into its quarantine."""


def path_of(store: Path | None, config: Path | None) -> Path:
    """Return the file: as named, else as configured. Failure 3 or 4 where the configuration cannot be used."""
    from ephemerd.config.effective import examine
    from ephemerd.config.findings import exit_code
    from ephemerd.config.units import store_path

    if store is not None:
        return store
    found = examine(config, os.environ, environment=False)
    if found.effective is None or found.effective.settings.server.store is None:
        what = next((f"{one.where}: {one.what}" for one in found.findings if one.code), "no store is named")
        code = exit_code(found.findings) or Exit.CONFIGURATION
        raise Failure(
            code, f"the configuration does not say where the store is ({what})", "name it by --store"
        )
    return store_path(found.effective.settings.server.store)


@contextmanager
def _told() -> Iterator[None]:
    """Turn what cannot be done with a file into this program's way to fail."""
    from ephemerd.storing import StartError

    try:
        yield
    except StartError as error:
        raise Failure(error.code, str(error), error.todo) from None


@app.command(
    "check",
    short_help="Check whether store and state are sound.",
    epilog="Example: ephemerd store check --json",
)
def check(
    store: File = None,
    config: Config = None,
    set_aside: Annotated[
        bool,
        typer.Option(
            "--set-aside", help="Put rows that cannot be read into quarantine; the daemon must be off."
        ),
    ] = False,
    as_json: Json = False,
) -> int:
    """Check pages, schema, numbering and the state in the store; changes nothing, also beside a daemon."""
    from ephemerd import storing

    path = path_of(store, config)
    with _told():
        found = storing.check_store(path, set_aside=set_aside)
    if as_json:
        output.emit_json(_plain(found))
    else:
        print("\n".join(_lines(found)))
    for problem in found.problems:
        complain(output.clean(problem), "", word="problem")
    if not found.problems:
        return Exit.DONE
    complain(f"{path} is damaged", REPAIR)
    return Exit.ENVIRONMENT


def _plain(found: Any) -> Plain:
    return {
        "path": str(found.path),
        "verdict": "damaged" if found.problems else "sound",
        "store": found.store,
        "version": found.version,
        "bytes": found.size.total,
        "reusable": found.size.reusable,
        "oldest": found.size.oldest,
        "rows": found.rows,
        "records": found.records,
        "unreadable": found.unreadable,
        "set_aside": found.set_aside,
        "problems": list(found.problems),
    }


def _lines(found: Any) -> list[str]:
    verdict = f"damaged, {len(found.problems)} problem(s)" if found.problems else "sound"
    size = f"{found.size.total / 1024**2:.1f} MiB, {found.size.reusable / 1024**2:.1f} MiB of it free for use"
    lines = [
        f"{found.path}: {verdict}",
        f"store {found.store or '?'}, version {found.version}, {size}",
        f"journal since {output.clock(found.size.oldest, day=True)}",
        _counted("rows", found.rows),
        _counted("records", found.records),
    ]
    if found.set_aside:
        lines.append(f"{found.set_aside} row(s) were put into quarantine")
    return lines


def _counted(title: str, counts: dict[str, int]) -> str:
    return f"{title}: {', '.join(f'{count:,} {name}' for name, count in counts.items()) or 'none'}"


@app.command(
    "backup",
    short_help="Copy the store into one checked file.",
    epilog="Example: ephemerd store backup /var/backups/ephemerd.db --force",
)
def backup(
    context: typer.Context,
    target: Annotated[Path, typer.Argument(metavar="FILE", help="Where the copy goes.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an older backup of that name.")] = False,
    store: File = None,
    config: Config = None,
) -> int:
    """Copy the store into one file and check the copy; also while the daemon runs."""
    from ephemerd import storing

    path, quiet = path_of(store, config), common(context).quiet
    with _told(), _progress(quiet=quiet) as progress:
        size = storing.back_up_store(path, target, replace=force, progress=progress)
    output.note(f"{size / 1024**2:.1f} MiB written to {target}, and checked", quiet=quiet)
    return Exit.DONE


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal; elsewhere a backup says only what it has done."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("copying"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        bar = shown.add_task("copying")
        yield lambda done, total: shown.update(bar, completed=done, total=total)


@app.command(
    "export",
    short_help="Write all of it as JSON lines.",
    epilog="Example: ephemerd store export --out store.jsonl",
)
def export(
    context: typer.Context,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write here; else to stdout.")
    ] = None,
    store: File = None,
    config: Config = None,
) -> int:
    """Write everything in the store as JSON lines; it holds no secret. Also while the daemon runs."""
    from ephemerd import storing

    path = path_of(store, config)
    with _told():
        written = write_lines(storing.lines_of_store(path), out)
    if out is not None:
        output.note(f"{written:,} lines written to {out}", quiet=common(context).quiet)
    return Exit.DONE


@app.command(
    "quarantine",
    short_help="List what could not be handled.",
    epilog="Example: ephemerd store quarantine --clear",
)
def quarantine(
    context: typer.Context,
    clear: Annotated[bool, typer.Option("--clear", help="Forget what is listed; health recovers.")] = False,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="FILE", help="Look into a file instead of asking the daemon."),
    ] = None,
    socket: Socket = None,
    url: Url = None,
    as_json: Json = False,
) -> int:
    """List events that could not be handled, and rows that were put aside; forget them with --clear."""
    if store is not None and (socket is not None or url is not None):
        raise Failure(Exit.USAGE, "--store and a daemon are both given", "keep one of them")
    if store is not None:
        found = _from_file(store, clear=clear)
    else:
        client = connect(socket, url)
        found = list(client.items("quarantine"))
        if clear and found:
            client.post("quarantine/clear", {"upto": found[-1]["seq"]})
    if as_json:
        output.emit_json(found)
    else:
        output.emit(output.Page([_table(found)]))
    if clear:
        output.note(f"{len(found)} forgotten", quiet=common(context).quiet)
    return Exit.DONE


def _from_file(store: Path, *, clear: bool) -> list[Plain]:
    from dataclasses import asdict

    from ephemerd import storing

    with _told():
        return [asdict(one) for one in storing.quarantine_of_store(store, clear=clear)]


def _table(found: list[Plain]) -> output.Table:
    rows = [
        (
            str(one["seq"]),
            output.clock(one["at"], day=True),
            output.or_dash(one["forge"]),
            output.or_dash(one["delivery"]),
            str(one["size"]),
            output.clean(one["error"]),
        )
        for one in found
    ]
    titles = ("no", "since", "forge", "delivery", "bytes", "why")
    return output.Table(titles, rows, frozenset({0, 4}), frozenset({5}), "nothing is in quarantine")
