"""Verdicts: unknown is the zero value and never idle; the worse of two permits less."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import fields

from ephemerd.domain.runner import FINAL, LIVE, UNBOUND, GateRun, RunnerState
from ephemerd.domain.verdict import HARD_SIGNS, Sign, Verdict, worse

IDLE, UNKNOWN, BUSY = Verdict.IDLE, Verdict.UNKNOWN, Verdict.BUSY


def test_unknown_is_the_zero_value():
    assert next(iter(Verdict)) is UNKNOWN
    assert {field.name: field.default for field in fields(GateRun)}["first"] is UNKNOWN


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (IDLE, IDLE, IDLE),
        (IDLE, UNKNOWN, UNKNOWN),
        (IDLE, BUSY, BUSY),
        (UNKNOWN, IDLE, UNKNOWN),
        (UNKNOWN, UNKNOWN, UNKNOWN),
        (UNKNOWN, BUSY, BUSY),
        (BUSY, IDLE, BUSY),
        (BUSY, UNKNOWN, BUSY),
        (BUSY, BUSY, BUSY),
    ],
)
def test_worse(first, second, verdict):
    assert worse(first, second) is verdict


def test_worse_does_not_depend_on_the_order():
    for first, second in itertools.product(Verdict, repeat=2):
        assert worse(first, second) is worse(second, first)


def test_what_is_a_hard_sign():
    assert {Sign.ANNOUNCED, Sign.WORKER} == HARD_SIGNS


def test_states_fall_into_live_and_final():
    assert set(RunnerState) == LIVE | FINAL
    assert not LIVE & FINAL
    assert UNBOUND < LIVE
