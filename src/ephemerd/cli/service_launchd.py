"""The launchd property list of macOS: its content, and what launchctl is asked to do with it."""

from __future__ import annotations

import plistlib
from pathlib import Path
from typing import Any

from ephemerd.cli.service_systemd import STOP_LIMIT, Service

SYSTEM_FOLDER = Path("/Library/LaunchDaemons")


def label(service: Service) -> str:
    """Return the name under which launchd knows the job."""
    return f"org.ephemerd.{service.name}"


def property_list(service: Service, logs: Path) -> str:
    """Return the text of the property list. `logs` is the folder of the daemon's own log."""
    content: dict[str, Any] = {
        "Label": label(service),
        "ProgramArguments": list(service.arguments),
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": 10,
        # Runners outlive the daemon: launchd must not end its process group with it.
        "AbandonProcessGroup": True,
        "ExitTimeOut": STOP_LIMIT,
        # Builds must not be slowed down as background work is.
        "ProcessType": "Interactive",
        "SoftResourceLimits": {"NumberOfFiles": 65536},
        "HardResourceLimits": {"NumberOfFiles": 65536},
        "StandardOutPath": str(logs / f"{service.name}.log"),
        "StandardErrorPath": str(logs / f"{service.name}.log"),
        "WorkingDirectory": "/",
    }
    if service.user and not service.own:
        content["UserName"] = service.user
    return plistlib.dumps(content, sort_keys=False).decode()


def place(service: Service, home: Path) -> Path:
    """Return where the file belongs."""
    folder = home / "Library" / "LaunchAgents" if service.own else SYSTEM_FOLDER
    return folder / f"{label(service)}.plist"


def logs_folder(service: Service, home: Path) -> Path:
    """Return the folder of the daemon's own log."""
    return home / "Library" / "Logs" if service.own else Path("/Library/Logs")


def after_install(service: Service, path: Path, uid: int, *, enable: bool, start: bool) -> list[list[str]]:
    """Return the commands that enable and load the job; loading starts it. A loaded one is unloaded first."""
    target = f"{_domain(service, uid)}/{label(service)}"
    commands = [["launchctl", "enable", target]] if enable else []
    if start:
        commands.append(["launchctl", "bootstrap", _domain(service, uid), str(path)])
    return commands


def before_removal(service: Service, uid: int) -> list[list[str]]:
    """Return the commands that stop and forget the job; its runners live on."""
    return [["launchctl", "bootout", f"{_domain(service, uid)}/{label(service)}"]]


def _domain(service: Service, uid: int) -> str:
    return f"gui/{uid}" if service.own else "system"
