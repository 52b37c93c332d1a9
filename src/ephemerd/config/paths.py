"""Where things are when nobody says: configuration files, state, sockets.

Light on purpose: client commands ask it for the socket without loading the settings model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SYSTEM_CONFIG = Path("/etc/ephemerd/config.toml")
SYSTEM_STATE = Path("/var/lib/ephemerd")
SYSTEM_RUN = Path("/run/ephemerd")


def is_root() -> bool:
    """Say whether this process may change users."""
    return os.geteuid() == 0


def _home(env: Mapping[str, str]) -> Path:
    return Path(env["HOME"]) if env.get("HOME") else Path.home()


def _xdg(env: Mapping[str, str], name: str, fallback: str) -> Path:
    """An XDG base folder; relative values are to be ignored, says the XDG specification."""
    value = env.get(name, "")
    return Path(value) if value.startswith("/") else _home(env) / fallback


def _systemd(env: Mapping[str, str], name: str) -> Path | None:
    """First of the colon-separated folders that systemd made for the unit."""
    first = env.get(name, "").split(":")[0]
    return Path(first) if first.startswith("/") else None


def config_candidates(env: Mapping[str, str], *, root: bool | None = None) -> list[Path]:
    """Return where a configuration file is looked for, in order; the current folder never as root."""
    found = [_xdg(env, "XDG_CONFIG_HOME", ".config") / "ephemerd" / "config.toml", SYSTEM_CONFIG]
    if not (is_root() if root is None else root):
        found.append(Path("ephemerd.toml"))
    return found


def state_folder(env: Mapping[str, str], *, root: bool | None = None) -> Path:
    """Return the folder of the store and of the runners: systemd's, root's, or the user's."""
    if folder := _systemd(env, "STATE_DIRECTORY"):
        return folder
    if is_root() if root is None else root:
        return SYSTEM_STATE
    return _xdg(env, "XDG_STATE_HOME", ".local/state") / "ephemerd"


def runtime_folder(env: Mapping[str, str], *, root: bool | None = None) -> Path:
    """Return the folder of the API socket."""
    if folder := _systemd(env, "RUNTIME_DIRECTORY"):
        return folder
    if is_root() if root is None else root:
        return SYSTEM_RUN
    if env.get("XDG_RUNTIME_DIR", "").startswith("/"):
        return Path(env["XDG_RUNTIME_DIR"]) / "ephemerd"
    return state_folder(env, root=root) / "run"


def default_socket(env: Mapping[str, str]) -> Path:
    """Return the socket that a client tries when it was told none: one's own, else the system's."""
    own = runtime_folder(env) / "api.sock"
    system = SYSTEM_RUN / "api.sock"
    return system if not own.exists() and system.exists() else own
