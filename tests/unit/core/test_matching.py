"""Matching on counts: a maximum, least flexible first, and the order of the mappings means nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ephemerd.core import matching


def match(demand, supply, edges):
    """Match mappings; a class without demand is nobody's taker, as in the core."""
    wanting = {name: edges.get(name, ()) for name, units in demand.items() if units > 0}
    return matching.match(
        lambda name: demand[name], supply, lambda name: edges[name], matching.takers_of(wanting)
    )


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
    assert match(shuffled(demand), shuffled(supply), shuffled(edges)) == match(demand, supply, edges)


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
    assert match({"a": 1, "b": 1, "c": 0}, {"wide": 1, "narrow": 1}, edges) == {
        ("a", "narrow"): 1,
        ("b", "wide"): 1,
    }


def test_of_pools_that_serve_as_many_classes_the_preferred_one_is_used() -> None:
    assert match({"a": 1}, {"p": 1, "q": 1}, {"a": ("q", "p")}) == {("a", "q"): 1}
    assert match({"a": 1}, {"p": 1, "q": 1}, {"a": ("p", "q")}) == {("a", "p"): 1}


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


def test_where_nobody_is_left_open_nobody_moves() -> None:
    """q has one left over, and a or c could go there from p: for whom?"""
    edges = {"a": ("p", "q"), "b": ("q",), "c": ("p", "q")}
    flow = match(dict.fromkeys("abc", 1), {"p": 2, "q": 2}, edges)
    assert flow == {("b", "q"): 1, ("a", "p"): 1, ("c", "p"): 1}


def test_a_chain_is_shifted_as_often_as_it_takes():
    edges = {"0": ("r",), "a": ("p", "q"), "b": ("q", "r"), "c": ("p", "r"), "d": ("p", "r")}
    flow = match({"0": 1, "a": 2, "b": 2, "c": 1, "d": 1}, {"p": 4, "q": 2, "r": 1}, edges)
    assert flow == {("0", "r"): 1, ("a", "p"): 2, ("b", "q"): 2, ("c", "p"): 1, ("d", "p"): 1}


def test_a_chain_takes_no_more_than_there_is_to_serve():
    """The pool at its end has more left than is wanted: one unit moves there, not all of them."""
    edges = {"0": ("r",), "a": ("p", "q"), "b": ("q", "r"), "c": ("p", "r"), "d": ("p", "r")}
    flow = match({"0": 1, "a": 2, "b": 1, "c": 1, "d": 1}, {"p": 9, "q": 2, "r": 1}, edges)
    assert flow == {
        ("0", "r"): 1,
        ("a", "q"): 1,
        ("a", "p"): 1,
        ("b", "q"): 1,
        ("c", "p"): 1,
        ("d", "p"): 1,
    }


def test_a_chain_gives_no_more_than_the_pool_at_its_end_has():
    edges = {"0": ("r",), "a": ("p", "q"), "b": ("q", "r"), "c": ("p", "r"), "d": ("p", "r")}
    flow = match({"0": 1, "a": 2, "b": 2, "c": 1, "d": 1}, {"p": 3, "q": 2, "r": 1}, edges)
    used = {pool: sum(units for (_, via), units in flow.items() if via == pool) for pool in "pqr"}
    assert used == {"p": 3, "q": 2, "r": 1}


def test_a_pool_that_two_classes_could_leave_is_come_to_once():
    edges = {"a": ("p", "q"), "b": ("p", "q")}
    assert match({"a": 1, "b": 1}, {"p": 2, "q": 1}, edges) == {("a", "p"): 1, ("b", "p"): 1}


def test_a_class_that_holds_two_pools_of_a_chain_is_walked_through_once():
    """b is served by moving one of a's from q to p; a's other one, in s, leads nowhere, and not back."""
    edges = {"a": ("q", "s", "p"), "b": ("q", "r", "t"), "c": ("r",), "d": ("t",), "e": ("p",), "f": ("p",)}
    demand = {"a": 2, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}
    flow = match(demand, {"p": 3, "q": 1, "r": 1, "s": 1, "t": 1}, edges)
    assert (flow["b", "q"], flow["a", "s"], flow["a", "p"]) == (1, 1, 1)
    assert sum(flow.values()) == 7


def test_a_pool_without_supply_counts_in_how_flexible_a_class_is():
    """Both have two pools to go to, and only one unit is there for them: the first by name has it."""
    edges = {"a": ("p", "r"), "b": ("p", "empty"), "c": ("r",)}
    assert match(dict.fromkeys(edges, 1), {"p": 1, "r": 1, "empty": 0}, edges) == {
        ("a", "p"): 1,
        ("c", "r"): 1,
    }


def test_a_class_is_looked_at_once_however_many_pools_serve_it():
    asked = []

    def demand(name):
        asked.append(name)
        return {"a": 1, "b": 9}[name]

    edges = {"a": ("p", "q"), "b": ("p",)}
    flow = matching.match(demand, {"p": 1, "q": 3}, lambda name: edges[name], matching.takers_of(edges))
    assert flow == {("b", "p"): 1, ("a", "q"): 1}
    assert asked.count("a") == 1


def test_thousands_of_classes_cost_no_more_than_the_supply():
    edges = {f"c{number:05}": ("p",) for number in range(5_000)}
    asked = []

    def demand(name):
        asked.append(name)
        return 1

    flow = matching.match(demand, {"p": 3}, lambda name: edges[name], matching.takers_of(edges))
    assert flow == {("c00000", "p"): 1, ("c00001", "p"): 1, ("c00002", "p"): 1}
    assert len(asked) == 3


def test_a_class_without_demand_keeps_no_pool_for_itself():
    edges = {"a": ("p", "q"), "none": ("p",)}
    assert match({"a": 1, "none": 0}, {"p": 1, "q": 1}, edges) == {("a", "p"): 1}


def test_a_class_of_which_others_serve_all_or_more_is_given_nothing() -> None:
    edges = {"a": ("p", "q"), "b": ("p", "q"), "c": ("p", "q")}
    demand = {"a": 0, "b": -1, "c": 2}

    def flow(supply):
        return matching.match(demand.__getitem__, supply, edges.__getitem__, matching.takers_of(edges))

    assert flow({"p": 5}) == {("c", "p"): 2}
    assert flow({"p": 5, "q": 5}) == {("c", "p"): 2}


def test_a_class_that_fewer_varieties_serve_comes_first_wherever_it_stands_in_their_lines() -> None:
    edges = {"a": ("p", "q"), "b": ("q",)}
    assert match({"a": 2, "b": 1}, {"p": 1, "q": 1}, edges) == {("b", "q"): 1, ("a", "p"): 1}


def test_a_chain_goes_through_as_many_as_it_takes() -> None:
    """d is served where b leaves, b where a leaves, and a where there is something left."""
    edges = {"a": ("q", "p"), "b": ("r", "q"), "c": ("s",), "d": ("r", "s"), "e": ("p",)}
    assert match(dict.fromkeys(edges, 1), {"p": 2, "q": 1, "r": 1, "s": 1}, edges) == {
        ("a", "p"): 1,
        ("b", "q"): 1,
        ("c", "s"): 1,
        ("d", "r"): 1,
        ("e", "p"): 1,
    }


def test_a_chain_is_looked_for_behind_what_leads_nowhere_twice() -> None:
    """Moving a or b from q serves nobody; moving c from r serves d."""
    edges = {"a": ("q", "p"), "b": ("q", "p"), "c": ("r", "p"), "d": ("r", "s"), "e": ("p",), "f": ("s",)}
    flow = match(dict.fromkeys(edges, 1), {"p": 2, "q": 2, "r": 1, "s": 1}, edges)
    assert (flow["c", "p"], flow["d", "r"], sum(flow.values())) == (1, 1, 6)
