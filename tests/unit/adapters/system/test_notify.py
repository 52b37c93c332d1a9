"""What the service manager hears, on real datagram sockets: a path's and an abstract one's."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ephemerd.adapters.system.notify import Notifier


class Manager:
    """The other end: a bound datagram socket."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self.socket.settimeout(10)

    def heard(self) -> str:
        return self.socket.recv(4096).decode()

    def silent(self) -> bool:
        self.socket.setblocking(False)
        try:
            self.socket.recv(4096)
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(10)
        return False


ABSTRACT = pytest.param("abstract", marks=pytest.mark.platform("linux"))


@pytest.fixture(params=["path", ABSTRACT])
def address(request):
    with tempfile.TemporaryDirectory(prefix="eph-") as folder:
        yield f"{folder}/notify" if request.param == "path" else f"@ephemerd-test-{os.getpid()}-{id(request)}"


@pytest.fixture
def manager(address):
    made = Manager(address)
    yield made
    made.socket.close()


def test_each_word_as_it_is_written(address, manager):
    told = Notifier.from_environment({"NOTIFY_SOCKET": address})
    assert told.wanted
    told.ready()
    assert manager.heard() == "READY=1"
    told.status("ok: 3 runners\nand no more")
    assert manager.heard() == "STATUS=ok: 3 runners and no more"
    told.status("ok: 3 runners and no more")
    assert manager.silent(), "the same line is not sent again"
    before = time.monotonic_ns() // 1_000
    told.reloading()
    first, second = manager.heard().splitlines()
    assert first == "RELOADING=1"
    usec = int(second.removeprefix("MONOTONIC_USEC="))
    assert before - 1 <= usec
    if sys.platform == "linux":
        assert usec <= time.monotonic_ns() // 1_000
    told.stopping()
    assert manager.heard() == "STOPPING=1"
    told.close()


def test_pings_come_when_the_loop_turns_and_not_more_often_than_needed(address, manager):
    now = [100.0]
    told = Notifier(address, 30.0, monotonic=lambda: now[0])
    assert told.interval == 10.0
    told.alive()
    assert manager.heard() == "WATCHDOG=1"
    now[0] += 1.0
    told.alive()
    assert manager.silent()
    now[0] += 4.0
    told.alive()
    assert manager.heard() == "WATCHDOG=1"
    now[0] += 1000.0
    assert manager.silent(), "a loop that does not turn sends nothing"
    told.close()


def test_words_wait_for_a_manager_that_is_away_and_pings_do_not(address):
    told = Notifier(address, 30.0)
    told.ready()
    told.alive()
    manager = Manager(address)
    told.stopping()
    assert [manager.heard(), manager.heard()] == ["READY=1", "STOPPING=1"]
    assert manager.silent()
    manager.socket.close()
    told.close()


def test_a_full_queue_delays_nobody(address, manager):
    told = Notifier(address)
    for number in range(5_000):
        told.status(f"line {number}")
    assert manager.heard() == "STATUS=line 0"
    while not manager.silent():
        pass
    told.ready()
    heard: list[str] = []
    while not heard or heard[-1] != "READY=1":
        heard.append(manager.heard())
    assert heard[-2] == "STATUS=line 4999"
    told.close()


@pytest.mark.parametrize(
    ("env", "interval"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 10.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "4242"}, 10.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "4243"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_when_pings_are_wanted(env, interval):
    assert Notifier.from_environment({"NOTIFY_SOCKET": "/run/x", **env}, pid=4242).interval == interval


@pytest.mark.parametrize("where", ["", "/", "relative", "@", "vsock:2:1234"])
def test_without_a_socket_that_can_be_used_nothing_is_sent(where):
    told = Notifier.from_environment({"NOTIFY_SOCKET": where, "WATCHDOG_USEC": "1000000"})
    assert (told.wanted, told.interval) == (False, None)
    for word in (told.ready, told.stopping, told.reloading, told.alive, told.close):
        word()


def test_a_path_that_is_too_long_is_no_failure(tmp_path: Path):
    told = Notifier(str(tmp_path / ("x" * 200)))
    told.ready()
    told.close()
