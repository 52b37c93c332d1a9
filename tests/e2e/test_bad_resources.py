"""Bad days beside the disk, with the daemon as a program: no file descriptors left, folders taken away."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.e2e import serving
from tests.e2e.serving import Site
from tests.e2e.small_disk import send

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.platform("linux")]
until = partial(serving.until, seconds=180.0)
SPARE = 12
"""Descriptors that the daemon has beyond those it holds."""
REFUSED = "connections wait: no file descriptors"


@pytest.fixture
def site(tmp_path_factory):
    made = Site(tmp_path_factory.mktemp("r"))
    yield made
    made.close()


def held(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def used(pid: int) -> float:
    """Seconds of processor time that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_out_of_file_descriptors(site):
    """Connections wait, nothing spins, and when there are descriptors again all is as before."""
    until(lambda: site.api("api/v1/status")["reconciled"])
    pid = site.daemon.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (held(pid) + SPARE, limits[1]))
    with ExitStack() as stack:
        for _ in range(SPARE * 4):
            stack.enter_context(socket.create_connection(("127.0.0.1", site.port), timeout=30))
        until(lambda: REFUSED in site.log())
        lines = site.log().count("\n")
        worked = used(pid)
        time.sleep(4.0)  # what is measured is the time itself
        assert used(pid) - worked < 2.0, "it does not spin"
        assert site.log().count("\n") - lines < 100, "nor does it fill the log"
        site.queue(1, seconds=1)
        assert site.daemon.poll() is None
    until(lambda: any("LimitNOFILE" in reason for reason in site.api("api/v1/status")["health"]["reasons"]))
    until(lambda: send(site, range(20)) == dict.fromkeys(range(20), 202))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    site.queue(2, seconds=1)
    outcomes = site.completed(3, 180)
    assert (outcomes["killed"], outcomes["lost"], outcomes["leaked"]) == (0, 0, 0)


def test_the_work_directory_is_removed_under_a_runner(site):
    """Its processes are what counts: the slot comes back when they are gone by themselves, and not before; others
    work on."""
    site.queue(1, seconds=20)
    (runner,) = until(
        lambda: [one for one in site.api("api/v1/runners")["items"] if one["state"] == "running"]
    )
    listener = Path("/proc") / runner["environment"].rpartition(":")[2].partition(".")[0]
    assert listener.exists()
    folder = site.folder / "state" / "runners" / runner["id"]
    # Its job writes meanwhile, so that once may not be enough.
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
    row = site.api(f"api/v1/runners/{runner['id']}")
    assert row["state"] != "gone" or not listener.exists()
    site.queue(2, seconds=0.5)
    until(lambda: site.outcomes()["completed"] >= 2)
    until(lambda: site.api(f"api/v1/runners/{runner['id']}")["state"] == "gone")
    assert not listener.exists()
    until(lambda: site.api("api/v1/status")["slots_held"] == 0)
    assert site.api("api/v1/status")["slot_accounting_difference"] == 0
    decided = site.api(f"api/v1/decisions?runner={runner['id']}")["items"]
    assert [one for one in decided if one["outcome"] != "vetoed" and one["rule"] != "ended"] == []
