"""GitHub Apps: their keys, where they are installed, and the tokens of installations (github.md, section 2)."""

from __future__ import annotations

import hmac
import itertools
import secrets
import time
from dataclasses import dataclass, field

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ephemerd.testing.forge_sim.limits import PRIMARY_LIMIT, Limits
from ephemerd.testing.forge_sim.model import Hook, Repository
from ephemerd.testing.forge_sim.world import Refused, World

JWT_LIFE_S = 600
"""A JWT may end at most so long after now [doc]; not scaled, since it is a matter of two clocks."""
TOKEN_LIFE_S = 3600.0
"""An installation's token lives so long [doc]; scaled."""
_LEVELS = ("read", "write", "admin")
NOT_ACCESSIBLE = "Resource not accessible by integration"

Permissions = dict[str, str]


@dataclass(slots=True, eq=False)
class Installation:
    """An App on an account. ``repositories`` are full names in lower case, None for all of the account's."""

    id: int
    app: App
    account: str
    limits: Limits
    repositories: frozenset[str] | None = None
    suspended: bool = False

    def hears_of(self, repository: Repository) -> bool:
        """Whether the App's hook is told of what happens in a repository."""
        there = self.account.lower() == repository.owner.lower() and not self.suspended
        return there and (self.repositories is None or repository.full_name.lower() in self.repositories)


@dataclass(slots=True, eq=False)
class App:
    """An App; whoever has its private key can be it. The look-alike keeps the public one alone.

    Its one hook has no URL at first; whether that is active and which events it wants is set by people alone.
    """

    id: int
    client_id: str
    slug: str
    key: RSAPublicKey = field(repr=False)
    permissions: Permissions
    limits: Limits
    hook: Hook
    installations: dict[int, Installation] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Issued:
    """A token of an installation, narrowed to some of its repositories and permissions if that was asked for."""

    installation: Installation
    expires_at: float
    permissions: Permissions
    repositories: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Grant:
    """Who asks: a personal token (neither), an App by its JWT, or one of its installations."""

    limits: Limits
    app: App | None = None
    issued: Issued | None = None


class Apps:
    """All Apps of the site."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.apps: dict[int, App] = {}
        self.tokens: dict[str, Issued] = {}
        self._ids = itertools.count(800_001)
        self._installation_ids = itertools.count(60_000_001)

    def create(self, permissions: Permissions, accounts: tuple[str, ...]) -> tuple[App, str]:
        """Make an App with a fresh key and install it; return it with its private key (PEM)."""
        key = generate_private_key(public_exponent=65537, key_size=2048)
        number = next(self._ids)
        app = App(
            number,
            f"Iv23li{secrets.token_hex(7)}",
            f"look-alike-app-{number}",
            key.public_key(),
            {"metadata": "read", **permissions},
            Limits(self.world, PRIMARY_LIMIT),
            Hook(
                number,
                "",
                "",
                "form",
                (),
                True,
                time.time(),
                kind="integration",
                target=number,
                path="/app/hook",
            ),
        )
        self.apps[number] = app
        for account in accounts:
            self.install(app, account)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        return app, pem.decode()

    def install(
        self, app: App, account: str, repositories: frozenset[str] | None = None, limit: int = PRIMARY_LIMIT
    ) -> Installation:
        """Install an App on an account."""
        number = next(self._installation_ids)
        made = Installation(number, app, account, Limits(self.world, limit), repositories)
        app.installations[number] = made
        return made

    def uninstall(self, installation: Installation) -> None:
        """Take an App away from an account; its tokens end."""
        del installation.app.installations[installation.id]
        self.revoke(installation)

    def revoke(self, installation: Installation) -> None:
        """End all tokens of an installation now."""
        for token, issued in list(self.tokens.items()):
            if issued.installation is installation:
                del self.tokens[token]

    def issue(
        self, installation: Installation, permissions: Permissions, repositories: frozenset[str] | None
    ) -> tuple[str, Issued]:
        """Make a token. Since April 2026 they can be long and of no fixed form (section 2.2) [doc]."""
        token = f"ghs_{installation.app.id}_{secrets.token_urlsafe(180)}"
        expires = time.time() + self.world.seconds(TOKEN_LIFE_S)
        self.tokens[token] = Issued(installation, expires, permissions, repositories)
        return token, self.tokens[token]

    def grant(self, given: str, personal: str, limits: Limits) -> Grant:
        """Say who presents this; 401 for what nobody may present any more."""
        if given.count(".") == 2 and given.startswith("ey"):
            app = self._by_jwt(given)
            return Grant(app.limits, app)
        issued = self.tokens.get(given)
        if issued is not None and time.time() < issued.expires_at:
            if issued.installation.suspended:
                raise Refused(403, "This installation has been suspended")
            return Grant(issued.installation.limits, None, issued)
        if not hmac.compare_digest(given.encode(), personal.encode()):
            raise Refused(401, "Bad credentials")
        return Grant(limits)

    def _by_jwt(self, given: str) -> App:
        try:
            claims = jwt.decode(given, options={"verify_signature": False, "verify_exp": False})
            issuer = str(claims["iss"])
            app = next(app for app in self.apps.values() if issuer in (str(app.id), app.client_id))
        except (jwt.InvalidTokenError, KeyError):
            raise Refused(401, "A JSON web token could not be decoded") from None
        except StopIteration:
            raise Refused(404, "Integration not found") from None
        try:
            # Whether it has begun, and when it ends, is said in words of the forge's own below.
            claims = jwt.decode(
                given,
                app.key,
                algorithms=["RS256"],
                options={"verify_exp": False, "verify_iat": False, "require": ["iat", "exp"]},
            )
        except jwt.InvalidTokenError:
            raise Refused(401, "A JSON web token could not be decoded") from None
        now, begins, ends = time.time(), claims["iat"], claims["exp"]
        if not isinstance(begins, int) or begins > now:
            raise Refused(401, "'Issued at' claim ('iat') must be an Integer of the past")
        if not isinstance(ends, int) or ends <= now:
            raise Refused(401, "'Expiration time' claim ('exp') must be a numeric value of a future time")
        if ends > now + JWT_LIFE_S:
            raise Refused(401, "'Expiration time' claim ('exp') is too far in the future")
        return app

    def allow(
        self, grant: Grant, params: dict[str, str], needs: str | None, level: str, *, jwt: bool
    ) -> None:
        """Refuse what this credential may not ask for. ``jwt`` marks the endpoints that are for Apps."""
        if jwt:
            if grant.app is None:
                raise Refused(401, "A JSON web token could not be decoded")
            return
        if grant.app is not None:
            raise Refused(403, NOT_ACCESSIBLE)
        if grant.issued is None:
            return
        account = grant.issued.installation.account.lower()
        if "enterprise" in params or ("org" in params and params["org"].lower() != account):
            raise Refused(403, NOT_ACCESSIBLE)
        if "repo" in params and not self._reaches(grant.issued, account, params):
            raise Refused(404, "Not Found")
        if needs is not None and not _enough(grant.issued.permissions.get(needs), level):
            raise Refused(403, NOT_ACCESSIBLE)

    @staticmethod
    def _reaches(issued: Issued, account: str, params: dict[str, str]) -> bool:
        name = f"{params['owner']}/{params['repo']}".lower()
        chosen = (issued.repositories, issued.installation.repositories)
        return params["owner"].lower() == account and all(some is None or name in some for some in chosen)


def _enough(given: str | None, wanted: str) -> bool:
    return given in _LEVELS and _LEVELS.index(given) >= _LEVELS.index(wanted)


def narrowed(installation: Installation, wanted: Permissions) -> Permissions:
    """The permissions of a token; 422 for more than the installation has."""
    have = installation.app.permissions
    for name, level in wanted.items():
        if not _enough(have.get(name), level):
            raise Refused(422, "The permissions requested are not granted to this installation.")
    return wanted or dict(have)
