"""GitHub, github.com and Enterprise Server alike: its REST API as the `Forge` port, its deliveries as `Webhooks`.

Owns the translation between GitHub's wire and the domain (`wire`, `jobs`, `groups`, `faults`: pure), the
connection with its deadlines and limits (`connection`, `limits`), the credential (`tokens`, `app`), the port
itself (`client`) and the verification of deliveries (`webhooks`). Facts come from GitHub's documentation and from
field reports, named where they matter.
Must not repeat a request that creates or destroys, decide on what GitHub says, or let a token, a runner's
credential or a body reach a message, a repr or a log.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ephemerd.ports.applications import Catalogue
from ephemerd.ports.errors import Denied
from ephemerd.ports.forge import Forge
from ephemerd.ports.hooks import AppHookAdmin, DeliveryLog, HookAdmin
from ephemerd.ports.webhooks import Webhooks

if TYPE_CHECKING:
    from ephemerd.adapters.forges.github.tokens import TokenSource
    from ephemerd.domain.ids import Scope

DEFAULT_URL = "https://api.github.com"


def make_forge(
    name: str,
    *,
    url: str = DEFAULT_URL,
    token: str = "",
    token_file: Path | None = None,
    app_id: int | str | None = None,
    private_key: str = "",
    private_key_file: Path | None = None,
    runner_group: str = "Default",
    ca_file: Path | None = None,
    timeout_s: float = 20.0,
    listing_timeout_s: float = 120.0,
) -> Forge:
    """Make the port to one configured GitHub. Call it inside the running event loop.

    `name`               the name of the `[forge.NAME]` table; it becomes part of every job's key
    `url`                the API's base URL, `https://HOST/api/v3` for Enterprise Server
    `token`, `token_file` exactly one of them; a file is read again when its token is refused
    `app_id`             the number of a GitHub App (or its client id), instead of a token, with its key:
    `private_key`, `private_key_file` exactly one of them; a file is read again for each new token
    `runner_group`       the group's name, for organizations and enterprises
    `ca_file`            PEM authorities that replace the system's, or None
    `timeout_s`          deadline of one request, seconds; `listing_timeout_s` of a listing with all its pages

    Raises `Refused` for a URL that is none, `Broken` for an unusable CA file, `Denied` where no credential or
    several are given. A missing file is told by the first call (`Denied`), which names it.
    """
    from ephemerd.adapters.forges.github.client import GitHubForge

    return GitHubForge(
        name,
        url=url,
        tokens=_credential(token, token_file, app_id, private_key, private_key_file),
        runner_group=runner_group,
        ca_file=ca_file,
        timeout_s=timeout_s,
        listing_timeout_s=listing_timeout_s,
    )


def _credential(
    token: str, token_file: Path | None, app_id: int | str | None, key: str, key_file: Path | None
) -> TokenSource:
    from ephemerd.adapters.forges.github.tokens import token_source

    if app_id is None:
        if key or key_file is not None:
            raise Denied("a private key is set without app_id; set the App's id too")
        return token_source(token, token_file)
    if token or token_file is not None:
        raise Denied("both a token and app_id are set; keep one of them")
    if bool(key) == (key_file is not None):
        raise Denied("app_id needs exactly one private key; set private_key_file")
    from ephemerd.adapters.forges.github.app import AppTokens

    return AppTokens(app_id, key_file=key_file, key=key)


def make_hook_admin(forge: Forge) -> HookAdmin:
    """Make what looks after the hooks at a GitHub that `make_forge` made, over its connection."""
    from ephemerd.adapters.forges.github.client import GitHubForge
    from ephemerd.adapters.forges.github.hooks import GitHubHooks

    assert isinstance(forge, GitHubForge), "made by make_forge"
    return GitHubHooks(forge.connection)


def make_app_hook_admin(forge: Forge) -> AppHookAdmin:
    """Make what looks after the App's hook at a GitHub that `make_forge` made as an App."""
    from ephemerd.adapters.forges.github.client import GitHubForge
    from ephemerd.adapters.forges.github.hooks import GitHubAppHook

    assert isinstance(forge, GitHubForge), "made by make_forge"
    return GitHubAppHook(forge.connection)


def make_delivery_logs(
    forge: Forge, scopes: tuple[Scope, ...], *, url: str | None, app: bool
) -> tuple[DeliveryLog, ...]:
    """Make what reads back the deliveries of the hooks by which a GitHub that `make_forge` made tells us of jobs.

    `url`   where a scope's hook leads that is ours; without one there is no telling which it is
    `app`   the App's own hook tells of all scopes, and no scope's hook is looked for
    """
    from ephemerd.adapters.forges.github.client import GitHubForge
    from ephemerd.adapters.forges.github.deliveries import GitHubDeliveries

    assert isinstance(forge, GitHubForge), "made by make_forge"
    if app:
        return (GitHubDeliveries(forge.connection, forge.name, scopes, app=True),)
    if url is None:
        return ()
    return tuple(
        GitHubDeliveries(forge.connection, forge.name, (scope,), url=url)
        for scope in scopes
        if scope.kind != "enterprise"  # GitHub has no such list for tokens of ours
    )


def make_catalogue(forge: Forge, *, ca_file: Path | None = None) -> Catalogue:
    """Make what asks for runner applications at a GitHub that `make_forge` made, over its connection. `ca_file` as
    there."""
    from ephemerd.adapters.forges.github.client import GitHubForge
    from ephemerd.adapters.forges.github.downloads import GitHubDownloads

    assert isinstance(forge, GitHubForge), "made by make_forge"
    return GitHubDownloads(forge.connection, ca_file=ca_file)


def make_webhooks(name: str, *, secret: str | bytes) -> Webhooks:
    """Make the verifier of one configured GitHub's deliveries; line ends after the secret are dropped.

    Raises `Denied` where the secret is empty: without one, anybody could start runners.
    """
    from ephemerd.adapters.forges.github.webhooks import GitHubWebhooks

    return GitHubWebhooks(name, secret.encode("utf-8") if isinstance(secret, str) else secret)
