"""Matching on counts: a maximum, least flexible first, and the order of the mappings means nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ephemerd.core.matching import match

CLASSES = ["c1", "c2", "c3", "c4"]
POOLS = ["p1", "p2", "p3", "p4"]
COUNTS = st.integers(0, 4)


@st.composite
def problems(draw):
    demand = {name: draw(COUNTS) for name in CLASSES}
    supply = {name: draw(COUNTS) for name in POOLS}
    edges = {name: tuple(draw(st.lists(st.sampled_from(POOLS), unique=True))) for name in CLASSES}
    return demand, supply, edges


def most(demand, supply, edges):
    """The largest matching, unit by unit (Kuhn's augmenting paths): slow and obviously right."""
    seats = [(pool, number) for pool, units in supply.items() for number in range(units)]
    taken: dict[tuple[str, int], tuple[str, int]] = {}

    def place(unit, tried):
        for seat in seats:
            if seat[0] in edges.get(unit[0], ()) and seat not in tried:
                tried.add(seat)
                if seat not in taken or place(taken[seat], tried):
                    taken[seat] = unit
                    return True
        return False

    return sum(place((name, number), set()) for name, units in demand.items() for number in range(units))


@given(problems())
def test_maximum_and_within_the_counts(problem):
    demand, supply, edges = problem
    flow = match(demand, supply, edges)
    assert all(units > 0 and pool in edges[name] for (name, pool), units in flow.items())
    for name, units in demand.items():
        assert sum(n for (other, _), n in flow.items() if other == name) <= units
    for pool, units in supply.items():
        assert sum(n for (_, other), n in flow.items() if other == pool) <= units
    assert sum(flow.values()) == most(demand, supply, edges)


@given(problems(), st.randoms(use_true_random=False))
def test_order_of_the_mappings_means_nothing(problem, rng):
    def shuffled(mapping):
        items = list(mapping.items())
        rng.shuffle(items)
        return dict(items)

    demand, supply, edges = problem
    mixed = {name: tuple(rng.sample(pools, len(pools))) for name, pools in edges.items()}
    assert match(shuffled(demand), shuffled(supply), shuffled(mixed)) == match(demand, supply, edges)


@given(problems())
def test_arguments_are_left_alone(problem):
    demand, supply, edges = problem
    before = (dict(demand), dict(supply), dict(edges))
    match(demand, supply, edges)
    assert (demand, supply, edges) == before


def test_least_flexible_demand_first():
    edges = {"any": ("big", "small"), "big": ("big",)}
    assert match({"any": 1, "big": 1}, {"big": 1, "small": 1}, edges) == {
        ("big", "big"): 1,
        ("any", "small"): 1,
    }


def test_least_flexible_supply_first():
    edges = {"a": ("wide", "narrow"), "b": ("wide",), "c": ("wide",)}
    assert match({"a": 1}, {"wide": 1, "narrow": 1}, edges) == {("a", "narrow"): 1}
    assert match({"a": 1, "b": 1, "c": 0}, {"wide": 1, "narrow": 1}, edges) == {
        ("a", "narrow"): 1,
        ("b", "wide"): 1,
    }


def test_pool_that_fewer_classes_can_use_is_used_first():
    edges = {"a": ("a-wide", "z-narrow"), "b": ("a-wide", "b-other")}
    flow = match({"a": 1, "b": 1}, {"a-wide": 2, "z-narrow": 1, "b-other": 1}, edges)
    assert flow == {("a", "z-narrow"): 1, ("b", "b-other"): 1}


def test_long_chain_is_shifted():
    """Greedy alone leaves one over: c3 reaches only what the others took."""
    edges = {
        "c1": ("p1", "p2"),
        "c2": ("p2", "p3"),
        "c3": ("p1", "p2"),
        "c4": ("p3", "p4"),
        "c5": ("p3", "p4"),
    }
    demand = dict.fromkeys(edges, 1)
    assert sum(match(demand, {"p1": 1, "p2": 1, "p3": 2, "p4": 1}, edges).values()) == 5


def test_nothing_to_match():
    assert match({}, {}, {}) == {}
    assert match({"a": 3}, {"p": 2}, {}) == {}
    assert match({"a": 0, "b": -1}, {"p": 2}, {"a": ("p",), "b": ("p",)}) == {}
    assert match({"a": 2}, {"p": 0}, {"a": ("p", "unknown")}) == {}


def test_a_chain_moves_one_unit_and_leaves_the_others():
    """Greedy gives both of a's units to q, and b reaches nothing else: one of them moves to p."""
    edges = {"0": ("r",), "a": ("p", "q"), "b": ("q", "r"), "c": ("p", "r"), "d": ("p", "r")}
    flow = match({"0": 1, "a": 2, "b": 1, "c": 1, "d": 1}, {"p": 3, "q": 2, "r": 1}, edges)
    assert flow == {
        ("0", "r"): 1,
        ("a", "q"): 1,
        ("a", "p"): 1,
        ("b", "q"): 1,
        ("c", "p"): 1,
        ("d", "p"): 1,
    }


def test_a_chain_is_shifted_as_often_as_it_takes():
    edges = {"0": ("r",), "a": ("p", "q"), "b": ("q", "r"), "c": ("p", "r"), "d": ("p", "r")}
    flow = match({"0": 1, "a": 2, "b": 2, "c": 1, "d": 1}, {"p": 4, "q": 2, "r": 1}, edges)
    assert flow == {("0", "r"): 1, ("a", "p"): 2, ("b", "q"): 2, ("c", "p"): 1, ("d", "p"): 1}
