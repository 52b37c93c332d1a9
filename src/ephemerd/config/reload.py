"""What a configuration that was read again changes, and what of it a running daemon can take in.

Pools, hosts, policy and how runners are started hold from the next runner on. What the daemon was built from –
where it listens, its store, its connections to forges, the runners' folder, where a pool lies – needs a restart.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace
from pydantic import SecretStr

from ephemerd.config.effective import Effective
from ephemerd.config.model import PoolSettings
from ephemerd.config.show import HIDDEN, toml_value
from ephemerd.config.tomlfile import KeyPath
from ephemerd.domain.pool import Pool, Setup

PLACE = ("forge", "scope", "host", "runtime")
ACCESS_KEYS = ("repositories", "repositories_denied", "forks", "workflows", "branches", "repository_runners")
LIVE_FORGE_KEYS = (
    *("scope", *ACCESS_KEYS),
    *("webhook_url", "webhook_owner", "webhook_secret", "webhook_secret_file"),
)
LIVE_SERVER_KEYS = ("log_level",)
ABSENT = "unset"


@dataclass(frozen=True, slots=True)
class Change:
    """One key that differs, its values as TOML has them. `note` says why it needs a restart, or what follows."""

    key: str
    before: str
    after: str
    applied: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """What a daemon really runs by: keys that wait for a restart keep the value that they had at the start.

    texts     dotted key -> value as TOML has it
    secrets   by key
    forges, runtimes  what the daemon is connected to since its start
    """

    texts: dict[str, str]
    secrets: dict[KeyPath, SecretStr] = field(repr=False)
    forges: frozenset[str]
    runtimes: frozenset[str]

    def pools(self) -> frozenset[str]:
        """Return the names of the pools that are served."""
        return frozenset(key.split(".")[1] for key in self.texts if key.startswith("pools."))


@dataclass(frozen=True, slots=True)
class Compared:
    """What to apply, every difference, and what runs once it is applied."""

    setup: Setup
    changes: tuple[Change, ...]
    running: Running


def running(effective: Effective) -> Running:
    """Return what a daemon runs by that was started with this configuration."""
    settings = effective.settings
    runtimes = frozenset(_engine(pool) for pool in settings.pools.values())
    return Running(_texts(effective), dict(effective.vault.values), frozenset(settings.forge), runtimes)


def compare(now: Running, wanted: Effective) -> Compared:
    """Compare what runs with what was read, key by key."""
    after, texts, changes = _texts(wanted), dict(now.texts), []
    for key in dict.fromkeys([*now.texts, *after]):
        if now.texts.get(key) == after.get(key):
            continue
        note = _needs_restart(tuple(key.split(".")), now, wanted)
        said = note or _follows(tuple(key.split(".")), now, wanted)
        changes.append(Change(key, now.texts.get(key, ABSENT), after.get(key, ABSENT), not note, said))
        if not note:
            texts[key] = after.get(key, "")
            if key not in after:
                del texts[key]
    told, secrets = _secrets(now, wanted)
    setup = wanted.to_setup()
    pools = tuple(_heard(pool, texts) for pool in setup.pools if _served(pool.name, now, wanted))
    taken = Running(texts, secrets, now.forges, now.runtimes)
    access = tuple(row for row in setup.access if row.forge in now.forges)
    return Compared(Setup(pools, setup.hosts, setup.policy, access), (*changes, *told), taken)


def _heard(pool: Pool, texts: dict[str, str]) -> Pool:
    """How jobs are heard of stays as it was at the start, and with it what silence means."""
    here, scope = f"forge.{pool.scope.forge}", toml_value(pool.scope.path).lower()
    told = texts.get(f"{here}.discovery") == toml_value("webhook")
    return replace(pool, observed=told and scope not in texts.get(f"{here}.polled", "").lower())


def _texts(effective: Effective) -> dict[str, str]:
    return {key: toml_value(value) for key, value, _ in effective.rows()}


def _served(pool: str, now: Running, wanted: Effective) -> bool:
    """Say whether a pool is served after the reload: its forge and its runtime have to be there already."""
    if pool in now.pools():
        return True
    return wanted.forge_of(pool) in now.forges and _engine(wanted.settings.pools[pool]) in now.runtimes


def _engine(pool: PoolSettings) -> str:
    """What has to be there for a pool: this machine's processes, or one host's engine."""
    return pool.runtime if pool.runtime == "process" else f"{pool.runtime} on {pool.host}"


def _needs_restart(key: tuple[str, ...], now: Running, wanted: Effective) -> str:
    """Say why a key cannot be applied now; empty where it can."""
    pools = wanted.settings.pools
    match key:
        case ("server", name) if name not in LIVE_SERVER_KEYS:
            return "the daemon listens and stores where it began"
        case ("runner", "work_dir"):
            return "runners are found in the folder that the daemon began with"
        case ("hosts", _, "engine" | "engine_tls"):
            return "connections to engines are made at the start"
        case ("hosts", host, name) if name != "slots" and f"docker on {host}" in now.runtimes:
            return "how an engine is kept is read at the start"
        case ("forge", name, *rest):
            there = name in now.forges and name in wanted.settings.forge
            return (
                "" if there and rest[0] in LIVE_FORGE_KEYS else "connections to forges are made at the start"
            )
        case ("pools", name, *_) if name in pools and not _served(name, now, wanted):
            return "its forge or runtime is not in use yet"
        case ("pools", name, *rest) if rest[0] in PLACE and name in pools and name in now.pools():
            return "a pool stays in its place while the daemon runs"
        case _:
            return ""


def _follows(key: tuple[str, ...], now: Running, wanted: Effective) -> str:
    if key[0] != "pools" or (key[1] in wanted.settings.pools and key[1] in now.pools()):
        return ""
    return "added" if key[1] in wanted.settings.pools else "removed; its runners are drained"


def _secrets(now: Running, wanted: Effective) -> tuple[list[Change], dict[KeyPath, SecretStr]]:
    """Say which secrets have another value, never the value. A token in a file is read by itself when it changes."""
    changes, secrets = [], dict(now.secrets)
    for path, value in wanted.vault.values.items():
        old = now.secrets.get(path)
        if old is None or old.get_secret_value() == value.get_secret_value():
            continue
        live = path[-1] == "webhook_secret"
        forge = wanted.settings.forge[path[1]]
        inline, file = getattr(forge, path[-1]), getattr(forge, f"{path[-1]}_file")
        if not live and inline is None and file is not None and file.is_absolute():
            continue
        note = "" if live else "this is read at the start alone; what is in a file is read when it changes"
        changes.append(Change(".".join(path), HIDDEN, HIDDEN, live, note))
        if live:
            secrets[path] = value
    return changes, secrets
