"""Puts the packet filter of `rules` in place on the engine's machine, and looks whether it still is."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import structlog

from ephemerd.adapters.runtimes.docker.rules import Exceptions, render, table_name, without_counts
from ephemerd.ports.errors import Broken

log = structlog.get_logger(__name__)

LIMIT = 15.0
RESOLVERS = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))
TODO = 'mend it, or write network = "bridge" in the pool\'s container table to go without isolation'


class Firewall:
    """The table of one store.

    command   nft, with what has to stand before it
    """

    def __init__(self, command: Sequence[str], exceptions: Exceptions) -> None:
        self._command = tuple(command)
        self._exceptions = exceptions
        self._known: dict[str, str] = {}
        self._lock = asyncio.Lock()

    def allow(self, exceptions: Exceptions) -> None:
        """Render the rules with these exceptions from now on; they are put in place before the next start."""
        if exceptions != self._exceptions:
            self._exceptions = exceptions
            self._known = dict.fromkeys(self._known, "")

    async def ready(self, store: str) -> None:
        """Return once the rules are in place as they should be; raise `Broken` with what to do otherwise."""
        async with self._lock:
            listing = await self._listing(store) if store in self._known else None
            if listing is not None and listing == self._known[store]:
                return
            if self._known.get(store):
                log.warning("the packet filter of the runners was changed; putting it back", store=store)
            code, _, errors = await self._nft("-f", "-", text=render(store, self._exceptions))
            if code:
                self._known.pop(store, None)
                raise Broken(f"the packet filter of the runners is refused ({_first_line(errors)}): {TODO}")
            listing = await self._listing(store)
            if listing is None:
                raise Broken(f"the packet filter of the runners cannot be read back: {TODO}")
            self._known[store] = listing

    async def check(self) -> None:
        """Look whether the rules could be put in place; raise `Broken` otherwise. Changes nothing."""
        code, _, errors = await self._nft("-c", "-f", "-", text=render("check", self._exceptions))
        if code:
            raise Broken(f"the packet filter of the runners is refused ({_first_line(errors)}): {TODO}")

    async def _listing(self, store: str) -> str | None:
        code, output, _ = await self._nft("-j", "list", "table", "inet", table_name(store))
        if code:
            return None
        try:
            return without_counts(output)
        except ValueError:
            return None

    async def _nft(self, *arguments: str, text: str = "") -> tuple[int, str, str]:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise Broken(
                f"nft cannot be started ({error.strerror}), so runners cannot be isolated: {TODO}"
            ) from None
        try:
            async with asyncio.timeout(LIMIT):
                output, errors = await process.communicate(text.encode())
        except TimeoutError:
            raise Broken(f"nft did not end within {LIMIT:g} s: {TODO}") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        return process.returncode or 0, output.decode(errors="replace"), errors.decode(errors="replace")


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")[:200]


def bridge_is_here(name: str) -> bool:
    """Say whether a bridge is one of this machine's interfaces."""
    try:
        socket.if_nametoindex(name)
    except OSError:
        return False
    return True


def resolvers(files: Sequence[Path] = RESOLVERS) -> tuple[str, ...]:
    """Return the machine's name servers, which an engine hands to its containers; those on loopback are not."""
    found: dict[str, None] = {}
    for file in files:
        with contextlib.suppress(OSError):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                words = line.split()
                if len(words) > 1 and words[0] == "nameserver":
                    with contextlib.suppress(ValueError):
                        address = ip_address(words[1].partition("%")[0])
                        if not address.is_loopback:
                            found[str(address)] = None
    return tuple(found)
