"""Pauses: the steps in their order, give or take the jitter, the same for equal histories."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerd.core.backoff import delay, doubling
from ephemerd.domain.pool import Policy

STEPS = Policy().backoff


@pytest.mark.parametrize(
    ("failures", "step"), [(1, 30_000), (2, 60_000), (3, 120_000), (4, 300_000), (5, 600_000), (99, 600_000)]
)
def test_steps_without_jitter(failures, step):
    assert delay(STEPS, failures, 0.0, "pool") == step


@given(st.integers(1, 40), st.text(max_size=30))
def test_jitter_stays_within_its_share(failures, seed):
    step = delay(STEPS, failures, 0.0, seed)
    assert 0.8 * step - 1 <= delay(STEPS, failures, 0.2, seed) <= 1.2 * step


def test_jitter_spreads_to_both_sides_and_depends_on_the_seed_alone():
    waits = [delay(STEPS, 1, 0.2, f"pool:{number}") for number in range(200)]
    assert waits == [delay(STEPS, 1, 0.2, f"pool:{number}") for number in range(200)]
    assert min(waits) < 25_500
    assert max(waits) > 34_500
    assert 28_500 < sum(waits) / 200 < 31_500
    assert len(set(waits)) > 190


def test_each_failure_of_one_seed_waits_differently():
    assert delay((1_000_000,), 1, 0.2, "a") != delay((1_000_000,), 2, 0.2, "a")


@pytest.mark.parametrize(("times", "pause"), [(0, 2), (1, 4), (4, 32), (5, 60), (6, 60), (10_000, 60)])
def test_doubling_up_to_the_most(times, pause):
    assert doubling(2, 60, times) == pause


def test_pauses_are_those_of_every_earlier_day():
    """A journal is replayed by the rules that wrote it: a spread that changes silently breaks the replay."""
    waits = [delay((30_000, 60_000), failures, 0.2, "linux:exit:7") for failures in (1, 2, 3)]
    assert waits == [26_702, 67_942, 65_210]
    assert delay((1_000_000_000,), 1, 1.0, "a") == 940_440_108


def test_a_pause_is_never_negative():
    waits = [delay((1_000,), 1, 5.0, f"pool:{number}") for number in range(50)]
    assert min(waits) == 0
