"""A changed copy equals what `dataclasses.replace` makes."""

from __future__ import annotations

import dataclasses

import pytest

from ephemerd.core import evolve
from ephemerd.core.evolve import replace, same
from ephemerd.core.rows import ClassRow
from ephemerd.domain.ids import RunnerId, Scope
from ephemerd.domain.runner import Runner, RunnerState

ROW = Runner(RunnerId("a"), "p", "h", Scope("f", "repo:a/b"), 1, RunnerState.PLANNED, 5, 5)


def test_copy_equals_the_slow_one_and_leaves_the_original():
    assert replace(ROW, since=9, soft=7) == dataclasses.replace(ROW, since=9, soft=7)
    assert ROW.since == 5
    assert replace(ClassRow(), held=True) == ClassRow(held=True)


def test_copy_is_as_frozen_as_the_original():
    with pytest.raises(dataclasses.FrozenInstanceError):
        replace(ROW, since=9).since = 3  # type: ignore[misc]


def test_unknown_field_is_refused():
    with pytest.raises(TypeError, match="Runner has no field 'sinec'"):
        replace(ROW, sinec=1)


def test_value_with_one_field_can_be_changed():
    one = dataclasses.make_dataclass("One", ["a"], frozen=True, slots=True)
    assert replace(one(1), a=2) == one(2)
    assert type(replace(one(1), a=2)) is one


def test_two_are_the_same_where_all_their_fields_are_equal():
    equal = dataclasses.replace(ROW, scope=Scope("f", "repo:a/b"))
    assert equal.scope is not ROW.scope
    assert same(ROW, equal)
    assert not same(ROW, replace(ROW, since=9))
    assert not same(ClassRow(), ClassRow(held=True))


def test_what_copies_and_compares_a_class_is_written_once(monkeypatch):
    replace(ROW, since=9)
    monkeypatch.setattr(evolve, "_make", None)
    assert same(replace(ROW, since=9), replace(ROW, since=9))
