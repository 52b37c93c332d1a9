"""A changed copy of a frozen slotted value, many times faster than `dataclasses.replace`, and a comparison of two.

Rows have dozens of fields and change several times an event. Each class has a twin with the same slots that
is not frozen: the copy is made and changed as one of the twin and becomes one of the class at last. It is for
values without `__post_init__`. Copy and comparison are functions written out field by field, once a class, as
`dataclasses` writes its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields, make_dataclass
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class _Made(NamedTuple):
    copy: Callable[[Any], Any]
    same: Callable[[Any, Any], bool]


_made: dict[type, _Made] = {}


def replace(row: T, /, **changes: Any) -> T:
    """Return a copy of `row` with some fields changed; TypeError for a field that it does not have."""
    cls = type(row)
    made, name = (_made.get(cls) or _make(cls)).copy(row), ""
    try:
        for name, value in changes.items():
            setattr(made, name, value)
    except AttributeError:
        raise TypeError(f"{cls.__name__} has no field {name!r}") from None
    made.__class__ = cls
    return made  # type: ignore[no-any-return]


def same(one: T, other: T) -> bool:
    """Say whether two values of one class are equal; most often they are not, or share what they hold."""
    cls = type(one)
    return (_made.get(cls) or _make(cls)).same(one, other)


@functools.cache
def twin_of(cls: Any) -> Any:
    """Return the class with the same slots that is not frozen; it is called with the values of all fields."""
    names = [item.name for item in fields(cls)]
    return make_dataclass(cls.__name__, names, slots=True, eq=False, repr=False)


def _make(cls: type) -> _Made:
    names = [item.name for item in fields(cls)]
    twin = twin_of(cls)
    steps = "".join(f"    made.{name} = row.{name}\n" for name in names)
    terms = " and ".join(f"(a.{name} is b.{name} or a.{name} == b.{name})" for name in names)
    source = (
        f"def copy(row):\n    made = new(twin)\n{steps}    return made\ndef same(a, b):\n    return {terms}\n"
    )
    found: dict[str, Any] = {"new": object.__new__, "twin": twin}
    exec(source, found)  # noqa: S102 - made of the names of a class's own fields
    _made[cls] = _Made(found["copy"], found["same"])
    return _made[cls]
