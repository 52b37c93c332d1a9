"""`install` and `uninstall`: the daemon as a service of systemd or, on macOS, of launchd."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ephemerd.cli import output, service_launchd, service_systemd
from ephemerd.cli.failure import Exit, Failure
from ephemerd.cli.options import common
from ephemerd.cli.service_systemd import Service

NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
CREDENTIAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
LIMIT = 120.0
"""Seconds that a command of the service manager may take: a stop waits for the daemon."""

Own = Annotated[bool, typer.Option("--user", help="A service of this account, not of the system.")]
ServiceName = Annotated[str, typer.Option("--name", metavar="NAME", help="The service's name.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be written and run; change nothing.")
]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done with a manager: a file with its text, commands before and after."""

    path: Path
    text: str
    before: list[list[str]]
    after: list[list[str]]


def install(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="Configuration that the service reads."),
    ] = None,
    own: Own = False,
    run_as: Annotated[
        str, typer.Option("--run-as", metavar="ACCOUNT", help="Account of a system service; default: root.")
    ] = "",
    credential: Annotated[
        list[str] | None,
        typer.Option(
            "--credential",
            metavar="NAME=FILE",
            help='A secret that the configuration calls "credential:NAME".',
        ),
    ] = None,
    harden: Annotated[
        bool,
        typer.Option("--harden", help="Also forbid what only jobs that never become root can do without."),
    ] = False,
    enable: Annotated[bool, typer.Option("--enable", help="Start it with the machine, or at login.")] = False,
    start: Annotated[bool, typer.Option("--start", help="Start it now.")] = False,
    name: ServiceName = "ephemerd",
    dry_run: DryRun = False,
) -> int:
    """Write the service's file. It is neither enabled nor started unless you say so."""
    service = Service(
        name=_name(name),
        program=_program(),
        config=_config(config, dry_run=dry_run),
        user=run_as,
        own=own,
        harden=harden,
        credentials=tuple(_credential(text) for text in credential or []),
    )
    if own and run_as:
        raise Failure(
            Exit.USAGE, "--run-as and --user are both given", "a service of this account runs as it"
        )
    plan = _manager()(service, enable=enable, start=start)
    if dry_run:
        _show(plan, plan.after)
        return Exit.DONE
    _secrets(service)
    _allowed(service)
    _write(plan)
    output.note(f"wrote {plan.path}", quiet=common(context).quiet)
    for command in plan.after:
        _run(command)
    output.note(_next(service, enable=enable, start=start), quiet=common(context).quiet)
    return Exit.DONE


def uninstall(
    context: typer.Context, own: Own = False, name: ServiceName = "ephemerd", dry_run: DryRun = False
) -> int:
    """Stop the service and remove its file. Runners that work go on; store and configuration stay."""
    service = Service(name=_name(name), program=_program(), own=own)
    plan = _manager()(service, enable=False, start=False)
    after = service_systemd.after_removal(service) if sys.platform != "darwin" else []
    if dry_run:
        for command in [*plan.before, ["rm", str(plan.path)], *after]:
            print(" ".join(command))
        return Exit.DONE
    if not plan.path.exists():
        raise Failure(
            Exit.USAGE, f"{plan.path} does not exist", "name another service by --name, or add --user"
        )
    _allowed(service)
    for command in plan.before:
        _run(command, may_fail=True)
    plan.path.unlink()
    for command in after:
        _run(command, may_fail=True)
    output.note(f"removed {plan.path}; runners that work go on", quiet=common(context).quiet)
    return Exit.DONE


def _manager() -> Callable[..., Plan]:
    """Return what plans for this machine's service manager."""
    if sys.platform == "darwin":
        return _launchd
    if sys.platform.startswith("linux"):
        return _systemd
    raise Failure(
        Exit.ENVIRONMENT, f"there is no service manager for {sys.platform} here", "run 'ephemerd serve'"
    )


def _systemd(service: Service, *, enable: bool, start: bool) -> Plan:
    path = service_systemd.place(service, Path.home(), os.environ.get("XDG_CONFIG_HOME", ""))
    after = service_systemd.after_install(service, enable=enable, start=start)
    return Plan(path, service_systemd.unit(service), service_systemd.before_removal(service), after)


def _launchd(service: Service, *, enable: bool, start: bool) -> Plan:
    if service.credentials or service.harden:
        raise Failure(
            Exit.USAGE,
            "launchd knows neither credentials nor hardening",
            "use token_file, and leave these options out",
        )
    path, uid = service_launchd.place(service, Path.home()), os.getuid()
    text = service_launchd.property_list(service, service_launchd.logs_folder(service, Path.home()))
    after = service_launchd.after_install(service, path, uid, enable=enable, start=start)
    return Plan(path, text, service_launchd.before_removal(service, uid), after)


def _name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise Failure(
            Exit.USAGE, f"--name {name!r} is no name of a service", "use small letters, digits and -"
        )
    return name


def _program() -> tuple[str, ...]:
    """Return what starts this very program, absolute: its script beside the interpreter, else the module."""
    script = Path(sys.executable).with_name("ephemerd")
    return (str(script),) if os.access(script, os.X_OK) else (sys.executable, "-m", "ephemerd")


def _config(path: Path | None, *, dry_run: bool) -> Path | None:
    if path is None:
        return None
    if not dry_run and not path.is_file():
        raise Failure(Exit.CONFIGURATION, f"there is no file {path}", "name the configuration by --config")
    return Path.cwd() / path


def _credential(text: str) -> tuple[str, Path]:
    name, equals, file = text.partition("=")
    if not equals or not CREDENTIAL.fullmatch(name) or not file:
        raise Failure(
            Exit.USAGE, "--credential is not NAME=FILE", "e.g. --credential token=/etc/ephemerd/token"
        )
    return name, Path.cwd() / file


def _secrets(service: Service) -> None:
    """Check that each secret that the configuration takes from systemd is given, and is there."""
    given = dict(service.credentials)
    for name, file in given.items():
        if not file.is_file():
            raise Failure(
                Exit.CREDENTIALS, f"there is no file {file} for the credential {name!r}", "name another"
            )
    for name in _asked(service.config):
        if name not in given:
            raise Failure(
                Exit.CREDENTIALS,
                f'the configuration takes "credential:{name}", and none of that name is given',
                f"add --credential {name}=FILE",
            )


def _asked(config: Path | None) -> list[str]:
    """Return the credentials that a configuration names; a file that cannot be read is for `check` to tell."""
    try:
        left: list[object] = [] if config is None else [tomllib.loads(config.read_text())]
    except (OSError, ValueError):
        return []
    found = []
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, str) and value.startswith("credential:"):
            found.append(value.removeprefix("credential:"))
    return sorted(dict.fromkeys(found))


def _allowed(service: Service) -> None:
    if not service.own and os.geteuid() != 0:
        raise Failure(Exit.ENVIRONMENT, "only root can change a service of the system", "use sudo, or --user")


def _write(plan: Plan) -> None:
    """Write the file whole or not at all; it holds no secret, and others may read it."""
    beside = plan.path.with_name(f".{plan.path.name}.new")
    try:
        plan.path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(plan.text)
        beside.chmod(0o644)
        beside.replace(plan.path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise Failure(
            Exit.ENVIRONMENT, f"{plan.path} could not be written: {error.strerror}", "see its folder"
        ) from error


def _show(plan: Plan, commands: list[list[str]]) -> None:
    print(f"# {plan.path}")
    print(plan.text, end="")
    for command in commands:
        print(f"# then: {' '.join(command)}")


def _run(command: list[str], *, may_fail: bool = False) -> None:
    program = shutil.which(command[0])
    words = " ".join(command)
    if program is None:
        raise Failure(Exit.ENVIRONMENT, f"there is no {command[0]} here", f"run by hand: {words}")
    try:
        done = subprocess.run(
            [program, *command[1:]], capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failure(
            Exit.ENVIRONMENT, f"'{words}' did not end within {LIMIT:.0f} s", "look at its state"
        ) from None
    if done.returncode and not may_fail:
        said = (done.stderr or done.stdout).strip() or f"code {done.returncode}"
        raise Failure(
            Exit.ENVIRONMENT, f"'{words}' failed: {output.clean(said)}", "mend that, then run it by hand"
        )


def _next(service: Service, *, enable: bool, start: bool) -> str:
    if sys.platform == "darwin":
        return "it runs" if start else "load it by 'ephemerd install --enable --start'"
    control = "systemctl --user" if service.own else "systemctl"
    linger = "; it ends at logout unless 'loginctl enable-linger'" if service.own else ""
    if start:
        return f"see '{control} status {service.name}'{linger}"
    wanted = "start" if enable else "enable --now"
    return f"next: {control} {wanted} {service.name}{linger}"
