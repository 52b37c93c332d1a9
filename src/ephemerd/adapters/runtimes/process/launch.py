"""Make a runner's folder, have its parent started, and hand that its order, through a stream and nothing else."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from pathlib import Path
from typing import Any

from ephemerd.adapters.runtimes.process import cgroup
from ephemerd.adapters.runtimes.process.environment import Environment
from ephemerd.adapters.runtimes.process.identity import Place, ProcessId, Reference
from ephemerd.adapters.runtimes.process.nursery import Line, Nursery
from ephemerd.adapters.runtimes.process.options import Account, ProcessOptions, account_of, environment_of
from ephemerd.adapters.runtimes.process.processes import Machine
from ephemerd.adapters.runtimes.process.removal import making, put_aside, remove_tree
from ephemerd.adapters.runtimes.process.roots import (
    LISTENER,
    Builder,
    build,
    check_application,
    make_folder,
    out_of_reach,
)
from ephemerd.adapters.runtimes.process.state import (
    Tag,
    read_parent,
    read_started,
    read_tag,
    write_tag,
)
from ephemerd.ports.errors import Broken
from ephemerd.ports.runtime import StartOrder

HANDOVER = 2.0  # how long a parent that another life of the daemon started may take to come so far
UNDO = 5.0


def reference_of(machine: Machine, place: Place, tag: Tag) -> Reference:
    """Return the reference of an environment that bears our tag, as far as it came."""
    started = read_started(machine, place)
    if started is None:
        return Reference(tag.runner, tag.pool, tag.store, machine.boot(), read_parent(machine, place), None)
    return Reference(tag.runner, tag.pool, tag.store, started.boot, started.parent, started.listener)


def already(machine: Machine, place: Place, order: StartOrder) -> Reference | None:
    """Return the environment that an earlier call with this runner id started; None where none did.

    A half made one, whose listener never ran and can no longer run, is removed. Blocks for a moment.
    """
    tag = read_tag(place)
    if tag is None:
        if place.folder.exists():
            raise Broken(f"{place.folder} exists and bears no tag of ours: move it away")
        return None
    if tag.store != order.store:
        raise Broken(f"{place.folder} belongs to another store ({tag.store}): use another work_dir")
    deadline = time.monotonic() + HANDOVER
    while read_started(machine, place) is None:
        parent = read_parent(machine, place)
        found = machine.find(parent.pid) if parent is not None else None
        if found is None or found.id != parent or time.monotonic() > deadline:
            undo(machine, place, tag)
            return None
        time.sleep(0.02)
    return reference_of(machine, place, tag)


def start(
    machine: Machine, nursery: Nursery, place: Place, options: ProcessOptions, order: StartOrder
) -> Reference:
    """Make the folder and start the runner; raise `Broken`, and leave nothing behind, where that fails.

    Blocks for as long as copying takes, `start_wait` at most.
    """
    deadline = time.monotonic() + options.start_wait
    account = account_of(options)
    check_application(options.application)
    tag = Tag(order.store, order.runner, order.pool, time.time_ns() // 1_000_000)
    made = False
    try:
        _make(place, tag)
        made = True
        group = cgroup.make(order.runner)
        with nursery.parent(group, deadline) as parent:
            parent.say(_home(place, group))
            _build(machine, place, options, account, deadline)
            error = _hand_over(parent, _order(machine, place, options, account, order))
        if error:
            raise Broken(f"the runner did not start: {error}{_hint(place, account)}")
        return reference_of(machine, place, tag)
    except BaseException as failure:
        if isinstance(failure, TimeoutError) and read_parent(machine, place) is None:
            nursery.renew()  # it never began: so would none after it
        if made:
            undo(machine, place, tag)
        if isinstance(failure, TimeoutError):
            raise Broken(f"the runner did not start within {options.start_wait:.0f} s") from None
        if isinstance(failure, OSError):
            raise Broken(f"the runner's folder {place.folder} could not be made: {failure}") from None
        raise


def _make(place: Place, tag: Tag) -> None:
    """Make the folder with its tag in it, whole or not at all under its own name."""
    if place.folder.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place.folder))
    aside = Place(making(place.folder), place.log)
    remove_tree(aside.folder)
    try:
        make_folder(aside)
        write_tag(aside, tag)
        aside.folder.rename(place.folder)
    except BaseException:
        remove_tree(aside.folder)
        raise


def _home(place: Place, group: Path | None) -> dict[str, Any]:
    """Where a parent belongs: it goes there while the rest is made, for a change of control groups takes a while."""
    return {
        "state": str(place.state),
        "cgroup": None if group is None else str(group),
        "cgroup_json": json.dumps(None if group is None else str(group)),
    }


def _build(
    machine: Machine, place: Place, options: ProcessOptions, account: Account, deadline: float
) -> None:
    externals = options.application / "externals"
    share = externals.is_dir() and out_of_reach(externals.resolve(), account)
    build(place, options.application, account, Builder(account, machine.reflink, deadline), share=share)


def _order(
    machine: Machine, place: Place, options: ProcessOptions, account: Account, order: StartOrder
) -> dict[str, Any]:
    return {
        "argv": [str(place.root / LISTENER), "run"],
        "env": environment_of(options, account, order.runner, place.perf, order.credential),
        "cwd": str(place.root),
        "log": str(place.log),
        "boot_json": json.dumps(machine.boot()),
        "switch": account.switch,
        "uid": account.uid,
        "gid": account.gid,
        "groups": list(account.groups),
    }


def _hint(place: Place, account: Account) -> str:
    if not account.switch:
        return ""
    return f" (user {account.name} must be able to reach {place.root} and the application's libraries)"


def _hand_over(parent: Line, order: dict[str, Any]) -> str:
    """Give the parent its order, return what failed. No message of a failure holds the order."""
    try:
        parent.say(order)
        return str(parent.answer()["error"])
    except (ValueError, EOFError, TypeError):
        raise Broken("the runner's parent ended without an answer") from None


def undo(machine: Machine, place: Place, tag: Tag) -> None:
    """End and remove what was half made. Blocks for `UNDO` seconds at most."""
    started = read_started(machine, place)
    # Who was born there and has not written down yet who it is belongs by that alone.
    group = (started.cgroup if started is not None else None) or cgroup.existing(tag.runner)
    environment = Environment(reference_of(machine, place, tag), place, group)
    deadline = time.monotonic() + UNDO
    while True:
        look = environment.look(machine)
        left: list[ProcessId] = list(look.all)
        if look.parent and environment.reference.parent is not None:
            left.append(environment.reference.parent)
        if look.listener and environment.reference.listener is not None:
            left.append(environment.reference.listener)
        if not left or time.monotonic() > deadline:
            break
        for identity in left:
            machine.signal(identity, 9)
        time.sleep(0.02)
    remove_tree(put_aside(place.folder), last=place.state.name)
    cgroup.remove(group)
    while group is not None and group.is_dir() and time.monotonic() < deadline:
        time.sleep(0.02)  # who was born there just now finds no folder, and leaves
        cgroup.remove(group)
    with contextlib.suppress(OSError):
        if not place.log.stat().st_size:
            place.log.unlink()
