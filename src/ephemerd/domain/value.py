"""What every value of the domain is made of: frozen, compared by its fields, and made, copied, compared and encoded
in C, since rows of forty fields are several times an event."""

from __future__ import annotations

from enum import Enum

import msgspec


class Word(Enum):
    """An enum whose members are hashed by what they are: they are looked up many times an event, and Enum's own hashes
    the name each time."""

    __hash__ = object.__hash__


class Value(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A frozen value. It holds nothing that could hold it in turn, so that no garbage collector need look at it.

    `msgspec.structs.replace` gives a changed copy. As plain data a field is left out where it is its default (the
    very same object: None, a bool, a small number, "", (), a member of an enum), and comes back as the default.
    """
