"""Which processes belong to an environment, and which of them is a worker."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from ephemerd.adapters.runtimes.process.environment import Environment, report
from ephemerd.adapters.runtimes.process.identity import Place, ProcessId
from ephemerd.adapters.runtimes.process.processes import Process, Program
from ephemerd.adapters.runtimes.process.tree import Look, look, names_worker, nothing
from ephemerd.domain.verdict import Files, Listing
from tests.unit.adapters.runtimes.process.machine import LISTENER, PARENT, REFERENCE, FakeMachine

NAMES = json.loads((Path(__file__).parents[4] / "data" / "worker_names.json").read_text())["names"]


def seen(machine: FakeMachine, *in_cgroup: int) -> Look:
    return look(machine, REFERENCE, in_cgroup)


def pids(identities: tuple[ProcessId, ...]) -> list[int]:
    return [identity.pid for identity in identities]


# Names


def process(comm: str = "sh") -> Process:
    return Process(7, 1, 7, 7, 1, comm, False)


@pytest.mark.parametrize("row", NAMES, ids=lambda row: str(row["id"]))
def test_each_row_of_the_table_by_its_source(row):
    """argv0, comm and exe reach the probe; the rows of an image name or a listing are names all the same."""
    text = row["identifier"]
    told = {
        "comm": (process(text), Program((), "")),
        "exe": (process(), Program(("sh",), text)),
    }.get(row["source"], (process(), Program((text,), "")))
    assert names_worker(*told) is row["is_worker"]


@pytest.mark.parametrize(
    ("argv", "exe", "expected"),
    [
        (("dotnet", "Runner.Worker.dll", "spawnclient", "1", "2"), "", True),
        (("/usr/share/dotnet/dotnet", "/r/bin/runner.worker.DLL"), "", True),
        (("dotnet", "exec", "Runner.Worker.dll"), "", True),
        (("dotnet", "Runner.Listener.dll", "run"), "", False),
        (("dotnet", "build"), "", False),
        (("/usr/bin/python3.11", "-IS", "/r/bin/Runner.Worker", "spawnclient"), "", True),
        (("/bin/sh", "/r/bin/Runner.Worker"), "", True),
        (("/bin/sh", "-c", "grep Runner.Worker"), "", False),
        (("grep", "Runner.Worker"), "", False),
        (("anything",), "/r/bin/Runner.Worker", True),
        ((), "", False),
    ],
)
def test_a_worker_by_its_program(argv, exe, expected):
    assert names_worker(process(), Program(argv, exe)) is expected


def test_the_kernel_name_alone_is_enough():
    assert names_worker(process("Runner.Worker"), Program((), ""))
    assert names_worker(process("dotnet"), Program(("renamed", "Runner.Worker.dll"), ""))


# Belonging


def test_a_listening_runner_is_complete_and_quiet():
    assert seen(FakeMachine().idle()) == Look(Listing.COMPLETE, True, True, (), (), ())


def test_a_worker_below_the_listener():
    machine = FakeMachine().idle()
    machine.add(200, "Runner.Worker", parent=101, group=101, session=100)
    machine.add(201, "bash", parent=200, group=101, session=100)
    found = seen(machine)
    assert (pids(found.workers), pids(found.others)) == ([200], [201])
    assert found.forks == ()


def test_between_fork_and_exec_a_worker_bears_the_listeners_name():
    machine = FakeMachine().idle()
    machine.add(200, "Runner.Listener", parent=101, group=101, session=100)
    found = seen(machine)
    assert (pids(found.workers), pids(found.others), pids(found.forks)) == ([], [200], [200])


@pytest.mark.parametrize("how", ["session", "group", "descent", "cgroup", "marker"])
def test_each_way_to_belong(how):
    machine = FakeMachine().idle()
    if how == "session":
        machine.add(200, "x", session=100)
    elif how == "group":
        machine.add(200, "x", group=101)
    elif how == "descent":
        machine.add(200, "x", parent=101)
        machine.add(201, "y", parent=200)
    elif how == "marker":
        machine.add(200, "x", marker=REFERENCE.runner)
        machine.add(201, "y", parent=200)
    else:
        machine.add(200, "x")
    machine.add(300, "stranger", marker="eph-s-b-11")
    found = seen(machine, *([200] if how == "cgroup" else []))
    assert pids(found.others) == ([200, 201] if how in ("descent", "marker") else [200])


def test_processes_of_others_are_not_ours():
    machine = FakeMachine().idle()
    machine.add(1, "init", parent=0, marker=REFERENCE.runner)
    machine.add(50, "older", marker=REFERENCE.runner)  # began before the runner did
    machine.add(300, "neighbour", marker="eph-s-b-10")
    machine.add(os.getpid(), "ephemerd", parent=101, marker=REFERENCE.runner, start=5000)
    assert seen(machine, 1, os.getpid()).all == ()


def test_the_environments_of_older_processes_are_not_even_read():
    machine = FakeMachine().idle()
    for pid in range(2, 90):
        machine.add(pid, "system")
    seen(machine)
    assert machine.asked_markers == []


def test_numbers_count_only_while_their_giver_lives():
    """Session and group of a dead parent may be a stranger's by now."""
    machine = FakeMachine()
    machine.add(100, "stranger", start=9000)
    machine.add(101, "strangers child", parent=100, session=100, start=9001)
    machine.add(102, "Runner.Worker", parent=1, session=100, start=1002, marker=REFERENCE.runner)
    found = seen(machine)
    assert (found.listener, found.parent) == (False, False)
    assert (pids(found.workers), pids(found.others)) == ([102], [])


def test_a_zombie_still_gives_its_numbers_and_counts_as_exited():
    machine = FakeMachine().idle()
    machine.processes[101] = replace(machine.processes[101], exited=True)
    machine.add(200, "Runner.Worker", parent=1, group=101, session=77)
    found = seen(machine)
    assert not found.listener
    assert pids(found.workers) == [200]


def test_a_zombie_worker_is_no_worker():
    machine = FakeMachine().idle()
    machine.add(200, "Runner.Worker", parent=101, session=100, exited=True, argv=())
    assert seen(machine) == Look(Listing.COMPLETE, True, True, (), (), ())


# Doubt


def test_a_list_that_cannot_be_read_is_failed():
    found = seen(FakeMachine(broken=True))
    assert (found.listing, found.detail) == (Listing.FAILED, "no list")
    assert seen(FakeMachine()).listing is Listing.FAILED


@pytest.mark.parametrize("parent_lives", [True, False])
def test_without_listener_and_all_the_list_is_empty(parent_lives):
    machine = FakeMachine().idle()
    del machine.processes[101]
    machine.add(1, "init", parent=0)
    if not parent_lives:
        del machine.processes[100]
    assert seen(machine).listing is Listing.EMPTY


def test_an_unreadable_process_makes_the_list_partial():
    machine = FakeMachine().idle()
    machine.add(200, "dotnet", parent=101, session=100)
    machine.unreadable.add(200)
    found = seen(machine)
    assert found.listing is Listing.PARTIAL
    assert pids(found.others) == [200]
    assert "pid 200" in found.detail


def test_an_unreadable_worker_is_a_worker_by_its_kernel_name():
    machine = FakeMachine().idle()
    machine.add(200, "Runner.Worker", parent=101, session=100)
    machine.unreadable.add(200)
    assert pids(seen(machine).workers) == [200]


def test_a_snapshot_with_holes_is_partial():
    machine = FakeMachine(complete=False).idle()
    assert seen(machine).listing is Listing.PARTIAL


def test_what_vanishes_is_listed_anew():
    machine = FakeMachine().idle()
    machine.add(200, "sh", parent=101, session=100)
    machine.vanishing.add(200)
    machine.on_vanish = lambda pid: machine.processes.pop(pid, None)
    assert seen(machine) == Look(Listing.COMPLETE, True, True, (), (), ())


def test_what_keeps_vanishing_proves_nothing():
    machine = FakeMachine().idle()
    machine.add(200, "sh", parent=101, session=100)
    machine.vanishing.add(200)
    found = seen(machine)
    assert found.listing is Listing.PARTIAL
    assert found.listener


# The report


def environment(tmp_path: Path) -> Environment:
    return Environment(REFERENCE, Place(tmp_path / REFERENCE.runner, tmp_path / "log"), None)


def test_strangers_are_counted_only_while_there_is_no_worker(tmp_path):
    one, two = ProcessId(200, 1), ProcessId(201, 1)
    quiet = report(environment(tmp_path), Look(Listing.COMPLETE, True, True, (), (one, two), (one,)))
    assert (quiet.workers, quiet.strangers, quiet.listener_alive) == (0, 2, True)
    busy = report(environment(tmp_path), Look(Listing.COMPLETE, True, True, (one,), (two,), ()))
    assert (busy.workers, busy.strangers) == (1, 0)
    assert "pid 200,201" in busy.detail


def test_files_that_are_not_there_prove_nothing(tmp_path):
    told = report(environment(tmp_path), nothing("gone"))
    assert (told.listing, told.files) == (Listing.EMPTY, Files.UNREADABLE)
    assert "there is no log yet" in told.detail
    assert "gone" in told.detail


def test_another_boot_is_not_even_looked_at(tmp_path):
    held = environment(tmp_path)
    held.reference = replace(REFERENCE, boot="earlier")
    assert held.look(FakeMachine(broken=True)).listing is Listing.EMPTY


def test_parent_and_listener_are_no_members():
    assert {PARENT, LISTENER}.isdisjoint(seen(FakeMachine().idle()).all)
