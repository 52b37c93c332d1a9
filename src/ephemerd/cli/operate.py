"""`kill`, `cordon`, `uncordon`, `drain`, `reload`: what a person orders. Orders are journalled with who gave them."""

from __future__ import annotations

import getpass
import sys
import time
from typing import Annotated, Any

import typer

from ephemerd.cli import output
from ephemerd.cli.client import Client, connect
from ephemerd.cli.failure import Exit, Failure, complain
from ephemerd.cli.options import Json, Reason, Socket, Url, common
from ephemerd.cli.subjects import find_runner
from ephemerd.config.units import parse_duration

Plain = dict[str, Any]
WAIT_EVERY = 1.0

TargetName = Annotated[
    str,
    typer.Argument(
        metavar="POOL|HOST", help="Which pool or host; without one everything. pool:NAME where both exist."
    ),
]


def kill(
    runner: Annotated[str, typer.Argument(metavar="RUNNER", help="Its id, or the end of it.")],
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
    body = {"reason": reason, "even_if_busy": even_if_busy, "who": _who()}
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
    _tell(client.post("cordon", {**_target(client, target), "reason": reason, "who": _who()}), as_json)


def uncordon(target: TargetName = "", as_json: Json = False, socket: Socket = None, url: Url = None) -> None:
    """End a cordon or a drain."""
    client = connect(socket, url)
    _tell(client.post("uncordon", {**_target(client, target), "who": _who()}), as_json)


def drain(
    context: typer.Context,
    target: TargetName = "",
    reason: Reason = "",
    wait: Annotated[bool, typer.Option("--wait", help="Return only when no runner is left there.")] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="DURATION", help='With --wait: give up after e.g. "30m".')
    ] = "none",
    as_json: Json = False,
    socket: Socket = None,
    url: Url = None,
) -> None:
    """Cordon until no runner is left there. Running jobs are waited for, never ended."""
    client = connect(socket, url)
    limit = _limit(timeout)
    where = _target(client, target)
    answer = client.post("drain", {**where, "reason": reason, "who": _who()})
    if wait:
        _wait(client, where, limit, quiet=common(context).quiet)
        answer = {**answer, "detail": "drained: no runner is left"}
    _tell(answer, as_json)


def reload(as_json: Json = False, socket: Socket = None, url: Url = None) -> int:
    """Have the daemon read its configuration again. A bad one is refused, and the old one stays in use."""
    client = connect(socket, url)
    answer = client.post("reload", {"who": _who()})
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


def _limit(timeout: str) -> float | None:
    if timeout == "none":
        return None
    try:
        return parse_duration(timeout) / 1_000
    except ValueError as error:
        raise Failure(Exit.USAGE, f"--timeout {timeout!r}: {error}", "write e.g. --timeout 30m") from None


def _wait(client: Client, where: Plain, limit: float | None, *, quiet: bool) -> None:
    """Wait until nothing holds a slot there; say for whom it waits whenever that changes."""
    began, said = time.monotonic(), ""
    while True:
        held = _holding(client, where)
        if not held:
            return
        names = ", ".join(f"{row['id']} ({row['state']})" for row in held)
        if names != said:
            output.note(f"waits for {output.clean(names)}", quiet=quiet)
            said = names
        if limit is not None and time.monotonic() - began >= limit:
            raise Failure(
                Exit.REFUSED,
                f"not drained in time; still there: {output.clean(names)}",
                "wait longer, or end a runner by 'ephemerd kill'; the drain goes on",
            )
        time.sleep(WAIT_EVERY)


def _holding(client: Client, where: Plain) -> list[Plain]:
    live = [row for row in client.items("runners") if row["state"] not in {"gone", "abandoned"}]
    if where["target"] == "all":
        return live
    return [row for row in live if row[where["target"]] == where["name"]]


def _target(client: Client, text: str) -> Plain:
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


def _tell(answer: Plain, as_json: bool) -> None:
    if as_json:
        output.emit_json(answer)
    else:
        print(output.clean(answer["detail"]))


def _who() -> str:
    """The account that gives the order, for the journal."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown account"
