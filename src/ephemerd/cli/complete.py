"""Shell completion: `completion` prints the script, and names come from the daemon while it answers quickly.

A completion never fails and never waits: where nobody answers within a moment there is nothing to offer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from ephemerd.cli.client import Client, Plain, connect
from ephemerd.cli.failure import Exit, Failure

DEADLINE = 0.5
"""Seconds: a person has pressed a key and looks at the cursor."""
MOST = 200
SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_EPHEMERD_COMPLETE"

Offers = list[tuple[str, str]]


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help=f"One of {', '.join(SHELLS)}.")],
) -> int:
    """Print the script that teaches a shell to complete commands, options, and names that the daemon knows.

    bash: ephemerd completion bash > ~/.local/share/bash-completion/completions/ephemerd

    zsh: ephemerd completion zsh > _ephemerd, in a folder of $fpath

    fish: ephemerd completion fish > ~/.config/fish/completions/ephemerd.fish
    """
    if shell not in SHELLS:
        raise Failure(Exit.USAGE, f"there is no completion for {shell!r}", f"use one of {', '.join(SHELLS)}")
    from typer.completion import shell_complete

    prepare()
    program = typer.main.get_command(typer.Typer(callback=lambda: None, add_completion=False))
    return shell_complete(program, {}, "ephemerd", VARIABLE, f"source_{shell}")


def asked() -> bool:
    """Say whether a shell runs the program to complete a line."""
    return VARIABLE in os.environ


def prepare() -> None:
    """Make the shells known to the parser, as its own options for completion would."""
    from typer.main import get_install_completion_arguments

    get_install_completion_arguments()


def runners(context: typer.Context, incomplete: str) -> Offers:
    """Offer the runners that are not gone."""
    rows = _read(context, lambda client: client.items("runners", most=MOST))
    return [(row["id"], row["state"]) for row in rows if row["state"] not in {"gone", "abandoned"}]


def any_runners(context: typer.Context, incomplete: str) -> Offers:
    """Offer runners, also those that are gone."""
    rows = _read(context, lambda client: client.items("runners", most=MOST))
    return [(row["id"], row["state"]) for row in rows]


def subjects(context: typer.Context, incomplete: str) -> Offers:
    """Offer runners, and jobs by their number; by their whole id once a slash is typed."""
    jobs = _read(context, lambda client: client.items("jobs", most=MOST))
    key = "id" if "/" in incomplete else "number"
    return [*any_runners(context, incomplete), *((str(row[key]), row["status"]) for row in jobs)]


def pools(context: typer.Context, incomplete: str) -> Offers:
    """Offer the pools."""
    rows = _read(context, lambda client: client.items("pools"))
    return [(row["name"], f"pool on {row['host']}") for row in rows]


def targets(context: typer.Context, incomplete: str) -> Offers:
    """Offer pools and hosts, each name once."""
    hosts = _read(context, lambda client: client.items("hosts"))
    found = dict([*((row["name"], "host") for row in hosts), *pools(context, incomplete)])
    return list(found.items())


def words(*known: str) -> Any:
    """Return the completion of an option that takes one of these words."""

    def offer(context: typer.Context, incomplete: str) -> Offers:
        return [(word, "") for word in known]

    return offer


def _read(context: typer.Context, fetch: Any) -> list[Plain]:
    """Return what the daemon says, nothing where it does not; one request is given half a second."""
    given = context.params
    try:
        client: Client = connect(given.get("socket"), given.get("url"))
        client.deadline = DEADLINE
        rows: Iterable[Plain] = fetch(client)
        return list(rows)
    except Exception:  # whatever is wrong, the line that somebody types is not the place to say so
        return []
