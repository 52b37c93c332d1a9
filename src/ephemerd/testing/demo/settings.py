"""The configuration that the demo writes for the daemon: the defaults, with long durations scaled."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ephemerd.domain.pool import Policy
from ephemerd.testing.weather import Weather, scale_seconds

ACT_LABELS = ("self-hosted", "linux", "act")
BURST_LABELS = ("self-hosted", "linux", "burst")
ACT_SLOTS = 6
NOT_SCALED = frozenset(
    {
        "finished_kept",  # how long something is remembered, not when something happens
        "gone_kept",
        "finished_most",
        "write_burst",
        "alarm_after_exits",
        "abandoned_limit",
    }
)
"""Numbers of the policy that are no durations, or none that anything waits for."""
ELSEWHERE = frozenset({"backoff", "jitter", "orphan_sweep", "unknown_bound"})
"""Fields of the policy that are not written as durations of the ``[policy]`` table."""
ORPHAN_GRACE_S = 600.0
SURPLUS_GRACE_S = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Places:
    """Where everything of one demo is."""

    root: Path

    @property
    def config(self) -> Path:
        """The daemon's configuration."""
        return self.root / "config.toml"

    @property
    def token(self) -> Path:
        """The forge token, 0600."""
        return self.root / "token"

    @property
    def webhook_secret(self) -> Path:
        """The secret that signs webhooks, 0600."""
        return self.root / "webhook-secret"

    @property
    def application(self) -> Path:
        """The fake runner's folder."""
        return self.root / "application"

    @property
    def runners(self) -> Path:
        """Where the daemon puts its runners."""
        return self.root / "runners"

    @property
    def socket(self) -> Path:
        """The daemon's API."""
        return self.root / "api.sock"

    @property
    def truth(self) -> Path:
        """The look-alike's truth log."""
        return self.root / "truth.jsonl"

    @property
    def store(self) -> Path:
        """The daemon's database."""
        return self.root / "state.db"

    def log(self, name: str) -> Path:
        """The output of one of the two programs."""
        return self.root / f"{name}.log"


def scaled_policy(factor: float) -> dict[str, str]:
    """Every default of the policy above 10 s, divided by ``factor``, as the configuration writes it."""
    scaled = {}
    for item in msgspec.structs.fields(Policy):
        value = getattr(Policy(), item.name)
        if item.name in NOT_SCALED | ELSEWHERE or not isinstance(value, int):
            continue
        seconds = scale_seconds(value / 1000, factor)
        if seconds != value / 1000:
            scaled[item.name] = _duration(seconds)
    return scaled


def config_text(
    places: Places,
    weather: Weather,
    *,
    forge_url: str,
    repository: str,
    webhook_port: int,
    factor: float,
    job_timeout_s: float | None = None,
    more: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """The configuration file. Slots are the weather's; the act's pool follows its runners' files only until
    they listen, so that the daemon has to live with what the forge tells it. ``more`` is laid over the tables."""
    backoff = [_duration(scale_seconds(value / 1000, factor)) for value in Policy().backoff]
    tables: dict[str, dict[str, Any]] = {
        "forge.github": {
            "url": forge_url,
            "scope": f"repo:{repository}",
            "token_file": str(places.token),
            "webhook_secret_file": str(places.webhook_secret),
            "webhook_url": f"http://127.0.0.1:{webhook_port}/webhooks/github",
        },
        "hosts.local": {"slots": weather.slots + ACT_SLOTS},
        "pools.act": {
            "labels": list(ACT_LABELS),
            "runtime": "process",
            "max_concurrent": ACT_SLOTS,
            "follow": "listening",
            "surplus_grace": _duration(scale_seconds(SURPLUS_GRACE_S, factor)),
        },
        "pools.burst": {
            "labels": list(BURST_LABELS),
            "runtime": "process",
            "max_concurrent": weather.slots,
            "surplus_grace": _duration(scale_seconds(SURPLUS_GRACE_S, factor)),
            **_timeout(job_timeout_s, factor),
        },
        "runner": {
            "application": str(places.application),
            "work_dir": str(places.runners),
            "allow_root": os.geteuid() == 0,
        },
        "runner.orphan_sweep": {"grace": _duration(scale_seconds(ORPHAN_GRACE_S, factor))},
        "runner.claim_retry": {"backoff": backoff},
        "policy": scaled_policy(factor),
        "server": {
            "webhook_listen": f"127.0.0.1:{webhook_port}",
            "api_socket": str(places.socket),
            "metrics_listen": "none",
            "store": f"sqlite:///{places.store}",
        },
    }
    for name, table in (more or {}).items():
        tables[name] = {**tables.get(name, {}), **table}
    return tables_text(tables, f"Written by the demo. Durations above 10 s are divided by {factor:g}.")


def tables_text(tables: Mapping[str, Mapping[str, Any]], title: str) -> str:
    """A configuration file of these tables; JSON's texts, numbers, booleans and lists of them are TOML's too."""
    lines = [f"# {title}"]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner can read, from its first instant on."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def _timeout(seconds: float | None, factor: float) -> dict[str, str]:
    return {} if seconds is None else {"job_timeout": _duration(scale_seconds(seconds, factor))}


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
