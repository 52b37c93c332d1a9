"""Looks at this machine: is what the configuration names really here? Reads only; makes nothing."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from ephemerd.config.findings import Code, Finding
from ephemerd.config.layers import Layers
from ephemerd.config.model import HostSettings, PoolSettings, Settings
from ephemerd.config.paths import is_root
from ephemerd.config.tomlfile import KeyPath

LISTENER = Path("bin") / "Runner.Listener"


class Machine:
    """Collects what is missing on this machine for one configuration; code 5 for each; warnings too."""

    def __init__(self, settings: Settings, layers: Layers) -> None:
        self.settings = settings
        self.layers = layers
        self.findings: list[Finding] = []

    def run(self) -> list[Finding]:
        processes = [pool for pool in self.settings.pools.values() if pool.runtime == "process"]
        if processes and sys.platform not in {"linux", "darwin"}:
            self._missing((), f"the process runtime does not know {sys.platform}", "use Linux or macOS")
        if any(needs_application(pool) for pool in self.settings.pools.values()):
            self._application()
        for name, pool in self.settings.pools.items():
            if pool.runtime == "process":
                self._user(("pools", name, "user"), pool.user)
            else:
                self._container(name, pool)
        for name, forge in self.settings.forge.items():
            if forge.ca_file is not None and not os.access(forge.ca_file, os.R_OK):
                what = f"the file {forge.ca_file} cannot be read"
                self._missing(("forge", name, "ca_file"), what, "check the path and its mode")
        self._folders()
        return self.findings

    def _missing(self, key: KeyPath, what: str, todo: str) -> None:
        self.findings.append(Finding(Code.ENVIRONMENT, self.layers.where(key), what, todo))

    def _application(self) -> None:
        key, folder = ("runner", "application"), Path(self.settings.runner.application)
        if str(folder) == "download":
            return
        listener = folder / LISTENER
        if not folder.is_dir():
            todo = f"unpack the runner application there, so that {listener} exists"
            self._missing(key, f"there is no folder {folder}", todo)
        elif not listener.exists():
            self._missing(
                key, f"{listener} does not exist", "name the folder into which the application was unpacked"
            )
        elif not os.access(listener, os.X_OK):
            self._missing(key, f"{listener} cannot be executed", f"chmod +x {listener}")

    def _user(self, key: KeyPath, user: str | None) -> None:
        root = is_root()
        if user is None:
            if root and not self.settings.runner.allow_root:
                self._missing(
                    key,
                    "running as root without a user for jobs, so each job could do anything to this machine",
                    f'set {".".join(key)} = "ACCOUNT", or runner.allow_root = true',
                )
            else:
                self._shared(key)
            return
        try:
            account = pwd.getpwnam(user)
        except KeyError:
            self._missing(key, f"there is no account {user!r}", f"useradd --create-home {user}")
            return
        if account.pw_uid == 0 and not self.settings.runner.allow_root:
            self._missing(key, "jobs would run as root", "name another account, or runner.allow_root = true")
        elif account.pw_uid != os.geteuid() and not root:
            what = f"only root can run jobs as another account ({user})"
            self._missing(key, what, "start the daemon as root, or leave user out")
        elif root and account.pw_uid != 0:
            self._reachable(account)
        else:
            self._shared(key)

    def _container(self, name: str, pool: PoolSettings) -> None:
        """The engine's socket, and what isolation needs; the engine itself is asked when the daemon runs."""
        host = self.settings.hosts.get(pool.host) or HostSettings()
        here = ("hosts", pool.host, "engine")
        near = host.engine.startswith("unix://")
        if near and is_away(Path(host.engine.removeprefix("unix://"))):
            # It may be starting, as after the machine, or being renewed: nothing that ends a daemon.
            what = f"no engine is there at the moment ({host.engine}); its pools' runners wait for it"
            todo = "start the engine, or correct the path"
            self.findings.append(Finding(Code.WARNING, self.layers.where(here), what, todo))
        elif near and (problem := socket_problem(Path(host.engine.removeprefix("unix://")))):
            self._missing(
                here, problem, "start the engine, or correct the path; the daemon's account must reach it"
            )
        elif host.engine.startswith("ssh://") and shutil.which("ssh") is None:
            self._missing(here, "there is no ssh to reach the engine with", "install the OpenSSH client")
        if pool.container.network != "isolated":
            return
        key = ("pools", name, "container", "network")
        todo = 'write network = "bridge" to go without isolation'
        if not near:
            what = "runners of an engine on another machine cannot be isolated from here"
            self._missing(key, what, f"run the daemon where the engine is, or {todo}")
        elif not sys.platform.startswith("linux"):
            self._missing(key, f"runners cannot be isolated on {sys.platform}", todo)
        elif not is_root() or shutil.which("nft") is None:
            what = "isolating runners needs root and the program nft"
            self._missing(key, what, f"run the daemon as root and install nftables, or {todo}")

    def _shared(self, key: KeyPath) -> None:
        what = "jobs run as the daemon's own account, so a job could read its secrets and its store"
        todo = "run the daemon as root and name an account for jobs, or serve only whom you trust"
        self.findings.append(Finding(Code.WARNING, self.layers.where(key), what, todo))

    def _reachable(self, account: pwd.struct_passwd) -> None:
        """The jobs' account must be able to walk to its folder and to the application."""
        groups = frozenset(os.getgrouplist(account.pw_name, account.pw_gid))
        places: list[tuple[KeyPath, Path | None]] = [
            (("runner", "work_dir"), self.settings.runner.work_dir),
            (("runner", "application"), Path(self.settings.runner.application)),
        ]
        for key, place in places:
            if place is None or not place.is_absolute():
                continue
            if shut := closed_folder(place.parents, account.pw_uid, groups):
                self._missing(
                    key,
                    f"the account {account.pw_name!r} cannot enter {shut}, which lies above {place}",
                    f"choose another place, or chmod o+x {shut}",
                )

    def _folders(self) -> None:
        server, runner = self.settings.server, self.settings.runner
        wanted: list[tuple[KeyPath, Path | None]] = [
            (
                ("server", "store"),
                Path(server.store.removeprefix("sqlite://")).parent if server.store else None,
            ),
            (("server", "api_socket"), server.api_socket.parent if server.api_socket else None),
            (("runner", "work_dir"), runner.work_dir),
        ]
        for key, folder in wanted:
            if folder is not None and (problem := not_writable(folder)):
                self._missing(key, problem, "choose another place, or make it writable for the daemon")


def needs_application(pool: PoolSettings) -> bool:
    """Say whether a pool runs this machine's runner application."""
    return pool.runtime == "process" or pool.container.application == "mount"


def is_away(path: Path) -> bool:
    """Say whether there is no such socket now."""
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def socket_problem(path: Path) -> str:
    """Say why an engine's socket cannot be used; empty where it can."""
    try:
        found = path.stat()
    except OSError as error:
        return f"the engine's socket {path} cannot be reached ({error.strerror})"
    if not stat.S_ISSOCK(found.st_mode):
        return f"{path} is no socket"
    return (
        ""
        if os.access(path, os.R_OK | os.W_OK)
        else f"the engine's socket {path} may not be used by this account"
    )


def closed_folder(parents: Iterable[Path], uid: int, groups: frozenset[int]) -> Path | None:
    """Return the folder nearest to the root that this account cannot walk through, by its mode bits."""
    for folder in reversed(list(parents)):
        try:
            found = folder.stat()
        except OSError:
            return None
        bit = stat.S_IXOTH
        if found.st_uid == uid:
            bit = stat.S_IXUSR
        elif found.st_gid in groups:
            bit = stat.S_IXGRP
        if not found.st_mode & bit:
            return folder
    return None


def not_writable(folder: Path) -> str:
    """Say why a folder cannot be used or made; empty where it can."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return f"{place} is not a folder"
    if not os.access(place, os.W_OK | os.X_OK):
        missing = "" if place == folder else f", so {folder} cannot be made"
        return f"{place} is not writable{missing}"
    return ""
