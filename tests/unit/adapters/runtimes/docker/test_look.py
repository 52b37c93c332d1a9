"""What the listing of a container's processes says, in each form that engines give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ephemerd.adapters.runtimes.docker.look import Process, classify, classify_images, read_listing
from ephemerd.domain.verdict import Listing

NAMES = json.loads((Path(__file__).parents[4] / "data" / "worker_names.json").read_text())["names"]
TITLES = ["PID", "PPID", "COMMAND", "COMMAND"]
SCRIPT = ["100", "1", "sh", "sh /.ephemerd/parent /home/runner"]
LISTENER = ["101", "100", "Runner.Listener", "/home/runner/bin/Runner.Listener run"]
WORKER = ["102", "101", "Runner.Worker", "/home/runner/bin/Runner.Worker spawnclient 3 4"]


def test_a_listener_alone_is_quiet():
    seen = read_listing(TITLES, [SCRIPT, LISTENER], 100)
    assert (seen.listing, seen.listener, seen.workers, seen.others) == (Listing.COMPLETE, 101, (), ())


def test_a_worker_is_seen():
    seen = read_listing(TITLES, [SCRIPT, LISTENER, WORKER], 100)
    assert (seen.listing, seen.workers) == (Listing.COMPLETE, (102,))


def test_what_podman_lists_by_its_own_numbers():
    titles = ["PID", "PPID", "COMMAND", "COMMAND"]
    rows = [
        ["1", "0", "sh", "sh /.ephemerd/parent /runner"],
        ["7", "1", "Runner.Listener", "/runner/bin/x run"],
    ]
    seen = read_listing(titles, rows, 1)
    assert (seen.listing, seen.listener, seen.others) == (Listing.COMPLETE, 7, ())


def test_a_fork_of_the_listener_is_no_listener():
    """Between fork and exec a worker bears the listener's name."""
    fork = ["103", "101", "Runner.Listener", "/home/runner/bin/Runner.Listener run"]
    seen = read_listing(TITLES, [SCRIPT, LISTENER, fork], 100)
    assert (seen.listener, seen.others) == (101, (103,))


@pytest.mark.parametrize(
    "script", ["/bin/sh /runner/bin/Runner.Worker spawnclient 3 4", "dotnet x/Runner.Worker.dll"]
)
def test_a_worker_behind_an_interpreter_is_one(script):
    seen = read_listing(TITLES, [SCRIPT, LISTENER, ["9", "101", script.split()[0][-15:], script]], 100)
    assert seen.workers == (9,)


@pytest.mark.parametrize(("titles", "rows"), [([], []), (TITLES, []), ([], [SCRIPT])])
def test_an_empty_list_proves_nothing(titles, rows):
    assert read_listing(titles, rows, 100).listing is Listing.EMPTY


def test_without_the_first_process_the_list_is_not_whole():
    assert read_listing(TITLES, [LISTENER], 100).listing is Listing.PARTIAL


@pytest.mark.parametrize("row", [["x", "1", "sh", "sh"], ["5", "1", "sh"], ["5", "1", "", ""]])
def test_a_row_that_cannot_be_read_makes_the_list_partial(row):
    assert read_listing(TITLES, [SCRIPT, LISTENER, row], 100).listing is Listing.PARTIAL


def test_titles_that_are_not_known_prove_nothing():
    seen = read_listing(["WHAT", "EVER"], [["a", "b"]], 100)
    assert seen.listing in (Listing.PARTIAL, Listing.EMPTY)
    assert not seen.listener


def test_zombies_count_as_gone():
    seen = classify([Process(1, 0, "sh"), Process(2, 1, "Runner.Worker", (), zombie=True)], 1)
    assert (seen.listing, seen.workers) == (Listing.COMPLETE, ())


# Windows: image names, no parents


def names(*images: str) -> list[list[str]]:
    return [[image, str(number), "00:00:00", "1MB"] for number, image in enumerate(images, start=4)]


WINDOWS = ["Name", "PID", "CPU", "Private Working Set"]
SYSTEM = ("smss.exe", "csrss.exe", "wininit.exe", "services.exe", "lsass.exe", "svchost.exe", "CExecSvc.exe")


def test_windows_lists_image_names():
    seen = read_listing(WINDOWS, names(*SYSTEM, "Runner.Listener.exe"), 0)
    assert (seen.listing, bool(seen.listener), seen.workers, seen.others) == (Listing.COMPLETE, True, (), ())
    seen = read_listing(WINDOWS, names(*SYSTEM, "Runner.Listener.exe", "Runner.Worker.exe"), 0)
    assert len(seen.workers) == 1


def test_what_is_strange_on_windows_is_not_idle():
    seen = classify_images([*SYSTEM, "Runner.Listener.exe", "node.exe"])
    assert len(seen.others) == 1
    assert len(classify_images([*SYSTEM, "Runner.Listener.exe", "Runner.Listener.exe"]).others) == 1


@pytest.mark.parametrize(
    "row", [row for row in NAMES if row["source"] == "image"], ids=lambda row: str(row["id"])
)
def test_image_names_are_told_by_the_projects_own_table(row):
    assert bool(classify_images([row["identifier"]]).workers) is row["is_worker"]
