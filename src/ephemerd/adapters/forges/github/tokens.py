"""Where the token comes from. It is handed to the connection alone and stands in no repr."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from ephemerd.adapters.forges.github.wire import Request
from ephemerd.adapters.kit.answer import Answer
from ephemerd.ports.errors import Denied

_LONGEST = 64 * 1024  # tokens have grown before (an installation token is no longer 40 characters)


class TokenSource(Protocol):
    """Gives the token of the moment."""

    name: str
    """What to call the source in a message, such as `token_file /etc/ephemerd/token`."""
    installed: bool
    """Whether it is an App, whose tokens are those of its installations."""

    def bind(self, ask: Callable[[Request, str], Awaitable[Answer]]) -> None:
        """Hear by what GitHub is asked, before the first call: a request and what to sign it with."""
        ...

    def holder(self, account: str) -> str:
        """Return whose limits a request counts against; "" where all is one credential."""
        ...

    async def token(self, account: str) -> str:
        """Return the token to send for what lies below a path such as `/repos/OWNER/NAME` or `/orgs/NAME`.

        `Denied` where there is none, with what to do.
        """
        ...

    async def refused(self, account: str, token: str) -> bool:
        """Hear that GitHub refused this token; return whether another one is there now."""
        ...


class OneToken:
    """What sources of one token for everything have in common: nothing to ask GitHub, one set of limits."""

    installed = False

    def bind(self, ask: Callable[[Request, str], Awaitable[Answer]]) -> None:
        """There is nothing to ask."""

    def holder(self, account: str) -> str:
        """All counts against the same limits."""
        return ""


class FixedToken(OneToken):
    """One token for ever, such as from an environment variable."""

    name = "token"

    def __init__(self, token: str) -> None:
        self._token = _checked(token, self.name)

    async def token(self, account: str = "") -> str:
        """Return the one token."""
        return self._token

    async def refused(self, account: str, token: str) -> bool:
        """There is never another."""
        return False


class FileToken(OneToken):
    """The token in a file: read at first use, and again after GitHub has refused what it held."""

    def __init__(self, path: Path) -> None:
        self.name = f"token_file {path}"
        self._path = path
        self._token = ""

    async def token(self, account: str = "") -> str:
        """Return the token as last read; `Denied` where the file cannot be read or holds none."""
        if not self._token:
            self._token = await asyncio.to_thread(self._read)
        return self._token

    async def refused(self, account: str, token: str) -> bool:
        """Read the file again; `Denied` where that is not possible any more."""
        if self._token == token:
            self._token = ""
        return await self.token() != token

    def _read(self) -> str:
        try:
            with self._path.open("rb") as file:
                text = file.read(_LONGEST + 1).decode("utf-8", "replace")
        except OSError as error:
            reason = error.strerror or error.__class__.__name__
        else:
            return _checked(text, self.name)
        raise Denied(f"{self.name} cannot be read: {reason}")


def _checked(text: str, source: str) -> str:
    token = text.strip()
    if not token:
        raise Denied(f"{source} is empty; it must hold one token")
    if len(text) > _LONGEST or not token.isascii() or not token.isprintable() or " " in token:
        raise Denied(f"{source} holds something else than one token on one line")
    return token


def token_source(token: str, token_file: Path | None) -> TokenSource:
    """Return the source for exactly one of a token and a file; `Denied` otherwise."""
    if token and token_file is not None:
        raise Denied("both token and token_file are set; keep one of them")
    if token_file is not None:
        return FileToken(token_file)
    if not token:
        raise Denied("neither token nor token_file is set; GitHub needs one of them")
    return FixedToken(token)
