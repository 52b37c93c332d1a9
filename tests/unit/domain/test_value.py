"""Values are frozen, compared by their fields, and copied with a change."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ephemerd.core.rows import ClassRow
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.job import F, ForgeStatus, J, JobStatus
from ephemerd.domain.runner import Runner, RunnerState, S

ROW = Runner(RunnerId("a"), "p", "h", Scope("f", "repo:a/b"), 1, RunnerState.PLANNED, 5, 5)


def test_a_changed_copy_leaves_the_original():
    changed = replace(ROW, since=9, soft=7)
    assert (changed.since, changed.soft, changed.pool) == (9, 7, "p")
    assert (ROW.since, ROW.soft) == (5, None)
    assert replace(ClassRow(), held=True) == ClassRow(held=True)


def test_a_copy_is_as_frozen_as_the_original():
    with pytest.raises(AttributeError):
        replace(ROW, since=9).since = 3  # type: ignore[misc]


def test_an_unknown_field_is_refused():
    with pytest.raises(TypeError, match="`Runner` has no field 'sinec'"):
        replace(ROW, sinec=1)


def test_values_are_equal_where_all_their_fields_are():
    equal = replace(ROW, scope=Scope("f", "repo:a/b"))
    assert equal.scope is not ROW.scope
    assert equal == ROW
    assert replace(ROW, labels=("a",)) != ROW


def test_keys_are_found_by_what_they_say():
    one, same, other = JobKey("f", "a/b", 1), JobKey("f", "a/b", 1), JobKey("g", "a/b", 1)
    assert {one: 1}[same] == 1
    assert other not in {one: 1}
    assert sorted([other, one]) == [one, other]


@pytest.mark.parametrize(("holder", "words"), [(S, RunnerState), (J, JobStatus), (F, ForgeStatus)])
def test_what_hot_code_reads_members_from_has_them_all(holder, words):
    members = {name: member for name, member in vars(holder).items() if not name.startswith("__")}
    assert members == dict(words.__members__)
