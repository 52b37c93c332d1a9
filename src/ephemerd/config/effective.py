"""The effective configuration: every source read, every value checked, its origin known.

`examine` finds everything that is wrong at once; `load_settings` is the same for callers who want either a
usable configuration or an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from ephemerd.config.crosscheck import CrossCheck
from ephemerd.config.environment import Machine
from ephemerd.config.findings import Code, ConfigError, Finding, errors
from ephemerd.config.keys import entries_of, section_of
from ephemerd.config.later import not_yet
from ephemerd.config.layers import (
    DEFAULT,
    FILE,
    Layers,
    Origin,
    absolute_paths,
    add_environment,
    add_file,
    add_flags,
)
from ephemerd.config.model import ForgeSettings, Settings
from ephemerd.config.paths import config_candidates, runtime_folder, state_folder
from ephemerd.config.policy import PolicySettings
from ephemerd.config.secrets import Vault, read_secret
from ephemerd.config.tomlfile import KeyPath, read_toml
from ephemerd.config.translate import findings_of, prune
from ephemerd.config.types import suffix_of
from ephemerd.domain.access import Access
from ephemerd.domain.ids import Scope
from ephemerd.domain.labels import normalise
from ephemerd.domain.pool import Host, Policy, Pool, Setup

SECRETS = ("token", "private_key", "webhook_secret")


@dataclass(frozen=True, slots=True)
class Effective:
    """A usable configuration.

    settings   the model; paths and slots are filled in
    origins    dotted key -> where its value is from; every key is in it
    findings   warnings only
    path       the file that was read, None where there was none
    """

    settings: Settings
    origins: dict[str, Origin]
    findings: tuple[Finding, ...]
    path: Path | None
    layers: Layers = field(repr=False)
    vault: Vault = field(repr=False)

    def secret(self, key: str) -> SecretStr:
        """Return a secret by its dotted key (`forge.github.token`); KeyError where it is not set."""
        return self.vault.values[tuple(key.split("."))]

    def token(self, forge: str) -> SecretStr:
        """Return the token that registers runners at this forge; KeyError where an App does."""
        return self.secret(f"forge.{forge}.token")

    def private_key(self, forge: str) -> SecretStr:
        """Return the private key of this forge's App; KeyError where a token registers runners."""
        return self.secret(f"forge.{forge}.private_key")

    def webhook_secret(self, forge: str) -> SecretStr:
        """Return the secret that signs this forge's deliveries."""
        return self.secret(f"forge.{forge}.webhook_secret")

    def forge_of(self, pool: str) -> str:
        """Return the name of the forge that a pool serves."""
        return self.settings.pools[pool].forge or next(iter(self.settings.forge))

    def scope_of(self, pool: str) -> Scope:
        """Return the scope that a pool serves."""
        forge = self.forge_of(pool)
        return Scope(forge, self.settings.pools[pool].scope or self.settings.forge[forge].scope[0])

    def scopes(self) -> tuple[Scope, ...]:
        """Return every configured scope, in the order in which they were written."""
        return tuple(Scope(name, path) for name, forge in self.settings.forge.items() for path in forge.scope)

    def to_setup(self) -> Setup:
        """Return what the core needs of it, in the words of the domain; durations in ms."""
        pools = tuple(self._pool(name) for name in self.settings.pools)
        hosts = tuple(Host(name, host.slots or 0) for name, host in self.settings.hosts.items())
        access = tuple(_access(name, forge) for name, forge in self.settings.forge.items())
        return Setup(pools, hosts, self._policy(), access)

    def _pool(self, name: str) -> Pool:
        pool = self.settings.pools[name]
        grace = self.settings.runner.orphan_sweep.grace
        return Pool(
            name=name,
            scope=self.scope_of(name),
            labels=normalise(pool.labels),
            host=pool.host,
            runtime=pool.runtime,
            max_concurrent=pool.max_concurrent,
            min_idle=pool.min_idle,
            orphan_grace=grace if pool.orphan_grace is None else pool.orphan_grace,
            surplus_grace=pool.surplus_grace,
            job_timeout=pool.job_timeout,
            observed=not self.settings.forge[self.forge_of(name)].is_polled(self.scope_of(name).path),
            unlabelled=pool.unlabelled,
            suffix=suffix_of(pool.runner_name, name, pool.host),
            exact=pool.registered_labels == "job",
        )

    def _policy(self) -> Policy:
        settings, runner = self.settings.policy, self.settings.runner
        numbers: dict[str, Any] = {name: getattr(settings, name) for name in PolicySettings.model_fields}
        return Policy(
            **numbers,
            backoff=runner.claim_retry.backoff,
            jitter=runner.claim_retry.jitter,
            orphan_sweep=runner.orphan_sweep.enabled,
        )

    def check_environment(self) -> list[Finding]:
        """Look whether this machine has what the configuration names: application, accounts, folders."""
        return Machine(self.settings, self.layers).run()

    def rows(self) -> list[tuple[str, object, str]]:
        """Return every key with its value as it would be written and where it is from; no secret's value."""
        from ephemerd.config.show import rows

        return rows(self)


def _access(name: str, forge: ForgeSettings) -> Access:
    return Access(
        forge=name,
        repositories=forge.repositories,
        denied=forge.repositories_denied,
        forks=forge.forks,
        workflows=forge.workflows,
        branches=forge.branches,
        most=forge.repository_runners,
    )


@dataclass(frozen=True, slots=True)
class Examined:
    """Everything that was found; `effective` is None where an error of code 3 or 4 stands in the way."""

    effective: Effective | None
    findings: tuple[Finding, ...]
    path: Path | None


def load_settings(
    path: Path | None, env: Mapping[str, str], flags: Mapping[str, Any] | None = None
) -> Effective:
    """Read the configuration; ConfigError with all findings where it cannot be used (codes 3 and 4).

    path    the file, or None to look in the usual places
    env     environment variables
    flags   dotted key -> value, from the command line
    """
    examined = examine(path, env, flags, environment=False)
    if examined.effective is None:
        raise ConfigError(examined.findings)
    return examined.effective


def examine(
    path: Path | None,
    env: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
    *,
    environment: bool = True,
) -> Examined:
    """Read the configuration and collect everything that is wrong with it, and with this machine."""
    layers = Layers()
    _add_defaults(layers, env)
    found = _add_sources(layers, path, env, flags or {})
    vault = Vault()
    for forge in layers.names("forge"):
        for name in SECRETS:
            read_secret(vault, layers, env, ("forge", forge, name))
    forges, pools = layers.names("forge"), layers.names("pools")
    hosts = list(dict.fromkeys([*layers.names("hosts"), "local"]))
    settings, refused = _validate(layers)
    findings = [*layers.findings, *refused, *vault.findings]
    unread = any(finding.where == str(found) for finding in layers.findings)  # what is in it is not known
    empty = [] if unread else _nothing(found, env, forges, pools)
    findings.extend(empty)
    _fill(layers, settings)
    settings, _ = _validate(layers)
    findings.extend(CrossCheck(settings, layers, forges, hosts).run(vault))
    findings.extend(not_yet(settings, layers))
    if environment and not empty and not unread:
        findings.extend(Machine(settings, layers).run())
    ordered = tuple(sorted(dict.fromkeys(findings), key=lambda finding: (not finding.code, finding.code)))
    usable = not [finding for finding in errors(ordered) if finding.code < Code.ENVIRONMENT]
    effective = None
    if usable:
        warnings = tuple(finding for finding in ordered if not finding.code)
        effective = Effective(settings, _origins(settings, layers, vault), warnings, found, layers, vault)
    return Examined(effective, ordered, found)


def _add_defaults(layers: Layers, env: Mapping[str, str]) -> None:
    state, run = state_folder(env), runtime_folder(env)
    for path, value in (
        (("server", "store"), f"sqlite://{state / 'state.db'}"),
        (("server", "api_socket"), str(run / "api.sock")),
        (("runner", "work_dir"), str(state / "runners")),
    ):
        layers.put(path, value, Origin(DEFAULT))


def _add_sources(
    layers: Layers, path: Path | None, env: Mapping[str, str], flags: Mapping[str, Any]
) -> Path | None:
    """Lay file, environment and flags over the defaults; return the file that was read."""
    if path is None and env.get("EPHEMERD_CONFIG"):
        path = Path(env["EPHEMERD_CONFIG"])
    if path is None:
        path = next((place for place in config_candidates(env) if place.exists()), None)
    if path is not None:
        read = read_toml(path)
        if isinstance(read, Finding):
            layers.findings.append(read)
        else:
            add_file(layers, read)
    add_environment(layers, env)
    add_flags(layers, flags)
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    absolute_paths(layers, home, path, Path.cwd())
    return path


def _validate(layers: Layers) -> tuple[Settings, list[Finding]]:
    """Build the model; what it refuses becomes findings and is taken away until the rest stands:
    each round takes at least one value away or gives a required key a value that is accepted.
    """
    findings: list[Finding] = []
    while True:
        try:
            return Settings.model_validate(layers.data), findings
        except ValidationError as error:
            findings.extend(findings_of(error, layers))
            prune(error, layers)


def _nothing(
    found: Path | None, env: Mapping[str, str], forges: list[str], pools: list[str]
) -> list[Finding]:
    """Nothing to serve is an error: a daemon that does nothing would look healthy."""
    if found is None and not (forges and pools):
        places = ", ".join(str(place) for place in config_candidates(env))
        what = f"no configuration file was found (looked at {places})"
        todo = "write one by 'ephemerd init', or name one by --config or $EPHEMERD_CONFIG"
        return [Finding(Code.CONFIGURATION, "configuration", what, todo)]
    missing, place = [], str(found or "configuration")
    if not forges:
        what, todo = (
            "there is no [forge.NAME], so no job would be heard of",
            "add one with scope and token_file",
        )
        missing.append(Finding(Code.CONFIGURATION, place, what, todo))
    if not pools:
        what, todo = "there is no [pools.NAME], so no job would be served", "add one with labels and runtime"
        missing.append(Finding(Code.CONFIGURATION, place, what, todo))
    return missing


def _fill(layers: Layers, settings: Settings) -> None:
    """Write down the defaults that depend on other values: hosts, slots, grace, the forge and scope of a pool."""
    sums = dict.fromkeys(settings.hosts, 0)
    for pool in settings.pools.values():
        if pool.host in sums or pool.host == "local":
            sums[pool.host] = sums.get(pool.host, 0) + pool.max_concurrent
    for host, total in sums.items():
        if host not in settings.hosts or settings.hosts[host].slots is None:
            layers.put(("hosts", host, "slots"), total, Origin(DEFAULT, "(sum of its pools)"))
    for name, entry in settings.pools.items():
        if entry.orphan_grace is None:
            grace = layers.get(("runner", "orphan_sweep", "grace"))
            default = settings.runner.orphan_sweep.grace / 1_000
            origin = Origin(DEFAULT, "(runner.orphan_sweep.grace)")
            layers.put(("pools", name, "orphan_grace"), default if grace is None else grace, origin)
        if entry.forge is None and len(settings.forge) == 1:
            only = next(iter(settings.forge))
            layers.put(("pools", name, "forge"), only, Origin(DEFAULT, "(the only forge)"))
        forge = layers.get(("pools", name, "forge"))
        if entry.scope is None and forge in settings.forge and len(settings.forge[forge].scope) == 1:
            origin = Origin(DEFAULT, "(the forge's only scope)")
            layers.put(("pools", name, "scope"), settings.forge[forge].scope[0], origin)


def _origins(settings: Settings, layers: Layers, vault: Vault) -> dict[str, Origin]:
    found: dict[str, Origin] = {}
    for path in _leaves(settings):
        found[".".join(path)] = layers.origin(path)
    for key, place in vault.origins.items():
        origin = found[".".join(key)]
        if origin.layer == DEFAULT:
            found[".".join(key)] = Origin(FILE, place)
    return found


def _leaves(section: Any, prefix: KeyPath = ()) -> list[KeyPath]:
    found: list[KeyPath] = []
    for name, info in type(section).model_fields.items():
        value, here = getattr(section, name), (*prefix, name)
        if entries_of(info.annotation) is not None:
            for entry in value:
                found.extend(_leaves(value[entry], (*here, entry)))
        elif section_of(info.annotation) is not None:
            found.extend(_leaves(value, here))
        else:
            found.append(here)
    return found
