"""`kill`, `cordon`, `uncordon`, `reload`: what a person orders. Orders are journalled with who gave them."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated, Any

import typer

from ephemerd.cli import complete, output
from ephemerd.cli.client import Client, connect
from ephemerd.cli.failure import Exit, Failure, complain
from ephemerd.cli.options import Json, Reason, Socket, Url
from ephemerd.cli.subjects import find_runner

Plain = dict[str, Any]

TargetName = Annotated[
    str,
    typer.Argument(
        metavar="POOL|HOST",
        help="Which pool or host; without one everything. pool:NAME where both exist.",
        autocompletion=complete.targets,
    ),
]


def kill(
    runner: Annotated[
        str,
        typer.Argument(metavar="RUNNER", help="Its id, or the end of it.", autocompletion=complete.runners),
    ],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept in the journal.")],
    even_if_busy: Annotated[
        bool, typer.Option("--even-if-busy", help="End it although it executes a job; that job fails.")
    ] = False,
    as_json: Json = False,
    socket: Socket = None,
    url: Url = None,
) -> int:
    """End a runner. It goes through the gate like any other: a busy one is refused."""
    client = connect(socket, url)
    if not reason.strip():
        raise Failure(Exit.USAGE, "--reason is empty", "say why; whoever reads the journal will want to know")
    name = find_runner(client, runner)
    answer = _kill(client, name, reason, even_if_busy)
    if answer["outcome"] == "vetoed" and not even_if_busy and _sure(name, answer):
        answer = _kill(client, name, reason, True)
    if as_json:
        output.emit_json(answer)
    if answer["outcome"] == "vetoed":
        raise Failure(
            Exit.REFUSED,
            f"{name} was not ended: {answer['detail']}",
            f"see 'ephemerd explain {name}'; --even-if-busy ends it although its job would fail",
        )
    if not as_json:
        print(f"{name}: {output.clean(answer['detail'] or answer['outcome'])}")
    return Exit.DONE


def _kill(client: Client, name: str, reason: str, even_if_busy: bool) -> Plain:
    body = {"reason": reason, "even_if_busy": even_if_busy, "who": who()}
    return client.post(f"runners/{name}/kill", body)


def _sure(name: str, answer: Plain) -> bool:
    """Ask on a terminal; without one the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    question = f"{name} was vetoed: {output.clean(answer['detail'])}\nEnd it anyway? Its job would fail."
    return typer.confirm(question, default=False, err=True)


def cordon(
    target: TargetName = "",
    reason: Reason = "",
    as_json: Json = False,
    socket: Socket = None,
    url: Url = None,
) -> None:
    """Start no more runners there; idle ones leave, busy ones finish their job."""
    client = connect(socket, url)
    tell(client.post("cordon", {**target_of(client, target), "reason": reason, "who": who()}), as_json)


def uncordon(target: TargetName = "", as_json: Json = False, socket: Socket = None, url: Url = None) -> None:
    """End a cordon or a drain."""
    client = connect(socket, url)
    tell(client.post("uncordon", {**target_of(client, target), "who": who()}), as_json)


def reload(as_json: Json = False, socket: Socket = None, url: Url = None) -> int:
    """Have the daemon read its configuration again. A bad one is refused, and the old one stays in use."""
    client = connect(socket, url)
    answer = client.post("reload", {"who": who()})
    refused = answer["outcome"] == "refused"
    if as_json:
        output.emit_json(answer)
    for finding in answer["findings"]:
        complain(
            f"{output.clean(finding['where'])}: {output.clean(finding['what'])}",
            output.clean(finding["todo"]),
            word=str(finding["level"]),
        )
    if not as_json:
        for change in answer["changes"]:
            print(output.clean(_changed(change)))
        if not refused:
            print(output.clean(answer["detail"]))
    codes = [finding["code"] for finding in answer["findings"] if finding["level"] == "error"]
    return min(codes, default=int(Exit.REFUSED)) if refused else Exit.DONE


def _changed(change: Plain) -> str:
    line = f"{change['key']}: {change['before']} -> {change['after']}"
    if not change["applied"]:
        return f"{line}  (needs a restart: {change['note']})"
    return f"{line}  ({change['note']})" if change["note"] else line


def target_of(client: Client, text: str) -> Plain:
    """Return the order's target for a name that may be a pool's or a host's."""
    if not text:
        return {"target": "all", "name": ""}
    kind, colon, name = text.partition(":")
    if colon and kind in {"pool", "host"}:
        return {"target": kind, "name": name}
    known = {kind: [row["name"] for row in client.get(f"{kind}s")["items"]] for kind in ("pool", "host")}
    kinds = [kind for kind, names in known.items() if text in names]
    if len(kinds) == 1:
        return {"target": kinds[0], "name": text}
    if kinds:
        raise Failure(
            Exit.USAGE,
            f"{text!r} is a pool and a host",
            f"write pool:{text} or host:{text}",
        )
    names = ", ".join(dict.fromkeys(name for names in known.values() for name in names))
    raise Failure(Exit.USAGE, f"there is no pool or host {text!r}", f"there are: {names}")


def tell(answer: Plain, as_json: bool) -> None:
    """Print the answer to an order."""
    if as_json:
        output.emit_json(answer)
    else:
        print(output.clean(answer["detail"]))


def who() -> str:
    """The account that gives the order, for the journal."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown account"
