"""`token`: API tokens for scripts and scrapers, and one-time login links for browsers."""

from __future__ import annotations

import getpass
import os
import socket as sockets
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, urlsplit

import typer

from ephemerd.cli import output
from ephemerd.cli.client import NotKnown, Plain, connect
from ephemerd.cli.failure import Exit, Failure
from ephemerd.cli.options import Json, Socket, Url
from ephemerd.cli.output import Page, Table, clean
from ephemerd.config.units import parse_optional_duration

ROLES = ("read", "operate")
EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104  (what a daemon that listens everywhere says)

app = typer.Typer(
    name="token",
    help="API tokens, and login links for browsers.",
    epilog="Example: ephemerd token create grafana --role read",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)

Role = Annotated[str, typer.Option("--role", metavar="ROLE", help="read, or operate: order as well.")]


@app.command(epilog="Example: ephemerd token create grafana --role read --expires 90d --out grafana.token")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for; it names who ordered what.")],
    role: Role = "read",
    expires: Annotated[
        str, typer.Option("--expires", metavar="DURATION", help='How long it holds; "none": until revoked.')
    ] = "90d",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write it there, mode 0600, and do not print it."),
    ] = None,
    as_json: Json = False,
    socket: Socket = None,
) -> int:
    """Make a token and print it once: only a digest of it is kept. Over the daemon's socket alone."""
    body = {"name": name, "role": _role(role), "seconds": _seconds(expires)}
    if out is not None and out.exists():
        raise Failure(Exit.USAGE, f"{out} exists already", "name another file, or remove it first")
    made = connect(socket, None).post("tokens", body)
    if out is not None:
        try:
            _private(out, str(made["token"]))
        except Failure:
            connect(socket, None).delete(f"tokens/{quote(name)}")
            raise
        made = {**made, "token": None, "file": str(out)}
    if as_json:
        output.emit_json(made)
    elif out is None:
        print(made["token"])
    return Exit.DONE


@app.command("list", epilog="Example: ephemerd token list")
def list_(as_json: Json = False, socket: Socket = None) -> int:
    """List all tokens, without their secrets."""
    items = list(connect(socket, None).get("tokens")["items"])
    if as_json:
        output.emit_json({"items": items})
        return Exit.DONE
    rows = [
        (
            clean(one["name"]),
            clean(one["role"]),
            output.clock(one["created"], day=True),
            _end(one),
            output.clock(one["used"], day=True) if one["used"] is not None else "-",
        )
        for one in items
    ]
    table = Table(("NAME", "ROLE", "CREATED", "EXPIRES", "LAST USED"), rows, empty="there is no token")
    output.emit(Page([table]))
    return Exit.DONE


@app.command(short_help="Make a token void at once.", epilog="Example: ephemerd token revoke grafana")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The token's name.")], socket: Socket = None
) -> int:
    """Make a token void at once, with every browser session that came from it."""
    try:
        connect(socket, None).delete(f"tokens/{quote(name, safe='')}")
    except NotKnown as unknown:
        raise Failure(Exit.USAGE, unknown.what, "list what there is: 'ephemerd token list'") from None
    return Exit.DONE


@app.command(epilog="Example: ephemerd token login")
def login(
    role: Annotated[
        str, typer.Option("--role", metavar="ROLE", help="read or operate; default: what you may yourself.")
    ] = "",
    base: Annotated[
        str,
        typer.Option(
            "--base", metavar="URL", help="Where the browser reaches the daemon, e.g. its TLS proxy."
        ),
    ] = "",
    as_json: Json = False,
    socket: Socket = None,
    url: Url = None,
) -> int:
    """Print a link that logs a browser in, once and within five minutes."""
    if base and urlsplit(base).scheme not in {"http", "https"}:
        raise Failure(Exit.USAGE, f"--base {base!r} is no address", "write --base https://HOST")
    body = {"role": _role(role) if role else "", "who": _me()}
    made = connect(socket, url).post("login", body)
    link = (base or url or f"http://{_reachable(str(made['listen']))}").rstrip("/") + str(made["path"])
    if as_json:
        output.emit_json({"url": link, "until": made["until"], "role": made["role"]})
    else:
        print(link)
    return Exit.DONE


def _role(text: str) -> str:
    if text not in ROLES:
        raise Failure(Exit.USAGE, f"--role {text!r} is not known", f"use one of {', '.join(ROLES)}")
    return text


def _seconds(text: str) -> int | None:
    try:
        ms = parse_optional_duration(text)
    except ValueError as error:
        raise Failure(Exit.USAGE, f"--expires {error}", 'write --expires 90d, or "none"') from None
    if ms is not None and ms < 1000:
        raise Failure(Exit.USAGE, "--expires is too short", "a token holds for a second at least")
    return None if ms is None else ms // 1000


def _private(path: Path, token: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(token + "\n")
    except OSError as error:
        raise Failure(
            Exit.ENVIRONMENT,
            f"{path} cannot be written: {error.strerror}",
            "name another file; nothing was made",
        ) from None


def _end(one: Plain) -> str:
    if one["expires"] is None:
        return "never"
    return "over" if one["expired"] else output.clock(one["expires"], day=True)


def _me() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such account, no variable that names one
        return ""


def _reachable(listen: str) -> str:
    """Return an address that a browser can open, of one that a daemon listens at."""
    host, _, port = listen.rpartition(":")
    return f"{sockets.gethostname()}:{port}" if host.strip("[]") in EVERYWHERE else listen
