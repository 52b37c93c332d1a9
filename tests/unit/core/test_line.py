"""The waiting line keeps the order of arrival, whoever leaves and comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ephemerd.core.line import LEAST_DEAD, Line
from ephemerd.domain.ids import JobKey


def key(order: int) -> JobKey:
    return JobKey("f", "a/b", order)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=400))
def test_line_equals_a_sorted_set(moves):
    line, model = Line(), {}
    for join, order in moves:
        if join and order not in model:
            model[order] = key(order)
            line.add(order, key(order))
        elif not join and order in model:
            del model[order]
            line.drop(order)
        assert list(line) == [model[place] for place in sorted(model)]
        assert len(line) == len(model)
        assert line.oldest() == (model[min(model)] if model else None)


def test_places_of_jobs_that_left_are_packed_away():
    line = Line()
    for order in range(10_000):
        line.add(order, key(order))
        if order >= 2:
            line.drop(order - 2)
    assert list(line) == [key(9_998), key(9_999)]
    assert len(line._places) <= 2 * 2 + LEAST_DEAD + 1


def test_whoever_comes_back_to_the_last_place_stands_there_once():
    line = Line()
    line.add(5, key(5))
    line.add(7, key(7))
    line.drop(7)
    line.add(7, key(7))
    assert list(line) == [key(5), key(7)]


def test_who_leaves_a_short_line_costs_no_packing():
    line = Line()
    for order in range(50):
        line.add(order, key(order))
    places = line._places
    for order in range(10):
        line.drop(order)
    assert line._places is places
    assert list(line) == [key(order) for order in range(10, 50)]


def test_who_stands_first_still_does_after_those_behind_were_packed_away():
    line = Line()
    for order in range(200):
        line.add(order, key(order))
    for order in range(199, 0, -1):
        line.drop(order)
        assert (line.oldest(), len(list(line))) == (key(0), order)
