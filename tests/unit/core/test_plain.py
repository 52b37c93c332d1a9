"""Plain data: every hint that the domain uses goes there and back; what is wrong is named."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, dataclass, field
from enum import Enum, IntEnum
from typing import Any, NewType, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerd.core.plain import MOST_PLANS, decode, encode
from ephemerd.domain.permit import FenceIntent, Permit
from tests.unit.core.values import any_of

Name = NewType("Name", str)


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True, slots=True)
class Leaf:
    name: Name
    size: int = 300_000


@dataclass(frozen=True, slots=True)
class Empty:
    pass


@dataclass(frozen=True, slots=True)
class Other:
    size: int


@dataclass(frozen=True, slots=True)
class Wrapped:
    leaf: Leaf


@dataclass(frozen=True, slots=True)
class Checked:
    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError("too small")


@dataclass(frozen=True)
class Open:
    name: Name
    size: int = 3


@dataclass(frozen=True, slots=True)
class Longer(Other):
    width: int


@dataclass(frozen=True, slots=True)
class Everything:
    text: str
    number: int
    leaf: Leaf
    pair: tuple[int, Leaf]
    mixed: int | str | None
    shape: Leaf | Other | Empty | None
    ratio: float = 0.5
    flag: bool = True
    colour: Colour = Colour.RED
    level: Level | None = None
    older: Optional[int] = None  # noqa: UP045  (both spellings are to be understood)
    names: tuple[Name, ...] = ()
    leaves: tuple[Leaf, ...] = ()
    by_name: dict[str, tuple[Colour, ...]] = field(default_factory=dict)
    fixed: Leaf = field(default_factory=lambda: Leaf(Name("default")))
    loose: float | str | None = None


def one(**changes: Any) -> Everything:
    given_ = {"text": "t", "number": 1, "leaf": Leaf(Name("a")), "pair": (1, Leaf(Name("b"))), "mixed": None}
    return Everything(**{**given_, "shape": None, **changes})


@given(any_of(Everything))
def test_everything_goes_there_and_back(value):
    assert decode(Everything, encode(value)) == value
    assert decode(Everything, json.loads(json.dumps(encode(value)))) == value


@given(st.lists(any_of(Leaf | Other | Empty)).map(tuple))
def test_a_hint_says_what_no_class_can_say(values):
    hint = tuple[Leaf | Other | Empty, ...]
    assert decode(hint, json.loads(json.dumps(encode(values, hint)))) == values


def test_the_types_come_back_and_not_only_what_compares_equal():
    value = one(ratio=2.0, flag=False, level=Level.LOW, number=0, names=(Name("x"),), mixed=1, loose=3.0)
    back = decode(Everything, json.loads(json.dumps(encode(value))))
    assert repr(back) == repr(value)


def test_what_equals_its_default_is_left_out():
    value = one(ratio=0.5, colour=Colour.RED, by_name={}, fixed=Leaf(Name("default")), names=())
    assert encode(value) == {
        "text": "t",
        "number": 1,
        "leaf": {"name": "a"},
        "pair": [1, {"name": "b"}],
        "mixed": None,
        "shape": None,
    }


def test_a_large_number_that_equals_its_default_is_left_out_too():
    assert encode(Leaf(Name("a"), int("300000"))) == {"name": "a"}
    assert encode(Leaf(Name("a"), 300_001)) == {"name": "a", "size": 300_001}


def test_a_class_of_a_union_bears_its_name():
    assert encode(one(shape=Other(3)))["shape"] == {"kind": "Other", "size": 3}
    assert encode(one(shape=Empty()))["shape"] == {"kind": "Empty"}


def test_a_default_made_by_a_factory_is_fresh_each_time():
    first, second = (decode(Everything, encode(one())) for _ in range(2))
    assert first.by_name == {}
    assert first.by_name is not second.by_name


def test_a_field_that_is_not_known_is_ignored():
    assert decode(Leaf, {"name": "a", "later": [1, 2]}) == Leaf(Name("a"))


def test_however_many_varieties_there_are_each_is_read():
    for number in range(MOST_PLANS + 20):
        assert decode(Wrapped, {f"later {number}": number, "leaf": {"name": str(number)}}) == Wrapped(
            Leaf(Name(str(number)))
        )


def test_fields_are_given_by_name_in_whatever_order_they_come():
    plain = {"size": 7, "later": 1, "name": "a"}
    assert decode(Leaf, plain) == Leaf(Name("a"), 7)
    assert decode(Leaf, dict(reversed(plain.items()))) == Leaf(Name("a"), 7)
    assert plain == {"size": 7, "later": 1, "name": "a"}


def test_what_is_given_whole_and_in_order_is_converted_too():
    assert decode(Wrapped, {"leaf": {"name": "a"}}) == Wrapped(Leaf(Name("a")))


def test_what_comes_back_is_as_frozen_as_what_went():
    back = decode(Everything, encode(one()))
    assert type(back) is Everything
    with pytest.raises(FrozenInstanceError):
        back.text = "other"  # type: ignore[misc]


@pytest.mark.parametrize("value", [Checked(3), Open(Name("a"), 4), Longer(1, 2)])
def test_a_class_that_is_more_than_its_slots_is_made_by_its_constructor(value):
    back = decode(type(value), encode(value))
    assert back == value
    assert type(back) is type(value)


def test_its_constructor_may_refuse():
    with pytest.raises(ValueError, match="too small"):
        decode(Checked, {"size": 0})


def test_a_row_without_a_newer_field_gets_its_default():
    assert decode(Everything, encode(one())).fixed == Leaf(Name("default"))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"number": "1"}, "Everything.number: expected int, got str"),
        ({"number": True}, "Everything.number: expected int, got bool"),
        ({"number": 1.0}, "Everything.number: expected int, got float"),
        ({"text": None}, "Everything.text: expected str, got NoneType"),
        ({"flag": 1}, "Everything.flag: expected bool, got int"),
        ({"ratio": "1"}, "Everything.ratio: expected float, got str"),
        ({"ratio": float("nan")}, "Everything.ratio: nan is not finite"),
        ({"colour": "blue"}, "Everything.colour: 'blue' is no Colour"),
        ({"colour": 3}, "Everything.colour: expected a value of Colour, got int"),
        ({"level": 9}, "Everything.level: 9 is no Level"),
        ({"level": True}, "Everything.level: expected a value of Level or None, got bool"),
        ({"leaf": {"name": 1}}, "Everything.leaf: Leaf.name: expected str, got int"),
        ({"leaf": {}}, "Everything.leaf: Leaf.name: missing"),
        ({"leaf": []}, "Everything.leaf: expected Leaf as an object, got list"),
        ({"pair": [1]}, "Everything.pair: expected 2 items, got 1"),
        ({"names": "ab"}, "Everything.names: expected list, got str"),
        ({"names": ["a", 1]}, "Everything.names: expected str, got int"),
        ({"mixed": []}, "Everything.mixed: expected int or str or None, got list"),
        ({"shape": {"kind": "Leef"}}, "Everything.shape: kind 'Leef' is none of Leaf, Other, Empty"),
        ({"shape": {"size": 1}}, "Everything.shape: kind None is none of Leaf, Other, Empty"),
        ({"shape": {"kind": ["Leaf"]}}, "Everything.shape: kind ['Leaf'] is none of Leaf, Other, Empty"),
        ({"by_name": {"a": ["blue"]}}, "Everything.by_name: 'blue' is no Colour"),
        ({"by_name": {1: []}}, "Everything.by_name: expected strings as keys"),
        ({"by_name": {"a": [], 1: []}}, "Everything.by_name: expected strings as keys"),
        ({"by_name": []}, "Everything.by_name: expected object, got list"),
    ],
)
def test_wrong_plain_data_is_refused_with_class_and_field(changed, text):
    with pytest.raises(ValueError) as caught:
        decode(Everything, {**encode(one()), **changed})
    assert str(caught.value) == text


@pytest.mark.parametrize("plain", [None, [], "x", 3])
def test_what_is_no_object_is_refused(plain):
    with pytest.raises(ValueError, match="expected Leaf as an object"):
        decode(Leaf, plain)


@pytest.mark.parametrize("name", ["text", "number", "leaf", "pair", "mixed", "shape"])
def test_a_missing_field_without_default_is_named(name):
    plain = encode(one())
    del plain[name]
    with pytest.raises(ValueError, match=rf"^Everything\.{name}: missing$"):
        decode(Everything, plain)


def test_a_long_wrong_value_is_not_repeated_whole():
    with pytest.raises(ValueError) as caught:
        decode(Colour, "x" * 10_000)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"number": "1"}, "Everything.number: expected int, got str"),
        ({"number": True}, "Everything.number: expected int, got bool"),
        ({"colour": "red"}, "Everything.colour: expected Colour, got str"),
        ({"colour": Level.LOW}, "Everything.colour: expected Colour, got Level"),
        ({"leaf": Other(1)}, "Everything.leaf: expected Leaf, got Other"),
        ({"leaf": Leaf(7)}, "Everything.leaf: Leaf.name: expected str, got int"),  # type: ignore[arg-type]
        ({"shape": one()}, "Everything.shape: expected Leaf or Other or Empty or None, got Everything"),
        ({"names": ["a"]}, "Everything.names: expected tuple, got list"),
        ({"names": (1,)}, "Everything.names: expected str, got int"),
        ({"pair": (1, Leaf(Name("a")), 2)}, "Everything.pair: expected 2 items, got 3"),
        ({"ratio": float("inf")}, "Everything.ratio: inf is not finite"),
        ({"ratio": "1"}, "Everything.ratio: expected float, got str"),
        ({"flag": 1}, "Everything.flag: expected bool, got int"),
        ({"by_name": {1: ()}}, "Everything.by_name: expected strings as keys"),
        ({"by_name": {"a": (), 1: ()}}, "Everything.by_name: expected strings as keys"),
        ({"by_name": []}, "Everything.by_name: expected dict, got list"),
    ],
)
def test_a_wrong_value_never_becomes_a_row(changed, text):
    with pytest.raises(ValueError) as caught:
        encode(one(**changed))
    assert str(caught.value) == text


@dataclass(frozen=True)
class Late:
    kind: str


@dataclass(frozen=True)
class Derived:
    size: int = field(init=False, default=3)


class Odd(Enum):
    PAIR = (1, 2)


def encode_as(hint: Any, value: Any) -> Any:
    return encode(value, hint)


@pytest.mark.parametrize(
    "hint", [set[str], list[int], bytes, object, Any, dict[int, str], Odd, Derived, Leaf | Late]
)
@pytest.mark.parametrize("way", [encode_as, decode])
def test_what_cannot_be_carried_is_said_when_it_is_first_met(hint, way):
    with pytest.raises(TypeError):
        way(hint, {})


def test_a_union_of_a_string_and_of_what_is_written_as_one_is_refused():
    with pytest.raises(TypeError, match="look alike as str"):
        decode(str | Colour, {})


@pytest.mark.parametrize("value", [1, 1.5])
def test_a_number_that_may_be_whole_or_not_comes_back_as_it_went(value):
    back = decode(int | float, encode(value, int | float))
    assert (back, type(back)) == (value, type(value))


def test_a_whole_number_where_a_fraction_is_wanted_becomes_one():
    back = decode(float | str, 3)
    assert (back, type(back)) == (3.0, float)
    assert type(decode(float, 3)) is float


def test_a_tuple_of_one_has_one():
    assert decode(tuple[Leaf], encode((Leaf(Name("a")),), tuple[Leaf])) == (Leaf(Name("a")),)
    with pytest.raises(ValueError, match="expected 1 items, got 2"):
        decode(tuple[int], [1, 2])


@pytest.mark.parametrize(
    "hint", [dict[str, int] | Leaf, tuple[int, ...] | tuple[str, ...], Colour | Level | int]
)
def test_a_union_whose_members_look_alike_is_refused(hint):
    with pytest.raises(TypeError, match="look alike"):
        decode(hint, {})


def test_two_classes_of_one_name_cannot_be_told_apart():
    namesake: Any = dataclass(frozen=True)(type("Leaf", (), {"__annotations__": {"size": int}}))
    with pytest.raises(TypeError, match="same name"):
        decode(Leaf | namesake, {})


@pytest.mark.parametrize("cls", [Permit, FenceIntent])
def test_no_permit_is_ever_made_from_plain_data(cls):
    with pytest.raises(TypeError, match="gate alone"):
        decode(cls, {})


def test_nor_inside_something_else():
    from ephemerd.core.commands import Destroy

    with pytest.raises(TypeError, match="gate alone"):
        decode(Destroy, {})


def test_nothing_at_all_is_carried_as_null():
    assert encode(None, None) is None
    assert decode(None, None) is None
    with pytest.raises(ValueError, match="expected"):
        decode(None, 3)
