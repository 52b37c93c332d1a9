"""A small HTTP client over a unix socket or TCP: one request, one deadline, a bounded answer."""

from __future__ import annotations

import http.client
import json
import socket
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ephemerd.cli.failure import Exit, Failure

MOST_BYTES = 64 * 1024 * 1024
CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class Place:
    """Where the daemon is: the path of a socket, or a base address with the API token that it wants."""

    socket: str = ""
    url: str = ""
    token: str = field(default="", repr=False)

    def __str__(self) -> str:
        return self.url or self.socket


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and decoded JSON body (None where the body is empty)."""

    status: int
    body: Any


class _SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        except BaseException:
            self.sock.close()
            raise


def request(
    place: Place, method: str, path: str, body: dict[str, Any] | None = None, *, deadline: float = 10.0
) -> Answer:
    """Send one request and read its answer within `deadline` seconds; Failure 6 where nobody answers."""
    until = time.monotonic() + deadline
    connection, prefix = _connection(place, deadline)
    headers = {"Accept": "application/json"}
    payload = None
    if place.url and place.token:
        headers["Authorization"] = f"Bearer {place.token}"
    if body is not None:
        payload = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    try:
        connection.request(method, prefix + path, payload, headers)
        with connection.getresponse() as response:
            status, raw = response.status, _read(response, until)
    except (FileNotFoundError, ConnectionRefusedError):
        raise Failure(
            Exit.UNREACHABLE,
            f"no daemon listens at {place}",
            "start it with 'ephemerd serve', or name its socket by --socket or $EPHEMERD_SOCKET",
        ) from None
    except PermissionError:
        raise Failure(
            Exit.UNREACHABLE, f"{place} may not be opened by this account", "run it as the daemon's account"
        ) from None
    except TimeoutError:
        raise Failure(
            Exit.UNREACHABLE,
            f"the daemon at {place} did not answer within {deadline:g} s",
            "look at its log; it may be stopping or overloaded",
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise Failure(
            Exit.UNREACHABLE,
            f"the connection to {place} failed: {str(error) or type(error).__name__}",
            "check that a daemon listens there and try again",
        ) from None
    finally:
        connection.close()
    return Answer(status, _decode(raw, place))


def _connection(place: Place, deadline: float) -> tuple[http.client.HTTPConnection, str]:
    if not place.url:
        return _SocketConnection(place.socket, deadline), ""
    parts = urlsplit(place.url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme not in {"http", "https"} or not host:
        raise Failure(Exit.USAGE, f"{place.url!r} is no address", "write --url http://HOST:PORT")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(host, port, timeout=deadline), parts.path.rstrip("/")


def _read(response: http.client.HTTPResponse, until: float) -> bytes:
    """Read the body in pieces, so that one that drips in is bounded too."""
    raw = bytearray()
    while piece := response.read(CHUNK):
        raw += piece
        if time.monotonic() > until:
            raise TimeoutError
        if len(raw) > MOST_BYTES:
            raise http.client.HTTPException("the answer is too large")
    if response.length:
        raise http.client.HTTPException("the answer ended early")
    return bytes(raw)


def _decode(raw: bytes, place: Place) -> Any:
    if not raw:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        raise Failure(
            Exit.UNREACHABLE,
            f"what listens at {place} does not speak the API of ephemerd",
            "check --socket or --url",
        ) from None
