"""Domain values as plain, JSON-able data and back, driven by type hints; converters are built once a type.

What can be carried: frozen dataclasses (not recursive ones), enums of strings or integers, `str`, `int`,
`bool`, finite `float`, None, `NewType`s of these, `tuple[X, ...]`, `tuple[X, Y]`, `dict[str, X]` and unions
of what is told apart as JSON. A union of several dataclasses is told apart by a key "kind" that holds the
class's name. Fields that equal their default are left out, and come back as the default, so that a field
added later with a default reads old data. Keys that no field bears are ignored.

Nothing here can make a permit: what `domain.permit` defines is encoded (for hashes), never decoded.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
import types
from collections.abc import Callable, Hashable, Iterable
from enum import Enum
from typing import Any, NamedTuple, NewType, TypeVar, Union, get_args, get_origin, get_type_hints, overload

from ephemerd.core import evolve
from ephemerd.domain import permit

T = TypeVar("T")
Convert = Callable[[Any], Any]
KIND = "kind"
MOST_PLANS = 500
"""Varieties of plain data whose way to a class is remembered; what comes beyond them is worked out each time."""
_MISSING = dataclasses.MISSING
_NOTHING: frozenset[type] = frozenset()


class _Shape(NamedTuple):
    """What a hint takes, by the exact type of the value: some pass as they are, some are converted."""

    passes: frozenset[type]
    converts: dict[type, Convert]
    expected: str


def encode(value: Any, hint: Any = None) -> Any:
    """Return the value as plain data; `hint` says what it is where its own class does not (a tuple, a union).

    Raises ValueError, with class and field, where a value is not what its hint says.
    """
    if hint is None:
        hint = type(value)
    return encoder(hint)(value)


@overload
def decode(hint: type[T], plain: Any) -> T: ...


@overload
def decode(hint: Any, plain: Any) -> Any: ...


def decode(hint: Any, plain: Any) -> Any:
    """Return the value that `encode` turned into `plain`. Raises ValueError with class and field."""
    return decoder(hint)(plain)


@functools.cache
def encoder(hint: Hashable) -> Convert:
    """Return what `encode` does for a hint, for whoever encodes many values of it."""
    return _carrier(_encoding(hint))


@functools.cache
def decoder(hint: Hashable) -> Convert:
    """Return what `decode` does for a hint, for whoever decodes many values of it."""
    return _carrier(_decoding(hint))


def _carrier(shape: _Shape) -> Convert:
    """Return the function that takes a value through its shape."""
    passes, converts, expected = shape

    def carry(value: Any) -> Any:
        kind = type(value)
        if kind in passes:
            return value
        convert = converts.get(kind)
        if convert is None:
            raise ValueError(f"expected {expected}, got {kind.__name__}")
        return convert(value)

    return carry


# To plain data.


@functools.cache
def _encoding(hint: Any) -> _Shape:
    match _sort(hint):
        case "dataclass":
            return _Shape(_NOTHING, {hint: _object_encoder(hint)}, hint.__name__)
        case "enum":
            _members(hint)
            return _Shape(_NOTHING, {hint: operator.attrgetter("_value_")}, hint.__name__)
        case "float":
            return _Shape(frozenset({int}), {float: _finite}, "float")
        case "tuple":
            return _Shape(_NOTHING, {tuple: _items(hint, _encoding, list)}, "tuple")
        case "dict":
            return _Shape(_NOTHING, {dict: _values(hint, _encoding)}, "dict")
        case "union":
            return _union([_encoding(member) for member in get_args(hint)], _encoding_tagged(hint))
        case _:
            return _scalar(hint)


@functools.cache
def _object_encoder(cls: Any, kind_name: str | None = None) -> Convert:
    """Return what makes an object of one of the class; it begins with its `kind` where that is given."""
    hints = get_type_hints(cls)
    fields = _fields(cls)
    defaults = [_default(field) for field in fields]
    rules = [(field.name, _default(field), *_encoding(hints[field.name])) for field in fields]
    values = _getter([field.name for field in fields])
    start = {} if kind_name is None else {KIND: kind_name}

    def encode_object(value: Any) -> dict[str, Any]:
        plain: dict[str, Any] = start.copy()
        # One flat loop over what is not its default: it runs several times an event, for rows of forty fields and more.
        parts = values(value)
        changed = [*map(operator.is_not, parts, defaults)]
        for part, rule in zip(
            itertools.compress(parts, changed), itertools.compress(rules, changed), strict=True
        ):
            name, default, passes, converts, expected = rule
            kind = type(part)
            if kind is type(default) and part == default:
                continue
            if kind in passes:
                plain[name] = part
                continue
            convert = converts.get(kind)
            if convert is None:
                raise ValueError(f"{cls.__name__}.{name}: expected {expected}, got {kind.__name__}")
            try:
                plain[name] = convert(part)
            except ValueError as error:
                raise ValueError(f"{cls.__name__}.{name}: {error}") from None
        return plain

    return encode_object


def _encoding_tagged(union: Any) -> dict[type, Convert]:
    return {cls: _object_encoder(cls, cls.__name__) for cls in _tagged_classes(union)}


# From plain data.


@functools.cache
def _decoding(hint: Any) -> _Shape:
    match _sort(hint):
        case "dataclass":
            return _Shape(_NOTHING, {dict: _object_decoder(hint)}, f"{hint.__name__} as an object")
        case "enum":
            return _enum_decoding(hint)
        case "float":
            return _Shape(_NOTHING, {float: _finite, int: float}, "float")
        case "tuple":
            items = _items(hint, _decoding, tuple)
            return _Shape(_NOTHING, {list: items, tuple: items}, "list")
        case "dict":
            return _Shape(_NOTHING, {dict: _values(hint, _decoding)}, "object")
        case "union":
            return _union([_decoding(member) for member in get_args(hint)], _decoding_tagged(hint))
        case _:
            return _scalar(hint)


class _Plan(NamedTuple):
    """How an object with certain names, and types behind them, becomes one of a class.

    converts   places in the object's values, and what is done with what is there
    names      of the fields at these places, for errors
    arrange    takes the values and then the defaults, and gives what the constructor is called with; None where that
               is the values as they come
    """

    converts: tuple[tuple[int, Convert], ...]
    names: dict[int, str]
    arrange: Callable[[Any], tuple[Any, ...]] | None


@functools.cache
def _object_decoder(cls: Any) -> Convert:
    if cls.__module__ == permit.__name__:
        raise TypeError(f"{cls.__name__} is made by the gate alone, never from plain data")
    hints = get_type_hints(cls)
    fields = _fields(cls)
    table = {field.name: _decoding(hints[field.name]) for field in fields}
    factories: list[Any] = [field.default_factory for field in fields]
    defaults = [None if _default(field) is _MISSING else field.default for field in fields]
    fresh = [place for place, factory in enumerate(factories) if factory is not _MISSING]
    make = _maker(cls)
    # Rows of a kind are of few varieties: the same names in the same order, with the same types. Each is looked at
    # once, and the fields are given by place, which costs a third of giving them by name.
    plans: dict[tuple[Any, ...], _Plan] = {}

    def plan_for(plain: dict[str, Any]) -> _Plan:
        converts = []
        for place, (name, part) in enumerate(plain.items()):
            shape, kind = table.get(name), type(part)
            if shape is None or kind in shape.passes:
                continue
            convert = shape.converts.get(kind)
            if convert is None:
                raise ValueError(f"{cls.__name__}.{name}: expected {shape.expected}, got {kind.__name__}")
            converts.append((place, convert))
        places = {name: place for place, name in enumerate(plain)}
        for field in fields:
            if field.name not in places and _default(field) is _MISSING:
                raise ValueError(f"{cls.__name__}.{field.name}: missing")
        wanted = [places.get(field.name, len(plain) + place) for place, field in enumerate(fields)]
        straight = not converts and wanted == [*range(len(plain))]
        return _Plan(tuple(converts), dict(enumerate(plain)), None if straight else _picker(wanted))

    def decode_object(plain: dict[str, Any]) -> Any:
        variety = (*plain, *map(type, plain.values()))
        plan = plans.get(variety)
        if plan is None:
            plan = plan_for(plain)
            if len(plans) < MOST_PLANS:
                plans[variety] = plan
        converts, names, arrange = plan
        if arrange is None:
            return make(*plain.values())
        found = [*plain.values(), *defaults]
        for place in fresh:
            found[place - len(defaults)] = factories[place]()
        for place, convert in converts:
            try:
                found[place] = convert(found[place])
            except ValueError as error:
                raise ValueError(f"{cls.__name__}.{names[place]}: {error}") from None
        return make(*arrange(found))

    return decode_object


def _maker(cls: Any) -> Callable[..., Any]:
    """Return what makes one of the class from all its fields in their order.

    A frozen class sets each field by a call. Its twin sets them at once, and becomes one of the class then.
    """
    if not _is_bare(cls):
        return cls  # type: ignore[no-any-return]
    twin = evolve.twin_of(cls)

    def make(*values: Any) -> Any:
        made = twin(*values)
        made.__class__ = cls
        return made

    return make


def _is_bare(cls: Any) -> bool:
    """Say whether a class is nothing but its slots, all of which its constructor takes in their order."""
    return cls.__bases__ == (object,) and "__slots__" in vars(cls) and not hasattr(cls, "__post_init__")


def _decoding_tagged(union: Any) -> dict[type, Convert]:
    decoders = {cls.__name__: _object_decoder(cls) for cls in _tagged_classes(union)}

    def decode_tagged(plain: dict[str, Any]) -> Any:
        kind = plain.get(KIND)
        decoder = decoders.get(kind) if isinstance(kind, str) else None
        if decoder is None:
            raise ValueError(f"{KIND} {kind!r} is none of {', '.join(decoders)}")
        return decoder(plain)

    return {dict: decode_tagged} if decoders else {}


def _enum_decoding(cls: Any) -> _Shape:
    members = _members(cls)

    def decode_member(plain: Any) -> Any:
        member = members.get(plain)
        if member is None:
            raise ValueError(f"{plain!r:.80} is no {cls.__name__}")
        return member

    kinds = {type(value): decode_member for value in members}
    return _Shape(_NOTHING, dict(kinds), f"a value of {cls.__name__}")


# Both ways.


def _sort(hint: Any) -> str:
    """Say which rule carries the hint."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return "union"
    if origin in (tuple, dict):
        return str(origin.__name__)
    if isinstance(hint, type):
        if dataclasses.is_dataclass(hint):
            return "dataclass"
        if issubclass(hint, Enum):
            return "enum"
    return "float" if hint is float else "scalar"


def _scalar(hint: Any) -> _Shape:
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    if hint is None:
        hint = types.NoneType
    if hint not in (str, int, bool, types.NoneType):
        raise TypeError(f"{hint!r} cannot be carried as plain data")
    return _Shape(frozenset({hint}), {}, "None" if hint is types.NoneType else str(hint.__name__))


def _items(hint: Any, shape_of: Callable[[Any], _Shape], make: Callable[[Iterable[Any]], Any]) -> Convert:
    arguments = get_args(hint)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        shape = shape_of(arguments[0])
        carry, passes = _carrier(shape), shape.passes

        def any_number(value: Any) -> Any:
            # Tuples of plain strings or numbers are by far the most frequent.
            if passes.issuperset(map(type, value)):
                return make(value)
            return make([carry(item) for item in value])

        return any_number
    carriers = [_carrier(shape_of(argument)) for argument in arguments]

    def exact_number(value: Any) -> Any:
        if len(value) != len(carriers):
            raise ValueError(f"expected {len(carriers)} items, got {len(value)}")
        return make([carry(item) for carry, item in zip(carriers, value, strict=True)])

    return exact_number


def _values(hint: Any, shape_of: Callable[[Any], _Shape]) -> Convert:
    key, item = get_args(hint)
    keys = _scalar(key).passes
    if keys != frozenset({str}):
        raise TypeError(f"{hint!r} cannot be carried as plain data: its keys must be strings")
    carry = _carrier(shape_of(item))

    def each(value: dict[Any, Any]) -> dict[str, Any]:
        if not all(type(name) is str for name in value):
            raise ValueError("expected strings as keys")
        return {name: carry(part) for name, part in value.items()}

    return each


def _union(shapes: list[_Shape], tagged: dict[type, Convert]) -> _Shape:
    """Join the shapes; two that take the same type could not be told apart, unless they are tagged."""
    passes: frozenset[type] = frozenset().union(*(shape.passes for shape in shapes))
    converts = dict(tagged)
    for shape in shapes:
        for kind, convert in shape.converts.items():
            if kind in tagged or (convert is float and int in passes):
                continue
            if kind in converts or kind in passes:
                raise TypeError(f"two members of a union look alike as {kind.__name__}")
            converts[kind] = convert
    return _Shape(passes, converts, " or ".join(shape.expected for shape in shapes))


def _tagged_classes(union: Any) -> list[Any]:
    classes = [member for member in get_args(union) if _sort(member) == "dataclass"]
    if len(classes) < 2:
        return []
    if len({cls.__name__ for cls in classes}) < len(classes):
        raise TypeError("two classes of a union bear the same name")
    for cls in classes:
        if any(field.name == KIND for field in _fields(cls)):
            raise TypeError(f"{cls.__name__} has a field {KIND!r}, which tells the classes of a union apart")
    return classes


def _fields(cls: Any) -> tuple[dataclasses.Field[Any], ...]:
    found = dataclasses.fields(cls)
    for field in found:
        if not field.init:
            raise TypeError(f"{cls.__name__}.{field.name} cannot be given to the constructor")
    return found


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is _MISSING else field.default_factory()


def _picker(places: list[int]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what takes the items at these places as a tuple (`itemgetter` makes one only for two and more)."""
    if len(places) > 1:
        return operator.itemgetter(*places)
    return lambda items: tuple(items[place] for place in places)


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what reads these attributes as a tuple (`attrgetter` makes one only for two and more)."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _members(cls: Any) -> dict[Any, Any]:
    members = {member.value: member for member in cls}
    for value in members:
        if type(value) not in (str, int):
            raise TypeError(f"{cls.__name__}: {value!r} is neither a string nor an integer")
    return members


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    return value
