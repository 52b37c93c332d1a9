"""A listing comes in parts that are short, in order and whole."""

from __future__ import annotations

import pytest

from ephemerd.core.events import READ_AT_ONCE, read_in_parts
from ephemerd.domain.job import ForgeStatus
from tests.unit.core.world import APP, report


@pytest.mark.parametrize("jobs", [0, 1, READ_AT_ONCE, READ_AT_ONCE + 1, 3 * READ_AT_ONCE - 1])
def test_the_parts_of_a_listing_are_all_of_it_in_its_order(jobs: int) -> None:
    told = [report(number, ForgeStatus.QUEUED) for number in range(jobs)]
    parts = list(read_in_parts(APP, told))
    assert [said for part in parts for said in part.reports] == told
    assert all(part.scope == APP and 0 < len(part.reports) <= READ_AT_ONCE for part in parts)
    assert len(parts) == -(-jobs // READ_AT_ONCE)
