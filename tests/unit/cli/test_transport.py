"""Reaching the daemon: sockets, addresses, deadlines, and what is said when nobody answers."""

from __future__ import annotations

import http.server
import os
import socket
import threading
import time
from pathlib import Path

import pytest

from ephemerd.cli import transport
from ephemerd.cli.client import Client, NotKnown, connect
from ephemerd.cli.failure import Failure
from ephemerd.cli.transport import Place, request
from tests.unit.cli import views


def failure(place: Place, **more) -> Failure:
    with pytest.raises(Failure) as caught:
        request(place, "GET", "/x", **more)
    return caught.value


def test_no_daemon_is_code_6_and_says_what_to_do(cli, folder):
    done = cli("status", "--socket", str(folder / "no.sock"))
    assert done.code == 6
    assert done.out == ""
    assert done.err.splitlines() == [
        f"error: no daemon listens at {folder}/no.sock",
        "  fix: start it with 'ephemerd serve', or name its socket by --socket or $EPHEMERD_SOCKET",
    ]


def test_a_socket_that_nobody_serves_any_more(folder):
    path = folder / "old.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert failure(Place(str(path))).code == 6


@pytest.mark.account("user")
def test_a_socket_of_another_account(daemon):
    daemon.socket.chmod(0)
    found = failure(Place(str(daemon.socket)))
    assert (found.code, found.todo) == (6, "run it as the daemon's account")


def test_a_refused_socket(monkeypatch):
    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(transport._SocketConnection, "connect", refuse)
    assert "may not be opened" in failure(Place("/x")).what


def silent(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def test_a_daemon_that_does_not_answer_in_time(folder):
    with silent(folder / "s"):
        found = failure(Place(str(folder / "s")), deadline=0.05)
    assert found.code == 6
    assert "did not answer within 0.05 s" in found.what


def answering(path: Path, *pieces: bytes) -> threading.Thread:
    """Serve one connection with these bytes."""
    server = silent(path)

    def serve() -> None:
        with server, server.accept()[0] as connection:
            connection.recv(65_536)
            for piece in pieces:
                try:
                    connection.sendall(piece)
                except OSError:
                    return

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"", "failed"),
        (b"SSH-2.0-x\r\n", "failed"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", "failed"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhtml", "does not speak the API"),
    ],
)
def test_something_else_listens_there(folder, raw, what):
    thread = answering(folder / "s", raw)
    found = failure(Place(str(folder / "s")))
    thread.join()
    assert found.code == 6
    assert what in found.what


def test_a_body_that_drips_is_bounded_by_the_deadline(folder, monkeypatch):
    moments = iter([0.0, 1.0, 99.0, 99.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    monkeypatch.setattr(transport, "CHUNK", 1)
    thread = answering(folder / "s", b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n123")
    assert "did not answer within 10 s" in failure(Place(str(folder / "s"))).what
    thread.join()


def test_a_body_without_end_is_bounded(folder, monkeypatch):
    monkeypatch.setattr(transport, "MOST_BYTES", 10)
    thread = answering(folder / "s", b"HTTP/1.1 200 OK\r\n\r\n" + b"1" * 11)
    assert "too large" in failure(Place(str(folder / "s"))).what
    thread.join()


def test_an_empty_answer_is_none(folder):
    thread = answering(folder / "s", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    assert request(Place(str(folder / "s")), "GET", "/").body is None
    thread.join()


def test_over_http(cli):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            assert self.path == "/base/api/v1/hosts"
            body = b'{"items": [], "next": null}'
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        done = cli("hosts", "--url", f"http://127.0.0.1:{server.server_port}/base/")
        thread.join()
    assert (done.code, done.out) == (0, "no hosts\n")


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://x", "http://", "http://x:port"])
def test_an_address_that_is_none(cli, url):
    done = cli("status", "--url", url)
    assert done.code == 2
    assert "--url http://HOST:PORT" in done.err


def test_both_ways_at_once_are_refused(cli):
    assert cli("status", "--url", "http://x", "--socket", "/x").code == 2


def test_the_socket_is_found_in_order(monkeypatch, tmp_path):
    monkeypatch.setenv("EPHEMERD_SOCKET", "/from/env")
    assert connect(Path("/given"), None).place == Place(socket="/given")
    assert connect(None, "http://x").place == Place(url="http://x")
    assert connect(None, None).place == Place(socket="/from/env")
    monkeypatch.delenv("EPHEMERD_SOCKET")
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    (tmp_path / "api.sock").touch()
    assert connect(None, None).place == Place(socket=os.fspath(tmp_path / "api.sock"))


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 2), (401, 4), (403, 4), (404, 2), (409, 7), (413, 2), (500, 1), (503, 6), (302, 1)],
)
def test_each_refusal_has_its_code(cli, daemon, status, code):
    daemon.on("GET", "status", (status, {"detail": "so it is"}))
    done = cli("status")
    assert done.code == code
    assert done.err.startswith("error: so it is\n  fix: ")


def test_a_refusal_without_words(cli, daemon):
    daemon.on("GET", "status", (500, []))
    assert "the daemon answered 500" in cli("status").err


def test_near_matches_of_a_refusal(daemon):
    daemon.on("GET", "runners/x", (404, {"detail": "no", "near": ["a", "b"]}))
    with pytest.raises(NotKnown) as caught:
        Client(Place(str(daemon.socket))).get("runners/x")
    assert caught.value.near == ["a", "b"]
    assert caught.value.todo == "did you mean a, b?"


def test_a_list_ends_with_an_empty_page(daemon):
    daemon.on("GET", "runners", (200, {"items": [], "next": "5"}))
    assert list(Client(Place(str(daemon.socket))).items("runners")) == []


def test_no_more_than_asked_for_is_taken(daemon):
    daemon.on("GET", "runners", (200, {"items": views.RUNNERS, "next": "5"}))
    assert len(list(Client(Place(str(daemon.socket))).items("runners", most=2))) == 2
