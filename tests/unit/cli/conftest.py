"""A stand-in for the daemon's API: a real HTTP server on a unix socket, answering with real views."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from ephemerd.cli.main import run
from tests.unit.cli import views

Answer = tuple[int, Any]
Route = Callable[[dict[str, str], dict[str, Any]], Answer]


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


@dataclasses.dataclass
class Daemon:
    """Answers by route; `requests` is what came. A route gets the query and the body."""

    socket: Path
    routes: dict[tuple[str, str], Route] = dataclasses.field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str], dict[str, Any]]] = dataclasses.field(default_factory=list)

    def on(self, method: str, path: str, answer: Answer | Route) -> None:
        self.routes[method, path] = answer if callable(answer) else lambda *_: answer

    def answer(self, method: str, target: str, raw: bytes) -> Answer:
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        body = json.loads(raw) if raw else {}
        path = unquote(parts.path).removeprefix("/api/v1/")
        self.requests.append((method, path, query, body))
        route = self.routes.get((method, path))
        if route is None:
            return 404, {"detail": f"there is no {path!r}", "near": self.near(path)}
        return route(query, body)

    def near(self, path: str) -> list[str]:
        """Resembling ids, as the daemon finds them: those that contain what was asked for."""
        text = path.removesuffix("/story").partition("/")[2]
        known = [target for _, target in self.routes if target.endswith("/story")]
        names = [target.removesuffix("/story").partition("/")[2] for target in known]
        return [name for name in names if text in name][:10]

    def story(self, subject: str, lines: list[dict[str, Any]] | None = None, **rows: Any) -> None:
        kind = "job" if "/" in subject else "runner"
        body = {"subject": subject, "kind": kind, "lines": lines or [], "runner": None, "job": None, **rows}
        self.on("GET", f"{kind}s/{subject}/story", (200, body))

    def lists(self, path: str, items: list[dict[str, Any]]) -> None:
        """Serve a list in pages, with the index of the next item as cursor."""

        def page(query: dict[str, str], _: dict[str, Any]) -> Answer:
            begin, limit = int(query.get("after") or 0), int(query.get("limit", 100))
            chosen = items[begin : begin + limit]
            more = begin + limit < len(items)
            return 200, {"items": chosen, "next": str(begin + limit) if more else None}

        self.on("GET", path, page)


def _handler(daemon: Daemon) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            status, body = daemon.answer(self.command, self.path, raw)
            payload = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_POST = do_DELETE = _answer

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: a socket's path must not be long."""
    made = Path(tempfile.mkdtemp(prefix="eph-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def daemon(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """A running stand-in that knows one pool, one host, a few runners and jobs."""
    made = Daemon(folder / "api.sock")
    made.on("GET", "status", (200, views.status()))
    made.lists("pools", [views.pool()])
    made.lists("hosts", [views.host()])
    made.lists("runners", views.RUNNERS)
    made.lists("jobs", views.JOBS)
    made.lists("decisions", views.DECISIONS)
    with _Server(str(made.socket), _handler(made)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("EPHEMERD_SOCKET", str(made.socket))
        yield made
        server.shutdown()
        thread.join()


@dataclasses.dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run a command line in this process."""

    def call(*arguments: str) -> Result:
        capsys.readouterr()
        code = run(list(arguments))
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return call


@pytest.fixture
def program() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the program as a process of its own."""

    def call(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ephemerd", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **env},
        )

    return call
