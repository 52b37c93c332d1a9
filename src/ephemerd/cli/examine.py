"""What `doctor` looks at on this machine itself: disk, doors, limits, the store, the service. Changes nothing."""

from __future__ import annotations

import errno
import http.client
import ipaddress
import json
import os
import resource
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ephemerd.config.units import listen_address, store_path
from ephemerd.ports.views import FindingView

if TYPE_CHECKING:
    from ephemerd.config.effective import Effective

ENVIRONMENT = 5
LEAST_FREE, GOOD_FREE = 200 * 1024**2, 2 * 1024**3
"""Bytes free where state is kept: below the first the daemon's own health warns, the second leaves room for jobs."""
REMOTE = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "9p", "afs", "afpfs", "ceph", "glusterfs", "lustre"}
    | {"fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "webdav", "davfs"}
)
"""File systems of other machines, whose locks and flushes SQLite cannot rely on (its documentation says so)."""
FLEETING = frozenset({"tmpfs", "ramfs"})
LEAST_FILES = 256
FILES_BESIDES, FILES_A_SLOT = 512, 16
"""Open files: connections, store and logs; and of each runner its pidfd, log, diagnostics and a look into it."""
ANSWER_LIMIT = 5.0
OLD_DAYS = 45
"""GitHub refuses a version about 30 days after the next one came, and there is one about every month."""
ELF = {62: ("x86_64", "amd64"), 183: ("aarch64", "arm64"), 40: ("armv7l", "armv6l", "arm")}


@dataclass(frozen=True, slots=True)
class Look:
    """Makes findings about one place."""

    where: str

    def ok(self, what: str) -> FindingView:
        return FindingView("ok", 0, self.where, what, "")

    def warning(self, what: str, todo: str) -> FindingView:
        return FindingView("warning", 0, self.where, what, todo)

    def problem(self, what: str, todo: str) -> FindingView:
        return FindingView("problem", ENVIRONMENT, self.where, what, todo)


def machine(effective: Effective) -> Iterator[FindingView]:
    """Look at everything of this machine that the configuration asks for."""
    server = effective.settings.server
    assert server.store is not None, "the effective configuration fills it in"
    path = store_path(server.store)
    yield from folder(path.parent)
    yield store(path)
    processes = any(pool.runtime == "process" for pool in effective.settings.pools.values())
    if processes and effective.settings.runner.application != "download":
        yield application(Path(effective.settings.runner.application))
    hooks = any(forge.discovery == "webhook" for forge in effective.settings.forge.values())
    for key, address in (
        ("server.webhook_listen", server.webhook_listen if hooks else None),
        ("server.metrics_listen", server.metrics_listen),
        ("server.api_listen", server.api_listen),
    ):
        if address is not None:
            yield door(key, address)
    slots = sum(host.slots or 0 for host in effective.settings.hosts.values())
    yield open_files(slots, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield service(sys.platform, Path.home(), os.environ.get("XDG_CONFIG_HOME", ""))


def folder(path: Path) -> Iterator[FindingView]:
    """Look at the folder of the state, or at the nearest one above it that is there."""
    look, place = Look("state folder"), path
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        yield look.problem(
            f"{path} cannot be written", "make it writable for the daemon, or set server.store"
        )
        return
    yield look.ok(f"{path} is writable" if place == path else f"{path} can be made")
    yield disk(place, filesystem(place), shutil.disk_usage(place).free)


def filesystem(place: Path) -> str:
    """Return the kind of file system that a folder lies on, "" where that is not told."""
    real = place.resolve()
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    return next((mounts[above] for above in (real, *real.parents) if above in mounts), "")


def disk(place: Path, kind: str, free: int) -> FindingView:
    """Judge the disk below a folder: local, lasting, with room."""
    look = Look("state folder")
    if kind in REMOTE or kind.startswith("fuse.ssh"):
        what = f"{place} lies on another machine's disk ({kind}), where the store can be damaged"
        return look.problem(what, "set server.store and runner.work_dir to a local disk")
    left = f"{free / 1024**3:.1f} GiB free at {place}"
    if free < LEAST_FREE:
        return look.problem(left, "make room: below 200 MiB a burst of deliveries may not be stored")
    if kind in FLEETING:
        return look.warning(
            f"{place} is in memory ({kind}) and lost with a restart of the machine", "set server.store"
        )
    if free < GOOD_FREE:
        return look.warning(left, "make room, or set runner.work_dir to a larger disk")
    return look.ok(f"{left}, {kind or 'local'}")


def store(path: Path) -> FindingView:
    """Check the store as `store check` does."""
    from ephemerd import storing

    look = Look("store")
    if not path.exists():
        return look.ok(f"{path} is made when the daemon first starts")
    try:
        found = storing.check_store(path)
    except storing.StartError as error:
        return look.problem(str(error), error.todo)
    if found.problems:
        more = f" and {len(found.problems) - 1} more" if len(found.problems) > 1 else ""
        return look.problem(f"{path} is damaged: {found.problems[0]}{more}", "see 'ephemerd store check'")
    return look.ok(f"{path} is sound, {found.size.total / 1024**2:.1f} MiB")


def application(place: Path) -> FindingView:
    """Look at the runner application beyond what `check` finds: is it made for this machine?"""
    look, listener = Look("runner.application"), place / "bin" / "Runner.Listener"
    try:
        with listener.open("rb") as file:
            head, made = file.read(20), os.fstat(file.fileno()).st_mtime
    except OSError as error:
        return look.problem(
            f"{listener} cannot be read: {error.strerror}", "unpack the runner application there"
        )
    here = os.uname().machine
    if head[:4] == b"\x7fELF" and len(head) == 20:
        made_for = ELF.get(int.from_bytes(head[18:20], "little"), ())
        if made_for and here not in made_for:
            what = f"{listener} is made for {made_for[0]}, this machine is {here}"
            return look.problem(what, "unpack the application of this machine")
    days = (time.time() - made) / 86_400
    if days >= OLD_DAYS:
        return look.warning(
            f"{listener} is {days:.0f} days old, and GitHub refuses a version a month after the next one came",
            'unpack the newest one there, or write runner.application = "download"',
        )
    return look.ok(f"{place} holds the runner application")


def door(key: str, address: str) -> FindingView:
    """Look whether an address is free, or a daemon of ours listens there."""
    look, (host, port) = Look(key), listen_address(address)
    if port == 0:
        return look.ok("any free port is taken")
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(target)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            what = f"nothing can listen on {address}: {error.strerror or error}"
            return look.problem(what, f"set {key} to an address of this machine")
        if ours(host, port):
            return look.ok(f"a daemon of ours listens on {address}")
        return look.problem(f"another program listens on {address}", f"end it, or set {key} to another port")
    return look.ok(f"{address} is free")


def ours(host: str, port: int) -> bool:
    """Say whether what listens there answers /healthz as the daemon does."""
    connection = http.client.HTTPConnection(_near(host), port, timeout=ANSWER_LIMIT)
    try:
        connection.request("GET", "/healthz")
        body = json.loads(connection.getresponse().read(64 * 1024))
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()
    return isinstance(body, dict) and body.get("status") in {"ok", "degraded", "stuck"} and "reasons" in body


def _near(host: str) -> str:
    """Return where one reaches what listens on all addresses: the own machine."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    near = {4: "127.0.0.1", 6: "::1"}
    return near[address.version] if address.is_unspecified else host


def open_files(slots: int, limit: int) -> FindingView:
    """Judge the limit of open files by the number of slots; `limit` below 0 is none."""
    look, needed = Look("open files"), FILES_BESIDES + FILES_A_SLOT * slots
    if limit < 0 or limit >= needed:
        return look.ok(
            "no limit" if limit < 0 else f"{limit} may be open, {needed} are enough for {slots} slots"
        )
    what = f"{limit} may be open here, {slots} slots want {needed}"
    todo = "'ulimit -n' before serve; the unit of 'ephemerd install' sets 65536 itself"
    return look.problem(what, todo) if limit < LEAST_FILES else look.warning(what, todo)


def service(
    platform: str, home: Path, config_home: str, exists: Callable[[Path], bool] = Path.exists
) -> FindingView:
    """Look for the file that makes the daemon a service."""
    from ephemerd.cli import service_launchd, service_systemd
    from ephemerd.cli.service_systemd import Service

    look = Look("service")
    for own in (False, True):
        named = Service(name="ephemerd", program=(), own=own)
        path = (
            service_launchd.place(named, home)
            if platform == "darwin"
            else service_systemd.place(named, home, config_home)
        )
        if exists(path):
            return look.ok(f"{path} is there")
    what = "there is no service, so that nothing starts the daemon with the machine or again after a failure"
    return look.warning(what, "'ephemerd install --dry-run' shows what would be written")
