"""One HTTP request with a deadline, a bounded answer and no surprises.

What the adapters of forges share: a connection pool with limits, a deadline over the whole exchange (connect,
send, every byte of the answer), a bound on the answer's size, proxies from the environment except to the own
machine. Nothing is repeated and no redirect is followed here.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from ephemerd.adapters.kit.answer import Answer, NoAnswer
from ephemerd.ports.errors import Broken

MAX_BODY = 16 * 1024 * 1024
CONNECTIONS = 10  # GitHub allows 100 concurrent requests for all that acts as one user; stay far below
KEEPALIVE_S = 15.0  # shorter than any forge's own limit, so that a write seldom meets a dying connection
# Texts of these come from the operating system or OpenSSL; the others may quote what was sent or received.
_QUOTABLE = (httpx2.ConnectError, httpx2.ReadError, httpx2.WriteError)
# Its traces at DEBUG quote what comes over the wire, which no level of ours may show.
logging.getLogger("httpcore2").setLevel(logging.INFO)
# What an operating system or OpenSSL says, and what to do about it; the first that is found counts.
_TODO = (
    ("certificate has expired", "renew the forge's certificate, or set this machine's clock right"),
    ("is not yet valid", "set this machine's clock right"),
    ("Hostname mismatch", "name the forge in url as its certificate does"),
    ("IP address mismatch", "name the forge in url as its certificate does"),
    ("CERTIFICATE_VERIFY_FAILED", "is the forge's authority missing? set ca_file"),
    ("ssl", "is it https at all? check url"),
    ("Name or service not known", "the name is not known: check url and this machine's name server"),
    ("nodename nor servname", "the name is not known: check url and this machine's name server"),
    ("name resolution", "the name server does not answer: check this machine's network"),
    ("All connection attempts failed", "nothing listens there: check url, firewall and proxy"),
    ("Connection refused", "nothing listens there: check url, firewall and proxy"),
    ("unreachable", "there is no way there: check this machine's network"),
)
_BROKEN = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)


def is_loopback(url: str) -> bool:
    """Say whether a URL names this machine: such a request must never travel by a proxy."""
    host = (urlsplit(url).hostname or "").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class HttpClient:
    """Sends requests to one service. Make it inside a running event loop; close it there, too."""

    def __init__(
        self,
        base_url: str,
        *,
        ca_file: Path | None = None,
        max_body: int = MAX_BODY,
        connections: int = CONNECTIONS,
    ) -> None:
        """Prepare connections to `base_url`; `ca_file` replaces the system's authorities.

        Raises `Broken` where the CA file, or what the environment names, cannot be used.
        """
        self._max_body = max_body
        trust = _trust(base_url, ca_file)
        try:
            self._client = httpx2.AsyncClient(
                verify=trust,
                trust_env=not is_loopback(base_url),
                follow_redirects=False,
                timeout=None,  # one deadline over everything, in `send`
                limits=httpx2.Limits(
                    max_connections=connections,
                    max_keepalive_connections=connections,
                    keepalive_expiry=KEEPALIVE_S,
                ),
            )
        except (ValueError, ImportError, OSError, httpx2.InvalidURL):
            usable = False  # the reason may quote a proxy's password
        else:
            usable = True
        if not usable:
            raise Broken(
                "the proxy or the authorities that the environment names (…_PROXY, SSL_CERT_…) are unusable"
            )

    async def send(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes = b"", deadline: float
    ) -> Answer:
        """Send one request and read its answer before `deadline` (time of the event loop, seconds).

        Raises `NoAnswer` alone; the answer's status is not judged.
        """
        failure: NoAnswer
        if self._client.is_closed:
            raise NoAnswer("the connection was closed by ourselves")
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(deadline):
                return await self._exchange(method, url, headers, body)
        except TimeoutError:
            waited = asyncio.get_running_loop().time() - began
            failure = NoAnswer(f"no complete answer within {waited:.1f} s")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            failure = _failure(error)
        except NoAnswer as error:
            failure = error
        # Outside the handler, so that no request with its headers hangs on the exception as its context.
        raise failure

    async def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        request = self._client.build_request(method, url, headers=dict(headers), content=body or None)
        response = await self._client.send(request, stream=True)
        try:
            received = bytearray()
            async for chunk in response.aiter_bytes():
                received += chunk
                if len(received) > self._max_body:
                    raise NoAnswer(f"the answer is larger than {self._max_body} bytes")
            named = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status_code, named, bytes(received))
        finally:
            await response.aclose()

    @asynccontextmanager
    async def opened(
        self, url: str, *, headers: Mapping[str, str]
    ) -> AsyncIterator[tuple[int, dict[str, str], AsyncIterator[bytes]]]:
        """Get something too large for memory: yield status, headers and the bytes as they come, not decoded.

        Raises `NoAnswer` alone, also while the bytes are read. Deadlines and bounds are the caller's.
        """
        try:
            request = self._client.build_request("GET", url, headers=dict(headers))
            response = await self._client.send(request, stream=True)
            try:
                named = {name.lower(): value for name, value in response.headers.items()}
                yield response.status_code, named, response.aiter_raw()
            finally:
                await response.aclose()
            return
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            failure = _failure(error)
        raise failure  # outside the handler, as in `send`

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def _trust(base_url: str, ca_file: Path | None) -> ssl.SSLContext | bool:
    if ca_file is not None:
        try:
            return ssl.create_default_context(cafile=str(ca_file))
        except OSError as error:  # SSLError is one
            reason = error.strerror or error.__class__.__name__
        raise Broken(f"the CA file {ca_file} cannot be used: {reason}; it must hold PEM certificates")
    if urlsplit(base_url).scheme == "http":
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody and loads nothing: not needed
    return True


def _failure(error: Exception) -> NoAnswer:
    text = error.__class__.__name__
    if isinstance(error, _QUOTABLE) and str(error):
        text = f"{text}: {error}"
    hint = next((todo for sign, todo in _TODO if sign in text), "")
    if hint:
        text += f" ({hint})"
    return NoAnswer(text, broken=isinstance(error, _BROKEN))


class Stopwatch:
    """Seconds since it was made, by the monotonic clock."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def seconds(self) -> float:
        """Return the seconds that have passed."""
        return time.monotonic() - self._began
