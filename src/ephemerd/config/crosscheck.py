"""Checks that need more than one key: what a pool refers to, what a forge needs, what would serve nothing."""

from __future__ import annotations

from urllib.parse import urlsplit

from ephemerd.config.container import ContainerSettings
from ephemerd.config.findings import Code, Finding
from ephemerd.config.layers import DEFAULT, Layers
from ephemerd.config.model import ForgeSettings, PoolSettings, ServerSettings, Settings
from ephemerd.config.secrets import Vault
from ephemerd.config.tomlfile import KeyPath
from ephemerd.config.units import is_loopback, listen_address
from ephemerd.domain.access import fits
from ephemerd.domain.pool import MINUTE

SOCKET_BYTES = 103  # sun_path holds 104 bytes on macOS and 108 on Linux, with the closing zero byte
LEAST_LOOP_LIMIT = MINUTE
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class CrossCheck:
    """Collects the findings about one configuration. `forges` and `hosts` are the names as written, so that
    an entry refused for another reason does not make its pools wrong too."""

    def __init__(self, settings: Settings, layers: Layers, forges: list[str], hosts: list[str]) -> None:
        self.settings = settings
        self.layers = layers
        self.forges = forges
        self.hosts = hosts
        self.findings: list[Finding] = []

    def run(self, vault: Vault) -> list[Finding]:
        for name, forge in self.settings.forge.items():
            self._forge(name, forge, vault)
        for name, pool in self.settings.pools.items():
            self._pool(name, pool)
        self._hosts()
        self._server()
        return self.findings

    def _wrong(self, key: KeyPath, what: str, todo: str, code: Code = Code.CONFIGURATION) -> None:
        self.findings.append(Finding(code, self.layers.where(key), what, todo))

    def _forge(self, name: str, forge: ForgeSettings, vault: Vault) -> None:
        here = ("forge", name)
        url = urlsplit(forge.url)
        if url.scheme not in {"http", "https"} or not url.hostname or url.query or url.fragment:
            self._wrong((*here, "url"), "is not the base address of an API", "write https://HOST/api/v3")
        elif url.username or url.password:
            self._wrong((*here, "url"), "must not hold a user or password", "use token_file")
        elif url.scheme == "http" and url.hostname not in LOOPBACK:
            self._wrong(
                (*here, "url"),
                "sends the token unencrypted over the network",
                "use https, unless this is a test",
                Code.WARNING,
            )
        self._credential(here, forge, vault)
        if forge.runner_group != "Default" and all(scope.startswith("repo:") for scope in forge.scope):
            todo = 'leave this key out, or register at "org:NAME"'
            self._wrong((*here, "runner_group"), "is set, and a repository has no runner groups", todo)
        if forge.discovery == "webhook":
            self._secret(
                (*here, "webhook_secret"),
                vault,
                "there is no secret to check deliveries with, so anybody could start runners",
            )
        if forge.webhook_owner == "app" and forge.app_id is None:
            self._wrong(
                (*here, "webhook_owner"),
                "is the App, and app_id names none",
                'set app_id and private_key_file, or write "scope"',
            )
        self._polled(here, forge)
        if forge.webhook_url is not None:
            hook = urlsplit(forge.webhook_url)
            if (
                hook.scheme not in {"http", "https"}
                or not hook.hostname
                or not hook.path.endswith(f"/webhooks/{name}")
            ):
                self._wrong(
                    (*here, "webhook_url"),
                    "is not where this forge's deliveries are taken",
                    f"write https://HOST/webhooks/{name}",
                )
        for scope in forge.scope if (*here, "scope") not in self.layers.stand_ins else ():
            self._repositories(here, forge, scope)

    def _polled(self, here: KeyPath, forge: ForgeSettings) -> None:
        """What is polled has to be a scope, and has to have repositories that can be found out (GitHub's reference)."""
        known = {scope.lower() for scope in forge.scope}
        for scope in forge.polled if (*here, "scope") not in self.layers.stand_ins else ():
            if scope.lower() not in known:
                self._wrong(
                    (*here, "polled"),
                    f"names {scope}, which is no scope of this forge",
                    f"write one of {', '.join(forge.scope)}",
                )
        owners = [pattern.partition("/")[0] for pattern in forge.repositories if "/" in pattern]
        if any(owner and "*" not in owner for owner in owners):
            return
        for scope in forge.scope:
            if scope.startswith("enterprise:") and forge.is_polled(scope):
                self._wrong(
                    (*here, "repositories"),
                    f"names no organization, and the repositories of {scope} cannot be listed without",
                    'write its organizations there, such as ["acme/*"], or discovery = "webhook"',
                )

    def _credential(self, here: KeyPath, forge: ForgeSettings, vault: Vault) -> None:
        """A token, or an App with its key; an App cannot see to an enterprise's runners (GitHub's reference)."""
        if forge.app_id is None:
            for name in ("private_key", "private_key_file"):
                if getattr(forge, name) is not None:
                    self._wrong(
                        (*here, name), "is the key of an App that is not named", "set app_id, or take it away"
                    )
                    return
            self._secret((*here, "token"), vault, "there is no token to register runners with")
            return
        self._secret((*here, "private_key"), vault, "there is no private key of the App")
        if forge.token is not None or forge.token_file is not None:
            self._wrong((*here, "app_id"), "is set beside a token", "keep one of them")
        if any(scope.startswith("enterprise:") for scope in forge.scope):
            todo = "use a token with manage_runners:enterprise for that scope, in a [forge.NAME] of its own"
            self._wrong((*here, "scope"), "holds an enterprise, whose runners no App may see to", todo)

    def _repositories(self, here: KeyPath, forge: ForgeSettings, scope: str) -> None:
        kind, _, target = scope.partition(":")
        patterns = [pattern.lower() for pattern in forge.repositories]
        if kind != "repo":
            return
        if any(fits(target.lower(), denied.lower()) for denied in forge.repositories_denied):
            self._wrong(
                (*here, "repositories_denied"),
                f"names {target}, so {scope} would serve nothing",
                "take the pattern away, or the scope",
            )
        if not patterns:
            return
        if not any(fits(target.lower(), pattern) for pattern in patterns):
            self._wrong(
                (*here, "repositories"),
                f"names no pattern that allows {target}, so {scope} would serve nothing",
                "add it to repositories, or take the scope away",
            )

    def _secret(self, key: KeyPath, vault: Vault, what: str) -> None:
        file_key = (*key[:-1], f"{key[-1]}_file")
        if any(self.layers.get(path) not in (None, "") for path in (key, file_key)) or key in vault.values:
            return
        variable = "EPHEMERD_" + "__".join(part.upper().replace("-", "_") for part in key)
        self.findings.append(
            Finding(
                Code.CREDENTIALS,
                self.layers.where(key),
                what,
                f"set {'.'.join(file_key)} or {variable}",
            )
        )

    def _pool(self, name: str, pool: PoolSettings) -> None:
        here = ("pools", name)
        forge = self._forge_of(here, pool)
        if forge in self.settings.forge and ("forge", forge, "scope") not in self.layers.stand_ins:
            scopes = self.settings.forge[forge].scope
            if pool.scope is None and len(scopes) > 1:
                what = f"does not say which scope of forge {forge} it serves"
                self._wrong(here, what, f"set {'.'.join(here)}.scope to one of {', '.join(scopes)}")
            elif pool.scope is not None and pool.scope.lower() not in {scope.lower() for scope in scopes}:
                self._wrong(
                    (*here, "scope"),
                    f"is no scope of forge {forge}",
                    f"write one of {', '.join(scopes)}, or add it to forge.{forge}.scope",
                )
        if pool.min_idle > pool.max_concurrent:
            what = f"is more than max_concurrent ({pool.max_concurrent}), which counts spares too"
            self._wrong(
                (*here, "min_idle"), what, "write a smaller number, or raise max_concurrent", Code.WARNING
            )
        if pool.host not in self.hosts:
            known = ", ".join(self.hosts)
            self._wrong((*here, "host"), f"refers to an unknown host {pool.host!r}", f"hosts are: {known}")
        if pool.runtime == "docker":
            self._container((*here, "container"), pool.container)

    def _container(self, here: KeyPath, container: ContainerSettings) -> None:
        """An engine for jobs is never there by accident, and only where it can be."""
        if container.docker == "none":
            return
        if container.docker_rights == "refused":
            self._wrong(
                (*here, "docker_rights"),
                "does not grant what an engine for jobs needs",
                'write "capabilities" or "privileged", knowing that a job can then become root on the machine, or '
                'docker = "none"',
            )
        else:
            self._wrong(
                (*here, "docker_rights"),
                "lets jobs become root on the machine, if they want to",
                "let this pool run jobs of people you trust only",
                Code.WARNING,
            )
        if container.network not in ("isolated", "bridge"):
            todo = 'write network = "isolated" or "bridge"'
            self._wrong((*here, "network"), "leaves no network of its own to an engine for jobs", todo)
        if container.work_tmpfs is not None:
            todo = 'leave this key out, or write docker = "none"'
            self._wrong((*here, "work_tmpfs"), "cannot be shared with an engine for jobs", todo)

    def _forge_of(self, here: KeyPath, pool: PoolSettings) -> str | None:
        if pool.forge is None:
            if len(self.forges) > 1:
                what, known = "does not say which forge it serves", ", ".join(self.forges)
                self._wrong(here, what, f"set {'.'.join(here)}.forge to one of {known}")
            return self.forges[0] if len(self.forges) == 1 else None
        if pool.forge in self.forges:
            return pool.forge
        known = ", ".join(self.forges) or "none"
        self._wrong((*here, "forge"), f"refers to an unknown forge {pool.forge!r}", f"forges are: {known}")
        return None

    def _hosts(self) -> None:
        for name, host in self.settings.hosts.items():
            if urlsplit(host.engine).password is not None:
                self._wrong(("hosts", name, "engine"), "must not hold a password", "let ssh use a key")
            if not any(pool.host == name for pool in self.settings.pools.values()):
                self._wrong(("hosts", name), "is used by no pool", "name it in a pool's host", Code.WARNING)
            elif host.slots == 0 and self._written(("hosts", name, "slots")):
                todo = "give it at least one slot"
                self._wrong(("hosts", name, "slots"), "lets nothing run there", todo, Code.WARNING)

    def _api(self, server: ServerSettings) -> None:
        """The API over TCP: a port of its own, and no token in the clear over a network unnoticed."""
        if server.api_listen is None:
            return
        taken = {"metrics_listen": server.metrics_listen, "webhook_listen": server.webhook_listen}
        for other, address in taken.items():
            if server.api_listen == address and not address.endswith(":0"):
                self._wrong(("server", "api_listen"), f"is the address of {other}", "choose another port")
        if not is_loopback(listen_address(server.api_listen)[0]):
            self._wrong(
                ("server", "api_listen"),
                "lets tokens cross the network in the clear",
                "listen on 127.0.0.1 and put a TLS proxy before it, unless the network itself is encrypted",
                Code.WARNING,
            )

    def _written(self, key: KeyPath) -> bool:
        origin = self.layers.origins.get(key)
        return origin is not None and origin.layer != DEFAULT

    def _server(self) -> None:
        server = self.settings.server
        self._api(server)
        if server.loop_limit is not None and server.loop_limit < LEAST_LOOP_LIMIT:
            self._wrong(
                ("server", "loop_limit"),
                "is shorter than the loop may rest when there is nothing to do",
                'write at least "1m", or "none"',
            )
        if server.api_socket is not None and len(str(server.api_socket).encode()) > SOCKET_BYTES:
            self._wrong(
                ("server", "api_socket"),
                f"is longer than a socket's path can be ({SOCKET_BYTES} bytes)",
                "choose a shorter path",
            )
        if server.metrics_listen == server.webhook_listen and not server.webhook_listen.endswith(":0"):
            self._wrong(
                ("server", "metrics_listen"),
                "is the address of the webhooks, where nothing but webhooks and health is served",
                "choose another port",
            )
