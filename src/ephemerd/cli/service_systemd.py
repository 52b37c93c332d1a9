"""The systemd unit: its text, and what systemctl is asked to do with it.

Everything that a unit forbids it also forbids the runners, which are its children, and some of it (a private
/tmp, for one) ends with the daemon while they live on. So the unit takes only what jobs never need; `harden`
is for machines whose jobs never become root.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SYSTEM_FOLDER = Path("/etc/systemd/system")
STOP_LIMIT = 60
"""Seconds: the daemon lets commands under way finish for 25, connections for 10, and then some."""
START_LIMIT = 300
"""Seconds: a large store is checked and migrated before the daemon is ready."""
WATCHDOG = 60
"""Seconds; the loop turns every 15 at the latest, by default."""
NEVER = (
    "CAP_SYS_BOOT",
    "CAP_SYS_RAWIO",
    "CAP_SYS_TIME",
    "CAP_WAKE_ALARM",
    "CAP_MAC_ADMIN",
    "CAP_MAC_OVERRIDE",
    "CAP_AUDIT_CONTROL",
)
"""What no job may do, whoever it becomes: reboot, reach the hardware, set the clock, change the machine's policies."""
NEEDED = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SYS_PTRACE",
)
"""What the daemon itself needs as root: to start runners as another account, watch, end and tidy up after them."""


@dataclass(frozen=True, slots=True)
class Service:
    """What is to be installed.

    program      the command line up to `serve`, absolute
    config       the configuration file, absolute; None for the usual places
    user         the account of the daemon; "" for root's unit, or the caller's own with `own`
    own          a unit of this account (`systemctl --user`)
    credentials  (name, file): secrets that the manager reads and hands over
    """

    name: str
    program: tuple[str, ...]
    config: Path | None = None
    user: str = ""
    own: bool = False
    harden: bool = False
    credentials: tuple[tuple[str, Path], ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The whole command line."""
        given = () if self.config is None else ("--config", str(self.config))
        return (*self.program, "serve", *given)


def unit(service: Service) -> str:
    """Return the text of the unit."""
    sections = [("Unit", _unit(service)), ("Service", _service(service)), ("Install", _install(service))]
    return "\n\n".join(f"[{title}]\n" + "\n".join(lines) for title, lines in sections) + "\n"


def _unit(service: Service) -> list[str]:
    lines = ["Description=ephemerd: ephemeral CI runners", "StartLimitIntervalSec=0"]
    if not service.own:
        lines += ["Wants=network-online.target", "After=network-online.target"]
    return lines


def _service(service: Service) -> list[str]:
    lines = [
        "Type=notify",
        "NotifyAccess=main",
        f"ExecStart={' '.join(_quoted(word) for word in service.arguments)}",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "# Runners outlive the daemon: a stop ends the daemon alone, a start adopts them.",
        "KillMode=process",
        "SendSIGKILL=yes",
        "OOMPolicy=continue",
        "# Runners of the process runtime get a cgroup each below this unit's.",
        "Delegate=yes",
        "TasksMax=infinity",
        "LimitNOFILE=65536",
        "Restart=always",
        "RestartSec=5",
        "# Usage, configuration, credentials: starting again does not mend them.",
        "RestartPreventExitStatus=2 3 4",
        f"WatchdogSec={WATCHDOG}",
        "WatchdogSignal=SIGKILL",
        f"TimeoutStartSec={START_LIMIT}",
        f"TimeoutStopSec={STOP_LIMIT}",
    ]
    if not service.own:  # of one's own account: folders are where the program has them anyway
        lines += [
            f"StateDirectory={service.name}",
            "StateDirectoryMode=0711",
            f"RuntimeDirectory={service.name}",
            "RuntimeDirectoryMode=0755",
        ]
    if service.user and not service.own:
        lines.append(f"User={service.user}")
    lines += [f"LoadCredential={name}:{_plain(str(path))}" for name, path in service.credentials]
    return lines + _hardening(service)


def _hardening(service: Service) -> list[str]:
    lines = ["# Whatever is forbidden here is forbidden to the jobs too."]
    root = not service.own and service.user in {"", "root"}
    if root:
        names = NEEDED if service.harden else NEVER
        lines.append(f"CapabilityBoundingSet={'' if service.harden else '~'}{' '.join(names)}")
    elif service.harden and not service.own:
        lines.append("CapabilityBoundingSet=")
    lines.append("KeyringMode=private")
    if service.harden:
        lines += [
            "NoNewPrivileges=yes",
            "RestrictSUIDSGID=yes",
            "RestrictRealtime=yes",
            "LockPersonality=yes",
        ]
    return lines


def _install(service: Service) -> list[str]:
    return [f"WantedBy={'default.target' if service.own else 'multi-user.target'}"]


def _quoted(word: str) -> str:
    """Write one word of a command line as systemd reads it."""
    text = _plain(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{text}"' if any(sign.isspace() or sign in "\"'\\;" for sign in text) or not text else text


def _plain(text: str) -> str:
    """Take the meaning of specifiers from a text."""
    return text.replace("%", "%%")


def place(service: Service, home: Path, config_home: str = "") -> Path:
    """Return where the unit's file belongs."""
    if not service.own:
        return SYSTEM_FOLDER / f"{service.name}.service"
    base = Path(config_home) if config_home.startswith("/") else home / ".config"
    return base / "systemd" / "user" / f"{service.name}.service"


def after_install(service: Service, *, enable: bool, start: bool) -> list[list[str]]:
    """Return the commands that make the manager know, enable and start the unit."""
    control, unit_name = _control(service), f"{service.name}.service"
    commands = [[*control, "daemon-reload"]]
    if enable:
        commands.append([*control, "enable", unit_name])
    if start:
        commands.append([*control, "restart", unit_name])
    return commands


def before_removal(service: Service) -> list[list[str]]:
    """Return the commands that stop and forget the unit; its runners live on."""
    return [[*_control(service), "disable", "--now", f"{service.name}.service"]]


def after_removal(service: Service) -> list[list[str]]:
    """Return the commands that make the manager forget the file."""
    return [[*_control(service), "daemon-reload"]]


def _control(service: Service) -> list[str]:
    return ["systemctl", "--user"] if service.own else ["systemctl"]
