"""What every value of the domain is made of: frozen, compared by its fields, and made, copied, compared and encoded
in C, since rows of forty fields are several times an event."""

from __future__ import annotations

import msgspec


class Value(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A frozen value. It holds nothing that could hold it in turn, so that no garbage collector need look at it.

    `msgspec.structs.replace` gives a changed copy. As plain data a field is left out where it is its default (the
    very same object: None, a bool, a small number, "", (), a member of an enum), and comes back as the default.
    """
