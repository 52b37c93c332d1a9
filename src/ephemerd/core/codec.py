"""The record codec: events, rows, decisions and commands as plain data, and what the store is given of them.

Every value of the domain is a `msgspec.Struct`, which says itself how it travels: fields that are their default are
left out and come back as the default, so that a field added later with a default reads old data; names that no field
bears are ignored; events and commands say under "kind" which they are. This file says which rows travel under which
names, and keeps permits from being read in.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from ephemerd.core.commands import Command, Deregister, Destroy
from ephemerd.core.events import Event
from ephemerd.core.rows import ClassRow, HostRow, PoolRow, ScopeRow
from ephemerd.domain import permit
from ephemerd.domain.access import Access
from ephemerd.domain.job import Job
from ephemerd.domain.pool import Policy
from ephemerd.domain.runner import Decision, Runner
from ephemerd.domain.value import Value

T = TypeVar("T")
Plain = dict[str, Any]
Body = Plain | Value | msgspec.Raw
"""What the store is given: plain data, a value of the domain, or one that is JSON already."""

# What a row of each kind is: a value, or None where the row is plain data itself, which is then kept as
# {"value": row}. JSON knows no tuples: in plain rows they come back as lists.
ROW_CLASSES: dict[str, type[Value] | None] = {
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


class _Carried(msgspec.Struct):
    """A union by itself is looked through at each use, which takes many times as long as what it is used for."""

    event: Event


_json = msgspec.json.Encoder().encode
_read_plain = msgspec.json.Decoder().decode
_read_event = msgspec.json.Decoder(Event).decode
_READ_ROW = {kind: msgspec.json.Decoder(cls).decode for kind, cls in ROW_CLASSES.items() if cls is not None}
_sorted = msgspec.json.Encoder(order="sorted").encode
_OF_NONE = hashlib.blake2s(digest_size=16).hexdigest()
_escaped = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def encode(value: Value) -> Plain:
    """Return the value as plain data: dict, list, tuple, str, int, bool, None."""
    plain: Plain = msgspec.to_builtins(value)
    return plain


def decode(cls: type[T], plain: Any) -> T:
    """Return the value that `encode` turned into `plain`. Raises ValueError with class and field."""
    hint: Any = cls
    _may_be_read(hint)
    try:
        return msgspec.convert(plain, cls)
    except msgspec.ValidationError as error:
        raise ValueError(f"{getattr(cls, '__name__', cls)}: {error}") from None


def encode_event(event: Event) -> Plain:
    """Return the event as {"kind": class name, …fields that differ from their default}."""
    event_body(event)
    return encode(event)


def event_body(event: Event) -> Body:
    """Return the event as the store takes it. Raises ValueError where it would not be read again as it is: where it
    is none, or a field holds what its hint does not allow."""
    return _written(event, _read_event, Event)


def decode_event(plain: Plain) -> Event:
    """Return the event that `encode_event` wrote; ValueError where it is none of the known kinds."""
    return msgspec.convert({"event": plain}, _Carried).event


def command_hash(commands: Sequence[Command]) -> str:
    """Return 32 hex digits over the commands in their order, the same in every process."""
    if not commands:
        return _OF_NONE
    digest = hashlib.blake2s(digest_size=16)
    for command in commands:
        digest.update(_canonical(command) + b"\n")
    return digest.hexdigest()


def _canonical(command: Command) -> bytes:
    """Return the command as JSON in ASCII, its names in their order."""
    _look_at_leave(command)
    try:
        text = _sorted(command)
    except UnicodeEncodeError:  # a lone surrogate, from the name of a file that is no UTF-8
        text = b"\xff"
    plain = text.isascii() and b"\x7f" not in text
    return text if plain else _escaped(encode(command)).encode("ascii")


def _look_at_leave(command: Command) -> None:
    """Raise ValueError for a command whose leave is none that the gate makes."""
    leave: permit.Permit | permit.FenceIntent
    if isinstance(command, Destroy):
        leave, real = command.permit, isinstance(command.permit, permit.Permit)
    elif isinstance(command, Deregister):
        leave, real = command.intent, isinstance(command.intent, permit.FenceIntent)
    else:
        return
    if not real:
        raise ValueError(f"{type(command).__name__}: {type(leave).__name__} is no leave that the gate makes")


def encode_row(kind: str, row: Any) -> Plain:
    """Return a row of that kind as plain data. Raises ValueError where it is none of that kind."""
    cls = _row_class(kind)
    if cls is None:
        if isinstance(row, Value):
            raise ValueError(
                f"a row of kind {kind!r} is plain data; ROW_CLASSES says no {type(row).__name__}"
            )
        return {"value": row}
    if type(row) is not cls:
        raise ValueError(f"a row of kind {kind!r} is a {cls.__name__}, got {type(row).__name__}")
    return encode(row)


def row_body(kind: str, row: Any) -> Body:
    """Return a row of that kind as the store takes it. Raises ValueError where it would not be read again as it is."""
    read = _READ_ROW.get(kind)
    if read is None or type(row) is not ROW_CLASSES[kind]:
        return encode_row(kind, row)
    return _written(row, read, type(row))


def _written(value: Value, read: Callable[[bytes], Any], hint: Any) -> Body:
    """Return a value as JSON that was read again as what its hint says: what could not be must never get into the
    store."""
    try:
        try:
            text = _json(value)
            if read(text) == value:
                return msgspec.Raw(text)
        except UnicodeEncodeError:  # a lone surrogate, from the name of a file that is no UTF-8
            if decode(hint, encode(value)) == value:
                return value
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{type(value).__name__}: {error}") from None
    raise ValueError(f"{type(value).__name__}: it would be read again as another one")


def decode_row(kind: str, plain: Plain) -> Any:
    """Return the row that `encode_row` wrote."""
    cls = _row_class(kind)
    if cls is not None:
        return decode(cls, plain)
    if "value" not in plain:
        raise ValueError(f"a row of kind {kind!r} without a value")
    return plain["value"]


def row_reader(kind: str) -> Callable[[str], Any]:
    """Return what reads rows of that kind from their JSON; it raises ValueError or TypeError for what is none."""
    cls = _row_class(kind)
    if cls is None:
        return functools.partial(_read_slowly, kind)
    _may_be_read(cls)
    read = _READ_ROW[kind]

    def read_row(text: str) -> Any:
        try:
            return read(text)
        except (msgspec.DecodeError, RecursionError):
            return _read_slowly(kind, text)

    return read_row


def _read_slowly(kind: str, text: str) -> Any:
    """Read a row by way of plain data, which takes any JSON that was ever stored and says what is wrong with it."""
    try:
        plain = plain_from(text)
    except ValueError as error:
        raise ValueError(f"no JSON: {error}") from None
    return decode_row(kind, plain)


def plain_from(text: str) -> Any:
    """Return the plain data that was written as JSON. Raises ValueError where the text is none."""
    try:
        return _read_plain(text)
    except msgspec.DecodeError:  # a lone surrogate is none to the fast decoder
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def encode_decision(decision: Decision) -> Plain:
    """Return the decision as plain data with an integer "id"."""
    return encode(decision)


def decode_decision(plain: Plain) -> Decision:
    """Return the decision that `encode_decision` wrote."""
    return decode(Decision, plain)


@functools.cache
def _may_be_read(cls: Any) -> None:
    """Raise TypeError where a value of the class is, or holds, what only the gate makes."""
    for held in _held(cls):
        if held.__module__ == permit.__name__:
            raise TypeError(f"{held.__name__} is made by the gate alone, never from plain data")


def _held(cls: Any) -> list[type[Any]]:
    """Return a class and those of all that its values can hold, by their hints, whatever kind of class they are."""
    found: list[type[Any]] = []
    line: list[Any] = [cls]
    while line:
        hint = line.pop()
        line += get_args(hint)
        if isinstance(hint, type) and hint not in found:
            found.append(hint)
            line += get_type_hints(hint).values()
    return found


def _row_class(kind: str) -> type[Value] | None:
    """Return the class of a kind's rows, None for plain ones."""
    try:
        return ROW_CLASSES[kind]
    except KeyError:
        raise ValueError(f"no row is of kind {kind!r}") from None
