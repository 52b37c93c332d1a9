"""Tags, state files, and finding environments by them."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ephemerd.adapters.runtimes.process.identity import Place, ProcessId, Reference, place_of
from ephemerd.adapters.runtimes.process.options import ProcessOptions
from ephemerd.adapters.runtimes.process.processes import Looks, Still, Vanished
from ephemerd.adapters.runtimes.process.registry import Registry
from ephemerd.adapters.runtimes.process.roots import make_folder
from ephemerd.adapters.runtimes.process.state import (
    Tag,
    read_exit,
    read_own,
    read_started,
    read_tag,
    resolve,
    write_tag,
)
from ephemerd.ports.errors import Broken, Refused, RetryLater
from tests.unit.adapters.runtimes.process.machine import LISTENER, PARENT, FakeMachine

TAG = Tag("s", "eph-s-b-1", "linux", 7)


def made(tmp_path: Path, tag: Tag = TAG, *, old: bool = True) -> Place:
    place = place_of(tag.runner, tmp_path / "work", tmp_path / "logs")
    make_folder(place)
    write_tag(place, tag)
    if old:
        os.utime(place.state / "runner.json", (1, 1))
    return place


def state(place: Place, name: str, content: Any) -> None:
    (place.state / name).write_text(json.dumps(content))


def started(place: Place) -> None:
    state(
        place,
        "pid",
        {
            "listener": {"pid": LISTENER.pid, "start": LISTENER.start},
            "parent": {"pid": PARENT.pid, "start": PARENT.start},
            "cgroup": None,
            "boot": "boot",
        },
    )


def registry(tmp_path: Path, machine: FakeMachine) -> Registry:
    options = ProcessOptions(tmp_path / "app", tmp_path / "work", tmp_path / "logs")
    return Registry({"linux": options, "other": options}, machine)


def test_a_tag_comes_back(tmp_path):
    place = made(tmp_path)
    assert read_tag(place) == TAG
    assert not list(place.state.glob(".*"))


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"runner": "eph-s-b-2"},
        {"store": 7},
        {"pool": None},
        {"made": "now"},
    ],
)
def test_what_is_no_tag_of_ours(tmp_path, change):
    place = made(tmp_path)
    content = json.loads((place.state / "runner.json").read_text())
    state(place, "runner.json", content | change)
    assert read_tag(place) is None


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "1"])
def test_what_is_no_state(tmp_path, text):
    (tmp_path / "f").write_text(text)
    assert read_own(tmp_path / "f") is None
    assert read_own(tmp_path) is None
    assert read_own(tmp_path / "nowhere") is None


def test_a_linked_state_file_is_none(tmp_path):
    (tmp_path / "f").write_text("{}")
    (tmp_path / "link").symlink_to("f")
    assert read_own(tmp_path / "f") == {}
    assert read_own(tmp_path / "link") is None


@pytest.mark.account("root")
def test_a_state_file_of_somebody_else_is_none(tmp_path):
    (tmp_path / "f").write_text("{}")
    os.chown(tmp_path / "f", 4242, -1)
    assert read_own(tmp_path / "f") is None


def test_what_was_started(tmp_path):
    place = made(tmp_path)
    assert read_started(FakeMachine(), place) is None
    started(place)
    found = read_started(FakeMachine(), place)
    assert found is not None
    assert (found.parent, found.listener, found.cgroup, found.boot) == (PARENT, LISTENER, None, "boot")
    assert read_exit(place) is None
    state(place, "exit", {"code": 7})
    assert read_exit(place) == 7
    state(place, "exit", {"code": "7"})
    assert read_exit(place) is None


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (5_000_000, ProcessId(7, 5_000_000)),
        (5_900_000, ProcessId(7, 5_900_000)),
        (9_000_000, ProcessId(7, 0)),
        (1_000_000, ProcessId(7, 0)),
    ],
)
def test_without_a_start_time_it_is_told_by_when_it_began(start, expected):
    machine = FakeMachine()
    machine.add(7, "Runner.Listener", start=start)
    record = {"pid": 7, "start": None, "after": 4_900_000, "before": 5_000_000}
    assert resolve(machine, record) == expected
    assert resolve(FakeMachine(), record) == ProcessId(7, 0)


@pytest.mark.parametrize("record", [None, 7, {}, {"pid": "7"}, {"pid": 7}, {"pid": 7, "after": 1}])
def test_a_record_that_says_nothing(record):
    assert resolve(FakeMachine(), record) is None


# The registry


def test_a_living_runner_is_listed_and_found_again(tmp_path):
    machine = FakeMachine().idle()
    place = made(tmp_path)
    started(place)
    found = registry(tmp_path, machine)
    ((where, listed),) = found.tagged("s")
    assert where == place
    assert (listed.runner, listed.pool, listed.ended, listed.code) == (TAG.runner, "linux", False, None)
    again = registry(tmp_path, machine).resolve(listed.environment)
    assert (again.place, again.reference.listener) == (place, LISTENER)
    assert found.resolve(listed.environment) is found.resolve(listed.environment)


def test_an_ended_one_with_its_code_and_leftovers(tmp_path):
    machine = FakeMachine()
    machine.add(1, "init", parent=0)
    machine.add(300, "daemon", start=5000, marker=TAG.runner)
    place = made(tmp_path)
    started(place)
    state(place, "exit", {"code": 3})
    ((_, listed),) = registry(tmp_path, machine).tagged("s")
    assert (listed.ended, listed.code, listed.leftovers) == (True, 3, 1)


def test_a_dead_listener_with_a_live_worker_has_not_ended(tmp_path):
    machine = FakeMachine().idle()
    del machine.processes[LISTENER.pid]
    machine.add(300, "Runner.Worker", parent=100, session=100)
    place = made(tmp_path)
    started(place)
    ((_, listed),) = registry(tmp_path, machine).tagged("s")
    assert (listed.ended, listed.leftovers) == (False, 0)


@pytest.mark.parametrize(
    ("old", "parent", "ended"),
    [(False, None, False), (True, None, True), (True, 1000, False), (True, 1, True)],
)
def test_one_that_never_came_to_run(tmp_path, old, parent, ended):
    """It may yet begin while its parent lives, or while a parent may just be about to write its file."""
    machine = FakeMachine().idle()
    place = made(tmp_path, old=old)
    if parent is not None:
        state(place, "parent", {"pid": PARENT.pid, "start": parent})
    ((_, listed),) = registry(tmp_path, machine).tagged("s")
    assert listed.ended is ended


def test_only_the_stores_own_are_listed(tmp_path):
    made(tmp_path)
    made(tmp_path, Tag("s2", "eph-s2-b-1", "linux", 7))
    (tmp_path / "work" / "foreign").mkdir()
    (tmp_path / "work" / "NOT A NAME").mkdir()
    (tmp_path / "work" / "file").touch()
    found = registry(tmp_path, FakeMachine().idle())
    assert [listed.runner for _, listed in found.tagged("s")] == ["eph-s-b-1"]
    assert [listed.runner for _, listed in found.tagged("s2")] == ["eph-s2-b-1"]
    assert found.tagged("s3") == []


def test_a_list_that_cannot_be_read_is_no_list(tmp_path):
    started(made(tmp_path))
    with pytest.raises(RetryLater, match="process list"):
        registry(tmp_path, FakeMachine(broken=True)).tagged("s")
    (tmp_path / "file").touch()
    options = ProcessOptions(tmp_path, tmp_path / "file", tmp_path)
    with pytest.raises(RetryLater, match="cannot be listed"):
        Registry({"linux": options}, FakeMachine()).tagged("s")
    assert registry(tmp_path / "nowhere", FakeMachine()).tagged("s") == []


def test_a_pool_that_was_renamed_is_found_by_its_folder(tmp_path):
    place = made(tmp_path, Tag("s", "eph-s-b-1", "old name", 7))
    reference = Reference("eph-s-b-1", "old name", "s", "boot", PARENT, LISTENER)
    found = registry(tmp_path, FakeMachine())
    assert found.resolve(str(reference)).place == place
    assert found.options_of(found.resolve(str(reference))).work_dir == tmp_path / "work"
    with pytest.raises(Broken, match="no pool 'old name'"):
        found.options("old name")


def test_what_means_nothing(tmp_path):
    with pytest.raises(Refused, match="no environment"):
        registry(tmp_path, FakeMachine()).resolve("x" * 1000)
    reference = Reference("eph-s-b-1", "linux", "s", "boot", PARENT, LISTENER)
    with pytest.raises(Broken, match="no pool"):
        Registry({}, FakeMachine()).resolve(str(reference))
    with pytest.raises(Refused):
        registry(tmp_path, FakeMachine()).place("../x", "linux")


def test_half_removed_and_half_made_folders_of_the_store(tmp_path):
    """By their name, since a daemon may have died before the tag was written, or after it was removed; by their tag
    where the name does not say whose they are."""
    work = tmp_path / "work"
    place = made(tmp_path)
    place.folder.rename(work / ".removing-eph-s-b-1-0")
    made(tmp_path, Tag("s", "another-name", "linux", 7)).folder.rename(work / ".removing-another-name-3")
    for name in (
        ".removing-eph-s-b-2-0",
        ".making-eph-s-b-3",
        ".making-eph-s2-b-4",
        ".removing-foreign-0",
        "eph-s-b-5",
    ):
        (work / name).mkdir()
    found = registry(tmp_path, FakeMachine())
    assert {runner: path.name for runner, path in found.trash("s")} == {
        "another-name": ".removing-another-name-3",
        "eph-s-b-1": ".removing-eph-s-b-1-0",
        "eph-s-b-2": ".removing-eph-s-b-2-0",
        "eph-s-b-3": ".making-eph-s-b-3",
    }
    assert [path.name for _, path in found.trash("s2")] == [".making-eph-s2-b-4"]
    assert found.tagged("s") == []


class Counting(FakeMachine):
    listings = 0

    def snapshot(self):
        self.listings += 1
        return super().snapshot()


def test_one_listing_of_the_processes_serves_all_environments(tmp_path):
    for number in range(20):
        made(tmp_path, Tag("s", f"eph-s-b-{number}", "linux", 7))
    machine = Counting()
    machine.idle()
    assert len(registry(tmp_path, machine).tagged("s")) == 20
    assert machine.listings == 1
    assert sorted(machine.asked_markers) == sorted(machine.processes)


def test_a_listing_in_which_something_went_is_made_anew():
    machine = Counting()
    machine.idle()
    still = Still(machine)
    first = still.snapshot()
    machine.add(50, "sh")
    assert still.snapshot() is first
    machine.vanishing = {LISTENER.pid}
    with pytest.raises(Vanished):
        still.program(first.processes[LISTENER.pid])
    assert 50 in still.snapshot().processes
    assert machine.listings == 2


def test_looks_that_wait_share_the_next_listing_and_no_earlier_one():
    """Two ask while a third lists: they get one listing, begun after they asked."""
    listing, go_on = threading.Event(), threading.Event()

    class Slow(Counting):
        def snapshot(self):
            found = super().snapshot()
            if self.listings == 1:
                listing.set()
                assert go_on.wait(30)
            return found

    machine = Slow()
    machine.idle()
    looks = Looks(machine)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(looks.join)
        assert listing.wait(30)
        machine.add(50, "sh")
        later = [pool.submit(looks.join) for _ in range(2)]
        go_on.set()
        tables = [asked.result(30) for asked in later]
    assert 50 not in first.result().snapshot().processes
    assert all(50 in table.snapshot().processes for table in tables)
    assert 2 <= machine.listings <= 3  # the second may have come only when the first of the two had begun
    assert looks.join() not in tables


def test_a_listing_that_fails_is_tried_again_by_whoever_looks():
    machine = Counting()
    machine.idle()
    machine.broken = True
    table = Looks(machine).join()
    with pytest.raises(PermissionError):
        table.snapshot()
    machine.broken = False
    assert LISTENER.pid in table.snapshot().processes
