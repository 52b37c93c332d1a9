"""The budget of writes in virtual time: a burst, then so many a second, slower after a limit; never a long wait."""

from __future__ import annotations

import pytest

from ephemerd.domain.pool import Policy
from ephemerd.testing.simulate.budget import SLOW_FOR, WAIT, ModelBucket
from ephemerd.testing.simulate.run import Simulation
from tests.unit.simulate.build import calm, just

POLICY = Policy()


def taken(bucket: ModelBucket, now: int, count: int) -> list[int | None]:
    return [bucket.take(now) for _ in range(count)]


def test_a_burst_is_free_and_then_it_is_so_many_a_second():
    bucket = ModelBucket(POLICY)
    assert taken(bucket, 0, 30) == [0] * 30
    assert taken(bucket, 0, 3) == [334, 667, 1_000]
    assert bucket.take(1_000) == 334, "the three that were promised come first"


def test_it_fills_up_to_the_burst_and_no_further():
    bucket = ModelBucket(POLICY)
    taken(bucket, 0, 30)
    assert taken(bucket, 3_600_000, 31)[-2:] == [0, 334]


def test_what_would_wait_too_long_is_not_taken():
    bucket = ModelBucket(POLICY)
    waits = taken(bucket, 0, 80)
    granted = [wait for wait in waits if wait is not None]
    assert max(granted) <= WAIT
    assert len(granted) == 30 + 45
    assert waits[-1] is None
    assert bucket.wait(0) > WAIT
    assert bucket.take(400) is not None, "nothing was used up by what was not taken"


def test_after_a_limit_it_is_slow_for_a_while():
    bucket = ModelBucket(POLICY)
    bucket.slow_down(0, 60_000)
    assert taken(bucket, 0, 2) == [1_000, 2_000]
    assert bucket.take(60_000 + SLOW_FOR - 1) == 0
    taken(bucket, 60_000 + SLOW_FOR, 30)
    first, second = taken(bucket, 60_000 + SLOW_FOR + 1, 2)
    assert (first, second) != (None, None)
    assert (second or 0) - (first or 0) in (333, 334), "again three a second"


@pytest.mark.parametrize("jobs", [60, 120])
def test_a_large_burst_is_registered_at_that_pace(jobs):
    weather = calm(burst=(jobs, jobs), slots=200, job=just(60))
    result = Simulation(weather, 1, jobs).run()
    assert result.problems == []
    waits = sorted(result.outcome.waits)
    assert waits[-1] - waits[0] >= (jobs - 40) / 3 * 1_000
    assert result.outcome.completed == jobs
