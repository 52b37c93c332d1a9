"""What `doctor` says of this machine: disk, doors, limits, application, store, service."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ephemerd.cli import examine

GIB = 1024**3


@pytest.mark.parametrize(
    ("kind", "free", "level", "words"),
    [
        ("ext4", 50 * GIB, "ok", "50.0 GiB free"),
        ("", 50 * GIB, "ok", "local"),
        ("xfs", GIB, "warning", "1.0 GiB free"),
        ("ext4", 100 * 1024**2, "problem", "0.1 GiB free"),
        ("tmpfs", 50 * GIB, "warning", "in memory"),
        ("nfs4", 50 * GIB, "problem", "another machine's disk (nfs4)"),
        ("fuse.sshfs", 50 * GIB, "problem", "another machine's disk"),
    ],
)
def test_a_disk_is_local_lasting_and_has_room(kind, free, level, words):
    found = examine.disk(Path("/srv"), kind, free)
    assert found.level == level
    assert words in found.what
    assert bool(found.todo) == (level != "ok")
    assert found.code == (5 if level == "problem" else 0)


def test_the_file_system_of_a_folder_is_told(tmp_path):
    assert examine.filesystem(Path("/proc/self")) == "proc"
    assert examine.filesystem(tmp_path) not in examine.REMOTE


def test_a_folder_that_is_not_there_yet_can_be_made(tmp_path):
    found = list(examine.folder(tmp_path / "a" / "b"))
    assert found[0].level == "ok"
    assert "can be made" in found[0].what
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").touch()
    assert [one.level for one in examine.folder(tmp_path / "file" / "b")] == ["problem"]


@pytest.mark.parametrize(
    ("slots", "limit", "level"),
    [(4, 1024, "ok"), (64, 1024, "warning"), (4, 200, "problem"), (64, 65536, "ok"), (500, -1, "ok")],
)
def test_open_files_are_judged_by_the_slots(slots, limit, level):
    assert examine.open_files(slots, limit).level == level


def elf(machine: int) -> bytes:
    return b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00" + machine.to_bytes(2, "little") + bytes(40)


def test_an_application_that_gets_old_is_said_before_it_is_refused(tmp_path):
    listener = tmp_path / "bin" / "Runner.Listener"
    listener.parent.mkdir()
    listener.write_text("#!/bin/sh\n")
    found = examine.application(tmp_path)
    for days, level in ((44, "ok"), (46, "warning")):
        made = time.time() - days * 86_400
        os.utime(listener, (made, made))
        found = examine.application(tmp_path)
        assert found.level == level, found
    assert "46 days old" in found.what
    assert "download" in found.todo


def test_the_application_is_there_and_for_this_machine(tmp_path):
    assert examine.application(tmp_path).level == "problem"
    listener = tmp_path / "bin" / "Runner.Listener"
    listener.parent.mkdir()
    listener.write_text("#!/bin/sh\n")
    assert examine.application(tmp_path).level == "ok"
    here = os.uname().machine
    for number, names in examine.ELF.items():
        listener.write_bytes(elf(number))
        found = examine.application(tmp_path)
        assert found.level == ("ok" if here in names else "problem"), number
        assert (names[0] in found.what) == (here not in names)


class _Health(BaseHTTPRequestHandler):
    body: bytes = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[HTTPServer]:
    made = HTTPServer(("127.0.0.1", 0), type("Handler", (_Health,), {}))
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.mark.parametrize(
    ("body", "level"),
    [
        (json.dumps({"status": "ok", "reasons": []}), "ok"),
        (json.dumps({"status": "stuck", "reasons": ["look"]}), "ok"),
        ("<html>", "problem"),
        (json.dumps(["ok"]), "problem"),
    ],
)
def test_a_door_that_is_taken_may_be_ours(web, body, level):
    web.RequestHandlerClass.body = body.encode()
    found = examine.door("server.webhook_listen", f"127.0.0.1:{web.server_port}")
    assert found.level == level
    assert ("a daemon of ours" in found.what) == (level == "ok")


def test_a_door_that_is_free_or_none():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    assert examine.door("server.metrics_listen", f"127.0.0.1:{port}").level == "ok"
    assert examine.door("server.metrics_listen", "127.0.0.1:0").level == "ok"
    far = examine.door("server.metrics_listen", "192.0.2.1:9464")
    assert far.level == "problem"
    assert "server.metrics_listen" in far.todo


def test_a_store_is_checked(tmp_path):
    store = tmp_path / "state.db"
    assert "is made" in examine.store(store).what
    store.write_bytes(b"no database at all" * 100)
    found = examine.store(store)
    assert (found.level, found.code) == ("problem", 5)
    assert found.todo


@pytest.mark.parametrize(
    ("platform", "there", "level"),
    [
        ("linux", "/etc/systemd/system/ephemerd.service", "ok"),
        ("linux", "/home/me/.config/systemd/user/ephemerd.service", "ok"),
        ("linux", "/somewhere/else", "warning"),
        ("darwin", "/home/me/Library/LaunchAgents", "ok"),
    ],
)
def test_a_service_is_looked_for(platform, there, level):
    found = examine.service(
        platform, Path("/home/me"), "", exists=lambda path: there in (str(path), str(path.parent))
    )
    assert found.level == level
    assert ("install" in found.todo) == (level == "warning")
