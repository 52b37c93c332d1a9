"""GitHub, github.com and Enterprise Server alike: its REST API as the `Forge` port, its deliveries as `Webhooks`.

Owns the translation between GitHub's wire and the domain (`wire`, `jobs`, `faults`: pure), the connection with
its token and its deadlines (`connection`, `tokens`), the port itself (`client`) and the verification of
deliveries (`webhooks`). Facts come from GitHub's documentation and from field reports, named where they matter.
Must not repeat a request that creates or destroys, decide on what GitHub says, or let a token, a runner's
credential or a body reach a message, a repr or a log.
"""

from __future__ import annotations

from pathlib import Path

from ephemerd.ports.forge import Forge
from ephemerd.ports.webhooks import Webhooks

DEFAULT_URL = "https://api.github.com"


def make_forge(
    name: str,
    *,
    url: str = DEFAULT_URL,
    token: str = "",
    token_file: Path | None = None,
    ca_file: Path | None = None,
    timeout_s: float = 20.0,
    listing_timeout_s: float = 120.0,
) -> Forge:
    """Make the port to one configured GitHub. Call it inside the running event loop.

    `name`               the name of the `[forge.NAME]` table; it becomes part of every job's key
    `url`                the API's base URL, `https://HOST/api/v3` for Enterprise Server
    `token`, `token_file` exactly one of them; a file is read again when its token is refused
    `ca_file`            PEM authorities that replace the system's, or None
    `timeout_s`          deadline of one request, seconds; `listing_timeout_s` of a listing with all its pages

    Raises `Refused` for a URL that is none, `Broken` for an unusable CA file, `Denied` where no token or both
    kinds are given. A missing token file is told by the first call (`Denied`), which names it.
    """
    from ephemerd.adapters.forges.github.client import GitHubForge
    from ephemerd.adapters.forges.github.tokens import token_source

    return GitHubForge(
        name,
        url=url,
        tokens=token_source(token, token_file),
        ca_file=ca_file,
        timeout_s=timeout_s,
        listing_timeout_s=listing_timeout_s,
    )


def make_webhooks(name: str, *, secret: str | bytes) -> Webhooks:
    """Make the verifier of one configured GitHub's deliveries; line ends after the secret are dropped.

    Raises `Denied` where the secret is empty: without one, anybody could start runners.
    """
    from ephemerd.adapters.forges.github.webhooks import GitHubWebhooks

    return GitHubWebhooks(name, secret.encode("utf-8") if isinstance(secret, str) else secret)
