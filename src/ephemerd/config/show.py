"""Shows a configuration: each key, its value as it would be written, and where it is from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

if TYPE_CHECKING:
    from ephemerd.config.effective import Effective

HIDDEN = "(set, not shown)"


def rows(effective: Effective) -> list[tuple[str, object, str]]:
    """Return (dotted key, value, origin) in the order of the model; a secret is only said to be set."""
    plain: Any = effective.settings.model_dump(mode="json")
    found: list[tuple[str, object, str]] = []
    for dotted, origin in effective.origins.items():
        path = tuple(dotted.split("."))
        value = plain
        for part in path:
            value = value[part]
        if path in effective.vault.values or isinstance(_raw(effective, path), SecretStr):
            value = HIDDEN
        found.append((dotted, value, str(origin)))
    return found


def _raw(effective: Effective, path: tuple[str, ...]) -> Any:
    value: Any = effective.settings
    for part in path:
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value


def toml_value(value: object) -> str:
    """Return a value as TOML would have it; None reads `unset`, which a file expresses by leaving it out."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        if value == HIDDEN:
            return value
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, dict):
        inner = ", ".join(f"{key} = {toml_value(item)}" for key, item in value.items())
        return "{" + (f" {inner} " if inner else "") + "}"
    return str(value)
