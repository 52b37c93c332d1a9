"""Lays the sources over each other and remembers for each value which one it is from.

default < file < environment < flags. Environment names are the key in capitals with two underscores for
each dot: `EPHEMERD_POOLS__LINUX__MAX_CONCURRENT`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ephemerd.config.findings import Code, Finding
from ephemerd.config.keys import (
    entries_of,
    field_at,
    holds_path,
    is_leaf,
    is_list,
    is_secret,
    is_table,
    is_table_of_texts,
    nearest,
)
from ephemerd.config.model import Settings
from ephemerd.config.tomlfile import KeyPath, TomlFile

PREFIX = "EPHEMERD_"
APPLICATION = ("runner", "application")
DEFAULT, FILE, ENVIRONMENT, FLAG = range(4)
_LAYERS = ("default", "file", "environment", "flag")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value is from: the layer (higher wins) and the exact place in it."""

    layer: int
    detail: str = ""

    def __str__(self) -> str:
        if self.layer == FILE:
            return self.detail
        return f"{_LAYERS[self.layer]} {self.detail}".strip()


@dataclass(slots=True)
class Layers:
    """The values so far, as nested tables of raw values, with the origin of each leaf."""

    data: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, Origin] = field(default_factory=dict)
    tables: dict[KeyPath, str] = field(default_factory=dict)
    stand_ins: dict[KeyPath, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def put(self, path: KeyPath, value: Any, origin: Origin) -> None:
        """Set a leaf; it replaces what lower layers said there."""
        table = self.data
        for part in path[:-1]:
            inner = table.get(part)
            if not isinstance(inner, dict):
                inner = table[part] = {}
            table = inner
        table[path[-1]] = value
        self.origins[path] = origin

    def get(self, path: KeyPath) -> Any:
        """Return the raw value, None where there is none."""
        table: Any = self.data
        for part in path:
            if not isinstance(table, dict) or part not in table:
                return None
            table = table[part]
        return table

    def stand_in(self, path: KeyPath, value: Any) -> None:
        """Set a value that is nobody's, in place of one that was refused; its origin stays."""
        self.put(path, value, self.origins.get(path, Origin(DEFAULT)))
        self.stand_ins[path] = value

    def drop(self, path: KeyPath) -> None:
        """Take a leaf or a table away."""
        parent = self.get(path[:-1])
        if isinstance(parent, dict):
            parent.pop(path[-1], None)

    def names(self, table: str) -> list[str]:
        """Return the names of `[table.NAME]` in the order in which they were written."""
        entries = self.data.get(table)
        return list(entries) if isinstance(entries, dict) else []

    def where(self, path: KeyPath) -> str:
        """Return the key with the place that its value is from, for a finding."""
        origin = self.origins.get(path)
        place = str(origin) if origin and origin.layer != DEFAULT else self._table(path)
        dotted = ".".join(path) or "configuration"
        return f"{dotted} ({place})" if place else dotted

    def _table(self, path: KeyPath) -> str:
        """Where a table of the file begins: its header, or the first of what is in it."""
        inside = (place for key, place in self.tables.items() if key[: len(path)] == path)
        return self.tables.get(path) or next(inside, "")

    def origin(self, path: KeyPath) -> Origin:
        """Return where a leaf is from; of a table of texts the highest layer that set an entry."""
        if path in self.origins:
            return self.origins[path]
        inside = [place for key, place in self.origins.items() if key[: len(path)] == path]
        return max(inside, key=lambda place: place.layer, default=Origin(DEFAULT))


def add_file(layers: Layers, file: TomlFile) -> None:
    """Lay a file over the defaults; empty tables are kept, so that `[pools.x]` alone is seen."""
    layers.tables.update({key: file.place(key) for key in file.lines})
    for path, value in _leaves(file.data):
        if value == {}:
            _keep_table(layers, path)
        else:
            layers.put(path, value, Origin(FILE, file.place(path)))


def _keep_table(layers: Layers, path: KeyPath) -> None:
    table = layers.data
    for part in path:
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            return
        table = inner


def _leaves(table: Mapping[str, Any], prefix: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for name, value in table.items():
        here = (*prefix, name)
        if isinstance(value, dict) and value:
            yield from _leaves(value, here)
        else:
            yield here, value


def add_environment(layers: Layers, env: Mapping[str, str]) -> None:
    """Lay the variables that have the prefix and name a key over what is there, in the order of their names."""
    for name in sorted(env):
        parts = name.removeprefix(PREFIX).split("__")
        if name.startswith(PREFIX) and len(parts) > 1 and all(parts):
            path = _variable_path(layers, parts)
            if _known(layers, path, f"environment {name}"):
                layers.put(path, _typed(path, env[name]), Origin(ENVIRONMENT, name))


def _variable_path(layers: Layers, parts: list[str]) -> KeyPath:
    """Return the key that a variable names; a chosen name is found without case, _ standing for - too."""
    first = parts[0].lower()
    field = Settings.model_fields.get(first)
    if field is not None and entries_of(field.annotation) is not None:
        wanted = parts[1].lower()
        name = next(
            (name for name in layers.names(first) if name.lower().replace("-", "_") == wanted), wanted
        )
        return (first, name, *(part.lower() for part in parts[2:]))
    lower = tuple(part.lower() for part in parts)
    for end in range(1, len(lower)):
        found = field_at(lower[:end])
        if found is not None and is_table_of_texts(found.annotation):
            return (*lower[:end], "__".join(parts[end:]))
    return lower


def add_flags(layers: Layers, flags: Mapping[str, Any]) -> None:
    """Lay values given on the command line (dotted key to value) over all else. Secrets are refused there."""
    for dotted, value in flags.items():
        path = tuple(dotted.split("."))
        if not _known(layers, path, f"flag {dotted}"):
            continue
        field = field_at(path)
        if field is not None and is_secret(field.annotation):
            what = "a secret must not be on a command line, where every account of the machine can read it"
            layers.findings.append(Finding(Code.CONFIGURATION, dotted, what, f"use {path[-1]}_file instead"))
        else:
            typed = _typed(path, value) if isinstance(value, str) else value
            layers.put(path, typed, Origin(FLAG, dotted))


def _known(layers: Layers, path: KeyPath, place: str) -> bool:
    if is_leaf(path):
        return True
    if is_table(path):
        what, todo = "names a table, not a value", "name one of its keys"
    else:
        what, todo = "unknown key", f"the nearest known key is {nearest(path)}"
    layers.findings.append(Finding(Code.CONFIGURATION, f"{'.'.join(path)} ({place})", what, todo))
    return False


def _typed(path: KeyPath, text: str) -> Any:
    """Split a text for a key that takes a list: a TOML array, or values with commas between."""
    field = field_at(path)
    if field is None or not is_list(field.annotation):
        return text
    if text.strip().startswith("["):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return text
    return [part.strip() for part in text.split(",") if part.strip()]


def absolute_paths(layers: Layers, home: Path, file: Path | None, here: Path) -> None:
    """Make relative paths absolute: from the folder of their file, else from `here`; ~ is home."""
    for path, origin in layers.origins.items():
        value, field = layers.get(path), field_at(path)
        is_path = field is not None and (path == APPLICATION or holds_path(field.annotation))
        if not is_path or not isinstance(value, str) or value.startswith("credential:"):
            continue
        if path == APPLICATION and value == "download":
            continue
        base = file.parent if file is not None and origin.layer == FILE else here
        plain = home / value[2:] if value.startswith("~/") else Path(value)
        layers.put(path, str(here / base / plain), origin)
