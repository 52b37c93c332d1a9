"""The program `ephemerd`: its commands, the options before them, and how it ends."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Annotated, Any

import typer

import ephemerd
from ephemerd.cli import (
    check,
    doctor,
    drain,
    explain,
    images,
    init,
    install,
    journal,
    lab,
    lab_simulate,
    logs,
    operate,
    serve,
    store,
    views,
    webhook,
)
from ephemerd.cli.failure import Exit, Failure, complain
from ephemerd.cli.options import FORMATS, LEVELS, Common

app = typer.Typer(
    name="ephemerd",
    help="Ephemeral CI runners on your own machines: one fresh runner a job, and none destroyed while it "
    "works.",
    epilog="Example: ephemerd demo",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

# Name, function, the line in the list of commands, an example.
COMMANDS: tuple[tuple[str, Callable[..., Any], str, str], ...] = (
    ("demo", lab.demo, "Watch the main job on this machine, without credentials.", "demo --jobs 20 --seed 3"),
    ("serve", serve.serve, "Run the daemon.", "serve --config /etc/ephemerd/config.toml"),
    ("init", init.init, "Write a first configuration.", "init --scope acme/app"),
    ("check", check.check, "Check configuration and machine.", "check --config ./ephemerd.toml"),
    ("doctor", doctor.doctor, "Check machine, forges and engines.", "doctor --json"),
    ("status", views.status, "Show health and what goes on.", "status --watch"),
    ("pools", views.pools, "List pools and waiting demand.", "pools --json"),
    ("hosts", views.hosts, "List hosts and their slots.", "hosts"),
    ("runners", views.runners, "List runners, newest first.", "runners --state running"),
    ("jobs", views.jobs, "List jobs, and why one still waits.", "jobs --status queued"),
    ("decisions", views.decisions, "List the gate's decisions.", "decisions --outcome vetoed -n 20"),
    ("explain", explain.explain, "Tell the story of a runner or job.", "explain 48213377105"),
    ("logs", logs.logs, "Show what a runner printed.", "logs eph-k3v9-12 -f"),
    ("kill", operate.kill, "End a runner, if it is idle.", 'kill eph-k3v9-12 --reason "wedged since noon"'),
    ("cordon", operate.cordon, "Start no more runners.", 'cordon linux --reason "new disk"'),
    ("uncordon", operate.uncordon, "End a cordon or drain.", "uncordon linux"),
    ("drain", drain.drain, "Cordon until no runner is left.", "drain --wait --timeout 2h"),
    ("install", install.install, "Write a service for the daemon.", "install --dry-run"),
    ("uninstall", install.uninstall, "Stop and remove that service.", "uninstall --user"),
    ("reload", operate.reload, "Have the daemon read its configuration again.", "reload --json"),
    (
        "simulate",
        lab_simulate.simulate,
        "Run the scheduler in virtual time, by the thousand.",
        "simulate --jobs 5000 --seeds 1-8 --weather hostile",
    ),
    (
        "replay",
        lab_simulate.replay,
        "Feed a recorded incident or journal to the scheduler.",
        "replay incident.jsonl --policy sweep",
    ),
    (
        "forge-sim",
        lab.forge_sim,
        "Run the GitHub look-alike alone.",
        "forge-sim --port 9000 --weather bursty --write-runner ./runner",
    ),
)
for _name, _function, _short, _example in COMMANDS:
    app.command(_name, short_help=_short, epilog=f"Example: ephemerd {_example}")(_function)

app.add_typer(journal.app)
app.add_typer(store.app)
app.add_typer(images.app)
app.add_typer(webhook.app)

# Options that may stand anywhere on the line, with how many values they take.
ANYWHERE = {
    "--debug": 0,
    "-v": 0,
    "--verbose": 0,
    "-q": 0,
    "--quiet": 0,
    "--log-level": 1,
    "--log-format": 1,
}


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
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    level = log_level or ("debug" if verbose else "warning" if quiet else "info")
    for option, value, allowed in (("--log-level", level, LEVELS), ("--log-format", log_format, FORMATS)):
        if value not in allowed:
            raise Failure(Exit.USAGE, f"{option} {value!r} is not known", f"use one of {', '.join(allowed)}")
    context.obj = Common(debug, quiet, level, log_format, bool(log_level or verbose or quiet))


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
        if name in ANYWHERE and rest[-1:] != ["--reason"]:
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
    if not [argument for argument in hoisted if argument not in ANYWHERE]:
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
