"""Tokens of a GitHub App: made by its key for each account that it is installed on, renewed before they end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from ephemerd.adapters.forges.github import app_wire, faults
from ephemerd.adapters.forges.github.wire import APP, Request
from ephemerd.adapters.kit.answer import Answer
from ephemerd.ports.errors import Denied, PortError

RENEW_BEFORE_S = 600.0
"""A token is renewed when it has so long to live, or a sixth of its life where that is less."""
LAST_S = 60.0
"""An old token is used on while renewing it fails, until so shortly before its end."""
TRY_AGAIN_S = 30.0
"""Pause after a renewal that failed while the old token is still good."""
SKEW_S = 30.0
"""A clock of ours that is off by more than this is corrected by the forge's own."""
_LONGEST_KEY = 64 * 1024

Ask = Callable[[Request, str], Awaitable[Answer]]
log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    """A token: `renew` and `last` are times of a monotonic clock, after which to renew, and not to use it."""

    token: str = field(repr=False)
    renew: float
    last: float


class AppTokens:
    """The tokens of one App's installations, by account. Neither key nor token is in a repr or an error.

    One renewal at a time for an account; all who wait for it share its result. The key's file is read for
    each renewal, so that a new key is found without a restart.
    """

    installed = True

    def __init__(
        self,
        app_id: int | str,
        *,
        key_file: Path | None = None,
        key: str = "",
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`key` is the PEM itself where there is no file; `now` is the wall clock, `monotonic` the one that
        tokens age by, both in seconds."""
        self.name = f"GitHub App {app_id}"
        self._app_id = str(app_id)
        self._key_file = key_file
        self._key = None if key_file is not None else app_wire.read_key(key, "private_key")
        self._now = now
        self._monotonic = monotonic
        self._ahead = 0.0
        self._ask: Ask | None = None
        self._held: dict[str, _Held] = {}
        self._installations: dict[str, int] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    def __repr__(self) -> str:
        return f"AppTokens({self._app_id})"

    def bind(self, ask: Ask) -> None:
        """Hear by what to ask GitHub: it sends a request once with a JWT and returns any answer."""
        self._ask = ask

    def holder(self, account: str) -> str:
        """Return whose token serves an account's path: each installation has limits of its own, and the App has."""
        return app_wire.APP_HOLDER if account == APP else app_wire.owner_of(account)

    async def token(self, account: str) -> str:
        """Return a good token for the account, for the App's own a JWT; `Denied` where the App is not installed
        there."""
        if account == APP:
            return await self._jwt()
        owner = app_wire.owner_of(account)
        held = self._held.get(owner)
        if held is not None and self._monotonic() < held.renew:
            return held.token
        return (await self._renewed(owner, account, held)).token

    async def refused(self, account: str, token: str) -> bool:
        """Hear that GitHub refused this token; make another one, once. Return whether there is another."""
        if account == APP:
            return False  # the next one would say the same of the same key
        owner = app_wire.owner_of(account)
        held = self._held.get(owner)
        if held is not None and held.token == token:
            del self._held[owner]
        return await self.token(account) != token

    async def _renewed(self, owner: str, account: str, stale: _Held | None) -> _Held:
        async with self._turns.setdefault(owner, asyncio.Lock()):
            held = self._held.get(owner)
            if held is not None and (held is not stale or self._monotonic() < held.renew):
                return held
            try:
                fresh = await self._make(owner, account)
            except PortError as error:
                if held is None or self._monotonic() >= held.last:
                    raise
                held.renew = min(self._monotonic() + TRY_AGAIN_S, held.last)
                log.warning("%s: the token for %s was not renewed yet: %s", self.name, owner, error.detail)
                return held
            self._held[owner] = fresh
            return fresh

    async def _make(self, owner: str, account: str) -> _Held:
        number = self._installations.get(owner)
        if number is None:
            number = self._installations[owner] = await self._installation(account)
        request = app_wire.make_token(number, self.name, owner)
        answer = await self._answer(request)
        if answer.status == 404:
            del self._installations[owner]  # installed anew it has another number
        if answer.status != 201:
            raise app_wire.fault(request, answer, self.name, self._now())
        token, left = app_wire.read_token(request, answer, self._now() + self._ahead)
        log.info("%s: a new token for %s, good for %.0f s", self.name, owner, left)
        return _Held(
            token,
            self._monotonic() + left - min(RENEW_BEFORE_S, left / 6),
            self._monotonic() + left - min(LAST_S, left / 12),
        )

    async def _installation(self, account: str) -> int:
        if account.startswith("/enterprises/"):
            raise Denied(f"{self.name}: GitHub lets no App see to an enterprise's runners; use a token there")
        request = app_wire.find_installation(account, self.name)
        answer = await self._answer(request)
        if answer.status != 200:
            raise app_wire.fault(request, answer, self.name, self._now())
        return app_wire.read_installation(request, answer)

    async def _answer(self, request: Request) -> Answer:
        """Ask with a JWT; once more by the forge's clock where ours was off. Raises in a frame without the JWT."""
        assert self._ask is not None, "bind comes before the first call"
        answer = await self._ask(request, await self._jwt())
        ahead = faults.clock_ahead(answer.headers, self._now())
        if ahead is None or abs(ahead - self._ahead) <= SKEW_S:
            return answer
        self._ahead = ahead
        log.warning("this machine's clock differs by %.0f s from GitHub's; set it right", ahead)
        if answer.status != 401:
            return answer
        return await self._ask(request, await self._jwt())

    async def _jwt(self) -> str:
        key = await asyncio.to_thread(self._read) if self._key is None else self._key
        return app_wire.signed(self._app_id, key, self._now() + self._ahead)

    def _read(self) -> RSAPrivateKey:
        assert self._key_file is not None
        source = f"private_key_file {self._key_file}"
        try:
            with self._key_file.open("rb") as file:
                text = file.read(_LONGEST_KEY).decode("utf-8", "replace")
        except OSError as error:
            reason = error.strerror or error.__class__.__name__
        else:
            return app_wire.read_key(text, source)
        raise Denied(f"{source} cannot be read: {reason}")
