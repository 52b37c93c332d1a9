"""Which version was used when, which are needed, which end soon."""

from __future__ import annotations

import pytest

from ephemerd.app.versions import UNSURE, needed, refused_from, start_of, trimmed, used_at
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.pool import DAY, HOUR
from ephemerd.domain.runner import Runner, RunnerState
from ephemerd.ports.applications import Ends, Use
from tests.unit.app.fakes import SCOPE

USES = [Use("d", 40 * DAY), Use("c", 30 * DAY), Use("b", 20 * DAY), Use("a", 10 * DAY)]


@pytest.mark.parametrize(
    ("at", "key"), [(9 * DAY, None), (10 * DAY, "a"), (20 * DAY - 1, "a"), (20 * DAY, "b"), (99 * DAY, "d")]
)
def test_the_version_that_was_in_use(at, key):
    assert used_at(USES, at) == key


@pytest.mark.parametrize(
    ("starts", "keys"),
    [
        ([], {"c", "d"}),
        ([41 * DAY], {"c", "d"}),
        ([25 * DAY], {"b", "c", "d"}),
        ([15 * DAY], {"a", "c", "d"}),
        ([20 * DAY + UNSURE], {"a", "b", "c", "d"}),
        ([20 * DAY - UNSURE], {"a", "b", "c", "d"}),
        ([20 * DAY + UNSURE + 1], {"b", "c", "d"}),
        ([9 * DAY], None),
        ([10 * DAY], {"a", "c", "d"}),
        ([41 * DAY, 9 * DAY], None),
    ],
)
def test_what_runs_needs_what_it_was_made_from(starts, keys):
    assert needed(USES, starts) == keys


def test_without_a_memory_everything_is_needed_by_whoever_runs():
    assert needed([], [DAY]) is None
    assert needed([], []) == set()


def test_the_memory_ends_where_nothing_is_at_hand():
    assert trimmed(USES, ["d", "c", "b", "a"]) == USES
    assert trimmed(USES, ["d", "b"]) == USES[:3]
    assert trimmed(USES, []) == USES[:2]
    assert trimmed([], []) == []


def test_a_version_is_good_for_a_month_after_the_next_one_or_as_the_forge_says():
    assert refused_from(USES, "d", {}) is None
    assert refused_from(USES, "c", {}) == 70 * DAY
    assert refused_from(USES, "c", {"c": Ends(running=50 * DAY)}) == 50 * DAY
    assert refused_from(USES, "d", {"d": Ends(running=60 * DAY)}) == 60 * DAY
    assert refused_from(USES, "c", {"c": Ends(registration=1)}) == 70 * DAY
    assert refused_from(USES, "unknown", {}) is None


def test_a_start_is_when_it_was_ordered():
    row = Runner(RunnerId("r"), "p", "h", SCOPE, 1, RunnerState.STARTING, since=3 * HOUR, created=HOUR)
    assert start_of(row) == HOUR
