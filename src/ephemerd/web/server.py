"""HTTP servers inside our own loop, on sockets that are bound here.

A taken port is a plain, typed error before anything is served. A unix socket
is made beside its path, closed to others from the first moment, and moved into place; one that a dead daemon
left is replaced, one that answers is not touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

KEEP_ALIVE = 30
BACKLOG = 512
"""Connections that wait for `accept`: deliveries of a large matrix come within a second."""
AT_ONCE = 512
"""Requests at one time a server; more are answered 503 by uvicorn."""
GRACEFUL = 10
HEADER_LIMIT = 10.0
MOST_HEADERS = 64 * 1024
"""Seconds and bytes for a request's line and headers; GitHub's are below 2 KiB."""
LONGEST_PATH = 100
"""Bytes of a unix socket's path, ours beside it included: 104 on macOS, 108 on Linux, with the ending zero."""


class ListenFailed(Exception):
    """Nothing can listen there: the port or socket is taken, or the address is not ours."""

    def __init__(self, where: str, detail: str, todo: str) -> None:
        super().__init__(f"cannot listen on {where}: {detail}")
        self.todo = todo


def bind_tcp(host: str, port: int) -> socket.socket:
    """Return a bound TCP socket; raises `ListenFailed`. Port 0 takes any free one."""
    where = f"{host}:{port}"
    sock: socket.socket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        if sock is not None:
            sock.close()
        raise ListenFailed(where, _reason(error), "free the port or choose another in [server]") from error
    sock.setblocking(False)
    return sock


def bound_to(sock: socket.socket) -> str:
    """Return where a TCP socket is bound: `HOST:PORT`."""
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bind_unix(path: Path, mode: int = 0o600) -> socket.socket:
    """Return a listening unix socket at `path` with that mode; raises `ListenFailed`.

    Nobody can connect before the mode is set: the socket listens only afterwards, and only then appears.
    """
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    if len(os.fsencode(beside)) > LONGEST_PATH:
        raise ListenFailed(str(path), "the path is too long for a unix socket", "choose a shorter api_socket")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_way(path)
        beside.unlink(missing_ok=True)
        sock.bind(os.fspath(beside))
        beside.chmod(mode)
        sock.listen(BACKLOG)
        beside.replace(path)
    except OSError as error:
        sock.close()
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise ListenFailed(str(path), _reason(error), "choose another api_socket in [server]") from error
    except ListenFailed:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _make_way(path: Path) -> None:
    """Refuse a path where a daemon answers or something else than a socket lies; a dead socket may go."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise ListenFailed(str(path), "a file that is no socket lies there", "move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except OSError as error:
            raise ListenFailed(str(path), _reason(error), "look who owns that socket") from error
    raise ListenFailed(str(path), "another daemon answers there", "stop it first, or give this one its own")


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the address is in use"
    return error.strerror or str(error)


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol with bounds on what comes before a body: size and time of the headers."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._before_body = 0
        self._deadline: asyncio.TimerHandle | None = self.loop.call_later(HEADER_LIMIT, self._late)

    def data_received(self, data: bytes) -> None:
        if self._deadline is not None:
            self._before_body += len(data)
        super().data_received(data)
        if self._deadline is not None and self._before_body > MOST_HEADERS:
            self.send_400_response("the headers are too large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._deadline is None:
            self._before_body = 0
            self._deadline = self.loop.call_later(HEADER_LIMIT, self._late)

    def on_headers_complete(self) -> None:
        self._in_time()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        super().connection_lost(exc)

    def _in_time(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()


@dataclass(slots=True)
class Listener:
    """One app on one bound socket; `name` is for the log, `path` that of a unix socket, removed at the end.

    uvicorn's server is started and stopped without its main loop: that would wake ten times a second to
    refresh a date header that is not sent, and would take the signals that the daemon handles itself.
    """

    name: str
    app: ASGIApp
    sock: socket.socket
    path: Path | None = None
    _server: uvicorn.Server | None = field(default=None, init=False)

    @property
    def address(self) -> str:
        """Where it listens: `HOST:PORT`, or the path."""
        return str(self.path) if self.path is not None else bound_to(self.sock)

    async def start(self) -> None:
        """Serve from now on."""
        config = uvicorn.Config(
            self.app,
            http=_Protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            loop="none",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=GRACEFUL,
            limit_concurrency=AT_ONCE,
            backlog=BACKLOG,
        )
        config.load()
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup(sockets=[self.sock])

    async def stop(self) -> None:
        """Accept nothing more, let requests under way end, and remove our unix socket."""
        if self._server is not None:
            await self._server.shutdown(sockets=[self.sock])
        self.close()

    def close(self) -> None:
        """Let go of the socket."""
        self.sock.close()
        self._remove()

    def _remove(self) -> None:
        """Remove the path only where nothing answers: a later daemon may have put its own there."""
        if self.path is None:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(0.2)
            try:
                probe.connect(os.fspath(self.path))
            except ConnectionRefusedError:
                self.path.unlink()
