"""What a GitHub App sends and hears to get the token of an installation, as pure functions.

Sources: GitHub's pages on App authentication. A JWT is good for `/app/…` and for finding an installation; an
installation's token lives for an hour and is good for the repositories of one account.
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Any, TypeVar

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from ephemerd.adapters.forges.github import faults
from ephemerd.adapters.forges.github.wire import Request
from ephemerd.adapters.kit.answer import Answer
from ephemerd.ports.errors import Denied, PortError, RetryLater

EARLY_S = 60
"""Seconds that a JWT is dated back, for a clock of ours that is ahead (GitHub's advice)."""
LIFE_S = 9 * 60
"""Seconds from its date that a JWT is good for; GitHub takes ten minutes at most."""

APP_HOLDER = "(app)"
"""Whose limits the requests count against that an App signs itself."""

T = TypeVar("T")


class _Installation(msgspec.Struct):
    id: int


class _Token(msgspec.Struct):
    token: str
    expires_at: datetime


def read_key(text: str, source: str) -> RSAPrivateKey:
    """Return the private key that a PEM file holds; `Denied` where it holds none that GitHub gives out."""
    key: Any = None
    with contextlib.suppress(ValueError, TypeError, UnsupportedAlgorithm):  # may quote what was in the file
        key = load_pem_private_key(text.encode("utf-8"), password=None)
    if not isinstance(key, RSAPrivateKey):
        raise Denied(
            f"{source} holds no RSA private key; download a new one from the App's settings (a .pem file)"
        )
    return key


def signed(app_id: str, key: RSAPrivateKey, now: float) -> str:
    """Return the App's JWT; `now` is the forge's clock in seconds since the epoch."""
    date = int(now) - EARLY_S
    return jwt.encode({"iat": date, "exp": date + LIFE_S, "iss": app_id}, key, algorithm="RS256")


def owner_of(account: str) -> str:
    """Return who owns what lies below such a path: `acme` of `/repos/Acme/App` and of `/orgs/Acme`."""
    parts = account.split("/")
    return parts[2].lower() if len(parts) > 2 else ""


def find_installation(account: str, app: str) -> Request:
    """Ask which installation of the App is responsible for a repository or an organization."""
    template = "/repos/{owner}/{repo}" if account.startswith("/repos/") else "/orgs/{org}"
    return Request(
        "GET",
        f"{account}/installation",
        f"GET {template}/installation",
        f"the installation of {app} for {account.partition('/')[2].partition('/')[2]}",
        f"{app} is not installed there; install it on that account, with access to the repository",
        reserved=True,
    )


def make_token(installation: int, app: str, owner: str) -> Request:
    """Ask for a token of an installation. Creates nothing that would have to be taken back."""
    return Request(
        "POST",
        f"/app/installations/{installation:d}/access_tokens",
        "POST /app/installations/{id}/access_tokens",
        f"the installation of {app} on {owner}",
        f"{app} was uninstalled from {owner}; install it again",
    )


def read_installation(request: Request, answer: Answer) -> int:
    """Read which installation it is."""
    return _read(request, answer, _Installation).id


def read_token(request: Request, answer: Answer, now: float) -> tuple[str, float]:
    """Read a token and for how many more seconds it is good; `now` is the forge's clock.

    A token's length means nothing: GitHub gives out long ones (`ghs_APPID_JWT`) since 2026.
    """
    told = _read(request, answer, _Token)
    text = told.token
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise RetryLater(f"GitHub answered {request.endpoint} without a usable token")
    expires = told.expires_at
    if expires.tzinfo is None:
        raise RetryLater(f"GitHub answered {request.endpoint} with an end of no time zone")
    return text, expires.timestamp() - now


def fault(request: Request, answer: Answer, app: str, now: float) -> PortError:
    """Return what an answer to an App's own request means that is no success."""
    if answer.status == 401:
        return Denied(
            f"GitHub answered 401 to {request.endpoint}: it does not know {app} by this key; check app_id, "
            "that the key was not deleted from the App, and this machine's clock"
        )
    if answer.status == 403 and faults.is_suspended(answer):
        return Denied(
            f"GitHub answered 403: {request.about} is suspended; lift that in the account's settings"
        )
    return faults.fault(request, answer, now=now)


def _read(request: Request, answer: Answer, kind: type[T]) -> T:
    with contextlib.suppress(msgspec.DecodeError, RecursionError):  # may quote the token
        return msgspec.json.decode(answer.body, type=kind)
    raise RetryLater(f"GitHub's answer to {request.endpoint} on {request.about} is not understood")
