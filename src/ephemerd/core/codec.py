"""The record codec: events, rows, decisions and commands as plain data, as the store keeps them.

`plain.py` turns any domain value into plain data; this file says which classes travel under which names.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any

from ephemerd.core import plain as values
from ephemerd.core.commands import Command
from ephemerd.core.events import Event
from ephemerd.core.rows import ClassRow, HostRow, PoolRow, ScopeRow
from ephemerd.domain.access import Access
from ephemerd.domain.job import Job
from ephemerd.domain.pool import Policy
from ephemerd.domain.runner import Decision, Runner

decode = values.decode
encode = values.encode
Plain = dict[str, Any]

# What a row of each kind is: a dataclass, or None where the row is plain data itself, which is then kept as
# {"value": row}. JSON knows no tuples: in plain rows they come back as lists.
ROW_CLASSES: dict[str, type | None] = {
    "access": Access,
    "class": ClassRow,
    "counter": None,
    "host": HostRow,
    "job": Job,
    "meta": None,
    "policy": Policy,
    "pool": PoolRow,
    "runner": Runner,
    "scope": ScopeRow,
}

# The event and command classes, told apart by the key "kind".
_EVENT: Any = Event
_COMMAND: Any = Command
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def encode_event(event: Event) -> Plain:
    """Return the event as {"kind": class name, …fields that differ from their default}."""
    encoded: Plain = _event_encoder()(event)
    return encoded


def decode_event(plain: Plain) -> Event:
    """Return the event that `encode_event` wrote; ValueError where it is none of the known kinds."""
    event: Event = decode(_EVENT, plain)
    return event


def encode_command(command: Command) -> Plain:
    """Return the command as {"kind": class name, …}. There is no way back: permits are never read in."""
    encoded: Plain = _command_encoder()(command)
    return encoded


def command_hash(commands: Iterable[Command]) -> str:
    """Return 32 hex digits over the commands in their order, the same in every process."""
    digest = hashlib.blake2s(digest_size=16)
    for command in commands:
        digest.update(_canonical(encode_command(command)).encode("ascii") + b"\n")
    return digest.hexdigest()


def encode_row(kind: str, row: Any) -> Plain:
    """Return a row of that kind as the store keeps it."""
    cls = _row_class(kind)
    if cls is None:
        if dataclasses.is_dataclass(row):
            raise ValueError(
                f"a row of kind {kind!r} is plain data; ROW_CLASSES says no {type(row).__name__}"
            )
        return {"value": row}
    if type(row) is not cls:
        raise ValueError(f"a row of kind {kind!r} is a {cls.__name__}, got {type(row).__name__}")
    encoded: Plain = encode(row)
    return encoded


def decode_row(kind: str, plain: Plain) -> Any:
    """Return the row that `encode_row` wrote."""
    return row_decoder(kind)(plain)


def row_decoder(kind: str) -> Callable[[Plain], Any]:
    """Return what `decode_row` does for a kind, for whoever decodes many rows of it."""
    cls = _row_class(kind)
    if cls is not None:
        return values.decoder(cls)

    def decode_value(plain: Plain) -> Any:
        if "value" not in plain:
            raise ValueError(f"a row of kind {kind!r} without a value")
        return plain["value"]

    return decode_value


def encode_decision(decision: Decision) -> Plain:
    """Return the decision as plain data with an integer "id"."""
    encoded: Plain = encode(decision)
    return encoded


def decode_decision(plain: Plain) -> Decision:
    """Return the decision that `encode_decision` wrote."""
    decision: Decision = decode(Decision, plain)
    return decision


# What a union's members are is worked out once: hashing a union takes as long as encoding an event.


@functools.cache
def _event_encoder() -> values.Convert:
    return values.encoder(_EVENT)


@functools.cache
def _command_encoder() -> values.Convert:
    return values.encoder(_COMMAND)


def _row_class(kind: str) -> Any:
    """Return the class of a kind's rows, None for plain ones."""
    try:
        return ROW_CLASSES[kind]
    except KeyError:
        raise ValueError(f"no row is of kind {kind!r}") from None
