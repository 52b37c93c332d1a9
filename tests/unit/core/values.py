"""Any value of a domain class, drawn from its type hints; shared by the tests of the codec."""

from __future__ import annotations

import types
from enum import Enum
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

TEXT = st.one_of(st.sampled_from(["", "linux", "ä€😀", "a\x1fb", '"\\']), st.text(max_size=12))
NUMBERS = st.one_of(
    st.integers(-5, 5), st.sampled_from([1_753_000_000_000, 2**53 + 1]), st.integers(-(2**63), 2**63 - 1)
)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: NUMBERS,
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    None: st.none(),
    types.NoneType: st.none(),
}


def any_of(hint: Any) -> st.SearchStrategy[Any]:
    """Draw any value that the hint allows; a field with a default is often left at it."""
    if hint in SCALARS:
        return SCALARS[hint]
    if isinstance(hint, NewType):
        return any_of(hint.__supertype__)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of([any_of(argument) for argument in arguments])
    if origin is tuple:
        if arguments[1:] == (Ellipsis,):
            return st.lists(any_of(arguments[0]), max_size=3).map(tuple)
        return st.tuples(*map(any_of, arguments))
    if origin is dict:
        return st.dictionaries(TEXT, any_of(arguments[1]), max_size=3)
    if issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    return st.deferred(lambda: _object(hint))


def _object(cls: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(cls)
    fields = {}
    for field in msgspec.structs.fields(cls):
        fields[field.name] = any_of(hints[field.name])
        if not field.required:
            fields[field.name] = st.just(field.default) | fields[field.name]
    return st.builds(cls, **fields)
