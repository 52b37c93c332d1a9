"""The agenda: one moment a subject, the earliest first, and nothing that was called off."""

from __future__ import annotations

from ephemerd.core.agenda import Agenda


def agenda(*moments: tuple[str, str, int | None]) -> Agenda:
    found = Agenda()
    for kind, name, at in moments:
        found.set(kind, name, at)
    return found


def test_an_empty_agenda_wakes_nobody() -> None:
    assert Agenda().next() is None
    assert Agenda().due(10**12) == []


def test_the_earliest_is_next_and_what_was_moved_or_called_off_is_not() -> None:
    found = agenda(("runner", "a", 5), ("runner", "b", 7), ("job", "c", 9))
    assert found.next() == 5
    found.set("runner", "a", 8)
    assert found.next() == 7
    found.set("runner", "b", None)
    assert found.next() == 8
    found.set("runner", "b", None)  # called off twice
    assert found.moments() == {("runner", "a"): 8, ("job", "c"): 9}


def test_what_is_due_is_taken_out_once_in_the_order_of_its_subjects() -> None:
    found = agenda(("runner", "b", 5), ("runner", "a", 7), ("job", "z", 7), ("job", "y", 8))
    assert found.due(4) == []
    assert found.due(7) == [("job", "z"), ("runner", "a"), ("runner", "b")]
    assert found.due(7) == []
    assert found.moments() == {("job", "y"): 8}


def test_a_moment_that_was_moved_and_moved_back_comes_once() -> None:
    found = agenda(("runner", "a", 5), ("runner", "a", 9), ("runner", "a", 5))
    assert found.due(9) == [("runner", "a")]
    assert found.next() is None


def test_a_moment_that_nobody_wanted_any_more_is_wanted_again() -> None:
    found = agenda(
        ("runner", "a", 5), ("runner", "a", None), ("job", "b", 5), ("job", "c", 5), ("job", "b", 7)
    )
    assert found.next() == 5
    assert found.due(6) == [("job", "c")]
    assert found.due(6) == []
    assert found.next() == 7


def test_setting_the_same_moment_again_costs_nothing() -> None:
    """Every turn sets the moments of what it touched: doubles would pile up."""
    found = agenda(*[("runner", "a", 5)] * 1_000)
    assert len(found._heap) == 1


def test_the_moments_are_a_copy() -> None:
    found = agenda(("runner", "a", 5))
    found.moments().clear()
    assert found.next() == 5


def test_a_moment_is_over_from_itself_on_until_it_is_told_of() -> None:
    found = agenda(("scope", "a", 5))
    assert [found.is_over("scope", "a", now) for now in (4, 5, 6)] == [False, True, True]
    assert not found.is_over("scope", "b", 6)
    assert not found.is_over("runner", "a", 6)
    found.due(5)
    assert not found.is_over("scope", "a", 6)
