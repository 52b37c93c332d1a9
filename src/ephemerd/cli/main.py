"""The program `ephemerd`: its commands, the options before them, and how it ends."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

import ephemerd
from ephemerd.cli import complete, credentials
from ephemerd.cli.failure import Exit, Failure, complain
from ephemerd.cli.lazy import Entry, group
from ephemerd.cli.options import FORMATS, LEVELS, Common

SECTIONS: dict[str, tuple[Entry, ...]] = {
    "Try it": (
        Entry(
            "demo",
            "lab:demo",
            "Watch the main job on this machine, without credentials.",
            "demo --jobs 20 --seed 3",
        ),
    ),
    "Set up": (
        Entry("init", "init:init", "Write a first configuration.", "init --scope acme/app"),
        Entry("check", "check:check", "Check configuration and machine.", "check --config ./ephemerd.toml"),
        Entry("doctor", "doctor:doctor", "Check machine, forges and engines.", "doctor --json"),
        Entry("serve", "serve:serve", "Run the daemon.", "serve --config /etc/ephemerd/config.toml"),
        Entry("install", "install:install", "Write a service for the daemon.", "install --dry-run"),
        Entry("uninstall", "install:uninstall", "Stop and remove that service.", "uninstall --user"),
        Entry("completion", "complete:completion", "Print the completion for a shell.", "completion bash"),
        Entry("webhook", "webhook:app", "Look after the forge's hook.", "webhook status"),
    ),
    "Look": (
        Entry("status", "views:status", "Show health and what goes on.", "status --watch"),
        Entry("top", "top:top", "Watch pools, queue and runners live.", "top --every 1"),
        Entry("pools", "views:pools", "List pools and waiting demand.", "pools --json"),
        Entry("hosts", "views:hosts", "List hosts and their slots.", "hosts"),
        Entry("runners", "views:runners", "List runners, newest first.", "runners --state running"),
        Entry("jobs", "views:jobs", "List jobs, and why one still waits.", "jobs --status queued"),
        Entry(
            "decisions", "views:decisions", "List the gate's decisions.", "decisions --outcome vetoed -n 20"
        ),
        Entry("explain", "explain:explain", "Tell the story of a runner or job.", "explain 48213377105"),
        Entry("logs", "logs:logs", "Show what a runner printed.", "logs eph-k3v9-12 -f"),
    ),
    "Steer": (
        Entry(
            "kill",
            "operate:kill",
            "End a runner, if it is idle.",
            'kill eph-k3v9-12 --reason "wedged since noon"',
        ),
        Entry("cordon", "operate:cordon", "Start no more runners.", 'cordon linux --reason "new disk"'),
        Entry("uncordon", "operate:uncordon", "End a cordon or drain.", "uncordon linux"),
        Entry("drain", "drain:drain", "Cordon until no runner is left.", "drain --wait --timeout 2h"),
        Entry("reload", "operate:reload", "Have the daemon read its configuration again.", "reload --json"),
    ),
    "Look after": (
        Entry("store", "store:app", "Check, back up, export the store.", "store backup FILE"),
        Entry("journal", "journal:app", "Export the journal.", "journal export --out journal.jsonl"),
        Entry("token", "token:app", "Make API tokens and login links.", "token create grafana --role read"),
        Entry("images", "images:app", "List runners' images, remove old ones.", "images gc --dry-run"),
    ),
    "Test with": (
        Entry(
            "simulate",
            "lab_simulate:simulate",
            "Run the scheduler in virtual time, by the thousand.",
            "simulate --jobs 5000 --seeds 1-8 --weather hostile",
        ),
        Entry(
            "replay",
            "lab_simulate:replay",
            "Feed a recorded incident or journal to the scheduler.",
            "replay incident.jsonl --policy sweep",
        ),
        Entry(
            "forge-sim",
            "lab:forge_sim",
            "Run the GitHub look-alike alone.",
            "forge-sim --port 9000 --weather bursty --write-runner ./runner",
        ),
        Entry("bench", "lab_bench:bench", "Measure speed and cost on this machine.", "bench --only core"),
    ),
}
ENTRIES = {entry.name: entry for part in SECTIONS.values() for entry in part}

app = typer.Typer(
    cls=group(SECTIONS),
    name="ephemerd",
    help="Ephemeral CI runners on your own machines: one fresh runner a job, and none destroyed while it "
    "works.",
    epilog="Example: ephemerd demo",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

# Options that may stand anywhere on the line, with how many values they take.
ANYWHERE = {
    "--debug": 0,
    "-v": 0,
    "--verbose": 0,
    "-q": 0,
    "--quiet": 0,
    "--log-level": 1,
    "--log-format": 1,
    "--token-file": 1,
}
# Commands that have such an option of their own, which means something else there.
OWN = {"--token-file": frozenset({"forge-sim", "init"})}


def _version(asked: bool) -> None:
    if asked:
        print(f"ephemerd {ephemerd.__version__}")
        raise typer.Exit


@app.callback()
def _before(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Same as --log-level debug.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only warnings.")] = False,
    log_level: Annotated[
        str, typer.Option("--log-level", metavar="LEVEL", help=f"One of {', '.join(LEVELS)}.")
    ] = "",
    log_format: Annotated[
        str, typer.Option("--log-format", metavar="FORMAT", help=f"One of {', '.join(FORMATS)}.")
    ] = "auto",
    token: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="API token for --url; default $EPHEMERD_TOKEN."),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    level = log_level or ("debug" if verbose else "warning" if quiet else "info")
    for option, value, allowed in (("--log-level", level, LEVELS), ("--log-format", log_format, FORMATS)):
        if value not in allowed:
            raise Failure(Exit.USAGE, f"{option} {value!r} is not known", f"use one of {', '.join(allowed)}")
    context.obj = Common(debug, quiet, level, log_format, bool(log_level or verbose or quiet))
    credentials.token_file.set(token)


def hoist(arguments: Sequence[str]) -> list[str]:
    """Put the options that may stand anywhere before the command; what follows `--` or --reason stays."""
    front: list[str] = []
    rest: list[str] = []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if argument == "--":
            return [*front, *rest, argument, *left]
        name = argument.partition("=")[0]
        own = OWN.get(name, frozenset()) & set(rest[:1])
        if name in ANYWHERE and not own and rest[-1:] != ["--reason"]:
            front.append(argument)
            if ANYWHERE[name] and "=" not in argument and left:
                front.append(left.pop(0))
        else:
            rest.append(argument)
    return front + rest


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; a traceback is shown with --debug alone."""
    hoisted = hoist(arguments)
    debug = "--debug" in hoisted
    if complete.asked():
        complete.prepare()
    elif not [argument for argument in hoisted if argument not in ANYWHERE]:
        hoisted.append("--help")
    try:
        return int(app(args=hoisted, prog_name="ephemerd", standalone_mode=False) or Exit.DONE)
    except Failure as failure:
        complain(failure.what, failure.todo)
        if debug:
            traceback.print_exc()
        return failure.code
    except (KeyboardInterrupt, typer.Abort):
        return Exit.INTERRUPTED
    except Exception as error:
        return _unforeseen(error, debug=debug)


def _unforeseen(error: Exception, *, debug: bool) -> int:
    """Return the code of wrong usage, which the parser reports by an exception, or of anything else."""
    form = getattr(error, "format_message", None)
    if form is not None and getattr(error, "exit_code", None) == Exit.USAGE:
        context = getattr(error, "ctx", None)
        complain(str(form()), f"see '{context.command_path if context else 'ephemerd'} --help'")
        return Exit.USAGE
    if debug:
        traceback.print_exception(error)
    complain(
        f"unexpected: {type(error).__name__}: {error}", "run it again with --debug, and report what it prints"
    )
    return Exit.UNEXPECTED


def _terminated(number: int, frame: FrameType | None) -> None:
    raise SystemExit(Exit.TERMINATED)


def main() -> None:
    """Entry point of the console script."""
    signal.signal(signal.SIGTERM, _terminated)
    sys.exit(run(sys.argv[1:]))
