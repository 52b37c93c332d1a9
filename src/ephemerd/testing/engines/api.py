"""The engine's API, as little of it as tests and demonstrations need, over its unix socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from typing import Any
from urllib.parse import quote, urlencode

LIMIT_S = 120.0


class EngineError(Exception):
    """The engine refused, or does not answer."""


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=LIMIT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(LIMIT_S)
        self.sock.connect(self._path)


class EngineApi:
    """Calls block."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._path = url.removeprefix("unix://")

    def answers(self) -> bool:
        """Whether the engine is there."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self._ask("GET", "/_ping")[0] == 200
        return False

    def call(self, method: str, path: str, body: Any = None, fine: tuple[int, ...] = ()) -> Any:
        """Ask the engine; raises `EngineError` for a failure that is not named as fine."""
        try:
            status, content = self._ask(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            raise EngineError(f"{method} {path}: {error}") from error
        if status >= 400 and status not in fine:
            raise EngineError(f"{method} {path}: {status} {content.decode(errors='replace')[:300]}")
        with contextlib.suppress(ValueError):
            return json.loads(content) if content else None
        return content

    def inspect(self, container: str) -> dict[str, Any]:
        """Everything that the engine tells of a container."""
        found: dict[str, Any] = self.call("GET", f"/containers/{container}/json")
        return found

    def labelled(self, kind: str, label: str) -> list[dict[str, Any]]:
        """The `containers` (ended ones too), `networks` or `volumes` with a label."""
        filters = quote(json.dumps({"label": [label]}))
        path = "/containers/json?all=1&" if kind == "containers" else f"/{kind}?"
        found = self.call("GET", f"{path}filters={filters}")
        listed = found.get("Volumes") if isinstance(found, dict) else found
        return list(listed or ())

    def import_image(self, name: str, archive: bytes, *changes: str) -> None:
        """Make an image of a root folder; ``changes`` are lines of a Dockerfile."""
        repository, _, tag = name.partition(":")
        query = [
            ("fromSrc", "-"),
            ("repo", repository),
            ("tag", tag),
            *(("changes", each) for each in changes),
        ]
        content = self.call("POST", f"/images/create?{urlencode(query)}", archive)
        if b'"error"' in (content if isinstance(content, bytes) else json.dumps(content).encode()):
            raise EngineError(f"the image {name} cannot be made: {content!r}")

    def output(self, container: str, *command: str) -> tuple[int, str]:
        """Run a program in a container and wait for it; return its exit code and what it printed."""
        options = {"Cmd": list(command), "AttachStdout": True, "AttachStderr": True, "Tty": True}
        made = self.call("POST", f"/containers/{container}/exec", options)
        content = self._ask("POST", f"/exec/{made['Id']}/start", {"Detach": False, "Tty": True})[1]
        found = self.call("GET", f"/exec/{made['Id']}/json")
        return int(found["ExitCode"]), content.decode(errors="replace")

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        connection = _Connection(self._path)
        try:
            content = body if body is None or isinstance(body, bytes) else json.dumps(body)
            kind = "application/x-tar" if isinstance(body, bytes) else "application/json"
            connection.request(method, path, content, {"Content-Type": kind, "Connection": "close"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
