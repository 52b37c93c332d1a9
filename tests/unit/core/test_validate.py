"""What must hold of a state is missed when it does not: each check is shown a state that it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ephemerd.core import events as ev
from ephemerd.core.health import assess
from ephemerd.core.state import State
from ephemerd.core.validate import slot_difference, validate, validate_runner
from ephemerd.domain.ids import JobKey, RunnerId
from ephemerd.domain.job import JobStatus
from ephemerd.domain.runner import RunnerState
from tests.unit.core.world import World, key

S = RunnerState
NAME = "eph-s1-e1-1"
WHO = RunnerId(NAME)


def state() -> State:
    """A sound state: one runner listens for a job that waits, another job runs elsewhere, one is done."""
    world = World()
    world.listening(1)
    world.in_progress(2, "elsewhere")
    world.completed(3)
    assert validate(world.core.state) == []
    return world.core.state


INDEX: list[tuple[str, Callable[[State], object]]] = [
    ("index supply:", lambda s: s.index.supply["small"].clear()),
    ("index consuming:", lambda s: s.index.consuming.setdefault("small", {}).setdefault(WHO)),
    ("index live:", lambda s: s.index.live["small"].setdefault(RunnerId("eph-s1-e1-9"))),
    ("index held:", lambda s: s.index.held.update(here=2)),
    ("index reserved:", lambda s: s.index.reserved.update(here=1)),
    ("index asked:", lambda s: s.index.asked.update(any=1)),
    ("index abandoned:", lambda s: s.index.abandoned.update(here=1)),
    ("index by_status:", lambda s: s.index.statuses.update({JobStatus.QUEUED: 2})),
    ("index by_state:", lambda s: s.index.states.clear()),
    ("index registrations:", lambda s: s.index.registrations.clear()),
    ("index running: 0 kept, 1 counted", lambda s: s.index.running.clear()),
    ("index finished: 0 kept, 1 counted", lambda s: s.index.finished.clear()),
    ("index refused: 1 kept, 0 counted", lambda s: s.index.refused.setdefault(key(9))),
    ("index unsure:", lambda s: s.index.unsure.update({("github", "acme/app", 7): {key(9): None}})),
    ("index by_repository:", lambda s: s.index.by_repository.clear()),
    ("index groups:", lambda s: next(iter(s.index.groups.values())).queued.add(99, key(99))),
    ("index intents:", lambda s: s.index.intents.clear()),
    ("index held_back:", lambda s: s.index.held_back.update(any=None)),
    ("index takers:", lambda s: s.index.takers.clear()),
    ("index turns:", lambda s: s.index.turns.clear()),
    ("class github/acme/app", lambda s: s.index.flow.clear()),
    ("class github/acme/app", lambda s: s.classes.clear()),
]


@pytest.mark.parametrize(("text", "break_it"), INDEX, ids=[text.split(":")[0] for text, _ in INDEX])
def test_an_index_that_is_no_recount_is_named(text: str, break_it: Callable[[State], object]) -> None:
    broken = state()
    break_it(broken)
    assert any(problem.startswith(text) for problem in validate(broken))


def test_empty_rests_of_an_index_are_no_difference() -> None:
    sound = state()
    sound.index.supply["elsewhere"] = {}
    assert validate(sound) == []


def test_i3_slots_held_by_nobody_are_counted_and_said() -> None:
    broken = state()
    broken.index.held["here"] = 3
    assert slot_difference(broken) == 2
    assert "slots: 2 more held than runners hold" in validate(broken)
    (reason,) = [reason for reason in assess(broken, broken.booted).reasons if "Slot accounting" in reason]
    assert "differs by 2" in reason
    assert assess(broken, broken.booted).status == "degraded"


def test_i3_less_than_nothing_is_held_nowhere() -> None:
    broken = state()
    broken.index.held["there"] = -1
    assert "slots: -1 held on there" in validate(broken)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"hard": 5}, "listening with a hard sign"),
        ({"state": S.RUNNING}, "running without a hard sign"),
        ({"consumes": True, "job": JobKey("github", "acme/app", 7)}, "its job has a name, and it stands for"),
        ({"registration": None, "environment": None}, "listening without a registration"),
        ({"registration": None, "environment": None, "state": S.RUNNING, "hard": 1}, "running without a reg"),
    ],
)
def test_a_row_that_contradicts_itself_is_named(changes: dict[str, object], text: str) -> None:
    broken = state()
    row = replace(broken.runners[WHO], **changes)
    (problem,) = validate_runner(row)
    assert problem.startswith(f"runner {NAME}: {text}")
    broken.runners[WHO] = row
    assert problem in validate(broken)


@pytest.mark.parametrize("found", [{"registration": 7}, {"environment": "env"}, {"adopted": True}])
def test_one_thing_of_the_three_is_enough_for_a_listener(found: dict[str, object]) -> None:
    row = replace(state().runners[WHO], **({"registration": None, "environment": None} | found))
    assert validate_runner(row) == []


@pytest.mark.parametrize("final", [S.GONE, S.ABANDONED])
def test_what_has_ended_is_in_no_gate(final: RunnerState) -> None:
    world = World()
    (name,) = world.listening(1)
    world.feed(ev.KillOrdered("ann", name, "cleaning up"))
    row = world.runner(name)
    assert row.gate is not None
    assert validate_runner(row) == []
    assert validate_runner(replace(row, state=final)) == [f"runner {name}: {final.value} in the gate"]


@pytest.mark.parametrize(
    ("number", "changes", "text"),
    [
        (3, {"ended": None}, "done without a time"),
        (1, {"asking": "name"}, "asks name without a time"),
        (2, {"asking": "confirm", "asked": 5}, "a slot is reserved for it although it is running"),
        (1, {"labels": ("a\x1fb",)}, "a label could forge a class key"),
    ],
)
def test_a_job_that_contradicts_itself_is_named(number: int, changes: dict[str, object], text: str) -> None:
    broken = state()
    broken.jobs[key(number)] = replace(broken.jobs[key(number)], **changes)
    assert f"job github/acme/app/{number}: {text}" in validate(broken)


def test_a_gone_job_has_its_time_too() -> None:
    broken = state()
    broken.jobs[key(3)] = replace(broken.jobs[key(3)], status=JobStatus.GONE, ended=None)
    assert "job github/acme/app/3: gone without a time" in validate(broken)


def test_two_runners_never_have_one_order() -> None:
    broken = state()
    other = replace(broken.runners[WHO], id=RunnerId("eph-s1-e1-8"))
    broken.runners[other.id] = other
    assert f"runners eph-s1-e1-8 and {NAME} have one order" in validate(broken)


def test_a_class_that_counts_as_matched_although_nothing_is_given_to_it_is_named() -> None:
    broken = state()
    broken.index.flow.clear()
    (name,) = (name for name, group in broken.index.groups.items() if group.matched)
    assert f"class {name}: 1 matched, 0 given" in validate(broken)


def test_a_wrong_count_of_jobs_without_supply_is_named() -> None:
    broken = state()
    broken.index.unmatched += 1
    assert (
        f"index unmatched: {broken.index.unmatched} kept, {broken.index.unmatched - 1} counted"
        in validate(broken)
    )
