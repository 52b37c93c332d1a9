"""What one pool's runners are started with, and which account they run as."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ephemerd.ports.errors import Broken

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MARKER = "EPHEMERD_RUNNER"
# What a job may need of the machine's own environment; everything else of the daemon stays with it.
PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "http_proxy", "https_proxy", "no_proxy", "all_proxy")


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """One pool's settings. Durations are seconds.

    application    the unpacked runner application, a template that is only read
    work_dir       where each runner gets a folder of its own
    logs_dir       where listener output and diagnostics stay after the folder is gone
    user           the jobs' user; None: the daemon's own, which root must allow by `allow_root`
    follow         "all", or "listening": tell only that a runner listens and that it exited, so that
                   whoever asks has to probe
    stop_wait      from asking the listener to stop to killing
    kill_wait      from killing to giving up
    start_wait     for making the folder and starting the parent
    logs_keep      how many runners' logs are kept in `logs_dir`
    logs_age       for how long, since they were last written
    logs_size      how many bytes of them all pools may keep together
    """

    application: Path
    work_dir: Path
    logs_dir: Path
    user: str | None = None
    allow_root: bool = False
    extra_env: Mapping[str, str] = field(default_factory=dict)
    follow: Literal["all", "listening"] = "all"
    stop_wait: float = 30.0
    kill_wait: float = 30.0
    probe_timeout: float = 10.0
    start_wait: float = 60.0
    logs_keep: int = 1000
    logs_age: float = 14 * 86_400.0
    logs_size: int = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class Account:
    """Who a runner runs as. `switch` is true where the daemon has to change to it (it is root)."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    switch: bool


def account_of(options: ProcessOptions) -> Account:
    """Return the account that runners of a pool run as; raise `Broken` with what to do about it."""
    own = os.geteuid()
    if options.user is None:
        if own == 0 and not options.allow_root:
            raise Broken(
                "runners would run as root: name the jobs' user (pools.*.user) or set runner.allow_root"
            )
        try:
            entry = pwd.getpwuid(own)
        except KeyError:
            return Account(str(own), own, os.getegid(), (), os.environ.get("HOME", "/"), False)
    else:
        try:
            entry = pwd.getpwnam(options.user)
        except KeyError:
            raise Broken(f"there is no user {options.user!r}: create it, or change pools.*.user") from None
    if own not in (0, entry.pw_uid):
        raise Broken(f"only root can start runners as {options.user!r}: run as root, or as that user")
    if entry.pw_uid == 0 and not options.allow_root:
        raise Broken("the jobs' user is root: name another one (pools.*.user) or set runner.allow_root")
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return Account(
        entry.pw_name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir, own == 0 and entry.pw_uid != 0
    )


def environment_of(
    options: ProcessOptions, account: Account, runner: str, perf: Path, credential: str
) -> dict[str, str]:
    """Return a runner's whole environment: little of the machine, what the pool adds, what we promise.

    The credential is part of it (INTERFACES.md, "How the process runtime starts a runner"), so the
    result is handed to the parent through a pipe and never logged.
    """
    environment = {"PATH": DEFAULT_PATH, "LANG": "C.UTF-8"}
    for name in PASSED_ON:
        for spelling in (name, name.upper()):
            if spelling in os.environ:
                environment[spelling] = os.environ[spelling]
    environment |= {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}
    for name, value in options.extra_env.items():
        if not name or "=" in name or "\0" in name + value:
            raise Broken(f"extra_env holds {name!r}, which no environment can hold")
        environment[name] = value
    return environment | {
        "ACTIONS_RUNNER_INPUT_JITCONFIG": credential,
        "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE": "1",
        "RUNNER_PERFLOG": str(perf),
        MARKER: runner,
    }
